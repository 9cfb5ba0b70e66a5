"use strict";
(() => {
  const root = document.documentElement;
  const pictures = JSON.parse(document.getElementById("pictures").textContent);
  const figures = [...document.querySelectorAll(".figure")];
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

  // "@muted" becomes the page's colour of that name, wherever it stands.
  function painted(value, style) {
    if (typeof value === "string") {
      return value.startsWith("@") ? style.getPropertyValue("--" + value.slice(1)).trim() || value : value;
    }
    if (Array.isArray(value)) return value.map((element) => painted(element, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, element]) => [name, painted(element, style)]));
    }
    return value;
  }

  function axis(own, style) {
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    return {
      gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), tickcolor: colour("line"),
      automargin: true, ...own, title: { standoff: 10, font: { size: 12, color: colour("muted") }, ...(own?.title ?? {}) },
    };
  }

  function layoutOf(own, style, width) {
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const painting = painted(own, style);
    return {
      height: 420, ...painting, width: undefined, autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("text") },
      margin: { l: 56, r: 16, t: 16, b: 48 },
      legend: { orientation: "h", traceorder: "normal", yanchor: "bottom", y: 1.02, xanchor: "left", x: 0, font: { size: width < 500 ? 11 : 12 } },
      uniformtext: { mode: "hide", minsize: 10 },
      hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("text") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("line"), activecolor: colour("accent"), orientation: "v" },
      xaxis: axis(painting.xaxis, style), yaxis: axis(painting.yaxis, style),
    };
  }

  async function draw(figure) {
    const choice = figure.parentElement.querySelector("select");
    const picture = pictures[figure.dataset.panel][choice ? Number(choice.value) : 0];
    const style = getComputedStyle(root);
    // Plotly writes into what it is given.
    const traces = painted(picture.traces, style);
    await Plotly.react(figure, traces, layoutOf(picture.layout, style, figure.clientWidth), config);
    figure.dataset.drawn = picture.label || "yes";
  }

  async function drawAll() {
    for (const figure of figures) await draw(figure);
    root.dataset.drawn = String(figures.length);
  }

  for (const figure of figures) {
    figure.parentElement.querySelector("select")?.addEventListener("change", () => draw(figure));
  }
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
    root.dataset.theme = dark ? "light" : "dark";
    drawAll();
  });
  prefersDark.addEventListener("change", drawAll);
  drawAll();
})();
