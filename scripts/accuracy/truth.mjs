// Computes the truth of a capture from callgrind's profile and the program's instructions, and checks whether it is
// consistent.
//
// Enters: the results of `callgrind.mjs` and `disassembly.mjs`, in the image's own addresses. Leaves: executions of each
// instruction, transfers of each branch, jump and call. Cost: O(instructions + transfers).

/**
 * @typedef {import('./disassembly.mjs').Instruction} Instruction
 * @typedef {{ executions: Map<number, number>, edges: [from: number, to: number, count: number][] }} Truth
 */

/**
 * Returns the truth. callgrind counts how often a conditional branch was taken; in the other executions it fell through.
 * callgrind counts the repetitions of a `rep` instruction, so its executions are how often control came to it.
 * @param {import('./callgrind.mjs').Profile} profile
 * @param {Map<number, Instruction>} instructions
 * @returns {Truth}
 */
export function truthOf({ executions: counted, transfers }, instructions) {
  const executions = new Map(counted);
  const edges = [];
  for (const [address, count] of counted) {
    const instruction = instructions.get(address);
    if (!instruction || instruction.kind === 'plain' || instruction.kind === 'return') continue;
    let left = count;
    for (const [to, taken] of transfers.get(address) ?? []) {
      left -= taken;
      if (taken > 0) edges.push([address, to, taken]);
    }
    if (instruction.kind === 'conditional' && left > 0) edges.push([address, instruction.next, left]);
  }
  settleRepeats(executions, edges, instructions);
  return { executions, edges };
}

function settleRepeats(executions, edges, instructions) {
  const into = inflow({ executions, edges }, instructions);
  for (const address of executions.keys()) {
    if (instructions.get(address)?.repeats) executions.set(address, into.get(address) ?? 0);
  }
}

/** Adds up what enters each instruction: edges, and the previous instruction unless control never continues from it. */
function inflow({ executions, edges }, instructions) {
  const into = new Map();
  const add = (to, count) => into.set(to, (into.get(to) ?? 0) + count);
  for (const [, to, count] of edges) add(to, count);
  for (const [address, count] of executions) {
    const instruction = instructions.get(address);
    // A call usually returns; the fall-through of a conditional branch is an edge.
    if (instruction?.kind === 'plain' || instruction?.kind === 'call') add(instruction.next, count);
  }
  return into;
}

/**
 * Finds instructions that control enters less or more often than they are executed. A small share is expected: entries of
 * procedures that other images call, and the effects of signals and longjmp, are no errors.
 * @param {Truth} truth
 * @returns {{ share: number, worst: { address: number, executions: number, entered: number }[] }} share of all executions
 */
export function imbalance(truth, instructions) {
  const into = inflow(truth, instructions);
  const rows = [...truth.executions].map(([address, executions]) => ({ address, executions, entered: into.get(address) ?? 0 }));
  const off = ({ executions, entered }) => Math.abs(executions - entered);
  const all = rows.reduce((sum, { executions }) => sum + executions, 0);
  const worst = rows.filter((row) => off(row) > 0).toSorted((a, b) => off(b) - off(a)).slice(0, 8);
  return { share: rows.reduce((sum, row) => sum + off(row), 0) / Math.max(all, 1), worst };
}
