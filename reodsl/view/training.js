"use strict";
// What a model wrote while it was trained: rollouts counted over the steps, those of one step, and a question over the steps.
const trainingReader = ({ root, info, ask, query, go }) => {
  const PAGE = 64;
  const number = (value) => value === null || value === undefined ? "–"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3))).replace("-", "−");
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const shape = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    return made;
  };

  // Rollouts by step (across) and level (up); a column's darkness is their share. A press goes to a step.
  const spread = (title, found, { steps, stretch }, step) => {
    if (!found) return null;
    const across = found.counts.length, up = found.counts[0].length;
    const svg = shape("svg", { viewBox: `0 0 ${across} ${up}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${title} of rollouts, from ${number(found.low)} to ${number(found.high)}, at steps 1 to ${steps}` });
    found.counts.forEach((levels, at) => {
      const most = Math.max(1, levels.reduce((sum, count) => sum + count, 0));
      levels.forEach((count, level) => {
        if (count) svg.append(shape("rect", { x: at, y: up - 1 - level, width: 1, height: 1, "fill-opacity": Math.min(1, 0.12 + 1.6 * count / most) }));
      });
    });
    if (step) svg.append(shape("rect", { x: Math.floor((step - 1) / stretch), y: 0, width: 1, height: up, class: "here" }));
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      const at = Math.floor((event.clientX - box.left) / box.width * across);
      go({ step: Math.min(steps, Math.max(1, at * stretch + 1)), question: null, offset: null });
    });
    return el("figure", { class: "spread" }, el("figcaption", {}, title),
      el("div", {}, el("span", {}, number(found.high)), el("span", {}, number(found.low))), svg,
      el("p", {}, el("span", {}, "step 1"), el("span", {}, String(steps))));
  };

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
    const counts = await ask("training", { training });
    const question = state.get("question");
    const step = question ? null : Math.min(counts.steps, Number(state.get("step") || counts.steps));
    const found = await ask("rollouts", { training, ...(question ? { question } : { step }), offset: state.get("offset") || 0, limit: PAGE });
    const groups = new Map();
    for (const each of found.rollouts) {
      const key = question ? each.step : each.question;
      groups.set(key, [...(groups.get(key) ?? []), each]);
    }
    const mean = (rows, name) => rows.reduce((sum, each) => sum + Number(each[name]), 0) / rows.length;
    const boxes = [...groups].map(([key, rows], at) => el("details", { open: at === 0 },
      el("summary", {}, question ? `step ${key}` : found.questions[key] ?? key, el("small", {},
        `reward ${number(mean(rows, "reward"))}, ${rows.filter((each) => each.correct).length} of ${rows.length} right, ${Math.round(mean(rows, "tokens"))} tokens`)),
      el("div", { class: "inside" },
        question ? null : el("p", {}, el("button", { type: "button", name: "over-" + key, onclick: () => go({ question: key, offset: null }) }, "this question over the steps")),
        el("div", { class: "panes" }, rows.map(rollout)))));
    const choose = (name) => (event) => go({ [name]: event.target.value, question: null, offset: null });
    const { means } = found;
    clear(root,
      el("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
        el("label", {}, "training ", el("select", { name: "training", onchange: choose("training") },
          info.trainings.map((each) => el("option", { value: each.name, selected: each.name === training }, each.name)))),
        el("label", { class: "steps" }, "step ", el("input", { type: "range", name: "step", min: 1, max: counts.steps, value: step ?? 1, onchange: choose("step") }),
          el("input", { type: "number", name: "number", min: 1, max: counts.steps, value: step ?? "", "aria-label": "step", onchange: choose("step") })),
        question ? el("button", { type: "button", name: "all", onclick: () => go({ question: null, offset: null }) }, "← all questions") : null),
      el("div", { class: "charts two" }, spread("length in tokens", counts.tokens, counts, step), spread("reward", counts.reward, counts, step)),
      el("h2", { tabindex: -1, "data-first": true }, question ? "A question over the steps" : `Step ${step} of ${counts.steps}`),
      question && el("div", { class: "question", tabindex: 0 }, found.questions[question] ?? question),
      el("p", { class: "about", role: "status" }, found.total ? `${found.total.toLocaleString("en-US")} rollouts: mean reward ${number(means.reward)}, `
        + `${(100 * means.correct).toFixed(1)}% right, ${Math.round(means.tokens)} tokens.` : "No rollouts here."),
      boxes,
      el("p", { class: "turn" }, [["earlier", found.offset - PAGE, found.offset === 0], ["later", found.offset + PAGE, found.offset + PAGE >= found.total]].map(([name, to, off]) =>
        el("button", { type: "button", name, disabled: off, onclick: () => go({ offset: Math.max(0, to) || null }) }, name))));
  };
};
