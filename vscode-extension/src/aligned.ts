// Two listings as texts that a diff aligns as the core did: what is one instruction on both sides is one equal line,
// found by its number. Pure; no VS Code.
import type { DiffInstruction } from '@dwell/lsp-server/protocol';
import { count, cpi, hex } from './format';

type Side = 'before' | 'after';

/** The lines of one side. Addresses are left out of what is compared: a rebuild moves them all. */
export function alignedText(rows: readonly DiffInstruction[], side: Side): string[] {
  const width = String(rows.length).length;
  return rows.flatMap((row, at) => {
    const place = row[side];
    if (place === null) return [];
    const number = String(at + 1).padStart(width);
    const other = side === 'after' ? row.before : row.after;
    // The same instruction may jump to another address: both sides show the text from before, so that the lines are equal.
    const text = row.kind === 'same' && other !== null ? (row.before ?? place).text : place.text;
    return [`${number}  ${text}`];
  });
}

/** `1,234  CPI 2.1` of one side, and after it what changed. */
export function costLabel(row: DiffInstruction, side: Side): string {
  const before = side === 'before';
  const samples = before ? row.samplesBefore : row.samplesAfter;
  const cost = before ? row.cpiBefore : row.cpiAfter;
  const place = row[side];
  const address = place === null ? '' : hex(place.address);
  const parts = [address, samples < 0.5 ? '·' : `${count(samples)} samples`, ...(cost === null || samples < 0.5 ? [] : [`${cpi(cost)}cy`])];
  return [...parts, ...(!before && row.significant ? [row.label] : [])].join('  ');
}
