// SPDX-License-Identifier: Apache-2.0
//
// The panel of locks on the live page, of a server that has locks ("live"), or fed with events of a
// made-up lock service: a minute of locks is added to the events of a server. Prints what the page
// shows as JSON.
//   node lock_page.mjs MODULES URL FOLDER [live]
import { createRequire } from 'node:module';

const [, , modules, url, folder, live] = process.argv;
const { chromium } = createRequire(modules + '/')('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const timeout = 60000;
const seconds = 60;

// A namespace that fills to its limit while its volume falls, with clients of falling size.
function namespaceAt(second, name, limit) {
  const granted = Math.round(limit * Math.min(1, second / 20) * (1 + 0.02 * Math.sin(second / 3)));
  const top = Array.from({ length: 50 }, (_, i) => ({
    client: 4294967297 + i, peer: i ? `192.168.1.${i}@tcp` : '<b>bold</b>@tcp',
    locks: Math.round(granted / 8 / (i + 1)), waiting: i % 7 ? 0 : i, silent_ns: 1000,
    connected: true, knows_volume: true,
  }));
  return {
    namespace: name, preset: 'weir', recovering: second < 5, limit, granted,
    server_lock_volume: Math.round(36000 * limit / (1 + second * second)),
    grant_rate: 50, cancel_rate: 48, grant_speed: second < 20 ? 50 : -2, grant_plan: limit,
    recalc_period_ns: 1e9, lru_size: 0, lru_max_age_ns: 0, resources: granted, waiting: 3,
    parked: 0, clients: 1000, counters: {}, top, others: { clients: 950, locks: 1000, waiting: 5 },
  };
}

// Events as a server without locks sends them, with locks from the made-up service.
function stream(event, names) {
  const from = event.time_ns;
  let text = '';
  for (let second = 0; second < seconds; ++second) {
    const locks = names.map((name, i) => namespaceAt(second, name, 1000 * (i + 1)));
    text += `data: ${JSON.stringify({ ...event, time_ns: from + second * 1e9, locks })}\n\n`;
  }
  return text;
}

const texts = (page, column) => page.locator(`#lock-clients tbody td:nth-child(${column})`)
  .allTextContents();

// Whether nothing extends beyond the window, after the charts were resized.
const fits = (page) => page.waitForFunction(
  () => document.documentElement.scrollWidth <= innerWidth, null, { timeout: 20000 })
  .then(() => true, () => false);

// Waits until a client has locks. Their number depends on the machine: a server that is short of
// memory reclaims some.
async function lookLive(page) {
  await page.waitForFunction(() => state.locks.length >= 3 && state.last.locks[0].granted > 0,
    null, { timeout });
  await page.screenshot({ path: folder + '/live-locks.png', fullPage: true });
  return page.evaluate(() => ({
    granted: state.last.locks[0].granted,
    facts: document.querySelector('#lock-facts').innerText.replace(/\s+/g, ' '),
    locks: [...document.querySelectorAll('#lock-clients tbody td:nth-child(2)')]
      .map((cell) => cell.textContent) }));
}

async function lookMadeUp(page) {
  await page.waitForFunction(() => state.last, null, { timeout });
  const before = { hidden: await page.locator('#locks').isHidden() };
  const event = await page.evaluate(() => state.last);

  const look = async (names, shot) => {
    await page.route('**/v1/events', (route) => route.fulfill({
      contentType: 'text/event-stream', body: stream(event, names) }));
    await page.goto('about:blank');
    await page.goto(url);
    await page.waitForFunction((count) => state.locks.length >= count, seconds, { timeout });
    await page.waitForSelector('#lock-clients tbody tr', { timeout });
    const seen = await page.evaluate(() => ({
      facts: $('lock-facts').innerText.replace(/\s+/g, ' '),
      html: document.querySelectorAll('#locks b').length,
      points: Object.values(state.lockCharts).map((chart) => chart.data.at(-1).length),
      drawn: [...document.querySelectorAll('#locks canvas')].length,
      limits: [...new Set(state.lockCharts.granted.data[2])],
      falls: state.lockCharts.volume.data[1].at(-1) < state.lockCharts.volume.data[1][0],
      select: !$('namespace').parentElement.hidden,
    }));
    seen.wide = await fits(page);
    seen.rows = await texts(page, 1);
    await page.locator('#locks').screenshot({ path: `${folder}/${shot}-light.png` });
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.locator('#locks').screenshot({ path: `${folder}/${shot}-dark.png` });
    seen.dark = await page.evaluate(() => getComputedStyle($('locks')).backgroundColor);
    await page.emulateMedia({ colorScheme: 'light' });
    return seen;
  };
  const one = await look(['locks'], 'locks');
  const two = await look(['first', 'second'], 'two');
  await page.locator('#namespace').selectOption('second');
  two.limitsOfSecond = await page.evaluate(() => [...new Set(state.lockCharts.granted.data[2])]);
  await page.setViewportSize({ width: 420, height: 1400 });
  const narrow = await fits(page);
  return { before, one, two, narrow };
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1400 } });
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.goto(url);
  const seen = live ? await lookLive(page) : await lookMadeUp(page);
  process.stdout.write(JSON.stringify({ ...seen, problems }) + '\n');
} finally {
  await browser.close();
}
process.exit(0);
