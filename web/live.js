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
  lockCharts: {}, jobs: [], hasClasses: false, reading: null, heardAt: 0, updates: 0, edit: null,
};

// A request on a connection that died while the machine slept would wait for minutes.
function request(path, options = {}) {
  const headers = token ? { Authorization: 'Bearer ' + token } : {};
  return fetch(path, { signal: AbortSignal.timeout(answerMax), ...options, headers });
}
const needsToken = 'token required: open this page as …/#token=TOKEN';
const servicePath = (rest) => `/v1/services/${encodeURIComponent(state.service)}/${rest}`;

// ---- numbers ----

// At most three digits; whole numbers below 1000 have no point.
function digits(number) {
  const size = Math.abs(number);
  return number.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
function short(number) {
  const units = ['', 'k', 'M', 'G', 'T'];
  let unit = 0;
  while (unit < 4 && Math.abs(number) >= 999.5) { number /= 1000; ++unit; }
  return (unit || number % 1 && Math.abs(number) < 100 ? digits(number) : Math.round(number)) + units[unit];
}
// A setting or an axis: without zeros behind the point.
const plain = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');
const counted = (number, one) => `${short(number)} ${one}${number === 1 ? '' : 's'}`;
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
const limitText = (rate, bps, none = 'none') =>
  [rate ? plain(ops(rate)) : '', bps ? plain(bandwidth(bps)) : ''].filter(Boolean).join(', ') || none;
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
  { label: 'Limit', show: (one) =>
    limitText(one.rate, one.bps, one.cause === 'limit' ? 'of another layer' : '–') },
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
  sayLive();
  if (!document.hidden) update();
}

const isLost = () => $('state').className === 'lost';
// Not before classes and charts are there too, or the page would look complete without them.
function sayLive() {
  const text = state.history && state.hasClasses ? 'live' : 'loading';
  if ($('state').textContent !== text) say(text);
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
      const status = await readEvents(state.reading);
      if (status === 401) return say(needsToken, true);
      if (status === 404) return followDriver();  // this is weir lustre
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
  state.hasClasses = true;
  drawClasses();
  if (!isLost()) sayLive();
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
  paintSwatches();
  if (!isLost()) sayLive();
}

async function readJobs() {
  const query = new URLSearchParams({ filter: state.filter.replace(/^[^/]*\//, ''), limit: pageSize });
  const answer = await readJson(servicePath('jobs?' + query));
  if (!answer) return;
  state.jobs = await answer.json();
  drawJobs(state.jobs);
  const count = Number(answer.headers.get('Weir-Count'));
  $('jobs-place').textContent = state.jobs.length === 0
    ? (state.filter ? 'no job has this text in its name' : 'no jobs yet')
    : count <= state.jobs.length ? '' : `${state.jobs.length} of ${count.toLocaleString()}; ` +
      'the search of classes finds the others';
}

async function readRest() {
  const status = await readJson('/v1/status');
  if (status) { state.status = await status.json(); drawServer(); }
  const answer = await request('/v1/cluster');
  const cluster = answer.ok ? await answer.json() : null;
  drawCluster(cluster, cluster && await readUses(cluster));
  const metrics = await readJson('/metrics');
  if (metrics) drawGateways(await metrics.text());
}

function update() {
  draw();
  once('classes', readClasses);
  const interval = $('range').value === '15' ? 15 : 2;  // drawing is most of the work
  if (!state.history || state.updates % interval === 0) once('history', readHistory);
  if (state.updates % 5 === 0) {
    once('jobs', readJobs);
    once('shares', readShares);
  }
  // The second time soon: at first no rates are known.
  if (state.updates % 10 === 0 || state.updates === 3) once('rest', readRest);
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
    ['capacity', service.capacity === null ? 'unknown' : plain(perSecond(service.capacity))],
    ['adaptive', service.adaptive],
    ['queued', counted(service.queued, 'request')],
    ['running', `${service.running} of ${service.slots.count} slots` +
      (service.slots.auto ? ' (auto)' : '')],
    ['classes', short(service.classes)],
    ['connections', short(state.last.connections)],
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

// In the colours of the charts.
function paintSwatches() {
  const charted = (state.history?.classes ?? []).map((one) => one.class);
  for (const [name, line] of state.rows) {
    const colour = charted.indexOf(name);
    line.cells[0].firstChild.style.background = colour < 0 ? 'transparent' : colours[colour];
  }
}

function drawClasses() {
  const body = $('classes').tBodies[0];
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
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
    if (body.rows[place] !== line) body.insertBefore(line, body.rows[place] ?? null);
    rows.set(one.class, line);
  });
  while (body.rows.length > state.classes.length) body.rows[body.rows.length - 1].remove();
  state.rows = rows;
  paintSwatches();
  if (focused !== document.activeElement && focused?.isConnected) {
    focused.focus({ preventScroll: true });  // a row that is moved loses it
  }
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
$('lustre-filter').oninput = () => { if (state.driver) drawDriver(); };
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
  if (state.history) drawCharts();
  if (state.last) drawLocks();
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden || !state.last) return;
  watch();
  again();
});
setInterval(watch, 1000);
listen();
