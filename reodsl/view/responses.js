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

// A text in pieces, each `[from, to, name, found]`: `parts` are the names with the place at which each ends, `ends` further
// places at which a piece ends, and `found` is true in the first matches of some words, in upper or lower case.
const MOST_MATCHES = 2000;
const pieces = (text, words, parts = [], ends = []) => {
  const found = [];
  if (words) {
    const pattern = new RegExp(words.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "giu");
    for (const match of text.matchAll(pattern)) {
      found.push([match.index, match.index + match[0].length]);
      if (found.length === MOST_MATCHES) break;
    }
  }
  const edges = [...new Set([0, text.length, ...ends, ...parts.map(([end]) => end), ...found.flat()])].sort((a, b) => a - b);
  const until = new Map(found);
  let inside = 0, part = 0;
  return edges.slice(0, -1).map((from, index) => {
    inside = Math.max(inside, until.get(from) ?? 0);
    while (part < parts.length && parts[part][0] <= from) part++;
    return [from, edges[index + 1], parts[part]?.[1] ?? null, from < inside];
  });
};
const marked = (text, words) => pieces(text, words).map(([from, to, , found]) => found ? el("mark", {}, text.slice(from, to)) : text.slice(from, to));

// The parts of a right response by what its evaluation knows: `places` are the characters at which its cuts end. It is
// `unsure` up to the last cut with a wrong answer, `turning` to where it knew its answer, and `known` to its end.
const PARTS = { unsure: "before it knew", turning: "it comes to know", known: "after it knew" };
const partsOf = (each, places) => {
  if (each.wasted === null) return [];
  const known = each.tokens - each.wasted;
  const wrong = each.cuts.findLastIndex((cut) => !cut.correct && cut.budget < known);
  const knew = each.cuts.findIndex((cut) => cut.budget === known);
  return [[wrong < 0 ? 0 : places[wrong], "unsure"], [knew < 0 ? each.response.length : places[knew], "turning"], [each.response.length, "known"]];
};
const wasteOf = (each) => each.wasted > 0
  ? `${each.wasted.toLocaleString("en-US")} of ${each.tokens.toLocaleString("en-US")} tokens after it knew` : each.wasted === 0 ? "it knew only at its end" : "";

// A response as an SVG of lines of text, for a paper: a long part loses its middle.
const pictureOf = (each, title) => {
  const COLUMNS = 92, ACROSS = 7.3, HEIGHT = 18, MOST = 4000;
  const INK = { unsure: ["#5d6675", "none"], turning: ["#0b5d38", "#cdebdc"], known: ["#7a4a00", "#fde9c4"] };
  const make = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    // Characters that XML forbids.
    if (text !== undefined) made.textContent = text.toWellFormed().replace(/[^\t\n\r\x20-\x7e\xa0-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
    return made;
  };
  const picture = make("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": "monospace", "font-size": 12 });
  let row = 2, column = 0;
  const put = (text, ink, ground) => {
    for (const line of text.split(/(\n)/)) {
      if (line === "\n") { row++; column = 0; continue; }
      // A line breaks at a space if there is one.
      for (let rest = [...line.replaceAll("\t", "  ")]; rest.length;) {
        const room = COLUMNS - column;
        const space = rest.length > room ? rest.slice(0, room + 1).lastIndexOf(" ") : rest.length;
        const taken = rest.splice(0, space > 0 ? Math.min(space + 1, room) : column && space < 0 ? 0 : room).join("");
        const across = { x: 16 + column * ACROSS, textLength: [...taken].length * ACROSS };
        if (ground !== "none" && taken) picture.append(make("rect", { x: across.x, y: row * HEIGHT - 13, width: across.textLength, height: HEIGHT, fill: ground }));
        if (taken.trim()) picture.append(make("text", { ...across, y: row * HEIGHT, fill: ink, "xml:space": "preserve", lengthAdjust: "spacingAndGlyphs" }, taken));
        column += [...taken].length;
        if (rest.length) { row++; column = 0; }
      }
    }
  };
  const end = () => { row += 1.5; column = 0; };
  put(title, "#1d2430", "none");
  end();
  if (each.wasted !== null) {
    for (const [name, words] of Object.entries(PARTS)) { put(words, ...INK[name]); put("   ", "#1d2430", "none"); }
    put(wasteOf(each), "#1d2430", "none");
    end();
  }
  const parts = partsOf(each, inUnits(each.response, each.cuts.map((cut) => cut.characters)));
  for (const [from, to, name] of pieces(each.response, "", parts)) {
    const text = each.response.slice(from, to);
    const short = text.length > MOST ? `${text.slice(0, MOST / 2)} … ${text.slice(-MOST / 2)}` : text;
    put(short, ...(INK[name] ?? ["#1d2430", "none"]));
  }
  const width = 32 + COLUMNS * ACROSS, height = row * HEIGHT + 16;
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) picture.setAttribute(key, value);
  picture.prepend(make("title", {}, title), make("rect", { width, height, fill: "#ffffff" }));
  return new XMLSerializer().serializeToString(picture);
};

// What is typed and not asked yet; one search goes on at a time, since it may take seconds.
const typing = { wish: null, busy: false, timer: 0 };

// `info` names the evaluations (name, arm, whole), benchmarks, budgets and colours; `ask` answers "responses" and "response";
// `query` is the state in the address, `go` changes it and draws again, `swap` too without an entry in the history, `soft`
// changes it alone; `isLatest` is false once something else is to be drawn.
const responseReader = ({ root, info, ask, query, go, soft, swap, isLatest }) => {
  const PAGE = 50;
  const FILTERS = ["evaluation", "benchmark", "words", "correct", "shortest", "longest", "right_at", "wrong_at", "other", "others", "order"];
  const named = (evaluation) => info.evaluations.find((each) => each.name === evaluation);
  const dot = (arm) => el("span", { class: "dot", colour: info.colours[arm] ?? "#676f72", "aria-hidden": "true" });
  const option = (value, text, chosen) => el("option", { value, selected: value === (chosen || "") }, text);
  const choice = (label, name, options, chosen, change = go) => el("label", {}, label + " ", el("select", { name,
    onchange: (event) => change({ [name]: event.target.value, offset: null }) }, options.map(([value, text]) => option(value, text, chosen))));
  const search = async (form) => {
    if (typing.busy) return;
    typing.busy = true;
    for (let wish = typing.wish; wish && form.isConnected; wish = typing.wish) {
      typing.wish = null;
      await swap({ ...wish, offset: null });
    }
    typing.busy = false;
  };
  const typed = (wait) => ({ target }) => {
    if (target.validity.badInput || (query().get(target.name) ?? "") === target.value && !typing.wish) return;
    typing.wish = { ...typing.wish, [target.name]: target.value };
    clearTimeout(typing.timer);
    typing.timer = setTimeout(search, wait, target.form);
  };
  const field = (label, name, attributes, value) => el("label", {}, label && label + " ",
    el("input", { name, value, ...attributes, oninput: typed(200), onchange: typed(0) }));
  const verdict = (of) => `${of.correct ? "✓" : "✗"} ${of.answer ?? "no answer"}${of.unsettled ? `, not judged: ${of.unsettled}` : ""}`;
  const damage = (tasks) => tasks.length ? el("p", { class: "about damaged" }, `Damaged or missing, and left out: ${tasks.join(", ")}. `,
    "Running the spec again makes it anew.") : null;

  const wanted = () => {
    const state = query();
    return Object.fromEntries(FILTERS.filter((name) => state.get(name)).map((name) => [name, state.get(name)]));
  };
  const away = { of: null, row: null, cut: null, whole: null };

  const showList = async () => {
    const state = query();
    const get = (name) => state.get(name) || "";
    const found = await ask("responses", { ...wanted(), offset: state.get("offset") || 0, limit: PAGE });
    if (!isLatest()) return;
    const cuts = [["", "any"], ...info.budgets.map((each) => [String(each), each.toLocaleString("en-US")])];
    const arms = info.evaluations.map((each) => [each.name, each.name + (each.whole ? "" : " (so far)")]);
    const either = [["right", "right"], ["wrong", "wrong"]];
    const several = arms.length > 1;
    const pair = (...those) => el("span", {}, those);
    const about = "words in question, response or answer";
    const form = el("form", { class: "filters", role: "search", "aria-label": "Responses", onsubmit: (event) => event.preventDefault() },
      field("", "words", { type: "search", autocomplete: "off", placeholder: about, "aria-label": about }, get("words")),
      choice("sorted by", "order", [["", "question"], ["longest", "longest first"], ["shortest", "shortest first"],
        info.budgets.length > 0 && ["wasted", "most tokens after it knew"], several && ["different", "arms' lengths differ most"]].filter(Boolean), get("order")),
      pair(choice("arm", "evaluation", [["", "all"], ...arms], get("evaluation")),
        choice("is", "correct", [["", "right or wrong"], ...either, ["unfinished", "unfinished"]], get("correct"))),
      several && pair(choice("while arm", "other", [["", "any"], ...arms], get("other")),
        choice("is", "others", [["", "right or wrong"], ...either], get("others"))),
      info.budgets.length > 1 && pair(choice("right at", "right_at", cuts, get("right_at")), choice("wrong at", "wrong_at", cuts, get("wrong_at"))),
      info.benchmarks.length > 1 && choice("benchmark", "benchmark", [["", "all"], ...info.benchmarks.map((name) => [name, name])], get("benchmark")),
      pair(field("tokens from", "shortest", { type: "number", min: 0 }, get("shortest")), field("to", "longest", { type: "number", min: 0 }, get("longest"))),
      el("button", { type: "button", name: "clear", hidden: !Object.keys(wanted()).length,
        onclick: () => go({ offset: null, ...Object.fromEntries(FILTERS.map((name) => [name, null])) }) }, "show all"));
    const rows = found.responses.map((each, index) => {
      const at = found.offset + index;
      const open = { of: each.evaluation, row: each.row, at, beside: state.get("beside") || state.get("other") };
      const link = new URLSearchParams(state);
      for (const [name, value] of Object.entries(open)) if (value !== null) link.set(name, value);
      return el("tr", { role: "row" },
        el("td", { role: "cell" }, dot(named(each.evaluation)?.arm), each.evaluation),
        el("td", { role: "cell" }, each.benchmark),
        el("td", { role: "cell", class: "asked" }, el("a", { href: "#" + link, "data-key": "at-" + at, "data-first": state.get("at") === String(at) }, marked(each.asked || each.question, get("words"))),
          each.begins && el("small", {}, marked(each.begins, get("words")))),
        el("td", { role: "cell", class: "number" }, el("span", { class: "unit" }, "sample "), each.sample),
        el("td", { role: "cell", class: "number" }, each.tokens.toLocaleString("en-US"), el("span", { class: "unit" }, " tokens"), each.finish === "length" ? " cut" : "",
          each.wasted >= 0 && el("small", {}, wasteOf(each))),
        el("td", { role: "cell", class: each.correct ? "good" : "bad" }, marked(verdict(each), get("words"))));
    });
    const offset = found.offset;
    const turn = (to) => () => go({ offset: to || null });
    const list = [damage(found.unread),
      el("p", { class: "about", role: "status", tabindex: -1, "data-first": !rows.length }, found.total
        ? `${found.total.toLocaleString("en-US")} responses; ${(offset + 1).toLocaleString("en-US")} to ${(offset + rows.length).toLocaleString("en-US")} shown.`
        : "No response fits."),
      rows.length ? el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "listed", role: "table" }, el("thead", {}, el("tr", {},
        ["arm", "benchmark", "question", "sample", "tokens", "answer"].map((name) => el("th", { scope: "col", class: name === "sample" || name === "tokens" ? "number" : null }, name)))), el("tbody", { role: "rowgroup" }, rows))) : null,
      el("p", { class: "turn" },
        el("button", { type: "button", name: "earlier", disabled: offset === 0, onclick: turn(Math.max(0, offset - PAGE)) }, "earlier"),
        el("button", { type: "button", name: "later", disabled: offset + rows.length >= found.total, onclick: turn(offset + PAGE) }, "later"))];
    // A form that somebody types in stays as it is.
    const old = root.querySelector("form.filters");
    if (!old?.contains(document.activeElement) || !document.activeElement.matches("input")) return clear(root, form, list);
    while (old.nextSibling) old.nextSibling.remove();
    root.append(...list.filter(Boolean));
    old.elements.clear.hidden = form.elements.clear.hidden;
  };

  // The next response of the list, or the one before.
  const step = async (by) => {
    const at = Number(query().get("at")) + by;
    const found = at < 0 ? { responses: [] } : await ask("responses", { ...wanted(), offset: at, limit: 1 });
    for (const each of found.responses) swap({ of: each.evaluation, row: each.row, at, offset: Math.floor(at / PAGE) * PAGE || null, whole: null });
  };
  document.onkeydown = (event) => {
    const by = { j: 1, k: -1 }[event.key];
    const writes = event.target.matches?.("select, textarea, input:not([type=range], [type=checkbox])");
    if (by && !writes && !event.ctrlKey && !event.metaKey && !event.altKey && query().get("of") && query().get("at") !== null) step(by);
  };

  const showOne = async () => {
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
    if (!isLatest()) return;
    const both = [first, second].filter(Boolean);
    const grid = [...new Set(both.flatMap((each) => each.cuts.map((cut) => cut.budget)))].sort((a, b) => a - b);
    const asked = state.get("cut");
    let place = asked === null ? grid.length : Math.max(0, grid.findIndex((each) => each >= Number(asked)));
    const panes = both.map((each) => pane(each, state.get("words")));
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
        choice("beside", "beside", [["", "nothing"], ...others.map((each) => [each.name, each.name])], state.get("beside"), ({ beside }) => swap({ beside })),
        el("button", { type: "button", onclick: copy }, "copy link"), copied),
      el("h2", { tabindex: -1, "data-first": true }, `${first.benchmark}, sample ${first.sample}`),
      el("div", { class: "question", tabindex: 0 }, marked(first.text, state.get("words"))),
      el("p", { class: "about" }, first.gold.length > 1 ? "Reference answers: " : "Reference answer: ",
        el("b", {}, first.gold.slice(0, 8).join(" or ") || "none"), first.gold.length > 8 ? ` or one of ${first.gold.length - 8} more` : null,
        "   question ", el("code", {}, first.question)),
      grid.length ? el("div", { class: "slider" }, slider, label) : el("p", { class: "about" }, "No answers were forced."),
      missing ? el("p", { class: "about" }, missing) : null,
      el("div", { class: "panes" }, panes.map((each) => each.element)));
    move();
  };

  const pane = (each, words) => {
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
    const parts = partsOf(each, places);
    const shown = (ends) => pieces(each.response, words, parts, ends).map(([from, to, name, found]) =>
      [from, el(found ? "mark" : "span", { class: name }, each.response.slice(from, to))]);
    const save = () => {
      const title = `${each.evaluation}, ${each.benchmark} ${each.question}, sample ${each.sample}, ${each.correct ? "right" : "wrong"}`;
      const address = URL.createObjectURL(new Blob([pictureOf(each, title)], { type: "image/svg+xml" }));
      el("a", { href: address, download: `${each.evaluation}-${each.question}-${each.sample}.svg`.replace(/[^\w.@-]+/g, "_") }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    };
    const waste = el("p", { class: "waste" }, each.wasted !== null && [el("b", {}, wasteOf(each)), " ",
      Object.entries(PARTS).map(([name, text]) => [el("span", { class: name }, text), " "])],
      el("button", { type: "button", onclick: save }, "save as SVG"));
    const cut = (budget) => {
      const at = each.cuts.findIndex((one) => one.budget === budget);
      const found = each.cuts[at];
      const end = found ? places[at] : each.response.length;
      const all = shown([end]);
      kept.replaceChildren(...all.filter(([from]) => from < end).map(([, part]) => part));
      after.replaceChildren(...all.filter(([from]) => from >= end).map(([, part]) => part));
      chip.hidden = !found;
      if (found) {
        chip.className = "chip " + (found.correct ? "good" : "bad");
        chip.textContent = `${found.forced ? "made to answer after" : "ended before"} ${budget.toLocaleString("en-US")}: ${verdict(found)}`;
      }
      note.textContent = found && !found.exact && found.forced ? "The place of the cut is in proportion to the tokens: it is not known to the letter." : "";
      [...strip.children].forEach((mark, index) => mark.classList.toggle("here", index === at));
    };
    const more = each.left_out ? el("p", { class: "about" }, `${each.left_out.toLocaleString("en-US")} characters in the middle are left out. `,
      el("button", { type: "button", onclick: () => swap({ whole: 1 }) }, "show all")) : null;
    const lost = (parts) => parts.filter((part) => part.tokens >= 0.05).map((part) =>
      `${part.tokens.toLocaleString("en-US", { maximumFractionDigits: 1 })} ${part.cause}`).join(", ") || "none";
    const losses = each.lost ? el("p", { class: "about lost" },
      `Tokens of budget with a wrong answer: ${lost(each.lost)}. On average over the question's responses: ${lost(each.lost_mean)}.`) : null;
    return { element: el("article", { class: "pane" }, head, strip, waste, losses, more, el("div", { class: "trace", tabindex: 0 }, kept, chip, after), note), cut };
  };

  return async () => {
    if (query().get("of") && query().get("row") !== null) await showOne();
    else await showList();
  };
};
