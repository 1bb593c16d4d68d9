// Results of a query: a chart by key, a table, corrections marked, and files to take away.

import { Chart } from "/assets/chart.js";
import { LongTable, ask, count, h, later, little, number, put, timeCell } from "/assets/dom.js";

const LINES = 10, OFFERED = 60, EVERY = 2000;
const OWN = new Set(["window_start", "window_end", "window_index", "revision", "retracted", "complete", "missing"]);

export class ResultsView {
  constructor(root, at, show) {
    Object.assign(this, { root, at, show, names: [], name: "", last: 0, seen: null });
    this.offered = h("datalist", { id: "query-names" });
    this.input = h("input", { id: "result-query", list: "query-names", autocomplete: "off", spellcheck: "false", placeholder: "name of a query", oninput: later(120, () => this.typed()), onchange: () => this.typed() });
    this.value = h("select", { id: "result-value", onchange: () => this.draw() });
    this.key = h("input", { id: "result-key", type: "search", placeholder: "any key", oninput: later(120, () => this.draw()) });
    this.csv = h("a", { class: "button", download: "", text: "CSV" });
    this.parquet = h("a", { class: "button", download: "", text: "Parquet" });
    this.told = h("span", { class: "muted" });
    this.said = h("p", { class: "said", role: "status", "aria-live": "polite" });
    this.chart = new Chart({ label: "Results over time", height: 300 });
    this.table = new LongTable({ label: "Results, newest first", kind: "results", columns: [], cells: (row) => this.cells(row), marked: (row) => this.mark(row), empty: "no results yet" });
    put(
      root,
      h("div", { class: "panel" },
        h("div", { class: "panel-head choose" },
          field("result-query", "Query", this.input, this.offered), field("result-value", "Value", this.value), field("result-key", "Key", this.key),
          h("span", { class: "push" }), h("span", { class: "muted", text: "Export" }), this.csv, this.parquet),
        this.chart.element, this.said),
      h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Rows, newest first" }), this.told), this.table.element),
    );
  }

  known(queries) {
    this.names = queries.map(([name]) => name);
    if (!this.name && this.names.length) this.pick(this.names[0]);
    this.offer();
  }

  offer() {
    const wanted = this.input.value.toLowerCase();
    const found = this.names.includes(this.input.value) ? this.names : this.names.filter((name) => name.toLowerCase().includes(wanted));
    put(this.offered, found.slice(0, OFFERED).map((name) => h("option", { value: name })));
  }

  typed() {
    this.offer();
    if (this.names.includes(this.input.value) && this.input.value !== this.name) this.pick(this.input.value);
  }

  open(name) {
    this.pick(name);
    this.show("results");
  }

  pick(name) {
    this.name = this.input.value = name;
    const query = encodeURIComponent(name);
    this.csv.setAttribute("href", `${this.at}/export?format=csv&query=${query}`);
    this.parquet.setAttribute("href", `${this.at}/export?format=parquet&query=${query}`);
    this.last = 0;
    this.seen = null;
    if (!this.root.hidden) this.load();
  }

  update({ counts, job }) {
    const state = `${counts.results}/${job.state}/${this.name}`;
    if (state === this.seen || Date.now() - this.last < EVERY || !this.name) return;
    this.seen = state;
    this.load();
  }

  async load() {
    const name = this.name;
    this.last = Date.now();
    try {
      const found = await ask(`${this.at}/results?query=${encodeURIComponent(name)}`);
      if (name !== this.name) return;
      this.take(found);
      this.say("", "");
    } catch (error) {
      if (name === this.name) this.say("bad", error.message);
    }
  }

  say(kind, text) {
    this.said.className = `said ${kind}`;
    this.said.textContent = text;
  }

  take(found) {
    this.held = found;
    const places = Object.fromEntries(found.columns.map((name, n) => [name, n]));
    this.places = places;
    this.long = "aggregate" in places && "value" in places && "query" in places;
    const keys = this.long ? ["key", "aggregate"] : found.keys.filter((name) => name in places);
    this.keys = keys.map((name) => places[name]);
    const values = this.long ? ["value"] : found.columns.filter((name, n) => found.kinds[n] === "number" && !OWN.has(name) && !keys.includes(name));
    const before = this.value.value;
    if ([...this.value.options].map((one) => one.value).join() !== values.join()) {
      put(this.value, values.map((name) => h("option", { value: name, text: name })));
      if (values.includes(before)) this.value.value = before;
    }
    // Where there is little room, values come before the beginnings of windows, which their ends stand for.
    const order = found.columns.map((_, n) => n), start = places.window_start;
    if (little.matches && start !== undefined && places.window_end !== undefined) order.push(...order.splice(start, 1));
    this.order = order;
    this.table.setKinds(order.map((n) => found.columns[n]), order.map((n) => found.kinds[n]));
    const corrected = "revision" in places ? found.rows.filter((row) => row[places.revision] > 0).length : 0;
    this.told.textContent = `${count(found.rows.length)} rows${found.more ? ", the newest; an export has up to a million" : ""}${corrected ? `, ${count(corrected)} of them corrections by late events` : ""}`;
    this.draw();
  }

  keyOf(row) {
    return this.keys.map((n) => String(row[n])).join(" · ") || "all events";
  }

  draw() {
    if (!this.held) return;
    const wanted = this.key.value.toLowerCase();
    const rows = wanted ? this.held.rows.filter((row) => this.keyOf(row).toLowerCase().includes(wanted)) : this.held.rows;
    this.table.set([...rows].reverse());
    const place = this.places[this.value.value], end = this.places.window_end ?? this.places.window_start;
    const { revision, retracted } = this.places;
    const lines = new Map();
    for (const row of rows) {
      if (place === undefined || end === undefined) break;
      const key = this.keyOf(row);
      if (!lines.has(key)) {
        if (lines.size >= LINES) continue;
        lines.set(key, new Map());
      }
      // A correction takes the place of what it corrects.
      const gone = retracted !== undefined && row[retracted];
      lines.get(key).set(row[end], [row[end], gone ? null : row[place], revision !== undefined && row[revision] > 0]);
    }
    const series = [...lines].map(([name, points]) => ({ name, points: [...points.values()].sort((a, b) => a[0] - b[0]) }));
    series.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    this.chart.set(series);
  }

  cells(row) {
    const { kinds } = this.held;
    return this.order.map((n) => {
      const value = row[n];
      if (n === this.places.revision) return value > 0 ? h("span", { class: "tag", text: `corrected, ${value}` }) : "";
      if (n === this.places.retracted) return value ? h("span", { class: "tag bad", text: "taken back" }) : "";
      return kinds[n] === "time" ? timeCell(value) : number(value);
    });
  }

  mark(row) {
    const { revision, retracted } = this.places;
    return retracted !== undefined && row[retracted] ? "retracted" : revision !== undefined && row[revision] > 0 ? "corrected" : "";
  }
}

function field(id, label, ...inputs) {
  return h("div", { class: "field" }, h("label", { for: id, text: label }), ...inputs);
}
