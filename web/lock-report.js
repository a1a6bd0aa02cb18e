// SPDX-License-Identifier: Apache-2.0
// The report of a lock scenario.
// It follows report.js in the script of report.html.

const appetites = [...new Set(study.runs.map(run => run.appetite))];

function element(name, attributes, text) {
  return (["svg", "path", "line", "text", "circle"].includes(name) ? node : html)(name, attributes, null, text);
}

// A figure with lines of [x, y], both axes from `low` on; scales may be logarithmic.
function figure(id, caption, lines, axes) {
  const W = 480, H = 260, L = 58, R = 12, T = 10, B = 34;
  const put = (axis, from, to) => {
    const warp = axis.log ? Math.log10 : value => value;
    const [a, b] = [warp(axis.low), warp(axis.high)];
    return value => from + (warp(Math.max(value, axis.low)) - a) / (b - a || 1) * (to - from);
  };
  const x = put(axes.x, L, W - R), y = put(axes.y, H - B, T);
  const box = element("figure", {id});
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": caption,
                              "font-size": 11, fill: css("--soft")});
  box.append(element("figcaption", {}, caption), svg);
  for (const value of axes.y.ticks) {
    svg.append(element("line", {x1: L, x2: W - R, y1: y(value), y2: y(value),
                                stroke: "var(--line)"}),
               element("text", {x: L - 6, y: y(value) + 4, "text-anchor": "end"},
                       axes.y.name(value)));
  }
  for (const value of axes.x.ticks) {
    svg.append(element("text", {x: x(value), y: H - B + 16, "text-anchor": "middle"},
                       axes.x.name(value)));
  }
  svg.append(element("text", {x: W - R, y: H - 4, "text-anchor": "end"}, axes.x.title));
  const path = (points, join) =>
    "M" + points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(join);
  for (const line of lines) {
    // A point is a stroke of length 0.
    const shape = axes.points
      ? {d: path(line.points, "h0M") + "h0", "stroke-width": 4, "stroke-linecap": "round",
         "stroke-opacity": .6}
      : {d: path(line.points, "L"), "stroke-width": 1.8};
    svg.append(element("path", {"class": "series", fill: "none", stroke: policyColour(line.policy),
                                ...shape}));
  }
  if (axes.mark) {
    svg.append(element("path", {"class": "mark", d: path(axes.mark, "L"), fill: "none",
                                stroke: "var(--soft)", "stroke-dasharray": "5 4"}));
  }
  return box;
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

  for (const appetite of appetites) {
    const runs = study.runs.filter(run => run.appetite === appetite);
    const length = Math.max(...runs.map(run => run.granted.length));
    const seconds = {low: 0, high: length, ticks: steps(length).filter(at => at <= length),
                     name: Math.round, title: "seconds"};
    const shares = steps(Math.max(1.3, ...runs.map(run => run.granted_most)));
    // The square root of the rate, scaled to the total of the first policy.
    const held = [...runs[0].held].sort((a, b) => a[0] - b[0]);
    const sum = pick => held.reduce((all, one) => all + pick(one), 0);
    const scale = sum(one => one[1]) / sum(one => Math.sqrt(one[0]));
    const grid = section(body, `Appetite: ${appetite}`, "",
      parent => legendOf(parent, runs.map(run => [run.policy, policyColour(run.policy)])));
    const line = (run, points) => ({policy: run.policy, points});
    grid.append(
      figure(`granted-${appetite}`, "Granted locks, percent of the limit",
             runs.map(run => line(run, run.granted.map((g, i) => [i + 1, g / study.limit]))),
             {x: seconds, mark: [[0, 1], [length, 1]],
              y: {low: 0, high: shares[shares.length - 1], ticks: shares,
                  name: value => Math.round(value * 100) + " %"}}),
      figure(`volume-${appetite}`, "Volume",
             runs.map(run => line(run, run.volume.map((v, i) => [i + 1, v]))),
             {x: seconds, y: logarithmic(runs.flatMap(run => run.volume), "")}),
      figure(`held-${appetite}`, "Locks of a client by its rate of use; dashed: proportional to the square root of the rate",
             runs.map(run => line(run, run.held)),
             {points: true, mark: held.map(([rate]) => [rate, scale * Math.sqrt(rate)]), x: logarithmic(runs.flatMap(run => run.held.map(h => h[0])), "uses per second"),
              y: logarithmic(runs.flatMap(run => run.held.map(h => h[1])), "")}));
  }
}
show(draw, "Made by weir sim.");
