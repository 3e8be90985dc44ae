/**
 * Severe avoidable stalls as Information diagnostics, with the culprit as related information: off unless asked for.
 */
import { DiagnosticSeverity, type Connection, type Diagnostic } from 'vscode-languageserver';
import { lineCosts } from './fileCosts';
import type { FileView } from './fileView';
import type { LineCost, LineCulprit } from './protocol';
import { causeName, cpi, percent } from './text';

/** Of all time, for a line to be worth a word. */
const shareMin = 0.02;
/** Of the line's cycles, for its leading cause. */
const culpritShareMin = 0.5;
/** Actual over best-case CPI. */
const slowdownMin = 2;
/** What no edit of this line helps against. */
const unavoidable = new Set(['unexplained', 'system', 'page-fault']);

/** After so long without a change. */
const quiet_ms = 300;

export class Diagnostics {
  private enabled = false;
  private timer: NodeJS.Timeout | undefined;
  private readonly published = new Set<string>();

  /** `open`: the documents that are open; `view`: one of them with its costs. */
  constructor(
    private readonly connection: Connection,
    private readonly open: () => readonly string[],
    private readonly view: (uri: string) => Promise<FileView | undefined>,
  ) {}

  enable(enabled: boolean): void {
    const before = this.enabled;
    this.enabled = enabled;
    if (enabled || before) this.changed();
  }

  changed(): void {
    if (!this.enabled && this.published.size === 0) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.publishAll(), quiet_ms);
  }

  closed(uri: string): void {
    if (this.published.delete(uri)) void this.connection.sendDiagnostics({ uri, diagnostics: [] });
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  private async publishAll(): Promise<void> {
    // A document that changed meanwhile is asked about again: its change has set the timer.
    await Promise.allSettled(this.open().map((uri) => this.publish(uri)));
  }

  private async publish(uri: string): Promise<void> {
    const diagnostics = this.enabled ? severeStalls(await this.view(uri)) : [];
    if (diagnostics.length === 0 && !this.published.has(uri)) return;
    if (diagnostics.length === 0) this.published.delete(uri);
    else this.published.add(uri);
    await this.connection.sendDiagnostics({ uri, diagnostics });
  }
}

export function severeStalls(view: FileView | undefined): Diagnostic[] {
  const document = view?.document;
  if (view === undefined || document === undefined) return [];
  return lineCosts(view).flatMap((cost) => {
    const culprit = severeCulprit(cost);
    if (culprit === undefined) return [];
    const text = document.lineText(cost.line);
    const range = {
      start: { line: cost.line, character: text.length - text.trimStart().length },
      end: { line: cost.line, character: text.trimEnd().length },
    };
    return [{ range, severity: DiagnosticSeverity.Information, source: 'dwell', code: culprit.cause, message: message(cost, culprit), ...related(culprit) }];
  });
}

function severeCulprit(cost: LineCost): LineCulprit | undefined {
  const { share, cpi: actual, bestCaseCpi: best, confidence } = cost;
  const slow = actual !== null && best !== null && actual >= slowdownMin * best;
  if (share < shareMin || !slow || confidence === 'low') return undefined;
  return cost.culprits.find(({ kind, cause, shareMax }) => kind === 'dynamic' && shareMax >= culpritShareMin && !unavoidable.has(cause));
}

function message(cost: LineCost, culprit: LineCulprit): string {
  const ratio = `CPI ${cpi(cost.cpi ?? 0)} against ${cpi(cost.bestCaseCpi ?? 0)} at best`;
  return `${causeName(culprit.cause)}: up to ${percent(culprit.shareMax)} of this line's cycles; the line takes ${percent(cost.share)} of all time, ${ratio}`;
}

function related({ uri, line, cause }: LineCulprit): Pick<Diagnostic, 'relatedInformation'> {
  if (uri === null || line === null) return {};
  const start = { line, character: 0 };
  return { relatedInformation: [{ location: { uri, range: { start, end: start } }, message: `culprit: ${causeName(cause)}` }] };
}
