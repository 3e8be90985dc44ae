// The hot list's page: its frame and its looks, in the theme's colours. The rows are the script's.

/** `script`: its text; nothing is loaded. */
export function page(script: string, nonce: string): string {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'">
<title>Hot Functions</title>
<style nonce="${nonce}">${style}</style>
</head>
<body>
<div id="bar" role="toolbar" aria-label="Rows">
<select id="by" aria-label="A row stands for">
<option value="procedure">Functions</option><option value="image">Binaries</option>
<option value="line">Source lines</option><option value="app">Applications</option>
</select>
<select id="sort" aria-label="Sort by">
<option value="share">by share</option><option value="cpi">by CPI</option><option value="label">by name</option>
</select>
<input id="filter" type="search" placeholder="Filter" aria-label="Filter by name or binary">
</div>
<div id="words" hidden></div>
<div id="head" aria-hidden="true"><span>Share</span><span>Name</span><span title="This row and those above it, in the order of their shares">Cumulative</span><span title="Cycles per instruction. A row with ≥ has a lower bound: how often its code ran is not known as a number.">CPI</span><span>Cycles go to</span><span>Binary</span></div>
<div id="list" role="listbox" tabindex="0" aria-label="Where the time goes"><div id="room"></div></div>
<div id="foot" role="status"></div>
<script nonce="${nonce}">${script}</script>
</body>
</html>`;
}

const style = `
html, body { height: 100%; margin: 0; padding: 0; overflow: hidden; }
body { display: flex; flex-direction: column; color: var(--vscode-foreground); font-family: var(--vscode-font-family); font-size: var(--vscode-font-size); }
#bar { display: flex; gap: 4px; padding: 4px 8px; }
select, input { font: inherit; min-width: 0; height: 24px; box-sizing: border-box; border-radius: 2px; }
select { color: var(--vscode-dropdown-foreground); background: var(--vscode-dropdown-background); border: 1px solid var(--vscode-dropdown-border, transparent); }
input { flex: 1; padding: 0 6px; color: var(--vscode-input-foreground); background: var(--vscode-input-background); border: 1px solid var(--vscode-input-border, transparent); }
input::placeholder { color: var(--vscode-input-placeholderForeground); }
select:focus, input:focus, #list:focus, button:focus { outline: 1px solid var(--vscode-focusBorder); outline-offset: -1px; }
#words { padding: 8px 20px; }
#words button { display: block; width: 100%; max-width: 300px; margin: 8px 0; padding: 4px; font: inherit; cursor: pointer; color: var(--vscode-button-foreground); background: var(--vscode-button-background); border: 1px solid var(--vscode-button-border, var(--vscode-contrastBorder, transparent)); }
#words button:hover { background: var(--vscode-button-hoverBackground); }
#head { display: none; padding: 0 8px; color: var(--vscode-descriptionForeground); }
#list { flex: 1; position: relative; overflow-y: auto; }
#room { position: relative; width: 100%; overflow: hidden; }
#foot { padding: 2px 8px; color: var(--vscode-descriptionForeground); }
#foot:empty { display: none; }
.row { position: absolute; left: 0; right: 0; height: 38px; box-sizing: border-box; padding: 2px 8px; display: grid; cursor: pointer; column-gap: 6px;
  grid-template: "share name name" 17px "bar cpi split" 16px / 44px minmax(60px, 1fr) 72px; white-space: nowrap; }
.row > * { overflow: hidden; text-overflow: ellipsis; }
.row:hover { background: var(--vscode-list-hoverBackground); color: var(--vscode-list-hoverForeground, inherit); }
.row.chosen { background: var(--vscode-list-inactiveSelectionBackground); color: var(--vscode-list-inactiveSelectionForeground, inherit); outline: 1px dashed var(--vscode-contrastActiveBorder, transparent); outline-offset: -1px; }
#list:focus .row.chosen { background: var(--vscode-list-activeSelectionBackground); color: var(--vscode-list-activeSelectionForeground, inherit); outline: 1px solid var(--vscode-list-focusOutline, var(--vscode-focusBorder)); outline-offset: -1px; }
.share { grid-area: share; text-align: right; font-variant-numeric: tabular-nums; }
.name { grid-area: name; }
.total, .cpi, .image { color: var(--vscode-descriptionForeground); font-variant-numeric: tabular-nums; }
.row.chosen .total, .row.chosen .cpi, .row.chosen .image { color: inherit; }
.cpi { grid-area: cpi; }
.total { display: none; grid-area: total; }
.image { display: none; grid-area: image; }
.meter { grid-area: bar; align-self: center; height: 6px; border-radius: 1px; background: var(--vscode-scrollbarSlider-background); border: 1px solid var(--vscode-contrastBorder, transparent); box-sizing: border-box; }
.meter i { display: block; height: 100%; min-width: 1px; background: var(--vscode-dwell-heat-hot, #f0883e); }
.split { grid-area: split; align-self: center; display: flex; height: 8px; border: 1px solid var(--vscode-contrastBorder, transparent); box-sizing: border-box; }
.split:empty { border-color: transparent; }
.split i { height: 100%; }
.execution { background: var(--vscode-charts-green); }
.static { background: repeating-linear-gradient(90deg, var(--vscode-charts-yellow) 0 2px, transparent 2px 4px); }
.dynamic { background: repeating-linear-gradient(135deg, var(--vscode-charts-red) 0 3px, var(--vscode-editor-background) 3px 4px); }
.legend { display: inline-block; width: 12px; height: 8px; margin: 0 3px 0 8px; }
body.wide #head { display: grid; height: 20px; }
body.wide #head, body.wide .row { column-gap: 8px; grid-template: "bar share name total cpi split image" 22px / 48px 48px minmax(120px, 3fr) 80px 72px 96px minmax(60px, 1fr); }
body.wide #head { grid-template: "share name total cpi split image" 20px / 104px minmax(120px, 3fr) 80px 72px 96px minmax(60px, 1fr); }
body.wide .row { height: 22px; padding: 0 8px; align-items: center; }
body.wide .image, body.wide .total { display: block; }
`;
