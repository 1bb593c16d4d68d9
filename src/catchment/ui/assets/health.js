// How the job fares: what was counted, how fast, what is full, what was set aside and why.

import { Chart } from "/assets/chart.js";
import { LongTable, ask, bytes, count, h, number, put, seconds, short, some, timeCell } from "/assets/dom.js";

const COUNTS = [
  ["events", "events", "read"],
  ["accepted", "accepted", "took part"],
  ["late", "late", "came after the frontier", "warn"],
  ["bad", "bad", "are no events", "bad"],
  ["duplicates", "duplicates", "repeat another"],
  ["updates", "corrections", "late, and corrected results"],
  ["results", "results", "rows given"],
  ["open_windows", "open windows", "had not ended at the end"],
];
const PARTS = {
  read: "reading the source", slice: "slicing events", encode: "packing partials", decode: "waiting for partials",
  state: "state", assemble: "assembling windows", sink: "sinks", spark: "Spark's own",
};
const KINDS = { bad: "Bad: no usable time", late: "Late: before the frontier", unread: "Unread: no rows at all" };
const POINTS = 900;

export class HealthView {
  constructor(root, at) {
    this.at = at;
    this.history = [];
    this.tiles = h("dl", { class: "tiles" });
    this.rate = new Chart({ label: "Events a second", height: 160, fill: true, unit: "/s", legend: false, zero: true });
    this.lag = new Chart({ label: "Lag in seconds", height: 160, fill: true, unit: " s", legend: false, zero: true });
    this.limits = h("div", { class: "limits" });
    this.cost = h("div", { class: "cost" });
    this.costPanel = h("div", { class: "panel", hidden: true }, h("div", { class: "panel-head" }, h("h2", { text: "What batches cost" })), this.cost);
    this.notices = h("ul", { class: "notices" });
    this.noticePanel = h("div", { class: "panel", hidden: true }, h("div", { class: "panel-head" }, h("h2", { text: "To look into" })), this.notices);
    this.kind = h("select", { id: "aside-kind", onchange: () => this.load() }, Object.entries(KINDS).map(([kind, text]) => h("option", { value: kind, text })));
    this.told = h("span", { class: "muted", role: "status" });
    this.aside = new LongTable({ label: "Rows set aside, newest first", kind: "results", columns: [], cells: (row) => row.map((value, n) => (this.held.kinds[n] === "time" ? timeCell(value) : number(value))), empty: "nothing was set aside" });
    put(
      root,
      h("div", { class: "panel" }, this.tiles),
      h("div", { class: "pair" },
        h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Events a second" })), this.rate.element),
        h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Lag" }), h("span", { class: "muted", text: "seconds of event time" })), this.lag.element)),
      this.noticePanel, this.costPanel,
      h("div", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", { text: "Limits" }), h("span", { class: "muted", text: "what grows, and what happens when it is full" })), this.limits),
      h("div", { class: "panel" },
        h("div", { class: "panel-head" }, h("h2", { text: "Rows set aside" }), h("label", { class: "unseen", for: "aside-kind", text: "Which rows" }), this.kind, this.told), this.aside.element),
    );
  }

  // Called for every update, also while another view is open: the charts have no gaps then.
  remember({ job, at }) {
    const last = this.history.at(-1);
    if (last && at - last.at < 5e5) return;
    this.history.push({ at, rate: job.rate ?? null, lag: job.lag ?? null });
    if (this.history.length > POINTS) this.history.shift();
  }

  update({ counts, limits, notices, cost, job }) {
    const shown = COUNTS.filter(([name]) => counts[name] !== undefined);
    const tiles = shown.map(([name, label, meaning, kind]) => h("div", { class: counts[name] && kind ? kind : null, title: meaning }, h("dt", { text: label }), h("dd", { text: count(counts[name]) })));
    if (job.memory) tiles.push(h("div", { title: "of the process that runs the job" }, h("dt", { text: "memory" }), h("dd", { text: bytes(job.memory) })));
    if (job.batch !== undefined && job.batch >= 0) tiles.push(h("div", {}, h("dt", { text: job.kind === "tree" ? "step" : "batch" }), h("dd", { text: count(job.batch) })));
    put(this.tiles, tiles);
    this.rate.set([{ name: "events a second", points: this.history.map((one) => [one.at, one.rate]) }]);
    this.lag.set([{ name: "lag", points: this.history.map((one) => [one.at, one.lag]) }]);
    put(this.limits, limits.length ? limits.map(limit) : h("p", { class: "muted", text: "the job has said none yet" }));
    this.noticePanel.hidden = !notices.length;
    put(this.notices, notices.slice(0, 100).map((one) => h("li", {}, h("b", { text: `${one.what}: ` }), h("code", { text: one.where }), ` ${one.text}`)));
    this.costPanel.hidden = !cost;
    if (cost) this.drawCost(cost);
    const seen = `${counts.bad}/${counts.late}`;
    if (seen !== this.seen) {
      this.seen = seen;
      this.load();
    }
  }

  drawCost(cost) {
    const most = Math.max(...Object.values(cost.parts), 1e-9);
    put(
      this.cost,
      h("p", { class: "muted", text: `${some(cost.batches, "batch", "batches")}, ${seconds(cost.seconds / cost.batches)} each on average` }),
      Object.entries(cost.parts).map(([part, took]) => {
        const filled = h("i");
        filled.style.width = `${(took / most) * 100}%`;
        return h("div", { class: "cost-row" }, h("span", { text: PARTS[part] || part }), h("span", { class: "track" }, filled), h("b", { class: "num", text: `${((took / Math.max(cost.seconds, 1e-9)) * 100).toFixed(0)} %` }));
      }),
    );
  }

  async load() {
    try {
      this.held = await ask(`${this.at}/aside?kind=${this.kind.value}`);
    } catch (error) {
      this.told.textContent = error.message;
      return;
    }
    this.told.textContent = this.held.rows.length ? `the newest ${count(this.held.rows.length)} that are kept` : "";
    this.aside.setKinds(this.held.columns, this.held.kinds);
    this.aside.set([...this.held.rows].reverse());
  }
}

function limit(one) {
  const share = one.used / Math.max(one.limit, 1);
  const filled = h("i", { class: share >= 0.9 ? "bad" : share >= 0.7 ? "warn" : null });
  filled.style.width = `${Math.min(share * 100, 100)}%`;
  const [used, most] = one.unit === "bytes" ? [bytes(one.used), bytes(one.limit)] : [short(one.used), `${short(one.limit)} ${one.unit}`];
  return h("div", { class: "limit" },
    h("span", { class: "what", text: one.name }),
    h("span", { class: "track", role: "meter", "aria-label": one.name, "aria-valuemin": 0, "aria-valuemax": one.limit, "aria-valuenow": one.used }, filled),
    h("span", { class: "num", text: `${used} of ${most}` }),
    h("span", { class: "muted", text: `when full, ${one.when_reached}` }));
}
