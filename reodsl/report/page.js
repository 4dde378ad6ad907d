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
    // Vega calls its drawing a document of graphics; what is heard is the description.
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    const group = place.closest("[data-group]");
    if (group) apply(result.view, group);
  };
  const hidden = (group) => [...group.querySelectorAll("button[data-arm][aria-pressed=false]")].map((each) => each.dataset.arm);
  const apply = (view, group) => { try { view.signal("off", hidden(group)).runAsync(); } catch { /* a chart without arms */ } };
  const light = (view, arm) => { try { view.signal("focus", arm).runAsync(); } catch { /* a chart without arms */ } };
  const drawAll = () => Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));

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
    for (const button of group.querySelectorAll("button[data-show]"))
      button.addEventListener("click", () => {
        for (const other of group.querySelectorAll("button[data-show]"))
          other.setAttribute("aria-pressed", String(other === button));
        for (const figure of group.querySelectorAll("figure[data-kind]"))
          figure.hidden = figure.dataset.kind !== button.dataset.show;
        drawAll();
      });
  }
  // The columns that stay while the others are scrolled: arm and Average, where they leave the others room.
  const hold = () => {
    for (const table of document.querySelectorAll("table.results")) {
      const room = table.parentElement.clientWidth;
      const rows = [...table.rows];
      const kept = rows.at(-1)?.querySelectorAll(".fixed") ?? [];
      const wide = [...kept].reduce((sum, cell) => sum + cell.offsetWidth, 0);
      for (const row of rows) {
        let left = 0;
        for (const cell of row.querySelectorAll(".fixed")) {
          const holds = wide < 0.8 * room || cell.matches(".name");
          cell.style.position = holds ? "sticky" : "static";
          cell.style.left = holds ? left + "px" : "";
          left += cell.offsetWidth;
        }
      }
    }
  };
  hold();
  addEventListener("resize", hold);
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
  for (const button of document.querySelectorAll("button[data-copy]"))
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy);
      const said = button.parentElement.querySelector("[role=status]");
      try {
        await navigator.clipboard.writeText(text.textContent);
        said.textContent = "copied";
      } catch {
        text.hidden = false;
        getSelection().selectAllChildren(text);
        said.textContent = "selected: copy it with the keyboard";
      }
    });
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    drawAll();
  });
  preference.addEventListener("change", drawAll);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", drawAll);
  drawAll().then(() => { root.dataset.ready = "yes"; });
})();
