/**
 * `dwell/line`: the instructions of one line. Its inlined copies are kept apart by their callers.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { LineDetail } from './core';
import { locate, locationOf, type FileView } from './fileView';
import type { Profile } from './profile';
import type { LinePlace, LineResult, LineStall } from './protocol';

/** `line`: as the editor shows it. */
export async function lineDetail(profile: Profile, view: FileView | undefined, line: number, token: CancellationToken): Promise<LineResult> {
  const built = view?.costs.lines.find((cost) => view.place(cost.line) === line)?.line;
  if (view === undefined || built === undefined) return { line, places: [], omittedPlaces: 0 };
  const detail = await profile.lineDetail(view.path, built, token);
  return { line, places: detail.places.map((place) => linePlace(view, place)), omittedPlaces: detail.omittedPlaces };
}

function linePlace(view: FileView, place: LineDetail['places'][number]): LinePlace {
  const { procedure, demangled, callers, share, scale, cpi, cpiMin, cpiMax, instructions, omittedInstructions } = place;
  return {
    procedure,
    label: demangled,
    callers: callers.map((caller) => {
      // The call's line is that of the file as it was built, so a link to it may be off after an edit.
      const at = locationOf(caller.file ?? null, caller.line ?? null);
      return { function: caller.function ?? null, uri: at?.uri ?? null, line: at?.line ?? null };
    }),
    share,
    scale,
    cpi,
    cpiMin,
    cpiMax,
    instructions: instructions.map((instruction) => ({
      address: instruction.address,
      text: instruction.text,
      samples: instruction.headSamples,
      executions: instruction.executions,
      executionsRelative: instruction.executionsRelative,
      cpi: instruction.cpi,
      cpiMin: instruction.cpiMin,
      cpiMax: instruction.cpiMax,
      confidence: instruction.confidence,
      stalls: instruction.stalls.map((stall) => lineStall(view, stall)),
    })),
    omittedInstructions,
  };
}

function lineStall(view: FileView, stall: LineDetail['places'][number]['instructions'][number]['stalls'][number]): LineStall {
  const at = locate(view, stall.file ?? null, stall.line ?? null);
  return {
    kind: stall.kind,
    cause: stall.cause,
    label: stall.label,
    cyclesMin: stall.cyclesMin,
    cyclesMax: stall.cyclesMax,
    shareMin: stall.shareMin,
    shareMax: stall.shareMax,
    sources: stall.sources,
    levels: stall.levels,
    culpritAddress: stall.culpritAddress ?? null,
    culpritText: stall.culpritText ?? null,
    uri: at?.uri ?? null,
    line: at?.line ?? null,
  };
}
