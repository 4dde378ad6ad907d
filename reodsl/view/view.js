"use strict";
// The page over a store. Every text goes into the document as text; the state stands in the address, behind `#`.
(() => {
  const main = document.getElementById("main");
  const trouble = document.getElementById("trouble");
  const picker = document.getElementById("run");
  const PAGE = 50;
  const EVERY = 2000;
  let info = null;
  let drawn = 0;
  let listed = "";
  let timer = 0;

  // ---- the state in the address
  const state = () => new URLSearchParams(location.hash.slice(1));
  const go = (changes, keep = true) => {
    const next = keep ? state() : new URLSearchParams();
    for (const [name, value] of Object.entries(changes))
      if (value === null || value === undefined || value === "") next.delete(name); else next.set(name, String(value));
    const text = "#" + next.toString();
    if (text !== location.hash) location.hash = text; else show();
  };
  const soft = (changes) => {
    const next = state();
    for (const [name, value] of Object.entries(changes))
      if (value === null || value === "") next.delete(name); else next.set(name, String(value));
    history.replaceState(null, "", "#" + next.toString());
  };

  // ---- making elements
  const make = (space, name, attributes, children) => {
    const element = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key === "colour") element.style.setProperty("--own", value);
      else element.setAttribute(key, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity))
      if (child !== null && child !== undefined && child !== false)
        element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    return element;
  };
  const el = (name, attributes, ...children) => make(null, name, attributes, children);
  const SVG = "http://www.w3.org/2000/svg";
  const svg = (name, attributes, ...children) => make(SVG, name, attributes, children);
  const clear = (element, ...children) => element.replaceChildren(...children.flat().filter(Boolean));

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
  const calm = () => { trouble.hidden = true; };

  const number = (value, name) => {
    if (value === null || value === undefined) return "–";
    if (name === "accuracy") return (100 * value).toFixed(1) + "%";
    if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  };
  const span = (seconds) => seconds === null ? "" : seconds < 60 ? Math.round(seconds) + " s"
    : seconds < 3600 ? Math.floor(seconds / 60) + " min" : Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  const colour = (arm) => (info && info.colours[arm]) || "#8d96a3";
  const named = (evaluation) => info.evaluations.find((each) => each.name === evaluation);
  const dot = (arm) => el("span", { class: "dot", colour: colour(arm), "aria-hidden": "true" });

  // ---- runs
  const loadRuns = async () => {
    const { store, runs } = await ask("runs", {});
    document.title = "reodsl view";
    // A list that somebody may have open is only replaced where it changed.
    if (JSON.stringify(runs) !== listed) {
      listed = JSON.stringify(runs);
      clear(picker, runs.map((each) => el("option", { value: each.run },
        `${each.study} · ${each.started.slice(0, 16).replace("T", " ")} · ${each.status} · ${each.results} results`)));
    }
    picker.title = store;
    return runs;
  };
  picker.addEventListener("change", () => go({ run: picker.value, tab: state().get("tab") }, false));

  const loadInfo = async (run) => {
    info = await ask("run", { run });
    document.title = info.study + " · reodsl view";
    const label = document.getElementById("state");
    label.textContent = `${info.status}, ${info.done} of ${info.total ?? info.done} tasks`;
    label.className = info.status;
  };

  const damage = (tasks) => tasks.length ? el("p", { class: "about damaged" }, `Damaged or missing, and left out: ${tasks.join(", ")}. `,
    "Running the spec again makes it anew.") : null;

  // ---- the run
  const showRun = () => {
    const rows = info.running.map((each) => el("tr", {},
      el("th", { scope: "row" }, each.task),
      el("td", {}, each.steps ? el("progress", { max: each.steps, value: each.step, "aria-label": each.task }) : null,
        each.step === null ? (each.waiting ? "waiting for another run" : "begun") : ` ${each.step}${each.steps ? " / " + each.steps : ""}`),
      el("td", {}, Object.entries(each.numbers).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value, name)}`).join("   ")),
      el("td", {}, each.node || "")));
    const ended = [...info.tasks].reverse().map((each) => el("tr", { class: each.status },
      el("th", { scope: "row" }, each.task), el("td", {}, each.status), el("td", {}, span(each.seconds)), el("td", {}, each.said || "")));
    clear(main,
      el("h2", {}, info.study),
      damage(info.unread),
      info.verdict.map((line, at) => el("p", { class: at ? "about" : "verdict" }, line)),
      info.doc ? el("p", { class: "about" }, info.doc) : null,
      el("p", { class: "about" }, `Run ${info.run}, ${info.status}. ${info.evaluations.length} evaluations and ${info.trainings} trainings to look at.`),
      rows.length ? el("h3", {}, "Running") : null,
      rows.length ? el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, rows))) : null,
      ended.length ? el("h3", {}, "Ended in this run") : null,
      ended.length ? el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, ended))) : null,
      info.report ? el("p", { class: "about" }, "Report: ", el("code", {}, info.report)) : null);
  };

  // ---- curves
  const WIDTH = 900, HEIGHT = 340, LEFT = 58, BOTTOM = 34, TOP = 12, RIGHT = 12;
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * [1, 2, 5, 10].find((each) => each * unit >= raw);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(10)));
    return found;
  };
  const smoothed = (points, width) => {
    if (width <= 1) return points;
    return points.map(([step], at) => {
      const part = points.slice(Math.max(0, at - width + 1), at + 1);
      return [step, part.reduce((sum, [, value]) => sum + value, 0) / part.length];
    });
  };
  const chart = (lines, metric, hidden) => {
    const shown = lines.filter((line) => !hidden.has(line.arm) && (line.points || []).length);
    const all = shown.flatMap((line) => line.points);
    if (!all.length) return el("p", { class: "about" }, "No steps yet.");
    const xs = all.map(([x]) => x), ys = all.map(([, y]) => y);
    const [left, right] = minmax(xs);
    let [low, high] = minmax(ys);
    if (low === high) { low -= 0.5; high += 0.5; }
    const x = (value) => LEFT + (WIDTH - LEFT - RIGHT) * (right === left ? 0.5 : (value - left) / (right - left));
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
    const cross = svg("g", { class: "cross", visibility: "hidden" });
    const readout = el("div", { class: "readout", role: "status" });
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
      "aria-label": `${metric} by step: ${shown.map((line) => `${line.arm} ends at ${number(line.points.at(-1)[1], metric)}`).join(", ")}` },
      ticks(low, high, 5).map((value) => [
        svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
        svg("text", { class: "axis", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, number(value, metric))]),
      ticks(left, right, 8).filter(Number.isInteger).map((value) =>
        svg("text", { class: "axis", x: x(value), y: HEIGHT - 12, "text-anchor": "middle" }, value.toLocaleString("en-US"))),
      shown.flatMap((line) => line.stages.slice(1).map((stage) => svg("line", { class: "stage", x1: x(stage.begin), x2: x(stage.begin), y1: TOP, y2: HEIGHT - BOTTOM },
        svg("title", {}, stage.task)))),
      shown.map((line) => svg("polyline", { class: "line", colour: colour(line.arm), "stroke-dasharray": info.dashes[line.arm] || null,
        points: line.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ") },
        svg("title", {}, line.arm))),
      cross);
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const at = left + (right - left) * ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
      const step = xs.reduce((best, each) => Math.abs(each - at) < Math.abs(best - at) ? each : best);
      // An arm that has no point at this step has no value there.
      const here = shown.flatMap((line) => line.points.filter(([each]) => each === step).map(([, value]) => [line, value]));
      cross.setAttribute("visibility", "visible");
      clear(cross, svg("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM }));
      clear(readout, el("b", {}, `step ${step.toLocaleString("en-US")}`), here.map(([line, value]) =>
        el("span", {}, dot(line.arm), line.name, " ", el("b", {}, number(value, metric)))));
    });
    drawing.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); clear(readout); });
    return el("figure", {}, drawing, readout);
  };
  const minmax = (values) => values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);

  const showCurves = async (mine, timed) => {
    const { metrics, lines, unread } = await ask("curves", { run: info.run });
    if (mine !== drawn) return;
    if (!metrics.length) { clear(main, unread.length ? damage(unread) : el("p", { class: "about" }, "Nothing is trained yet.")); return; }
    const query = state();
    const metric = metrics.includes(query.get("metric")) ? query.get("metric") : metrics[0];
    const width = Number(query.get("smooth")) || 1;
    const hidden = new Set((query.get("hide") || "").split(",").filter(Boolean).map(decodeURIComponent));
    const arms = [...new Set(lines.map((line) => line.arm))];
    // Rewards of another size would be flat lines on one axis: then each is a share of its arm's largest.
    const largest = lines.map((line) => Math.max(0, ...(line.values[metric] || []).map(([, value]) => Math.abs(value))));
    const sizes = largest.filter((each) => each > 0);
    const apart = metric === "reward" && sizes.length > 1 && Math.max(...sizes) > 20 * Math.min(...sizes);
    const shares = apart && query.get("scale") !== "same";
    lines.forEach((line, at) => {
      if (shares && largest[at]) line.values[metric] = (line.values[metric] || []).map(([step, value]) => [step, value / largest[at]]);
    });
    for (const line of lines) {
      line.name = line.seed === null ? line.arm : `${line.arm}@${line.seed}`;
      line.points = smoothed(line.values[metric] || [], width);
    }
    const choose = el("select", { onchange: (event) => go({ metric: event.target.value }) },
      metrics.map((name) => el("option", { value: name, selected: name === metric }, name.replaceAll("_", " "))));
    const smooth = el("select", { onchange: (event) => go({ smooth: event.target.value === "1" ? null : event.target.value }) },
      [1, 5, 20, 50].map((each) => el("option", { value: each, selected: each === width }, each === 1 ? "none" : `mean of ${each} points`)));
    const legend = arms.map((arm) => el("button", { type: "button", "aria-pressed": String(!hidden.has(arm)), onclick: () => {
      if (hidden.has(arm)) hidden.delete(arm); else hidden.add(arm);
      go({ hide: [...hidden].map(encodeURIComponent).join(",") });
    } }, dot(arm), arm));
    // A new look leaves a list that is open alone; a choice from it is drawn.
    if (timed && main.contains(document.activeElement) && document.activeElement.tagName === "SELECT") return;
    clear(main, el("h2", {}, "Curves"),
      el("form", { class: "filters" }, el("label", {}, "Measure ", choose), el("label", {}, "Smoothing ", smooth),
        apart ? el("label", {}, el("input", { type: "checkbox", checked: shares, onchange: (event) => go({ scale: event.target.checked ? null : "same" }) }),
          " as shares of each arm's largest") : null),
      el("div", { class: "legend", role: "group", "aria-label": "Arms shown" }, legend),
      chart(lines, metric, hidden),
      damage(unread));
  };

  // ---- responses
  const FILTERS = ["evaluation", "benchmark", "words", "correct", "shortest", "longest", "flip", "to"];
  const option = (value, text, chosen) => el("option", { value, selected: value === (chosen || "") }, text);
  const showResponses = async (mine) => {
    const query = state();
    if (query.get("row") !== null && query.get("of")) return showOne(mine);
    const wanted = { run: info.run, offset: query.get("offset") || 0, limit: PAGE };
    for (const name of FILTERS) if (query.get(name)) wanted[name] = query.get(name);
    if (!info.evaluations.length) { clear(main, el("p", { class: "about" }, "Nothing is evaluated yet.")); return; }
    const found = await ask("responses", wanted);
    if (mine !== drawn) return;
    const set = (name) => (event) => go({ [name]: event.target.value, offset: null });
    const get = (name) => query.get(name) || "";
    const form = el("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      el("label", {}, "Arm ", el("select", { onchange: set("evaluation") }, option("", "all", get("evaluation")),
        info.evaluations.map((each) => option(each.name, each.name + (each.whole ? "" : " (so far)"), get("evaluation"))))),
      el("label", {}, "Benchmark ", el("select", { onchange: set("benchmark") }, option("", "all", get("benchmark")),
        info.benchmarks.map((name) => option(name, name, get("benchmark"))))),
      el("label", {}, "Answer ", el("select", { onchange: set("correct") }, option("", "right or wrong", get("correct")),
        option("right", "right", get("correct")), option("wrong", "wrong", get("correct")))),
      el("label", {}, "Tokens from ", el("input", { type: "number", min: 0, value: get("shortest"), onchange: set("shortest") })),
      el("label", {}, "to ", el("input", { type: "number", min: 0, value: get("longest"), onchange: set("longest") })),
      el("label", {}, "Turns ", el("select", { onchange: set("to") }, option("right", "right", get("to") || "right"), option("wrong", "wrong", get("to")))),
      el("label", {}, "at a cut of ", el("select", { onchange: set("flip") }, option("", "any", get("flip")),
        info.budgets.slice(1).map((each) => option(String(each), each.toLocaleString("en-US"), get("flip"))))),
      el("label", {}, "Question or answer ", el("input", { type: "search", value: get("words"), onchange: set("words") })));
    const rows = found.responses.map((each) => {
      const link = new URLSearchParams(query);
      link.set("of", each.evaluation); link.set("row", each.row);
      return el("tr", {},
        el("td", {}, dot(named(each.evaluation)?.arm), el("a", { href: "#" + link }, each.evaluation)),
        el("td", {}, each.benchmark),
        el("td", { class: "asked" }, el("a", { href: "#" + link }, each.asked || each.question)),
        el("td", { class: "number" }, each.sample),
        el("td", { class: "number" }, each.tokens.toLocaleString("en-US"), each.finish === "length" ? " cut" : ""),
        el("td", { class: each.correct ? "good" : "bad" }, each.correct ? "✓ " : "✗ ", each.answer ?? "no answer"));
    });
    const offset = found.offset;
    const turn = (to) => () => go({ offset: to || null });
    clear(main, el("h2", {}, "Responses"), form, damage(found.unread),
      el("p", { class: "about", role: "status", id: "count" }, found.total
        ? `${found.total.toLocaleString("en-US")} responses; ${(offset + 1).toLocaleString("en-US")} to ${(offset + rows.length).toLocaleString("en-US")} shown.`
        : "No response fits."),
      rows.length ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {},
        ["arm", "benchmark", "question", "sample", "tokens", "answer"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows))) : null,
      el("p", { class: "turn" },
        el("button", { type: "button", disabled: offset === 0, onclick: turn(Math.max(0, offset - PAGE)) }, "earlier"),
        el("button", { type: "button", disabled: offset + rows.length >= found.total, onclick: turn(offset + PAGE) }, "later")));
  };

  // ---- one response, or two beside each other
  const showOne = async (mine) => {
    const query = state();
    const first = await ask("response", { run: info.run, evaluation: query.get("of"), row: query.get("row"), whole: query.get("whole") || "" });
    let second = null, missing = null;
    if (query.get("beside")) {
      try {
        second = await ask("response", { run: info.run, evaluation: query.get("beside"), benchmark: first.benchmark,
          question: first.question, sample: query.get("sample") || first.sample });
      } catch (fault) { missing = fault.message; }
    }
    if (mine !== drawn) return;
    const both = [first, second].filter(Boolean);
    const grid = [...new Set(both.flatMap((each) => each.cuts.map((cut) => cut.budget)))].sort((a, b) => a - b);
    const asked = query.get("cut");
    let place = asked === null ? grid.length : Math.max(0, grid.findIndex((each) => each >= Number(asked)));
    const panes = both.map((each) => pane(each, query));
    const label = el("output", { for: "cut" });
    const move = () => {
      const budget = place < grid.length ? grid[place] : null;
      label.textContent = budget === null ? "whole response" : `cut after ${budget.toLocaleString("en-US")} tokens`;
      for (const each of panes) each.cut(budget);
      soft({ cut: budget });
    };
    const slider = el("input", { type: "range", id: "cut", min: 0, max: grid.length, step: 1, value: place,
      "aria-label": "Budget at which the response is cut", oninput: (event) => { place = Number(event.target.value); move(); } });
    const others = info.evaluations.filter((each) => each.name !== first.evaluation);
    const back = new URLSearchParams(query);
    for (const name of ["of", "row", "beside", "cut", "whole", "sample"]) back.delete(name);
    const copied = el("span", { role: "status", class: "about" });
    clear(main,
      el("p", { class: "turn" }, el("a", { href: "#" + back }, "← the list"),
        el("label", {}, "Beside ", el("select", { id: "beside", onchange: (event) => go({ beside: event.target.value }) },
          option("", "nothing", query.get("beside")), others.map((each) => option(each.name, each.name, query.get("beside"))))),
        el("button", { type: "button", onclick: async () => {
          try { await navigator.clipboard.writeText(location.href); copied.textContent = "copied"; } catch { copied.textContent = location.href; }
        } }, "copy link"), copied),
      el("h2", {}, `${first.benchmark}, sample ${first.sample}`),
      el("div", { class: "question" }, first.text),
      el("p", { class: "about" }, first.gold.length > 1 ? "Reference answers: " : "Reference answer: ",
        el("b", {}, first.gold.slice(0, 8).join(" or ") || "none"), "   question ", el("code", {}, first.question)),
      grid.length ? el("div", { class: "slider" }, slider, label) : el("p", { class: "about" }, "No answers were forced."),
      missing ? el("p", { class: "about" }, missing) : null,
      el("div", { class: "panes" }, panes.map((each) => each.element)));
    move();
  };
  // A cut is told in characters. Here a character beyond U+FFFF counts twice.
  const inUnits = (text, places) => {
    if (!/[\ud800-\udfff]/.test(text)) return places;
    const order = [...places.keys()].sort((a, b) => places[a] - places[b]);
    const units = [];
    let unit = 0, passed = 0;
    for (const index of order) {
      for (; passed < places[index]; passed++) unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      units[index] = unit;
    }
    return units;
  };
  const pane = (each, query) => {
    const places = inUnits(each.response, each.cuts.map((cut) => cut.characters));
    const arm = named(each.evaluation)?.arm;
    const kept = el("span", { class: "kept" }), after = el("span", { class: "after" });
    const chip = el("span", { class: "chip" });
    const verdict = (right, answer) => `${right ? "✓" : "✗"} ${answer ?? "no answer"}`;
    const head = el("header", {}, dot(arm), el("b", {}, each.evaluation),
      el("span", {}, `${each.tokens.toLocaleString("en-US")} tokens${each.finish === "length" ? ", cut off" : ""}`),
      el("span", { class: each.correct ? "good" : "bad" }, verdict(each.correct, each.answer)));
    const strip = el("div", { class: "strip", "aria-hidden": "true" }, each.cuts.map((cut) =>
      el("i", { class: cut.correct ? "good" : "bad", title: `${cut.budget}: ${verdict(cut.correct, cut.answer)}` })));
    const note = el("p", { class: "about" });
    const cut = (budget) => {
      const found = budget === null ? null : each.cuts.find((one) => one.budget === budget);
      const at = found ? places[each.cuts.indexOf(found)] : each.response.length;
      kept.textContent = each.response.slice(0, at);
      after.textContent = each.response.slice(at);
      chip.hidden = !found;
      if (found) {
        chip.className = "chip " + (found.correct ? "good" : "bad");
        chip.textContent = found.forced ? `made to answer after ${budget.toLocaleString("en-US")}: ${verdict(found.correct, found.answer)}`
          : `ended before ${budget.toLocaleString("en-US")}: ${verdict(found.correct, found.answer)}`;
      }
      note.textContent = found && !found.exact && found.forced ? "The place of the cut is in proportion to the tokens: it is not known to the letter." : "";
      [...strip.children].forEach((mark, index) => mark.classList.toggle("here", Boolean(found) && each.cuts[index].budget === budget));
    };
    const more = each.left_out ? el("p", { class: "about" }, `${each.left_out.toLocaleString("en-US")} characters in the middle are left out. `,
      el("button", { type: "button", onclick: () => go({ whole: 1 }) }, "show all")) : null;
    return { element: el("article", { class: "pane" }, head, strip, more, el("div", { class: "trace", tabindex: "0" }, kept, chip, after), note), cut };
  };

  // ---- what is shown
  const parts = { run: showRun, curves: showCurves, responses: showResponses };
  const show = async (timed = false) => {
    const mine = ++drawn;
    clearTimeout(timer);
    const query = state();
    try {
      const runs = await loadRuns();
      if (!runs.length) { clear(main, el("p", { class: "about" }, "Nothing has run here yet.")); again(mine); return; }
      const run = runs.some((each) => each.run === query.get("run")) ? query.get("run") : runs[0].run;
      picker.value = run;
      await loadInfo(run);
      if (mine !== drawn) return;
      const tab = parts[query.get("tab")] ? query.get("tab") : "run";
      for (const link of document.querySelectorAll("[data-tab]")) {
        const next = new URLSearchParams({ run, tab: link.dataset.tab });
        link.href = "#" + next;
        if (link.dataset.tab === tab) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
      }
      await parts[tab](mine, timed);
      calm();
      document.documentElement.dataset.ready = String(mine);
      if (info.status === "running" && tab !== "responses") again(mine);
    } catch (fault) {
      if (mine === drawn) { tell(fault); again(mine); }
    }
  };
  const again = (mine) => { timer = setTimeout(() => { if (mine === drawn) show(true); }, EVERY); };
  addEventListener("hashchange", () => show());
  show();
})();
