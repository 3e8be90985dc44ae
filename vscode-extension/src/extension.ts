// Wires the features together. In: VS Code's activation. Out: everything registered, everything disposed.
// No feature imports another; they meet in `Dwell`, which each gets.
import * as vscode from 'vscode';
import { Client } from './client';
import type { Dwell } from './dwell';
import { Failures } from './failures';
import { Profile } from './profile';
import * as callers from './callers';
import * as callPaths from './callPaths';
import * as cfg from './cfg';
import * as compare from './compare';
import * as compareListings from './compareListings';
import * as epochs from './epochs';
import * as epochView from './epochView';
import * as flame from './flame';
import * as hints from './hints';
import * as hotProcedures from './hotProcedures';
import * as legend from './legend';
import { LineMarks, type Api } from './lines';
import * as listing from './listing';
import * as record from './record';
import * as recordTask from './recordTask';
import * as report from './report';
import * as sql from './sql';
import * as status from './status';

export async function activate(context: vscode.ExtensionContext): Promise<Api> {
  const log = vscode.window.createOutputChannel('Dwell', { log: true });
  const failures = new Failures(log);
  const client = new Client(context, log);
  const profile = new Profile(client, log);
  const dwell: Dwell = { client, profile, failures, log, memory: context.workspaceState };
  const lines = new LineMarks(dwell);
  context.subscriptions.push(log, failures, client, profile, lines);
  for (const feature of [callers, callPaths, cfg, compare, compareListings, epochs, epochView, flame, hints, hotProcedures, legend, listing, record, recordTask, report, sql, status]) {
    context.subscriptions.push(feature.activate(dwell));
  }
  await client.start();
  return { lineEnds: (document) => lines.lineEnds(document) };
}
