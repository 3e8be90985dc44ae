// What a selection of epochs stands for. Pure; no VS Code.
import type { EpochSummary } from '@dwell/lsp-server/protocol';

/**
 * The epochs that selectors name, oldest first, each once. A selector is an id, a name, `latest` or `latest~N`; one that
 * names nothing is left out. `epochs`: oldest first.
 */
export function selectedEpochs(epochs: readonly EpochSummary[], selectors: readonly string[]): EpochSummary[] {
  const named = new Set(selectors.map((selector) => namedBy(epochs, selector)));
  return epochs.filter((epoch) => named.has(epoch));
}

function namedBy(epochs: readonly EpochSummary[], selector: string): EpochSummary | undefined {
  const back = /^latest(?:~(\d+))?$/.exec(selector);
  if (back) return epochs[epochs.length - 1 - Number(back[1] ?? 0)];
  return epochs.find((epoch) => epoch.id === selector) ?? epochs.filter((epoch) => epoch.name === selector).at(-1);
}
