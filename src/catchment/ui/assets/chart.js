// A chart of values over time: several lines, live, with axes and a cursor, on a canvas.
//
// A series is {name, points: [[time in microseconds, value, corrected?], ...]} in order of time. The
// colours come from the style sheet, so light and dark need nothing here.

import { h, moment, number, put, short } from "/assets/dom.js";

const LEFT = 58, RIGHT = 16, TOP = 10, BOTTOM = 24;
const STEPS = [1, 2, 5, 10];
const SPANS = [1e3, 1e4, 1e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7, 1.2e8, 3e8, 6e8, 1.8e9, 3.6e9, 1.08e10, 2.16e10, 4.32e10, 8.64e10, 6.048e11, 2.6e12];

export class Chart {
  constructor({ label, height = 260, unit = "", legend = true, zero = false, fill = false }) {
    Object.assign(this, { unit, height, zero, fill });
    this.series = [];
    this.hidden = new Set();
    this.canvas = h("canvas", { class: "chart", role: "img", "aria-label": label, tabindex: 0 });
    this.canvas.style.height = `${height}px`;
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("div", { class: "legend" });
    this.label = label;
    this.cursor = null;
    this.element = h("figure", { class: "chart-box" }, h("div", { class: "chart-area" }, this.canvas, this.tip), legend ? this.legend : null);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  set(series) {
    this.series = series;
    const corrected = series.some(({ points }) => points.some((point) => point[2]));
    put(this.legend, series.map((one, n) => this.entry(one, n)), corrected ? h("span", { class: "ring", text: "corrected by late events" }) : null);
    const told = series.slice(0, 8).map((one) => `${one.name} ${number(one.points.length ? one.points.at(-1)[1] : null)}`);
    this.canvas.setAttribute("aria-label", `${this.label}. Last values: ${told.join(", ") || "none"}.`);
    this.draw();
  }

  entry(one, n) {
    const off = this.hidden.has(one.name);
    return h("button", { class: `key c${n % 10} ${off ? "off" : ""}`, type: "button", "aria-pressed": String(!off), text: one.name, onclick: () => this.toggle(one.name) });
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.set(this.series);
  }

  shown() {
    return this.series.map((one, n) => ({ ...one, n })).filter((one) => !this.hidden.has(one.name) && one.points.length);
  }

  // What is drawn where: bounds of time and value over all lines that are shown.
  bounds(lines) {
    let [from, to, low, high] = [Infinity, -Infinity, this.zero ? 0 : Infinity, -Infinity];
    for (const { points } of lines) {
      from = Math.min(from, points[0][0]);
      to = Math.max(to, points.at(-1)[0]);
      for (const [, value] of points) {
        if (typeof value !== "number") continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (!(high >= low)) [low, high] = [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    if (!(this.zero && low === 0)) low -= room;
    return { from, to: to > from ? to : from + 1e6, low, high: high + room };
  }

  draw() {
    const wide = this.canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (!wide) return;
    this.canvas.width = wide * ratio;
    this.canvas.height = this.height * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    const ink = (name) => style.getPropertyValue(name).trim();
    pen.font = `11.5px ${style.fontFamily}`;
    const lines = this.shown();
    if (!lines.length) {
      pen.fillStyle = ink("--muted");
      pen.fillText("nothing to draw yet", LEFT, this.height / 2);
      this.place = null;
      return;
    }
    const at = this.bounds(lines);
    const x = (t) => LEFT + ((t - at.from) / (at.to - at.from)) * (wide - LEFT - RIGHT);
    const y = (v) => this.height - BOTTOM - ((v - at.low) / (at.high - at.low)) * (this.height - TOP - BOTTOM);
    this.place = { x, y, at, lines, wide };
    this.axes(pen, at, x, y, wide, ink);
    for (const line of lines) this.line(pen, line, x, y, ink);
    if (this.cursor !== null) this.cross(pen, ink);
  }

  axes(pen, at, x, y, wide, ink) {
    pen.strokeStyle = ink("--line");
    pen.fillStyle = ink("--muted");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const marks = ticks(at.low, at.high, 5);
    const digits = Math.min(Math.max(0, -Math.floor(Math.log10(marks[1] - marks[0] || 1))), 6);
    for (const value of marks) {
      const row = Math.round(y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, row);
      pen.lineTo(wide - RIGHT, row);
      pen.stroke();
      const text = Math.abs(value) < 1000 ? value.toFixed(digits) : short(value);
      pen.fillText(text + this.unit, LEFT - 7, row);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const span = SPANS.find((one) => (at.to - at.from) / one <= Math.max(wide / 110, 2)) || (at.to - at.from);
    for (let t = Math.ceil(at.from / span) * span; t <= at.to; t += span) {
      const whole = moment(t, span < 1e6), text = span >= 8.64e10 ? whole.slice(0, 10) : whole.slice(11);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(x(t), wide - half - 1), this.height - BOTTOM + 8);
    }
  }

  line(pen, { points, n }, x, y, ink) {
    pen.strokeStyle = pen.fillStyle = ink(`--c${n % 10}`);
    if (this.fill) this.under(pen, points, x, y);
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.beginPath();
    let drawing = false;
    for (const [t, value] of points) {
      if (typeof value !== "number") {
        drawing = false;
        continue;
      }
      if (drawing) pen.lineTo(x(t), y(value));
      else pen.moveTo(x(t), y(value));
      drawing = true;
    }
    pen.stroke();
    const dots = points.length <= 60;
    for (const [t, value, corrected] of points) {
      if (typeof value !== "number" || !(dots || corrected)) continue;
      pen.beginPath();
      pen.arc(x(t), y(value), corrected ? 5 : 2.5, 0, 7);
      if (corrected) {
        pen.save();
        pen.fillStyle = ink("--panel");
        pen.fill();
        pen.restore();
        pen.stroke();
      } else pen.fill();
    }
  }

  // A tint between a line and the axis.
  under(pen, points, x, y) {
    const known = points.filter(([, value]) => typeof value === "number");
    if (known.length < 2) return;
    pen.globalAlpha = 0.12;
    pen.beginPath();
    pen.moveTo(x(known[0][0]), this.height - BOTTOM);
    for (const [t, value] of known) pen.lineTo(x(t), y(value));
    pen.lineTo(x(known.at(-1)[0]), this.height - BOTTOM);
    pen.fill();
    pen.globalAlpha = 1;
  }

  // -- the cursor -------------------------------------------------------------------------------

  hover(column) {
    if (!this.place) return;
    const { at, wide } = this.place;
    const share = Math.min(Math.max((column - LEFT) / (wide - LEFT - RIGHT), 0), 1);
    this.cursor = at.from + share * (at.to - at.from);
    this.draw();
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
    this.draw();
  }

  pressed(event) {
    if (!this.place || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    const { at, x } = this.place;
    const step = ((at.to - at.from) / 60) * (event.key === "ArrowLeft" ? -1 : 1);
    this.hover(x(Math.min(Math.max((this.cursor ?? at.to) + step, at.from), at.to)));
  }

  cross(pen, ink) {
    const { x, y, lines, wide } = this.place;
    const near = lines.map((line) => [line, nearest(line.points, this.cursor)]);
    const time = near[0][1][0];
    pen.strokeStyle = ink("--muted");
    pen.beginPath();
    pen.moveTo(Math.round(x(time)) + 0.5, TOP);
    pen.lineTo(Math.round(x(time)) + 0.5, this.height - BOTTOM);
    pen.stroke();
    for (const [line, [t, value]] of near) {
      if (typeof value !== "number") continue;
      pen.fillStyle = ink(`--c${line.n % 10}`);
      pen.beginPath();
      pen.arc(x(t), y(value), 3.5, 0, 7);
      pen.fill();
    }
    put(
      this.tip,
      h("div", { class: "tip-time", text: moment(time, true) }),
      near.slice(0, 12).map(([line, point]) => h("div", { class: `tip-line c${line.n % 10}` }, h("span", { text: line.name }), h("b", { text: `${number(point[1])}${this.unit}${point[2] ? " (corrected)" : ""}` }))),
    );
    this.tip.hidden = false;
    const left = x(time) > wide / 2 ? x(time) - this.tip.offsetWidth - 12 : x(time) + 12;
    this.tip.style.transform = `translate(${Math.round(left)}px, ${TOP}px)`;
  }
}

function nearest(points, time) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  const before = points[Math.max(low - 1, 0)];
  return time - before[0] < points[low][0] - time ? before : points[low];
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((one) => one * power >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
