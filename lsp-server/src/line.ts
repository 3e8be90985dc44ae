/**
 * `dwell/line`: the instructions of one line. Its inlined copies are kept apart by their callers.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { LineDetail } from './core';
import { locate, locationOf, type FileView } from './fileView';
import type { Profile } from './profile';
import type { LinePlace, LineResult, LineStall } from './protocol';

/** `line`: as the editor shows it. */
export async function lineDetail(profile: Profile, view: FileView | undefined, line: number, token: CancellationToken): Promise<LineResult> {
  const built = view?.costs.lines.find((cost) => view.place(cost.line) === line)?.line;
  if (view === undefined || built === undefined) return { line, places: [], omittedPlaces: 0 };
  const detail = await profile.lineDetail(view.path, built, token);
  return { line, places: detail.places.map((place) => linePlace(view, place)), omittedPlaces: detail.omitted_places };
}

type CorePlace = LineDetail['places'][number];

function linePlace(view: FileView, { demangled, callers, instructions, ...place }: CorePlace): LinePlace {
  return {
    ...camel(place),
    label: demangled,
    callers: callers.map((caller) => {
      // The call's line is that of the file as it was built, so a link to it may be off after an edit.
      const at = locationOf(caller.file, caller.line);
      return { function: caller.function, uri: at?.uri ?? null, line: at?.line ?? null };
    }),
    instructions: instructions.map(({ head_samples: samples, stalls, ...instruction }) => ({
      ...camel(instruction),
      samples,
      stalls: stalls.map((stall) => lineStall(view, stall)),
    })),
  };
}

function lineStall(view: FileView, { file, line, ...stall }: CorePlace['instructions'][number]['stalls'][number]): LineStall {
  const at = locate(view, file, line);
  return { ...camel(stall), uri: at?.uri ?? null, line: at?.line ?? null };
}
