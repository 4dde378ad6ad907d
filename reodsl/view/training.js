"use strict";
// What a model wrote while it was trained: the rollouts of one step, or those of a question over the steps.
const trainingReader = ({ root, info, ask, query, go, isLatest }) => {
  const PAGE = 64;
  const number = (value) => value === null || value === undefined ? "–"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3))).replace("-", "−");
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const rollout = (each) => {
    const parts = (each.parts?.length ?? 0) > 1 ? ` = ${each.parts.map((part, at) => (at ? signed(part) : number(part))).join(" ")}` : "";
    const cuts = (each.cuts ?? []).map((cut, at) => el("span", { class: each.forced[at] ? "good" : "bad" }, `${cut} ${each.forced[at] ? "✓" : "✗"}`));
    return el("article", { class: "pane" },
      el("header", {}, el("b", {}, `reward ${number(each.reward)}`), parts && el("span", {}, parts),
        each.advantages && el("span", {}, `advantage ${each.advantages.map(signed).join(", ")}`),
        el("span", {}, `${each.tokens.toLocaleString("en-US")} tokens${each.finish === "length" ? ", cut off" : ""}`),
        each.thinking != null && el("span", {}, `${each.thinking.toLocaleString("en-US")} of them thinking${each.thinking_ended ? ", ended by force" : ""}`),
        each.wording && el("span", {}, `wording ${each.wording}${each.budget == null ? "" : `, ${each.budget.toLocaleString("en-US")} tokens`}`),
        el("span", { class: each.correct ? "good" : "bad" }, each.correct ? "✓ right" : "✗ wrong")),
      cuts.length > 0 && el("p", { class: "cuts" }, "answers forced at ", cuts.map((cut) => [cut, " "])),
      el("div", { class: "trace", tabindex: 0 }, each.text ?? "This text was not kept: a step keeps a million characters."));
  };

  return async () => {
    const state = query();
    const training = state.get("training") || info.trainings[0].name;
    const question = state.get("question");
    const found = await ask("rollouts", { training, question: question || "", step: state.get("step") || "", offset: state.get("offset") || 0, limit: PAGE });
    if (!isLatest()) return;
    const groups = new Map();
    for (const each of found.rollouts) {
      const key = question ? each.step : each.question;
      groups.set(key, [...(groups.get(key) ?? []), each]);
    }
    // The first group of a step has the widest spread of rewards.
    const range = (rows) => {
      const rewards = rows.map((each) => each.reward).filter((each) => each !== null);
      return rewards.length > 1 ? `, rewards ${number(Math.min(...rewards))} to ${number(Math.max(...rewards))}` : "";
    };
    const mean = (rows, name) => rows.reduce((sum, each) => sum + Number(each[name]), 0) / rows.length;
    const boxes = [...groups].map(([key, rows], at) => el("details", { open: at === 0 },
      el("summary", {}, question ? `step ${key}` : found.questions[key] ?? key, el("small", {},
        `reward ${number(mean(rows, "reward"))}, ${rows.filter((each) => each.correct).length} of ${rows.length} right, ${Math.round(mean(rows, "tokens"))} tokens${range(rows)}`)),
      el("div", { class: "inside" },
        question ? null : el("p", {}, el("button", { type: "button", name: "over-" + key, onclick: () => go({ question: key, offset: null }) }, "this question over the steps")),
        el("div", { class: "panes" }, rows.map(rollout)))));
    const choose = (name) => (event) => go({ [name]: event.target.value, question: null, offset: null });
    const { means } = found;
    clear(root,
      el("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
        el("label", {}, "training ", el("select", { name: "training", onchange: choose("training") },
          info.trainings.map((each) => el("option", { value: each.name, selected: each.name === training }, each.name)))),
        el("label", { class: "steps" }, "step ", el("input", { type: "range", name: "step", min: 1, max: found.steps, value: found.step, onchange: choose("step") }),
          el("input", { type: "number", name: "number", min: 1, max: found.steps, value: question ? "" : found.step, "aria-label": "step", onchange: choose("step") })),
        question ? el("button", { type: "button", name: "all", onclick: () => go({ question: null, offset: null }) }, "← all questions") : null),
      el("h2", { tabindex: -1, "data-first": true }, question ? "A question over the steps" : `Step ${found.step} of ${found.steps}`),
      question && el("div", { class: "question", tabindex: 0 }, found.questions[question] ?? question),
      el("p", { class: "about", role: "status" }, found.total ? `${found.total.toLocaleString("en-US")} rollouts: mean reward ${number(means.reward)}, `
        + `${(100 * means.correct).toFixed(1)}% right, ${Math.round(means.tokens)} tokens.` : "No rollouts here."),
      boxes,
      el("p", { class: "turn" }, [["earlier", found.offset - PAGE, found.offset === 0], ["later", found.offset + PAGE, found.offset + PAGE >= found.total]].map(([name, to, off]) =>
        el("button", { type: "button", name, disabled: off, onclick: () => go({ offset: Math.max(0, to) || null }) }, name))));
  };
};
