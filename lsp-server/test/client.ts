/**
 * A client of the server: in this process over streams, with a fake core; or of the built server over its stdio.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { PassThrough } from 'node:stream';
import { pathToFileURL } from 'node:url';
import {
  createConnection,
  createMessageConnection,
  StreamMessageReader,
  StreamMessageWriter,
  type InitializeResult,
  type MessageConnection,
} from 'vscode-languageserver/node';
import type { Binding } from '../src/core';
import { serve } from '../src/server';

export interface Started {
  client: MessageConnection;
  result: InitializeResult;
  /** Methods of the requests and notifications that came from the server, in order. */
  received: { method: string; params: unknown }[];
}

const everything = {
  workspace: { inlayHint: { refreshSupport: true }, codeLens: { refreshSupport: true } },
  window: { workDoneProgress: true },
  experimental: { dwell: { profileDidChange: true } },
};

export async function startInProcess(binding: Binding, initializationOptions: object, capabilities: object = everything): Promise<Started> {
  const toServer = new PassThrough();
  const toClient = new PassThrough();
  serve(createConnection(new StreamMessageReader(toServer), new StreamMessageWriter(toClient)), { binding, version: 'test', folder: '/nowhere' });
  return initialize(createMessageConnection(new StreamMessageReader(toClient), new StreamMessageWriter(toServer)), initializationOptions, capabilities);
}

const children = new Set<ChildProcess>();

/** Ends servers that a failed test left. */
export function killPrograms(): void {
  for (const child of children) child.kill('SIGKILL');
}

export async function startProgram(
  server: string,
  initializationOptions: object,
  capabilities: object = everything,
  as: { uid?: number; gid?: number; env?: NodeJS.ProcessEnv } = {},
): Promise<Started & { child: ChildProcess }> {
  const child = spawn(process.execPath, [server, '--stdio'], { stdio: ['pipe', 'pipe', 'inherit'], ...as });
  children.add(child);
  child.on('exit', () => children.delete(child));
  const connection = createMessageConnection(new StreamMessageReader(child.stdout), new StreamMessageWriter(child.stdin));
  return { ...(await initialize(connection, initializationOptions, capabilities)), child };
}

async function initialize(client: MessageConnection, initializationOptions: object, capabilities: object): Promise<Started> {
  const received: Started['received'] = [];
  client.onRequest((method, params) => {
    received.push({ method, params });
    return null;
  });
  client.onNotification((method, params) => {
    received.push({ method, params });
  });
  client.onUnhandledProgress(({ value }: { value: unknown }) => {
    received.push({ method: '$/progress', params: value });
  });
  client.listen();
  const result: InitializeResult = await client.sendRequest('initialize', { processId: null, rootUri: null, capabilities, initializationOptions });
  await client.sendNotification('initialized', {});
  return { client, result, received };
}

export async function stop(started: Started & { child?: ChildProcess }): Promise<void> {
  await started.client.sendRequest('shutdown');
  // A server in this process would end the tests.
  if (started.child !== undefined) await started.client.sendNotification('exit');
  started.client.dispose();
}

export async function open(client: MessageConnection, path: string, text: string): Promise<string> {
  const uri = pathToFileURL(path).href;
  await client.sendNotification('textDocument/didOpen', { textDocument: { uri, languageId: 'c', version: 1, text } });
  return uri;
}

/** Waits until `found` gives something, for 5 seconds at most. */
export async function until<T>(what: string, found: () => T | undefined | false): Promise<T> {
  for (const end = Date.now() + 5000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 10))) {
    const value = found();
    if (value !== undefined && value !== false) return value;
  }
  throw new Error(`waited in vain for ${what}`);
}
