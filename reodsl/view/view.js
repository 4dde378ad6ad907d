"use strict";
// The runs of a store, the tasks of one and its responses; the state is in the address, behind `#`.
(() => {
  const main = document.getElementById("main");
  const trouble = document.getElementById("trouble");
  const label = document.getElementById("state");
  const EVERY = 2000;
  let info = null;
  let drawn = 0;
  let timer = 0;

  // ---- the state in the address
  const state = () => new URLSearchParams(location.hash.slice(1));
  const changed = (changes) => {
    const next = state();
    for (const [name, value] of Object.entries(changes))
      if (value === null || value === undefined || value === "") next.delete(name); else next.set(name, String(value));
    return "#" + next;
  };
  const go = (changes) => {
    const text = changed(changes);
    if (text !== location.hash) location.hash = text; else show();
  };
  const soft = (changes) => history.replaceState(null, "", changed(changes));
  // As `go`, without an entry of its own in the history.
  const swap = (changes) => { soft(changes); return show(); };

  // ---- asking
  const ask = async (name, query) => {
    const reply = await fetch("api/" + name + "?" + new URLSearchParams(query));
    let value;
    try { value = await reply.json(); } catch { throw new Error("the answer was cut off"); }
    if (!reply.ok) throw new Error(value.error || "status " + reply.status);
    return value;
  };
  const tell = (fault) => {
    const gone = fault instanceof TypeError;
    trouble.textContent = gone ? "reodsl view does not answer: it was closed, or the machine is busy." : fault.message;
    trouble.hidden = false;
  };

  const number = (value, name) => {
    if (value === null || value === undefined) return "–";
    if (name === "accuracy") return (100 * value).toFixed(1) + "%";
    if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  };
  const span = (seconds) => seconds === null ? "" : seconds < 60 ? Math.round(seconds) + " s"
    : seconds < 3600 ? Math.floor(seconds / 60) + " min" : Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  const report = (run) => "report/" + encodeURIComponent(run);
  const part = (run, tab) => "#" + new URLSearchParams({ run, tab });

  // ---- all runs
  const showRuns = ({ store, runs }) => {
    document.title = "reodsl view";
    label.textContent = label.className = "";
    const rows = runs.map((each) => el("tr", { class: each.status },
      el("th", { scope: "row" }, el("a", { href: report(each.run), "data-key": each.run }, each.study), el("small", {}, each.started.slice(0, 16).replace("T", " "))),
      el("td", {}, each.status),
      el("td", { class: "asked" }, each.verdict, el("small", {}, each.arms.map(([arm, reg]) => reg === null ? arm : `${arm} ${reg.toFixed(1).replace("-", "−")}`).join(" · "))),
      el("td", {}, ["tasks", "training", "responses"].map((tab) => [el("a", { href: part(each.run, tab), "data-key": each.run + tab }, tab), " "]))));
    clear(main, el("h2", {}, "Runs"), el("p", { class: "about" }, store),
      rows.length ? el("div", { class: "scroll runs" }, el("table", {}, el("thead", {}, el("tr", {}, ["run", "state", "verdict, and REG of each arm", "look at"].map((name) =>
        el("th", { scope: "col" }, name)))), el("tbody", {}, rows))) : el("p", { class: "about" }, "Nothing has run here yet."));
  };

  // ---- the tasks of a run
  const showTasks = () => {
    const rows = info.running.map((each) => el("tr", {},
      el("th", { scope: "row" }, each.task),
      el("td", {}, each.steps ? el("progress", { max: each.steps, value: each.step, "aria-label": each.task }) : null,
        each.step === null ? (each.waiting ? "waiting for another run" : "begun") : ` ${each.step}${each.steps ? " / " + each.steps : ""}`),
      el("td", {}, Object.entries(each.numbers).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value, name)}`).join("   ")),
      el("td", {}, each.node || "")));
    const ended = [...info.tasks].reverse().map((each) => el("tr", { class: each.status },
      el("th", { scope: "row" }, each.task), el("td", {}, each.status), el("td", {}, span(each.seconds)), el("td", {}, each.said || "")));
    const listed = (head, those) => those.length
      ? [el("h3", {}, head), el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, those)))] : [];
    clear(main, el("h2", {}, info.study), info.doc ? el("p", { class: "about" }, info.doc) : null,
      el("p", { class: "about" }, `Run ${info.run}`), el("p", {}, el("a", { href: report(info.run), "data-key": "report" }, "Its report")),
      listed("Running", rows), listed("Ended in this run", ended));
  };

  // ---- what is shown
  const show = async () => {
    const mine = ++drawn;
    clearTimeout(timer);
    const { run, tab } = Object.fromEntries(state());
    for (const link of document.querySelectorAll("[data-tab]")) {
      link.hidden = !run && link.dataset.tab !== "runs";
      link.href = link.dataset.tab === "report" ? report(run) : link.dataset.tab === "runs" ? "#" : part(run, link.dataset.tab);
      link.toggleAttribute("aria-current", link.dataset.tab === (run ? tab ?? "tasks" : "runs"));
    }
    let goes = true;
    try {
      if (!run) {
        const runs = await ask("runs", {});
        if (mine !== drawn) return;
        showRuns(runs);
      } else {
        info = await ask("run", { run });
        if (mine !== drawn) return;
        document.title = info.study + " · reodsl view";
        label.textContent = `${info.study}: ${info.status}, ${info.done} of ${info.total ?? info.done} tasks`;
        label.className = info.status;
        const reads = { root: main, info, query: state, go, soft, swap, isLatest: () => mine === drawn, ask: (name, query) => ask(name, { run, ...query }) };
        goes = info.status === "running" && !["responses", "training"].includes(tab);
        if (tab === "training" && info.trainings.length) await trainingReader(reads)();
        else if (tab === "responses" && info.evaluations.length) await responseReader(reads)();
        else if (tab === "training") clear(main, el("p", { class: "about" }, "No training has rollouts yet. Only reinforcement learning has any."));
        else if (tab === "responses") clear(main, el("p", { class: "about" }, "Nothing is evaluated yet."));
        else showTasks();
      }
      trouble.hidden = true;
      document.documentElement.dataset.ready = String(mine);
    } catch (fault) {
      if (mine === drawn) tell(fault);
    }
    if (goes && mine === drawn) timer = setTimeout(() => { if (mine === drawn) show(); }, EVERY);
  };
  addEventListener("hashchange", show);
  show();
})();
