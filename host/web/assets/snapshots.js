// The snapshots of a session.

import { ask, button, coalesced, count, el, icon, iconButton, more, reason, reconcile, size, tell, when } from "./dom.js";

/**
 * @typedef {import("./page.js").App} App
 * @typedef {import("../client.js").Snapshot} Snapshot
 */

/** What made a snapshot, for people. */
const triggers = /** @type {Record<string, string>} */ ({
  manual: "by hand", autosave: "autosave", load: "before a restore", new: "before a new session",
  "delete-messages": "before deleting messages", compact: "before compacting", import: "imported",
});

/**
 * Reads "key=value, key2=value2".
 * @param {string} text
 */
function readTags(text) {
  /** @type {Record<string, string>} */
  const tags = {};
  for (const pair of text.split(",").map((p) => p.trim()).filter(Boolean)) {
    const at = pair.indexOf("=");
    if (at < 1) throw new Error(`“${pair}” is no tag: write key=value, and commas between several`);
    tags[pair.slice(0, at).trim()] = pair.slice(at + 1).trim();
  }
  return tags;
}

const writeTags = (/** @type {Record<string, string> | undefined} */ tags) => Object.entries(tags ?? {}).map(([k, v]) => `${k}=${v}`).join(", ");

export class SnapshotsPane {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {Snapshot[]} */
    this.all = [];
    this.loaded = false;
    this.scope = "session";
    this.problem = "";

    this.back = el("a", { class: "icon-button narrow", "aria-label": "Back to the conversation", title: "Back to the conversation" }, icon("back"));
    this.create = button([icon("plus"), document.createTextNode("Create")], () => this.ask(), { class: "primary", "aria-label": "Create snapshot" });
    this.undoButton = iconButton("undo", "Undo the last change", () => this.turn("undo"));
    this.redoButton = iconButton("redo", "Redo", () => this.turn("redo"));
    this.scopes = el("select", { "aria-label": "Which snapshots", onchange: () => {
      this.scope = this.scopes.value;
      this.all = [];
      this.loaded = false;
      this.show();
      this.refresh();
    } }, el("option", { value: "session" }, "Of this session"), el("option", { value: "project" }, "Of the whole project"), el("option", { value: "trash" }, "In the trash"));
    this.list = el("ul", { class: "rows", "aria-label": "Snapshots" });
    this.note = el("p", { class: "empty" });
    this.root = el("aside", { class: "pane snapshots", "aria-labelledby": "snapshots-title" },
      el("div", { class: "head" },
        el("div", { class: "row" }, this.back, el("h2", { id: "snapshots-title" }, "Snapshots"), el("span", { class: "grow" }), this.undoButton, this.redoButton, this.create),
        this.scopes),
      el("div", { class: "scroll" }, this.list, this.note));
    this.refresh = coalesced(() => this.load());
  }

  /** Begins anew for the session that is shown. */
  open() {
    Object.assign(this, { all: [], loaded: false, problem: "" });
    if (this.app.at) this.back.setAttribute("href", this.app.href(this.app.at));
    this.show();
    this.refresh();
  }

  /** What every call about the session has. */
  get about() {
    return { session: this.app.at?.id, project: this.app.at?.project };
  }

  async load() {
    const { at, backend } = this.app;
    const { scope } = this;
    if (!at) return;
    /** @type {Snapshot[]} */
    let all = [];
    let problem = "";
    try {
      all = scope === "session" ? await backend.listSnapshots(at.id, { project: at.project })
        : /** @type {Snapshot[]} */ (await backend.invoke("sess", scope === "trash" ? "trash list" : "list", { project: at.project, ...(scope === "project" && { includeAuto: true }) }));
    } catch (error) {
      problem = reason(error);
    }
    if (at !== this.app.at || scope !== this.scope) return;
    Object.assign(this, { all, problem, loaded: true });
    this.show();
    this.app.snapshotsLoaded();
  }

  show() {
    const { at } = this.app;
    const selected = this.app.conversation.selected;
    this.root.hidden = !at;
    reconcile(this.list, this.all, (s) => `${s.id} ${s.deletedAt ?? ""}`, (s) => (this.scope === "trash" ? this.trashed(s) : this.item(s, s.id === selected)), (s) => [s, s.id === selected, this.app.conversation.busy]);
    this.note.hidden = this.all.length > 0;
    this.note.classList.toggle("problem", this.problem !== "");
    this.note.textContent = this.problem ? `The snapshots cannot be shown: ${this.problem}`
      : !this.loaded ? "Loading…"
      : this.scope === "trash" ? "Nothing is in the trash."
      : "No snapshots yet. Create one before you try something: you can come back to it at any time.";
    this.create.hidden = this.problem !== "";
    this.undoButton.hidden = this.redoButton.hidden = this.problem !== "";
  }

  /** @param {Snapshot} s */
  facts(s) {
    return [
      (s.note || s.reason) && el("p", { class: "why" }, s.reason ?? "", s.reason && s.note ? el("br") : null, s.note ?? ""),
      el("p", { class: "meta" }, el("span", {}, count(s.messages, "message")), el("span", {}, size(s.bytes)), s.model && el("span", {}, s.model),
        s.trigger && el("span", {}, triggers[s.trigger] ?? s.trigger), when(s.createdAt)),
      s.tags && Object.keys(s.tags).length > 0 && el("p", { class: "tags" }, ...Object.entries(s.tags).map(([k, v]) => el("span", { class: "tag" }, `${k}=${v}`))),
      s.state && s.state !== "ok" && el("p", { class: "problem" }, `${s.state}${s.problem ? `: ${s.problem}` : ""}`),
    ];
  }

  /**
   * @param {Snapshot} s
   * @param {boolean} selected
   */
  item(s, selected) {
    const { app } = this;
    return el("li", { class: selected ? "item card current" : "item card" },
      el("h3", {}, el("span", { class: "name" }, s.name), s.pinned && el("span", { class: "badge" }, "pinned"), (s.automatic || s.auto) && el("span", { class: "badge" }, "automatic"), selected && el("span", { class: "badge strong" }, "shown")),
      ...this.facts(s),
      el("div", { class: "row" },
        selected ? button("Return to live", () => app.conversation.deselect(), { "data-action": "deselect" })
          : button("View", () => app.conversation.select(s), { "data-action": "view", "aria-label": `View ${s.name}` }),
        button("Restore", () => app.conversation.restore(s), { "data-action": "restore", "aria-label": `Restore ${s.name}` }),
        button("Delete", () => this.remove(s), { class: "danger", "data-action": "delete", "aria-label": `Delete ${s.name}` }),
        more(s.name,
          button("Copy", () => this.copy(s), { "data-action": "copy" }),
          button("Rename", () => this.rename(s), { "data-action": "rename" }),
          button("Note and tags", () => this.tag(s), { "data-action": "tag" }),
          button(s.pinned ? "Unpin" : "Pin", async () => {
            await this.invoke(s.pinned ? "unpin" : "pin", { name: s.id });
          }, { "data-action": "pin" }),
          button("Open as new session", () => this.asNew(s), { "data-action": "new" }))));
  }

  /** @param {Snapshot} s */
  trashed(s) {
    return el("li", { class: "item card" },
      el("h3", {}, el("span", { class: "name" }, s.name), el("span", { class: "badge" }, String(s.why ?? "deleted"))),
      ...this.facts(s),
      el("div", { class: "row" }, button("Bring back", async () => {
        const { text } = await this.invoke("trash restore", { name: s.id });
        tell(text);
      }, { "data-action": "restore", "aria-label": `Bring back ${s.name}` })));
  }

  /**
   * Calls a verb about the snapshots, and shows what came of it.
   * @param {string} verb
   * @param {Record<string, unknown>} fields
   */
  async invoke(verb, fields) {
    try {
      return /** @type {{ text: string, data: any }} */ (await this.app.backend.invoke("sess", verb, { ...this.about, ...fields }));
    } finally {
      this.refresh();
    }
  }

  ask() {
    const { at, backend } = this.app;
    if (!at) return;
    return ask({
      title: "Create snapshot", does: "Create",
      text: "It holds the conversation as it is now.",
      fields: [
        { name: "name", label: "Name", hint: "Letters, digits, dots, hyphens and _. Without one it is named after the time." },
        { name: "reason", label: "Reason" },
        { name: "note", label: "Note", kind: "area" },
        { name: "tags", label: "Tags", hint: "key=value, with commas between several" },
      ],
      run: async ({ name, reason, note, tags }) => {
        const { data } = await backend.createSnapshot(at.id, {
          project: at.project, ...(name && { name }), ...(reason && { reason }), ...(note && { note }), ...(tags && { tags: readTags(tags ?? "") }),
        });
        if (this.scope === "trash") this.scopes.value = this.scope = "session";
        this.refresh();
        tell(`Created ${data.name}.`);
      },
    });
  }

  /** @param {Snapshot} s */
  remove(s) {
    const { at, backend } = this.app;
    if (!at) return;
    return ask({
      title: "Delete snapshot?", does: "Delete", danger: true, text: `“${s.name}” goes to the trash.`,
      run: async () => {
        try {
          if (s.sessionId === at.id) await backend.deleteSnapshot(at.id, s.id, { project: at.project });
          else await backend.invoke("sess", "delete", { ...this.about, name: s.id });
          tell(`Deleted ${s.name}.`, { action: "Undo", run: () => this.turn("undo") });
        } catch (error) {
          if (/** @type {any} */ (error).code !== "not_found") throw error;
          tell(`${s.name} is already gone.`);
        }
        this.refresh();
        this.app.conversation.refresh();
      },
    });
  }

  /** @param {Snapshot} s */
  copy(s) {
    return ask({
      title: `Copy ${s.name}`, does: "Copy", fields: [{ name: "to", label: "Name of the copy", value: s.name.includes("~") ? "" : `${s.name}-copy`, required: true }, { name: "note", label: "Note", value: s.note ?? "", kind: "area" }],
      run: ({ to, note }) => this.invoke("copy", { from: s.id, to, ...(note !== (s.note ?? "") && { note }) }),
    });
  }

  /** @param {Snapshot} s */
  rename(s) {
    return ask({
      title: `Rename ${s.name}`, does: "Rename", fields: [{ name: "to", label: "Name", value: s.name, required: true }],
      run: ({ to }) => this.invoke("rename", { from: s.id, to }),
    });
  }

  /** @param {Snapshot} s */
  tag(s) {
    return ask({
      title: `Note and tags of ${s.name}`, does: "Save",
      fields: [{ name: "note", label: "Note", value: s.note ?? "", kind: "area" }, { name: "tags", label: "Tags", value: writeTags(s.tags), hint: "key=value, with commas between several" }],
      run: ({ note, tags }) => {
        const now = readTags(tags ?? "");
        const remove = Object.keys(s.tags ?? {}).filter((key) => !(key in now));
        return this.invoke("tag", { name: s.id, note, ...(Object.keys(now).length > 0 && { tags: now }), ...(remove.length > 0 && { remove }) });
      },
    });
  }

  /** @param {Snapshot} s */
  async asNew(s) {
    const { at } = this.app;
    const { data } = await this.invoke("load", { name: s.id, asNew: true });
    tell(`A new session begins as ${s.name}.`);
    this.app.sessions.refresh();
    if (at) this.app.go({ project: at.project, id: data.session });
  }

  /**
   * Takes the last change back, or brings it about again.
   * @param {"undo" | "redo"} verb
   */
  async turn(verb) {
    const { text } = await this.invoke(verb, {});
    tell(text);
    this.app.conversation.refresh();
  }
}
