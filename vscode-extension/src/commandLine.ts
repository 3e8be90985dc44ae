// A command line as typed → the words that are run. Pure; no VS Code.
import { split } from 'shlex';

/** What only a shell can do: pipes, lists, redirections, substitutions, patterns, assignments. */
const shellSyntax = /[|&;<>()$`*?#~\n]|\[|^\s*\w+=/;

/**
 * Splits a line into words as a shell would, quotes and backslashes understood. A line that needs a shell is given to
 * one, as `sh -c LINE`. Returns `undefined` for an empty line or one whose quote is not closed.
 */
export function splitCommandLine(line: string): string[] | undefined {
  try {
    const words = split(line);
    if (words.length === 0) return undefined;
    return needsShell(line) ? ['sh', '-c', line] : words;
  } catch {
    return undefined; // A quote is not closed.
  }
}

function needsShell(line: string): boolean {
  const unquoted = line.replace(/'[^']*'|\\./g, '');
  // Between double quotes a shell still substitutes, but takes nothing else for its own.
  return shellSyntax.test(unquoted.replace(/"([^"]*)"/g, (_, inside: string) => inside.replace(/[^$`]/g, '')));
}
