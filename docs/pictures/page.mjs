// SPDX-License-Identifier: Apache-2.0
//
// Watches the live page in Chromium for a while, then takes screenshots in light and dark mode. It
// waits for the bursts of ior.17, and for a time at which the axis has room for all its labels.
//   node page.mjs MODULES URL FOLDER SECONDS
import { createRequire } from 'node:module';

const [, , modules, url, folder, seconds] = process.argv;
const { chromium } = createRequire(modules + '/')('playwright-core');
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] });
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 800 } });
  await page.goto(url);
  await page.waitForFunction((wanted) => state.events.length >= wanted, Number(seconds),
    { timeout: 4000 * seconds });
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const seen = await page.evaluate(() => state.events.at(-1).at);
    await page.waitForFunction((before) => {
      const { at, rates } = state.events.at(-1);
      const burst = rates.ost_io.find((row) => row.name === 'default/ior.17');
      return at > before && at % 60 >= 30 && at % 60 < 58 && burst?.ops > 300;
    }, seen, { timeout: 4000 * seconds });
    await page.screenshot({ path: `${folder}/page-${colorScheme}.png`, fullPage: true });
  }
} finally {
  await browser.close();
}
