// The tree: who sends to whom, how far each has come, what the links carry, who is missing; and what
// has climbed to the root, against what all events would take.

import { LongTable, bytes, count, h, later, moment, put, s, seconds, some } from "/assets/dom.js";
import { BEHIND, Drawing, described } from "/assets/drawing.js";
import { told } from "/assets/pictured.js";

const LANE = 5, LANE_MOST = 400, TURN = 900, MANY = 30;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class TreeView {
  constructor(root) {
    this.root = root;
    this.share = h("p", { class: "share" });
    this.traffic = h("div", { class: "traffic" }, h("h2", { text: "What climbs to the root" }), this.share);
    this.lanes = [lane("partials"), lane("all events")];
    this.flush = h("p", { class: "policy" });
    this.traffic.append(...this.lanes.map((one) => one.element), this.flush);
    this.drawing = new Drawing((key) => this.look(key));
    this.detail = h("p", { class: "note", role: "status" });
    this.filter = h("input", { type: "search", placeholder: "Find a node", "aria-label": "Find a node", oninput: later(80, () => this.list()) });
    this.table = new LongTable({
      label: "Nodes",
      kind: "nodes",
      columns: [
        { name: "node" }, { name: "sends to", wide: true }, { name: "state" }, { name: "frontier", wide: true }, { name: "behind", numeric: true, title: "the node that is furthest" },
        { name: "messages", numeric: true, wide: true }, { name: "sent", numeric: true }, { name: "link", numeric: true, wide: true, title: "what the link carries, as far as the node has found out" },
        { name: "early rows", numeric: true, wide: true, title: "rows that the flush policy sent before their slice had ended" }, { name: "α", numeric: true, wide: true, title: "0: sends at once; 1: waits as long as the link can still send all" }],
      key: (node) => node.id,
      chosen: (node) => this.drawing.choose(node.id),
      marked: (node) => node.state,
      cells: (node) => [
        node.id,
        node.parent || "–",
        h("span", { class: `dot ${node.state}`, text: told(node) }),
        moment(node.frontier),
        seconds(node.behind),
        node.role === "root" ? "–" : count(node.messages || 0),
        node.role === "root" ? "–" : bytes(node.nbytes || 0),
        node.bandwidth ? `${bytes(node.bandwidth)}/s` : "–",
        count(node.early),
        node.alpha === undefined ? "–" : node.alpha.toFixed(2),
      ],
      empty: "no nodes",
    });
    this.told = h("span", { class: "muted" });
    put(
      root,
      (this.panel = h("div", { class: "panel split" }, this.traffic, h("div", { class: "picture" }, this.drawing.svg, legend(), this.detail))),
      h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Nodes" }), this.told, this.filter), this.table.element),
    );
    this.before = new Map();
    this.flows = new Map();
    this.climbed = 0;
    this.events = null;
  }

  update({ at, job, nodes, counts }) {
    const all = [...nodes.values()];
    this.nodes = all;
    this.job = job;
    const sent = this.count(all, at);
    this.against(all, counts, at);
    this.panel.classList.toggle("over", all.length > MANY);
    this.drawing.draw(all, this.flows);
    this.drawing.move(sent);
    this.list();
    const gone = all.filter((node) => node.state === "missing").length;
    this.told.textContent = `${count(all.length)}, ${gone ? `${count(gone)} missing` : "nobody missing"}${this.drawing.together ? "; siblings are drawn together, the table has every node" : ""}`;
    this.policy(all);
    if (this.seen) this.look(this.seen);
  }

  // The bytes that each node has sent since the last look, and how fast it sends.
  count(all, at) {
    const sent = new Map(), past = this.at ? (at - this.at) / 1e6 : 0;
    if (past <= 0 && this.at) return sent;
    const root = all.find((node) => !node.parent);
    for (const node of all) {
      const before = this.before.get(node.id), now = node.nbytes || 0;
      this.before.set(node.id, now);
      if (before === undefined || !past) continue;
      const more = now >= before ? now - before : now;
      sent.set(node.id, more);
      const flow = 0.7 * (this.flows.get(node.id) || 0) + 0.3 * (more / past);
      this.flows.set(node.id, flow < 0.5 ? 0 : flow);
      if (root && node.parent === root.id) this.climbed += more;
    }
    this.past = past;
    this.at = at;
    return sent;
  }

  // What has climbed to the root since the page was opened, against sending all events.
  against(all, counts) {
    const events = counts.events || 0, width = this.job.event_bytes;
    if (this.events === null || events < this.events) this.events = events;
    const raw = width ? (events - this.events) * width : 0;
    const [partials, every] = this.lanes;
    partials.show(this.climbed, raw ? Math.min(this.climbed / raw, 1) : 1);
    every.element.hidden = !raw;
    if (!raw) return put(this.share, h("span", { class: "muted", text: "since this page was opened" }));
    every.show(raw, 1);
    const share = this.climbed / raw;
    put(this.share, h("b", { text: share < 1 ? `${Number((share * 100).toPrecision(2))} %` : `${share.toPrecision(2)} ×` }), h("span", { class: "muted", text: "of what all events would take by the width of their columns, since this page was opened" }));
  }

  policy(all) {
    const tuned = all.filter((node) => node.early !== undefined);
    const early = tuned.reduce((sum, node) => sum + node.early, 0);
    const words = tuned.length ? `${some(early, "row was sent before its", "rows were sent before their")} slice had ended.` : "";
    put(this.flush, h("span", { class: "muted", text: "Flush policy " }), h("b", { text: this.job.flush || "unknown" }), h("span", { class: "muted", text: words && `: ${words}` }));
  }

  look(key) {
    this.seen = key;
    const node = (this.nodes || []).find((one) => one.id === key);
    const place = this.drawing.places.get(key);
    const text = node ? described(node) : place ? place.title.textContent : "";
    if (this.detail.textContent !== text) this.detail.textContent = text;
  }

  list() {
    const wanted = this.filter.value.toLowerCase();
    const rank = { missing: 0, unknown: 1, connected: 2, ended: 3 };
    const found = (this.nodes || []).filter((node) => node.id.toLowerCase().includes(wanted));
    found.sort((a, b) => rank[a.state] - rank[b.state]);
    this.table.set(found);
  }
}

// A lane in which drops go by: each is as many bytes in every lane, so few of them are little.
function lane(label) {
  const water = h("i"), value = h("b");
  const element = h("div", { class: "lane" }, h("span", { text: label }), value, h("div", { class: "bed" }, water));
  return {
    element,
    show(nbytes, share) {
      value.textContent = bytes(nbytes);
      const apart = Math.min(LANE / Math.max(share, 1e-6), LANE_MOST);
      water.style.backgroundSize = `${apart.toFixed(1)}px 100%`;
      const turn = apart < 60 ? apart * Math.floor(60 / apart) : apart;
      water.style.left = `-${turn.toFixed(1)}px`;
      if (nbytes && !calm.matches && !document.hidden) water.animate([{ transform: "translateX(0)" }, { transform: `translateX(${turn}px)` }], { duration: TURN });
    },
  };
}

function legend() {
  const link = (name) => s("svg", { width: 34, height: 14, "aria-hidden": "true" }, s("path", { class: `channel ${name}`, d: "M2 7H32", "stroke-width": 9 }), s("path", { class: `water ${name}`, d: "M2 7H32", "stroke-width": name === "missing" ? 0 : 3 }));
  const part = (mark, text) => h("li", {}, mark, h("span", { text }));
  return h("ul", { class: "key-list", "aria-label": "What the drawing means" },
    part(h("i", { class: "dot connected" }), "connected"), part(h("i", { class: "dot missing" }), "missing"), part(h("i", { class: "dot ended" }), "ended or unknown"), part(h("i", { class: "late-mark" }), `more than ${BEHIND} s behind`),
    part(link("connected"), "link, filled as it is used"), part(link("missing"), "cut"),
    part(h("i", { class: "drop" }), "partials"));
}
