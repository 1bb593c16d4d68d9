// The queries: all of them, what they share, and a place to write another one.

import { LongTable, ask, count, h, later, post, put, s } from "/assets/dom.js";

const GROUPS = 40;
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
      columns: [{ name: "name" }, { name: "query" }, { name: "group", numeric: true }, { name: "alone", numeric: true }, { name: "" }],
      cells: ([name, text, group, , version, leaving, alone]) => [name, text, group < 0 ? "–" : String(group), alone ? String(alone) : "–", leaving ? "leaving" : version > 1 ? `version ${version}` : ""],
      marked: (query) => (query[5] ? "leaving" : ""),
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
          h("div", { class: "panel grow" }, h("div", { class: "panel-head" }, h("h2", { text: "Queries" }), this.told, this.filter), this.table.element)),
        h("div", { class: "column side" },
          this.detail,
          h("div", { class: "panel grow" }, h("div", { class: "panel-head" }, h("h2", { text: "What shares what" }), h("span", { class: "muted", text: "each group reads an event once for all its queries" })), this.groups))),
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
    const shares = held ? `Group ${group}, with ${count(held.queries - 1)} other queries.` : "It is not in the plan yet.";
    const same = alike ? ` ${count(alike)} of them ask for the very same, which is computed once.` : "";
    const cost = held ? ` Alone it would take ${count(alone)} operator calls an event; the group takes ${count(held.operators.length)} for all ${count(held.queries)}.` : "";
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
    const body = h("div");
    const fill = () => body.childElementCount || put(body, sharing(group), h("ul", { class: "why" }, group.lines.map((line) => h("li", { text: line }))));
    const made = h("details", { class: "group", ontoggle: () => made.open && fill() },
      h("summary", {}, h("span", { class: "title", text: group.title }), h("span", { class: "muted", text: `${count(group.queries)} queries, ${count(group.answers)} answers` })),
      body);
    if (open) made.open = true;
    return made;
  }
}

// Windows on the left, the operators that they need on the right: a line for each need.
function sharing(group) {
  const row = 22, wide = 560, middle = [230, 330];
  const operators = group.operators.slice(0, 24);
  const high = Math.max(group.windows.length, operators.length) * row + 30;
  const left = (n) => 30 + n * row + ((high - 30 - group.windows.length * row) / 2) + row / 2;
  const right = (n) => 30 + n * row + ((high - 30 - operators.length * row) / 2) + row / 2;
  const most = Math.max(...group.windows.map(([, queries]) => queries), 1);
  const label = `${group.windows.length} windows need ${group.operators.length} operators`;
  return s("svg", { class: "sharing", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label },
    s("text", { class: "fact", x: middle[0] - 8, y: 16, "text-anchor": "end", text: "windows, and their queries" }),
    s("text", { class: "fact", x: middle[1] + 8, y: 16, text: "operators, each event once" }),
    s("g", { class: "needs" }, group.needs.map(([w, o]) => s("path", { d: `M${middle[0]} ${left(w)} C${middle[0] + 50} ${left(w)} ${middle[1] - 50} ${right(o)} ${middle[1]} ${right(o)}`, "stroke-width": 0.8 + (group.windows[w][1] / most) * 3 }))),
    group.windows.map(([text, queries], n) => s("g", {},
      s("circle", { cx: middle[0], cy: left(n), r: 3 }),
      s("text", { x: middle[0] - 8, y: left(n) + 4, "text-anchor": "end", text: `${clip(text)}  ×${count(queries)}` }))),
    operators.map((text, n) => s("g", {},
      s("circle", { cx: middle[1], cy: right(n), r: 3 }),
      s("text", { x: middle[1] + 8, y: right(n) + 4, text: clip(text) }))));
}

const clip = (text) => (text.length > 30 ? `${text.slice(0, 29)}…` : text);
