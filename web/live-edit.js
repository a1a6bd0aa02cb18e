// SPDX-License-Identifier: Apache-2.0
//
// Explanations in the console (live.js), and the editor of rules and job sizes.
'use strict';

// ---- explaining ----

// Words and numbers are those of the server, so that they are the same in weir explain. Each cause
// with its part of the wait.
function drawDelays(delays) {
  const hides = !delays?.causes.length;
  $('delays').hidden = hides;
  $('delays-title').hidden = !delays;
  $('delays-title').textContent = delays?.text ?? '';
  if (hides) return;
  $('delays').tBodies[0].replaceChildren(...delays.causes.map((one) => {
    const isWait = !['device', 'all'].includes(one.cause);
    const part = delays.wait_ns ? one.total_ns / delays.wait_ns : 0;
    const line = rowOfTexts([one.text, one.each, one.total, isWait ? `${(100 * part).toFixed(0)} %` : '']);
    const cell = line.insertCell();
    cell.className = 'bar';
    if (isWait) {
      const bar = document.createElement('span');
      bar.style.width = `${100 * part}%`;
      cell.append(bar);
    }
    return line;
  }));
}

function drawExplanation(it) {
  const numbers = $('numbers');
  $('reason').textContent = it.verdict;
  $('cure').hidden = !it.cure;
  $('cure-command').textContent = it.cure ?? '';
  for (const { name, text } of it.facts) fact(numbers, name, text);
  if (it.standing.length) fact(numbers, `job ${it.job.job}`, it.standing.join('; '));
  drawDelays(it.delays);
}

async function explain(name) {
  const query = new URLSearchParams({ name, service: state.service });
  const answer = await request('/v1/explain?' + query);
  const it = await answer.json();
  $('explained').textContent = name;
  $('numbers').replaceChildren();
  if (answer.ok) {
    drawExplanation(it);
  } else {
    $('reason').textContent = it.hint ? `${it.detail}; ${it.hint}` : it.detail;
    for (const id of ['cure', 'delays', 'delays-title']) $(id).hidden = true;
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
      limitText(one.rate, one.bps, '–'), limitText(one.rate_after, one.bps_after, '–')]));
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

function namesOf(rules) {
  const most = 10;
  const names = rules.slice(0, most).map((one) => one.rule).join(', ');
  return rules.length > most ? `${names} and ${rules.length - most} others` : names;
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
  const answer = await readJson(servicePath('rules'));
  const rules = answer ? await answer.json() : [];
  const now = rules.find((one) => one.rule === edit.rule?.rule);
  const isPossible = await tryEdit();
  const newer = edit.verb === 'job' ? ''
    : edit.verb === 'start' ? ` Rules now: ${namesOf(rules)}.`
    : now ? ` Rule ${now.rule} now has: ${keysOf(now) || 'no limits'}.` : ` Rule ${edit.rule.rule} is gone.`;
  const why = isPossible ? ' Check the effect below and apply again.' : ` ${$('edit-answer').textContent}`;
  answerEdit(`Nothing was changed: the configuration was changed by somebody else.${newer}${why}`, true);
}
