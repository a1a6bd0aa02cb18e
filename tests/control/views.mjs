// SPDX-License-Identifier: Apache-2.0
//
// Looks at the console in Chromium, and prints what it finds as JSON.
//   node views.mjs MODULES URL FOLDER colours     the contrast of every text that is shown
//   node views.mjs MODULES URL FOLDER cluster     the views of a cluster, groups and NFS gateways
//   node views.mjs MODULES URL FOLDER gateway     a gateway of weir nfs
//   node views.mjs MODULES URL FOLDER lustre      the services of weir lustre run
//   node views.mjs MODULES URL FOLDER shares      a tree of shares
//   node views.mjs MODULES URL FOLDER sizes       a server without classes; after a line on standard
//                                                 input, one with 300
//   node views.mjs MODULES URL FOLDER sleep       a page that sleeps for an hour; a line on standard
//                                                 input wakes it
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [, , modules, url, folder, what] = process.argv;
const { chromium } = createRequire(modules + '/')('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const timeout = 60000;
const say = (json) => process.stdout.write(JSON.stringify(json) + '\n');

// Runs in the page: texts whose contrast with their background is below that of WCAG AA, and
// colours of charts below 3:1.
function poorContrasts() {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], below) =>
    [r, g, b].map((one, i) => one * a + below[i] * (1 - a)).concat(1);
  const behind = (element) => {
    const all = [];
    for (let at = element; at; at = at.parentElement) {
      all.push(parse(getComputedStyle(at).backgroundColor));
    }
    return all.reverse().reduce((below, one) => over(one, below), [255, 255, 255, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const poor = [];
  let seen = 0;
  const check = (element, text, colour, least) => {
    const below = behind(element);
    const found = ratio(over(colour, below), below);
    ++seen;
    if (found < least) poor.push(`${found.toFixed(2)}: ${text.trim().slice(0, 40)}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('.hidden') ||
        element.closest('option, script, :disabled')) continue;
    const style = getComputedStyle(element);
    const points = parseFloat(style.fontSize);
    const isLarge = points >= 24 || points >= 18.66 && style.fontWeight >= 700;
    check(element, texts.currentNode.data, parse(style.color), isLarge ? 3 : 4.5);
  }
  for (const input of document.querySelectorAll('input, select')) {
    if (!input.checkVisibility() || input.type === 'checkbox') continue;
    check(input, 'input ' + input.id, parse(getComputedStyle(input).color), 4.5);
  }
  const probe = document.createElement('span');
  const panel = document.querySelector('main section');
  panel.append(probe);
  const computed = (colour) => { probe.style.color = colour; return parse(getComputedStyle(probe).color); };
  for (const colour of colours) check(panel, `line ${colour}`, computed(colour), 3);
  for (const name of ['--soft', '--ink']) check(panel, `axis ${name}`, computed(`var(${name})`), 4.5);
  for (const name of ['--bar', '--accent']) check(panel, `shape ${name}`, computed(`var(${name})`), 3);
  probe.remove();
  return { seen, poor };
}

async function lookAtColours(page) {
  const found = {};
  await page.waitForFunction(() => state.history?.classes.length && state.status, null, { timeout });
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForTimeout(1200);
    found[scheme] = await page.evaluate(poorContrasts);
    await page.locator('#classes tbody tr').first().click();
    await page.waitForSelector('#explanation[open]', { timeout });
    found[scheme + ', explained'] = await page.evaluate(poorContrasts);
    await page.keyboard.press('Escape');
    await page.locator('#start-rule').click();
    await page.locator('#edit-try').click();
    await page.waitForFunction(() => $('edit-answer').textContent, null, { timeout });
    found[scheme + ', edited'] = await page.evaluate(poorContrasts);
    await page.locator('#edit-cancel').click();
  }
  // That the check can fail.
  await page.evaluate(() => { $('facts').style.color = '#888'; $('facts').style.background = '#999'; });
  found.bad = await page.evaluate(poorContrasts);
  say(found);
}

// Counters as the gateways of a server show them.
const gateways = ['clients', 'calls_total', 'requests_total', 'answered_total', 'delayed_total']
  .map((name, i) => `weir_nfs_${name}{gateway="<b>nfs</b> to server"} ${12345 * i}`).join('\n');

async function lookAtCluster(page) {
  await page.route('**/metrics', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: await answer.text() + gateways + '\n' });
  });
  await page.goto(url);
  // What this server uses is known after the first second of its load; a member that a busy machine
  // did not run for long joins again.
  const shown = await (await page.waitForFunction(() => {
    const rows = (id) => [...$(id).querySelector('tbody').rows];
    const isWhole = rows('slices').length === 2 && rows('groups').length === 3 &&
      rows('gateways').length > 0 && rows('slices').some((row) => row.cells[4].textContent.includes('%')) &&
      rows('members').length === 2 && rows('members').every((row) => row.cells[2].textContent === 'joined');
    return isWhole && Object.fromEntries(['cluster', 'groups', 'gateways', 'exports'].map((id) =>
      [id, $(id).innerText]));
  }, null, { timeout })).jsonValue();
  const html = await page.locator('main b').count();
  const fits = await shots(page, 'cluster');
  say({ ...shown, html, fits });
}

async function lookAtGateway(page) {
  await page.waitForFunction(() => $('gateways').querySelector('tbody').rows.length >= 2 &&
    state.classes.some((one) => one.served > 0) && state.status, null, { timeout });
  const text = (id) => page.locator('#' + id).innerText();
  say({ gateways: await text('gateways'), exports: await text('exports'), classes: await text('classes'),
    fits: await shots(page, 'nfs'), poor: (await page.evaluate(poorContrasts)).poor });
}

// Takes screenshots and tells whether the page is as wide as the window.
async function shots(page, name) {
  const fits = {};
  for (const [kind, width, scheme] of [['light', 1280, 'light'], ['dark', 1280, 'dark'], ['phone', 400, 'light']]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: scheme });
    fits[kind] = await page.waitForFunction(
      () => document.documentElement.scrollWidth <= innerWidth, null, { timeout: 10000 })
      .then(() => true, () => false);
    await page.screenshot({ path: `${folder}/${name}-${kind}.png`, fullPage: true });
  }
  return fits;
}

async function lookAtLustre(page) {
  await page.waitForFunction(() => [...document.querySelectorAll('#lustre tbody td.why')]
    .some((cell) => cell.textContent.startsWith('held at')), null, { timeout });
  const text = await page.locator('main').innerText();
  const found = { text, state: await page.locator('#state').innerText(), fits: await shots(page, 'lustre'),
    poor: (await page.evaluate(poorContrasts)).poor };
  await page.locator('#lustre-filter').fill('mak');
  await page.waitForFunction(() => document.querySelectorAll('#lustre tbody tr').length === 1, null, { timeout });
  say(found);
}

async function lookAtShares(page) {
  await page.waitForFunction(() => $('shares').querySelectorAll('tbody tr').length === 7 && state.status,
    null, { timeout });
  const found = await page.evaluate(() => ({
    levels: $('shares-levels').textContent, place: $('shares-place').textContent,
    rows: [...$('shares').querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent)),
    indents: [...$('shares').querySelectorAll('tbody tr')].map((row) => parseFloat(row.cells[0].style.paddingLeft)),
    html: document.querySelectorAll('#shares b').length }));
  say({ ...found, fits: await shots(page, 'shares'), poor: (await page.evaluate(poorContrasts)).poor });
}

async function lookAtSizes(page) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await page.waitForFunction(() => state.history && state.status && $('jobs-place').textContent, null, { timeout });
  say({ classes: await page.locator('#place').innerText(), jobs: await page.locator('#jobs-place').innerText(),
    fits: await shots(page, 'empty') });
  await lines.next();
  await page.waitForFunction(() => state.count >= 300 && state.jobs.length === 50 && state.classes[0]?.recent,
    null, { timeout });
  say({ classes: await page.locator('#place').innerText(), jobs: await page.locator('#jobs-place').innerText(),
    rows: await page.locator('#classes tbody tr').count(), fits: await shots(page, 'classes-300') });
}

async function sleep(page) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await page.waitForFunction(() => $('state').textContent === 'live', null, { timeout });
  const first = { state: await page.locator('#state').innerText() };
  await page.evaluate(() => {
    globalThis.slept = 0;
    const now = Date.now;
    Date.now = () => now() + slept;
  });
  const before = await page.evaluate(() => state.last.time_ns);
  const session = await page.context().newCDPSession(page);
  await session.send('Page.setWebLifecycleState', { state: 'frozen' });
  say(first);
  await lines.next();
  await session.send('Page.setWebLifecycleState', { state: 'active' });
  await page.evaluate(() => { slept = 3600e3; });
  await page.waitForFunction((before) => state.last.time_ns > before &&
    $('state').textContent === 'live' && state.classes.some((one) => one.class === 'default/late.1') &&
    Math.abs(state.history.end_ns - state.last.time_ns) < 5e9, before, { timeout: 25000 });
  await page.screenshot({ path: `${folder}/slept.png`, fullPage: true });
  say({ state: await page.locator('#state').innerText(),
    streams: await page.evaluate(() => performance.getEntriesByName(location.origin + '/v1/events').length) });
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  if (what !== 'cluster') await page.goto(url);
  await { colours: lookAtColours, cluster: lookAtCluster, gateway: lookAtGateway,
    lustre: lookAtLustre, shares: lookAtShares, sizes: lookAtSizes, sleep }[what](page);
} finally {
  await browser.close();
}
process.exit(0);
