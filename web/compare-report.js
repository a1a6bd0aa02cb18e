// SPDX-License-Identifier: Apache-2.0
// The report of weir sim compare: means, intervals and ranks.
// It follows report.js in the script of report.html.

const short = value => {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(6, Math.max(0, 2 - size)));
};
function cell(row, one) {
  const made = html("td", one && one.tied ? { class: "tied" } : {}, row, one ? short(one.mean) : "–");
  if (!one) return;
  if (one.half_width !== null) html("small", {}, made, " ±" + short(one.half_width));
  html("br", {}, made);
  html("small", {}, made, "rank " + one.rank);
}
function scenarioTable(parent, scenario) {
  html("h2", {}, parent, scenario.name + (scenario.title ? ": " + scenario.title : ""));
  const metrics = study.metrics.filter(metric => scenario.metrics[metric.name].length > 0);
  const table = tableOf(parent, ["policy", ...metrics.map(metric => metric.title)], []);
  table.querySelector("thead").classList.add("wrap");
  for (const policy of study.policies) {
    const row = html("tr", policy === "weir" ? { class: "weir" } : {}, table.querySelector("tbody"));
    const first = html("td", {}, row);
    html("span", { class: "swatch", style: `background:${policyColour(policy)}` }, first);
    first.append(policy);
    for (const metric of metrics) cell(row, scenario.metrics[metric.name].find(one => one.policy === policy));
  }
}
function draw(body) {
  document.title = "Weir: comparison of policies";
  document.getElementById("title").textContent = "Comparison of policies";
  document.getElementById("subtitle").textContent = "Command: " + study.command;
  html("p", { class: "note" }, body, "Each cell is the mean over the seeds ± its 95 % confidence interval, and below " +
    "it the rank. Coloured: the first, and all whose intervals overlap with it. A dash: " +
    "the policy has no such value; refusals are listed at the end.");
  for (const scenario of study.scenarios) scenarioTable(body, scenario);
  html("h2", {}, body, "What the metrics are");
  notes(body, study.metrics.map(metric => `${metric.title}: ${metric.explanation}`));
  html("h2", {}, body, "Not run");
  notes(body, study.refused.length ? study.refused.map(one => `${one.scenario}, ${one.policy}: ${one.why}`) : ["Nothing."]);
}
show(draw, "Made by weir sim compare.");
