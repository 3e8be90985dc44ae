/**
 * The legend as the terminal and the report have it; `npm run legend -w @dwell/lsp-server` writes it.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { legend } from '../src/legend';

export const page = join(__dirname, '../../core/cli/src/legend.txt');

if (process.argv.includes('--write')) writeFileSync(page, legend().text);
