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

  // Arms stand in one order everywhere on the page: best first, or by the column whose head was pressed.
  let order = [...new Set([...document.querySelectorAll("main [data-arm]"), ...document.querySelectorAll("[data-arm]")].map((one) => one.dataset.arm))];
  const rank = (arm) => (order.includes(arm) ? order.indexOf(arm) : order.length);
  // Rows, entries, buttons and columns of arms change places among themselves; what else their parent has stays.
  const arrange = () => {
    const families = new Map();
    for (const one of document.querySelectorAll("[data-arm]")) {
      const item = (one.matches("td") ? null : one.closest("tbody tr, li")) ?? one;
      if (!families.has(item.parentElement)) families.set(item.parentElement, []);
      families.get(item.parentElement).push([one.dataset.arm, item]);
    }
    for (const [parent, items] of families) {
      const before = items[0][1].previousSibling;
      const sorted = items.sort(([a], [b]) => rank(a) - rank(b)).map(([, item]) => item);
      if (before) before.after(...sorted);
      else parent.prepend(...sorted);
    }
    // Bars and dots of arms, one below the other, have a place.
    for (const row of Object.values(rows).flat()) if ("place" in row && "arm" in row) row.place = rank(row.arm);
    for (const place of document.querySelectorAll("[data-chart]"))
      if (charts[place.dataset.chart].rows.some((name) => rows[name].some((row) => "place" in row))) place.dataset.drawn = "";
    drawAll();
  };

  // A chart's rows stand in the page once, however many charts show them. Vega writes into rows: each chart gets its own.
  // Names beside lines need room; where there is none, the buttons are the key.
  const narrow = (place) => place.clientWidth < 440;
  const named = (layer) => rows[layer.data?.name]?.some((row) => "name" in row && "end" in row);
  const filled = ({ spec, rows: names }, place) => ({
    ...spec, layer: narrow(place) ? spec.layer.filter((layer) => !named(layer)) : spec.layer,
    datasets: Object.fromEntries(names.map((name) => [name, structuredClone(rows[name])])),
  });
  const mapped = (node, change) => {
    if (Array.isArray(node)) return node.map((one) => mapped(one, change));
    if (node === null || typeof node !== "object") return node;
    return change(Object.fromEntries(Object.entries(node).map(([key, value]) => [key, mapped(value, change)])));
  };
  // A legend of arms or of the frontier. The page has one for a group of charts; a picture that leaves the page has its own.
  const keyed = (node, legend) => ("legend" in node && ["arm", "line"].includes(node.field) ? { ...node, legend: legend(node) } : node);
  // The axis of budgets that was chosen for a group of charts, or the one that suits the chart.
  const axisOf = (place) => {
    const axes = crossed(place)?.axes ?? {};
    return axes[place.closest("[data-group]")?.dataset.axis] ?? Object.values(axes)[0];
  };
  const scaled = (place, spec) => {
    const x = axisOf(place);
    return x ? { ...spec, layer: spec.layer.map((layer) => ({ ...layer, encoding: { ...layer.encoding,
      ...(layer.encoding.x?.scale && { x: { ...x, field: layer.encoding.x.field } }) } })) } : spec;
  };
  const visible = (place) => place.offsetParent !== null;

  const draw = async (place) => {
    const name = place.dataset.chart;
    const style = dark() ? "dark" : "light";
    const drawn = style + narrow(place) + (place.closest("[data-group]")?.dataset.axis ?? "");
    if (!visible(place) || place.dataset.drawn === drawn) return;
    place.dataset.drawn = drawn;
    views.get(place)?.finalize();
    const spec = scaled(place, mapped(filled(charts[name], place), (node) => keyed(node, () => null)));
    const result = await vegaEmbed(place, spec, {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, config: configs[style],
      tooltip: crossed(place) ? () => {} : { theme: "custom" },
    });
    views.set(place, result.view);
    // A name that is cut beside an axis is whole on hover.
    const whole = new Map(Object.values(spec.datasets).flat().map((row) => [row.name, row.arm]));
    for (const label of place.querySelectorAll(".role-axis-label text")) {
      const arm = whole.get(label.textContent);
      if (!arm || arm === label.textContent) continue;
      label.style.pointerEvents = "auto";
      label.append(Object.assign(document.createElementNS(label.namespaceURI, "title"), { textContent: arm }));
    }
    // Vega calls its drawing a document of graphics; what is heard is the description.
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    const group = place.closest("[data-group]");
    if (group) apply(result.view, group);
    shape(place);
    crosshair(place);
    leave(place);
    ask(place);
  };

  // What is asked of curves: each arm's accuracy at a budget, and the budget at which its line first reaches an accuracy.
  const reach = (line, level) => {
    const i = line.findIndex((row) => row.accuracy >= level);
    if (i < 1) return i < 0 ? null : line[0].budget;
    const [low, high] = [line[i - 1], line[i]];
    return low.budget + (high.budget - low.budget) * (level - low.accuracy) / (high.accuracy - low.accuracy);
  };
  const ask = (place) => {
    const what = crossed(place);
    const figure = place.closest("figure.wide");
    if (!what?.axes || !figure || figure.querySelector(".asking") || !rows[what.data].length) return;
    const lines = new Map();
    for (const row of [...rows[what.data]].sort((a, b) => a.budget - b.budget))
      lines.set(row.arm, [...(lines.get(row.arm) ?? []), row]);
    const budgets = [...new Set(rows[what.data].map((row) => row.budget))].sort((a, b) => a - b);
    const base = lines.get(what.baseline);
    const best = Math.max(...(base ?? [...lines.values()].flat()).map((row) => row.accuracy));
    const level = Math.max(5, Math.min(90, 5 * Math.floor(20 * best)));
    const field = (name, max, value) => el("input", { type: "range", name, min: name === "level" ? 1 : 0, max, value, oninput: () => tell() });
    const [at, to] = [field("budget", budgets.length - 1, budgets.length >> 1), field("level", 100, level)];
    const [saidAt, saidTo] = [el("output"), el("output")];
    const table = el("table", { class: "reached" }, el("thead"), el("tbody"));
    const cell = (text, beside = "") => el("td", beside && { "data-interval": beside }, text, beside && el("small", {}, beside));
    const tell = () => {
      const [budget, wanted] = [budgets[at.value], to.value / 100];
      saidAt.textContent = budget.toLocaleString("en-US") + " tokens";
      saidTo.textContent = to.value + "%";
      const usual = base && reach(base, wanted);
      const told = [...lines].map(([arm, line]) => ({ arm, row: line.find((one) => one.budget === budget), tokens: reach(line, wanted) }))
        .sort((a, b) => rank(a.arm) - rank(b.arm));
      const names = ["arm", `Acc (%) at ${saidAt.textContent}`, `tokens at ${to.value}%`, ...(base ? [`vs. ${what.baseline}`] : [])];
      table.tHead.replaceChildren(el("tr", { class: "only" }, names.map((name) => el("th", { scope: "col" }, name))));
      table.tBodies[0].replaceChildren(...told.map(({ arm, row, tokens }) => {
        const percent = (share) => (100 * share).toFixed(1);
        const range = row && row.high > row.low ? `[${percent(row.low)}, ${percent(row.high)}]` : "";
        const change = tokens === null || !usual ? "–" : arm === what.baseline ? "" : Math.round(100 * (tokens / usual - 1));
        const signed = typeof change === "number" ? (change > 0 ? "+" : "") + `${change}%`.replace("-", "−") : change;
        return el("tr", {}, el("th", { class: "name", scope: "row", "data-arm": arm }, key(place, arm), arm), cell(row ? percent(row.accuracy) : "–", range),
          cell(tokens === null ? "–" : Math.round(tokens).toLocaleString("en-US")), base ? cell(signed) : null);
      }));
      sortable(table);
    };
    tell();
    figure.append(el("details", { class: "asking" }, el("summary", {}, "Tokens for an accuracy, accuracy at a budget"),
      el("div", { class: "inside" }, el("div", { class: "filters" }, el("label", {}, "to reach", to, saidTo), el("label", {}, "cut at", at, saidAt)),
        el("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Tokens for an accuracy" }, table))));
    offer(table);
  };

  // A chart as a file: with its title, its caption and one legend of the arms that are shown, light, and its texts as text.
  const WIDTH = 720;
  const wrapped = (text, letters) => text.split(/\s+/).reduce((lines, one) => {
    const longer = (lines.at(-1) + " " + one).trim();
    return longer.length > letters ? [...lines, one] : [...lines.slice(0, -1), longer];
  }, [""]);
  const caption = (place) => {
    const told = place.closest("header.top")?.querySelector(".note") ?? place.closest("section")?.querySelector(".about");
    const words = told?.cloneNode(true);
    for (const aside of words?.querySelectorAll("[hidden]") ?? []) aside.remove();
    return wrapped(words?.textContent.trim() ?? "", 112);
  };
  const picture = async (place, kind) => {
    const name = place.dataset.chart;
    const group = place.closest("[data-group]");
    const off = hidden(group ?? place);
    // A legend without entries has no size, and neither would the picture.
    const shown = (node) => {
      if (!node.legend || node.field !== "arm") return node.legend;
      const values = node.scale.domain.filter((arm) => !off.includes(arm)).sort((a, b) => rank(a) - rank(b));
      return values.length ? { ...node.legend, values } : null;
    };
    const spec = scaled(place, mapped(filled(charts[name], { clientWidth: WIDTH }), (node) => keyed(node, shown)));
    const study = document.querySelector("h1")?.textContent;
    for (const rowsOf of charts[name].rows) spec.datasets[rowsOf] = structuredClone(shaped(place, rowsOf));
    const said = [study, typeof spec.title === "string" ? spec.title : spec.title?.text].filter(Boolean).join(": ");
    const title = { text: said, subtitle: caption(place), limit: WIDTH, anchor: "start", subtitlePadding: 6 };
    const config = { ...configs.light, background: "white", padding: 12 };
    const box = document.createElement("div");
    const { view, finalize } = await vegaEmbed(box, { ...spec, title, width: WIDTH }, { mode: "vega-lite", renderer: "svg", ast: true, actions: false, config });
    if (group) apply(view, group);
    await view.runAsync();
    const blob = kind === "SVG" ? new Blob([await view.toSVG()], { type: "image/svg+xml" })
      : await view.toCanvas(2).then((canvas) => new Promise((done) => canvas.toBlob(done, "image/png")));
    finalize();
    const link = el("a", { href: URL.createObjectURL(blob), download: `${name}.${kind.toLowerCase()}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  const leave = (place) => {
    const figure = place.closest("figure");
    if (!figure || figure.querySelector(".tools")) return;
    const title = charts[place.dataset.chart].spec.title;
    const label = (kind) => `Save ${typeof title === "string" ? title : place.dataset.chart} as ${kind}`;
    const files = ["SVG", "PNG"].map((kind) => el("button", { type: "button", "data-save": kind, title: label(kind), "aria-label": label(kind),
      onclick: () => picture(place, kind) }, kind));
    const axes = Object.keys(crossed(place)?.axes ?? {});
    const group = place.closest("[data-group]");
    const other = () => axes.find((axis) => axis !== (group.dataset.axis ?? axes[0]));
    const turn = axes.length && group && el("button", { type: "button", "data-turn": true, onclick: () => {
      group.dataset.axis = other();
      for (const each of group.querySelectorAll("[data-turn]")) each.textContent = other() + " budgets";
      for (const told of (group.closest("header.top") ?? group).querySelectorAll("span[data-axis]")) told.hidden = told.dataset.axis !== group.dataset.axis;
      drawAll();
    } }, other() + " budgets");
    figure.append(el("div", { class: "tools" }, turn || null, files));
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
    place.addEventListener("pointerdown", (event) => { if (places().length) show(nearest(event)); });
    // A finger that is lifted leaves what it pointed at.
    place.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
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
    // The number of the filled area is that of the arm whose gap is filled.
    const area = (group.closest("header.top") ?? group).querySelector("[data-areas]");
    const first = area?.textContent;
    const set = (arm) => {
      if (area) area.textContent = JSON.parse(area.dataset.areas)[arm] ?? first;
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
  // A cell's number with its star, and the number alone in signs of ASCII; nothing for what is missing.
  const plain = (cell) => {
    const shown = cell.cloneNode(true);
    for (const beside of shown.querySelectorAll(".up, .tag, small")) beside.remove();
    return shown.textContent;
  };
  const bare = (text) => text === "–" ? "" : text.replace(/[*,]/g, "").replace(/−/g, "-");
  // The head of a column of numbers, and that of the arms, is a button that orders the page by the column: the better end
  // first, then the other; arms without a number are last. The baseline's difference from itself is 0.
  const sortable = (table) => {
    const cells = [...table.tBodies[0].rows].map((row) => [row.querySelector("[data-arm]")?.dataset.arm, row.cells]);
    if (!cells.length || cells.some(([arm]) => arm === undefined)) return;
    const baseline = [...document.querySelectorAll("[data-arm] .tag")].find((one) => one.textContent === "baseline")?.closest("[data-arm]").dataset.arm;
    const value = (head, arm, cell) => {
      if (!head.cellIndex) return arm;
      const text = bare(plain(cell)).replace("%", "").trim();
      return text ? Number(text) : /\bvs\. /.test(head.textContent) && arm === baseline ? 0 : NaN;
    };
    const sort = (head) => {
      const values = new Map([...cells].reverse().map(([arm, row]) => [arm, value(head, arm, row[head.cellIndex])]));
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : /↑|^Acc/.test(head.textContent);
      const known = order.filter((arm) => values.has(arm) && !Number.isNaN(values.get(arm)));
      const above = (a, b) => (head.cellIndex ? a - b : a.localeCompare(b));
      known.sort((a, b) => (down ? -1 : 1) * above(values.get(a), values.get(b)));
      order = [...known, ...order.filter((arm) => !known.includes(arm))];
      for (const other of document.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      arrange();
    };
    for (const head of table.tHead.rows[table.tHead.rows.length - 1].querySelectorAll("th:not([data-arm])")) {
      const column = cells.map(([, row]) => row[head.cellIndex]);
      const numbers = column.some((cell) => cell && !cell.matches(".text, th") && bare(plain(cell)) && !Number.isNaN(Number(bare(plain(cell)).replace("%", ""))));
      if (!head.cellIndex || numbers) head.replaceChildren(el("button", { type: "button", onclick: () => sort(head) }, ...head.childNodes));
    }
  };
  // A table leaves the page as it stands in it: its heads, and of every cell the number with its star and its interval.
  const texts = (table) => {
    const head = [...table.tHead.rows].map((row) => [...row.cells].map((cell) => [cell.textContent.replace(/ [↑↓]$/, ""), cell.colSpan]));
    const cells = (row) => [...row.cells].map((cell) => [plain(cell), cell.dataset.interval ?? ""]);
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
    const rows = table.body.map(([[first], ...cells]) => [name(first), ...cells.map(([text]) => bare(text))]);
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
    table.parentElement.after(el("div", { class: "copies" }, "Copy as", buttons, said), shown);
  };
  document.querySelectorAll("table.results").forEach(offer);
  document.querySelectorAll("main table").forEach(sortable);
  // At first the page stands by REG, or without a score by accuracy.
  const heads = [...document.querySelectorAll("#results .results thead th")].filter((head) => head.querySelector("button"));
  const first = [/^~?REG ↓/, /^Acc/].map((name) => heads.find((head) => name.test(head.textContent))).find((head) => head);
  first?.setAttribute("aria-sort", /^Acc/.test(first.textContent) ? "descending" : "ascending");
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
