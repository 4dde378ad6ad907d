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

  // A chart's rows stand in the page once, however many charts show them. Vega writes into rows: each chart gets its own.
  const filled = ({ spec, rows: names }) => ({
    ...spec, datasets: Object.fromEntries(names.map((name) => [name, structuredClone(rows[name])])),
  });
  const visible = (place) => place.offsetParent !== null;

  const draw = async (place) => {
    const name = place.dataset.chart;
    const style = dark() ? "dark" : "light";
    if (!visible(place) || place.dataset.drawn === style) return;
    place.dataset.drawn = style;
    views.get(place)?.finalize();
    const result = await vegaEmbed(place, filled(charts[name]), {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, config: configs[style], tooltip: { theme: "custom" },
    });
    views.set(place, result.view);
    const focus = place.closest("[data-focus]")?.dataset.focus;
    if (focus) light(result.view, focus);
  };
  const light = (view, arm) => { try { view.signal("focus", arm).runAsync(); } catch { /* a chart without arms */ } };
  const drawAll = () => Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));

  for (const group of document.querySelectorAll("[data-group]")) {
    const set = (arm) => {
      for (const place of group.querySelectorAll("[data-chart]")) if (views.has(place)) light(views.get(place), arm);
    };
    for (const button of group.querySelectorAll("button[data-arm]")) {
      button.addEventListener("mouseenter", () => set(button.dataset.arm));
      button.addEventListener("mouseleave", () => set(group.dataset.focus ?? ""));
      button.addEventListener("click", () => {
        const chosen = group.dataset.focus === button.dataset.arm ? "" : button.dataset.arm;
        group.dataset.focus = chosen;
        for (const other of group.querySelectorAll("button[data-arm]"))
          other.setAttribute("aria-pressed", String(other.dataset.arm === chosen));
        set(chosen);
      });
    }
    for (const button of group.querySelectorAll("button[data-show]"))
      button.addEventListener("click", () => {
        for (const other of group.querySelectorAll("button[data-show]"))
          other.setAttribute("aria-pressed", String(other === button));
        for (const figure of group.querySelectorAll("figure[data-kind]"))
          figure.hidden = figure.dataset.kind !== button.dataset.show;
        drawAll();
      });
  }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    drawAll();
  });
  preference.addEventListener("change", drawAll);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", drawAll);
  drawAll().then(() => { root.dataset.ready = "yes"; });
})();
