// The list of sessions: search, projects, trash.

import { ask, button, coalesced, count, el, icon, more, reason, reconcile, tell, when } from "./dom.js";

/** How many sessions are asked for at first, and more at a time. */
const pageLength = 200;

/**
 * @typedef {import("./page.js").App} App
 * @typedef {{ id: string, projectId: string, title?: string, status?: string, messages: number, bytes: number, active?: boolean, pinned?: boolean,
 *   selected?: string, updatedAt: number, deletedAt?: number, expiresAt?: number, why?: string, problem?: string }} Row
 * @typedef {{ kind: string, name: string, project: string, title?: string, updatedAt: string, list: string, index?: number, role?: string,
 *   excerpt: string, match: [number, number], also?: number }} Hit
 */

/** @param {{ projectId: string, id: string }} row */
const keyOf = (row) => `${row.projectId}/${row.id}`;

/** @param {Row} row */
export const titleOf = (row) => row.title || "Untitled";

export class SessionsPane {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.project = ""; // all of them
    this.filter = "";
    this.trash = false;
    this.limit = pageLength;
    /** @type {Row[]} */
    this.rows = [];
    /** @type {string[]} */
    this.known = []; // projects, also those of which nothing is left
    this.total = 0;
    /** @type {Hit[] | undefined} */
    this.hits = undefined; // of a search in what was said
    this.loaded = false;

    this.projects = el("select", { "aria-label": "Project", onchange: () => {
      this.project = this.projects.value;
      this.hits = undefined;
      this.show();
    } });
    this.search = el("input", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions; Enter looks in all messages", autocomplete: "off", oninput: () => {
      this.filter = this.search.value.trim();
      this.hits = undefined;
      this.show();
    } });
    this.trashButton = button("Trash", () => this.showTrash(!this.trash), { class: "quiet", "aria-pressed": "false" });
    this.list = el("ul", { class: "rows", "aria-label": "Sessions" });
    this.note = el("p", { class: "empty" });
    this.foot = el("div", { class: "foot" });
    this.root = el("nav", { class: "pane sessions", "aria-labelledby": "sessions-title" },
      el("div", { class: "head" },
        el("div", { class: "row" }, el("h2", { id: "sessions-title" }, "Sessions"), el("span", { class: "grow" }), this.trashButton,
          button([icon("plus"), document.createTextNode("New")], () => this.create(), { class: "primary", "aria-label": "New session" })),
        el("form", { role: "search", onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          this.searchMessages().catch((error) => this.failed(error));
        } }, this.search),
        this.projects),
      el("div", { class: "scroll" }, this.list, this.note, this.foot));
    this.refresh = coalesced(() => this.load());
  }

  /** Where what it showed is of another gateway. */
  reset() {
    Object.assign(this, { rows: [], total: 0, hits: undefined, loaded: false });
    this.show();
  }

  async load() {
    const { trash } = this;
    try {
      const argv = ["list", `--limit=${this.limit}`, ...(trash ? ["--trash"] : [])];
      const answer = /** @type {{ data: Row[], page?: { total: number } }} */ (await this.app.backend.rpc("sessions.invoke", { argv }));
      if (trash !== this.trash) return;
      this.rows = answer.data;
      this.total = answer.page?.total ?? answer.data.length;
      this.loaded = true;
    } catch (error) {
      this.failed(error);
      return;
    }
    this.show();
    this.app.sessionsLoaded();
  }

  /** @param {any} error */
  failed(error) {
    this.note.textContent = `The sessions cannot be shown: ${reason(error)}`;
    this.note.hidden = false;
  }

  /** @param {{ project: string, id: string } | undefined} ref */
  find(ref) {
    return ref && !this.trash ? this.rows.find((row) => row.id === ref.id && row.projectId === ref.project) : undefined;
  }

  /** The names of the projects. @returns {string[]} */
  projectNames() {
    return [...new Set([...this.known, "default", ...this.rows.map((row) => row.projectId)])].sort();
  }

  show() {
    this.known = this.projectNames();
    const names = ["", ...this.known];
    if (this.project && !names.includes(this.project)) names.push(this.project);
    reconcile(this.projects, names, (name) => name, (name) => el("option", { value: name }, name || "All projects"));
    this.projects.value = this.project;
    this.trashButton.setAttribute("aria-pressed", String(this.trash));

    if (this.hits) {
      this.showHits(this.hits);
      return;
    }
    const words = this.filter.toLowerCase().split(/\s+/);
    const rows = this.rows.filter((row) => (!this.project || row.projectId === this.project)
      && words.every((word) => `${titleOf(row)} ${row.id} ${row.projectId}`.toLowerCase().includes(word)));
    const current = this.app.at && keyOf({ projectId: this.app.at.project, id: this.app.at.id });
    reconcile(this.list, rows, (row) => (this.trash ? `${keyOf(row)}/${row.deletedAt}` : keyOf(row)), (row) => (this.trash ? this.trashed(row) : this.row(row)),
      (row) => [row, !this.trash && keyOf(row) === current, this.app.isRunning(row), this.project]);

    this.note.hidden = rows.length > 0;
    this.note.textContent = !this.loaded ? "Loading…"
      : this.filter ? `No title has “${this.filter}”. Press Enter to look in all messages.`
      : this.trash ? "Nothing is in the trash."
      : this.project ? `Project ${this.project} has no sessions yet.`
      : "No sessions yet. Make one with New.";
    const left = this.total - this.rows.length;
    this.foot.replaceChildren(...(left > 0 ? [button(`Show more (${left.toLocaleString("en")})`, () => {
      this.limit += pageLength;
      return this.load();
    }, { class: "quiet" })] : []));
  }

  /** @param {Row} row */
  row(row) {
    const { app } = this;
    const title = titleOf(row);
    const current = app.at?.id === row.id && app.at.project === row.projectId;
    const running = app.isRunning(row);
    const state = running ? "answering" : row.status === "waiting-permission" ? "waits for you" : row.status === "error" ? "failed" : "";
    return el("li", { class: current ? "item current" : "item" },
      el("a", { class: "main", href: app.href({ project: row.projectId, id: row.id }), "data-action": "open", "aria-current": current ? "page" : undefined },
        el("span", { class: "title" }, row.pinned && icon("pin"), row.pinned && el("span", { class: "hidden" }, "pinned "), title),
        el("span", { class: "meta" },
          state && el("span", { class: `state ${running ? "running" : ""}` }, state),
          row.problem ? el("span", { class: "state" }, `damaged: ${row.problem}`) : el("span", {}, count(row.messages, "message")),
          !this.project && el("span", {}, row.projectId),
          when(row.updatedAt))),
      more(title, ...this.actions(row)));
  }

  /**
   * The rarer things to do with a session.
   * @param {Row} row
   */
  actions(row) {
    return [
      button("Rename", () => this.rename(row), { "data-action": "rename" }),
      button(row.pinned ? "Unpin" : "Pin", async () => {
        await this.app.backend.rpc(row.pinned ? "sessions.unpin" : "sessions.pin", { id: row.id, project: row.projectId });
        this.refresh();
      }, { "data-action": "pin" }),
      button("Delete", () => this.remove(row), { class: "danger", "data-action": "delete" }),
    ];
  }

  /** @param {Row} row */
  trashed(row) {
    const title = titleOf(row);
    return el("li", { class: "item" },
      el("div", { class: "main" }, el("span", { class: "title" }, title),
        el("span", { class: "meta" }, el("span", {}, row.problem ? `damaged: ${row.problem}` : count(row.messages, "message")), el("span", {}, row.projectId), el("span", {}, row.why ?? "deleted"),
          when(row.deletedAt ?? 0))),
      button("Restore", () => this.restore(row), { "data-action": "restore", "aria-label": `Restore ${title}` }));
  }

  /** @param {Hit[]} hits */
  showHits(hits) {
    reconcile(this.list, hits.map((hit, i) => ({ hit, i })), ({ hit, i }) => `hit ${i} ${hit.name}`, ({ hit }) => {
      const [from, to] = hit.match ?? [0, 0];
      const letters = [...hit.excerpt]; // as the numbers of a match count
      const what = [
        el("span", { class: "title" }, hit.kind === "snapshot" ? icon("snapshot") : null, hit.kind === "snapshot" ? `${hit.name} · ` : "", hit.title || "Untitled"),
        el("span", { class: "excerpt" }, letters.slice(0, from).join(""), el("mark", {}, letters.slice(from, to).join("")), letters.slice(to).join("")),
        el("span", { class: "meta" }, el("span", {}, hit.kind), el("span", {}, hit.role || hit.list), el("span", {}, hit.project), when(hit.updatedAt)),
      ];
      return el("li", { class: "item" }, hit.kind === "session" ? el("a", { class: "main", href: this.app.href({ project: hit.project, id: hit.name }), "data-action": "open" }, ...what) : el("div", { class: "main" }, ...what));
    });
    this.note.hidden = hits.length > 0;
    this.note.textContent = `“${this.filter}” is in no message.`;
    this.foot.replaceChildren(button("Back to all sessions", () => {
      this.search.value = this.filter = "";
      this.hits = undefined;
      this.show();
      this.search.focus();
    }, { class: "quiet" }));
  }

  async searchMessages() {
    const text = this.filter;
    if (!text) return;
    const where = this.project ? { project: this.project } : { allProjects: true };
    const hits = /** @type {Hit[]} */ (await this.app.backend.invoke("sess", "search", { text, limit: 50, ...where }));
    if (text !== this.filter) return;
    this.hits = hits;
    this.show();
  }

  /** @param {boolean} on */
  async showTrash(on) {
    Object.assign(this, { trash: on, rows: [], total: 0, hits: undefined, loaded: false, limit: pageLength });
    this.list.setAttribute("aria-label", on ? "Sessions in the trash" : "Sessions");
    this.show();
    await this.load();
  }

  async create() {
    const models = await this.app.models();
    await ask({
      title: "New session", does: "Create",
      fields: [
        { name: "title", label: "Title", hint: "Without one it is named after the first message." },
        { name: "project", label: "Project", value: this.project || this.app.at?.project || "default", choices: this.projectNames(), required: true },
        { name: "model", label: "Model", hint: "As provider/model. Without one the configured default answers.", choices: models },
      ],
      run: async ({ title, project, model }) => {
        const made = await this.app.backend.createSession({ ...(title && { title }), ...(model && { model }), ...(project && { project }) });
        if (this.project && this.project !== made.projectId) this.project = made.projectId;
        if (this.trash) await this.showTrash(false);
        this.refresh();
        this.app.go({ project: made.projectId, id: made.id });
      },
    });
  }

  /** @param {Row} row */
  rename(row) {
    return ask({
      title: "Rename session", does: "Rename", fields: [{ name: "title", label: "Title", value: titleOf(row), required: true }],
      run: async ({ title }) => {
        await this.app.backend.rpc("sessions.rename", { id: row.id, project: row.projectId, title });
        this.refresh();
        this.app.conversation.refresh();
      },
    });
  }

  /** @param {Row} row */
  remove(row) {
    return ask({
      title: "Delete session?", does: "Delete", danger: true,
      text: `“${titleOf(row)}” goes to the trash. Its snapshots stay.`,
      run: async () => {
        try {
          await this.app.backend.rpc("sessions.delete", { id: row.id, project: row.projectId });
          tell(`“${titleOf(row)}” is in the trash.`, { action: "Undo", run: () => this.restore(row) });
        } catch (error) {
          if (/** @type {any} */ (error).code !== "not_found") throw error;
          tell(`“${titleOf(row)}” is already gone.`);
        }
        this.refresh();
        if (this.app.at?.id === row.id && this.app.at.project === row.projectId) this.app.go(undefined);
      },
    });
  }

  /** @param {Row} row */
  async restore(row) {
    await this.app.backend.rpc("sessions.restore", { id: row.id, project: row.projectId });
    tell(`“${titleOf(row)}” is back.`);
    if (this.trash) await this.showTrash(false);
    this.refresh();
    this.app.go({ project: row.projectId, id: row.id });
  }
}
