"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const configs = read("configs");
  const rows = read("rows");
  const charts = read("charts");
  const root = document.documentElement;
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preference.matches);
  const views = new Map();
  // Where `reodsl view` serves this page: the address that says how far the run is.
  const live = document.body.dataset.live;
  if (live && sessionStorage.getItem("theme")) root.dataset.theme = sessionStorage.getItem("theme");

  // A chart's rows stand in the page once, however many charts show them. Vega writes into rows: each chart gets its own.
  // Names beside lines need room; where there is none, the buttons are the key.
  const narrow = (place) => place.clientWidth < 440;
  const named = (layer) => rows[layer.data?.name]?.some((row) => "name" in row && "end" in row);
  const filled = ({ spec, rows: names }, place) => ({
    ...spec, layer: narrow(place) ? spec.layer.filter((layer) => !named(layer)) : spec.layer,
    datasets: Object.fromEntries(names.map((name) => [name, structuredClone(rows[name])])),
  });
  const visible = (place) => place.offsetParent !== null;

  const draw = async (place) => {
    const name = place.dataset.chart;
    const style = dark() ? "dark" : "light";
    const state = style + narrow(place);
    if (!visible(place) || place.dataset.drawn === state) return;
    place.dataset.drawn = state;
    views.get(place)?.finalize();
    const result = await vegaEmbed(place, filled(charts[name], place), {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, config: configs[style],
      tooltip: crossed(place) ? () => {} : { theme: "custom" },
    });
    views.set(place, result.view);
    // Vega calls its drawing a document of graphics; what is heard is the description.
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    const group = place.closest("[data-group]");
    if (group) apply(result.view, group);
    shape(place);
    crosshair(place);
  };

  // Curves of a training: the steps that are wanted, each number a mean over so many steps around it.
  const shaping = (place) => place.closest("[data-group]")?.querySelector(".shaping");
  const shaped = (place, name) => {
    const controls = shaping(place);
    if (!controls || !rows[name].length || !("at" in rows[name][0])) return rows[name];
    const [over, from, to] = ["smooth", "from", "to"].map((one) => Number(controls.querySelector(`[name=${one}]`).value));
    const lines = new Map();
    for (const row of rows[name]) {
      const key = row.arm + "\u0000" + row.seed;
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push(row);
    }
    const kept = [];
    for (const line of lines.values()) line.forEach((row, i) => {
      if (row.at < from || row.at > to) return;
      const near = line.slice(Math.max(0, i - Math.floor((over - 1) / 2)), i + Math.floor(over / 2) + 1);
      const mean = (key) => near.reduce((sum, one) => sum + one[key], 0) / near.length;
      kept.push(Object.fromEntries(Object.entries(row).map(([key, value]) =>
        [key, over > 1 && typeof value === "number" && key !== "at" && key !== "seed" ? mean(key) : value])));
    });
    return kept;
  };
  const shape = (place) => {
    const controls = shaping(place);
    const whole = controls && controls.querySelector("[name=smooth]").value === "1"
      && controls.querySelector("[name=from]").value === "1" && controls.querySelector("[name=to]").value === controls.dataset.last;
    const view = views.get(place);
    if (!controls || !view || (whole && !place.dataset.shaped)) return;
    place.dataset.shaped = "yes";
    for (const name of charts[place.dataset.chart].rows)
      try { view.data(name, structuredClone(shaped(place, name))); } catch { /* rows that nothing draws */ }
    view.runAsync();
  };

  // The crosshair: a line where the pointer is, or where the arrow keys moved it, and what every arm has there.
  const crossed = (place) => charts[place.dataset.chart].spec.usermeta?.cross;
  const crosshair = (place) => {
    const what = crossed(place);
    if (!what || place.dataset.crossed) return;
    place.dataset.crossed = "yes";
    place.tabIndex = 0;
    const figure = place.closest("figure");
    const line = el("div", { class: "cross", hidden: "" });
    const readout = el("div", { class: "readout", role: "status", hidden: "" });
    figure.append(line, readout);
    let at = null;
    let pressed = null;
    const frame = () => place.querySelector("svg .background").getBoundingClientRect();
    const scale = () => views.get(place).scale("x");
    const places = () => [...new Set(shaped(place, what.data).map((row) => row[what.x]))].sort((a, b) => a - b);
    const number = (value, share) => value === null || value === undefined ? "–" : share ? (100 * value).toFixed(1) + "%"
      : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
    const hide = () => { at = null; line.hidden = readout.hidden = true; };
    const show = (value) => {
      at = value;
      const off = new Set(hidden(place.closest("[data-group]") ?? figure));
      const here = shaped(place, what.data).filter((row) => row[what.x] === value && !off.has(row.arm) && row[what.y] !== null)
        .sort((a, b) => b[what.y] - a[what.y]);
      const edge = what.edge && rows[what.edge].find((row) => row[what.x] === value);
      const lines = here.slice(0, 14).map((row) => el("div", {}, key(place, row.arm), row.arm + " ", el("b", {}, number(row[what.y], what.percent))));
      if (edge) lines.unshift(el("div", {}, "frontier ", el("b", {}, number(edge[what.y], what.percent)), edge.arms ? " " + edge.arms : ""));
      if (here.length > 14) lines.push(el("div", {}, "and " + (here.length - 14) + " more"));
      for (const row of what.stages ? rows[what.stages] : [])
        if (row.at === value && !off.has(row.arm)) lines.push(el("div", {}, row.arm + ": " + row.stage + " begins"));
      readout.replaceChildren(el("i", {}, ({ at: "step" }[what.x] ?? what.x) + " " + number(value, what.share)), ...lines);
      line.hidden = readout.hidden = false;
      const box = frame();
      const outer = figure.getBoundingClientRect();
      const left = box.left - outer.left + scale()(value);
      Object.assign(line.style, { left: left + "px", top: box.top - outer.top + "px", height: box.height + "px" });
      const room = outer.width - left > readout.offsetWidth + 14;
      Object.assign(readout.style, { left: Math.max(4, room ? left + 10 : left - 10 - readout.offsetWidth) + "px", top: box.top - outer.top + 6 + "px" });
    };
    const nearest = (event) => {
      const box = frame();
      const wanted = scale().invert(Math.min(box.width, Math.max(0, event.clientX - box.left)));
      return places().reduce((best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best));
    };
    place.addEventListener("pointermove", (event) => { if (places().length) show(nearest(event)); });
    place.addEventListener("pointerleave", hide);
    place.addEventListener("blur", hide);
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step || !places().length) return;
      event.preventDefault();
      const all = places();
      show(at === null ? all[step > 0 ? 0 : all.length - 1] : all[Math.min(all.length - 1, Math.max(0, all.indexOf(at) + step))]);
    });
    const controls = shaping(place);
    if (!controls) return;
    // Dragging over a stretch of steps shows it alone, two clicks show all.
    place.addEventListener("pointerdown", (event) => { pressed = [event.clientX, nearest(event)]; });
    place.addEventListener("pointerup", (event) => {
      if (pressed === null || Math.abs(event.clientX - pressed[0]) < 8) return;
      const [from, to] = [pressed[1], nearest(event)].sort((a, b) => a - b);
      pressed = null;
      controls.querySelector("[name=from]").value = from;
      controls.querySelector("[name=to]").value = to;
      controls.dispatchEvent(new Event("input"));
    });
    place.addEventListener("dblclick", () => controls.querySelector("[name=whole]").click());
  };
  const key = (place, arm) => {
    const button = [...(place.closest("[data-group]")?.querySelectorAll("button[data-arm]") ?? [])].find((one) => one.dataset.arm === arm);
    return button ? button.querySelector(".dot").cloneNode() : "";
  };
  const hidden = (group) => [...group.querySelectorAll("button[data-arm][aria-pressed=false]")].map((each) => each.dataset.arm);
  const apply = (view, group) => { try { view.signal("off", hidden(group)).runAsync(); } catch { /* a chart without arms */ } };
  const light = (view, arm) => { try { view.signal("focus", arm).runAsync(); } catch { /* a chart without arms */ } };
  const drawAll = () => Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));
  // The page says in which theme all its charts stand.
  const drawThemed = () => drawAll().then(() => { root.dataset.ready = dark() ? "dark" : "light"; });

  for (const group of document.querySelectorAll("[data-group]")) {
    const set = (arm) => {
      for (const place of group.querySelectorAll("[data-chart]")) if (views.has(place)) light(views.get(place), arm);
    };
    const switched = () => {
      for (const place of group.querySelectorAll("[data-chart]")) if (views.has(place)) apply(views.get(place), group);
    };
    for (const button of group.querySelectorAll("button[data-arm]")) {
      const point = () => set(button.getAttribute("aria-pressed") === "true" ? button.dataset.arm : "");
      for (const kind of ["mouseenter", "focus"]) button.addEventListener(kind, point);
      for (const kind of ["mouseleave", "blur"]) button.addEventListener(kind, () => set(""));
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        switched();
        point();
      });
    }
    for (const button of group.querySelectorAll("button[data-all]"))
      button.addEventListener("click", () => {
        for (const other of group.querySelectorAll("button[data-arm]"))
          other.setAttribute("aria-pressed", String(button.dataset.all === "on"));
        switched();
      });
  }
  for (const controls of document.querySelectorAll(".shaping")) {
    const changed = () => {
      const over = Number(controls.querySelector("[name=smooth]").value);
      controls.querySelector("output").textContent = over + (over === 1 ? " step" : " steps");
      for (const place of controls.closest("[data-group]").querySelectorAll("[data-chart]")) shape(place);
    };
    controls.addEventListener("input", changed);
    controls.querySelector("[name=whole]").addEventListener("click", () => {
      controls.querySelector("[name=from]").value = 1;
      controls.querySelector("[name=to]").value = controls.dataset.last;
      changed();
    });
  }
  // The columns come closer where they have no room; if they still have none, arm and Average stay while the others are
  // scrolled, where they leave the others room.
  const hold = () => {
    for (const table of document.querySelectorAll("table.results")) {
      const room = table.parentElement.clientWidth;
      table.classList.remove("close", "closest");
      for (const step of ["close", "closest"]) if (table.offsetWidth > room) table.classList.add(step);
      const rows = [...table.rows];
      const kept = rows.at(-1)?.querySelectorAll(".fixed") ?? [];
      const wide = [...kept].reduce((sum, cell) => sum + cell.offsetWidth, 0);
      for (const row of rows) {
        let left = 0;
        for (const cell of row.querySelectorAll(".fixed")) {
          const holds = table.offsetWidth > room && (wide < 0.8 * room || cell.matches(".name"));
          cell.style.position = holds ? "sticky" : "static";
          cell.style.left = holds ? left + "px" : "";
          left += cell.offsetWidth;
        }
      }
    }
  };
  hold();
  addEventListener("resize", () => { hold(); drawAll(); });
  // What is led to is shown, folded or not.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();
  // A table leaves the page as it stands in it: its heads, and of every cell the number with its star and its interval.
  const texts = (table) => {
    const head = [...table.tHead.rows].map((row) => [...row.cells].map((cell) => [cell.textContent.replace(/ [↑↓]$/, ""), cell.colSpan]));
    const cells = (row) => [...row.cells].map((cell) => {
      const shown = cell.cloneNode(true);
      for (const beside of shown.querySelectorAll(".up, .tag, small")) beside.remove();
      return [shown.textContent, cell.dataset.interval ?? ""];
    });
    return { groups: head.length > 1 ? head[0].slice(1) : [], names: head.at(-1).map(([name]) => name), body: [...table.tBodies[0].rows].map(cells) };
  };
  const inLatex = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
  const word = (text) => text.replace(/[\\~^&%$#_{}]/g, (one) => inLatex[one] ?? "\\" + one).replace(/^(?=[[*])/, "{}");
  const signs = { "−": "$-$", "*": "$^{*}$", "±": "$\\pm$", "–": "--" };
  const figures = (text) => text.replace(/[%~]/g, "\\$&").replace(/[−*±–]/g, (one) => signs[one]);
  // Tabular with the rules of booktabs.
  const latex = ({ groups, names, body }) => {
    const line = (cells) => cells.join(" & ") + " \\\\";
    let at = 2;
    const rules = groups.map(([, wide]) => `\\cmidrule(lr){${at}-${(at += wide) - 1}}`);
    const above = groups.map(([name, wide]) => `\\multicolumn{${wide}}{c}{${word(name)}}`);
    const rows = body.map(([[name], ...cells]) => line([word(name),
      ...cells.map(([text, interval]) => figures(text) + (interval ? ` {\\scriptsize ${figures(interval)}}` : ""))]));
    return [`\\begin{tabular}{l${"r".repeat(names.length - 1)}}`, "\\toprule", ...(groups.length ? [line(["", ...above]), rules.join(" ")] : []),
      line(names.map(word)), "\\midrule", ...rows, "\\bottomrule", "\\end{tabular}"].join("\n");
  };
  const flat = ({ groups, names }) => {
    const above = ["", ...groups.flatMap(([name, wide]) => Array(wide).fill(name + " "))];
    return names.map((name, i) => (above[i] ?? "") + name);
  };
  // Markdown as GitHub reads it.
  const markdown = (table) => {
    const line = (cells) => "| " + cells.map((text) => text.replace(/[|\\`*_<>[\]]/g, "\\$&")).join(" | ") + " |";
    const rows = table.body.map((row) => line(row.map(([text, interval]) => (text + " " + interval).trim())));
    return [line(flat(table)), "| --- |" + " ---: |".repeat(table.names.length - 1), ...rows].join("\n");
  };
  // For programs: signs of ASCII, no thousands separators, nothing for what is missing; an apostrophe keeps a spreadsheet
  // from reading a name as a formula.
  const csv = (table) => {
    const quoted = (text) => /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    const name = (text) => /^\s*[=+\-@＝＋－＠]/.test(text) ? "'" + text : text;
    const number = (text) => text === "–" ? "" : text.replace(/[*,]/g, "").replace(/−/g, "-");
    const rows = table.body.map(([[first], ...cells]) => [name(first), ...cells.map(([text]) => number(text))]);
    return [flat(table).map(name), ...rows].map((row) => row.map(quoted).join(",")).join("\n");
  };
  const offer = (table) => {
    const said = el("span", { role: "status" });
    const shown = el("pre", { class: "copied", hidden: true, tabindex: "0" });
    const copy = (write) => async () => {
      shown.textContent = write(texts(table));
      try {
        await navigator.clipboard.writeText(shown.textContent);
        said.textContent = "copied";
      } catch {
        shown.hidden = false;
        getSelection().selectAllChildren(shown);
        said.textContent = "selected: copy it with the keyboard";
      }
    };
    const buttons = Object.entries({ LaTeX: latex, Markdown: markdown, CSV: csv })
      .map(([name, write]) => el("button", { type: "button", "data-copy": name, onclick: copy(write) }, name));
    table.closest(".scroll").after(el("div", { class: "copies" }, "Copy as", buttons, said), shown);
  };
  document.querySelectorAll("table.results").forEach(offer);
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    if (live) sessionStorage.setItem("theme", root.dataset.theme);
    drawThemed();
  });
  preference.addEventListener("change", drawThemed);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", drawAll);
  drawThemed();
  // A page of a run that goes on is drawn anew: at once where nobody is at work in it, else when asked to.
  const follow = async (before) => {
    let now = before;
    try {
      const { status, done, running } = await (await fetch(live)).json();
      now = JSON.stringify([status, done, running.map((each) => [each.task, each.step])]);
      const label = document.getElementById("state");
      label.textContent = status;
      if (before && now !== before) {
        if (document.activeElement === document.body) return location.reload();
        if (!document.getElementById("newer"))
          label.after(el("button", { type: "button", id: "newer", onclick: () => location.reload() }, "show what came since"));
        now = before;
      }
      if (status !== "running") return undefined;
    } catch { /* the server was closed, or is busy */ }
    return setTimeout(() => follow(now), 10000);
  };
  if (live) follow("");
})();
