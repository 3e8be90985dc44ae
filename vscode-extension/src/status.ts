// The status bar item: which profile is shown, and by hovering what one must know to trust it.
import * as vscode from 'vscode';
import type { EpochSummary } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { count, epochTitle, localTime } from './format';
import type { Profile, ProfileState } from './profile';

/** From this share of samples lost or unknown on, the item warns. */
const doubtfulShare = 0.05;

export function activate({ profile, client }: Dwell): vscode.Disposable {
  const item = vscode.window.createStatusBarItem('dwell.epoch', vscode.StatusBarAlignment.Left);
  item.name = 'Dwell: Recording';
  const show = () => { present(item, profile, client.where); };
  show();
  item.show();
  return vscode.Disposable.from(item, profile.onDidChange(show));
}

function present(item: vscode.StatusBarItem, { state, selected, baseline, warnings }: Profile, where: string): void {
  const what = baseline ? `${title(baseline)} → ${title(selected)}` : title(selected);
  const shown = where === '' ? what : `${what} (${where})`;
  const label = {
    starting: '$(loading~spin) Dwell',
    empty: '$(pulse) Dwell: no profile',
    failed: '$(warning) Dwell',
    ready: `$(${selected.some(isDoubtful) ? 'warning' : 'pulse'}) Dwell: ${shown}`,
  };
  item.text = label[state];
  item.command = { starting: 'dwell.showLog', empty: 'dwell.record', failed: 'dwell.refresh', ready: 'dwell.selectEpoch' }[state];
  item.tooltip = tooltip(state, selected, warnings);
  item.accessibilityInformation = { label: `Dwell profile: ${state === 'ready' ? shown : state}` };
}

function title(selected: readonly EpochSummary[]): string {
  const [only] = selected;
  if (!only) return 'select a recording';
  return selected.length === 1 ? epochTitle(only) : `${selected.length} recordings merged`;
}

function isDoubtful(epoch: EpochSummary): boolean {
  return Object.values(epoch.events).some((event) =>
    event.lost > doubtfulShare * (event.samples + event.lost) || event.unknown > doubtfulShare * event.samples);
}

function tooltip(
  state: ProfileState, selected: readonly EpochSummary[], warnings: readonly string[],
): vscode.MarkdownString | string {
  if (state === 'starting') return 'The language server is starting.';
  if (state === 'empty') return ['No profile yet. Click to record a command.', ...warnings].join('\n');
  if (state === 'failed') return 'The profile cannot be read; the log says why. Click to try again.';
  const text = new vscode.MarkdownString();
  for (const epoch of selected) describe(text, epoch);
  return text.appendMarkdown('\n\nClick to select another recording.');
}

function describe(text: vscode.MarkdownString, epoch: EpochSummary): void {
  text.appendMarkdown('**').appendText(epochTitle(epoch)).appendMarkdown('** — ').appendText(`${epoch.scope}, ${localTime(epoch.start)}`);
  text.appendMarkdown('  \n').appendText(`${epoch.host}, ${epoch.cpu}, by ${epoch.backend}`);
  for (const [name, event] of Object.entries(epoch.events)) {
    const losses = [[event.lost, 'lost'], [event.throttled, 'throttled'], [event.unknown, 'unknown']] as const;
    const said = losses.filter(([n]) => n > 0).map(([n, cause]) => `, ${count(n)} ${cause}`);
    text.appendMarkdown('  \n').appendText(`${name}: ${count(event.samples)} samples${said.join('')}`);
  }
  for (const note of epoch.notes) text.appendMarkdown('  \n$(info) ').appendText(note);
  text.supportThemeIcons = true;
  text.appendMarkdown('\n\n');
}
