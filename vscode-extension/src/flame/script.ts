/// <reference lib="dom" />
// The flame graph in its page: draws what the extension sends, and says which function one wants to see.
import type { FlameFunction } from '@dwell/lsp-server/protocol';
import { FlameGraph } from '../../../flame-graph/flameGraph.mjs';
import type { FromPage, ToPage } from './model';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const api = acquireVsCodeApi();

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no #${id} in the page`);
  return found;
}

let graph: FlameGraph<FlameFunction> | undefined;

addEventListener('message', ({ data }: MessageEvent<ToPage>) => {
  switch (data.kind) {
    case 'graph':
      element('summary').textContent = data.summary;
      if (graph) graph.show(data.data);
      else graph = new FlameGraph(element('graph'), data.data, { clickOpens: true, open });
      sayNotes(data.notes);
      return;
    case 'functions':
      graph?.know(data.functions);
      sayNotes(data.notes);
      return;
    case 'words':
      element('summary').textContent = data.text;
      graph?.dispose();
      graph = undefined;
      sayNotes([]);
  }
});

function open({ location, id }: FlameFunction): void {
  api.postMessage({ kind: 'open', location, id });
}

function sayNotes(notes: readonly string[]): void {
  element('notes').replaceChildren(...notes.map((note) => {
    const item = document.createElement('li');
    item.textContent = note;
    return item;
  }));
}

// VS Code tells a page that the theme changed by its body's classes.
new MutationObserver(() => graph?.recolor()).observe(document.body, { attributes: true, attributeFilter: ['class'] });
api.postMessage({ kind: 'ready' });
