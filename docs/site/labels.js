// Mend what the theme leaves: blocks of code and groups of the navigation without names, wide tables, empty headings.
function label() {
  const taken = new Map();
  for (const nav of document.querySelectorAll("nav")) {
    const named = document.getElementById(nav.getAttribute("aria-labelledby") || "");
    const text = (nav.getAttribute("aria-label") || (named && named.textContent) || (nav.matches(".md-code__nav") ? "Code" : "Pages")).trim();
    const count = (taken.get(text) || 0) + 1;
    taken.set(text, count);
    if (count === 1 && (named || nav.hasAttribute("aria-label"))) continue;
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", count === 1 ? text : `${text} ${count}`);
  }
  // The corner of a table is no heading.
  for (const head of document.querySelectorAll("th")) {
    if (!head.textContent.trim()) head.replaceWith(document.createElement("td"));
  }
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset .math, .md-typeset pre > code")) {
    if (table.scrollWidth > table.clientWidth) table.setAttribute("tabindex", "0");
  }
}
addEventListener("load", () => setTimeout(label));
