// A procedure's control-flow graph as a picture in the theme's colours, to be zoomed and walked by keyboard. The server
// draws it without colours; a click leads to the listing. A webview, since no native view draws graphs: nothing is loaded
// from anywhere, and only our own script runs.
import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';
import type { Dwell } from './dwell';

const viewType = 'dwell.cfg';

export function activate(dwell: Dwell): vscode.Disposable {
  const panels = new Map<string, vscode.WebviewPanel>();
  return vscode.Disposable.from(
    new vscode.Disposable(() => { for (const panel of panels.values()) panel.dispose(); }),
    dwell.failures.command('dwell.showCfg', 'the control-flow graph', async (what) => {
      const procedure = procedureOf(what);
      if (procedure === undefined) throw new Error('show a listing first, or choose a function in the view');
      const { title, svg } = await dwell.client.cfg(procedure);
      const panel = panels.get(procedure) ?? open(dwell, procedure, panels);
      panel.title = `CFG ${title}`;
      panel.webview.html = page(title, svg);
      panel.reveal();
    }),
  );
}

/** A row of a view, a procedure's id, or the listing in front. */
function procedureOf(what: unknown): string | undefined {
  if (typeof what === 'string') return what;
  if (typeof what === 'object' && what !== null && 'id' in what && typeof what.id === 'string') return what.id;
  const uri = vscode.window.activeTextEditor?.document.uri;
  return uri?.scheme === 'dwell' ? uri.query : undefined;
}

function open(dwell: Dwell, procedure: string, panels: Map<string, vscode.WebviewPanel>): vscode.WebviewPanel {
  const options = { enableScripts: true, localResourceRoots: [], enableFindWidget: true };
  const panel = vscode.window.createWebviewPanel(viewType, 'CFG', vscode.ViewColumn.Active, options);
  panels.set(procedure, panel);
  panel.onDidDispose(() => panels.delete(procedure));
  panel.webview.onDidReceiveMessage((message: unknown) => dwell.failures.guard('the listing', async () => {
    const address = typeof message === 'object' && message !== null && 'address' in message ? message.address : undefined;
    if (typeof address === 'number') await vscode.commands.executeCommand('dwell.showListing', procedure, address);
  }));
  return panel;
}

function page(title: string, svg: string): string {
  const nonce = randomBytes(16).toString('base64');
  const policy = `default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<title>${escape(title)}</title>
<style nonce="${nonce}">${style}</style>
</head>
<body>
<div class="bar" role="toolbar" aria-label="Zoom">
<button id="out" aria-label="Zoom out">−</button><button id="one" aria-label="Actual size">100%</button><button id="in" aria-label="Zoom in">+</button>
<button id="fit" aria-label="Fit the width">Fit</button><span class="title">${escape(title)}</span>
</div>
<main id="picture" tabindex="0" aria-label="Control-flow graph; plus and minus zoom, Tab goes from block to block, Enter opens one in the listing">${svg}</main>
<script nonce="${nonce}">${script}</script>
</body>
</html>`;
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}

/** Ten steps of heat, mixed into the theme's own background, so that text stays readable in every theme. */
const heat = Array.from({ length: 10 }, (_, step) =>
  `.heat-${step} rect { fill: color-mix(in srgb, var(--vscode-charts-red, #f14c4c) ${step * 5}%, var(--vscode-editor-background)); }`).join('\n');

const style = `
body { margin: 0; color: var(--vscode-editor-foreground); background: var(--vscode-editor-background); }
.bar { position: sticky; top: 0; left: 0; z-index: 1; display: flex; gap: 4px; align-items: center; padding: 4px 8px; background: var(--vscode-editor-background); border-bottom: 1px solid var(--vscode-panel-border, transparent); width: max-content; min-width: 100%; box-sizing: border-box; }
.bar .title { margin-left: 8px; font-family: var(--vscode-editor-font-family); }
button { color: var(--vscode-button-secondaryForeground); background: var(--vscode-button-secondaryBackground); border: 1px solid var(--vscode-contrastBorder, transparent); padding: 2px 8px; cursor: pointer; }
button:focus-visible, .block:focus-visible rect, main:focus-visible { outline: 1px solid var(--vscode-focusBorder); stroke: var(--vscode-focusBorder); stroke-width: 2; }
main { overflow: visible; padding: 8px; }
text { font-family: var(--vscode-editor-font-family, monospace); font-size: 12px; white-space: pre; fill: var(--vscode-editor-foreground); }
.head { font-weight: bold; }
rect { stroke: var(--vscode-contrastBorder, var(--vscode-editorWidget-border, var(--vscode-editor-foreground))); }
.block { cursor: pointer; }
.block:hover rect { stroke: var(--vscode-focusBorder); }
.edge { fill: none; stroke: var(--vscode-charts-lines, var(--vscode-editor-foreground)); }
.edge:hover { stroke: var(--vscode-focusBorder); }
.arrow { fill: var(--vscode-charts-lines, var(--vscode-editor-foreground)); }
${heat}`;

const script = `
const api = acquireVsCodeApi();
const svg = document.querySelector('svg');
const width = svg.width.baseVal.value, height = svg.height.baseVal.value;
let scale = (api.getState() || { scale: 1 }).scale;
function zoom(to) {
  scale = Math.min(4, Math.max(0.1, to));
  svg.setAttribute('width', width * scale);
  svg.setAttribute('height', height * scale);
  document.getElementById('one').textContent = Math.round(scale * 100) + '%';
  api.setState({ scale });
}
const actions = { in: () => zoom(scale * 1.25), out: () => zoom(scale / 1.25), one: () => zoom(1), fit: () => zoom((document.documentElement.clientWidth - 32) / width) };
for (const id of Object.keys(actions)) document.getElementById(id).addEventListener('click', actions[id]);
addEventListener('wheel', (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
}, { passive: false });
function tell(target) {
  const at = target.closest && target.closest('[data-address]');
  if (at) api.postMessage({ address: Number(at.dataset.address) });
}
addEventListener('click', (event) => { tell(event.target); });
addEventListener('keydown', (event) => {
  if (event.key === '+' || event.key === '=') actions.in();
  else if (event.key === '-') actions.out();
  else if (event.key === '0') actions.one();
  else if (event.key === 'Enter' || event.key === ' ') { if (document.activeElement.closest('.block')) { tell(document.activeElement); event.preventDefault(); } }
});
zoom(scale);`;
