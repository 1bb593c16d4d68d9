// The page: one stream of updates, four views of it, of which the one in sight is drawn.

import { Refused, ask, count, h, moment, put, seconds } from "/assets/dom.js";
import { HealthView } from "/assets/health.js";
import { QueriesView } from "/assets/queries.js";
import { ResultsView } from "/assets/results.js";
import { TreeView } from "/assets/tree.js";

const VIEWS = ["tree", "queries", "results", "health"];
const RETRY = 2000;
const byId = (id) => document.getElementById(id);

class App {
  constructor(jobs) {
    const wanted = Number(new URLSearchParams(location.search).get("job")) || 0;
    this.number = wanted < jobs.length ? wanted : 0;
    const at = `/api/jobs/${this.number}`;
    this.at = at;
    this.state = empty();
    const results = new ResultsView(byId("view-results"), at, (view) => this.show(view));
    this.views = { tree: new TreeView(byId("view-tree")), queries: new QueriesView(byId("view-queries"), at, results), results, health: new HealthView(byId("view-health"), at) };
    this.waiting = false;
    this.stream = null;
    this.choice(jobs);
    this.tabs();
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    this.open();
  }

  // -- the stream ---------------------------------------------------------------------------------

  open() {
    if (this.stream || document.hidden) return;
    clearTimeout(this.retry);
    let fresh = true;
    const stream = new EventSource(`${this.at}/events`);
    this.stream = stream;
    stream.onopen = () => (fresh = true);
    stream.onmessage = (message) => {
      if (fresh) this.state = empty();
      fresh = false;
      this.said("");
      this.take(JSON.parse(message.data));
    };
    stream.onerror = () => {
      this.said("The connection to the page's server is lost. Trying again …");
      if (stream.readyState !== EventSource.CLOSED) return;
      this.close();
      this.refused();
      this.retry = setTimeout(() => this.open(), RETRY);
    };
  }

  // The server answers, but not with the stream: it says why.
  async refused() {
    try {
      await ask("/api/jobs");
      this.said("As many pages watch as may. Trying again …");
    } catch (error) {
      if (error instanceof Refused) this.said(`The page's server was started anew; ${error.message.replace("catchment: ", "")}`);
    }
  }

  close() {
    if (this.stream) this.stream.close();
    this.stream = null;
  }

  said(text) {
    const strip = byId("connection");
    if (strip.textContent !== text) strip.textContent = text;
    strip.hidden = !text;
    document.body.classList.toggle("stale", Boolean(text));
  }

  take({ at, set, gone }) {
    this.state.at = at;
    for (const [name, part] of Object.entries(set)) {
      if (name.startsWith("node/")) this.state.nodes.set(name.slice(5), part);
      else this.state[name] = part;
    }
    for (const name of gone) this.state.nodes.delete(name.slice(5));
    this.views.health.remember(this.state);
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const began = performance.now();
      this.draw();
      document.body.dataset.took = (performance.now() - began).toFixed(1);
      document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
    });
  }

  // -- what is drawn ------------------------------------------------------------------------------

  draw() {
    const { job, counts, alerts } = this.state;
    byId("job-name").textContent = job.name;
    document.title = `${alerts.length ? `(${alerts.length}) ` : ""}${job.name} – Catchment`;
    byId("state").textContent = job.state;
    byId("state").className = `pill ${job.state}`;
    const facts = [
      ["frontier", moment(job.frontier)],
      ["lag", seconds(job.lag)],
      ["events", `${count(counts.events)}${job.rate ? ` · ${count(job.rate)}/s` : ""}`],
      ["results", count(counts.results)],
      ["queries", count(job.queries)],
    ];
    put(byId("facts"), facts.map(([name, text]) => h("div", {}, h("dt", { text: name }), h("dd", { text }))));
    this.alert(alerts);
    byId("tab-tree").hidden = job.kind !== "tree";
    if (!this.current || (this.current === "tree" && job.kind !== "tree")) this.show(this.wanted());
    else this.views[this.current].update(this.state);
    if (this.current !== "queries") this.views.queries.update(this.state);
  }

  alert(alerts) {
    const list = byId("alerts");
    const said = alerts.map((one) => one.what + one.text).join("\n");
    list.hidden = !alerts.length;
    if (said === this.alerted) return;
    this.alerted = said;
    put(list, alerts.slice(0, 6).map((one) => h("li", { class: one.level, text: one.text })));
  }

  // -- tabs ---------------------------------------------------------------------------------------

  wanted() {
    const asked = location.hash.slice(1);
    const first = this.state.job.kind === "tree" ? "tree" : "health";
    return VIEWS.includes(asked) && (asked !== "tree" || first === "tree") ? asked : first;
  }

  tabs() {
    for (const view of VIEWS) byId(`tab-${view}`).addEventListener("click", () => this.show(view));
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const there = VIEWS.filter((view) => !byId(`tab-${view}`).hidden);
      const next = there[(there.indexOf(this.current) + step + there.length) % there.length];
      this.show(next);
      byId(`tab-${next}`).focus();
    });
    window.addEventListener("hashchange", () => this.state.job.name && this.show(this.wanted()));
  }

  show(view) {
    this.current = view;
    for (const one of VIEWS) {
      const chosen = one === view;
      byId(`view-${one}`).hidden = !chosen;
      byId(`tab-${one}`).setAttribute("aria-selected", String(chosen));
      byId(`tab-${one}`).tabIndex = chosen ? 0 : -1;
    }
    if (location.hash.slice(1) !== view) history.replaceState(null, "", `#${view}`);
    this.views[view].update(this.state);
  }

  choice(jobs) {
    const select = byId("job-choice");
    if (jobs.length < 2) return;
    put(select, jobs.map((job) => h("option", { value: job.number, text: job.name, selected: job.number === this.number })));
    select.hidden = false;
    byId("job-name").classList.add("unseen");
    select.addEventListener("change", () => (location.search = `?job=${select.value}`));
  }
}

function empty() {
  return { at: 0, job: { name: "", state: "" }, counts: {}, nodes: new Map(), limits: [], notices: [], partitions: {}, cost: null, alerts: [] };
}

async function begin() {
  try {
    new App(await ask("/api/jobs"));
  } catch (error) {
    byId("connection").textContent = `The page cannot begin: ${error.message}`;
    byId("connection").hidden = false;
    setTimeout(begin, RETRY);
  }
}

begin();
