// A command line as typed → the words that are run. Pure; no VS Code.

/** What only a shell can do: pipes, lists, redirections, substitutions, patterns, assignments. */
const shellSyntax = /[|&;<>()$`*?#~\n]|\[|^\s*\w+=/;

/**
 * Splits a line into words as a shell would, quotes and backslashes understood. A line that needs a shell is given to
 * one, as `sh -c LINE`. Returns `undefined` for an empty line or one whose quote is not closed.
 */
export function splitCommandLine(line: string): string[] | undefined {
  const unquoted = line.replace(/'[^']*'|\\./g, '');
  // Between double quotes a shell still substitutes, but takes nothing else for its own.
  const bare = unquoted.replace(/"([^"]*)"/g, (_, inside: string) => inside.replace(/[^$`]/g, ''));
  if (/["']/.test(bare)) return undefined;
  if (shellSyntax.test(bare)) return ['sh', '-c', line];
  const words = [...line.matchAll(/(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+/g)].map(([word]) => unquote(word));
  return words.length > 0 ? words : undefined;
}

function unquote(word: string): string {
  return word.replace(/'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)/g, (_, single?: string, double?: string, escaped?: string) =>
    single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? '');
}
