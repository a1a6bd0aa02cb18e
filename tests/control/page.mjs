// SPDX-License-Identifier: Apache-2.0
//
// Uses the live page in Chromium like a user, and prints what it shows as JSON.
//   node page.mjs MODULES URL FOLDER        a line on standard input continues it
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [, , modules, url, folder] = process.argv;
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
  await page.goto(url);
  await page.waitForSelector('#classes tbody tr[data-name="default/dd.0"]', { timeout });
  const cell = (name, column) => page.locator(`tr[data-name="${name}"] td`).nth(column).innerText();
  const moved = async () => {
    const first = await page.locator('#throughput .u-legend').innerText();
    await page.waitForFunction(() => state.events.length >= 3, null, { timeout });
    return first.length > 0;
  };
  const drawn = await moved();
  await page.screenshot({ path: folder + '/light.png' });
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForTimeout(1500);
  const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.screenshot({ path: folder + '/dark.png' });
  await page.emulateMedia({ colorScheme: 'light' });
  const html = await page.locator('#classes b').count();
  await step({ step: 'live', drawn, dark, html, ops: await cell('default/dd.0', 2) });

  // A rule was started by the command line.
  await page.waitForSelector('#classes tbody tr[data-name="slow/dd.0"]', { timeout });
  await page.waitForFunction(() => [...document.querySelectorAll('#rules tbody tr')]
    .some((row) => row.cells[0].textContent === 'slow'), null, { timeout });
  await page.waitForFunction(() => {
    const rates = state.events.at(-1).rates.ost_io.find((row) => row.name === 'slow/dd.0');
    return rates && rates.ops > 0 && rates.ops < 100;
  }, null, { timeout });
  await page.locator('tr[data-name="slow/dd.0"]').focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#explanation[open]', { timeout });
  const explained = await page.locator('#explanation').innerText();
  await page.screenshot({ path: folder + '/explanation.png' });
  await page.keyboard.press('Escape');
  const closed = await page.locator('#explanation[open]').count() === 0;
  await step({ step: 'ruled', explained, closed, limit: await cell('slow/dd.0', 6) });

  // Two hundred classes.
  await page.waitForFunction(() => document.querySelectorAll('#classes tbody tr').length >= 200,
    null, { timeout });
  const longest = await page.evaluate(async () => {
    let worst = 0, last = performance.now();
    const end = last + 4000;
    while (last < end) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      worst = Math.max(worst, now - last);
      last = now;
    }
    return worst;
  });
  const task = await page.evaluate(() => {
    const begun = performance.now();
    draw();
    return performance.now() - begun;
  });
  await page.screenshot({ path: folder + '/many.png', fullPage: true });
  await page.locator('#filter').fill('dd.0');
  await page.waitForFunction(() => document.querySelectorAll('#classes tbody tr').length < 5,
    null, { timeout });
  await step({ step: 'many', longest, task, problems });
} finally {
  await browser.close();
}
process.exit(0);
