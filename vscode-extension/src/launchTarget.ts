// A launch configuration → the command that it would run. Pure; no VS Code.

export interface LaunchTarget {
  label: string;
  description: string;
  command: string[];
  cwd: string | undefined;
}

/** `undefined`: it names no program, or one that only a debugger can work out. */
export function launchTarget(configuration: unknown, folder: string): LaunchTarget | undefined {
  if (typeof configuration !== 'object' || configuration === null) return undefined;
  const { name, type, request, program, args, cwd } = configuration as Record<string, unknown>;
  if (request === 'attach' || typeof program !== 'string') return undefined;
  const words = Array.isArray(args) ? args.filter((word) => typeof word === 'string') : [];
  const resolved = [program, ...words].map((word) => resolve(word, folder));
  // Some variable that is not known here is left: running it would run something else.
  if (resolved.some((word) => word.includes('${'))) return undefined;
  const where = typeof cwd === 'string' ? resolve(cwd, folder) : folder;
  return {
    label: typeof name === 'string' ? name : program,
    description: `${typeof type === 'string' ? type : ''} ${resolved.join(' ')}`.trim(),
    command: resolved,
    cwd: where.includes('${') ? folder : where,
  };
}

function resolve(text: string, folder: string): string {
  return text.replaceAll('${workspaceFolder}', folder).replaceAll('${workspaceRoot}', folder)
    .replace(/\$\{env:(\w+)\}/g, (_, name: string) => process.env[name] ?? '');
}
