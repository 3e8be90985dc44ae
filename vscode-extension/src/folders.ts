// Workspace folders whose profiles are kept in one place share a server. Pure; no VS Code.

/** Folders that have `keyOf` in common, in the order of their first; the first group is there even without folders. */
export function grouped<Folder>(folders: readonly Folder[], keyOf: (folder: Folder) => string): Folder[][] {
  const groups = new Map<string, Folder[]>();
  for (const folder of folders) {
    const key = keyOf(folder);
    groups.set(key, [...(groups.get(key) ?? []), folder]);
  }
  return groups.size === 0 ? [[]] : [...groups.values()];
}

/** A glob for all files below a folder; what globs read as special matches itself, or any one character. */
export function below(folder: string): string {
  return `${folder.replace(/\/$/, '').replace(/[[\]{}*?]/g, '?')}/**`;
}
