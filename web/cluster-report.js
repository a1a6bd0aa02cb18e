// SPDX-License-Identifier: Apache-2.0
// The report of simulations of many servers, as sections of tables and figures (cluster_study.cc).
// It follows report.js in the script of report.html.

const whole = value => (value * 100).toFixed(0) + " %";
const coloured = (series, byPolicy) => series.map((one, i) =>
  ({ ...one, colour: byPolicy ? policyColour(one.name) : jobColour(i), dash: byPolicy ? "" : dashes[i % 8] }));

function drawSection(body, part) {
  const names = part.bars.length ? part.bars[0].series.map(one => one.name) : [];
  html("h2", {}, body, part.title);
  html("p", { class: "note" }, body, part.note);
  if (part.table) tableOf(body, part.table.columns, part.table.rows);
  if (part.notes) notes(body, part.notes);
  const byServer = part.lines.find(figure => !figure.by_policy && figure.series.length > 1);
  if (byServer) legendOf(body, byServer.series.map((one, i) => [one.name, jobColour(i)]));
  const grid = html("div", { class: "grid" }, body);
  for (const figure of part.lines) {
    const series = coloured(figure.series, figure.by_policy);
    const values = series.flatMap(one => one.values);
    lines(grid, { id: figure.id, title: figure.title, yLabel: figure.y_label, series, x: figure.x,
      xLabel: figure.x_label || "time, s", yFormat: figure.percent ? whole : digits,
      named: series.length > 1 && series.length < 6, reference: figure.reference,
      referenceName: figure.reference_name, high: top([...values, figure.reference || 0].map(v => v * 1.05)) });
  }
  if (part.bars.length) legendOf(body, names.map(name => [name, policyColour(name)]));
  const more = part.bars.length ? html("div", { class: "grid" }, body) : null;
  for (const figure of part.bars) {
    const series = coloured(figure.series, true);
    bars(more, { id: figure.id, title: figure.title, yLabel: figure.y_label, groups: figure.groups, series,
      neutral: true, high: top(series.flatMap(one => one.values).map(v => v * 1.06)) });
  }
}
function draw(body) {
  document.title = `${study.title} – Weir simulation`;
  document.getElementById("title").textContent = study.title;
  document.getElementById("subtitle").textContent = study.subtitle;
  for (const part of study.sections) drawSection(body, part);
}
show(draw, "Made by weir sim.");
