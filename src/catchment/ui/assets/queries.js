// The queries: all of them, what they share, and a place to write another one.

import { LongTable, ask, count, h, later, post, put, s, some } from "/assets/dom.js";

const GROUPS = 40, LITTLE = 480;
const EXAMPLE = "SELECT player, avg(v) AS mean FROM events GROUP BY player, window(ts, '10 seconds')";

export class QueriesView {
  constructor(root, at, results) {
    this.at = at;
    this.results = results;
    this.version = undefined;
    this.held = { queries: [], groups: [] };
    this.filter = h("input", { type: "search", placeholder: "Find a query", "aria-label": "Find a query", oninput: later(80, () => this.list()) });
    this.told = h("span", { class: "muted" });
    this.table = new LongTable({
      label: "Queries",
      kind: "queries",
      columns: [{ name: "name" }, { name: "query" }, { name: "group", numeric: true, wide: true }, { name: "alone", numeric: true, wide: true, title: "operators that would take every event if the query ran alone" }, { name: "", wide: true }],
      cells: ([name, text, group, , version, leaving, alone]) => [name, text, group < 0 ? "–" : String(group), alone ? String(alone) : "–", leaving ? "leaving" : version > 1 ? `version ${version}` : ""],
      marked: (query) => (query[5] ? "leaving" : ""),
      key: ([name]) => name,
      chosen: (query) => this.choose(query),
      empty: "no queries yet",
    });
    this.detail = h("div", { class: "panel detail", "aria-live": "polite" });
    this.groups = h("div", { class: "groups" });
    put(
      root,
      h("div", { class: "columns" },
        h("div", { class: "column" },
          this.form(),
          h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Queries" }), this.told, this.filter), this.table.element)),
        h("div", { class: "column side" },
          this.detail,
          h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "What shares what" }), h("span", { class: "muted", text: "each group reads an event once for all its queries" })), this.groups))),
    );
    this.choose(null);
  }

  form() {
    this.name = h("input", { id: "new-name", autocomplete: "off", spellcheck: "false", maxlength: 200, oninput: () => this.typed() });
    this.sql = h("textarea", { id: "new-sql", rows: 3, spellcheck: "false", placeholder: EXAMPLE, oninput: () => this.typed(), "aria-describedby": "new-said" });
    this.said = h("p", { id: "new-said", class: "said", role: "status", "aria-live": "polite" });
    this.button = h("button", { class: "main", type: "submit", text: "Add", disabled: true });
    this.check = later(250, () => this.checked());
    return h("form", { class: "panel add", onsubmit: (event) => this.add(event) },
      h("div", { class: "panel-head" }, h("h2", { text: "Add a query" })),
      h("label", { for: "new-sql", text: "SQL" }), this.sql,
      h("div", { class: "line" }, h("label", { for: "new-name", text: "Name" }), this.name, this.button),
      this.said);
  }

  typed() {
    this.button.disabled = true;
    this.check();
  }

  async checked() {
    const [sql, name] = [this.sql.value.trim(), this.name.value.trim()];
    if (!sql) return this.say("", "");
    const same = () => sql === this.sql.value.trim() && name === this.name.value.trim();
    try {
      await post(`${this.at}/check`, { sql, name: name || "a_query_without_a_name_yet" });
    } catch (error) {
      if (same()) this.say("bad", error.message);
      return;
    }
    if (!same()) return;
    this.button.disabled = !name;
    this.say("good", name ? "it can be added" : "it can be added: give it a name");
  }

  async add(event) {
    event.preventDefault();
    const asked = { sql: this.sql.value.trim(), name: this.name.value.trim() };
    try {
      await post(`${this.at}/add`, asked);
    } catch (error) {
      this.say("bad", error.message);
      return;
    }
    this.sql.value = this.name.value = "";
    this.button.disabled = true;
    this.say("good", `added ${asked.name}; its first result comes with its first whole window`);
    this.version = undefined;
  }

  say(kind, text) {
    this.said.className = `said ${kind}`;
    this.said.textContent = text;
  }

  async update({ job }) {
    if (job.plan === this.version) return;
    this.version = job.plan;
    const found = await ask(`${this.at}/queries`).catch(() => null);
    if (!found) {
      this.version = undefined;
      return;
    }
    this.held = found;
    this.alike = new Map();
    for (const query of found.queries) {
      const key = `${query[2]}/${query[3]}`;
      this.alike.set(key, (this.alike.get(key) || 0) + 1);
    }
    this.list();
    this.drawGroups();
    this.results.known(found.queries);
    if (this.chosen && !found.queries.some((query) => query[0] === this.chosen[0])) this.choose(null);
  }

  list() {
    const wanted = this.filter.value.toLowerCase();
    const found = this.held.queries.filter(([name, text]) => !wanted || name.toLowerCase().includes(wanted) || text.toLowerCase().includes(wanted));
    this.told.textContent = found.length === this.held.queries.length ? count(found.length) : `${count(found.length)} of ${count(this.held.queries.length)}`;
    this.table.set(found);
  }

  // -- one query --------------------------------------------------------------------------------

  choose(query) {
    this.chosen = query;
    if (!query) {
      put(this.detail, h("p", { class: "muted", text: "Choose a query to see what it shares, to look at its results or to remove it." }));
      return;
    }
    const [name, text, group, answer, version, leaving, alone] = query;
    const alike = (this.alike.get(`${group}/${answer}`) || 1) - 1;
    const held = this.held.groups.find((one) => one.id === group);
    const shares = held ? `Group ${group}, ${held.queries > 1 ? `with ${some(held.queries - 1, "other query", "other queries")}` : "by itself"}.` : "It is not in the plan yet.";
    const same = alike ? ` ${count(alike)} of them ${alike === 1 ? "asks" : "ask"} for the very same, which is computed once.` : "";
    const cost = !held ? "" : held.queries > 1 ? ` Alone it would take ${some(alone, "operator call", "operator calls")} an event; the group takes ${count(held.operators.length)} for all ${count(held.queries)}.` : ` It takes ${some(alone, "operator call", "operator calls")} an event.`;
    put(
      this.detail,
      h("h2", { text: name }),
      h("code", { class: "wrap", text }),
      h("p", { text: `${shares}${same}${cost}${version > 1 ? ` Version ${version} of its definition.` : ""}${leaving ? " It leaves when its open windows have ended." : ""}` }),
      h("div", { class: "line" },
        h("button", { type: "button", class: "main", text: "Results", onclick: () => this.results.open(name) }),
        h("button", { type: "button", text: "Let it end", title: "Open windows end as usual, no new ones begin", disabled: leaving, onclick: () => this.remove(name, true) }),
        h("button", { type: "button", class: "danger", text: "Remove", title: "Open windows give no results any more", onclick: () => this.remove(name, false) }),
        (this.gone = h("span", { class: "said bad", role: "status" }))),
    );
  }

  async remove(name, drain) {
    try {
      await post(`${this.at}/remove`, { name, drain });
    } catch (error) {
      this.gone.textContent = error.message;
      return;
    }
    put(this.detail, h("p", { class: "said good", text: drain ? `${name} leaves after its open windows` : `removed ${name}` }));
    this.version = undefined;
  }

  // -- the groups -------------------------------------------------------------------------------

  drawGroups() {
    const groups = [...this.held.groups].sort((a, b) => b.queries - a.queries);
    const rest = groups.length - GROUPS;
    put(
      this.groups,
      groups.slice(0, GROUPS).map((group, n) => this.group(group, n < 2)),
      rest > 0 ? h("p", { class: "muted", text: `and ${count(rest)} groups with fewer queries` }) : null,
    );
  }

  group(group, open) {
    const body = h("div", { class: "inside" });
    const fill = () => body.childElementCount || put(body, this.saved(group), fitted(group), explained(group));
    const made = h("details", { class: "group", ontoggle: () => made.open && fill() },
      h("summary", {}, h("span", { class: "title", text: group.title }), h("span", { class: "muted", text: `${some(group.queries, "query", "queries")}, ${some(group.answers, "answer", "answers")}` })),
      body);
    if (open) made.open = true;
    return made;
  }

  // What an event costs in this group, and what it would cost if every query ran alone.
  saved(group) {
    const alone = this.held.queries.reduce((sum, query) => (query[2] === group.id ? sum + query[6] : sum), 0);
    const shared = group.operators.length, most = Math.max(alone, shared, 1);
    const line = (kind, label, n) => {
      const filled = h("i");
      filled.style.width = `${(n / most) * 100}%`;
      return [h("span", { class: "muted", text: label }), h("span", { class: `track ${kind}` }, filled), h("b", { text: count(n) })];
    };
    return h("div", { class: "bars", role: "group", "aria-label": "Operator calls an event" }, line("alone", "operator calls an event, each query alone", alone), line("shared", "together", shared));
  }
}

// The drawing of a group, as wide as its place.
function fitted(group) {
  const box = h("div");
  let drawn = 0;
  new ResizeObserver(() => {
    if (!box.clientWidth || box.clientWidth === drawn) return;
    drawn = box.clientWidth;
    put(box, sharing(group, drawn));
  }).observe(box);
  return box;
}

// Windows on the left, the operators that they need on the right: a line for each need.
function sharing(group, room) {
  const wide = Math.max(room, 260), row = 30, top = 30;
  const operators = group.operators.slice(0, 24);
  const column = Math.min(wide * 0.4, 250), letters = Math.floor((column - 22) / 7.6);
  const high = Math.max(group.windows.length, operators.length) * row + top;
  const at = (n, all) => top + n * row + ((high - top - all * row) / 2) + row / 2;
  const left = (n) => at(n, group.windows.length), right = (n) => at(n, operators.length);
  const most = Math.max(...group.windows.map(([, queries]) => queries), 1);
  const label = `${some(group.windows.length, "window needs", "windows need")} ${some(group.operators.length, "operator", "operators")}`;
  const [from, to] = [column, wide - column], bend = (to - from) / 2;
  const box = (kind, x, y, text, whole) => s("g", { class: kind }, s("title", { text: whole }), s("rect", { x: x + 0.5, y: y - 12, width: column - 1, height: 24, rx: 6 }), s("text", { x: x + 10, y: y + 4.5, text }));
  return s("svg", { class: "sharing", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label },
    s("text", { class: "fact", x: 0, y: 14, text: "windows, and their queries" }),
    s("text", { class: "fact", x: to, y: 14, text: wide < LITTLE ? "operators" : "operators, each event once" }),
    s("g", { class: "needs" }, group.needs.filter(([, o]) => o < operators.length).map(([w, o]) => s("path", { d: `M${from} ${left(w)} C${from + bend} ${left(w)} ${to - bend} ${right(o)} ${to} ${right(o)}`, "stroke-width": 1.5 + (group.windows[w][1] / most) * 3.5 }))),
    group.windows.map(([text, queries], n) => box("window", 0, left(n), `${clip(text, letters - String(queries).length - 3)} ×${count(queries)}`, text)),
    operators.map((text, n) => box("operator", to, right(n), clip(text, letters), text)));
}

// The lines of `catchment explain`, for those who want to know why.
function explained(group) {
  const lines = group.lines.map((line) => (line.includes(": ") ? [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)] : ["", line]));
  return h("details", { class: "plan" }, h("summary", { text: "Why, as catchment explain tells it" }),
    h("dl", { class: "why" }, lines.flatMap(([name, text]) => [h("dt", { text: name }), h("dd", { text })])));
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, Math.max(most - 1, 3))}…` : text);
