// The page of queries: its frame and its looks, in the theme's colours. The table is the script's.

/** `script`: its text; nothing is loaded. `runs`: whether the query is run at once. */
export function page(script: string, nonce: string, query: string, runs: boolean): string {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'">
<title>SQL</title>
<style nonce="${nonce}">${style}</style>
</head>
<body>
<form id="form"${runs ? ' data-runs' : ''}>
<textarea id="query" rows="8" spellcheck="false" aria-label="A query in SQL over all recordings; Ctrl+Enter runs it">
${escape(query)}</textarea>
<div class="bar"><button id="run" type="submit" title="Ctrl+Enter">Run</button><button id="cancel" type="button" disabled>Cancel</button><span id="summary" role="status">SHOW TABLES lists the tables, DESCRIBE samples the columns of one.</span></div>
</form>
<p id="failure" role="alert"></p>
<ul id="notes"></ul>
<table><thead id="head"></thead><tbody id="rows"></tbody></table>
<script nonce="${nonce}">${script}</script>
</body>
</html>`;
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

const style = `
body { margin: 0; padding: 8px 12px; color: var(--vscode-editor-foreground); background: var(--vscode-editor-background); font-family: var(--vscode-font-family); font-size: var(--vscode-font-size); }
textarea { width: 100%; box-sizing: border-box; resize: vertical; padding: 6px; font-family: var(--vscode-editor-font-family, monospace); font-size: var(--vscode-editor-font-size); color: var(--vscode-input-foreground); background: var(--vscode-input-background); border: 1px solid var(--vscode-input-border, var(--vscode-panel-border, transparent)); }
.bar { display: flex; gap: 8px; align-items: center; margin: 6px 0; }
button { font: inherit; padding: 2px 12px; cursor: pointer; color: var(--vscode-button-secondaryForeground); background: var(--vscode-button-secondaryBackground); border: 1px solid var(--vscode-contrastBorder, transparent); }
#run { color: var(--vscode-button-foreground); background: var(--vscode-button-background); }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 1px solid var(--vscode-focusBorder); outline-offset: -1px; }
#failure { color: var(--vscode-errorForeground); font-family: var(--vscode-editor-font-family, monospace); white-space: pre-wrap; margin: 6px 0; }
#notes { margin: 0; padding-left: 20px; color: var(--vscode-descriptionForeground); }
table { border-collapse: collapse; font-family: var(--vscode-editor-font-family, monospace); font-size: var(--vscode-editor-font-size); }
th, td { text-align: left; padding: 1px 12px 1px 0; white-space: pre; vertical-align: top; border-bottom: 1px solid var(--vscode-panel-border, transparent); }
th { position: sticky; top: 0; background: var(--vscode-editor-background); }
.number { text-align: right; }
`;
