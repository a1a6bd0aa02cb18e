// SPDX-License-Identifier: Apache-2.0
//
// The console: what a server does now and did in the last two hours, and its rules. The server sends
// an event every second; then the visible page of classes and the charts are read. All rates and
// the history are those of the server, so a page that slept shows the same as one that did not.
// Names from clients are only set as text. On TCP the token is in the fragment ('#') of the
// address, which browsers do not send.
'use strict';

const kept = 180;        // events of locks, three minutes
const drawn = 10;        // classes with a colour of their own
const pageSize = 50;     // classes
const silenceMax = 5000; // ms without an event until the connection is replaced
const answerMax = 5000;  // ms until a request has failed
const openMax = 2500;    // the same for the stream of events
const token = new URLSearchParams(location.hash.slice(1)).get('token');
// At least 3:1 against both backgrounds.
const colours = ['#2f7fc1', '#d9600a', '#2e9e4f', '#d84a4a', '#9a6fc4', '#a8705a', '#d65fae',
  '#8c8c1c', '#128fa3', '#6b7fd7', '#7d8894'];
const $ = (id) => document.getElementById(id);

const state = {
  service: '', last: null, status: null, sort: 'recent_served', filter: '', offset: 0, count: 0,
  classes: [], rows: new Map(), history: null, charts: {}, shape: '', namespace: '', locks: [],
  lockCharts: {}, jobs: [], reading: null, heardAt: 0, updates: 0, edit: null,
};

// A request on a connection that died while the machine slept would wait for minutes.
function request(path, options = {}) {
  const headers = token ? { Authorization: 'Bearer ' + token } : {};
  return fetch(path, { signal: AbortSignal.timeout(answerMax), ...options, headers });
}
const servicePath = (rest) => `/v1/services/${encodeURIComponent(state.service)}/${rest}`;

// ---- numbers ----

// At most three digits; counts up to 9999 are whole.
function digits(number) {
  const size = Math.abs(number);
  return number.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
function short(number) {
  const units = ['', 'k', 'M', 'G', 'T'];
  let unit = 0;
  while (unit < 4 && Math.abs(number) >= (unit ? 999.5 : 10000)) { number /= 1000; ++unit; }
  return (unit || number % 1 && Math.abs(number) < 100 ? digits(number) : Math.round(number)) + units[unit];
}
function time(ns) {
  if (ns >= 1e9) return digits(ns / 1e9) + ' s';
  if (ns >= 1e6) return digits(ns / 1e6) + ' ms';
  if (ns >= 1e3) return digits(ns / 1e3) + ' µs';
  return Math.round(ns) + ' ns';
}
function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= (unit ? 999.5 : 1000) && unit < 4) { bytes /= 1000; ++unit; }
  return (unit ? digits(bytes) : Math.round(bytes)) + ' ' + units[unit];
}
const ops = (rate) => short(rate) + ' ops/s';
const bandwidth = (rate) => size(rate) + '/s';
const inUnit = (rate, unit) => unit === 'bytes' ? bandwidth(rate)
  : short(rate) + (unit === 'tokens' ? ' tokens/s' : ' ops/s');
const limitText = (rate, bps) =>
  [rate ? ops(rate) : '', bps ? bandwidth(bps) : ''].filter(Boolean).join(', ') || 'none';
const local = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const localDay = (seconds) => new Date(seconds * 1000).toLocaleString();

// ---- events ----

const causeWords = {
  limit: 'its limit', share: 'its share', root: 'the capacity', slot: 'the device',
  order: 'others first',
};

// `sort` is a key of the API; a column without one cannot be sorted by.
const columns = [
  { label: 'Class', text: true, sort: 'class', show: (one) => one.class },
  { label: 'Ops/s', sort: 'recent_served', show: (one) => rate(one, 'served', short) },
  { label: 'Bytes/s', sort: 'recent_bytes', show: (one) => rate(one, 'bytes', size) },
  { label: 'Wait', sort: 'recent_waited_ns', show: waitText },
  { label: 'Waits for', text: true, show: (one) => causeWords[one.cause] ?? '' },
  { label: 'Waiting', show: (one) => one.waiting === null ? '' : short(one.waiting) },
  { label: 'Limit', show: (one) => limitText(one.rate, one.bps) },
  { label: 'Bucket', show: bucketText, meter: bucketFill },
  { label: 'Share', show: (one) => one.share === null ? '–' : perSecond(one.share) },
  { label: 'Record, tokens', show: (one) => one.record === null ? '' : recordText(one.record) },
];

function rate(one, key, show) {
  return one.recent ? show(one.recent[key] * 1e9 / one.recent.window_ns) : '…';
}
function waitText(one) {
  return one.recent?.served ? time(one.recent.waited_ns / one.recent.served) : '–';
}
function bucketText(one) {
  if (one.rate) return `${short(one.level)} of ${short(one.depth)} ops`;
  return one.bps ? `${size(one.byte_level)} of ${size(one.byte_depth)}` : '–';
}
function bucketFill(one) {
  if (one.rate) return one.level / Math.max(1, one.depth);
  return one.bps ? one.byte_level / Math.max(1, one.byte_depth) : null;
}
const perSecond = (rate) => inUnit(rate, current()?.capacity_unit);
const recordText = (record) => record > 0 ? `is owed ${short(record)}`
  : record < 0 ? `owes ${short(-record)}` : 'balanced';
const current = () => state.last?.services.find((one) => one.service === state.service);

function choose(select, names, value) {
  if (select.options.length !== names.length) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.value = value;
}

function take(event) {
  const names = event.services.map((one) => one.service);
  if (!names.includes(state.service)) state.service = names[0];
  choose($('service'), names, state.service);
  state.heardAt = Date.now();
  takeLocks(event);
  state.last = event;
  if ($('state').textContent !== 'live') say('live');
  if (!document.hidden) update();
}

// Data of the lock charts, for the selected namespace.
function takeLocks(event) {
  const names = event.locks.map((one) => one.namespace);
  $('locks').hidden = names.length === 0;
  if (!names.length) return;
  if (!names.includes(state.namespace)) state.namespace = names[0];
  choose($('namespace'), names, state.namespace);
  $('namespace').parentElement.hidden = names.length === 1;
  if (state.locks.at(-1)?.at === event.time_ns / 1e9) return;  // the first event may come twice
  state.locks.push({ at: event.time_ns / 1e9, all: event.locks });
  if (state.locks.length > kept) state.locks.shift();
}

function say(text, isLost = false) {
  $('state').textContent = text;
  $('state').className = isLost ? 'lost' : '';
}

async function readEvents(reading) {
  const opening = setTimeout(() => reading.abort(), openMax);
  const answer = await request('/v1/events', { signal: reading.signal })
    .finally(() => clearTimeout(opening));
  if (!answer.ok) return answer.status;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return 0;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data: '));
      if (data.length) take(JSON.parse(data.map((line) => line.slice(6)).join('')));
    }
  }
}

async function listen() {
  for (;;) {
    state.reading = new AbortController();
    state.heardAt = Date.now();
    try {
      if (await readEvents(state.reading) === 401) {
        return say('token required: open this page as …/#token=TOKEN', true);
      }
    } catch (error) { console.debug(error); }
    say('server not reachable; retrying' +
      (state.last ? `. Last data: ${localDay(state.last.time_ns / 1e9)}` : ''), true);
    // The browser may have more connections that died: each is given up after its own time.
    if (!state.reading.signal.aborted) await new Promise((done) => setTimeout(done, 2000));
  }
}

// A connection that does not notice its end, for example of a machine that slept, is replaced.
function watch() {
  if (Date.now() - state.heardAt > silenceMax) state.reading?.abort();
}

// ---- reading ----

// One reading of each kind at a time; the newest answer is drawn.
const busy = new Set();
async function once(what, run) {
  if (busy.has(what)) return;
  busy.add(what);
  try { await run(); } catch (error) { console.debug(error); } finally { busy.delete(what); }
}

async function readJson(path) {
  const answer = await request(path);
  return answer.ok ? answer : null;
}

async function readClasses() {
  const query = new URLSearchParams({
    sort: state.sort, filter: state.filter, limit: pageSize, offset: state.offset });
  const service = state.service;
  const answer = await readJson(servicePath('classes?' + query));
  if (!answer) return;
  const classes = await answer.json();
  if (service !== state.service) return;
  state.count = Number(answer.headers.get('Weir-Count'));
  if (state.offset && state.offset >= state.count) return turnTo(0);
  state.classes = classes;
  drawClasses();
}

async function readHistory() {
  const query = new URLSearchParams({ step: $('range').value, limit: drawn,
    sort: $('bytes').checked ? 'bytes' : 'served' });
  const service = state.service;
  const answer = await readJson(servicePath('history?' + query));
  if (!answer) return;
  const history = await answer.json();
  if (service !== state.service) return;
  state.history = history;
  drawCharts();
}

async function readJobs() {
  const query = new URLSearchParams({ filter: state.filter.replace(/^[^/]*\//, ''), limit: pageSize });
  const answer = await readJson(servicePath('jobs?' + query));
  if (!answer) return;
  state.jobs = await answer.json();
  drawJobs(state.jobs);
}

async function readRest() {
  const status = await readJson('/v1/status');
  if (status) { state.status = await status.json(); drawServer(); }
  const cluster = await request('/v1/cluster');
  drawCluster(cluster.ok ? await cluster.json() : null);
  const metrics = await readJson('/metrics');
  if (metrics) drawGateways(await metrics.text());
}

function update() {
  draw();
  once('classes', readClasses);
  const interval = $('range').value === '15' ? 15 : 2;  // drawing is most of the work
  if (!state.history || state.updates % interval === 0) once('history', readHistory);
  if (state.updates % 5 === 0) once('jobs', readJobs);
  if (state.updates % 10 === 0) once('rest', readRest);
  ++state.updates;
}

function turnTo(offset) {
  state.offset = Math.max(0, offset);
  once('classes', readClasses);
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
function facts(list, pairs) {
  list.replaceChildren();
  for (const [name, value] of pairs) fact(list, name, value);
}
function rowOfTexts(texts) {
  const line = document.createElement('tr');
  for (const text of texts) line.insertCell().textContent = text;
  return line;
}
const mayWrite = () => state.status?.access === 'write';

function draw() {
  const service = current();
  facts($('facts'), [
    ['policy', service.policy],
    ['capacity', service.capacity === null ? 'unknown' : perSecond(service.capacity)],
    ['adaptive', service.adaptive],
    ['queued', `${short(service.queued)} requests`],
    ['running', `${service.running} of ${service.slots.count} slots` +
      (service.slots.auto ? ' (auto)' : '')],
    ['classes', short(service.classes)],
    ['connections', state.last.connections],
  ]);
  $('notes').hidden = !service.notes.length;
  if ($('notes').textContent !== service.notes.join('')) {
    $('notes').replaceChildren(...service.notes.map((note) => {
      const item = document.createElement('li');
      item.textContent = note;
      return item;
    }));
  }
  drawRules(service.rule_list);
  drawGroups(service.groups);
  drawLocks();
}

function classLine(name) {
  const line = document.createElement('tr');
  line.tabIndex = 0;
  line.dataset.name = name;
  columns.forEach((column, i) => {
    const cell = line.insertCell();
    if (column.text) cell.className = 'text';
    if (column.meter) cell.append(document.createElement('meter'));
    if (i === 0) {
      const swatch = document.createElement('span');
      swatch.className = 'swatch';
      cell.append(swatch);
    }
    cell.append(document.createTextNode(''));
  });
  return line;
}

function drawClasses() {
  const body = $('classes').tBodies[0];
  const charted = (state.history?.classes ?? []).map((one) => one.class);
  const rows = new Map();
  state.classes.forEach((one, place) => {
    const line = state.rows.get(one.class) ?? classLine(one.class);
    columns.forEach((column, i) => {
      const cell = line.cells[i];
      const text = column.show(one);
      if (cell.lastChild.data !== text) cell.lastChild.data = text;
      if (!column.meter) return;
      const fill = column.meter(one);
      cell.firstChild.hidden = fill === null;
      cell.firstChild.value = fill ?? 0;
      cell.firstChild.ariaLabel = 'Fill of the bucket';
    });
    const colour = charted.indexOf(one.class);
    line.cells[0].firstChild.style.background = colour < 0 ? 'transparent' : colours[colour];
    if (body.rows[place] !== line) body.insertBefore(line, body.rows[place] ?? null);
    rows.set(one.class, line);
  });
  while (body.rows.length > state.classes.length) body.rows[body.rows.length - 1].remove();
  state.rows = rows;
  const first = state.classes.length ? state.offset + 1 : 0;
  const place = state.count === 0 ? (state.filter ? 'no class has this text in its name' : 'no classes yet')
    : `${first}–${state.offset + state.classes.length} of ${state.count.toLocaleString()}`;
  if ($('place').textContent !== place) $('place').textContent = place;
  $('previous').disabled = state.offset === 0;
  $('next').disabled = state.offset + state.classes.length >= state.count;
}

function editButton(label, name, run) {
  const button = document.createElement('button');
  button.textContent = label;
  button.setAttribute('aria-label', `${label} ${name}`);
  button.onclick = run;
  return button;
}

// Drawn only when they change, so that a button keeps the focus.
function drawRules(rules) {
  const shape = JSON.stringify([rules, mayWrite()]);
  if (shape === state.rulesShape) return;
  state.rulesShape = shape;
  const lines = rules.map((rule) => {
    const line = rowOfTexts([rule.rule, rule.conditions, ruleLimits(rule), rule.heads,
      rule.state, short(rule.classes)]);
    if (mayWrite()) {
      const cell = line.insertCell();
      cell.append(editButton('Change', rule.rule, () => openEditor('change', rule)));
      if (rule.rule !== 'default') {
        cell.append(' ', editButton('Stop', rule.rule, () => openEditor('stop', rule)));
      }
    }
    return line;
  });
  $('rules').tBodies[0].replaceChildren(...lines);
}
function ruleLimits(rule) {
  const others = rule.limits.split(' ').filter((one) => one && !/^(rate|bps)=/.test(one)).join(' ');
  const limit = limitText(rule.rate, rule.bps);
  return others ? `${limit}; ${others}` : limit;
}

function drawJobs(jobs) {
  const shape = JSON.stringify([jobs, mayWrite()]);
  if (shape === state.jobsShape) return;
  state.jobsShape = shape;
  const focused = document.activeElement?.dataset?.job;
  $('jobs').tBodies[0].replaceChildren(...jobs.map((job) => {
    const line = rowOfTexts([job.job || '(none)', short(job.nodes),
      job.share === null ? 'not paced' : perSecond(job.share), recordText(job.record),
      short(job.waiting), short(job.running)]);
    if (mayWrite() && job.job) {
      const button = editButton('Resize', job.job, () => openJob(job));
      button.dataset.job = job.job;
      line.insertCell().append(button);
    }
    return line;
  }));
  if (focused) $('jobs').querySelector(`[data-job="${CSS.escape(focused)}"]`)?.focus();
}

// The term of the leader is the upper half.
const epochText = (epoch) => `${epoch % 2 ** 32} of term ${Math.floor(epoch / 2 ** 32)}`;

function drawGroups(groups) {
  $('groups').hidden = !groups;
  if (!groups) return;
  facts($('group-facts'), [['turns', groups.step], ['preferred', groups.preferred ?? 'none'],
    ['epoch', groups.epoch ? epochText(groups.epoch) : 'not shared'], ['ragged turns', short(groups.ragged)]]);
  $('groups').querySelector('tbody').replaceChildren(...groups.groups.map((one) =>
    rowOfTexts([one.group, short(one.turns), short(one.waiting)])));
}

function drawServer() {
  const { memory, io, version, threads, exports, hung_exports: hung, counters } = state.status;
  facts($('server-facts'), [['version', version], ['I/O', io], ['threads', threads.length],
    ['memory', `${size(memory.used)} of ${size(memory.limit)}`],
    ['requests', short(counters.requests)], ['store errors', short(counters.store_errors)]]);
  const stuck = new Map(hung.map((one) => [one.export, one]));
  $('exports').querySelector('tbody').replaceChildren(...exports.map((name) => {
    const one = stuck.get(name);
    const line = rowOfTexts([name, one ? `hangs for ${time(one.silent_ns)}: ${one.unfinished} ` +
      `requests unfinished, ${one.kept} wait` : 'responds']);
    line.className = one ? 'lost' : '';
    return line;
  }));
  $('read-only').hidden = mayWrite();
  for (const one of document.querySelectorAll('.edit')) one.hidden = !mayWrite();
  if (state.last) drawRules(current().rule_list);
  drawJobs(state.jobs);
}

function memberState(one) {
  if (one.joined) return 'joined';
  return one.registered ? 'joining' : one.away_ns === null ? 'away' : `away for ${time(one.away_ns)}`;
}

function drawCluster(cluster) {
  $('cluster').hidden = !cluster;
  if (!cluster) return;
  facts($('cluster-facts'), [['this server', cluster.name],
    ['state', cluster.why ? `${cluster.state}: ${cluster.why}` : cluster.state],
    ['leader', cluster.leader || 'none'], ['term', cluster.term], ['epochs', short(cluster.epochs)],
    ['members sharing limits', cluster.counted]]);
  $('members').tBodies[0].replaceChildren(...cluster.members.map((one) =>
    rowOfTexts([one.name, one.address, memberState(one)])));
  const sums = new Map();
  for (const { slices } of cluster.members) {
    for (const one of slices) sums.set(one.of, (sums.get(one.of) ?? 0) + one.milli_per_s);
  }
  const lines = cluster.members.flatMap((member) => member.slices.map((one) =>
    [one.of, member.name, `${short(one.milli_per_s / 1000)}/s${one.leased ? '' : ' (cut off)'}`,
      `${(100 * one.milli_per_s / Math.max(1, sums.get(one.of))).toFixed(0)} %`]));
  lines.sort((a, b) => a[0].localeCompare(b[0]) || a[1].localeCompare(b[1]));
  $('slices').hidden = !lines.length;
  $('slices').tBodies[0].replaceChildren(...lines.slice(0, 500).map(rowOfTexts));
}

// Counters of gateways are in the metrics alone.
function drawGateways(metrics) {
  const found = [...metrics.matchAll(/^weir_nfs_(\w+?)(?:_total)?\{gateway="((?:[^"\\]|\\.)*)"\} (\S+)$/gm)]
    .filter(([, , , value]) => Number(value) !== 0);
  $('gateways').hidden = !found.length;
  $('gateways').querySelector('tbody').replaceChildren(...found.map(([, name, gateway, value]) =>
    rowOfTexts([gateway, name.replaceAll('_', ' '), short(Number(value))])));
}

// ---- charts ----

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
    axes: [timeAxis(), { ...look(), size: 86, values: (self, ticks) => ticks.map(axis) }],
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
    fact(numbers, 'limit', it.rate || it.bps ? limitText(it.rate, it.bps) : 'none in this rule');
    if (it.rate) fact(numbers, 'bucket', `${short(it.level)} of ${short(it.depth)} ops`);
    if (it.bps) fact(numbers, 'bucket of bytes', `${size(it.byte_level)} of ${size(it.byte_depth)}`);
    fact(numbers, 'served', `${short(it.served)} requests`);
    fact(numbers, 'waiting now', it.waiting);
    if (it.delays) {
      const { requests, wait_ns, window_ns, device_requests, device_ns } = it.delays;
      fact(numbers, `last ${time(window_ns)}`, `${short(requests)} requests waited ` +
          `${time(wait_ns / Math.max(requests, 1))} on average`);
      if (device_requests) fact(numbers, 'device', time(device_ns / device_requests) + ' for each');
    }
    if (it.limited_by) fact(numbers, 'held by', it.limited_by);
    if (it.standing.length) fact(numbers, `job ${it.job.job}`, it.standing.join('; '));
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

// ---- editing ----

const keysOf = (rule) => rule.limits || (rule.rate ? `rate=${rule.rate}` : '');

function show(kind, title) {
  $('editor-title').textContent = title;
  for (const one of $('edit').querySelectorAll('label')) {
    one.hidden = !one.classList.contains('of-' + kind);
  }
  answerEdit('');
  $('edit-effects').hidden = true;
  $('edit-command').textContent = '';
  $('edit-apply').disabled = true;
  if (!$('editor').open) $('editor').showModal();
}

function openEditor(verb, rule) {
  state.edit = { verb, rule, generation: '' };
  const others = current().rule_list.map((one) => one.rule)
    .filter((name) => name !== rule?.rule && name !== 'default');
  const positions = [new Option(verb === 'start' ? 'first' : 'as it is', ''),
    ...others.map((name) => new Option(`before ${name}`, name))];
  $('edit-rank').replaceChildren(...positions);
  $('edit-name').value = $('edit-conditions').value = '';
  $('edit-keys').value = rule ? keysOf(rule) : '';
  show(verb, verb === 'start' ? 'Start a rule' : verb === 'change' ? `Change rule ${rule.rule}`
    : `Stop rule ${rule.rule}`);
  edited();
}

function openJob(job) {
  state.edit = { verb: 'job', job: job.job, generation: '' };
  $('edit-nodes').value = job.nodes;
  show('job', `Size of job ${job.job}`);
}

function commandOf({ verb, rule }) {
  if (verb === 'stop') return `stop ${rule.rule}`;
  const rank = $('edit-rank').value ? `rank=${$('edit-rank').value}` : '';
  const words = verb === 'start' ? ['start', $('edit-name').value, $('edit-conditions').value]
    : ['change', rule.rule];
  return [...words, $('edit-keys').value, rank].map((one) => one.trim()).filter(Boolean).join(' ');
}

// What was tried is no longer what would be applied.
function edited() {
  $('edit-apply').disabled = true;
  $('edit-effects').hidden = true;
  if (state.edit.verb !== 'job') $('edit-command').textContent = `weir rule ${commandOf(state.edit)}`;
}

function answerEdit(text, isError = false) {
  $('edit-answer').textContent = text;
  $('edit-answer').className = isError ? 'lost' : '';
}

const problemText = (problem) => [problem.where, problem.detail].filter(Boolean).join(': ') +
  (problem.hint ? `; ${problem.hint}` : '');

async function send(method, path, body) {
  const answer = await request(path, { method, body: JSON.stringify(body) });
  return { status: answer.status, ok: answer.ok, json: await answer.json() };
}

function drawEffects(caption, heads, rows) {
  $('edit-caption').textContent = caption;
  $('edit-effects').tHead.rows[0].replaceChildren(...heads.map((text) => {
    const cell = document.createElement('th');
    cell.textContent = text;
    return cell;
  }));
  $('edit-effects').tBodies[0].replaceChildren(...rows.map(rowOfTexts));
  $('edit-effects').hidden = false;
}

// Shows which classes the command would change. False: it would fail.
async function tryRule() {
  const edit = state.edit;
  const { ok, json } = await send('POST', servicePath('rules'),
    { command: commandOf(edit), dry_run: true });
  if (!ok) return answerEdit(problemText(json), true), false;
  edit.generation = json.generation;
  const parts = [`${json.affected} ${json.affected === 1 ? 'class changes' : 'classes change'}, ` +
    `${json.unchanged} ${json.unchanged === 1 ? 'does' : 'do'} not`];
  if (json.undecided) parts.push(`for ${json.undecided} it depends on more than their key`);
  if (!json.has_rules) parts.push('the policy has no rules: the rule will be kept, but inactive');
  drawEffects(parts.join('; '), ['Class', 'Becomes', 'Limit now', 'Limit then'],
    json.classes.map((one) => [one.class, one.becomes ?? 'no class in this layer',
      limitText(one.rate, one.bps), limitText(one.rate_after, one.bps_after)]));
  return true;
}

// A job's part of the capacity is its nodes among those of all jobs with a share.
async function tryJob() {
  const nodes = Number($('edit-nodes').value);
  if (!Number.isInteger(nodes) || nodes < 1) {
    return answerEdit('the number of nodes must be a whole number above 0', true), false;
  }
  const answer = await request(servicePath('jobs?limit=10000'));
  if (!answer.ok) return answerEdit(problemText(await answer.json()), true), false;
  state.edit.generation = answer.headers.get('ETag').replaceAll('"', '');
  const jobs = (await answer.json()).filter((one) => one.share !== null);
  const sum = jobs.reduce((all, one) => all + one.share, 0);
  const weight = (one) => one.job === state.edit.job ? nodes : one.weight;
  const weights = jobs.reduce((all, one) => all + weight(one), 0);
  drawEffects(jobs.length ? 'Entitlement of each job with a share; loans come on top'
    : 'No job has a share now: the size counts as soon as shares are given', ['Job', 'Nodes', 'Share now',
    'About, then'], jobs.slice(0, 200).map((one) => [one.job, short(weight(one)), perSecond(one.share),
    perSecond(sum * weight(one) / weights)]));
  return true;
}

async function tryEdit() {
  answerEdit('');
  const done = await (state.edit.verb === 'job' ? tryJob() : tryRule());
  $('edit-apply').disabled = !done;
  return done;
}

async function applyEdit() {
  const { edit } = state;
  $('edit-apply').disabled = true;
  const { status, ok, json } = edit.verb === 'job'
    ? await send('PUT', `/v1/jobs/${encodeURIComponent(edit.job)}`,
      { nodes: Number($('edit-nodes').value), generation: edit.generation })
    : await send('POST', servicePath('rules'),
      { command: commandOf(edit), generation: edit.generation });
  if (ok) {
    $('editor').close();
    return once('jobs', readJobs);
  }
  if (status !== 409) return answerEdit(problemText(json), true);
  const rules = await readJson(servicePath('rules'));
  const now = rules ? (await rules.json()).find((one) => one.rule === edit.rule?.rule) : null;
  const isPossible = await tryEdit();
  const newer = edit.verb === 'job' || edit.verb === 'start' ? ''
    : now ? ` Rule ${now.rule} now has: ${keysOf(now) || 'no limits'}.` : ` Rule ${edit.rule.rule} is gone.`;
  const why = isPossible ? ' Check the effect below and apply again.' : ` ${$('edit-answer').textContent}`;
  answerEdit(`Nothing was changed: the configuration was changed by somebody else.${newer}${why}`, true);
}

// ---- user input ----

function sortBy(column, head) {
  state.sort = column.sort;
  for (const other of $('classes').tHead.rows[0].cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', column.sort === 'class' ? 'ascending' : 'descending');
  turnTo(0);
}

for (const column of columns) {
  const head = document.createElement('th');
  head.scope = 'col';
  if (column.text) head.className = 'text';
  if (column.sort) {
    const button = document.createElement('button');
    button.textContent = column.label;
    button.onclick = () => sortBy(column, head);
    if (column.sort === state.sort) head.setAttribute('aria-sort', 'descending');
    head.append(button);
  } else {
    head.textContent = column.label;
  }
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
function again() {
  state.history = null;
  state.updates = 0;
  if (state.last) update();
}
$('filter').oninput = () => { state.filter = $('filter').value; turnTo(0); once('jobs', readJobs); };
$('service').onchange = () => { state.service = $('service').value; state.offset = 0; again(); };
$('bytes').onchange = again;
$('range').onchange = again;
$('previous').onclick = () => turnTo(state.offset - pageSize);
$('next').onclick = () => turnTo(state.offset + pageSize);
$('namespace').onchange = () => { state.namespace = $('namespace').value; draw(); };
$('start-rule').onclick = () => openEditor('start', null);
$('edit').onsubmit = (event) => { event.preventDefault(); tryEdit(); };
$('edit').oninput = edited;
$('edit-apply').onclick = applyEdit;
$('edit-cancel').onclick = () => $('editor').close();
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
  if (state.last) update();
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden || !state.last) return;
  watch();
  again();
});
setInterval(watch, 1000);
listen();
