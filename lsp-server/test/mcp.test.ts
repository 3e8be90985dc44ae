/** The built server's MCP side over its standard input and output, asked by the SDK's own client, with the real core. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Client, type CallToolResult } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import type { DiffAnswer, EpochsAnswer, HotAnswer, LinesAnswer, ListingAnswer, SummaryAnswer } from '../src/mcp/answers';
import type { SqlAnswer } from '../src/core';
import { fixtureOf, server, top } from './fixture';

const clients: Client[] = [];
const { skip, given } = fixtureOf('MCP over stdio', () => Promise.all(clients.map((client) => client.close())));

interface Connected {
  client: Client;
  pid: number;
}

async function connect(database: string): Promise<Connected> {
  const transport = new StdioClientTransport({ command: process.execPath, args: [server, '--mcp', '--database', database], stderr: 'inherit' });
  const client = new Client({ name: 'test', version: '0' });
  await client.connect(transport);
  clients.push(client);
  return { client, pid: transport.pid ?? 0 };
}

interface Answer<T> {
  text: string;
  answer: T;
}

/** A tool's answer. The client checks it against the tool's schema, which it has from listing the tools. */
async function call<T>(client: Client, name: string, args: object = {}): Promise<Answer<T>> {
  const result = (await client.callTool({ name, arguments: { ...args } }));
  assert.notEqual(result.isError, true, JSON.stringify(result.content));
  return { text: textOf(result), answer: result.structuredContent as T };
}

function textOf({ content }: CallToolResult): string {
  return content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

async function failure(client: Client, name: string, args: object): Promise<string> {
  const result = (await client.callTool({ name, arguments: { ...args } }));
  assert.equal(result.isError, true);
  return textOf(result);
}

test('the tools exist, are read-only, and explain their numbers', { skip }, async () => {
  const { client } = await connect(given().database);
  assert.match(client.getInstructions() ?? '', /low confidence/);
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map(({ name }) => name), ['epochs', 'hot_procedures', 'lines', 'listing', 'summary', 'callers', 'callees', 'hottest_paths', 'inclusive', 'diff', 'sql']);
  for (const { name, annotations, outputSchema } of tools) {
    assert.equal(annotations?.readOnlyHint, true, name);
    assert.ok(outputSchema, name);
    if (!['epochs', 'callers', 'callees', 'hottest_paths', 'inclusive', 'sql'].includes(name)) assert.match(JSON.stringify(outputSchema), /processor cycles|cycles per execution|null: no estimate|does not tell count from cost/, name);
  }
});

test('answers contain data and text', { skip }, async () => {
  const { database, source, hotLine, procedureLine, text } = given();
  const { client } = await connect(database);
  await client.listTools();
  const epochs = await call<EpochsAnswer>(client, 'epochs');
  const first = epochs.answer.epochs.find(({ name }) => name === 'first');
  assert.ok(first);
  assert.ok((first.samples['cpu-clock'] ?? 0) > 9000);
  assert.match(epochs.text, /\(first\): \d{4}-.*cpu-clock/);

  const hot = await call<HotAnswer>(client, 'hot_procedures', { limit: 1, epochs: ['first'] });
  const [row] = hot.answer.rows;
  assert.equal(row?.label, 'chase');
  assert.equal(row.line, procedureLine + 1);
  assert.deepEqual(hot.answer.epochs, [first.id]);
  assert.deepEqual(hot.answer.losses, first.losses);
  assert.match(hot.text, /^ *[\d.]+% \([\d.]+% so far\) {2}chase {2}\[.*30 G cycles; \/.*chase\.c:\d/m);

  const lines = await call<LinesAnswer>(client, 'lines', { path: source });
  const hottest = [...lines.answer.lines].sort((a, b) => b.share - a.share)[0];
  assert.equal(hottest?.line, hotLine + 1);
  assert.equal(hottest.text, text.split('\n')[hotLine]);
  assert.match(lines.text, /as it was built/);
  assert.match(lines.text, /D-cache miss.*up to \d+\.\d% of it/);
  const few = await call<LinesAnswer>(client, 'lines', { path: source, minShare: 0.9 });
  assert.equal(few.answer.lines.length + few.answer.omittedLines, lines.answer.lines.length);

  const listing = await call<ListingAnswer>(client, 'listing', { procedure: row.id });
  assert.equal(listing.answer.instructions.length, listing.answer.totalInstructions);
  assert.equal(listing.answer.nextOffset, null);
  assert.match(listing.text, /\*\*\* best case/);
  assert.ok(listing.answer.instructions.some(({ stalls }) => stalls.some(({ cause }) => cause === 'd-cache-miss')));

  const summary = await call<SummaryAnswer>(client, 'summary', { procedure: row.id });
  const { scale, execution, executionMin, executionMax, totalStall, totalStallMin, totalStallMax, dynamic } = summary.answer;
  assert.deepEqual([scale, execution, totalStall], ['procedure', null, null]);
  assert.ok(executionMin + totalStallMin <= 1.000001 && executionMax + totalStallMax >= 0.999999);
  assert.ok(dynamic.every(({ shareMin, shareMax }) => shareMin <= shareMax));
  assert.match(summary.text, /Ranges of causes overlap[^]*D-cache miss.*%/);
});

test('a long listing comes in pages that join to the whole', { skip }, async () => {
  const { client } = await connect(given().database);
  const whole = await call<ListingAnswer>(client, 'listing', { procedure: 'chase' });
  const pages: Answer<ListingAnswer>[] = [];
  for (let offset: number | null = 0; offset !== null && pages.length < 100; offset = pages.at(-1)?.answer.nextOffset ?? null) {
    pages.push(await call<ListingAnswer>(client, 'listing', { procedure: 'chase', offset, limit: 3 }));
  }
  assert.ok(pages.length > 1);
  assert.deepEqual(pages.flatMap(({ answer }) => answer.instructions), whole.answer.instructions);
  assert.equal(pages.map(({ text }) => text.replace(/\n… \d+ more instructions: offset \d+$/, '')).join('\n'), whole.text);
});

test('changes between two epochs are separated from chance', { skip }, async () => {
  const { database } = given();
  given().importAgain('again');
  const { client } = await connect(database);
  await client.listTools();
  const same = await call<DiffAnswer>(client, 'diff', { before: ['first'], after: ['again'], all: true });
  assert.ok(same.answer.procedures.length > 0);
  assert.ok(same.answer.procedures.every(({ verdict, significant }) => verdict === 'noise' && !significant));
  assert.match(same.text, /may be chance/);
  const one = await call<DiffAnswer>(client, 'diff', { before: ['first'], after: ['again'], procedure: 'chase', all: true });
  assert.ok(one.answer.instructions.length > 0);
  assert.ok(one.answer.instructions.every(({ kind }) => kind === 'same'));
});

test('a query in SQL has rows of text and data, and the tool names the tables of the document', { skip }, async (t) => {
  const { client } = await connect(given().database);
  const { tools } = await client.listTools();
  const described = tools.find(({ name }) => name === 'sql')?.description ?? '';
  const tables = [...readFileSync(join(top, 'docs/sql.md'), 'utf8').matchAll(/^### `(\w+)`$([^#]*)/gm)];
  assert.ok(tables.length > 15);
  for (const [, table = '', text = ''] of tables) {
    const columns = [...text.matchAll(/^\| `(\w+)` \|/gm)].map(([, column]) => column);
    const inTool = new RegExp(`\\b${table}\\(([^)]*)\\)`).exec(described)?.[1]?.replace(/: [^,)]*(, (kernel|module|vdso|jit|unknown))*/g, '').split(', ');
    assert.deepEqual(inTool, columns, table);
  }
  const refused = await failure(client, 'sql', { query: "SELECT * FROM read_text('/etc/passwd')" });
  if (refused.includes('no usable DuckDB')) {
    console.log(`SKIPPED MCP sql: ${refused}`);
    t.skip();
    return;
  }
  assert.match(refused, /Permission Error[^\n]*disabled/);
  for (const query of ["COPY samples TO 'x'", "ATTACH 'x'", 'INSTALL httpfs', 'LOAD httpfs']) assert.match(await failure(client, 'sql', { query }), /^only queries can be run/, query);
  const query = "SELECT demangled, sum(count) AS n FROM procedure_samples WHERE epoch = dwell_epoch('first') GROUP BY ALL ORDER BY n DESC";
  const { text, answer } = await call<SqlAnswer>(client, 'sql', { query });
  assert.deepEqual(answer.columns, [{ name: 'demangled', type: 'VARCHAR' }, { name: 'n', type: 'HUGEINT' }]);
  assert.equal(answer.rows[0]?.[0], 'chase');
  assert.equal(text, `demangled | n\n${answer.rows.map((row) => row.join(' | ')).join('\n')}`);
  const few = await call<SqlAnswer>(client, 'sql', { query: 'FROM range(3)', limit: 2 });
  assert.equal(few.text, 'range\n0\n1\nThese are the first 2 rows: there are more.');
});

test('a failed request is an error of one line, and the server continues', { skip }, async () => {
  const { folder, database } = given();
  const { client } = await connect(database);
  assert.match(await failure(client, 'listing', { procedure: 'no_such_procedure' }), /no_such_procedure[^\n]*$/);
  assert.match(await failure(client, 'hot_procedures', { epochs: ['no_such_epoch'] }), /no_such_epoch[^\n]*$/);
  assert.match(await failure(client, 'diff', { before: ['latest~99'] }), /latest~99[^\n]*$/);
  assert.equal((await call<LinesAnswer>(client, 'lines', { path: join(folder, 'nowhere.c') })).answer.lines.length, 0);
  await assert.rejects(client.callTool({ name: 'no_such_tool' }));
  // Arguments that break the schema are told to the assistant, which can do better.
  assert.match(await failure(client, 'hot_procedures', { limit: 0 }), /limit/);
  assert.match(await failure(client, 'callers', { function: 'chase' }), /no call stacks were recorded[^\n]*$/);
  assert.match(await failure(client, 'inclusive', {}), /no call stacks were recorded[^\n]*$/);
  assert.match(await failure(client, 'lines', { path: 'chase.c' }), /path: must be absolute$/);
  assert.match((await call<ListingAnswer>(client, 'listing', { procedure: 'chase', offset: 999 })).text, /^The listing has \d+ instructions: none from 999 on\.$/);
  assert.ok((await call<HotAnswer>(client, 'hot_procedures')).answer.rows.length > 0);
  const nothing = await connect(join(folder, 'no-database'));
  assert.match((await call<EpochsAnswer>(nothing.client, 'epochs')).text, /^No recordings/);
  assert.match(await failure(nothing.client, 'hot_procedures', {}), /no-database[^\n]*$/);
});

test('the server ends with its client, and its bundle is small', { skip }, async () => {
  const { client, pid } = await connect(given().database);
  await call<HotAnswer>(client, 'hot_procedures');
  const [, resident_kB = ''] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  console.log(`MCP server: ${Math.round(Number(resident_kB) / 1024)} MB resident after a question`);
  assert.ok(Number(resident_kB) < 300 * 1024);
  await client.close();
  for (let i = 0; i < 500 && runs(pid); i++) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(runs(pid), false);
});

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
