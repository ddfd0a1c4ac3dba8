// One conversation: what was said, what is being said, and what is written next.

import { button, coalesced, el, focusOn, icon, iconButton, more, reason, reconcile, tell, tellError, when } from "./dom.js";

/** How many messages are shown at first, and more at a time. */
const pageLength = 50;

/** @param {{ project: string, id: string }} at */
const draftKey = (at) => `${at.project}/${at.id}`;

/**
 * @typedef {import("./page.js").App} App
 * @typedef {import("../client.js").Snapshot} Snapshot
 * @typedef {import("../client.js").SessionInfo} SessionInfo
 * @typedef {import("../client.js").PersistedChatMessage} Message
 * @typedef {import("../client.js").PersistedToolActivity} Activity
 * @typedef {import("../client.js").ChatEvent} ChatEvent
 * @typedef {{ id: string, name: string, input?: unknown, output?: unknown, status: string }} Tool
 * @typedef {{ key: string, role: string, text: string, time?: number, status?: string, problem?: string, thoughts?: string, tools: Tool[] }} Item
 */

export class ConversationPane {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {SessionInfo | undefined} */
    this.info = undefined;
    /** @type {import("../client.js").MessagesPage | undefined} */
    this.page = undefined;
    /** @type {{ messageId: string, userMessageId: string, input: string, text: string, thoughts: string, tools: Tool[], problem: string } | undefined} */
    this.turn = undefined; // the one that runs
    /** @type {{ after: string, text: string, n: number }[]} */
    this.notes = []; // what slash commands answered
    this.sending = false;
    /** @type {Map<string, string>} */
    this.drafts = new Map(); // what is being written, by session
    /** @type {{ project: string, id: string } | undefined} */
    this.shownAt = undefined;
    this.shown = pageLength;
    /** @type {AbortController | undefined} */
    this.following = undefined;
    this.problem = ""; // why the conversation cannot be shown
    this.gone = false;
    this.atEnd = true; // what is said next is scrolled to
    this.menuSign = ""; // what the menu and the banner were made of
    this.bannerSign = "";
    /** @type {string | undefined} */
    this.asked = undefined; // the tool call that waits for a person

    this.title = el("h1", { id: "conversation-title" }, "");
    this.notifications = iconButton("bell", "Notifications", () => app.notifications.open());
    this.toSnapshots = el("a", { class: "icon-button narrow-or-medium", "aria-label": "Snapshots", title: "Snapshots" }, icon("snapshot"));
    this.moreBox = el("div", {});
    this.banner = el("div", { class: "banner", role: "status" });
    this.earlier = button("Show earlier messages", () => this.showEarlier(), { class: "quiet earlier" });
    this.log = el("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: "0" });
    this.empty = el("p", { class: "empty" });
    this.scroll = el("div", { class: "scroll" }, this.earlier, this.log, this.empty);
    this.approval = el("div", { role: "alert" });

    this.text = el("textarea", { rows: 1, "aria-label": "Message", placeholder: "Write a message, or a slash command such as /help", onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      this.send();
    }, oninput: () => this.showComposer() });
    this.models = el("datalist", { id: "models" });
    this.model = el("input", { type: "text", "aria-label": "Model", placeholder: "Default model", list: "models", autocomplete: "off", spellcheck: "false", autocapitalize: "off", title: "The model that answers, as provider/model" });
    this.stop = iconButton("stop", "Stop the answer", () => this.cancel(), { class: "icon-button primary" });
    this.submit = el("button", { type: "submit", class: "icon-button primary", "aria-label": "Send", title: "Send" }, icon("send"));
    this.composer = el("form", { class: "composer", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      this.send();
    } }, this.text, el("div", { class: "row" }, this.model, this.models, el("span", { class: "grow" }), this.stop, this.submit));

    this.body = el("div", { class: "body" },
      el("div", { class: "head" }, el("div", { class: "row" },
        el("a", { class: "icon-button narrow", href: "#/", "aria-label": "Back to the sessions", title: "Back to the sessions" }, icon("back")),
        this.title, el("span", { class: "grow" }), this.notifications, this.toSnapshots, this.moreBox), this.banner),
      this.scroll, this.approval, this.composer);
    this.none = el("div", { class: "alone" }, el("p", {}, "Choose a session, or make a new one."));
    this.root = el("main", { class: "pane conversation", "aria-labelledby": "conversation-title" }, this.none, this.body);
    this.refresh = coalesced(() => this.load());
  }

  /** The id of the snapshot that is shown in place of the conversation. */
  get selected() {
    return this.info?.selected ?? undefined;
  }

  /** Whether an answer is under way. */
  get busy() {
    return this.turn !== undefined || this.info?.running === true;
  }

  /** Begins anew with the session that the page is at. */
  open() {
    if (this.shownAt) this.drafts.set(draftKey(this.shownAt), this.text.value);
    this.shownAt = this.app.at;
    Object.assign(this, { info: undefined, page: undefined, turn: undefined, notes: [], sending: false, shown: pageLength, problem: "", gone: false, atEnd: true });
    this.model.value = "";
    this.text.value = this.shownAt ? this.drafts.get(draftKey(this.shownAt)) ?? "" : "";
    this.ask(undefined);
    this.log.replaceChildren();
    this.show();
    this.follow();
    this.app.models().then((names) => this.models.replaceChildren(...names.map((value) => el("option", { value }))), () => {});
    return this.load();
  }

  async load() {
    const { at, backend } = this.app;
    if (!at) return;
    try {
      const [info, page] = await Promise.all([
        backend.getSession(at.id, { project: at.project }),
        backend.messages(at.id, { project: at.project, limit: Math.min(this.shown, 1000) }).catch((error) => error),
      ]);
      if (at !== this.app.at) return;
      this.info = info;
      this.page = page instanceof Error ? undefined : page;
      this.problem = page instanceof Error ? reason(page) : "";
      if (!info.running && !this.sending) this.turn = undefined;
      this.ask(info.approval && { id: info.approval.callId, ...info.approval });
    } catch (error) {
      if (at !== this.app.at) return;
      const { code } = /** @type {any} */ (error);
      if (code === "unavailable" && this.info) return; // the page says that already
      Object.assign(this, { info: undefined, page: undefined, turn: undefined });
      this.problem = reason(error);
      this.gone = code === "not_found";
    }
    this.show();
  }

  // What is shown.

  show() {
    const { at } = this.app;
    this.none.hidden = Boolean(at);
    this.body.hidden = !at;
    if (!at) return;
    const { info, page } = this;
    this.title.textContent = info ? info.title || "Untitled" : this.problem ? at.id : "Loading…";
    this.toSnapshots.href = this.app.href(at, "snapshots");
    this.notifications.hidden = !info;
    const row = this.app.sessions.find(at);
    const menuSign = JSON.stringify([row?.pinned, row?.title, row?.id, row?.projectId]);
    if (this.menuSign !== menuSign) {
      this.menuSign = menuSign;
      this.moreBox.replaceChildren(...(row ? [more("this session", ...this.app.sessions.actions(row))] : []));
    }
    if (document.activeElement !== this.model && info) this.model.value ||= info.model ?? "";
    this.showBanner();
    this.earlier.hidden = !page || page.first === 0;
    this.showItems();
    this.showComposer();
  }

  showBanner() {
    const { info, page } = this;
    const sign = JSON.stringify([info?.selected, page?.snapshot?.name, page?.readonly, this.problem, this.gone]);
    if (sign === this.bannerSign) return;
    this.bannerSign = sign;
    if (info?.selected) {
      const { snapshot } = page ?? {};
      this.banner.replaceChildren(
        el("p", {}, el("strong", {}, "Read-only. "), this.problem || `You look at the snapshot ${snapshot?.name ?? ""}, not at the live conversation.`),
        el("div", { class: "row" }, button("Return to live", () => this.deselect(), { class: "primary" }), snapshot && button("Restore", () => this.restore(snapshot))));
    } else if (this.problem) {
      this.banner.replaceChildren(el("p", {}, this.gone ? "This session is not there any more; it may be in the trash. " : "", this.problem));
    } else {
      this.banner.replaceChildren();
    }
    this.banner.classList.toggle("readonly", Boolean(info?.selected));
  }

  /** All that the log shows, in its order. @returns {Item[]} */
  items() {
    /** @type {Map<string, Tool[]>} */
    const tools = new Map();
    for (const a of /** @type {{ activities?: Activity[] }} */ (this.page ?? {}).activities ?? []) {
      const of = a.messageId ?? "";
      tools.set(of, [...(tools.get(of) ?? []), { id: a.id, name: a.name ?? a.title ?? "tool", input: a.rawInput, output: a.rawOutput ?? a.content, status: a.status }]);
    }
    const { turn, info } = this;
    /** @type {Item[]} */
    const items = (this.page?.messages ?? []).filter((m) => !turn || m.id !== turn.userMessageId && m.id !== turn.messageId).map((m) => ({
      key: m.id, role: m.role, text: m.content, time: m.createdAt, status: m.status, tools: tools.get(m.id) ?? [],
    }));
    const last = items.at(-1);
    if (last?.status === "error" && info?.error && !turn) last.problem = info.error;
    if (turn && !this.page?.readonly) {
      items.push({ key: turn.userMessageId, role: "user", text: turn.input, tools: [] });
      items.push({ key: turn.messageId, role: "agent", text: turn.text, thoughts: turn.thoughts, tools: turn.tools, status: turn.problem ? "error" : "streaming", problem: turn.problem });
    }
    for (const note of this.notes) {
      let i = items.findIndex((item) => item.key === note.after);
      while (items[i + 1]?.role === "note") i++;
      items.splice(i + 1, 0, { key: `note ${note.n}`, role: "note", text: note.text, tools: [] });
    }
    return items;
  }

  showItems() {
    const items = this.items();
    const live = this.turn?.messageId;
    this.log.setAttribute("aria-busy", String(Boolean(live)));
    reconcile(this.log, items, (item) => item.key, (item) => this.message(item), (item) => (item.key === live ? [item.tools, item.status, item.problem, item.thoughts !== ""] : item));
    if (live) this.showDeltas();
    this.empty.hidden = items.length > 0 || !this.page;
    this.empty.textContent = this.page?.readonly ? "This snapshot holds no messages." : "Nothing has been said yet. Write the first message below.";
    this.keepEnd();
  }

  /** Of the answer that is under way only the text grows. */
  showDeltas() {
    const { turn } = this;
    if (!turn) return;
    const node = [...this.log.children].find((n) => /** @type {HTMLElement} */ (n).dataset.key === turn.messageId);
    for (const [kind, text] of [["text", turn.text], ["thoughts", turn.thoughts]]) {
      const shown = node?.querySelector(`[data-live="${kind}"]`);
      if (!shown || shown.textContent === text) continue;
      if (!(shown.firstChild instanceof Text)) shown.append("");
      const told = /** @type {Text} */ (shown.firstChild);
      if (text?.startsWith(told.data)) told.appendData(text.slice(told.data.length));
      else told.data = text ?? "";
    }
    this.keepEnd();
  }

  /** Stays at the end where one was at the end. */
  keepEnd() {
    if (this.atEnd) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /** @param {Item} item */
  message(item) {
    const who = item.role === "user" ? "You" : item.role === "agent" ? "Agent" : item.role === "note" ? "Answer of the command" : item.role;
    const live = item.key === this.turn?.messageId;
    return el("article", { class: `message ${item.role === "user" || item.role === "note" ? item.role : "agent"}`, "aria-label": who },
      el("p", { class: "who" }, who, item.time ? when(item.time) : null),
      (item.thoughts || null) && el("details", { class: "fold" }, el("summary", {}, "Thoughts"), el("div", { class: "text", "data-live": "thoughts" }, item.thoughts ?? "")),
      ...item.tools.map((tool) => this.tool(tool)),
      live ? el("div", { class: "text", "data-live": "text" }, item.text) : el("div", { class: "text" }, ...blocks(item.text)),
      live && !item.problem && el("p", { class: "state running" }, "answering"),
      item.problem ? el("p", { class: "problem" }, item.problem) : item.status === "error" && el("p", { class: "problem" }, "This answer was cut off."));
  }

  /** @param {Tool} tool */
  tool(tool) {
    const text = (/** @type {unknown} */ value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
    const state = { completed: "done", failed: "failed", in_progress: "running", pending: "waiting" }[tool.status] ?? tool.status;
    return el("details", { class: `fold tool ${tool.status}` },
      el("summary", {}, icon("tool"), el("span", { class: "name" }, tool.name), el("span", { class: "state" }, state)),
      tool.input !== undefined && el("pre", { "aria-label": "Arguments", tabindex: "0" }, text(tool.input)),
      tool.output !== undefined && el("pre", { "aria-label": "Result", tabindex: "0" }, text(tool.output)));
  }

  showComposer() {
    const { info } = this;
    const closed = !info || Boolean(info.selected);
    this.composer.classList.toggle("closed", closed);
    this.text.disabled = this.model.disabled = closed;
    this.text.placeholder = info?.selected ? "Read-only: return to the live conversation to write" : "Write a message, or a slash command such as /help";
    this.stop.hidden = !this.busy || closed;
    this.submit.hidden = this.busy && !closed;
    this.submit.disabled = closed || this.sending || this.text.value.trim() === "";
  }

  async showEarlier() {
    const before = this.scroll.scrollHeight - this.scroll.scrollTop;
    this.atEnd = false;
    this.shown += pageLength;
    await this.load();
    this.scroll.scrollTop = this.scroll.scrollHeight - before;
  }

  // What happens.

  /** Follows the session as long as somebody looks at the page: a browser has only a few connections for all its pages. */
  follow() {
    this.following?.abort();
    this.following = undefined;
    const { at } = this.app;
    if (!at || document.hidden || !this.app.online) return;
    const over = new AbortController();
    this.following = over;
    this.followUntil(at, over.signal).catch(() => {}); // it is gone, or the page says that the gateway is
  }

  /**
   * @param {{ project: string, id: string }} at
   * @param {AbortSignal} signal
   */
  async followUntil(at, signal) {
    for await (const event of this.app.backend.follow(at.id, { project: at.project, signal })) {
      if (signal.aborted) return;
      this.happened(event);
    }
  }

  /** @param {ChatEvent} event */
  happened(event) {
    const { turn } = this;
    const { kind, data } = event;
    if (kind !== "approval_request" && kind !== "usage" && kind !== "notice" && kind !== "reconnected") this.ask(undefined);
    switch (kind) {
      case "turn_start":
        this.turn = { messageId: data.messageId, userMessageId: data.userMessageId, input: data.input, text: "", thoughts: "", tools: [], problem: "" };
        this.atEnd ||= this.sending;
        this.show();
        this.app.snapshots.show();
        return;
      case "text_delta":
        if (turn) turn.text += data.text;
        this.showDeltas();
        return;
      case "thought_delta":
        if (turn) turn.thoughts += data.text;
        if (turn?.thoughts === data.text) this.showItems();
        this.showDeltas();
        return;
      case "tool_call_started":
        if (turn) turn.tools = [...turn.tools, { id: data.id, name: data.name, input: data.arguments, status: "in_progress" }];
        this.showItems();
        return;
      case "tool_call_finished":
        if (turn) turn.tools = turn.tools.map((t) => (t.id === data.id ? { ...t, status: data.status, output: data.text } : t));
        this.showItems();
        return;
      case "approval_request":
        this.ask(data);
        return;
      case "error":
        if (turn) turn.problem = data.text;
        else tell(data.text, { error: true });
        this.showItems();
        return;
      case "turn_end":
        this.turn = undefined;
        if (this.info) this.info.running = false;
        this.load();
        this.app.snapshots.refresh();
        this.app.sessions.refresh();
        return;
      case "answer":
        this.note(data.text);
        return;
      case "notice":
        this.note(data.text);
        return;
      case "session_moved":
        this.app.sessions.refresh();
        this.app.go({ project: data.projectId, id: data.sessionId });
        return;
      case "events_dropped":
      case "reconnected":
        this.turn = undefined;
        this.refresh();
        return;
      default: // replaced, changed, deleted, and what is to come
        if (/^session_/.test(kind)) this.refresh();
    }
  }

  /** @param {string} text */
  note(text) {
    if (!text) return;
    this.notes.push({ after: this.items().filter((item) => item.role !== "note").at(-1)?.key ?? "", text, n: this.notes.length });
    this.atEnd = true;
    this.showItems();
  }

  /**
   * Shows that a tool call waits for a person, or that none does.
   * @param {{ id: string, name: string, arguments?: unknown, text: string } | undefined} request
   */
  ask(request) {
    if (this.asked === request?.id) return;
    this.asked = request?.id;
    const had = this.approval.contains(document.activeElement);
    if (!request) {
      this.approval.replaceChildren();
      if (had) this.text.focus();
      return;
    }
    const { at } = this.app;
    const answer = (/** @type {boolean} */ allow) => async () => {
      try {
        if (at) await this.app.backend.approve(at.id, request.id, allow, { project: at.project });
      } finally {
        this.ask(undefined);
        this.refresh();
      }
    };
    this.approval.replaceChildren(el("div", { class: "approval", role: "group", "aria-label": "The agent asks" },
      el("p", {}, el("strong", {}, "The agent asks: "), request.text),
      request.arguments !== undefined && el("pre", { tabindex: "0", "aria-label": `Arguments of ${request.name}` }, JSON.stringify(request.arguments, null, 2)),
      el("div", { class: "row" }, button("Allow", answer(true), { class: "primary" }), button("Refuse", answer(false)))));
  }

  // What is done.

  async send() {
    const { at, backend } = this.app;
    const content = this.text.value.trim();
    if (!at || !content || this.sending || this.busy || this.text.disabled) return;
    const model = this.model.value.trim();
    this.sending = true;
    this.text.value = "";
    this.atEnd = true;
    this.showComposer();
    let arrived = false; // it stands in the conversation, or was answered
    let problem;
    try {
      const options = { project: at.project, ...(model && model !== this.info?.model && { model }), ...(this.page && { expectedRevision: this.page.revision }) };
      for await (const event of backend.send(at.id, content, options)) {
        if (event.kind === "error") problem ??= event.data;
        else arrived = true;
        if (event.kind === "turn_start") break; // whoever follows the session sees the rest
      }
    } catch (error) {
      problem = error;
    }
    if (problem) {
      if (!arrived && at !== this.app.at) this.drafts.set(draftKey(at), content);
      else if (!arrived && !this.text.value.trim()) this.text.value = content;
      if (/** @type {any} */ (problem).code === "conflict") tell("The conversation has changed meanwhile. Look at it, then send your message again.", { error: true });
      else tellError(problem);
      if (at === this.app.at) this.refresh();
    }
    if (at !== this.app.at) return;
    this.sending = false;
    if (content.startsWith("/")) this.refresh();
    this.showComposer();
  }

  async cancel() {
    const { at, backend } = this.app;
    if (at) await backend.cancel(at.id, { project: at.project });
  }

  /** @param {Snapshot} s */
  async select(s) {
    const { at, backend } = this.app;
    if (!at) return;
    if (s.sessionId === at.id) await backend.selectSnapshot(at.id, s.id, { project: at.project });
    else await backend.invoke("sess", "select", { session: at.id, project: at.project, name: s.id });
    this.shown = pageLength;
    this.atEnd = true;
    await this.load();
    this.app.snapshots.show();
    this.app.go(at);
    focusOn(this.banner);
  }

  async deselect() {
    const { at, backend } = this.app;
    if (!at) return;
    await backend.clearSelectedSnapshot(at.id, { project: at.project });
    this.shown = pageLength;
    this.atEnd = true;
    await this.load();
    this.app.snapshots.show();
    this.text.focus();
  }

  /** @param {Snapshot} s */
  async restore(s) {
    const { at, backend } = this.app;
    if (!at) return;
    const done = s.sessionId === at.id ? await backend.restoreSnapshot(at.id, s.id, { project: at.project })
      : /** @type {import("../client.js").Changed} */ (await backend.invoke("sess", "load", { session: at.id, project: at.project, name: s.id }));
    this.notes = [];
    this.atEnd = true;
    await this.load();
    this.app.snapshots.refresh();
    this.app.go(at);
    if (done.data.changed === false) tell(`The conversation is as in ${s.name} already.`);
    else tell(`Restored ${s.name}. What was there before is kept as a snapshot.`, { action: "Undo", run: () => this.app.snapshots.turn("undo") });
  }
}

/**
 * Text with its blocks of code apart.
 * @param {string} text
 */
function blocks(text) {
  return text.split(/^```[^\n`]*\n([\s\S]*?)^```[ \t]*$\n?/m).map((part, i) => (i % 2 ? el("pre", { tabindex: "0", "aria-label": "Code" }, el("code", {}, part)) : part)).filter((part) => part !== "");
}
