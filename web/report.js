// SPDX-License-Identifier: Apache-2.0
// What all reports share: the results, colours, numbers, figures and parts of a page. The script of
// the report follows in the same file, report.html.

const study = JSON.parse(document.getElementById("study").textContent);

// Colours of Okabe and Ito, which people with red-green blindness can distinguish; lighter in dark
// mode. Policies have separate hues, so that no policy looks like a job.
const palette = {
  light: { jobs: ["#0072b2", "#d55e00", "#009e73", "#a3548a", "#b98400", "#3a9bd9", "#6b6b6b", "#8f2d56"],
           policies: { none: "#8c959f", static: "#c9a227", adaptbf: "#7d5ba6", weir: "#00718f", wfq: "#4f5b66",
                       mclock: "#b5541c", "sfq-d": "#2f8f4e", "sfq-d-auto": "#86ab3a", gift: "#c23b75",
                       themis: "#3b5fc0", "io-latency": "#7a4a21", "lustre-tbf": "#d9808f",
                       slices: "#00718f", fixed: "#c9a227", each: "#8c959f",
                       dld: "#c4560c", lustre: "#7d5ba6", frozen: "#8c959f" },
           others: ["#4d7c0f", "#b0305c", "#3b5fc0", "#a16207", "#0b7a75", "#64748b"] },
  dark: { jobs: ["#5ab4f0", "#ff9350", "#2fd6a3", "#e39bc6", "#f0c14b", "#9bd8ff", "#b8bfc6", "#e0789e"],
          policies: { none: "#8b949e", static: "#e3c04f", adaptbf: "#b79ae0", weir: "#4cc4de", wfq: "#c3ccd5",
                      mclock: "#f08a50", "sfq-d": "#5fcf82", "sfq-d-auto": "#b6db6a", gift: "#f07fae",
                      themis: "#8aa8ff", "io-latency": "#c99a6b", "lustre-tbf": "#ffb3bf",
                      slices: "#4cc4de", fixed: "#e3c04f", each: "#8b949e",
                      dld: "#ff9350", lustre: "#b79ae0", frozen: "#8b949e" },
          others: ["#a3d65c", "#f07fae", "#8aa8ff", "#f0c14b", "#4fd1c5", "#a9b4c2"] },
};
const dashes = ["", "", "", "", "", "", "6 3", "6 3"];
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
if (location.hash === "#dark" || location.hash === "#light") theme = location.hash.slice(1);

const jobColour = i => palette[theme].jobs[i % palette[theme].jobs.length];
// Policies without a colour of their own get one in the order in which they appear.
const unknown = [];
function policyColour(name) {
  const known = palette[theme].policies[name];
  if (known) return known;
  if (!unknown.includes(name)) unknown.push(name);
  return palette[theme].others[unknown.indexOf(name) % palette[theme].others.length];
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- numbers ----
// At most three digits.
const digits = value => {
  const size = Math.abs(value);
  if (size >= 999.5e3) return Number((value / 1e6).toPrecision(3)) + "M";
  if (size >= 999.5) return Number((value / 1000).toPrecision(3)) + "k";
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0)
       : size >= 1 ? value.toFixed(1) : value.toFixed(2);
};
const percent = (value, places = 1) => value == null ? "–" : (value * 100).toFixed(places) + " %";
const time = ms => ms == null ? "–" : ms >= 1000 ? (ms / 1000).toFixed(2) + " s"
                 : ms >= 100 ? ms.toFixed(0) + " ms" : ms.toFixed(1) + " ms";
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999);
  const out = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) {
    out.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  }
  return out;
}

// ---- drawing ----
const W = 600, H = 330;
const node = (name, attributes = {}, parent, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const html = (name, attributes = {}, parent, text) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};

function frame(parent, id, title, height = H, width = W) {
  const figure = html("figure", width > W ? { id, class: "wide" } : { id }, parent);
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title,
    "font-family": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" }, figure);
  node("title", {}, svg, title);
  node("text", { x: 4, y: 20, "font-size": 17, "font-weight": 600, fill: css("--ink") }, svg, title);
  const save = html("button", { type: "button", title: "Save this figure for a talk" }, figure, "SVG");
  save.onclick = () => {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const link = html("a", { download: id + ".svg",
      href: URL.createObjectURL(new Blob([copy.outerHTML], { type: "image/svg+xml" })) });
    link.click();
  };
  return svg;
}

function axes(svg, box, y, yLabel, yFormat) {
  const across = y.map;
  for (const t of y.ticks) {
    const zero = t === 0;
    node("line", { x1: box.left, x2: box.right, y1: across(t), y2: across(t), class: "rule",
      stroke: zero ? css("--soft") : css("--line"), "stroke-width": zero ? 1.2 : 1 }, svg);
    node("text", { x: box.left - 8, y: across(t) + 4.5, "text-anchor": "end", "font-size": 13,
      fill: css("--soft") }, svg, yFormat(t));
  }
  node("text", { x: 4, y: 42, "font-size": 13, fill: css("--soft") }, svg, yLabel);
}

const boxOf = height => ({ left: 56, right: W - 12, top: 56, bottom: height - 44 });
function scale(low, high, from, to) {
  return value => from + (value - low) / (high - low || 1) * (to - from);
}
function vertical(low, high, box, count = 5) {
  const t = ticks(low, high, count);
  return { ticks: t, map: scale(low, high, box.bottom, box.top) };
}

function decades(low, high, box) {
  const marks = [];
  for (let t = low; t <= high * 1.001; t *= 10) marks.push(t);
  const map = scale(Math.log10(low), Math.log10(high), box.bottom, box.top);
  return { ticks: marks, map: value => map(Math.log10(Math.max(value, low))) };
}

function lines(parent, { id, title, x, xLabel, xLog, xFormat, yLabel, yFormat = digits, series, low = 0, high,
                         reference, referenceName, named }) {
  const svg = frame(parent, id, title);
  const box = boxOf(H);
  if (named) {
    let right = box.right;
    for (const one of [...series].reverse()) {
      node("text", { x: right, y: 20, "text-anchor": "end", "font-size": 13, "font-weight": 600,
        fill: one.colour }, svg, one.name);
      right -= one.name.length * 8 + 16;
    }
  }
  const y = vertical(low, high, box);
  axes(svg, box, y, yLabel, yFormat);
  const warp = xLog ? Math.log10 : v => v;
  const first = warp(x[0]), last = warp(x[x.length - 1]);
  const across = value => scale(first, last, box.left, box.right)(warp(value));
  const marks = xLog ? x.filter(v => [1, 10, 100, 1000, 2, 5, 20, 50, 200, 500].includes(v))
                     : ticks(x[0], x[x.length - 1], 8);
  for (const t of marks) {
    node("text", { x: across(t), y: box.bottom + 19, "text-anchor": "middle", "font-size": 13,
      fill: css("--soft") }, svg, xFormat ? xFormat(t) : digits(t));
  }
  node("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle",
    "font-size": 13, fill: css("--soft") }, svg, xLabel);
  if (reference != null && reference <= high) {
    node("line", { x1: box.left, x2: box.right, y1: y.map(reference), y2: y.map(reference),
      stroke: css("--soft"), "stroke-dasharray": "2 4", "stroke-width": 1.4 }, svg);
    node("text", { x: box.right, y: y.map(reference) - 6, "text-anchor": "end", "font-size": 12,
      fill: css("--soft") }, svg, referenceName);
  }
  for (const one of series) {
    const path = one.values.map((value, i) => value == null ? "" :
      `${i && one.values[i - 1] != null ? "L" : "M"}${across(x[i]).toFixed(1)} ${y.map(value).toFixed(1)}`).join("");
    node("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": 2.4, class: "series",
      "stroke-linejoin": "round", "stroke-linecap": "round", "data-name": one.name,
      "stroke-dasharray": one.dash || "" }, svg);
    if (xLog) one.values.forEach((value, i) => node("circle", { cx: across(x[i]),
      cy: y.map(value), r: 3.6, fill: one.colour }, svg));
  }
  pointAt(svg, box, x, across, series, yFormat, xFormat || (v => digits(v) + " s"));
}

// A line under the pointer and the values there.
function pointAt(svg, box, x, across, series, yFormat, xFormat) {
  const tip = document.getElementById("tip");
  const hair = node("line", { y1: box.top, y2: box.bottom, stroke: css("--soft"), opacity: 0 }, svg);
  svg.onpointermove = event => {
    const area = svg.getBoundingClientRect();
    const at = (event.clientX - area.left) * W / area.width;
    let i = 0;
    x.forEach((value, k) => { if (Math.abs(across(value) - at) < Math.abs(across(x[i]) - at)) i = k; });
    hair.setAttribute("x1", across(x[i]));
    hair.setAttribute("x2", across(x[i]));
    hair.setAttribute("opacity", .6);
    tip.replaceChildren(html("div", {}, null, xFormat(x[i])));
    for (const one of series) {
      const row = html("div", {}, tip);
      const name = html("span", {}, row);
      html("span", { class: "swatch", style: `background:${one.colour}` }, name);
      name.append(one.name);
      html("b", {}, row, one.values[i] == null ? "–" : yFormat(one.values[i]));
    }
    tip.style.display = "block";
    tip.style.left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY + 16 + "px";
  };
  svg.onpointerleave = () => { tip.style.display = "none"; hair.setAttribute("opacity", 0); };
}

// Bars in groups: one group for each job, one bar for each policy. Every bar has its value, upright
// if there is no room for it; a figure with many bars is wider.
function bars(parent, { id, title, yLabel, yFormat = digits, groups, series, low = 0, high, label, log, neutral }) {
  const needed = groups.length * (series.length * 15 + 12) + 80;
  const width = needed > W ? Math.min(Math.max(needed, 2 * W), 4 * W) : W;
  const svg = frame(parent, id, title, H, width);
  const box = { ...boxOf(H), right: width - 12, top: 78, bottom: H - 30 };
  const y = log ? decades(low, high, box) : vertical(low, high, box);
  axes(svg, box, y, yLabel, yFormat);
  const step = (box.right - box.left) / groups.length;
  const wide = Math.min(step * .86 / series.length, 64);
  groups.forEach((group, g) => {
    const middle = box.left + step * (g + .5);
    const fits = Math.max(Math.floor(step / 8), 3);
    node("text", { x: middle, y: box.bottom + 20, "text-anchor": "middle", "font-size": 14,
      "font-weight": 600, fill: neutral ? css("--soft") : jobColour(g) }, svg,
      group.length > fits ? group.slice(0, fits - 1) + "…" : group);
    series.forEach((one, s) => {
      const value = one.values[g];
      const x = middle + (s - series.length / 2) * wide;
      if (value == null) return;
      const cut = Math.max(low, Math.min(high, value));
      const top = Math.min(y.map(cut), y.map(Math.max(low, 0)));
      const tall = Math.abs(y.map(cut) - y.map(Math.max(low, 0)));
      const bar = node("rect", { x: x + 1, y: top, width: Math.max(wide - 2, 1), height: Math.max(tall, 1),
        rx: 2, fill: one.colour, class: "bar", "data-policy": one.name, "data-job": group }, svg);
      const said = (label || yFormat)(value);
      node("title", {}, bar, `${group}, ${one.name}: ${said}`);
      const below = value < 0;
      if (said.length * 6.4 <= wide) {
        node("text", { x: x + wide / 2, y: below ? top + tall + 13 : top - 4, class: "value",
          "text-anchor": "middle", "font-size": 10.5, fill: css("--ink") }, svg, said);
        return;
      }
      const at = { x: x + wide / 2 + 3.5, y: below ? top + tall + 4 : top - 4 };
      node("text", { ...at, class: "value", "text-anchor": below ? "end" : "start", "font-size": 10.5,
        fill: css("--ink"), transform: `rotate(-90 ${at.x} ${at.y})` }, svg, said);
    });
  });
}

// ---- parts of a page ----
const section = (parent, title, note, legend) => {
  html("h2", {}, parent, title);
  if (note) html("p", { class: "note" }, parent, note);
  if (legend) legend(parent);
  return html("div", { class: "grid" }, parent);
};
function legendOf(parent, names) {
  const legend = html("ul", { class: "legend" }, parent);
  for (const [name, colour] of names) {
    const item = html("li", {}, legend);
    html("i", { style: `border-color:${colour}` }, item);
    item.append(name);
  }
}
function notes(parent, texts) {
  const list = html("ul", { class: "notes" }, parent);
  for (const text of texts) html("li", {}, list, text);
}
function tableOf(parent, columns, rows, attributes = {}) {
  const table = html("table", attributes, html("div", { class: "scroll" }, parent));
  const head = html("tr", {}, html("thead", {}, table));
  for (const column of columns) html("th", {}, head, column);
  const body = html("tbody", {}, table);
  for (const row of rows) {
    const line = html("tr", {}, body);
    for (const cell of row) html("td", {}, line, cell);
  }
  return table;
}
const top = values => {
  const most = Math.max(...values.filter(v => v != null), 1e-9);
  const step = ticks(0, most, 5)[1] || most;
  return Math.ceil(most / step * 1.001) * step;
};

// Draws the page, and again when the theme changes.
function show(draw, footer) {
  document.querySelector("footer").textContent = footer;
  const again = () => {
    document.documentElement.dataset.theme = theme;
    document.getElementById("body").replaceChildren();
    draw(document.getElementById("body"));
    document.body.dataset.ready = "yes";
  };
  document.getElementById("theme").onclick = () => { theme = theme === "dark" ? "light" : "dark"; again(); };
  again();
}
