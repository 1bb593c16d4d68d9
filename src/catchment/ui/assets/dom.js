// Small helpers: elements, numbers and times for people, and a list that draws only what is seen.
// Whatever comes from a job is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, given, children) {
  for (const [name, value] of Object.entries(given || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const h = (tag, given, ...children) => fill(document.createElement(tag), given, children);
export const s = (tag, given, ...children) => fill(document.createElementNS(SVG, tag), given, children);

export function put(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

// -- numbers and times --------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

const NOTHING = "–";

// Whether there is little room: a phone, or a narrow window.
export const little = matchMedia("(max-width: 700px)");
const none = (value) => value === null || value === undefined;

export const count = (n) => (none(n) ? NOTHING : whole.format(n));

export const some = (n, one, many, shown = count) => `${shown(n)} ${n === 1 ? one : many}`;

export function number(value) {
  if (none(value)) return NOTHING;
  return typeof value === "number" ? fine.format(value) : String(value);
}

export function short(n) {
  if (none(n)) return NOTHING;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(n) >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  }
  return Number.isInteger(n) ? String(n) : n.toPrecision(3);
}

export const bytes = (n) => (none(n) ? NOTHING : n < 1000 ? `${Math.round(n)} B` : `${short(n)}B`);

export function seconds(n) {
  if (none(n)) return NOTHING;
  if (n < 120) return `${n < 10 ? Number(n.toFixed(1)) : n.toFixed(0)} s`;
  if (n < 7200) return `${Math.round(n / 60)} min`;
  return n < 172800 ? `${(n / 3600).toFixed(1)} h` : `${(n / 86400).toFixed(1)} d`;
}

export function moment(micros, exact = false) {
  if (micros === null || micros === undefined) return "not begun";
  if (typeof micros === "string") return micros;
  const date = new Date(micros / 1000);
  if (Number.isNaN(date.getTime())) return String(micros);
  const text = date.toISOString();
  const clock = text.slice(11, exact && date.getMilliseconds() ? 23 : 19);
  return `${text.slice(0, 10)} ${clock}`;
}

// A time in a table: where there is little room, the day can be pointed at.
export function timeCell(micros) {
  const text = moment(micros, true);
  return little.matches && typeof micros === "number" ? h("span", { text: text.slice(11), title: text }) : text;
}

// -- asking the server --------------------------------------------------------------------------

export class Refused extends Error {
  constructor(error) {
    super(error.text);
    this.error = error;
  }
}

async function answered(response) {
  const type = response.headers.get("content-type") || "";
  const body = type.includes("json") ? await response.json() : { error: { text: (await response.text()).trim() } };
  if (!response.ok) throw new Refused(body.error || { text: `the server said ${response.status}` });
  return body;
}

export const ask = async (path) => answered(await fetch(path, { credentials: "same-origin" }));

export async function post(path, body) {
  const headers = { "content-type": "application/json", "x-catchment": "1" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

// -- a list of any length -----------------------------------------------------------------------

// Rows have one height, and only those in sight are in the document. `cells(item)` gives the cells
// of a row: texts, or elements. A row that may be chosen is a button to keyboards and readers; which
// one is chosen is remembered by `key`, so that it stays when the order changes. Columns that are
// `wide` are left out where there is little room.
export class LongTable {
  constructor({ label, columns, cells, chosen, key, marked, kind, height = 30, empty = "nothing here" }) {
    Object.assign(this, { columns, cells, chosen, key, marked, height, empty });
    this.items = [];
    this.at = -1;
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.space = h("div", { class: "space" }, this.body);
    this.head = h("div", { class: "row head", role: "row", "aria-rowindex": 1 });
    this.scroller = h("div", { class: "scroller", tabindex: 0, role: "presentation" }, this.head, this.space);
    this.element = h("div", { class: `long ${kind || ""}`, role: chosen ? "grid" : "table", "aria-label": label }, this.scroller);
    this.setColumns(columns);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  setColumns(columns) {
    this.columns = columns;
    this.head.hidden = !columns.length;
    put(this.head, columns.map((column) => h("span", { role: "columnheader", class: this.kindOf(column), text: column.name, title: column.title || null })));
  }

  kindOf(column) {
    return column ? `${column.numeric ? "num" : ""} ${column.wide ? "wide" : ""}`.trim() || null : null;
  }

  // Columns as the server names them, each as wide as its kind needs.
  setKinds(names, kinds) {
    this.setColumns(names.map((name, n) => ({ name, numeric: kinds[n] === "number" })));
    const least = names.map((name, n) => (kinds[n] === "time" ? (little.matches ? 78 : 168) : name === "reason" ? 300 : 96));
    this.element.style.setProperty("--template", least.map((wide) => `minmax(${wide}px, ${wide}fr)`).join(" ") || "1fr");
    this.element.style.setProperty("--least", `${least.reduce((all, wide) => all + wide + 16, 32)}px`);
  }

  set(items) {
    const held = this.key && this.items[this.at] ? this.key(this.items[this.at]) : null;
    this.items = items;
    this.element.setAttribute("aria-rowcount", items.length + 1);
    this.space.style.height = `${Math.max(items.length, 1) * this.height}px`;
    this.scroller.style.height = `min(${(Math.max(items.length, 1) + 1) * this.height + 2}px, var(--most))`;
    if (held !== null) this.at = items.findIndex((item) => this.key(item) === held);
    else if (this.at >= items.length) this.at = items.length - 1;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.height) - 4);
    const seen = Math.ceil((this.scroller.clientHeight || 300) / this.height) + 8;
    this.body.style.transform = `translateY(${first * this.height}px)`;
    if (!this.items.length) {
      put(this.body, h("div", { class: "row none", text: this.empty }));
      return;
    }
    put(this.body, this.items.slice(first, first + seen).map((item, n) => this.row(item, first + n)));
  }

  row(item, place) {
    const cells = this.cells(item).map((cell, n) => {
      const given = { role: this.chosen ? "gridcell" : "cell", class: this.kindOf(this.columns[n]) };
      if (cell === NOTHING) return h("span", { ...given, class: `${given.class || ""} nothing`, text: cell });
      return cell instanceof Node ? h("span", given, cell) : h("span", { ...given, text: cell, title: cell });
    });
    const chosen = this.chosen && place === this.at;
    const given = { class: `row ${this.marked ? this.marked(item) || "" : ""} ${chosen ? "chosen" : ""}`, role: "row", "aria-rowindex": place + 2 };
    if (this.chosen) {
      given["aria-selected"] = String(chosen);
      given.onclick = () => this.choose(place);
    }
    return h("div", given, ...cells);
  }

  choose(place, tell = true) {
    this.at = place;
    this.draw();
    if (tell && this.chosen && this.items[place]) this.chosen(this.items[place]);
  }

  pressed(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (!this.chosen || !(event.key in steps) || !this.items.length) return;
    event.preventDefault();
    const place = Math.min(Math.max(this.at + steps[event.key], 0), this.items.length - 1);
    const top = place * this.height, seen = this.scroller.clientHeight - this.height;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + this.height > this.scroller.scrollTop + seen) this.scroller.scrollTop = top + this.height - seen;
    this.choose(place);
  }
}

export function later(wait, work) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}
