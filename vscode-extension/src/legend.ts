// What the numbers mean, one click away: the server's page for all clients, in VS Code's own preview of Markdown.
import * as vscode from 'vscode';
import { showLegendCommand } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';

const scheme = 'dwell-legend';
/** Its last part is what the tab says. */
const page = vscode.Uri.from({ scheme, path: '/What do these numbers mean?.md' });

export function activate({ client, failures }: Dwell): vscode.Disposable {
  let text = '';
  return vscode.Disposable.from(
    vscode.workspace.registerTextDocumentContentProvider(scheme, { provideTextDocumentContent: () => text }),
    failures.command(showLegendCommand, 'the legend', async () => {
      ({ markdown: text } = await client.legend());
      await vscode.commands.executeCommand('markdown.showPreviewToSide', page);
    }),
  );
}
