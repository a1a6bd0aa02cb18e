// SPDX-License-Identifier: Apache-2.0
// The report of weir sim: figures of each policy, job and period.
// It follows report.js in the script of report.html.

const policies = study.policies;

// A figure with more lines cannot be read.
const kJobsShown = 12;
const most = policies[0].jobs.map((job, i) => [job.cost, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1])
  .slice(0, kJobsShown).map(([, i]) => i).sort((a, b) => a - b);
const hidden = policies[0].jobs.length - most.length;
if (hidden) {
  for (const policy of policies) {
    policy.jobs = most.map(i => policy.jobs[i]);
    for (const key of Object.keys(policy.periods || {})) policy.periods[key] = most.map(i => policy.periods[key][i]);
  }
}
const jobs = policies[0].jobs.map(job => ({ name: job.name, nodes: job.nodes }));

// Where the AdapTBF paper has the same figure, and what differs from it.
const model = "The paper measured a Lustre server with real clients; here clients and the device are simulated, " +
  "and a request takes the same time under every policy. ";
const byClock = "Bursts come by the clock here, so a burst that is served late does not delay the next one, and " +
  "the gains of bursty jobs are small as long as their work is done in the end; latency shows the difference. " +
  "Clients of ./dev demo, like those of the paper, wait for a burst to end, and gain 50 to 80 %.";
const paper = { allocation: { throughput: "Figure 3", gain: "Figure 4", differs: model },
  redistribution: { throughput: "Figure 5", gain: "Figure 6", differs: study.on_server
    ? "The load is the paper's IV-E, scaled to this machine; the server is weir serve instead of Lustre."
    : model + byClock },
  recompensation: { records: "Figure 7", gain: "Figure 8", differs: model +
    "Bursts come by the clock here; the continuous work of each job is endless." },
  "period-sweep": { records: "Figure 7", gain: "Figure 8", sweep: "Section IV-H", differs: model },
}[study.scenario];
const compare = what => paper && paper[what] ? ` ${paper[what]} of the AdapTBF paper.` : "";

const policyLegend = parent => legendOf(parent, policies.map(p => [name(p), policyColour(p.policy)]));
const name = policy => policy.policy + (policy.period_ms ? ` (${policy.period_ms} ms)` : "");

function summary(parent) {
  html("h2", {}, parent, "At a glance");
  html("p", { class: "note" }, parent, "Share and entitlement: of all that was served, and by nodes, over the " +
    "time in which every continuous job has work. A job that asks for less than its entitlement gets less. " +
    "Record: tokens lent (+) or borrowed (–) at the end. Utilisation: what was served, of what the capacity " +
    "allows. Jain: index of fairness over what each job got / its " +
    "fair part, which is the same for each node, but never more than the job asked for; 1 if all got " +
    "their fair part, 1/n if one of n jobs got everything, – if the demand is not known.");
  const table = html("table", { id: "summary" }, html("div", { class: "scroll" }, parent));
  const head = html("tr", {}, html("thead", {}, table));
  for (const text of ["policy", "job", "requests/s", "share", "entitled", "wait p50", "wait p99",
                      "latency p50", "latency p99", "record", "utilisation", "Jain"]) {
    html("th", text === "job" ? { class: "name" } : {}, head, text);
  }
  const body = html("tbody", {}, table);
  for (const policy of policies) {
    policy.jobs.forEach((job, i) => {
      const row = html("tr", { class: i ? "" : "first" }, body);
      const first = html("td", { class: "name" }, row);
      if (!i) html("b", {}, first, name(policy));
      const called = html("td", { class: "name" }, row);
      html("span", { class: "swatch", style: `background:${jobColour(i)}` }, called);
      called.append(job.name);
      for (const text of [digits(job.throughput), percent(job.share), percent(job.entitlement),
                          time(job.wait_p50_ms), time(job.wait_p99_ms), time(job.latency_p50_ms),
                          time(job.latency_p99_ms), digits(job.record)]) {
        html("td", {}, row, text);
      }
      html("td", {}, row, i ? "" : percent(policy.utilisation, 2));
      html("td", {}, row, i ? "" : policy.jain == null ? "–" : policy.jain.toFixed(3));
    });
  }
}

function overTime(parent) {
  const grid = section(parent, "Throughput over time",
    "Throughput of each job under each policy, all on the same scale." + compare("throughput"));
  const high = top([study.total_capacity * 1.05,
                    ...policies.flatMap(p => p.jobs.flatMap(job => job.series))]);
  for (const policy of policies) {
    lines(grid, {
      id: "throughput-" + policy.policy, title: name(policy), yLabel: study.unit, xLabel: "time, s", high,
      x: policy.jobs[0].series.map((_, i) => i * policy.bin_s),
      series: policy.jobs.map((job, i) => ({ name: job.name, colour: jobColour(i), dash: dashes[i % 8], values: job.series })),
      reference: study.total_capacity, referenceName: "capacity",
    });
  }
  // All jobs together, for as long as the longest run.
  const longest = policies.reduce((a, b) => a.duration_s > b.duration_s ? a : b);
  const x = longest.jobs[0].series.map((_, i) => i * longest.bin_s);
  const sum = policy => x.map((_, i) => i < policy.jobs[0].series.length
    ? policy.jobs.reduce((all, job) => all + job.series[i], 0) : null);
  lines(grid, { id: "throughput-all", title: "all jobs together", yLabel: study.unit, xLabel: "time, s", high, x,
    named: true,
    series: policies.map(p => ({ name: p.policy, colour: policyColour(p.policy), values: sum(p) })),
    reference: study.total_capacity, referenceName: "capacity" });
}

function recordsAndDemand(parent) {
  const adaptive = policies.filter(policy => policy.periods && policy.period_ms);
  if (!adaptive.length) return;
  const grid = section(parent, "Records and demand",
    "A positive record means that the job has lent tokens, a negative one that it has borrowed; all records sum to zero. Demand is the demand that the controller observed." + compare("records"));
  for (const policy of adaptive) {
    const { record, demand } = policy.periods;
    const x = record[0].map((_, i) => i * policy.bin_s);
    const all = record.flat();
    const span = Math.max(...all.map(Math.abs), 1);
    const series = values => values.map((one, i) => ({ name: jobs[i].name, colour: jobColour(i), dash: dashes[i % 8], values: one }));
    lines(grid, { id: "record-" + policy.policy, title: `${name(policy)}: records`, yLabel: "tokens lent (+) or borrowed (–)",
      xLabel: "time, s", x, series: series(record), low: -top([span]), high: top([span]) });
    lines(grid, { id: "demand-" + policy.policy, title: `${name(policy)}: demand`, yLabel: "tokens/s",
      xLabel: "time, s", x, series: series(demand), high: top(demand.flat()) });
  }
}

function perJob(parent) {
  const grid = section(parent, "Throughput of each job, and its gain against none",
    "Gain: throughput under a policy / throughput under none - 1." + compare("gain"), policyLegend);
  const names = jobs.map(job => job.name);
  bars(grid, { id: "bars-throughput", title: "Throughput", yLabel: "requests/s", groups: names,
    series: policies.map(p => ({ name: p.policy, colour: policyColour(p.policy), values: p.jobs.map(job => job.throughput) })),
    high: top(policies.flatMap(p => p.jobs.map(job => job.throughput)).map(v => v * 1.06)) });
  const none = policies.find(p => p.policy === "none");
  const others = policies.filter(p => p !== none);
  if (none && others.length) {
    const gain = p => p.jobs.map((job, i) => none.jobs[i].throughput > 0 ? job.throughput / none.jobs[i].throughput - 1 : null);
    const values = others.flatMap(gain).filter(v => v != null);
    const signed = v => (v > 0 ? "+" : "") + (v * 100).toFixed(Math.abs(v) < .0995 ? 1 : 0) + " %";
    bars(grid, { id: "bars-gain", title: "Gain or loss compared with none", yLabel: "throughput, relative", groups: names,
      yFormat: v => (v * 100).toFixed(0) + " %", label: signed,
      series: others.map(p => ({ name: p.policy, colour: policyColour(p.policy), values: gain(p) })),
      low: -top([Math.max(0.1, -Math.min(...values, 0) * 1.1)]), high: top([Math.max(0.1, ...values.map(v => v * 1.1))]) });
  }
  const late = policies.flatMap(p => p.jobs.map(job => job.latency_p99_ms)).filter(v => v > 0);
  bars(grid, { id: "bars-latency", title: "Latency, p99", yLabel: "ms, logarithmic", groups: names,
    series: policies.map(p => ({ name: p.policy, colour: policyColour(p.policy), values: p.jobs.map(job => job.latency_p99_ms) })),
    label: v => digits(v >= 10 ? Math.round(v) : v), log: true, low: 10 ** Math.floor(Math.log10(Math.max(Math.min(...late), .01))),
    high: 10 ** Math.ceil(Math.log10(Math.max(...late, .1) * 1.3)) });
  bars(grid, { id: "bars-utilisation", title: "Utilisation", yLabel: "of the capacity", groups: ["all jobs"], neutral: true,
    yFormat: v => (v * 100).toFixed(0) + " %", label: v => percent(v, 1),
    series: policies.map(p => ({ name: p.policy, colour: policyColour(p.policy), values: [p.utilisation] })), high: 1.1 });
}

function sweep(parent) {
  if (!study.sweep) return;
  const grid = section(parent, "How often the controller decides",
    "The same scenario with different control periods. Here a control round costs nothing, so the figures show only the effect of control." + compare("sweep"));
  const names = Object.keys(study.sweep);
  const x = study.sweep[names[0]].map(point => point.period_ms);
  const periodName = v => v >= 1000 ? v / 1000 + " s" : v + " ms";
  const axis = { x, xLog: true, xLabel: "period", xFormat: periodName };
  const total = names.map(p => ({ name: p, colour: policyColour(p), values: study.sweep[p].map(point => point.throughput) }));
  lines(grid, { ...axis, id: "sweep-throughput", title: "All jobs together", yLabel: "requests/s", series: total, named: true,
    high: top(total.flatMap(one => one.values).map(v => v * 1.03)) });
  const of = (p, key) => {
    const points = study.sweep[p];
    const group = points[0].groups ? "groups" : "jobs";
    return Object.keys(points[0][group]).map((job, i) => ({ name: job, colour: jobColour(i), dash: dashes[i % 8],
      values: points.map(point => point[group][job][key]) }));
  };
  for (const [key, title, unit, format] of [["throughput", "throughput", "requests/s", digits],
                                             ["latency_p99_ms", "latency, p99", "ms", digits]]) {
    const high = top(names.flatMap(p => of(p, key).flatMap(one => one.values)).map(v => v * 1.03));
    for (const p of names) {
      lines(grid, { ...axis, id: `sweep-${key}-${p}`, title: `${p}: ${title}`, yLabel: unit, yFormat: format,
        series: of(p, key), high });
    }
  }
}

function workload(parent) {
  if (!study.workload) return;
  html("h2", {}, parent, "Recorded workload");
  tableOf(parent, ["file", "format", "requests", "reads", "MiB", "length", "lines not understood"],
    study.workload.map(one => [one.file, one.format, one.requests, percent(one.reads / one.requests, 0),
      digits(one.bytes / 1048576), one.length_s + " s", one.not_understood]), { id: "workload" });
  const texts = study.workload.flatMap(one => one.notes.map(note => `${one.file}: ${note}`));
  for (const p of policies) {
    if (p.held_back) {
      texts.push(`${name(p)}: ${p.held_back.requests} requests were held back by up to ` +
        `${p.held_back.longest_s} s, because too many were outstanding`);
    }
    if (p.periods_left_out) texts.push(`${name(p)}: the last ${p.periods_left_out} periods are not in the figures`);
  }
  notes(parent, texts);
}

function draw(body) {
  document.title = `${study.scenario} – Weir simulation`;
  document.getElementById("title").textContent = study.title || study.scenario;
  document.getElementById("subtitle").textContent =
    [`scenario ${study.scenario}`, `capacity ${digits(study.total_capacity)} ${study.unit}`,
     study.length_s ? `${study.length_s} s` : "until all jobs are done",
     ...(study.on_server ? ["a server under real clients"]
       : [`service times ${study.service}`, `seed ${study.seed}`])].join(" · ");
  if (paper) html("p", { class: "note", id: "paper" }, body, paper.differs);
  if (hidden) html("p", { class: "note" }, body, `Figures show the ${jobs.length} jobs with the most work; ` +
    `result.json has the other ${hidden} too.`);
  workload(body);
  const legend = document.getElementById("legend");
  legend.replaceChildren();
  jobs.forEach((job, i) => {
    const item = html("li", {}, legend);
    html("i", { style: `border-color:${jobColour(i)}` }, item);
    item.append(job.name);
    html("small", {}, item, job.nodes === 1 ? "1 node" : `${job.nodes} nodes`);
  });
  sweep(body);
  overTime(body);
  recordsAndDemand(body);
  perJob(body);
  summary(body);
}
show(draw, "Made by weir sim. Wait: arrival to dispatch. Latency: arrival to completion.");
