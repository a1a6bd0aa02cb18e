// SPDX-License-Identifier: Apache-2.0
// The report of a lock scenario.
// It follows report.js in the script of report.html.

const appetites = [...new Set(study.runs.map(run => run.appetite))];

// A figure with lines or points [x, y]; scales may be logarithmic.
function figure(parent, { id, title, lines, x, y, mark, hasPoints }) {
  const svg = frame(parent, id, title);
  const box = boxOf(H);
  const put = (axis, from, to) => {
    const warp = axis.log ? Math.log10 : value => value;
    const map = scale(warp(axis.low), warp(axis.high), from, to);
    return value => map(warp(Math.max(value, axis.low)));
  };
  const across = put(x, box.left, box.right), up = put(y, box.bottom, box.top);
  axes(svg, box, { ticks: y.ticks, map: up }, y.title, y.name);
  const text = { "text-anchor": "middle", "font-size": 13, fill: css("--soft") };
  for (const value of x.ticks) node("text", { ...text, x: across(value), y: box.bottom + 19 }, svg, x.name(value));
  node("text", { ...text, x: (box.left + box.right) / 2, y: box.bottom + 38 }, svg, x.title);
  const path = (points, join) =>
    "M" + points.map(([a, b]) => `${across(a).toFixed(1)},${up(b).toFixed(1)}`).join(join);
  for (const line of lines) {
    // A point is a stroke of length 0.
    const shape = hasPoints
      ? { d: path(line.points, "h0M") + "h0", "stroke-width": 4, "stroke-linecap": "round", "stroke-opacity": .6 }
      : { d: path(line.points, "L"), "stroke-width": 2.4 };
    node("path", { class: "series", fill: "none", stroke: policyColour(line.policy), ...shape }, svg);
  }
  if (mark) {
    node("path", { class: "mark", d: path(mark, "L"), fill: "none", stroke: css("--soft"),
      "stroke-dasharray": "5 4" }, svg);
  }
}

const short = value => value >= 1e6 ? value / 1e6 + " M" : value >= 1e3 ? value / 1e3 + " k"
                     : String(value);
// From 0 to `high` or just above, in about five steps that are easy to read.
const steps = high => {
  const rough = high / 5, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find(one => one * unit >= rough) * unit;
  return Array.from({length: Math.ceil(high / step) + 1}, (_, i) => i * step);
};
const decadesOf = (low, high) => {
  const found = [];
  for (let at = Math.floor(Math.log10(low)); at <= Math.ceil(Math.log10(high)); ++at) {
    found.push(10 ** at);
  }
  return found;
};
const logarithmic = (values, title) => {
  const marks = decadesOf(Math.max(1e-3, Math.min(...values)), Math.max(...values, 1e-2));
  return {log: true, low: marks[0], high: marks[marks.length - 1], ticks: marks, name: short, title};
};

function draw(body) {
  document.title = "Weir simulation: locks";
  document.getElementById("title").textContent = study.title || study.scenario;
  document.getElementById("subtitle").textContent = `${study.clients} clients, a limit of ${study.limit} locks, seed ` +
    `${study.seed}. Least, mean and most cover the time after ${study.settled_s} s.`;
  const columns = [["appetite", run => run.appetite], ["policy", run => run.policy],
    ["least", run => percent(run.settled_least)], ["mean", run => percent(run.settled_mean)],
    ["most", run => percent(run.settled_most)], ["ever", run => percent(run.granted_most)],
    ["off its share", run => percent(run.proportion_error)],
    ["hits", run => percent(run.uses ? run.hits / run.uses : 0)],
    ["messages", run => run.messages], ["dropped for volume", run => run.cancels_for_volume],
    ["lost", run => run.lost]];
  tableOf(body, columns.map(([name]) => name), study.runs.map(run => columns.map(([, value]) => value(run))));

  notes(body, ["Least, mean and most: granted locks, of the limit. Ever: the most at any time.",
    "Off its share: how far the locks of the worst client are from its share, which is proportional to the " +
    "square root of its rate of use.",
    "Hits: uses that needed no message. Dropped for volume: locks that clients gave up because of the volume. " +
    "Lost: locks lost because a lease expired or a replay failed."]);

  for (const appetite of appetites) {
    const runs = study.runs.filter(run => run.appetite === appetite);
    const length = Math.max(...runs.map(run => run.granted.length));
    const seconds = {low: 0, high: length, ticks: steps(length).filter(at => at <= length),
                     name: Math.round, title: "seconds"};
    const shares = steps(Math.max(1.3, ...runs.map(run => run.granted_most)));
    // The square root of the rate, scaled to the total of the first policy.
    const held = [...runs[0].held].sort((a, b) => a[0] - b[0]);
    const sum = pick => held.reduce((all, one) => all + pick(one), 0);
    const scaled = sum(one => one[1]) / sum(one => Math.sqrt(one[0]));
    const grid = section(body, `Appetite: ${appetite}`, "",
      parent => legendOf(parent, runs.map(run => [run.policy, policyColour(run.policy)])));
    const line = (run, points) => ({policy: run.policy, points});
    figure(grid, { id: `granted-${appetite}`, title: "Granted locks", x: seconds, mark: [[0, 1], [length, 1]],
      lines: runs.map(run => line(run, run.granted.map((g, i) => [i + 1, g / study.limit]))),
      y: { low: 0, high: shares[shares.length - 1], ticks: shares, title: "of the limit",
           name: value => Math.round(value * 100) + " %" } });
    figure(grid, { id: `volume-${appetite}`, title: "Volume", x: seconds,
      lines: runs.map(run => line(run, run.volume.map((v, i) => [i + 1, v]))),
      y: logarithmic(runs.flatMap(run => run.volume), "volume, logarithmic") });
    figure(grid, { id: `held-${appetite}`, title: "Locks of a client by its rate of use", hasPoints: true,
      lines: runs.map(run => line(run, run.held)), mark: held.map(([rate]) => [rate, scaled * Math.sqrt(rate)]),
      x: logarithmic(runs.flatMap(run => run.held.map(h => h[0])), "uses per second"),
      y: logarithmic(runs.flatMap(run => run.held.map(h => h[1])),
                     "locks; dashed: proportional to the square root of the rate") });
  }
}
show(draw, "Made by weir sim.");
