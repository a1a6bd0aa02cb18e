// SPDX-License-Identifier: Apache-2.0
//
// Watches the live page in Chromium for a while, then takes screenshots in light and dark mode, down
// to the rules. It waits for the bursts of ior.17, and for a time at which the axis has room for all
// its labels.
//   node page.mjs MODULES URL FOLDER SECONDS
import { createRequire } from 'node:module';

const [, , modules, url, folder, seconds] = process.argv;
const { chromium } = createRequire(modules + '/')('playwright-core');
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] });
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 800 } });
  await page.goto(url);
  await page.waitForFunction((wanted) => state.history?.total.served.length >= wanted, Number(seconds),
    { timeout: 4000 * seconds });
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const seen = await page.evaluate(() => state.history.end_ns);
    await page.waitForFunction((before) => {
      const at = state.history.end_ns / 1e9;
      const burst = state.history.classes.find((one) => one.class === 'default/ior.17');
      return state.history.end_ns > before && at % 60 >= 30 && at % 60 < 58 &&
        burst?.served.at(-1) > 300;
    }, seen, { timeout: 4000 * seconds });
    const rules = await page.locator('section:has(#rules)').boundingBox();
    await page.screenshot({ path: `${folder}/page-${colorScheme}.png`, fullPage: true,
      clip: { x: 0, y: 0, width: 1200, height: rules.y + rules.height + 16 } });
  }
} finally {
  await browser.close();
}
