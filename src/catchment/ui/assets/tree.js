// The tree: who sends to whom, how far each has come, what the links carry, who is missing.
//
// A few dozen nodes are drawn one by one. Of more, brothers are drawn as one shape with a bar of how
// they stand; those that are missing always stay in sight, and the table below has every node.

import { LongTable, bytes, count, h, later, moment, put, s, seconds, short } from "/assets/dom.js";

const DRAWN = 120, WIDE = 1120, LEVEL = 122, DOTS = 48, MISSING = 6;
// How many brothers are drawn apart, those with children and those without: the first that will do.
const FANS = [[Infinity, Infinity], [48, 24], [48, 8], [48, 1], [24, 1], [12, 1], [6, 1], [1, 1]];
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class TreeView {
  constructor(root) {
    this.root = root;
    this.traffic = h("div", { class: "traffic" });
    this.svg = s("svg", { class: "tree", role: "img", "aria-label": "The tree of nodes" });
    this.filter = h("input", { type: "search", placeholder: "Find a node", "aria-label": "Find a node", oninput: later(80, () => this.list()) });
    this.told = h("p", { class: "note" });
    this.table = new LongTable({
      label: "Nodes",
      kind: "nodes",
      columns: ["node", "sends to", "state", "frontier", "behind", "messages", "bytes", "link", "sent early", "alpha"].map((name, n) => ({ name, numeric: n > 3 })),
      marked: (node) => node.state,
      cells: (node) => [
        node.id,
        node.parent || "nobody: the root",
        h("span", { class: `dot ${node.state}`, text: told(node) }),
        moment(node.frontier),
        seconds(node.behind),
        count(node.messages || 0),
        bytes(node.nbytes || 0),
        node.bandwidth ? `${bytes(node.bandwidth)}/s` : "–",
        node.early === undefined ? "–" : count(node.early),
        node.alpha === undefined ? "–" : node.alpha.toFixed(2),
      ],
      empty: "no nodes",
    });
    put(
      root,
      h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "The tree" }), this.traffic), this.svg, this.told),
      h("div", { class: "panel grow" }, h("div", { class: "panel-head" }, h("h2", { text: "Nodes" }), this.filter), this.table.element),
    );
    this.before = new Map();
    this.climbed = 0;
    this.events = null;
    this.shape = "";
  }

  update({ job, nodes, counts }) {
    const all = [...nodes.values()];
    this.nodes = all;
    this.job = job;
    this.count(all, counts);
    const picture = pictured(all);
    this.draw(picture);
    this.move(all);
    this.list();
    const gone = all.filter((node) => node.state === "missing").length;
    this.told.textContent = `${count(all.length)} nodes, ${gone ? `${count(gone)} missing` : "nobody missing"}. Flush policy: ${job.flush || "unknown"}.`
      + (picture.length < all.length ? " Brothers are drawn together; the table has every node." : "");
  }

  // What has climbed to the root since the page was opened, against sending all events.
  count(all, counts) {
    const root = all.find((node) => !node.parent);
    for (const node of all) {
      const before = this.before.get(node.id);
      const now = node.nbytes || 0;
      if (root && node.parent === root.id && before !== undefined) this.climbed += now >= before ? now - before : now;
    }
    const events = counts.events || 0;
    if (this.events === null || events < this.events) this.events = events;
    const width = this.job.event_bytes;
    const raw = width ? (events - this.events) * width : null;
    if (!raw) {
      put(this.traffic, h("span", { class: "muted", text: `climbed to the root since this page was opened: ${bytes(this.climbed)}` }));
      return;
    }
    const share = this.climbed / raw;
    put(
      this.traffic,
      meter("climbed", this.climbed, Math.max(this.climbed, raw)),
      meter("all events would be about", raw, Math.max(this.climbed, raw)),
      h("b", { class: "share", text: share < 1 ? `${(share * 100).toPrecision(2)} %` : `${share.toPrecision(2)} ×`, title: "Bytes to the root since this page was opened, against all events by the width of their columns" }),
    );
  }

  list() {
    const wanted = this.filter.value.toLowerCase();
    const rank = { missing: 0, unknown: 1, connected: 2, ended: 3 };
    const found = (this.nodes || []).filter((node) => node.id.toLowerCase().includes(wanted));
    found.sort((a, b) => rank[a.state] - rank[b.state]);
    this.table.set(found);
  }

  // -- the drawing ------------------------------------------------------------------------------

  draw(picture) {
    const shape = picture.map((one) => `${one.key}>${one.parent}`).join();
    if (shape !== this.shape) {
      this.shape = shape;
      this.lay(picture);
    }
    for (const one of picture) this.paint(one);
    const missing = picture.filter((one) => one.state === "missing").map((one) => one.key);
    this.svg.setAttribute("aria-label", `The tree: ${this.nodes.length} nodes, ${missing.length ? `missing: ${missing.join(", ")}` : "nobody missing"}. The table below has them all.`);
  }

  // Leaves side by side, each parent in the middle above its children, the root on top.
  lay(picture) {
    const children = new Map();
    for (const one of picture) children.set(one.parent, [...(children.get(one.parent) || []), one]);
    const root = picture[0];
    let next = 0, deepest = 0;
    const visit = (one, depth) => {
      const below = children.get(one.key) || [];
      deepest = Math.max(deepest, depth);
      below.forEach((child) => visit(child, depth + 1));
      one.depth = depth;
      one.column = below.length ? (below[0].column + below.at(-1).column) / 2 : next++;
    };
    if (root) visit(root, 0);
    const gap = Math.min(168, (WIDE - 40) / Math.max(next, 1));
    const high = deepest * LEVEL + 106;
    const left = (WIDE - gap * next) / 2;
    this.gap = gap;
    this.places = new Map();
    this.links = s("g", { class: "links" });
    this.dots = s("g", { class: "dots", "aria-hidden": "true" });
    this.marks = s("g", { class: "marks" });
    this.svg.setAttribute("viewBox", `0 0 ${WIDE} ${Math.max(high, 200)}`);
    put(this.svg, this.links, this.dots, this.marks);
    for (const one of picture) {
      const at = { x: left + (one.column + 0.5) * gap, y: 34 + one.depth * LEVEL };
      const place = { ...at, root: !one.parent, title: s("title"), name: s("text", { class: "name", y: 28 }), fact: s("text", { class: "fact", y: 42 }), carries: s("text", { class: "fact", y: 56 }) };
      place.shape = one.many ? s("g", { class: "bar" }) : s("circle", { r: one.parent ? 8 : 11 });
      place.mark = s("g", { transform: `translate(${at.x} ${at.y})` }, place.title, place.shape, place.name, place.fact, place.carries);
      this.marks.append(place.mark);
      const above = this.places.get(one.parent);
      if (above) {
        const start = gap > 120 ? 62 : gap > 88 ? 48 : above.root ? 36 : 12;
        place.path = `M${at.x} ${at.y - 10} C${at.x} ${at.y - 44} ${above.x} ${above.y + start + 34} ${above.x} ${above.y + start}`;
        place.link = s("path", { d: place.path });
        this.links.append(place.link);
      }
      this.places.set(one.key, place);
    }
  }

  paint(one) {
    const place = this.places.get(one.key);
    place.mark.setAttribute("class", `node ${one.state} ${one.many ? "many" : ""}`);
    const room = this.gap > 88;
    place.name.textContent = room || one.state === "missing" || !one.parent ? cut(one.name, this.gap) : one.many ? short(one.of) : "";
    place.fact.textContent = room ? one.fact : "";
    place.carries.textContent = this.gap > 120 ? one.carries || "" : "";
    place.title.textContent = one.title;
    if (one.many) bar(place.shape, one, Math.min(68, this.gap - 8));
    if (place.link) {
      place.link.setAttribute("class", one.state);
      place.link.setAttribute("stroke-width", 1.2 + Math.min(Math.log10(1 + (one.speed || 0)) * 0.45, 4));
    }
  }

  // Dots climb the links that carried something since the last look.
  move(all) {
    const drawn = new Map();
    for (const node of all) {
      const before = this.before.get(node.id), now = node.nbytes || 0;
      this.before.set(node.id, now);
      if (before === undefined || now <= before) continue;
      const key = this.places.has(node.id) ? node.id : `${node.parent}/*`;
      drawn.set(key, (drawn.get(key) || 0) + now - before);
    }
    if (calm.matches || document.hidden || this.root.hidden) return;
    for (const [key, nbytes] of [...drawn].slice(0, DOTS)) {
      const place = this.places.get(key);
      if (!place || !place.path) continue;
      const motion = s("animateMotion", { dur: "0.9s", path: place.path, begin: "indefinite", fill: "freeze" });
      const dot = s("circle", { r: 2 + Math.min(Math.log10(nbytes + 1) * 0.6, 4) }, motion);
      this.dots.append(dot);
      motion.beginElement();
      setTimeout(() => dot.remove(), 880);
    }
  }
}

function told(node) {
  if (node.state === "missing") return node.silent ? `missing for ${seconds(node.silent)}` : "missing";
  return node.state === "unknown" ? "its parent does not answer" : node.state;
}

function meter(label, value, most) {
  const filled = h("i");
  filled.style.width = `${Math.max((value / most) * 100, 0.5)}%`;
  return h("span", { class: "meter" }, h("span", { text: label }), h("span", { class: "track" }, filled), h("b", { text: bytes(value) }));
}

function cut(text, gap) {
  const most = Math.max(Math.floor(gap / 7.5), 10);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function fact(node) {
  if (node.state === "missing") return told(node);
  if (typeof node.frontier === "number") return node.behind ? `${seconds(node.behind)} behind` : moment(node.frontier).slice(11);
  return node.frontier || "";
}

// What is drawn of a tree, parents before children: nodes one by one, or brothers as one shape.
export function pictured(all) {
  const below = new Map(), known = new Set(all.map((node) => node.id));
  for (const node of all) {
    const parent = known.has(node.parent) ? node.parent : null;
    below.set(parent, [...(below.get(parent) || []), node]);
  }
  for (const fans of FANS) {
    const found = [];
    const visit = (node, parent) => {
      found.push(single(node, parent));
      const children = below.get(node.id) || [];
      const [leaves, inner] = [children.filter((c) => !below.has(c.id)), children.filter((c) => below.has(c.id))];
      for (const [group, fan] of [[inner, fans[0]], [leaves, fans[1]]]) {
        if (group.length <= fan) {
          group.forEach((child) => visit(child, node.id));
          continue;
        }
        const apart = group.filter((child) => child.state === "missing").slice(0, MISSING);
        const rest = group.filter((child) => !apart.includes(child));
        apart.forEach((child) => found.push(single(child, node.id)));
        const everybody = rest.flatMap((child) => [child, ...descendants(child, below)]);
        if (rest.length) found.push(together(node.id, everybody, group === inner ? "/+" : "/*"));
      }
    };
    (below.get(null) || []).slice(0, 1).forEach((root) => visit(root, null));
    if (found.length <= DRAWN || fans === FANS.at(-1)) return found;
  }
  return [];
}

function descendants(node, below) {
  return (below.get(node.id) || []).flatMap((child) => [child, ...descendants(child, below)]);
}

function single(node, parent) {
  const title = `${node.id}: ${told(node)}, frontier ${moment(node.frontier)}, ${count(node.messages || 0)} messages, ${bytes(node.nbytes || 0)}`
    + (node.bandwidth ? `, link ${bytes(node.bandwidth)}/s` : "") + (node.why ? `; ${node.why}` : "");
  const carries = parent ? [bytes(node.nbytes || 0), node.bandwidth ? `${bytes(node.bandwidth)}/s` : ""].filter(Boolean).join(" · ") : "";
  return { key: node.id, parent, name: node.id, state: node.state, fact: fact(node), carries, title, speed: node.bandwidth };
}

function together(parent, nodes, suffix) {
  const states = {};
  for (const node of nodes) states[node.state] = (states[node.state] || 0) + 1;
  const worst = Math.max(...nodes.map((node) => node.behind || 0));
  const sum = nodes.reduce((all, node) => all + (node.nbytes || 0), 0);
  const state = states.missing ? "missing" : states.unknown ? "unknown" : states.connected ? "connected" : "ended";
  const words = Object.entries(states).map(([name, n]) => `${count(n)} ${name}`).join(", ");
  return { key: parent + suffix, parent, many: true, states, of: nodes.length, name: `${count(nodes.length)} nodes`, state, fact: worst ? `up to ${seconds(worst)} behind` : bytes(sum), title: `${count(nodes.length)} nodes: ${words}; ${bytes(sum)}` };
}

function bar(group, one, all) {
  const parts = [];
  let x = -all / 2;
  for (const state of ["connected", "ended", "unknown", "missing"]) {
    const wide = ((one.states[state] || 0) / one.of) * all;
    if (wide) parts.push(s("rect", { class: state, x, y: -8, width: Math.max(wide, 2), height: 16 }));
    x += wide;
  }
  put(group, ...parts, s("rect", { class: "frame", x: -all / 2, y: -8, width: all, height: 16, rx: 3 }));
}
