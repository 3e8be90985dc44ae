// A server that speaks ../../lsp-server/PROTOCOL.md from a script: deterministic, without a profile.
// Beyond the protocol, for tests: `fake/messages` (what came in), `fake/text` (a document as the changes
// left it), `fake/set` (the next answers), `fake/notify` (say this), `fake/die`.

const dynamic = (cause, label, uri, line, shareMax) => ({ kind: 'dynamic', cause, label, cyclesMin: 1e6, cyclesMax: 4e8, shareMax, uri, line });

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const tie = (text, culprits, shareMax) => ({ text, culprits, shareMax, cyclesMin: 1e6, cyclesMax: 4e8 });
const lineCost = (line, share, end, more) => ({
  line, label: [percent(share), ...end.slice(1, 2)].join(' · ').replace('waits for ', ''), lineEnd: [percent(share), ...end].join(' · '), details: [percent(share), ...end].join(' · '), samples: { 'cpu-clock': Math.round(share * 1000) }, share, seconds: share * 3, cycles: share * 3e9,
  scale: 'procedure', executions: null, executionsMin: null, executionsMax: null, perEntry: null, cpi: null, cpiMin: 0.1, cpiMax: null, bestCaseCpi: 0.5,
  confidence: 'low', culprits: [], ties: [], procedures: ['a.out:sum'], ...more,
});

const epoch = (id, name, start, end) => ({
  id, name, start, end, host: 'testhost', cpu: 'Test CPU', backend: 'perf', scope: './a.out',
  events: { 'cpu-clock': { period: 200000, unit: 'ns', samples: 1000, lost: 3, throttled: 0, unknown: 0, runningShare: 1 } }, notes: [],
});

const state = {
  selected: ['20261121T100000Z'],
  epochs: [
    epoch('20261120T090000Z', 'before', '2026-11-20T09:00:00Z', '2026-11-20T09:01:00Z'),
    epoch('20261121T100000Z', null, '2026-11-21T10:00:00Z', null),
  ],
  delayMs: 0, // of dwell/fileCosts
  error: {}, // by method: what it answers instead
  lens: null, // what became of the procedure since the epoch before: null, noise, slower
  stale: [], // lines that were edited since the program was built
  rebuilt: [],
  many: 0, // procedures in the hot list
  quiet: false, // whether nothing changed beyond chance, and nothing was sampled
  baseline: null,
  round: 0, // grows with each recording, so that a new profile can be seen
};

// What the real server has its core find out.
const names = (selector, { id, name }) => selector === id || selector === name || (selector === 'latest' && id === state.epochs.at(-1).id);

const documents = new Map();
const messages = [];
const recordings = new Map(); // request id → timer

function fileCosts({ textDocument: { uri } }) {
  return {
    epochs: state.selected, source: 'fresh', notes: ['3 samples were lost'],
    lines: [
      lineCost(2, 0.421 + state.round / 100, ['1.3 s', 'waits for memory (D-cache or DTLB miss) ← :2', '4.2 cycles/instr (ideal 0.50)'], {
        scale: 'absolute', executions: 1e6, cpi: 4.2, cpiMin: 4, cpiMax: 4.5, confidence: 'high',
        culprits: [dynamic('d-cache-miss', 'D-cache miss', uri, 1, 0.9), dynamic('dtlb-miss', 'DTLB miss', uri, 1, 0.9), dynamic('branch-mispredict', 'branch mispredict', null, null, 0.1)],
        ties: [tie('waits for memory (D-cache or DTLB miss)', [0, 1], 0.9), tie('waits for a mispredicted branch', [2], 0.1)],
        details: '42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2 (up to 90%); waits for a mispredicted branch (up to 10%) · 421 samples of cpu-clock',
      }),
      lineCost(3, 0.05, ['150 ms', 'waits for memory (DTLB miss) ← far.h:10', '≥ 2.0 cycles/instr (ideal 0.50)'], {
        perEntry: { executions: 2, of: 'loop' }, cpiMin: 2, culprits: [dynamic('dtlb-miss', 'DTLB miss', 'file:///usr/include/far.h', 9, 0.2)],
        ties: [tie('waits for memory (DTLB miss)', [0], 0.2)],
      }),
      lineCost(4, 0.001, [], { seconds: null, cycles: null }),
      lineCost(9999, 0.3, [], {}),
    ],
    stale: state.stale, rebuilt: state.rebuilt,
    procedures: [{ id: 'a.out:sum', label: 'sum(int*)', title: '47 % · 1.4 s · 3.9 cycles/instr (ideal 0.50)', line: 0, samples: { 'cpu-clock': 472 }, share: 0.472, seconds: 1.42, cycles: 1.3e9, scale: 'absolute', cpi: 3.9, cpiMin: 3.7, cpiMax: 4.1, bestCaseCpi: 0.5 }],
  };
}

const change = (verdict, label, samplesBefore, samplesAfter, more = {}) => ({
  verdict, label, details: `${label} · ${samplesBefore} → ${samplesAfter} samples`, samplesBefore, samplesAfter, change: samplesAfter - samplesBefore, changeShare: (samplesAfter - samplesBefore) / 1000,
  changeCycles: (samplesAfter - samplesBefore) * 1e6, ratio: samplesAfter / samplesBefore, executionsBefore: 1e6, executionsAfter: 1e6,
  countRatio: 1, cpiBefore: 2.1, cpiAfter: 4.2, costRatio: 2, p: 1e-9, falseDiscoveryRate: 1e-8, significant: verdict !== 'noise', ...more,
});
const slower = change('slower', '+22.1% · slower ×2.00 · CPI 2.1→4.2', 200, 421);
const noise = change('noise', 'no change beyond noise', 50, 52, { p: 0.4, falseDiscoveryRate: 0.6 });
const gone = change('gone', '−9.0% · gone', 90, 0, { countRatio: null, costRatio: null, cpiAfter: null });

const fileChanges = () => ({
  before: state.baseline ?? [], after: state.selected, procedures: state.lens ? [{ line: 0, name: 'sum', ...(state.lens === 'noise' ? noise : slower) }] : [], notes: [],
  lines: [{ line: 2, ...slower }, { line: 3, ...noise }, { line: 5, ...gone }],
});

function diff({ before, after, procedure, all }) {
  const sides = { before: before ?? state.baseline, after: after ?? state.selected };
  if (sides.before === null) throw { code: -32803, message: 'nothing to compare with: pin an epoch, or name those before' };
  const side = (epochs) => ({ epochs, cpu: 'Test CPU', machineModel: 'amd-zen4', event: 'cpu-clock', samples: 1000, periodCycles: 1e6 });
  const uri = [...documents.keys()][0] ?? null;
  const row = (id, name, what) => ({ id, name, image: 'a.out', confidence: 'high', ...what });
  const place = (address, text) => ({ address, text, uri, line: 2 });
  return {
    before: side(sides.before), after: side(sides.after), normalizedBy: 'run', exposure: 1, total: slower,
    procedures: [...(state.quiet ? [] : [row('a.out:sum', 'sum(int*)', slower), row('a.out:old', 'old()', gone)]), ...(all ? [row('a.out:main', 'main', noise)] : [])],
    lines: [{ file: '/src/a.c', uri, lineBefore: 2, lineAfter: 2, ...slower }, { file: '/src/a.c', uri, lineBefore: 7, lineAfter: null, ...gone }],
    instructions: procedure !== 'a.out:sum' ? [] : [
      { kind: 'same', before: place(0x1000, 'mov (%rdi),%rax'), after: place(0x2000, 'mov (%rdi),%rax'), ...slower },
      { kind: 'removed', before: place(0x1003, 'nop'), after: null, ...gone },
      { kind: 'edited', before: place(0x1004, 'add $1,%rcx'), after: place(0x2003, 'add $2,%rcx'), ...noise },
    ],
    insignificantProcedures: 1, insignificantLines: 0, omittedRows: 0, notes: ['other machine models'],
  };
}

/** Who calls `sum`: `parse` from two lines, itself called by `main`, and `load`; of one stack the callers are not known. */
function callers({ function: name, textDocument, position, callees = false, through = [] }) {
  if (textDocument !== undefined && position.line > 5) throw { code: -32803, message: 'a.c:7: no function with call stacks is here' };
  const uri = [...documents.keys()][0] ?? null;
  const row = (name, samples, sites, leads = true) => ({
    function: name, image: 'a.out', inlined: name === 'load', samples, share: samples / 40, label: name === 'load' ? 'load (inlined)' : name,
    details: `${samples} of 40`, place: null, sites: sites.map((line) => ({ uri, line, samples })), leads,
  });
  const way = through.map((step) => step.function).join(' ');
  const rows = callees ? { '': [row('memcpy', 10, [3])] } : { '': [row('parse', 30, [1, 4]), row('load', 9, [2]), row('[incomplete]', 1, [], false)], parse: [row('main', 30, [])] };
  return {
    epochs: state.selected, id: name ?? 'a.out:sum', function: 'sum(int*)', image: 'a.out', place: { uri, line: 0 }, samples: 40, own: 30, total: 80,
    rows: rows[way] ?? [], incomplete: [{ cause: 'cut', image: 'a.out', samples: 1 }], notes: [],
  };
}

const summary = ({ procedure, image }) => ({
  epochs: state.selected, scope: { kind: procedure ? 'procedure' : image ? 'image' : 'epoch', name: procedure ?? image ?? state.selected.join('+') },
  machineModel: 'amd-zen4', timeEvent: 'cpu-clock', periodCycles: 1e6, samples: 1000, samplesTallied: 950, talliedShare: 0.95, procedures: 2,
  proceduresLeftOut: 1, cycles: 9.5e8, scale: 'absolute', instructions: 5e8, cpi: 1.9, cpiMin: 1.8, cpiMax: 2.1, bestCaseCpi: 0.5,
  dynamic: [
    { cause: 'd-cache-miss', label: 'D-cache miss', shareMin: 0.3, shareMax: 0.6 }, { cause: 'dtlb-miss', label: 'DTLB miss', shareMin: 0, shareMax: 0.2 },
    { cause: 'other', label: 'other causes', shareMin: 0, shareMax: 0 },
  ],
  unexplainedStall: 0.05, unexplainedStallMin: 0.05, unexplainedStallMax: 0.05, unexplainedGain: -0.01,
  subtotalDynamic: 0.64, subtotalDynamicMin: 0.64, subtotalDynamicMax: 0.64,
  staticCauses: [{ cause: 'slotting', label: 'slotting', share: 0.06, shareMin: 0.06, shareMax: 0.06 }],
  subtotalStatic: 0.06, subtotalStaticMin: 0.06, subtotalStaticMax: 0.06, totalStall: 0.7, totalStallMin: 0.7, totalStallMax: 0.7,
  execution: 0.28, executionMin: 0.28, executionMax: 0.28, netSamplingError: 0.02, notes: ['low confidence'], text: '', totals: '1.0 k samples of cpu-clock, 95.0% of them tallied · 950 M cycles · 1.9 cycles/instr (ideal 0.50) · amd-zen4',
});

const hotRow = (id, label, share, cumulativeShare, location) => ({
  id, label, image: '/usr/bin/a.out', samples: { 'cpu-clock': Math.round(share * 1000) }, share, cumulativeShare, cycles: share * 2e9, scale: label === 'memcpy' ? 'program' : 'absolute', cpi: label === 'memcpy' ? null : 4 * share, cpiMin: label === 'memcpy' ? 4.2 : 3 * share, cpiMax: null, location,
});

function hotProcedures({ by = 'procedure', offset = 0, limit = 500, bare = false, split = false }) {
  const answer = hotRows(by);
  const rows = answer.rows.slice(offset, offset + limit).map((row) => ({
    ...row, ...(bare ? { cpi: null, cpiMin: null, location: null } : {}), split: split && !bare ? { execution: 0.2, static: 0.1, dynamic: 0.7 } : null,
  }));
  return { ...answer, rows };
}

function hotRows(by) {
  if (state.many) return { epochs: state.selected, total: {}, omittedRows: 0, notes: [], rows: Array.from({ length: state.many }, (_, i) => hotRow(`p${i}`, `procedure ${i}`, 1 / state.many, i / state.many, null)) };
  const uri = [...documents.keys()][0];
  if (state.quiet) return { epochs: state.selected, total: {}, rows: [], omittedRows: 0, notes: [] };
  const rows = by === 'procedure'
    ? [hotRow('a.out:sum', 'sum(int*)', 0.472, 0.472, uri ? { uri, line: 0 } : null), hotRow('libc.so.6:memcpy', 'memcpy', 0.2, 0.672, null)]
    : [{ ...hotRow(`${by}-1`, `the only ${by}`, 1, 1, null), image: null, cpi: null, cpiMin: null }];
  return { epochs: state.selected, total: { 'cpu-clock': 1000 }, rows, omittedRows: 7, notes: ['image gone: /tmp/x'] };
}

function listing({ procedure }) {
  const uri = [...documents.keys()][0] ?? 'file:///nowhere.c';
  const lines = [
    ['*** best case 2/4 = 0.50 CPI, actual 13/4 = 3.20 CPI', null, null, []],
    ['  a.c:3  for (;;) total += *p;', null, 2, []],
    ['401000    mov (%rdi),%rax         1.0cy', 0x401000, 2, []],
    ['          d •••••• 400.0cy   (d = D-cache miss)', null, 2, [2]],
    ['401003    add %rax,%rcx     421   9.3cy  401000', 0x401003, 2, [2]],
    ['  a.c:4  p = p->next;', null, 3, []],
    ['401006    jne 401000             0.50cy', 0x401006, 3, []],
    ['          s • 1.0cy   (s = slotting)', null, 3, []],
    ['          p •• 2.0cy   (p = branch mispredict)', null, 3, []],
    ['401008    ret                     2.0cy', 0x401008, 4, []],
  ];
  return {
    title: `${procedure} 100% of it`, text: lines.map(([text]) => text).join('\n') + '\n',
    lines: lines.map(([, address, line, culpritLines]) => ({ address, target: address === 0x401006 ? 0x401000 : null, operands: address === 0x401003 ? [{ text: 'rax', lines: [2, 9] }] : [], source: line === null ? null : { uri, line }, culpritLines })),
    listing: {},
  };
}

function cfg({ procedure }) {
  const block = (address, share, y, lines, successors) => ({ address, head: `${100 * share}%   executed 1.0 M   CPI 2.0 (best 0.50)   high confidence`, share, lines, successors, box: { x: 36, y, width: 620, height: 50 } });
  const line = (address, text) => ({ address, text: `${address.toString(16)}    ${text}` });
  const blocks = [
    block(0x401000, 0.1, 12, [line(0x401000, 'xor %eax,%eax'), line(0x401002, 'jmp 401010')], [{ to: 0x401010, executions: 1, part: 1, falls: false }]),
    block(0x401004, 0.7, 96, [line(0x401004, 'add (%rdi),%rax')], [{ to: 0x401010, executions: null, part: 1, falls: true }]),
    block(0x401010, 0.2, 180, [line(0x401010, 'jne 401004')], [{ to: 0x401004, executions: 1e6, part: 1, falls: false }, { to: 0x401014, executions: 0, part: 0, falls: true }]),
    block(0x401014, 0, 264, [line(0x401014, 'ret')], []),
  ];
  const drawn = blocks.map(({ address, share, box }) => `<g class="block heat-${Math.round(9 * share)}" data-address="${address}"><rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}"/><text class="head" x="44" y="${box.y + 20}">${100 * share}%</text></g>`);
  return { title: procedure, svg: `<svg xmlns="http://www.w3.org/2000/svg" class="cfg" width="700" height="340" viewBox="0 0 700 340">\n${drawn.join('\n')}\n</svg>`, blocks, omittedBlocks: 2 };
}

/** Two functions of the program that are counted, one of them with two paths. */
function counted() {
  const { counting } = state;
  if (counting === undefined) return [];
  const frame = (name, line) => ({ function: name, image: 'prog', inlined: false, place: line === null ? null : { uri: [...documents.keys()][0], line } });
  const path = (share, ...frames) => ({ frames, complete: true, calls: 4000 * share, returns: 4000 * share, share, wall: { sum: 1, mean: 3200, p50: 1, p99: 1, max: 1 } });
  const work = { function: 'work', image: 'prog', place: null, label: counting.ended ? '4,000 calls in 4 s' : '1.0 k calls/s', paths: [path(0.75, frame('often', 6), frame('main', 9)), path(0.25, frame(null, null))], omittedPaths: 2 };
  return [{ id: 1, pids: counting.pids, seconds: 4, state: counting.ended ? 'ended' : 'counting', problem: null, functions: [work, ...(counting.function ? [{ ...work, function: counting.function, paths: [], omittedPaths: 0 }] : [])] }];
}

function executeCommand({ command, arguments: [argument], workDoneToken }, id) {
  switch (command) {
    case 'dwell.server.selectEpochs':
      state.selected = argument;
      notify('dwell/profileDidChange', { epochs: argument });
      return null;
    case 'dwell.server.newEpoch':
      return null;
    case 'dwell.server.renameEpoch':
      state.epochs.find((one) => one.id === argument.epoch).name = argument.name;
      return null;
    case 'dwell.server.removeEpochs':
      state.epochs = state.epochs.filter((one) => !argument.includes(one.id));
      return { removed: argument };
    case 'dwell.server.compare':
      state.baseline = argument?.before ?? null;
      notify('dwell/profileDidChange', { epochs: state.selected });
      return null;
    case 'dwell.server.report':
      return null;
    case 'dwell.server.countCalls':
      state.counting = argument;
      notify('dwell/callsDidChange', {});
      return counted()[0];
    case 'dwell.server.stopCounting':
      state.counting = state.counting?.ended ? undefined : { ...state.counting, ended: true };
      notify('dwell/callsDidChange', {});
      return null;
    case 'dwell.server.importPerf':
      state.round += 1;
      return { epoch: `imported-${state.round}`, output: '' };
    case 'dwell.server.record': {
      if (argument.pids) return { epoch: `of ${argument.pids.join('+')} for ${argument.seconds} s`, output: '' };
      const progress = (value) => notify('$/progress', { token: workDoneToken, value });
      progress({ kind: 'begin', title: 'Dwell', message: `recording ${argument.command.join(' ')}`, cancellable: true, percentage: 0 });
      progress({ kind: 'report', message: '50 samples', percentage: 40 });
      const finish = () => {
        recordings.delete(id);
        progress({ kind: 'end' });
        state.round += 1;
        respond(id, { result: { epoch: `recorded-${state.round}`, output: `ran ${argument.command.join('|')} in ${argument.cwd}\n` } });
        notify('dwell/profileDidChange', { epochs: [`recorded-${state.round}`] });
      };
      recordings.set(id, setTimeout(finish, argument.command[0] === 'forever' ? 3_600_000 : 50));
      return undefined;
    }
    default:
      throw { code: -32601, message: `no command ${command}` };
  }
}

const requests = {
  initialize: () => ({
    capabilities: { textDocumentSync: { openClose: true, change: Number(process.env.FAKE_SYNC ?? 2), save: true }, experimental: { dwell: { version: 1 } } },
  }),
  shutdown: () => null,
  'dwell/epochs': () => ({
    selected: state.selected, baseline: state.baseline, warnings: [],
    epochs: state.epochs.map((each) => ({ ...each, shown: state.selected.some((selector) => names(selector, each)), pinned: state.baseline?.some((selector) => names(selector, each)) ?? false })),
  }),
  'dwell/summary': summary,
  'dwell/sql': ({ query }) => {
    if (!query.startsWith('SELECT')) throw { code: -32803, message: 'Binder Error: no such column' };
    const columns = [['path', 'VARCHAR'], ['n', 'BIGINT'], ['hot', 'BOOLEAN']].map(([name, type]) => ({ name, type }));
    return { columns, rows: [['/bin/a\nb', 3440, true], ['kernel', '9223372036854775807', false], [null, 8, null]], more: true, notes: ['a segment is damaged'] };
  },
  'dwell/callers': callers,
  'dwell/diff': diff,
  'dwell/fileChanges': fileChanges,
  'dwell/callPaths': () => ({ counts: counted(), sites: [] }),
  'dwell/processes': () => ({ processes: [{ pid: 42, name: 'lua', command: 'lua a.lua', user: 'me', own: true, cpuSeconds: 3.25 }] }),
  'dwell/hotProcedures': hotProcedures,
  'dwell/listing': listing,
  'dwell/cfg': cfg,
  'dwell/legend': () => ({ markdown: '', text: 'What do these numbers mean?\n\npart   meaning\n28 %   The share of all time.\n', headings: [{ start: 0, end: 27 }] }),
  'dwell/fileCosts': (params, id) => {
    const answer = fileCosts(params);
    if (state.delayMs === 0) return answer;
    setTimeout(() => respond(id, { result: answer }), state.delayMs);
    return undefined;
  },
  'textDocument/hover': ({ position }) => {
    const value = `line ${position.line} waits for memory ← line 2 in sum 𝄞 What do these numbers mean?`;
    const link = (words, target) => ({ ...target, start: value.indexOf(words), end: value.indexOf(words) + words.length });
    const links = [link('line 2 in', { uri: [...documents.keys()][0], line: 1 }), link('sum', { procedure: 'a.out:sum', address: 4198406 }), link('What do these numbers mean?', { legend: true })];
    links[0].end -= ' in'.length;
    return { contents: { kind: 'plaintext', value }, links };
  },
  'workspace/executeCommand': executeCommand,
  'fake/messages': () => messages,
  'fake/text': ({ uri }) => documents.get(uri) ?? null,
  'fake/set': (params) => Object.assign(state, params) && null,
  'fake/notify': ({ method, params }) => (notify(method, params), null),
  'fake/request': ({ method, params }) => (send({ id: 'from-server', method, params }), null),
};

function offset(text, { line, character }) {
  let at = 0;
  for (let i = 0; i < line; i++) at = text.indexOf('\n', at) + 1;
  return at + character;
}

const notifications = {
  'textDocument/didOpen': ({ textDocument: { uri, text } }) => documents.set(uri, text),
  'textDocument/didClose': ({ textDocument: { uri } }) => documents.delete(uri),
  'textDocument/didChange': ({ textDocument: { uri }, contentChanges }) => {
    let text = documents.get(uri);
    for (const change of contentChanges) {
      text = change.range === undefined ? change.text
        : text.slice(0, offset(text, change.range.start)) + change.text + text.slice(offset(text, change.range.end));
    }
    documents.set(uri, text);
  },
  '$/cancelRequest': ({ id }) => {
    if (!recordings.has(id)) return;
    clearTimeout(recordings.get(id));
    recordings.delete(id);
    respond(id, { error: { code: -32800, message: 'cancelled' } });
  },
  'fake/die': () => { process.stderr.write('the fake server was told to die\n'); process.exit(3); },
  exit: () => process.exit(0),
};

function send(message) {
  const body = JSON.stringify({ jsonrpc: '2.0', ...message });
  process.stdout.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}
const respond = (id, answer) => send({ id, ...answer });
const notify = (method, params) => send({ method, params });

function receive({ id, method, params, result, error }) {
  messages.push({ method, params, result, error });
  if (id === undefined) return notifications[method]?.(params);
  if (method === undefined) return undefined;
  if (state.error[method]) return respond(id, { error: state.error[method] });
  try {
    const answer = requests[method](params, id);
    if (answer !== undefined) respond(id, { result: answer });
  } catch (problem) {
    respond(id, { error: { code: problem.code ?? -32603, message: problem.message } });
  }
  return undefined;
}

let input = Buffer.alloc(0);
process.stdin.on('data', (chunk) => {
  input = Buffer.concat([input, chunk]);
  for (;;) {
    const end = input.indexOf('\r\n\r\n');
    if (end < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(input.subarray(0, end).toString())[1]);
    if (input.length < end + 4 + length) return;
    const body = input.subarray(end + 4, end + 4 + length).toString();
    input = input.subarray(end + 4 + length);
    receive(JSON.parse(body));
  }
});
process.stdin.on('end', () => process.exit(0));
