// SPDX-License-Identifier: Apache-2.0
//
// The charts of the console (live.js): throughput and waits of a service, and its locks.
'use strict';

// Per second and class, or per request; the last line is the rest of the service.
function lineValues(of, key, step) {
  if (key === 'wait') return of.served.map((n, i) => n ? of.waited_ns[i] / n : 0);
  return of[key].map((n) => n / step);
}
function restOf(history) {
  const minus = (key) => history.total[key].map((all, i) =>
    Math.max(0, history.classes.reduce((left, one) => left - one[key][i], all)));
  return { served: minus('served'), bytes: minus('bytes'), waited_ns: minus('waited_ns') };
}
function series(history, key, stacked) {
  const step = history.step_ns / 1e9;
  const count = history.total.served.length;
  const times = Array.from({ length: count }, (_, i) => history.end_ns / 1e9 - (count - 1 - i) * step);
  const lines = [...history.classes, restOf(history)].map((one) => lineValues(one, key, step));
  if (stacked) {
    for (let i = 1; i < lines.length; ++i) lines[i] = lines[i].map((v, at) => v + lines[i - 1][at]);
  }
  return [times, ...lines];
}

// Changes of rules as vertical lines.
function drawMarks(plot) {
  const { left, top, width, height } = plot.bbox;
  const context = plot.ctx;
  context.save();
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--ink');
  context.setLineDash([4, 4]);
  for (const mark of state.history?.marks ?? []) {
    const x = Math.round(plot.valToPos(mark.time_ns / 1e9, 'x', true));
    if (x < left || x > left + width) continue;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
  }
  context.restore();
}

function look() {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue('--soft'), grid = style.getPropertyValue('--line');
  return { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
}
const clock = (at) => local(at);
const timeAxis = () => ({ ...look(), size: 30, space: 90, values: (self, all) => all.map(clock),
  incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600] });

function chart(id, names, stacked, axis, floor, capacity) {
  const labels = [...names, 'others'];
  const lines = labels.map((label, i) => ({
    label, stroke: colours[Math.min(i < names.length ? i : drawn, drawn)], width: 1.5,
    fill: stacked ? colours[i < names.length ? i : drawn] + '70' : undefined, points: { show: false },
    value: (self, raw, line, at) => at === null || raw === null ? '–'
      : axis(stacked && line > 1 ? raw - self.data[line - 1][at] : raw),
  }));
  if (capacity !== null) {
    lines.push({ label: 'capacity', stroke: getComputedStyle(document.documentElement)
      .getPropertyValue('--ink'), width: 1.5, dash: [8, 4], points: { show: false },
    value: () => axis(capacity) });
  }
  const box = $(id);
  box.replaceChildren();
  return new uPlot({
    width: box.clientWidth, height: 190,
    series: [{ value: (self, at) => at === null ? '–' : localDay(at) }, ...lines],
    axes: [timeAxis(), { ...look(), size: 86, values: (self, ticks) => ticks.map((one) => plain(axis(one))) }],
    scales: { y: { range: (self, low, high) => [0, Math.max(high, floor) * 1.05] } },
    bands: stacked ? names.map((name, i) => ({ series: [i + 2, i + 1] })) : [],
    cursor: { drag: { x: false, y: false } }, hooks: { draw: [drawMarks] },
  }, [[], ...lines.map(() => [])], box);
}

// What a chart shows, for those who do not see it.
function describe(id, history, key, axis) {
  const lines = [['all', history.total], ...history.classes.map((one) => [one.class, one])];
  const last = (one) => lineValues(one, key, history.step_ns / 1e9).at(-1) ?? 0;
  $(id).textContent = `${$('range').selectedOptions[0].textContent}; now ` +
    lines.slice(0, 4).map(([name, one]) => `${name}: ${axis(last(one))}`).join(', ');
}

function drawCharts() {
  const { history } = state;
  const inBytes = $('bytes').checked;
  const names = history.classes.map((one) => one.class);
  const service = current();
  const hasLine = service.capacity !== null &&
    service.capacity_unit === (inBytes ? 'bytes' : 'operations');
  const capacity = hasLine ? service.capacity : null;
  const shape = JSON.stringify([names, inBytes, state.service, capacity, history.step_ns]);
  const throughput = inBytes ? bandwidth : ops;
  if (shape !== state.shape) {
    state.shape = shape;
    for (const old of Object.values(state.charts)) old.destroy();
    state.charts.throughput = chart('throughput', names, true, throughput, 1, capacity);
    state.charts.wait = chart('wait', names, false, time, 1e6, null);
  }
  const key = inBytes ? 'bytes' : 'served';
  const moved = series(history, key, true);
  if (capacity !== null) moved.push(moved[0].map(() => capacity));
  state.charts.throughput.setData(moved);
  state.charts.wait.setData(series(history, 'wait', false));
  describe('throughput-text', history, key, throughput);
  describe('wait-text', history, 'wait', time);
  drawMarkList(history.marks);
}

function drawMarkList(marks) {
  $('changes').hidden = !marks.length;
  if ($('changes-count').textContent === String(marks.length)) return;
  $('changes-count').textContent = marks.length;
  $('marks').replaceChildren(...marks.toReversed().map((mark) => {
    const item = document.createElement('li');
    item.textContent = `${localDay(mark.time_ns / 1e9)}: ${mark.text}`;
    return item;
  }));
}

// ---- locks ----

const lockClients = 10;  // with a line of their own

// Axis ticks 1, 10, ... from below `low` to above `high`, and their labels.
function decades(low, high) {
  const first = Math.floor(Math.log10(Math.max(1, low)));
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(1, high))));
  return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
}
function decade(number) {
  const unit = Math.floor(Math.log10(number) / 3);
  return number / 1000 ** unit + ['', 'k', 'M', 'G', 'T', 'P'][unit];
}

function lockChart(id, labels, axis, scale, ticks) {
  const box = $(id);
  box.replaceChildren();
  return new uPlot({
    width: box.clientWidth, height: 190,
    series: [{}, ...labels.map((label, i) => ({
      label, stroke: colours[i], width: 1.5, dash: i ? [6, 4] : undefined, points: { show: false },
      value: (self, raw) => raw === null ? '–' : axis(raw),
    }))],
    axes: [timeAxis(),
      { ...look(), size: 60, values: (self, all) => all.map(axis), ...ticks }],
    scales: { y: scale },
    cursor: { drag: { x: false, y: false } },
  }, [[], ...labels.map(() => [])], box);
}

function lockCell(line, text) {
  const cell = line.insertCell();
  cell.textContent = text;
  return cell;
}

function drawLockClients(view) {
  const shown = view.top.slice(0, lockClients);
  const rest = view.top.slice(lockClients);
  const sum = (key) => rest.reduce((all, one) => all + one[key], view.others[key]);
  // The lower half of its number counts the clients since the start of the server.
  const rows = shown.map((one) => ({ name: `${one.peer} #${one.client % 2 ** 32}`, ...one }));
  const clients = view.clients - shown.length;
  if (clients > 0) {
    rows.push({ name: `${short(clients)} others`, locks: sum('locks'), waiting: sum('waiting') });
  }
  const most = Math.max(1, ...shown.map((one) => one.locks));
  const lines = rows.map((row) => {
    const line = document.createElement('tr');
    lockCell(line, row.name).title = row.client === undefined ? '' : `client ${row.client}`;
    lockCell(line, short(row.locks));
    lockCell(line, row.waiting ? short(row.waiting) : '');
    const cell = line.insertCell();
    cell.className = 'bar';
    if (row.client !== undefined) {
      const bar = document.createElement('span');
      bar.style.width = `${100 * row.locks / most}%`;
      cell.append(bar);
    }
    return line;
  });
  $('lock-clients').tBodies[0].replaceChildren(...lines);
}

function drawLocks() {
  if (!state.last.locks.length) return;
  const view = state.last.locks.find((one) => one.namespace === state.namespace);
  const facts = $('lock-facts');
  facts.replaceChildren();
  fact(facts, 'granted', `${view.granted.toLocaleString()} of ${view.limit.toLocaleString()} ` +
    `(${(100 * view.granted / view.limit).toFixed(1)} %)`);
  fact(facts, 'grant speed', `${view.grant_speed > 0 ? '+' : ''}${short(view.grant_speed)}/s`);
  fact(facts, 'volume', short(view.server_lock_volume));
  fact(facts, 'clients', short(view.clients));
  fact(facts, 'waiting', short(view.waiting));
  fact(facts, 'parked', short(view.parked));
  fact(facts, 'preset', view.preset);
  if (view.recovering) fact(facts, 'recovering', 'grants start when the grace period ends');
  drawLockClients(view);
  if (!state.lockCharts.granted) {
    state.lockCharts.granted = lockChart('lock-granted', ['granted', 'limit'], short,
      { range: (self, low, high) => [0, Math.max(high, 1) * 1.05] });
    const splits = (self, axis, low, high) => decades(low, high);
    state.lockCharts.volume = lockChart('lock-volume', ['volume'], short,
      { distr: 3, range: (self, low, high) => [decades(low, high)[0], decades(low, high).at(-1)] },
      { splits, values: (self, all) => all.map(decade) });
    state.lockCharts.speed = lockChart('lock-speed', ['grants minus cancels'],
      (speed) => short(speed) + '/s',
      { range: (self, low, high) => [Math.min(low, -1) * 1.1, Math.max(high, 1) * 1.1] });
  }
  const pick = (key) => state.locks.map((event) =>
    event.all.find((one) => one.namespace === state.namespace)?.[key] ?? null);
  const times = state.locks.map((event) => event.at);
  state.lockCharts.granted.setData([times, pick('granted'), pick('limit')]);
  state.lockCharts.volume.setData([times, pick('server_lock_volume')]);
  state.lockCharts.speed.setData([times, pick('grant_speed')]);
}

function forgetLockCharts() {
  for (const old of Object.values(state.lockCharts)) old.destroy();
  state.lockCharts = {};
}
