/**
 * `dwell/legend`: what the numbers on lines, in hovers and in listings mean, for people who never read the paper. One page for all
 * clients. Text only; nothing here is asked of a profile. The terminal and the report have it too: `npm run legend` writes
 * core/cli/src/legend.txt.
 */
import { markdown, plainText, type Markup } from './markup';
import type { LegendResult } from './protocol';

export function legend(): LegendResult {
  const { markup, finished } = plainText();
  const { text, headings } = finished(page(markup));
  return { markdown: page(markdown(() => '')), text, headings };
}

const page = ({ heading, table, code, strong, emphasis }: Markup): string => `${heading(1, 'What do these numbers mean?')}

Dwell interrupts the program many times a second and notes the instruction that the processor was waiting for. From these samples it
works out where the time went, what the program waited for and, where there is evidence, how often each instruction ran.

A line may end like this:

    28 % · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41 · 66 cycles/instr (ideal 1.3)

${table([
  [code('28 %'), 'The share of all sampled time that was spent on this line. It was measured. Code that was inlined from this line counts here.'],
  [code('3.0 s'), 'The CPU time that this share stands for, over the whole recording. It was measured.'],
  [code('waits for memory (D-cache or DTLB miss)'), "What may explain most of the line's time. Several causes in parentheses fit the samples equally well: it may be one of them or a mixture."],
  [code('← :41'), 'The line to look at: an instruction of line 41 started what this line waits for, such as a load. Without an arrow the line waits for itself.'],
  [code('66 cycles/instr'), 'How many processor cycles one instruction of this line takes on average.'],
  [code('(ideal 1.3)'), 'How many it would take if it never had to wait: every load hits the nearest cache, every branch is predicted. The distance between the two is what can be gained.'],
], ['part', 'meaning'])}

Where room is short, the cycles are left out first, then the seconds, then the line to look at.

${heading(2, 'What a line may wait for')}

${table([
  ['memory (D-cache miss)', 'Data is not in the nearest cache and comes from a farther one (L2, LLC) or from main memory (DRAM).'],
  ['memory (DTLB miss)', 'The processor has to look up where in memory a page of data lies.'],
  ['memory (store not forwarded, 4K aliasing)', 'A load follows a store to the same, or nearly the same, address and has to wait for it.'],
  ['memory (page fault)', 'The page was not there yet: the kernel had to provide it.'],
  ['room for stores (write buffer full)', 'Stores come faster than memory takes them.'],
  ['a mispredicted branch', 'The processor guessed a branch wrong and had to start over on the other side.'],
  ['code (I-cache miss, ITLB miss)', 'The instructions themselves had to come from a farther cache or memory.'],
  ['the divider, the multiplier, a busy unit', 'An arithmetic unit is still busy with an earlier instruction.'],
  ['a busy unit (slotting)', 'The processor cannot start more instructions of this kind in one cycle.'],
  ['an earlier result', 'An operand is not ready: an earlier instruction still computes it.'],
  ['other processors (synchronization)', 'A lock, a fence or an atomic operation.'],
  ['the kernel', 'The kernel works on behalf of this line: a system call or an interrupt.'],
  ['something unexplained', 'None of the causes that Dwell knows fits.'],
], ['words', 'meaning'])}

${emphasis('Static')} causes follow from the instructions alone and happen each time. ${emphasis('Dynamic')} ones depend on data and on what else runs.

A cause comes as a range, ${emphasis('up to 85%')} or ${emphasis('1.0 G to 3.0 G cycles')}: it explains at least the first and at most the second. Ranges of different
causes overlap, so do not add up their upper ends.

${heading(2, 'When executions are known: the scale')}

Time is always measured. How often code ran is not seen directly on most machines: code that ran twice as often looks the same as
code that took twice as long. It is known where something counted it:

${table([
  ['hardware counters', 'The processor counts executed instructions. They are sampled beside the cycles, where the machine has them.'],
  ['odometers', 'The program counts by itself: words of memory to which code adds constants, such as a number of bytes or of records. Dwell finds some of them and reads them from outside, at two times.'],
  ['loop registers', 'Registers to which a loop adds a constant each time. Two samples of one run through the loop tell how often it went round in between.'],
  ['counters in the code', `With ${code('record --count')} Dwell puts counters into hot functions of the running program. They work on any x86-64 machine.`],
  ['time itself', 'On processors that execute in order, time tells executions.'],
], ['what counts', 'how'])}

Counts of one place hold for other code as far as calls, branches and steps that were followed connect the two: these tell ratios. How
far that reaches is called the scale. A listing says at its top which scale it has, and what it rests on.

${table([
  ['absolute', 'How often each instruction ran.', 'Executions and cycles per instruction.'],
  ['program', 'How often code ran compared with other code of the same program.', 'Ratios and bounds.'],
  ['procedure', 'How often code ran compared with other code of the same function.', 'Ratios and bounds.'],
], ['scale', 'what is known', 'what is shown'])}

- ${strong('A ratio')}: ${code('2.0 per entry of the loop')} means that the line runs twice each time the loop is entered. It needs no scale.
- ${strong('A bound')}: ${code('≥ 4.0 cycles/instr')} means that an instruction takes at least four cycles on average. The true number may be larger.
- ${strong('A range')}, in hovers and listings: ${code('16.4 M to 16.9 M')} holds in nine of ten cases (a 90 % interval).
- ${code('<0.17')}, of one instruction: it was measured to take less than an instruction can, since it was executed together with the one before it.
- ${strong('Shares of execution and stalls')}: without an absolute scale the same time may be either, and a summary shows ranges of what is possible.

${heading(2, 'Why a number is missing')}

- ${emphasis('No cycles per instruction, no executions')}: the scale is not absolute, because nothing counted this code or code that is connected
  with it: the machine has no counters, no odometer or loop register was found here, or what was counted does not fit the sampled time and
  was rejected. ${code('dwell record --count')} counts hot functions on x86-64.
- ${emphasis('No cause')}: the line has too few samples, or it is about as fast as it can be.
- ${emphasis('No seconds')}: what was sampled is not time but another event, or the clock rate is not known.
- ${emphasis('No number at all')}: the line has less than the least share that is shown, or no samples.
- ${code('edited · was 28 %')}: the line was changed since the program was built. The number belongs to the text before.

${heading(2, 'What changed between two recordings')}

${emphasis('Slower')} and ${emphasis('faster')} mean that each execution takes a different time; ${emphasis('ran more often')} and ${emphasis('ran less often')} that there were more or
fewer executions. They are only said where the evidence of both recordings tells them apart. Otherwise Dwell says ${emphasis('more time')} or ${emphasis('less time')},
which is measured. What may be chance is called ${emphasis('no change beyond noise')}.
`;
