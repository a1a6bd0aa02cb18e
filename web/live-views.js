// SPDX-License-Identifier: Apache-2.0
//
// Views of the console (live.js) beside the classes of a service: groups, its tree of shares,
// exports, cluster, NFS gateways, and the services of a Lustre driver.
'use strict';

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
  const { memory, io, version, threads, stores, hung_exports: hung, counters } = state.status;
  facts($('server-facts'), [['version', version], ['I/O', io], ['threads', threads.length],
    ['memory', `${size(memory.used)} of ${size(memory.limit)}`],
    ['requests', short(counters.requests)], ['store errors', short(counters.store_errors)]]);
  const stuck = new Map(hung.map((one) => [one.export, one]));
  $('exports').querySelector('tbody').replaceChildren(...stores.slice(0, 500).map((store) => {
    const one = stuck.get(store.export);
    const line = rowOfTexts([store.export, store.service, store.store, store.bytes ? size(store.bytes) : '–',
      one ? `hangs for ${time(one.silent_ns)}: ${counted(one.unfinished, 'request')} unfinished, ` +
        `${short(one.kept)} wait` : store.read_only ? 'responds, read-only' : 'responds']);
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

function drawCluster(cluster, uses) {
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
  const lines = cluster.members.flatMap((member) => member.slices.map((one) => {
    const { unit, name, limit } = limitOf(one.of);
    const used = member.name === cluster.name ? uses?.get(one.of) : undefined;
    const text = (number) => inUnit(number, unit);
    return [name + (limit ? ` (${plain(text(limit))})` : ''), member.name,
      text(one.milli_per_s / 1000) + (one.leased ? '' : ' (cut off)'),
      `${(100 * one.milli_per_s / Math.max(1, sums.get(one.of))).toFixed(0)} %`,
      used === undefined ? '–' : `${text(used)}, ` +
        `${(100e3 * used / Math.max(1, one.milli_per_s)).toFixed(0)} %`];
  }));
  lines.sort((a, b) => a[0].localeCompare(b[0]) || a[1].localeCompare(b[1]));
  $('slices').hidden = !lines.length;
  $('slices').tBodies[0].replaceChildren(...lines.slice(0, 500).map(rowOfTexts));
}

// What a slice is of: SERVICE/RULE/ops, or SERVICE/RULE/KEY/bytes for a class of the rule.
function limitOf(of) {
  const [service, rule, ...rest] = of.split('/');
  const isBytes = rest.pop() === 'bytes';
  const known = state.last?.services.find((one) => one.service === service)
    ?.rule_list.find((one) => one.rule === rule);
  return { service, rule, class: `${rule}/${rest.join('/') || '*'}`, unit: isBytes ? 'bytes' : 'operations',
    name: `${service}/${[rule, ...rest].join('/')}`, limit: known?.[isBytes ? 'bps' : 'rate'] ?? 0 };
}

// What this server uses of its slices, per second.
async function readUses(cluster) {
  const uses = new Map();
  const slices = cluster.members.find((one) => one.name === cluster.name)?.slices ?? [];
  const rules = new Map(slices.map(({ of }) => [`${limitOf(of).service}/${limitOf(of).rule}`, limitOf(of)]));
  for (const { service, rule } of [...rules.values()].slice(0, 20)) {
    const query = new URLSearchParams({ filter: rule + '/', limit: 500, sort: 'recent_served' });
    const answer = await readJson(`/v1/services/${encodeURIComponent(service)}/classes?` + query);
    const classes = answer ? await answer.json() : [];
    for (const { of } of slices) {
      const limit = limitOf(of);
      const found = limit.service === service && classes.find((one) => one.class === limit.class);
      if (!found || !found.recent) continue;
      const moved = found.recent[limit.unit === 'bytes' ? 'bytes' : 'served'];
      uses.set(of, moved * 1e9 / found.recent.window_ns);
    }
  }
  return uses;
}

// ---- a tree of shares ----

const sharesMax = 200;  // nodes

async function readShares() {
  const service = state.service;
  const tree = current()?.tree;
  $('shares').hidden = !tree;
  if (!tree) return;
  const answer = await readJson(servicePath('shares'));
  if (!answer) return;
  const nodes = await answer.json();
  if (service === state.service) drawShares(tree, nodes);
}

// The server lists them level by level; here children follow their parents.
function drawShares(tree, nodes) {
  const found = nodes.map((node) => ({ node, names: node.path.split('/') }));
  found.sort((a, b) => {
    const at = a.names.findIndex((name, i) => name !== b.names[i]);
    if (at < 0) return a.names.length - b.names.length;
    return at >= b.names.length ? 1 : a.names[at].localeCompare(b.names[at], 'en', { numeric: true });
  });
  $('shares-levels').textContent = tree.levels.replaceAll(',', ' → ');
  $('shares').querySelector('tbody').replaceChildren(...found.slice(0, sharesMax).map(({ node, names }) => {
    const line = rowOfTexts([node.name === null ? names.at(-1) : `${node.name} (${names.at(-1)})`, node.level, `${short(node.weight)} of ${short(node.weights)}`,
      `${digits(100 * node.weight / Math.max(1, node.weights))} %`,
      node.share === null ? 'not paced' : perSecond(node.share), recordText(node.record),
      short(node.lent), short(node.borrowed)]);
    line.cells[0].style.paddingLeft = `${10 + 20 * (names.length - 1)}px`;
    line.cells[0].title = node.path;
    line.cells[1].className = 'text';
    return line;
  }));
  $('shares-place').textContent = tree.nodes === 0 ? 'no job is active'
    : tree.nodes <= Math.min(found.length, sharesMax) ? ''
    : `${Math.min(found.length, sharesMax)} of ${tree.nodes.toLocaleString()}; ` +
      'weir ledger --nodes lists the first 1,000';
}

// Counters of gateways are in the metrics alone; their words are the help there.
function drawGateways(metrics) {
  const helps = new Map([...metrics.matchAll(/^# HELP (weir_nfs_\w+) (.*?)\.?$/gm)].map(([, name, help]) => [name, help]));
  const found = [...metrics.matchAll(/^(weir_nfs_(\w+?)(?:_total)?)\{gateway="((?:[^"\\]|\\.)*)"\} (\S+)$/gm)]
    .filter(([, , , , value]) => Number(value) !== 0).sort((a, b) => a[3].localeCompare(b[3]));
  $('gateways').hidden = !found.length;
  $('gateways').querySelector('tbody').replaceChildren(...found.map(([, name, words, gateway, value], i) =>
    rowOfTexts([gateway === found[i - 1]?.[3] ? '' : gateway, helps.get(name) ?? words.replaceAll('_', ' '),
      short(Number(value))])));
}

// ---- Lustre ----

const lustreJobs = 200;  // of a service; the search reaches all

// A driver (weir lustre run) has no events: the page asks for its state.
async function followDriver() {
  for (const one of document.querySelectorAll('main > :not(#lustre), #service-choice')) one.hidden = true;
  $('lustre').hidden = false;
  document.title = 'Weir, Lustre driver';
  for (;;) {
    try {
      const answer = await request('/v1/lustre');
      if (answer.status === 401) return say(needsToken, true);
      state.driver = await answer.json();
      if (!document.hidden) drawDriver();
      say('live');
    } catch (error) {
      console.debug(error);
      say('driver not reachable; retrying' +
        (state.driver ? `. Last data: ${localDay(state.driver.time)}` : ''), true);
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

function driverSection(name) {
  const made = document.createElement('section');
  made.dataset.name = name;
  made.append($('lustre-service').content.cloneNode(true));
  made.querySelector('h3').textContent = name;
  $('lustre-services').append(made);
  return made;
}

// The share of the capacity that a job has and what it is entitled to, on one scale.
function driverRow(job, capacity) {
  const rate = (number) => `${short(number)} req/s`;
  const line = rowOfTexts([job.job, short(job.nodes), job.state, rate(job.per_second),
    job.entitlement ? rate(job.entitlement) : '–', job.rate === null ? '–' : rate(job.rate), recordText(job.record)]);
  const bar = document.createElement('span');
  bar.style.width = `${Math.min(100, 100 * job.per_second * job.cost / Math.max(1, capacity))}%`;
  const cell = line.insertCell(4);
  cell.className = 'bar';
  cell.append(bar);
  const why = line.insertCell();
  why.textContent = job.why;
  why.className = 'text why';
  return line;
}

function drawDriver() {
  const services = state.driver.services;
  const filter = $('lustre-filter').value;
  for (const old of $('lustre-services').children) {
    if (!services.some((one) => one.service === old.dataset.name)) old.remove();
  }
  for (const one of services) {
    const section = [...$('lustre-services').children].find((old) => old.dataset.name === one.service) ??
      driverSection(one.service);
    const { counters } = one;
    facts(section.querySelector('dl'), [['algorithm', one.algorithm + (one.dry_run ? ', dry run' : '')],
      ['capacity', one.capacity === null ? 'not measured yet' : `${short(one.capacity)} mean requests/s`],
      ['queued', counted(one.queued, 'request')], ['jobs held', `${one.held} of ${short(one.jobs.length)}`],
      ['rounds', `${short(counters.rounds)}, ${short(counters.failed_rounds)} failed`],
      ['rules written', `${short(counters.writes)}, ${short(counters.failed_writes)} refused`],
      ['repaired', short(counters.repairs)], ['stopped by others', short(counters.stolen)]]);
    const found = one.jobs.filter((job) => job.job.includes(filter));
    const order = (job) => [job.held_since === null ? 1 : 0, -job.per_second];
    found.sort((a, b) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1] || a.job.localeCompare(b.job));
    section.querySelector('tbody').replaceChildren(
      ...found.slice(0, lustreJobs).map((job) => driverRow(job, one.capacity ?? 0)));
    section.querySelector('.pages').textContent = found.length === 0
      ? (filter ? 'no job has this text in its name' : 'no jobs yet')
      : found.length <= lustreJobs ? '' : `${lustreJobs} of ${found.length.toLocaleString()}; search for the others`;
  }
}
