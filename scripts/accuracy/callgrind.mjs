// callgrind's output → how often each instruction of one object ran, and how often control went from one to another.
//
// Enters: the text that `callgrind --dump-instr=yes --collect-jumps=yes --skip-plt=no` writes (the format is in
// callgrind's manual, "Callgrind Format Specification"), line by line. Leaves: plain maps by run-time address. Never
// here: files, programs. O(lines).

/**
 * @typedef {{
 *   executions: Map<number, number>,
 *   transfers: Map<number, Map<number, number>>,
 *   functions: Map<string, number>,
 * }} Profile
 * executions: by instruction; transfers: from → to → count, taken jumps and calls that stay in the object;
 * functions: the lowest address seen of each.
 */

/** Adds what one dump says of `object` (the path as callgrind saw it). Throws on a line that it does not understand. */
export class CallgrindReader {
  #object;
  #names = new Map();
  /** Columns of a position, of which the instruction's address is the first. */
  #columns = 2;
  #position = [0, 0];
  #here = { object: '', name: '' };
  /** What the next position line belongs to: a jump, a call, or nothing of the kind. */
  #pending = null;
  #calledObject = null;
  #headed = false;

  /** @param {string} object */
  constructor(object) {
    this.#object = object;
    /** @type {Profile} */
    this.profile = { executions: new Map(), transfers: new Map(), functions: new Map() };
  }

  /** @param {string} line */
  line(line) {
    if (line === '' || line.startsWith('#')) return;
    const first = line.charCodeAt(0);
    // Positions begin with a digit, `+`, `-` or `*`; everything else with a letter.
    if (first < 58) this.#cost(line);
    else if (/^[a-z]+=/.test(line)) this.#assignment(line);
    else this.#header(line);
  }

  #header(line) {
    const [key, value] = line.split(/: ?/, 2);
    if (value === undefined) throw new Error(`callgrind's line is not understood: ${line}`);
    if (key === 'positions') {
      const columns = value.trim().split(' ');
      if (columns[0] !== 'instr') throw new Error('callgrind ran without --dump-instr=yes');
      this.#columns = columns.length;
      this.#position = columns.map(() => 0);
      this.#headed = true;
    } else if (key === 'events' && value.trim().split(' ')[0] !== 'Ir') throw new Error(`the first event is not Ir: ${line}`);
  }

  #assignment(line) {
    const at = line.indexOf('=');
    const [key, value] = [line.slice(0, at), line.slice(at + 1)];
    switch (key) {
      case 'ob':
        this.#here.object = this.#name('ob', value);
        break;
      case 'cob':
        this.#calledObject = this.#name('ob', value);
        break;
      case 'fn':
        this.#here.name = this.#name('fn', value);
        break;
      case 'cfn':
      case 'jfn':
        this.#name('fn', value);
        break;
      case 'fl': case 'fi': case 'fe': case 'cfi': case 'cfl': case 'jfi':
        break;
      case 'calls': {
        const [count, ...position] = value.split(' ');
        this.#expect(Number(count), position, this.#calledObject ?? this.#here.object, 'call');
        this.#calledObject = null;
        break;
      }
      case 'jump':
      case 'jcnd': {
        // jcnd=taken/executed target: what was executed the cost line says as well.
        const [count, ...position] = value.split(' ');
        this.#expect(Number(count.split('/')[0]), position, this.#here.object, key);
        break;
      }
      default:
        throw new Error(`callgrind's line is not understood: ${line}`);
    }
  }

  #expect(count, position, object, kind) {
    if (!Number.isFinite(count)) throw new Error(`callgrind's count is not understood: ${count}`);
    const [to] = this.#parse(position);
    this.#pending = { count, to, object, kind };
  }

  /** `(id) name` defines, `(id)` refers, anything else is a name itself. Files and functions have numbers of their own. */
  #name(space, value) {
    const match = value.match(/^\((\d+)\)(?: (.*))?$/);
    if (!match) return value;
    const key = `${space} ${match[1]}`;
    if (match[2] !== undefined) this.#names.set(key, match[2]);
    const name = this.#names.get(key);
    if (name === undefined) throw new Error(`callgrind refers to ${value}, which it has not named`);
    return name;
  }

  /** Each column absolute, or relative to the last position line, or `*`: the same. */
  #parse(fields) {
    return this.#position.map((last, column) => {
      const field = fields[column];
      if (field === '*') return last;
      const value = Number(field[0] === '+' || field[0] === '-' ? field.slice(1) : field);
      if (!Number.isSafeInteger(value)) throw new Error(`callgrind's position is not understood: ${fields.join(' ')}`);
      return field[0] === '+' ? last + value : field[0] === '-' ? last - value : value;
    });
  }

  #cost(line) {
    if (!this.#headed) throw new Error('callgrind ran without --dump-instr=yes');
    const fields = line.split(' ');
    this.#position = this.#parse(fields);
    const [address] = this.#position;
    const pending = this.#pending;
    this.#pending = null;
    if (this.#here.object !== this.#object) return;
    if (pending) {
      // A call's own line carries what the callee cost, which is not ours; nor are jumps to other objects.
      if (pending.object === this.#object) this.#transfer(address, pending);
      return;
    }
    const { executions, functions } = this.profile;
    executions.set(address, (executions.get(address) ?? 0) + Number(fields[this.#columns] ?? 0));
    functions.set(this.#here.name, Math.min(functions.get(this.#here.name) ?? Infinity, address));
  }

  #transfer(from, { to, count }) {
    const { transfers } = this.profile;
    if (!transfers.has(from)) transfers.set(from, new Map());
    const ways = transfers.get(from);
    ways.set(to, (ways.get(to) ?? 0) + count);
  }
}

/** Reads a whole dump. @param {string} text @param {string} object @returns {Profile} */
export function readCallgrind(text, object) {
  const reader = new CallgrindReader(object);
  for (const line of text.split('\n')) reader.line(line);
  return reader.profile;
}
