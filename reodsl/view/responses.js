"use strict";
// A list of responses with one or two of them beside each other.
// What had the focus has it again, by its id, name or key; where that is gone, what is marked as the first to read.
const clear = (element, ...children) => {
  const had = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (!had) return;
  const same = (each) => !each.disabled && ["id", "name", "data-key"].some((name) => had.hasAttribute(name) && each.getAttribute(name) === had.getAttribute(name));
  ([...element.querySelectorAll("[id], [name], [data-key]")].find(same) ?? element.querySelector("[data-first]"))?.focus();
};

// Places count characters. Here a character beyond U+FFFF counts twice.
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
// `info` names the evaluations (name, arm, whole), benchmarks, budgets and colours; `ask` answers "responses" and "response";
// `query` is the state in the address, `go` changes it and draws again, `soft` changes it alone.
const responseReader = ({ root, info, ask, query, go, soft }) => {
  const PAGE = 50;
  const FILTERS = ["evaluation", "benchmark", "words", "correct", "shortest", "longest", "right_at", "wrong_at", "other", "others", "order"];
  let drawn = 0;
  const named = (evaluation) => info.evaluations.find((each) => each.name === evaluation);
  const dot = (arm) => el("span", { class: "dot", colour: info.colours[arm] ?? "#8d96a3", "aria-hidden": "true" });
  const option = (value, text, chosen) => el("option", { value, selected: value === (chosen || "") }, text);
  const choice = (label, name, options, chosen) => el("label", {}, label + " ", el("select", { name,
    onchange: (event) => go({ [name]: event.target.value, offset: null }) }, options.map(([value, text]) => option(value, text, chosen))));
  const field = (label, name, attributes, value) => el("label", {}, label && label + " ", el("input", { name, value, ...attributes,
    onchange: (event) => go({ [name]: event.target.value, offset: null }) }));
  const verdict = (of) => `${of.correct ? "✓" : "✗"} ${of.answer ?? "no answer"}${of.unsettled ? `, not judged: ${of.unsettled}` : ""}`;
  const damage = (tasks) => tasks.length ? el("p", { class: "about damaged" }, `Damaged or missing, and left out: ${tasks.join(", ")}. `,
    "Running the spec again makes it anew.") : null;

  const wanted = () => {
    const state = query();
    return Object.fromEntries(FILTERS.filter((name) => state.get(name)).map((name) => [name, state.get(name)]));
  };
  const away = { of: null, row: null, cut: null, whole: null };

  const showList = async (mine) => {
    const state = query();
    const get = (name) => state.get(name) || "";
    const found = await ask("responses", { ...wanted(), offset: state.get("offset") || 0, limit: PAGE });
    if (mine !== drawn) return;
    const cuts = [["", "any"], ...info.budgets.map((each) => [String(each), each.toLocaleString("en-US")])];
    const arms = info.evaluations.map((each) => [each.name, each.name + (each.whole ? "" : " (so far)")]);
    const either = [["right", "right"], ["wrong", "wrong"]];
    const several = arms.length > 1;
    const pair = (...those) => el("span", {}, those);
    const about = "words in question, response or answer";
    const form = el("form", { class: "filters", role: "search", "aria-label": "Responses", onsubmit: (event) => event.preventDefault() },
      field("", "words", { type: "search", autocomplete: "off", placeholder: about, "aria-label": about }, get("words")),
      choice("sorted by", "order", [["", "question"], ["longest", "longest first"], ["shortest", "shortest first"], several && ["different", "arms' lengths differ most"]].filter(Boolean), get("order")),
      pair(choice("arm", "evaluation", [["", "all"], ...arms], get("evaluation")),
        choice("is", "correct", [["", "right or wrong"], ...either, ["unfinished", "unfinished"]], get("correct"))),
      several && pair(choice("while arm", "other", [["", "any"], ...arms], get("other")),
        choice("is", "others", [["", "right or wrong"], ...either], get("others"))),
      info.budgets.length > 1 && pair(choice("right at", "right_at", cuts, get("right_at")), choice("wrong at", "wrong_at", cuts, get("wrong_at"))),
      info.benchmarks.length > 1 && choice("benchmark", "benchmark", [["", "all"], ...info.benchmarks.map((name) => [name, name])], get("benchmark")),
      pair(field("tokens from", "shortest", { type: "number", min: 0 }, get("shortest")), field("to", "longest", { type: "number", min: 0 }, get("longest"))),
      Object.keys(wanted()).length > 0 && el("button", { type: "button", name: "clear",
        onclick: () => go({ offset: null, ...Object.fromEntries(FILTERS.map((name) => [name, null])) }) }, "show all"));
    const rows = found.responses.map((each, index) => {
      const at = found.offset + index;
      const open = { of: each.evaluation, row: each.row, at, beside: state.get("beside") || state.get("other") };
      const link = new URLSearchParams(state);
      for (const [name, value] of Object.entries(open)) if (value !== null) link.set(name, value);
      return el("tr", { role: "row" },
        el("td", { role: "cell" }, dot(named(each.evaluation)?.arm), each.evaluation),
        el("td", { role: "cell" }, each.benchmark),
        el("td", { role: "cell", class: "asked" }, el("a", { href: "#" + link, "data-key": "at-" + at, "data-first": state.get("at") === String(at) }, each.asked || each.question)),
        el("td", { role: "cell", class: "number" }, el("span", { class: "unit" }, "sample "), each.sample),
        el("td", { role: "cell", class: "number" }, each.tokens.toLocaleString("en-US"), el("span", { class: "unit" }, " tokens"), each.finish === "length" ? " cut" : ""),
        el("td", { role: "cell", class: each.correct ? "good" : "bad" }, verdict(each)));
    });
    const offset = found.offset;
    const turn = (to) => () => go({ offset: to || null });
    clear(root, form, damage(found.unread),
      el("p", { class: "about", role: "status", tabindex: -1, "data-first": !rows.length }, found.total
        ? `${found.total.toLocaleString("en-US")} responses; ${(offset + 1).toLocaleString("en-US")} to ${(offset + rows.length).toLocaleString("en-US")} shown.`
        : "No response fits."),
      rows.length ? el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "listed", role: "table" }, el("thead", {}, el("tr", {},
        ["arm", "benchmark", "question", "sample", "tokens", "answer"].map((name) => el("th", { scope: "col", class: name === "sample" || name === "tokens" ? "number" : null }, name)))), el("tbody", { role: "rowgroup" }, rows))) : null,
      el("p", { class: "turn" },
        el("button", { type: "button", name: "earlier", disabled: offset === 0, onclick: turn(Math.max(0, offset - PAGE)) }, "earlier"),
        el("button", { type: "button", name: "later", disabled: offset + rows.length >= found.total, onclick: turn(offset + PAGE) }, "later")));
  };

  // The next response of the list, or the one before.
  const step = async (by) => {
    const at = Number(query().get("at")) + by;
    const found = at < 0 ? { responses: [] } : await ask("responses", { ...wanted(), offset: at, limit: 1 });
    for (const each of found.responses) go({ of: each.evaluation, row: each.row, at, offset: Math.floor(at / PAGE) * PAGE || null, whole: null });
  };
  document.onkeydown = (event) => {
    const by = { j: 1, k: -1 }[event.key];
    const typing = event.target.matches?.("select, textarea, input:not([type=range], [type=checkbox])");
    if (by && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && query().get("of") && query().get("at") !== null) step(by);
  };

  const showOne = async (mine) => {
    const state = query();
    const first = await ask("response", { evaluation: state.get("of"), row: state.get("row"), whole: state.get("whole") || "" });
    const at = state.get("at");
    const total = at === null ? 0 : (await ask("responses", { ...wanted(), offset: 0, limit: 1 })).total;
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
        el("button", { type: "button", class: "back", onclick: () => go(away) }, "← the list"),
        at !== null && [el("button", { type: "button", name: "previous", disabled: at === "0", onclick: () => step(-1) }, "previous ", el("kbd", {}, "k")),
          el("button", { type: "button", name: "next", disabled: Number(at) + 1 >= total, onclick: () => step(1) }, "next ", el("kbd", {}, "j")),
          el("span", {}, `${(Number(at) + 1).toLocaleString("en-US")} of ${total.toLocaleString("en-US")}`)],
        choice("beside", "beside", [["", "nothing"], ...others.map((each) => [each.name, each.name])], state.get("beside")),
        el("button", { type: "button", onclick: copy }, "copy link"), copied),
      el("h2", { tabindex: -1, "data-first": true }, `${first.benchmark}, sample ${first.sample}`),
      el("div", { class: "question", tabindex: 0 }, first.text),
      el("p", { class: "about" }, first.gold.length > 1 ? "Reference answers: " : "Reference answer: ",
        el("b", {}, first.gold.slice(0, 8).join(" or ") || "none"), first.gold.length > 8 ? ` or one of ${first.gold.length - 8} more` : null,
        "   question ", el("code", {}, first.question)),
      grid.length ? el("div", { class: "slider" }, slider, label) : el("p", { class: "about" }, "No answers were forced."),
      missing ? el("p", { class: "about" }, missing) : null,
      el("div", { class: "panes" }, panes.map((each) => each.element)));
    move();
  };

  const pane = (each) => {
    const places = inUnits(each.response, each.cuts.map((cut) => cut.characters));
    const kept = el("span", { class: "kept" }), after = el("span", { class: "after" });
    const chip = el("span", { class: "chip" });
    const head = el("header", {}, dot(named(each.evaluation)?.arm), el("b", {}, each.evaluation),
      el("span", {}, `${each.tokens.toLocaleString("en-US")} tokens${each.finish === "length" ? ", cut off" : ""}`),
      each.wording && el("span", {}, `wording ${each.wording}`),
      el("span", { class: each.correct ? "good" : "bad" }, verdict(each)));
    const strip = el("div", { class: "strip", "aria-hidden": "true" }, each.cuts.map((cut) =>
      el("i", { class: cut.correct ? "good" : "bad", title: `${cut.budget}: ${verdict(cut)}` })));
    const note = el("p", { class: "about" });
    const cut = (budget) => {
      const at = each.cuts.findIndex((one) => one.budget === budget);
      const found = each.cuts[at];
      const end = found ? places[at] : each.response.length;
      kept.textContent = each.response.slice(0, end);
      after.textContent = each.response.slice(end);
      chip.hidden = !found;
      if (found) {
        chip.className = "chip " + (found.correct ? "good" : "bad");
        chip.textContent = `${found.forced ? "made to answer after" : "ended before"} ${budget.toLocaleString("en-US")}: ${verdict(found)}`;
      }
      note.textContent = found && !found.exact && found.forced ? "The place of the cut is in proportion to the tokens: it is not known to the letter." : "";
      [...strip.children].forEach((mark, index) => mark.classList.toggle("here", index === at));
    };
    const more = each.left_out ? el("p", { class: "about" }, `${each.left_out.toLocaleString("en-US")} characters in the middle are left out. `,
      el("button", { type: "button", onclick: () => go({ whole: 1 }) }, "show all")) : null;
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
