// What people are told of a session, beside its conversation.

import { button, coalesced, el, reconcile, when } from "./dom.js";

/**
 * @typedef {import("./page.js").App} App
 * @typedef {import("../client.js").SessionNotification} Notification
 */

export class Notifications {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {Notification[]} */
    this.fresh = [];
    /** @type {Notification[]} */
    this.seen = [];
    this.refresh = coalesced(() => this.load());
  }

  async load() {
    const { at, backend } = this.app;
    Object.assign(this, { fresh: [], seen: [] });
    if (at) {
      const all = await backend.listNotifications(at.id, { project: at.project }).catch(() => undefined); // the conversation says why
      if (at !== this.app.at) return;
      Object.assign(this, { fresh: all?.operations ?? [], seen: all?.acknowledged ?? [] });
    }
    this.show();
  }

  show() {
    const n = this.fresh.length;
    const bell = this.app.conversation.notifications;
    bell.dataset.count = n ? String(n) : "";
    bell.setAttribute("aria-label", n ? `Notifications (${n} new)` : "Notifications");
    if (!this.list) return;
    reconcile(this.list, [...this.fresh, ...this.seen], (note) => note.id, (note) => el("li", { class: note.acknowledgedAt ? "item seen" : "item" },
      el("p", {}, note.text),
      el("p", { class: "meta" }, note.status !== "done" && el("span", { class: `state ${note.status}` }, note.status), note.kind && el("span", {}, note.kind), when(note.updatedAt))));
    this.none.hidden = n + this.seen.length > 0;
    this.all.hidden = n === 0;
  }

  open() {
    this.list = el("ul", { class: "rows", "aria-label": "Notifications" });
    this.none = el("p", { class: "empty" }, "Nothing to tell.");
    this.all = button("Mark all as seen", () => this.acknowledge(), { class: "primary" });
    const dialog = el("dialog", { "aria-labelledby": "dialog-title", onclose: () => {
      dialog.remove();
      this.list = undefined;
    } }, el("h2", { id: "dialog-title" }, "Notifications"), this.list, this.none,
      el("div", { class: "row end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close"), this.all));
    document.body.append(dialog);
    this.show();
    dialog.showModal();
  }

  async acknowledge() {
    const { at, backend } = this.app;
    if (!at) return;
    await backend.acknowledgeNotifications(at.id, this.fresh.map((note) => note.id), { project: at.project });
    await this.load();
  }
}
