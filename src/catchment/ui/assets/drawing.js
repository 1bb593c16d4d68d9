// The drawing of a tree: links as channels as wide as what they carry, with the water that flows in
// them now, and nodes as cards, circles or fields of cells. It is laid out anew when the tree or the
// width changes; otherwise only what nodes say is written again.

import { bytes, count, moment, put, s, seconds, short, some } from "/assets/dom.js";
import { CARD, field, laidOut, told } from "/assets/pictured.js";

export const BEHIND = 5;
const DOTS = 60;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Drawing {
  // `chosen` is told the key of a node that somebody looks at.
  constructor(chosen) {
    this.tell = chosen;
    this.svg = s("svg", { class: "tree", role: "group", "aria-label": "The tree of nodes" });
    this.shape = "";
    this.all = [];
    this.flows = new Map();
    this.places = new Map();
    this.at = null;
    this.svg.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.svg.clientWidth !== this.wide && this.draw(this.all, this.flows)).observe(this.svg);
  }

  // `flows` has the bytes a second that each node sends now.
  draw(all, flows) {
    const wide = this.svg.clientWidth;
    Object.assign(this, { all, flows });
    if (!wide || !all.length) return;
    this.wide = wide;
    const found = laidOut(all, wide);
    const shape = `${wide} ${found.style} ${found.shapes.map((one) => `${one.key}>${one.parent}:${one.nodes.length}`).join()}`;
    if (shape !== this.shape) {
      this.shape = shape;
      this.lay(found);
    }
    this.worst = Math.max(...all.map((node) => node.behind || 0), BEHIND);
    for (const one of found.shapes) this.paint(one);
    this.together = found.shapes.some((one) => one.many);
    const missing = all.filter((node) => node.state === "missing").map((node) => node.id);
    const named = missing.slice(0, 6).join(", ") + (missing.length > 6 ? ` and ${missing.length - 6} more` : "");
    this.svg.setAttribute("aria-label", `The tree: ${count(all.length)} nodes, ${missing.length ? `missing: ${named}` : "nobody missing"}. Arrow keys go from node to node.`);
  }

  lay({ style, shapes, high, gap }) {
    const focused = this.svg.contains(document.activeElement);
    this.style = style;
    this.gap = gap;
    this.places = new Map();
    this.svg.setAttribute("height", Math.ceil(high));
    this.svg.setAttribute("viewBox", `0 0 ${this.wide} ${Math.ceil(high)}`);
    const [channels, marks, labels] = ["links", "marks", "labels"].map((name) => s("g", { class: name }));
    this.dots = s("g", { class: "dots", "aria-hidden": "true" });
    put(this.svg, channels, this.dots, marks, labels);
    for (const one of shapes) {
      const place = { ...one, title: s("title") };
      place.mark = s("g", { role: "img", tabindex: -1, "data-key": one.key, transform: `translate(${one.x} ${one.y})`, onfocus: () => this.choose(one.key), onclick: () => this.choose(one.key) }, place.title);
      if (one.many) this.fields(place);
      else if (style === "marks") this.circle(place);
      else this.card(place);
      marks.append(place.mark);
      const above = this.places.get(one.parent);
      if (above) this.link(place, above, channels, labels);
      this.places.set(one.key, place);
    }
    if (!this.places.has(this.at)) this.at = shapes[0] && shapes[0].key;
    this.rove(focused);
  }

  // -- nodes --------------------------------------------------------------------------------------

  card(place) {
    const wide = this.style === "outline" ? place.wide : CARD.wide;
    const from = this.style === "outline" ? 0 : -wide / 2;
    const line = (name, y, anchor = "start") => s("text", { class: name, x: anchor === "end" ? from + wide - 12 : from + 14, y, "text-anchor": anchor });
    Object.assign(place, { cardWide: wide, name: line("name", 21), role: line("role", 21, "end"), fact: line("fact", 38), more: line("more", 53), lag: s("rect", { class: "lag", x: from + 1, y: CARD.high - 3, height: 2 }) });
    place.mark.append(
      s("rect", { class: "card", x: from, y: 0, width: wide, height: CARD.high, rx: 9 }),
      s("path", { class: "side", d: `M${from + 9} 0 h-2 a7 7 0 0 0 -7 7 v${CARD.high - 14} a7 7 0 0 0 7 7 h2 a5 5 0 0 1 -5 -5 v-${CARD.high - 10} a5 5 0 0 1 5 -5z` }),
      place.name, place.role, place.fact, place.more, place.lag);
  }

  circle(place) {
    place.name = s("text", { class: "name", y: 34, "text-anchor": "middle" });
    place.mark.append(s("circle", { cy: 10, r: place.parent ? 9 : 12 }), place.name);
  }

  fields(place) {
    const out = this.style === "outline";
    const [dx, dy] = out ? [2 - field(place)[0].x, 22] : [0, 2];
    place.cells = field(place).map(({ x, y, cell }) => [x + dx, y + dy, Math.max(cell - 1.5, 1)]);
    place.paths = Object.fromEntries(["connected", "behind", "ended", "unknown", "missing"].map((state) => [state, s("path", { class: `cell ${state}` })]));
    const [, low, cell] = place.cells.at(-1);
    place.name = s("text", { class: "name", x: out ? 2 : 0, y: out ? 13 : low + cell + 16, "text-anchor": out ? "start" : "middle" });
    place.mark.append(...Object.values(place.paths), place.name);
  }

  paint(one) {
    const place = this.places.get(one.key), node = one.nodes[0];
    const state = one.many ? worst(one.nodes) : node.state;
    const title = one.many ? summed(one) : described(node);
    set(place.mark, "class", `node ${state} ${one.many ? "many" : ""} ${one.parent ? "" : "root"}`);
    set(place.mark, "aria-label", title);
    write(place.title, title);
    if (one.many) this.paintCells(place, one);
    else if (this.style === "marks") write(place.name, !one.parent || state === "missing" || one.name.length * 7.5 < this.gap ? one.name : "");
    else {
      const most = Math.floor((place.cardWide - 24 - node.role.length * 6) / 7.2);
      write(place.name, one.name.length > most ? `${one.name.slice(0, most - 1)}…` : one.name);
      write(place.role, node.role === "root" ? "root" : node.role);
      write(place.fact, fact(node));
      write(place.more, more(node));
      set(place.lag, "width", Math.max(((node.behind || 0) / this.worst) * (place.cardWide - 2), 0).toFixed(1));
      set(place.lag, "class", `lag ${node.behind > BEHIND ? "far" : ""}`);
    }
    if (place.link) this.paintLink(place, one, state);
  }

  paintCells(place, { nodes }) {
    const drawn = { connected: "", behind: "", ended: "", unknown: "", missing: "" };
    nodes.forEach((node, n) => {
      const [x, y, cell] = place.cells[n];
      drawn[node.state === "connected" && node.behind > BEHIND ? "behind" : node.state] += `M${x.toFixed(1)} ${y.toFixed(1)}h${cell.toFixed(1)}v${cell.toFixed(1)}h-${cell.toFixed(1)}z`;
    });
    for (const [state, path] of Object.entries(drawn)) set(place.paths[state], "d", path);
    write(place.name, this.style === "outline" ? `${count(nodes.length)} nodes` : short(nodes.length));
  }

  // -- links --------------------------------------------------------------------------------------

  link(place, above, channels, labels) {
    if (this.style === "outline") {
      const [x, y] = [above.x + 12, above.y + (above.many ? 20 : CARD.high)];
      place.path = `M${place.x} ${place.y + CARD.high / 2} H${x + 8} Q${x} ${place.y + CARD.high / 2} ${x} ${place.y + CARD.high / 2 - 8} V${y}`;
    } else {
      const [from, to] = [place.y, above.y + (this.style === "cards" ? CARD.high : above.root ? 22 : 20)];
      const bend = (from - to) * 0.55;
      place.path = `M${place.x} ${from} C${place.x} ${from - bend} ${above.x} ${to + bend} ${above.x} ${to}`;
    }
    place.link = s("path", { d: place.path });
    place.water = s("path", { d: place.path });
    channels.append(place.link, place.water);
    if (this.style !== "cards") return;
    place.label = s("text", { "text-anchor": "middle", x: place.x, y: place.y - 15 });
    place.back = s("rect", { rx: 9, height: 18, y: place.y - 28 });
    labels.append(place.back, place.label);
  }

  paintLink(place, one, state) {
    const flow = one.nodes.reduce((all, node) => all + (this.flows.get(node.id) || 0), 0);
    const carries = one.many ? null : one.nodes[0].bandwidth;
    const most = this.style === "cards" ? 20 : this.style === "outline" ? 8 : 7;
    const channel = Math.min(Math.max(carries ? Math.log10(carries / 100) * 4.2 : 9, 3), most);
    const share = carries ? Math.sqrt(Math.min(flow / carries, 1)) : Math.min(Math.log10(1 + flow) / 8, 1);
    set(place.link, "class", `channel ${state}`);
    set(place.link, "stroke-width", channel.toFixed(1));
    set(place.water, "class", `water ${state}`);
    set(place.water, "stroke-width", flow ? Math.max(share * channel, 1.4).toFixed(1) : 0);
    if (!place.label) return;
    const rate = state === "missing" ? "cut" : state === "unknown" ? "not known" : `${bytes(flow)}/s`;
    const text = carries && state === "connected" ? `${rate} of ${bytes(carries)}/s` : rate;
    if (write(place.label, text)) {
      const wide = text.length * 6.1 + 16;
      set(place.back, "x", (place.x - wide / 2).toFixed(1));
      set(place.back, "width", wide.toFixed(1));
    }
    set(place.label, "class", state);
    set(place.back, "class", state);
  }

  // Drops climb the links that carried something since the last look; `sent` has the bytes by node.
  move(sent) {
    if (calm.matches || document.hidden || !this.svg.clientWidth) return;
    const climbing = [];
    for (const place of this.places.values()) {
      const nbytes = place.nodes.reduce((all, node) => all + (sent.get(node.id) || 0), 0);
      if (nbytes && place.path && place.link.getAttribute("class") === "channel connected") climbing.push([place, nbytes]);
    }
    climbing.sort((a, b) => b[1] - a[1]);
    for (const [place, nbytes] of climbing.slice(0, DOTS)) {
      const motion = s("animateMotion", { dur: "0.9s", path: place.path, begin: "indefinite", fill: "freeze" });
      const dot = s("circle", { r: 2 + Math.min(Math.log10(nbytes + 1) * 0.55, 3.5) }, motion);
      this.dots.append(dot);
      motion.beginElement();
      setTimeout(() => dot.remove(), 880);
    }
  }

  // -- who is looked at ---------------------------------------------------------------------------

  choose(key) {
    if (!this.places.has(key)) return;
    this.at = key;
    this.rove(false);
    this.tell(key);
  }

  rove(focus) {
    for (const [key, place] of this.places) {
      set(place.mark, "tabindex", key === this.at ? 0 : -1);
      if (key === this.at && focus) place.mark.focus();
    }
  }

  pressed(event) {
    const here = this.places.get(this.at);
    if (!here) return;
    const every = [...this.places.values()];
    const level = every.filter((one) => one.depth === here.depth), place = level.indexOf(here);
    const next = { ArrowUp: this.places.get(here.parent), ArrowDown: every.find((one) => one.parent === here.key), ArrowLeft: level[place - 1], ArrowRight: level[place + 1] }[event.key];
    if (!(event.key in { ArrowUp: 1, ArrowDown: 1, ArrowLeft: 1, ArrowRight: 1 })) return;
    event.preventDefault();
    if (next) next.mark.focus();
  }
}

function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function write(element, text) {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}

function fact(node) {
  if (node.state === "missing" || node.state === "unknown") return told(node);
  if (typeof node.frontier !== "number") return node.frontier || "not begun";
  return node.role === "root" ? `frontier ${moment(node.frontier).slice(11)}` : lag(node);
}

const lag = (node) => (node.behind ? `${seconds(node.behind)} behind` : "furthest of all");

function more(node) {
  if (node.role === "root") return typeof node.frontier === "number" ? lag(node) : "";
  if (node.early === undefined) return `${bytes(node.nbytes || 0)} sent`;
  return `${some(node.early, "row", "rows", short)} early${node.alpha === undefined ? "" : `, α ${node.alpha.toFixed(2)}`}`;
}

function worst(nodes) {
  return ["missing", "unknown", "connected"].find((state) => nodes.some((node) => node.state === state)) || "ended";
}

// A node in words.
export function described(node) {
  const behind = typeof node.frontier === "number" ? `, frontier ${moment(node.frontier)}, ${lag(node)}` : "";
  const early = node.early === undefined ? "" : `, ${some(node.early, "row", "rows")} sent early`;
  const link = node.bandwidth ? `, link ${bytes(node.bandwidth)}/s` : "";
  const sent = node.role === "root" ? "" : `, ${some(node.messages || 0, "message", "messages")}, ${bytes(node.nbytes || 0)}`;
  return `${node.id}: ${told(node)}${behind}${sent}${link}${early}${node.why ? `; ${node.why}` : ""}`;
}

function summed({ nodes, parent }) {
  const states = {};
  for (const node of nodes) states[node.state] = (states[node.state] || 0) + 1;
  const words = Object.entries(states).map(([name, n]) => `${count(n)} ${name}`).join(", ");
  const behind = Math.max(...nodes.map((node) => node.behind || 0));
  const sent = nodes.reduce((all, node) => all + (node.nbytes || 0), 0);
  return `${count(nodes.length)} nodes below ${parent}: ${words}; up to ${seconds(behind)} behind, ${bytes(sent)}`;
}
