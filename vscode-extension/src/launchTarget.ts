// A launch configuration → the command that it would run, and where. Pure; no VS Code.

export interface LaunchTarget {
  label: string;
  description: string;
  command: string[];
  cwd: string | undefined;
  env: Record<string, string>;
  /** A file with more of the environment. */
  envFile: string | undefined;
  /** The name of a task that comes first. */
  preLaunchTask: string | undefined;
}

/** `undefined`: it names no program, or one that only a debugger can work out. */
export function launchTarget(configuration: unknown, folder: string): LaunchTarget | undefined {
  if (!isRecord(configuration)) return undefined;
  const { name, type, request, program, args, cwd, preLaunchTask } = configuration;
  if (request === 'attach' || typeof program !== 'string') return undefined;
  const words = Array.isArray(args) ? args.filter((word) => typeof word === 'string') : [];
  const command = [program, ...words].map((word) => resolve(word, folder));
  const env = Object.fromEntries(environment(configuration).map(([key, value]) => [key, resolve(value, folder)]));
  const envFile = typeof configuration.envFile === 'string' ? resolve(configuration.envFile, folder) : undefined;
  // Some variable that is not known here is left: running it would run something else.
  if ([...command, ...Object.values(env), envFile ?? ''].some((word) => word.includes('${'))) return undefined;
  const where = typeof cwd === 'string' ? resolve(cwd, folder) : folder;
  return {
    label: typeof name === 'string' ? name : program,
    description: `${typeof type === 'string' ? type : ''} ${command.join(' ')}`.trim(),
    command,
    cwd: where.includes('${') ? folder : where,
    env,
    envFile,
    preLaunchTask: typeof preLaunchTask === 'string' ? preLaunchTask : undefined,
  };
}

/** `env` as most debuggers have it, an object; `environment` as C++'s has it, a list of names and values. */
function environment({ env, environment: list }: Record<string, unknown>): [string, string][] {
  const ofObject = isRecord(env) ? Object.entries(env) : [];
  const ofList = Array.isArray(list) ? list.filter(isRecord).map(({ name, value }): [unknown, unknown] => [name, value]) : [];
  return [...ofObject, ...ofList].flatMap(([name, value]): [string, string][] =>
    typeof name === 'string' && (typeof value === 'string' || typeof value === 'number') ? [[name, String(value)]] : []);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function resolve(text: string, folder: string): string {
  return text.replaceAll('${workspaceFolder}', folder).replaceAll('${workspaceRoot}', folder)
    .replace(/\$\{env:(\w+)\}/g, (_, name: string) => process.env[name] ?? '');
}
