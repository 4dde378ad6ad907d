"use strict";
// Elements, and a list of responses with one or two of them beside each other. Every text goes into the page as text.
const el = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "colour") made.style.setProperty("--own", value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};
const clear = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));

// `info` names the evaluations (name, arm, whole), benchmarks, budgets and colours; `ask` answers "responses" and "response";
// `query` is the state, `go` changes it and draws again, `soft` changes it alone; `links` says that an address has the state.
const responseReader = ({ root, info, ask, query, go, soft, links }) => {
  const PAGE = 50;
  const FILTERS = ["evaluation", "benchmark", "words", "correct", "shortest", "longest", "flip", "to"];
  let drawn = 0;
  const named = (evaluation) => info.evaluations.find((each) => each.name === evaluation);
  const dot = (arm) => el("span", { class: "dot", colour: info.colours[arm] ?? "#8d96a3", "aria-hidden": "true" });
  const option = (value, text, chosen) => el("option", { value, selected: value === (chosen || "") }, text);
  const choice = (label, name, options, chosen) => el("label", {}, label + " ", el("select", { name,
    onchange: (event) => go({ [name]: event.target.value, offset: null }) }, options.map(([value, text]) => option(value, text, chosen))));
  const field = (label, name, attributes, value) => el("label", {}, label + " ", el("input", { name, value, ...attributes,
    onchange: (event) => go({ [name]: event.target.value, offset: null }) }));
  const verdict = (of) => `${of.correct ? "✓" : "✗"} ${of.answer ?? "no answer"}${of.unsettled ? `, not judged: ${of.unsettled}` : ""}`;
  const damage = (tasks) => tasks.length ? el("p", { class: "about damaged" }, `Damaged or missing, and left out: ${tasks.join(", ")}. `,
    "Running the spec again makes it anew.") : null;

  const showList = async (mine) => {
    const state = query();
    const get = (name) => state.get(name) || "";
    const wanted = { offset: state.get("offset") || 0, limit: PAGE };
    for (const name of FILTERS) if (get(name)) wanted[name] = get(name);
    const found = await ask("responses", wanted);
    if (mine !== drawn) return;
    const turns = [["", "any"], ...info.budgets.slice(1).map((each) => [String(each), each.toLocaleString("en-US")])];
    const form = el("form", { class: "filters", role: "search", "aria-label": "Responses", onsubmit: (event) => event.preventDefault() },
      choice("arm", "evaluation", [["", "all"], ...info.evaluations.map((each) => [each.name, each.name + (each.whole ? "" : " (so far)")])], get("evaluation")),
      choice("benchmark", "benchmark", [["", "all"], ...info.benchmarks.map((name) => [name, name])], get("benchmark")),
      choice("answer", "correct", [["", "right or wrong"], ["right", "right"], ["wrong", "wrong"]], get("correct")),
      field("tokens from", "shortest", { type: "number", min: 0 }, get("shortest")),
      field("to", "longest", { type: "number", min: 0 }, get("longest")),
      choice("turns", "to", [["right", "right"], ["wrong", "wrong"]], get("to") || "right"),
      choice("at a cut of", "flip", turns, get("flip")),
      field("question or answer", "words", { type: "search", autocomplete: "off" }, get("words")));
    const rows = found.responses.map((each) => {
      const open = { of: each.evaluation, row: each.row };
      const link = new URLSearchParams(state);
      for (const [name, value] of Object.entries(open)) link.set(name, value);
      const opened = (text) => el("a", { href: "#" + (links ? link : ""), onclick: (event) => { if (!links) { event.preventDefault(); go(open); } } }, text);
      return el("tr", {},
        el("td", {}, dot(named(each.evaluation)?.arm), opened(each.evaluation)),
        el("td", {}, each.benchmark),
        el("td", { class: "asked" }, opened(each.asked || each.question)),
        el("td", { class: "number" }, each.sample),
        el("td", { class: "number" }, each.tokens.toLocaleString("en-US"), each.finish === "length" ? " cut" : ""),
        el("td", { class: each.correct ? "good" : "bad" }, verdict(each)));
    });
    const offset = found.offset;
    const turn = (to) => () => go({ offset: to || null });
    clear(root, form, damage(found.unread),
      el("p", { class: "about", role: "status" }, found.total
        ? `${found.total.toLocaleString("en-US")} responses; ${(offset + 1).toLocaleString("en-US")} to ${(offset + rows.length).toLocaleString("en-US")} shown.`
        : "No response fits."),
      rows.length ? el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "listed" }, el("thead", {}, el("tr", {},
        ["arm", "benchmark", "question", "sample", "tokens", "answer"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows))) : null,
      el("p", { class: "turn" },
        el("button", { type: "button", disabled: offset === 0, onclick: turn(Math.max(0, offset - PAGE)) }, "earlier"),
        el("button", { type: "button", disabled: offset + rows.length >= found.total, onclick: turn(offset + PAGE) }, "later")));
  };

  const showOne = async (mine) => {
    const state = query();
    const first = await ask("response", { evaluation: state.get("of"), row: state.get("row"), whole: state.get("whole") || "" });
    let second = null, missing = null;
    if (state.get("beside")) {
      try {
        second = await ask("response", { evaluation: state.get("beside"), benchmark: first.benchmark,
          question: first.question, sample: first.sample });
      } catch (fault) { missing = fault.message; }
    }
    if (mine !== drawn) return;
    const both = [first, second].filter(Boolean);
    const grid = [...new Set(both.flatMap((each) => each.cuts.map((cut) => cut.budget)))].sort((a, b) => a - b);
    const asked = state.get("cut");
    let place = asked === null ? grid.length : Math.max(0, grid.findIndex((each) => each >= Number(asked)));
    const panes = both.map(pane);
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
    const copied = el("span", { role: "status", class: "about" });
    const copy = async () => {
      try { await navigator.clipboard.writeText(location.href); copied.textContent = "copied"; } catch { copied.textContent = location.href; }
    };
    clear(root,
      el("p", { class: "turn" },
        el("button", { type: "button", class: "back", onclick: () => go({ of: null, row: null, beside: null, cut: null, whole: null }) }, "← the list"),
        choice("beside", "beside", [["", "nothing"], ...others.map((each) => [each.name, each.name])], state.get("beside")),
        links ? el("button", { type: "button", onclick: copy }, "copy link") : null, copied),
      el("h3", {}, `${first.benchmark}, sample ${first.sample}`),
      el("div", { class: "question", tabindex: 0 }, first.text),
      el("p", { class: "about" }, first.gold.length > 1 ? "Reference answers: " : "Reference answer: ",
        el("b", {}, first.gold.slice(0, 8).join(" or ") || "none"), first.gold.length > 8 ? ` or one of ${first.gold.length - 8} more` : null,
        "   question ", el("code", {}, first.question)),
      grid.length ? el("div", { class: "slider" }, slider, label) : el("p", { class: "about" }, "No answers were forced."),
      missing ? el("p", { class: "about" }, missing) : null,
      el("div", { class: "panes" }, panes.map((each) => each.element)));
    move();
  };

  // A cut's place counts characters. Here a character beyond U+FFFF counts twice.
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

  const pane = (each) => {
    const places = inUnits(each.response, each.cuts.map((cut) => cut.characters));
    const kept = el("span", { class: "kept" }), after = el("span", { class: "after" });
    const chip = el("span", { class: "chip" });
    const head = el("header", {}, dot(named(each.evaluation)?.arm), el("b", {}, each.evaluation),
      el("span", {}, `${each.tokens.toLocaleString("en-US")} tokens${each.finish === "length" ? ", cut off" : ""}`),
      el("span", { class: each.correct ? "good" : "bad" }, verdict(each)));
    const strip = el("div", { class: "strip", "aria-hidden": "true" }, each.cuts.map((cut) =>
      el("i", { class: cut.correct ? "good" : "bad", title: `${cut.budget}: ${verdict(cut)}` })));
    const note = el("p", { class: "about" });
    const cut = (budget) => {
      const at = each.cuts.findIndex((one) => one.budget === budget);
      const found = each.cuts[at];
      kept.textContent = each.response.slice(0, found ? places[at] : undefined);
      after.textContent = found ? each.response.slice(places[at]) : "";
      chip.hidden = !found;
      if (found) {
        chip.className = "chip " + (found.correct ? "good" : "bad");
        chip.textContent = `${found.forced ? "made to answer after" : "ended before"} ${budget.toLocaleString("en-US")}: ${verdict(found)}`;
      }
      note.textContent = found && !found.exact && found.forced ? "The place of the cut is in proportion to the tokens: it is not known to the letter." : "";
      [...strip.children].forEach((mark, index) => mark.classList.toggle("here", index === at));
    };
    const more = each.left_out ? el("p", { class: "about" }, `${each.left_out.toLocaleString("en-US")} characters in the middle are left out. `,
      links ? el("button", { type: "button", onclick: () => go({ whole: 1 }) }, "show all") : null) : null;
    const lost = (parts) => parts.filter((part) => part.tokens >= 0.05).map((part) =>
      `${part.tokens.toLocaleString("en-US", { maximumFractionDigits: 1 })} ${part.cause}`).join(", ") || "none";
    const losses = each.lost ? el("p", { class: "about lost" },
      `Tokens of budget with a wrong answer: ${lost(each.lost)}. On average over the question's responses: ${lost(each.lost_mean)}.`) : null;
    return { element: el("article", { class: "pane" }, head, strip, losses, more, el("div", { class: "trace", tabindex: 0 }, kept, chip, after), note), cut };
  };

  return async () => {
    const mine = ++drawn;
    if (query().get("of") && query().get("row") !== null) await showOne(mine);
    else await showList(mine);
  };
};
