// Draws icon.png, which the extension's page must have, from icon.svg: node media/icon.mjs (needs Chromium).
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { launch } from '../test/workbench.mjs';

const here = import.meta.dirname;
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 256, height: 256 } });
await page.setContent(`<body style="margin:0">${await readFile(join(here, 'icon.svg'), 'utf8')}</body>`);
await page.screenshot({ path: join(here, 'icon.png'), omitBackground: true });
await browser.close();
