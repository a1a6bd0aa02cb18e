// SPDX-License-Identifier: Apache-2.0
//
// Uses the console in Chromium like a user, and prints what it shows as JSON.
//   node page.mjs MODULES URL FOLDER READ_URL     a line on standard input continues it
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [, , modules, url, folder, readUrl] = process.argv;
const { chromium } = createRequire(modules + '/')('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const step = async (what) => {
  process.stdout.write(JSON.stringify(what) + '\n');
  await lines.next();
};
const timeout = 60000;

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin && !request.url().startsWith('data:')) {
      problems.push('asked for ' + request.url());
    }
  });
  const row = (name) => `#classes tbody tr[data-name="${name}"]`;
  const cell = (name, column) => page.locator(`${row(name)} td`).nth(column).innerText();
  const shot = (name, whole = true) => page.screenshot({ path: `${folder}/${name}.png`, fullPage: whole });

  // What is there when the page first says that it is live.
  await page.addInitScript(() => {
    new MutationObserver(() => {
      if (globalThis.atLive || document.getElementById('state')?.textContent !== 'live') return;
      globalThis.atLive = { rows: document.querySelectorAll('#classes tbody tr').length,
        charts: document.querySelectorAll('#throughput canvas, #wait canvas').length,
        rules: document.querySelectorAll('#rules tbody tr').length };
    }).observe(document, { subtree: true, childList: true, characterData: true });
  });
  await page.goto(url);
  await page.waitForSelector(row('default/dd.0'), { timeout });
  const first = await page.waitForFunction(() => globalThis.atLive, null, { timeout })
    .then((handle) => handle.jsonValue());
  await page.waitForFunction(() => state.history?.classes.length === 3, null, { timeout });
  await page.waitForFunction((row) => document.querySelector(row).cells[1].textContent > '0',
    row('default/dd.0'), { timeout });
  const keys = await page.evaluate(() => {
    const rowAt = (place) => $('classes').tBodies[0].rows[place];
    const last = rowAt(2);
    last.focus();
    state.classes.reverse();
    drawClasses();
    return { moved: rowAt(0) === last, kept: document.activeElement === last };
  });
  await page.keyboard.press('ArrowDown');
  keys.arrow = await page.evaluate(() => document.activeElement?.matches('#classes tbody tr') &&
    document.activeElement.previousElementSibling !== null);
  await shot('light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForTimeout(1500);
  const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await shot('dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 400, height: 800 });
  const narrow = await page.waitForFunction(
    () => document.documentElement.scrollWidth <= innerWidth, null, { timeout: 10000 })
    .then(() => true, () => false);
  await shot('phone');
  await page.setViewportSize({ width: 1280, height: 1000 });
  const html = await page.locator('main b').count();
  const names = await page.evaluate(() => [...document.querySelectorAll('[role=img]')]
    .filter((one) => one.checkVisibility()).map((one) => one.getAttribute('aria-labelledby')
      .split(' ').map((id) => $(id).textContent).join(' ')));
  await step({ step: 'live', first, keys, dark, html, narrow, names, ops: await cell('default/dd.0', 1) });

  // A rule from the page, with a dry run; another administrator is faster.
  await page.locator('#start-rule').click();
  await page.locator('#edit-name').fill('slow');
  await page.locator('#edit-conditions').fill('jobid={dd.*}');
  await page.locator('#edit-keys').fill('rate=20 bps=1MB/s');
  const command = await page.locator('#edit-command').innerText();
  const early = await page.locator('#edit-apply').isDisabled();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#edit-apply:enabled', { timeout });
  const effects = await page.locator('#edit-effects').innerText();
  await shot('dry-run', false);
  await step({ step: 'tried', command, early, effects });
  await page.locator('#edit-apply').click();
  await page.waitForFunction(() => $('edit-answer').textContent !== '' && !$('edit-apply').disabled,
    null, { timeout });
  const lost = await page.locator('#edit-answer').innerText();
  await shot('race', false);
  await page.locator('#edit-apply').click();
  await page.waitForFunction(() => !$('editor').open, null, { timeout });
  await page.waitForSelector(row('slow/dd.0'), { timeout });
  await page.waitForFunction(() => state.history.marks.some((one) => one.text.startsWith('start slow')),
    null, { timeout });
  await page.locator(row('slow/dd.0')).focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#explanation[open]', { timeout });
  const explained = await page.locator('#explanation').innerText();
  const told = await page.evaluate(async () => {
    const query = new URLSearchParams({ name: 'slow/dd.0', service: state.service });
    return await (await request('/v1/explain?' + query)).json();
  });
  await shot('explanation', false);
  await page.keyboard.press('Escape');
  const closed = await page.locator('#explanation[open]').count() === 0;
  await step({ step: 'ruled', lost, explained, told, closed, limit: await cell('slow/dd.0', 6) });

  // A job's size, and the end of the rule.
  await page.waitForSelector('#jobs [data-job="ior.1"]', { timeout });
  await page.locator('#jobs [data-job="ior.1"]').click();
  await page.locator('#edit-nodes').fill('7');
  await page.locator('#edit-try').click();
  await page.waitForSelector('#edit-apply:enabled', { timeout });
  await page.locator('#edit-apply').click();
  await page.waitForFunction(() => !$('editor').open, null, { timeout });
  await page.locator('#rules [aria-label="Stop slow"]').click();
  await page.locator('#edit-try').click();
  await page.waitForSelector('#edit-apply:enabled', { timeout });
  await page.locator('#edit-apply').click();
  await page.waitForFunction(() => !$('editor').open, null, { timeout });
  await step({ step: 'edited' });

  // A token that may only read.
  const reader = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
  await reader.goto(readUrl);
  await reader.waitForFunction(() => state.status, null, { timeout });
  await reader.waitForSelector('#rules tbody tr', { timeout });
  const readOnly = { said: await reader.locator('#read-only').isVisible(),
    buttons: await reader.locator('#rules button:visible, #jobs button:visible, #start-rule:visible').count() };
  await reader.close();

  // Many classes: pages and a search that reaches all of them.
  await page.waitForFunction(() => state.count > 8192, null, { timeout });
  const rows = await page.locator('#classes tbody tr').count();
  await shot('many');
  await page.locator('#next').click();
  await page.waitForFunction(() => $('place').textContent.startsWith('51–'), null, { timeout });
  await page.locator('#filter').fill('many.8191');
  await page.waitForFunction(() => document.querySelectorAll('#classes tbody tr').length === 1,
    null, { timeout });
  await page.locator('#filter').fill('');
  await page.waitForFunction(() => document.querySelectorAll('#classes tbody tr').length === 50,
    null, { timeout });
  // Processor time of the page's main thread, over ten seconds.
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const spent = async () => (await session.send('Performance.getMetrics')).metrics
    .find((one) => one.name === 'TaskDuration').value;
  const before = await spent();
  await page.waitForTimeout(10000);
  const busy = (await spent() - before) * 100;  // ms in a second

  // A page whose connection died while it slept.
  await page.evaluate(() => { state.heardAt = 0; state.history = null; });
  await page.waitForFunction(() => state.history && Date.now() - state.heardAt < 3000, null, { timeout });
  const back = await page.locator('#state').innerText();
  const marks = await page.locator('#marks').textContent();
  const markup = await page.locator('main b').count();
  const [charted, swatches] = await page.evaluate(() => {
    const lines = [...state.rows].filter(([name]) => state.history.classes.some((one) => one.class === name));
    const hasColour = ([, line]) => line.cells[0].firstChild.style.background !== 'transparent';
    return [lines.length, lines.filter(hasColour).length];
  });
  await step({ step: 'many', readOnly, rows, busy, back, problems, marks, charted, swatches, html: markup });

  // The server has ended.
  await page.waitForSelector('#state.lost', { timeout });
  await shot('lost');
  await step({ step: 'lost', said: await page.locator('#state').innerText() });
} finally {
  await browser.close();
}
process.exit(0);
