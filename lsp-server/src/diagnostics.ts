/**
 * Severe avoidable stalls as Information diagnostics, with the culprit as related information: off unless asked for. They rest on
 * shares of the time, which was measured; where counts are known too, a line that is about as fast as it can be is left out.
 */
import { DiagnosticSeverity, type Connection, type Diagnostic, type DiagnosticRelatedInformation } from 'vscode-languageserver';
import { culpritsOf, lineCosts } from './fileCosts';
import type { FileView } from './fileView';
import type { LineCost, LineCulprit, LineTie } from './protocol';
import { duration, percent, shortCycles } from './text';

/** The least share of all time for a line to be reported … */
const shareMin = 0.02;
/** … and where it is not known how often the line ran, since its cause is less certain then. */
const shareMinUncounted = 0.05;
/** The least number of samples; with as many, the share is right within about a third. */
const samplesMin = 25;
/** The least part of the line's time that a wait must explain. Causes that cannot be told apart count as one. */
const culpritShareMin = 0.5;
/** The least ratio of the actual to the best-case CPI. */
const slowdownMin = 2;
/** Causes that an edit of the line cannot remove. */
const unavoidable = new Set(['unexplained', 'system', 'page-fault']);

/** Diagnostics are published once nothing has changed for this long. */
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
    const tie = severeTie(cost);
    const [likeliest] = tie === undefined ? [] : culpritsOf(tie, cost.culprits);
    if (tie === undefined || likeliest === undefined) return [];
    const text = document.lineText(cost.line);
    const range = {
      start: { line: cost.line, character: text.length - text.trimStart().length },
      end: { line: cost.line, character: text.trimEnd().length },
    };
    return [{
      range, severity: DiagnosticSeverity.Information, source: 'dwell', code: likeliest.cause, message: message(cost, tie),
      ...related(culpritsOf(tie, cost.culprits)),
    }];
  });
}

/** What takes most of the line's time, if the line takes much of all time and an edit may help. */
function severeTie(cost: LineCost): LineTie | undefined {
  const sampled = Math.max(0, ...Object.values(cost.samples));
  if (cost.share < (cost.cpi === null ? shareMinUncounted : shareMin) || sampled < samplesMin || isFast(cost)) return undefined;
  const avoidable = ({ kind, cause }: LineCulprit): boolean => kind === 'dynamic' && !unavoidable.has(cause);
  return cost.ties.find((tie) => tie.shareMax >= culpritShareMin && culpritsOf(tie, cost.culprits).some(avoidable));
}

/** Whether it is known to be about as fast as it can be. */
function isFast({ cpi, cpiMax, bestCaseCpi: best }: LineCost): boolean {
  const most = cpi ?? cpiMax;
  return most !== null && best !== null && most < slowdownMin * best;
}

function message({ share, seconds, cpi, bestCaseCpi: best }: LineCost, tie: LineTie): string {
  const time = `${percent(share)} of all time${seconds === null ? '' : ` (${duration(seconds)})`}`;
  const against = cpi === null || best === null ? '' : `, ${shortCycles(cpi)} cycles per instruction against ${shortCycles(best)} at best`;
  return `${tie.text}: up to ${percent(tie.shareMax)} of this line's time; the line takes ${time}${against}`;
}

/** Where the instructions to blame are, each line once. */
function related(culprits: readonly LineCulprit[]): Pick<Diagnostic, 'relatedInformation'> {
  const places = new Map<string, DiagnosticRelatedInformation>();
  for (const { uri, line, label } of culprits) {
    if (uri === null || line === null || places.has(`${uri}#${line}`)) continue;
    const start = { line, character: 0 };
    places.set(`${uri}#${line}`, { location: { uri, range: { start, end: start } }, message: `culprit: ${label}` });
  }
  return places.size === 0 ? {} : { relatedInformation: [...places.values()] };
}
