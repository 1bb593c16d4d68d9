// What is drawn of a tree, and where: nodes one by one as cards where there is room, as circles where
// there is less, and siblings as one field of cells where there are many. Those that are missing are
// always drawn by themselves. On a narrow screen the tree is an outline, one line below the other.

import { count, seconds } from "/assets/dom.js";

export const CARD = { wide: 156, high: 64 };
const ROOM = 16, RISE = 84, LINE = 76, INDENT = 26, NARROW = 640, MOST = 160, LINES = 40, MISSING = 6;
// The size of a cell, and how many may be side by side in a field.
const CELL = 9, ACROSS = [5, 4, 3, 2];
// How many siblings are drawn apart, those with children and those without: the first that will do.
const FANS = [[Infinity, Infinity], [48, 24], [48, 8], [48, 1], [24, 1], [12, 1], [6, 1], [1, 1]];

export function told(node) {
  if (node.state === "missing") return node.silent ? `missing for ${seconds(node.silent)}` : "missing";
  return node.state === "unknown" ? "its parent does not answer" : node.state;
}

// Where everything is on a drawing so wide: {style, shapes, high}, parents before children.
export function laidOut(all, wide) {
  const below = children(all);
  for (const fans of FANS) {
    const shapes = pictured(below, fans), last = fans === FANS.at(-1);
    if (wide < NARROW) {
      if (shapes.length <= LINES || last) return outline(shapes, wide);
      continue;
    }
    const cards = spread(shapes, () => CARD.wide + ROOM, CARD.high + RISE);
    if (!shapes.some((one) => one.many) && cards.wide <= wide) return centred(cards, "cards", wide);
    if (shapes.length > MOST && !last) continue;
    for (const across of ACROSS) {
      for (const one of shapes) one.across = across;
      const marks = spread(shapes, room, 40 + RISE);
      if (marks.wide <= wide || (last && across === ACROSS.at(-1))) return centred(marks, "marks", wide);
    }
  }
  return { style: "cards", shapes: [], high: 0 };
}

function children(all) {
  const known = new Set(all.map((node) => node.id)), below = new Map();
  for (const node of all) {
    const parent = known.has(node.parent) ? node.parent : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(node);
  }
  return below;
}

// The shapes of a tree, parents before children: nodes, or siblings together.
function pictured(below, fans) {
  const found = [];
  const visit = (node, parent, depth) => {
    found.push({ key: node.id, parent, depth, nodes: [node], name: node.id, leaf: !below.has(node.id) });
    const under = below.get(node.id) || [];
    const [leaves, inner] = [under.filter((c) => !below.has(c.id)), under.filter((c) => below.has(c.id))];
    for (const [group, fan] of [[inner, fans[0]], [leaves, fans[1]]]) {
      if (group.length <= fan) {
        group.forEach((child) => visit(child, node.id, depth + 1));
        continue;
      }
      const everybody = group.flatMap((child) => [child, ...descendants(child, below)]);
      const apart = new Set(everybody.filter((child) => child.state === "missing").slice(0, MISSING));
      apart.forEach((child) => found.push({ key: child.id, parent: node.id, depth: depth + 1, nodes: [child], name: child.id, leaf: true }));
      const rest = everybody.filter((child) => !apart.has(child));
      const key = `${node.id}${group === inner ? "/+" : "/*"}`;
      if (rest.length) found.push({ key, parent: node.id, depth: depth + 1, nodes: rest, name: `${count(rest.length)} nodes`, many: true, leaf: true });
    }
  };
  (below.get(null) || []).slice(0, 1).forEach((root) => visit(root, null, 0));
  return found;
}

function descendants(node, below) {
  return (below.get(node.id) || []).flatMap((child) => [child, ...descendants(child, below)]);
}

// What a circle or a field of cells takes of the width; a name that must be read takes its own.
function room(one) {
  if (one.many) return one.across * CELL + 10;
  return one.nodes[0].state === "missing" ? Math.max(one.name.length * 7.5 + 12, 34) : 34;
}

// The places of the cells of a field, from its upper left corner.
export function field({ nodes, across }) {
  const wide = across * CELL, many = Math.max(across, Math.ceil(Math.sqrt((nodes.length * across) / 24)));
  const cell = wide / many;
  return nodes.map((node, n) => ({ node, x: (n % many) * cell - wide / 2, y: Math.floor(n / many) * cell, cell }));
}

// Leaves side by side, each parent in the middle above its children, the root on top.
function spread(shapes, width, rise) {
  const under = new Map();
  for (const one of shapes) {
    if (!under.has(one.parent)) under.set(one.parent, []);
    under.get(one.parent).push(one);
  }
  let next = 0, deepest = 0;
  const visit = (one) => {
    const mine = under.get(one.key) || [];
    deepest = Math.max(deepest, one.depth);
    mine.forEach(visit);
    if (mine.length) one.at = (mine[0].at + mine.at(-1).at) / 2;
    else {
      one.at = next + width(one) / 2;
      next += width(one);
    }
    one.y = one.depth * rise;
  };
  shapes.slice(0, 1).forEach(visit);
  return { shapes, wide: next, deepest, rise };
}

function centred({ shapes, wide: needed, deepest, rise }, style, wide) {
  const leaves = shapes.filter((one) => one.leaf).length || 1;
  // What is left of the width goes between the leaves, as far as it is good to look at.
  const stretch = Math.max(Math.min(wide / needed, style === "cards" ? 1.5 : 3), Math.min(wide / needed, 1));
  const left = (wide - needed * stretch) / 2;
  for (const one of shapes) one.x = left + one.at * stretch;
  const most = Math.max(...shapes.filter((one) => one.many).map((one) => field(one).at(-1).y + CELL), 0);
  const high = style === "cards" ? deepest * rise + CARD.high : deepest * rise + Math.max(most + 30, 56);
  return { style, shapes, high: high + 12, gap: (needed * stretch) / leaves };
}

// One line below the other, each as far from the edge as it is deep.
function outline(shapes, wide) {
  let y = 0;
  for (const one of shapes) {
    one.across = Math.floor((wide - 40 - one.depth * INDENT) / CELL);
    one.x = 2 + Math.min(one.depth, 6) * INDENT;
    one.wide = wide - one.x - 4;
    one.y = y;
    one.high = one.many ? 34 + field(one).at(-1).y + CELL : CARD.high;
    y += one.high + LINE - CARD.high;
  }
  return { style: "outline", shapes, high: y };
}
