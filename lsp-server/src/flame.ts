/**
 * `dwell/flame`: all call stacks as one tree of functions, in columns: a tree of thousands of frames is a few numbers for each.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { Flame, FlameAnalysis, FlameFunction, FlameNode } from './core';
import { locationOf } from './fileView';
import type { Profile } from './profile';
import type { FlameParams, FlameResult } from './protocol';

export async function flame(profile: Profile, params: FlameParams, token: CancellationToken): Promise<FlameResult> {
  return flameResult(await profile.flame(params, token));
}

export function flameResult(answer: Flame): FlameResult {
  const { epochs, unit, total, nodes, merged, notes, analysed_share: analysedShare } = answer;
  return {
    epochs, unit, total, merged, notes, analysedShare,
    events: answer.events.map((event) => camel(event)),
    seconds: secondsOf(answer),
    functions: answer.functions.map(functionOf),
    parents: nodes.map(({ parent }) => parent ?? -1),
    codes: nodes.map(codeOf),
    own: nodes.map(({ own }) => own),
  };
}

/** Time that one unit stands for; 0 where that is not known. Samples with a stack stand for those without one too. */
function secondsOf({ unit, events: [event, ...others] }: Flame): number {
  if (unit === 'ns') return 1e-9;
  const isTime = unit === 'samples' && event?.unit === 'ns' && others.length === 0;
  return isTime ? (1e-9 * event.period * event.all_samples) / Math.max(event.samples, 1) : 0;
}

function codeOf({ function: at, inlined, merged }: FlameNode): number {
  return at === null ? -merged : 2 * at + Number(inlined);
}

function functionOf(each: FlameFunction): FlameResult['functions'][number] {
  return { ...each, location: locationOf(each.file, each.line), analysis: each.analysis === null ? null : analysisOf(each.analysis) };
}

function analysisOf({ causes, ...rest }: FlameAnalysis): NonNullable<FlameResult['functions'][number]['analysis']> {
  return { ...camel(rest), causes: causes.map((cause) => camel(cause)) };
}
