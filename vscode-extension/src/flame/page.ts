// The flame graph's page: its frame and its looks, in the theme's colours. The graph is the script's.
import css from '../../../flame-graph/flameGraph.css';

/** `script`: its text; nothing is loaded. */
export function page(script: string, nonce: string): string {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'">
<title>Flame Graph</title>
<style nonce="${nonce}">${css}${style}</style>
</head>
<body>
<p id="summary" role="status">Loading the call stacks…</p>
<div id="graph"></div>
<ul id="notes"></ul>
<script nonce="${nonce}">${script}</script>
</body>
</html>`;
}

const style = `
body { margin: 0; padding: 8px 12px; color: var(--vscode-editor-foreground); background: var(--vscode-editor-background); font-family: var(--vscode-font-family); font-size: var(--vscode-font-size);
  --mono: var(--vscode-editor-font-family, monospace); --link: var(--vscode-focusBorder); --ink: var(--vscode-editorHoverWidget-foreground); }
body.vscode-high-contrast, body.vscode-high-contrast-light { --flame-line: var(--vscode-contrastBorder); }
#summary { margin: 0 0 8px; }
#notes { margin: 8px 0 0; padding-left: 20px; color: var(--vscode-descriptionForeground); }
.flame-bar input[type=search], .flame-bar select { font: inherit; height: 24px; box-sizing: border-box; border-radius: 2px; padding: 0 6px; }
.flame-bar input[type=search] { width: 220px; color: var(--vscode-input-foreground); background: var(--vscode-input-background); border: 1px solid var(--vscode-input-border, transparent); }
.flame-bar input::placeholder { color: var(--vscode-input-placeholderForeground); }
.flame-bar select { color: var(--vscode-dropdown-foreground); background: var(--vscode-dropdown-background); border: 1px solid var(--vscode-dropdown-border, transparent); }
.flame-bar button { font: inherit; color: var(--vscode-button-secondaryForeground); background: var(--vscode-button-secondaryBackground); border: 1px solid var(--vscode-contrastBorder, transparent); padding: 2px 8px; cursor: pointer; }
.flame-bar button:disabled { opacity: .5; cursor: default; }
.flame-bar :focus-visible { outline: 1px solid var(--vscode-focusBorder); outline-offset: -1px; }
.flame-scroller { max-height: calc(100vh - 170px); }
.flame-hover { background: var(--vscode-editorHoverWidget-background); color: var(--vscode-editorHoverWidget-foreground); border: 1px solid var(--vscode-editorHoverWidget-border, transparent); border-radius: 3px; }
`;
