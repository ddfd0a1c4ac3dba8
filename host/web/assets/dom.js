// Making and changing what is shown. All text is set as text: nothing of a
// conversation is ever read as markup.

/**
 * Makes an element. Of props, functions listen to events ("onclick"), booleans and
 * values are properties or attributes; children that are null or false are left out.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "value" || typeof value === "boolean") /** @type {any} */ (node)[name] = value;
    else node.setAttribute(name, String(value));
  }
  node.append(.../** @type {(Node | string)[]} */ (children.filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c)))));
  return node;
}

/**
 * Makes one of the icons of the page.
 * @param {string} name
 */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS("http://www.w3.org/2000/svg", "use"));
  svg.firstElementChild?.setAttribute("href", `#${name}`);
  return svg;
}

/**
 * Makes a button. While what it does is under way it does not do it again; an
 * error that comes of it is told.
 * @param {string | Node[]} content
 * @param {() => unknown} run
 * @param {Record<string, any>} [props]
 */
export function button(content, run, props = {}) {
  const node = el("button", { type: "button", ...props }, ...(typeof content === "string" ? [content] : content));
  node.addEventListener("click", async () => {
    if (node.getAttribute("aria-disabled") === "true") return;
    node.setAttribute("aria-disabled", "true");
    try {
      await run();
    } catch (error) {
      tellError(error);
    } finally {
      node.removeAttribute("aria-disabled");
    }
  });
  return node;
}

/**
 * Makes a button that shows an icon only.
 * @param {string} name
 * @param {string} label
 * @param {() => unknown} run
 * @param {Record<string, any>} [props]
 */
export function iconButton(name, label, run, props = {}) {
  return button([icon(name)], run, { class: "icon-button", "aria-label": label, title: label, ...props });
}

/**
 * Shows items as the children of a list. An item that has not changed keeps its
 * element; of another one the focus and what is unfolded stay.
 * @template T
 * @param {HTMLElement} list
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => HTMLElement} make
 * @param {(item: T) => unknown} [signOf] what an element depends on, if not on all of the item
 */
export function reconcile(list, items, keyOf, make, signOf = (item) => item) {
  const old = new Map([...list.children].map((node) => [/** @type {HTMLElement} */ (node).dataset.key, /** @type {HTMLElement} */ (node)]));
  const focus = document.activeElement instanceof HTMLElement && list.contains(document.activeElement) ? document.activeElement : undefined;
  const focused = focus && { key: /** @type {HTMLElement | null} */ (focus.closest("[data-key]"))?.dataset.key, action: focus.dataset.action };
  const nodes = items.map((item) => {
    const key = keyOf(item);
    const sign = JSON.stringify(signOf(item));
    const before = old.get(key);
    if (before && signs.get(before) === sign) return before;
    const node = make(item);
    node.dataset.key = key;
    signs.set(node, sign);
    if (before?.querySelector("details.more[open]")) node.querySelector("details.more")?.setAttribute("open", "");
    return node;
  });
  // Elements that stay are not touched: what is moved loses its focus and scroll.
  let at = list.firstElementChild;
  for (const node of nodes) {
    if (node === at) at = at.nextElementSibling;
    else list.insertBefore(node, at);
  }
  const keep = new Set(nodes);
  for (const node of old.values()) if (!keep.has(node)) node.remove();
  if (focused?.key && focus && !focus.isConnected) {
    const node = nodes.find((n) => n.dataset.key === focused.key);
    const again = focused.action && node?.querySelector(`[data-action="${focused.action}"]`);
    if (again instanceof HTMLElement) again.focus();
    else focusOn(list);
  }
}

/** @type {WeakMap<HTMLElement, string>} */
const signs = new WeakMap();

/**
 * Moves the focus to something that one cannot reach with the Tab key.
 * @param {HTMLElement | null | undefined} node
 */
export function focusOn(node) {
  if (!node) return;
  if (node.tabIndex < 0) node.tabIndex = -1;
  node.focus({ preventScroll: true });
}

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** @param {Date} time */
function ago(time) {
  const seconds = (time.getTime() - Date.now()) / 1000;
  if (Math.abs(seconds) < 45) return "just now";
  for (const [unit, size] of /** @type {[Intl.RelativeTimeFormatUnit, number][]} */ ([["day", 86400], ["hour", 3600], ["minute", 60]])) {
    if (Math.abs(seconds) >= size * 0.95 || unit === "minute") {
      const n = Math.round(seconds / size);
      if (unit === "day" && Math.abs(n) > 6) return time.toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
      return relative.format(n, unit);
    }
  }
  return "";
}

/**
 * Makes an element that says how long ago something was.
 * @param {string | number} when
 */
export function when(when) {
  const time = new Date(when);
  if (Number.isNaN(time.getTime())) return el("span", {}, "");
  return el("time", { datetime: time.toISOString(), title: time.toLocaleString() }, ago(time));
}

/** Says anew how long ago everything was. */
export function ageTimes() {
  for (const node of document.querySelectorAll("time")) {
    const text = ago(new Date(node.dateTime));
    if (node.textContent !== text) node.textContent = text;
  }
}

/** @param {number} bytes */
export function size(bytes) {
  let n = bytes;
  for (const unit of ["bytes", "KB", "MB"]) {
    if (n < 1000) return `${unit === "bytes" || n >= 100 ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} GB`;
}

/**
 * @param {number} n
 * @param {string} one
 */
export const count = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

// What is told at the edge of the page.

const told = el("div", { class: "told", role: "region", "aria-label": "Messages of the page" });
const politely = el("div", { role: "status", "aria-live": "polite" });
const atOnce = el("div", { role: "alert" });
told.append(politely, atOnce);

/** Where sentences of the page appear. */
export const toldRegion = told;

/**
 * Tells a sentence. With an action it stays longer; an error stays until it is
 * dismissed.
 * @param {string} text
 * @param {{ error?: boolean, action?: string, run?: () => unknown }} [options]
 */
export function tell(text, { error = false, action = "", run } = {}) {
  const gone = () => note.remove();
  const note = el("div", { class: error ? "note error" : "note" }, el("p", {}, text),
    run && button(action, async () => {
      gone();
      await run();
    }),
    iconButton("close", "Dismiss", gone));
  const where = error ? atOnce : politely;
  if (where.lastElementChild?.textContent === note.textContent) where.lastElementChild.remove(); // it is said again
  where.append(note);
  while (where.children.length > 3) where.firstElementChild?.remove();
  if (!error) setTimeout(gone, run ? 20_000 : 6_000);
}

/** @param {any} error */
export function tellError(error) {
  if (error?.name === "AbortError") return;
  tell(reason(error), { error: true });
}

/** @param {any} error */
export const reason = (error) => String(error?.text ?? error?.message ?? error);

// Questions.

/**
 * @typedef {{ name: string, label: string, value?: string, kind?: "text" | "area" | "check", hint?: string, choices?: string[], required?: boolean }} Field
 */

/**
 * Asks in a dialog. What is filled in is given to run: while that is under way it is
 * not asked for again, and where it fails the dialog says why and stays. Answers
 * whether it was done.
 * @param {{ title: string, text?: string, fields?: Field[], does: string, danger?: boolean, run: (values: Record<string, string>) => unknown }} question
 * @returns {Promise<boolean>}
 */
export function ask({ title, text, fields = [], does, danger = false, run }) {
  return new Promise((resolve) => {
    const problem = el("p", { class: "problem", role: "alert" });
    const submit = el("button", { type: "submit", class: danger ? "danger" : "primary" }, does);
    const inputs = new Map();
    const rows = fields.map((f, i) => {
      const id = `field-${i}`;
      const props = { id, name: f.name, required: Boolean(f.required), "aria-describedby": f.hint && `${id}-hint`, autocomplete: "off" };
      const input = f.kind === "area" ? el("textarea", { ...props, rows: 3, value: f.value ?? "" })
        : f.kind === "check" ? el("input", { ...props, type: "checkbox", checked: f.value === "true" })
        : el("input", { ...props, type: "text", value: f.value ?? "", list: f.choices && `${id}-choices`, spellcheck: "false", autocapitalize: "off" });
      inputs.set(f.name, input);
      return el("div", { class: f.kind === "check" ? "field check" : "field" }, el("label", { for: id }, f.label), input,
        f.choices && el("datalist", { id: `${id}-choices` }, ...f.choices.map((value) => el("option", { value }))),
        f.hint && el("p", { class: "hint", id: `${id}-hint` }, f.hint));
    });
    const form = el("form", { method: "dialog" }, el("h2", { id: "dialog-title" }, title), text && el("p", {}, text), ...rows, problem,
      el("div", { class: "row end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit));
    const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
    const before = document.activeElement;
    let done = false;
    let busy = false;
    form.addEventListener("submit", async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (busy) return;
      busy = true;
      submit.setAttribute("aria-disabled", "true");
      problem.textContent = "";
      try {
        await run(Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? String(input.checked) : input.value.trim()])));
        done = true;
        dialog.close();
      } catch (error) {
        problem.textContent = reason(error);
      } finally {
        busy = false;
        submit.removeAttribute("aria-disabled");
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
    if (fields.length === 0) submit.focus();
  });
}

/**
 * Makes what folds out to the rarer actions of an item.
 * @param {string} of
 * @param {...Node} actions
 */
export function more(of, ...actions) {
  return el("details", { class: "more" }, el("summary", { "aria-label": `More actions for ${of}`, title: "More", "data-action": "more" }, icon("more")), el("div", { class: "row" }, ...actions));
}

/**
 * Calls something soon, and once for all who asked meanwhile. While it runs it is
 * not called again, but once after that.
 * @param {() => Promise<unknown>} run
 * @param {number} [pause] in milliseconds
 */
export function coalesced(run, pause = 100) {
  /** @type {number | undefined} */
  let timer;
  let running = false;
  let again = false;
  const begin = async () => {
    timer = undefined;
    running = true;
    try {
      await run();
    } catch (error) {
      tellError(error);
    }
    running = false;
    if (again) ask();
  };
  const ask = () => {
    again = running;
    if (!running && timer === undefined) timer = setTimeout(begin, pause);
  };
  return ask;
}
