// SPDX-License-Identifier: Apache-2.0
//
// The live page. Every second an event contains counters of up to 200 classes; rates are
// differences of two events. Names from clients are only set as text. On TCP the token is in the
// fragment ('#') of the address, which browsers do not send.
'use strict';

const kept = 180;        // events, three minutes
const drawn = 10;        // classes with a colour of their own
const token = new URLSearchParams(location.hash.slice(1)).get('token');
const colours = ['#1f77b4', '#ff7f0e', '#2ca02c', '#d62728', '#9467bd', '#8c564b', '#e377c2',
  '#bcbd22', '#17becf', '#7f8c8d', '#b0b7c1'];
const $ = (id) => document.getElementById(id);

const state = {
  service: '', events: [], last: null, sort: 'ops', down: true, filter: '', rows: new Map(),
  names: [], charts: {}, namespace: '', locks: [], lockCharts: {},
};

function request(path) {
  return fetch(path, { headers: token ? { Authorization: 'Bearer ' + token } : {} });
}

// ---- numbers ----

function short(number) {
  const units = ['', 'k', 'M', 'G', 'T'];
  let unit = 0;
  while (Math.abs(number) >= 10000 && unit < 4) { number /= 1000; ++unit; }
  return (unit || number < 10 && number % 1 ? number.toFixed(1) : Math.round(number)) + units[unit];
}
function time(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(2) + ' s';
  if (ns >= 1e6) return (ns / 1e6).toFixed(1) + ' ms';
  if (ns >= 1e3) return (ns / 1e3).toFixed(0) + ' µs';
  return Math.round(ns) + ' ns';
}

// ---- events ----

const columns = [
  { key: 'name', label: 'Class', text: true, show: (r) => r.name },
  { key: 'rule', label: 'Rule', text: true, show: (r) => r.rule },
  { key: 'ops', label: 'Ops/s', show: (r) => short(r.ops) },
  { key: 'bytes', label: 'Bytes/s', show: (r) => short(r.bytes) },
  { key: 'wait', label: 'Wait', show: (r) => time(r.wait) },
  { key: 'waiting', label: 'Waiting', show: (r) => r.waiting ?? '' },
  { key: 'rate', label: 'Limit', show: (r) => r.rate ? short(r.rate) : '–' },
  { key: 'fill', label: 'Bucket', show: (r) => r.rate ? `${short(r.level)}/${short(r.depth)}` : '–',
    meter: (r) => r.rate ? r.level / Math.max(1, r.depth) : null },
  { key: 'share', label: 'Share', show: (r) => r.share ? short(r.share) : '–' },
  { key: 'record', label: 'Record', show: (r) => r.record === undefined ? '' : String(r.record) },
];

function rates(service, before, seconds) {
  const old = new Map((before?.top ?? []).map((one) => [one.class, one]));
  return service.top.map((one) => {
    const from = old.get(one.class) ?? one;
    const served = Math.max(0, one.served - from.served);
    return {
      name: one.class, rule: one.rule, rate: one.rate, level: one.level, depth: one.depth,
      waiting: one.waiting, record: one.record, share: one.share,
      fill: one.rate ? one.level / Math.max(1, one.depth) : 2,
      ops: served / seconds, bytes: Math.max(0, one.bytes - from.bytes) / seconds,
      wait: served ? (one.waited_ns - from.waited_ns) / served : 0,
    };
  });
}

function take(event) {
  const names = event.services.map((one) => one.service);
  if (!names.includes(state.service)) state.service = names[0];
  const select = $('service');
  if (select.options.length !== names.length) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.value = state.service;
  const seconds = state.last ? (event.time_ns - state.last.time_ns) / 1e9 : 0;
  if (state.last && seconds > 0) {
    const all = {};
    for (const service of event.services) {
      const before = state.last.services.find((one) => one.service === service.service);
      all[service.service] = rates(service, before, seconds);
    }
    state.events.push({ at: event.time_ns / 1e9, rates: all });
    if (state.events.length > kept) state.events.shift();
  }
  takeLocks(event);
  state.last = event;
  draw();
}

// Data of the lock charts, for the selected namespace.
function takeLocks(event) {
  const names = event.locks.map((one) => one.namespace);
  $('locks').hidden = names.length === 0;
  if (!names.length) return;
  if (!names.includes(state.namespace)) state.namespace = names[0];
  const select = $('namespace');
  if (select.options.length !== names.length) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.value = state.namespace;
  select.parentElement.hidden = names.length === 1;
  state.locks.push({ at: event.time_ns / 1e9, all: event.locks });
  if (state.locks.length > kept) state.locks.shift();
}

async function listen() {
  for (;;) {
    try {
      const answer = await request('/v1/events');
      if (answer.status === 401) {
        $('state').textContent = 'token required: open this page as …/#token=TOKEN';
        $('state').className = 'lost';
        return;
      }
      $('state').textContent = 'live';
      $('state').className = '';
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
          const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data: '));
          if (data.length) take(JSON.parse(data.map((line) => line.slice(6)).join('')));
        }
      }
    } catch (error) { console.debug(error); }
    $('state').textContent = 'server not reachable; retrying';
    $('state').className = 'lost';
    await new Promise((done) => setTimeout(done, 2000));
  }
}

// ---- drawing ----

function fact(list, name, value) {
  const row = document.createElement('div');
  const term = document.createElement('dt');
  const said = document.createElement('dd');
  term.textContent = name;
  said.textContent = value;
  row.append(term, said);
  list.append(row);
}

function draw() {
  const service = state.last.services.find((one) => one.service === state.service);
  const facts = $('facts');
  facts.replaceChildren();
  fact(facts, 'policy', service.policy);
  fact(facts, 'capacity', service.capacity === null ? 'unknown' : short(service.capacity) +
      (service.capacity_unit === 'bytes' ? 'B/s' : '/s'));
  fact(facts, 'adaptive', service.adaptive);
  for (const note of service.notes) fact(facts, 'note', note);
  fact(facts, 'queued', short(service.queued));
  fact(facts, 'running', service.running);
  fact(facts, 'slots', service.slots.count + (service.slots.auto ? ' (auto)' : ''));
  fact(facts, 'classes', short(service.classes));
  fact(facts, 'connections', state.last.connections);
  const now = state.events.length ? state.events.at(-1).rates[state.service] ?? [] : [];
  drawClasses(now);
  drawRules(service.rule_list);
  drawCharts(now);
  drawLocks();
}

function drawClasses(now) {
  const shown = now.filter((row) => row.name.includes(state.filter));
  const key = state.sort;
  shown.sort((a, b) => {
    const x = a[key] ?? 0, y = b[key] ?? 0;
    const order = typeof x === 'string' ? x.localeCompare(y) : x - y;
    return (state.down ? -order : order) || a.name.localeCompare(b.name);
  });
  const body = $('classes').tBodies[0];
  const rows = new Map();
  shown.forEach((row, place) => {
    let line = state.rows.get(row.name);
    if (!line) {
      line = document.createElement('tr');
      line.tabIndex = 0;
      line.dataset.name = row.name;
      for (const column of columns) {
        const cell = line.insertCell();
        if (column.text) cell.className = 'text';
        if (column.meter) cell.append(document.createElement('meter'));
        cell.append(document.createTextNode(''));
      }
    }
    columns.forEach((column, i) => {
      const cell = line.cells[i];
      const text = column.show(row);
      if (cell.lastChild.data !== text) cell.lastChild.data = text;
      if (!column.meter) return;
      const fill = column.meter(row);
      cell.firstChild.hidden = fill === null;
      cell.firstChild.value = fill ?? 0;
    });
    if (body.rows[place] !== line) body.insertBefore(line, body.rows[place] ?? null);
    rows.set(row.name, line);
  });
  while (body.rows.length > shown.length) body.rows[body.rows.length - 1].remove();
  state.rows = rows;
}

function drawRules(rules) {
  const lines = rules.map((rule) => {
    const line = document.createElement('tr');
    const limits = rule.limits || (rule.rate ? `rate=${rule.rate}` : '');
    for (const text of [rule.rule, rule.conditions, limits, rule.heads, rule.classes]) {
      line.insertCell().textContent = text;
    }
    return line;
  });
  $('rules').tBodies[0].replaceChildren(...lines);
}

// The busiest classes of the visible time have colours; the rest is one band.
function busiest() {
  const sums = new Map();
  for (const event of state.events) {
    for (const row of event.rates[state.service] ?? []) {
      sums.set(row.name, (sums.get(row.name) ?? 0) + row.ops);
    }
  }
  return [...sums].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, drawn)
    .map(([name]) => name);
}

function series(names, value, stacked) {
  const times = state.events.map((event) => event.at);
  const lines = [...names.map(() => []), []];
  for (const event of state.events) {
    const by = new Map((event.rates[state.service] ?? []).map((row) => [row.name, row]));
    let others = 0, weight = 0;
    for (const [name, row] of by) {
      if (names.includes(name)) continue;
      others += stacked ? value(row) : value(row) * row.ops;
      weight += row.ops;
    }
    names.forEach((name, i) => lines[i].push(by.has(name) ? value(by.get(name)) : 0));
    lines[names.length].push(stacked ? others : weight ? others / weight : 0);
  }
  if (stacked) {
    for (let i = 1; i < lines.length; ++i) lines[i] = lines[i].map((v, at) => v + lines[i - 1][at]);
  }
  return [times, ...lines];
}

function chart(id, names, stacked, axis, floor) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue('--soft');
  const grid = getComputedStyle(document.documentElement).getPropertyValue('--line');
  const labels = [...names, 'others'];
  const lines = labels.map((label, i) => ({
    label, stroke: colours[i], width: 1.5,
    fill: stacked ? colours[i] + '70' : undefined, points: { show: false },
    value: (self, raw, line, at) => at === null || raw === null ? '–'
      : axis(stacked && line > 1 ? raw - self.data[line - 1][at] : raw),
  }));
  const style = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  const box = $(id);
  box.replaceChildren();
  return new uPlot({
    width: box.clientWidth, height: 190, series: [{}, ...lines],
    axes: [style, { ...style, size: 70, values: (self, ticks) => ticks.map(axis) }],
    scales: { y: { range: (self, low, high) => [0, Math.max(high, floor) * 1.05] } },
    bands: stacked ? lines.slice(1).map((line, i) => ({ series: [i + 2, i + 1] })) : [],
    cursor: { drag: { x: false, y: false } },
  }, [[], ...lines.map(() => [])], box);
}

function drawCharts() {
  if (!state.events.length) return;
  const names = busiest();
  const inBytes = $('bytes').checked;
  const shape = JSON.stringify([names, inBytes, state.service]);
  if (shape !== state.shape) {
    state.shape = shape;
    for (const old of Object.values(state.charts)) old.destroy();
    state.charts.throughput = chart('throughput', names, true, (v) => short(v) + (inBytes ? 'B/s' : '/s'), 1);
    state.charts.wait = chart('wait', names, false, time, 1e6);
  }
  const moved = (row) => inBytes ? row.bytes : row.ops;
  state.charts.throughput.setData(series(names, moved, true));
  state.charts.wait.setData(series(names, (row) => row.wait, false));
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

const clock = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

function lockChart(id, labels, axis, scale, ticks) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue('--soft'), grid = style.getPropertyValue('--line');
  const look = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  const box = $(id);
  box.replaceChildren();
  return new uPlot({
    width: box.clientWidth, height: 190,
    series: [{}, ...labels.map((label, i) => ({
      label, stroke: colours[i], width: 1.5, dash: i ? [6, 4] : undefined, points: { show: false },
      value: (self, raw) => raw === null ? '–' : axis(raw),
    }))],
    axes: [{ ...look, size: 30, space: 80, values: (self, all) => all.map(clock) },
      { ...look, size: 60, values: (self, all) => all.map(axis), ...ticks }],
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
  fact(facts, 'granted', `${short(view.granted)} of ${short(view.limit)} ` +
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

// ---- explaining ----

const causes = {
  limit: 'the limit of its rule', share: 'its share of the capacity',
  root: 'the rate of the whole target',
  slot: 'a free slot of the device', order: 'requests of others, which go first',
};

async function explain(name) {
  const query = new URLSearchParams({ name, service: state.service });
  const answer = await request('/v1/explain?' + query);
  const it = await answer.json();
  $('explained').textContent = name;
  const numbers = $('numbers');
  const delays = $('delays').tBodies[0];
  numbers.replaceChildren();
  delays.replaceChildren();
  if (!answer.ok) {
    $('reason').textContent = it.hint ? `${it.detail}; ${it.hint}` : it.detail;
  } else {
    $('reason').textContent = it.verdict + (it.cure ? `. To change it: ${it.cure}` : '');
    fact(numbers, 'rule', `${it.rule}: ${it.reason}`);
    const limits = [it.rate ? short(it.rate) + ' operations/s' : '', it.bps ? short(it.bps) + 'B/s' : ''];
    fact(numbers, 'limit', limits.filter(Boolean).join(', ') || 'none in this rule');
    if (it.rate) fact(numbers, 'bucket', `${short(it.level)} of ${short(it.depth)}`);
    if (it.bps) fact(numbers, 'bucket of bytes', `${short(it.byte_level)} of ${short(it.byte_depth)}`);
    fact(numbers, 'served', short(it.served));
    fact(numbers, 'waiting now', it.waiting);
    if (it.delays) {
      const { requests, wait_ns, window_ns, device_requests, device_ns } = it.delays;
      fact(numbers, `last ${time(window_ns)}`, `${short(requests)} requests waited ` +
          `${time(wait_ns / Math.max(requests, 1))} on average`);
      if (device_requests) fact(numbers, 'device', time(device_ns / device_requests) + ' for each');
    }
    if (it.job) {
      fact(numbers, 'share', it.job.share === null ? 'not paced' : short(it.job.share) + '/s');
      fact(numbers, 'record', it.job.record > 0 ? `${it.job.record} lent`
        : it.job.record < 0 ? `${-it.job.record} owed` : 'balanced');
    }
    for (const [cause, words] of Object.entries(causes)) {
      const ns = it.delays ? it.delays[cause + '_ns'] : 0;
      const line = delays.insertRow();
      line.insertCell().textContent = words;
      line.insertCell().textContent = it.delays ? time(ns / Math.max(it.delays.requests, 1)) : 'not measured';
      const bar = document.createElement('span');
      bar.style.width = `${it.delays?.wait_ns ? 100 * ns / it.delays.wait_ns : 0}%`;
      const cell = line.insertCell();
      cell.className = 'bar';
      cell.append(bar);
    }
  }
  if (!$('explanation').open) $('explanation').showModal();
}

// ---- user input ----

for (const column of columns) {
  const head = document.createElement('th');
  const button = document.createElement('button');
  button.textContent = column.label;
  if (column.text) head.className = 'text';
  button.onclick = () => {
    state.down = state.sort === column.key ? !state.down : !column.text;
    state.sort = column.key;
    for (const other of $('classes').tHead.rows[0].cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
    if (state.last) draw();
  };
  if (column.key === state.sort) head.setAttribute('aria-sort', 'descending');
  head.append(button);
  $('classes').tHead.rows[0].append(head);
}
const rowOf = (event) => event.target.closest('tr[data-name]');
$('classes').addEventListener('click', (event) => rowOf(event) && explain(rowOf(event).dataset.name));
$('classes').addEventListener('keydown', (event) => {
  const row = rowOf(event);
  if (!row) return;
  if (event.key === 'Enter' || event.key === ' ') explain(row.dataset.name);
  else if (event.key === 'ArrowDown') row.nextElementSibling?.focus();
  else if (event.key === 'ArrowUp') row.previousElementSibling?.focus();
  else return;
  event.preventDefault();
});
$('filter').oninput = () => { state.filter = $('filter').value; if (state.last) draw(); };
$('service').onchange = () => { state.service = $('service').value; draw(); };
$('bytes').onchange = () => { if (state.last) draw(); };
$('namespace').onchange = () => { state.namespace = $('namespace').value; draw(); };
addEventListener('resize', () => {
  for (const [id, one] of Object.entries(state.charts)) {
    one.setSize({ width: $(id).clientWidth, height: 190 });
  }
  for (const [id, one] of Object.entries(state.lockCharts)) {
    one.setSize({ width: $('lock-' + id).clientWidth, height: 190 });
  }
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  state.shape = '';
  forgetLockCharts();
  if (state.last) draw();
});
listen();
