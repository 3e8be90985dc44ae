// Disassembles a program with llvm-objdump. Enters: an ELF file. Leaves: instructions by address.

import { spawnSync } from 'node:child_process';
import { Stop } from '../step.mjs';

/**
 * @typedef {{ address: number, next: number, text: string, kind: 'plain' | 'conditional' | 'jump' | 'call' | 'return', repeats: boolean }} Instruction
 * `next`: the address after it; `repeats`: callgrind counts each repetition of it (`rep`)
 */

const x86Kinds = [
  [/^jmp/, 'jump'],
  [/^(j\w+|loop\w*)\b/, 'conditional'],
  [/^call/, 'call'],
  [/^(ret|iret|ud2|hlt)/, 'return'],
];
const aarch64Kinds = [
  [/^(b\.\w+|cbn?z|tbn?z)\b/, 'conditional'],
  [/^(bl|blr)\b/, 'call'],
  [/^(ret|udf|brk)\b/, 'return'],
  [/^(b|br)\b/, 'jump'],
];
/** Prefixes that llvm-objdump prints without an instruction. */
const bare = /^(lock|rep\w*|bnd|data16|notrack)( (lock|rep\w*|bnd|data16|notrack))*$/;
const prefixes = /^((lock|rep\w*|notrack|bnd|data16|[cdefgs]s)\s+)+/;

function kindOf(text, kinds) {
  const plain = text.replace(prefixes, '');
  return kinds.find(([pattern]) => pattern.test(plain))?.[1] ?? 'plain';
}

/** @returns {Map<number, Instruction>} in the order of the sections */
export function disassemble(program) {
  const { status, stdout, stderr } = spawnSync('llvm-objdump-19', ['-d', '--no-print-imm-hex', program], { encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (status !== 0) throw new Stop(`llvm-objdump-19 ${program}: ${stderr?.trim()}`);
  return readDisassembly(stdout);
}

/** @param {string} listing output of llvm-objdump */
export function readDisassembly(listing) {
  const kinds = /file format elf64-(little)?aarch64/.test(listing) ? aarch64Kinds : x86Kinds;
  const instructions = new Map();
  let prefix = null;
  for (const match of listing.matchAll(/^ *([0-9a-f]+): ((?:[0-9a-f]+ ?)+) *\t(.*)$/gm)) {
    const start = parseInt(match[1], 16);
    const next = start + match[2].replaceAll(' ', '').length / 2;
    const address = prefix?.next === start ? prefix.address : start;
    const text = `${prefix?.next === start ? `${prefix.text} ` : ''}${match[3].replace(/\s+/g, ' ').replace(/ *(<[^>]*>|# .*|\/\/.*)$/, '').trim()}`;
    // llvm-objdump prints some prefixes on a line of their own.
    prefix = bare.test(text) ? { address, next, text } : null;
    if (!prefix) instructions.set(address, { address, next, text, kind: kindOf(text, kinds), repeats: /^rep/.test(text) });
  }
  return instructions;
}
