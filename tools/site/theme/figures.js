// Plotly's figures, drawn in the page's colours where a cell printed one.
for (const place of document.querySelectorAll(".figure")) {
  const { data, layout } = JSON.parse(place.firstElementChild.textContent);
  const target = document.createElement("div");
  place.append(target);
  delete layout.width;
  const ink = getComputedStyle(document.body).getPropertyValue("--md-typeset-color") || "#777";
  const quiet = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink }, autosize: true };
  Plotly.newPlot(target, data, { ...layout, ...quiet }, { responsive: true, displaylogo: false });
}
