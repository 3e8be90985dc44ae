// Lists the assembly kernels, one for each cause of a stall, and reads the expectations in their comments.
//
// Enters: core/accuracy/kernels/ARCH/*.S and the linked program's line table. Leaves: rows for programs to build, and
// expectations as addresses. core/accuracy/kernels/README.md describes the grammar of the comments.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { Stop, top } from '../step.mjs';

const kernels = join(top, 'core/accuracy/kernels');
const instruction_bytes = 4; // The RISC-V kernels have no compressed instructions.

/** Returns the kernels of an architecture as programs to build and run. */
export function kernelsFor(arch) {
  const folder = join(kernels, arch);
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith('.S')) : [];
  return files.sort().map((name) => ({
    name: `kernel-${name.slice(0, -2)}`, role: 'kernel', language: 'kernel(asm)', file: join(folder, name), run: [], period: 499,
    build: `$CC -nostdlib -I${folder} -o $OUT ${join(folder, name)}`,
  }));
}

/** Returns the values of `word` in comments of the form `// word: …, other: …`, by line number from 1. */
function comments(file, word) {
  const found = new Map();
  readFileSync(file, 'utf8').split('\n').forEach((line, index) => {
    const remarks = line.split(/\/\/ |# /).slice(1).join(' ').split(', ');
    const remark = remarks.find((text) => text.startsWith(`${word}: `));
    if (remark) found.set(index + 1, remark.slice(word.length + 2).trim());
  });
  return found;
}

/** Returns pairs of line and address of the instructions, from the program's line table. */
function lineTable(binary, arch) {
  const { status, stdout, stderr } = spawnSync(`${arch}-linux-gnu-objdump`, ['--dwarf=decodedline', binary], { encoding: 'utf8', maxBuffer: 2 ** 28 });
  if (status !== 0) throw new Stop(`${binary}: ${stderr}`);
  return [...stdout.matchAll(/^\S+\s+(\d+)\s+0x([0-9a-f]+)/gm)].map(([, line, address]) => [Number(line), parseInt(address, 16)]);
}

/** Returns the address of each instruction whose comment contains this word, with the value in the comment. */
export function commented(file, word, binary, arch) {
  const wanted = comments(file, word);
  return lineTable(binary, arch).filter(([line]) => wanted.has(line)).map(([line, address]) => ({ address, says: wanted.get(line) }));
}

/**
 * Further expectations as rows of `expected.tsv`: that the kernel is entered for this cause, or that the cause is never
 * named.
 */
export const otherExpectations = (file, binary, arch) =>
  ['kernel', 'never'].flatMap((word) => commented(file, word, binary, arch).map(({ address, says }) => ({ address, cause: says, word })));

/** Returns the expected stalls of a kernel: address, cause and address of the culprit. */
export const expectations = (file, binary, arch) =>
  commented(file, 'culprit', binary, arch).map(({ address, says }) => {
    const [cause, back] = says.split(' ');
    return { address, cause, culprit: address - Number(back) * instruction_bytes };
  });
