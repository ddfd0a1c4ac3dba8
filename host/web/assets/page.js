// The page of a gateway: who may see it, where one is in it, and what is live.

import { AgentBackend } from "../client.js";
import { ConversationPane } from "./conversation.js";
import { ageTimes, button, el, focusOn, tellError, toldRegion } from "./dom.js";
import { Notifications } from "./notifications.js";
import { SessionsPane } from "./sessions.js";
import { SnapshotsPane } from "./snapshots.js";

/** Where the token is kept: until the tab is closed, or on this device. */
const tokenKey = "sess.token";

/** Between two attempts to reach the gateway, in milliseconds. */
const firstPause = 500;
const lastPause = 8000;

/** @typedef {{ project: string, id: string }} Ref */

export class App {
  constructor() {
    /** @type {Ref | undefined} */
    this.at = undefined;
    this.online = false;
    /** @type {Set<string>} */
    this.running = new Set();
    /** @type {Promise<string[]> | undefined} */
    this.modelNames = undefined;
    this.chosen = false; // whether a session was chosen to begin with
    /** @type {AbortController | undefined} */
    this.life = undefined; // of what a token opened
    /** @type {AgentBackend} */
    this.backend = new AgentBackend();
    this.sessions = new SessionsPane(this);
    this.conversation = new ConversationPane(this);
    this.snapshots = new SnapshotsPane(this);
    this.notifications = new Notifications(this);

    this.state = el("p", { class: "connection", role: "status" });
    this.signOutButton = button("Forget token", () => this.signOut(), { class: "quiet" });
    this.panes = el("div", { class: "panes" }, this.sessions.root, this.conversation.root, this.snapshots.root);
    this.root = el("div", { class: "app" },
      el("header", { class: "top" }, el("a", { class: "brand", href: "#/" }, "sess"), this.state, el("span", { class: "grow" }), this.signOutButton), this.panes);
    this.root.hidden = true;
    this.door = this.makeDoor();
    document.body.append(this.door, this.root, toldRegion);

    this.conversation.scroll.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.conversation.scroll;
      this.conversation.atEnd = scrollHeight - scrollTop - clientHeight < 40;
    }, { passive: true });
    addEventListener("hashchange", () => this.arrive());
    addEventListener("online", () => this.wake());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.wake();
      if (!this.at) return;
      this.conversation.follow();
      if (!document.hidden) this.conversation.refresh();
    });
    document.addEventListener("keydown", (event) => this.pressed(event));
    document.addEventListener("toggle", (event) => this.unfolded(event.target), true);
    document.addEventListener("click", (event) => {
      // What folds out goes when something else, or one of its actions, is chosen.
      for (const open of document.querySelectorAll("details.more[open]")) {
        if (!(event.target instanceof Node) || !open.querySelector("summary")?.contains(event.target)) open.removeAttribute("open");
      }
    });
    setInterval(ageTimes, 30_000);
    const token = sessionStorage.getItem(tokenKey) ?? localStorage.getItem(tokenKey);
    if (token) this.enter(token);
    else this.askToken("");
  }

  // Who may see it.

  makeDoor() {
    this.token = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", autocapitalize: "off", "aria-describedby": "token-hint" });
    this.remember = el("input", { id: "remember", type: "checkbox" });
    this.doorProblem = el("p", { class: "problem", role: "alert" });
    this.doorSubmit = el("button", { type: "submit", class: "primary" }, "Open");
    return el("main", { class: "alone door", hidden: true }, el("form", { class: "card", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      this.tryToken().catch(tellError);
    } },
      el("h1", {}, "sess"),
      el("div", { class: "field" }, el("label", { for: "token" }, "Token of this gateway"), this.token,
        el("p", { class: "hint", id: "token-hint" }, "It is printed by: ", el("code", {}, "sess gateway token --show"))),
      el("div", { class: "field check" }, this.remember, el("label", { for: "remember" }, "Remember it on this device")),
      this.doorProblem, this.doorSubmit));
  }

  /** @param {string} problem */
  askToken(problem) {
    this.leave();
    this.root.hidden = true;
    this.door.hidden = false;
    this.doorProblem.textContent = problem;
    this.token.value = "";
    this.remember.checked = localStorage.getItem(tokenKey) !== null;
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    this.token.focus();
  }

  async tryToken() {
    const token = this.token.value.trim();
    if (!token || this.doorSubmit.disabled) return;
    this.doorSubmit.disabled = true;
    this.doorProblem.textContent = "";
    const known = await accepts(token);
    this.doorSubmit.disabled = false;
    if (known !== true) {
      this.doorProblem.textContent = known === false ? "This is not the token of this gateway." : "The gateway does not answer. Is it running? Look with: sess gateway status";
      this.token.select();
      return;
    }
    sessionStorage.setItem(tokenKey, token);
    if (this.remember.checked) localStorage.setItem(tokenKey, token);
    else localStorage.removeItem(tokenKey);
    this.enter(token);
  }

  signOut() {
    sessionStorage.removeItem(tokenKey);
    localStorage.removeItem(tokenKey);
    this.askToken("");
  }

  /** @param {string} token */
  enter(token) {
    this.leave();
    this.backend = new AgentBackend({ token });
    this.door.hidden = true;
    this.root.hidden = false;
    this.life = new AbortController();
    this.sessions.reset();
    this.arrive(true);
    this.watch(token, this.life.signal).catch(tellError);
  }

  /** Ends what is live. */
  leave() {
    this.life?.abort();
    this.conversation.following?.abort();
    this.backend.close();
    this.modelNames = undefined;
    this.online = false;
  }

  // What is live.

  /**
   * Follows what happens in the gateway, over its restarts.
   * @param {string} token
   * @param {AbortSignal} signal
   */
  async watch(token, signal) {
    for (let pause = firstPause; ; pause = Math.min(2 * pause, lastPause)) {
      try {
        const events = this.backend.events({}, { signal });
        let next = events.next();
        next.catch(() => {}); // it is told below
        await this.backend.rpc("gateway.version", {}, { signal }); // answered behind the subscription
        pause = firstPause;
        this.running.clear();
        this.connected();
        for (let { value, done } = await next; !done; { value, done } = await events.next()) {
          if (signal.aborted) return;
          if (value) this.happened(value);
        }
      } catch (error) {
        if (signal.aborted) return;
      }
      this.disconnected();
      if (await accepts(token) === false) {
        if (signal.aborted) return;
        sessionStorage.removeItem(tokenKey);
        this.askToken("The gateway has another token now. Enter the new one.");
        localStorage.removeItem(tokenKey);
        return;
      }
      await new Promise((resolve) => {
        this.wake = () => resolve(undefined);
        setTimeout(resolve, pause);
      });
      if (signal.aborted) return;
    }
  }

  /** Ends a pause between two attempts. */
  wake() {}

  connected() {
    this.online = true;
    this.state.textContent = "";
    this.state.classList.remove("off");
    this.modelNames = undefined;
    this.sessions.refresh();
    if (!this.at) return;
    this.conversation.follow();
    this.conversation.refresh();
    this.snapshots.refresh();
    this.notifications.refresh();
  }

  disconnected() {
    this.online = false;
    this.state.textContent = "The gateway does not answer. Trying again…";
    this.state.classList.add("off");
  }

  /** @param {import("../client.js").GatewayEvent} event */
  happened({ kind, project = "default", session, verb, data }) {
    if (kind === "events.dropped" || kind === "plugins.changed") {
      if (kind === "events.dropped") this.running.clear(); // nobody knows
      this.connected();
      return;
    }
    const key = `${project}/${session}`;
    if (kind === "turn.started") this.running.add(key);
    if (kind === "turn.ended") this.running.delete(key);
    this.sessions.show();
    this.sessions.refresh();
    const { at } = this;
    if (!at || project !== at.project && data?.projectId !== at.project) return;
    this.snapshots.refresh();
    if (session !== at.id && data?.id !== at.id) return;
    if (String(verb).startsWith("notifications")) this.notifications.refresh();
    else this.conversation.refresh();
  }

  /** @param {{ projectId: string, id: string }} row */
  isRunning(row) {
    return this.running.has(`${row.projectId}/${row.id}`);
  }

  /** The names of the models that can be chosen. @returns {Promise<string[]>} */
  models() {
    this.modelNames ??= this.backend.rpc("models.list").then((list) => /** @type {{ value: string }[]} */ (list).map((m) => m.value), () => []);
    return this.modelNames;
  }

  // Where one is.

  /**
   * @param {Ref} ref
   * @param {string} [view]
   */
  href(ref, view) {
    return `#/${[ref.project, ref.id, ...(view ? [view] : [])].map(encodeURIComponent).join("/")}`;
  }

  /** @param {Ref | undefined} ref */
  go(ref) {
    const hash = ref ? this.href(ref) : "#/";
    if (location.hash !== hash) location.hash = hash;
  }

  /**
   * Shows what the address names.
   * @param {boolean} [anew]
   */
  arrive(anew = false) {
    if (this.root.hidden) return;
    let [project, id, view] = ["", "", ""];
    try {
      [project = "", id = "", view = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    } catch {
      // an address that somebody typed
    }
    const ref = project && id ? { project, id } : undefined;
    const before = this.panes.dataset.view;
    this.panes.dataset.view = !ref ? "sessions" : view === "snapshots" ? "snapshots" : "conversation";
    if (anew || ref?.id !== this.at?.id || ref?.project !== this.at?.project) {
      this.at = ref;
      this.conversation.open();
      this.snapshots.open();
      this.notifications.refresh();
      this.sessions.show();
    }
    if (before && before !== this.panes.dataset.view) focusOn(this.panes.querySelector(`.${this.panes.dataset.view} :is(h1, h2)`));
  }

  /** Where nothing is chosen and there is room for it, the active session is shown. */
  sessionsLoaded() {
    const active = this.sessions.rows.find((row) => row.active);
    if (!this.at && !this.chosen && active && matchMedia("(min-width: 760px)").matches) {
      history.replaceState(null, "", this.href({ project: active.projectId, id: active.id }));
      this.arrive();
    }
    this.chosen = true;
    if (this.at) this.conversation.show();
  }

  snapshotsLoaded() {
    const n = this.snapshots.scope === "session" ? this.snapshots.all.length : 0;
    this.conversation.toSnapshots.dataset.count = n ? String(n) : "";
    this.conversation.toSnapshots.setAttribute("aria-label", n ? `Snapshots (${n})` : "Snapshots");
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && !this.root.hidden) {
      event.preventDefault();
      this.sessions.search.focus();
    }
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details.more[open]")) {
        open.removeAttribute("open");
        if (open.contains(document.activeElement)) /** @type {HTMLElement | null} */ (open.querySelector("summary"))?.focus();
      }
    }
  }

  /** @param {EventTarget | null} target */
  unfolded(target) {
    if (!(target instanceof HTMLDetailsElement) || !target.open || !target.matches(".more")) return;
    for (const other of document.querySelectorAll("details.more[open]")) if (other !== target) other.removeAttribute("open");
    target.scrollIntoView({ block: "nearest" });
  }
}

/**
 * Asks the gateway whether it accepts a token; undefined where it does not answer.
 * @param {string} token
 */
async function accepts(token) {
  try {
    const answer = await fetch("/rpc", {
      method: "POST", headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "gateway.version" }),
    });
    return answer.status === 401 ? false : answer.ok || undefined;
  } catch (error) {
    return error instanceof TypeError && /header|ISO|byte/i.test(error.message) ? false : undefined; // no header can carry it
  }
}

new App();
