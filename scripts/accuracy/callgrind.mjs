// Parses callgrind's output: how often each instruction of a program was executed, and how often control went from one to
// another.
//
// Enters: the text that `callgrind --dump-instr=yes --collect-jumps=yes --skip-plt=no` writes, line by line (format: callgrind's
// manual, "Callgrind Format Specification"). Its addresses are those of each object's own headers, except in objects that it
// calls `???`. Leaves: plain maps by address. Never here: files, programs. Cost: O(lines).

/**
 * @typedef {{ executions: Map<number, number>, transfers: Map<number, Map<number, number>> }} Profile
 * executions: by instruction; transfers: from → to → count, taken jumps and calls that stay in the program
 */

/** Adds up one dump line by line. Throws on a line that it does not understand. */
class Reader {
  #profileOf;
  #names = new Map();
  /** Number of columns of a position; the first one is the instruction's address. */
  #columns = 2;
  #position = [0, 0];
  #object = '';
  /** What the next position line belongs to: a jump, a call, or neither. */
  #pending = null;
  #calledObject = null;
  #headed = false;

  constructor(profileOf) {
    this.#profileOf = profileOf;
  }

  /** @param {string} line */
  line(line) {
    if (line === '' || line.startsWith('#')) return;
    const first = line.charCodeAt(0);
    // Positions begin with a digit, `+`, `-` or `*`; all other lines begin with a letter.
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
        this.#object = this.#name(value);
        break;
      case 'cob':
        this.#calledObject = this.#name(value);
        break;
      case 'fn': case 'cfn': case 'jfn': case 'fl': case 'fi': case 'fe': case 'cfi': case 'cfl': case 'jfi':
        break;
      case 'calls': {
        const [count, ...position] = value.split(' ');
        this.#expect(Number(count), position, this.#calledObject ?? this.#object, 'call');
        this.#calledObject = null;
        break;
      }
      case 'jump':
      case 'jcnd': {
        // jcnd=taken/executed target: the cost line also contains the number of executions.
        const [count, ...position] = value.split(' ');
        this.#expect(Number(count.split('/')[0]), position, this.#object, key);
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

  /** An object: `(id) name` defines it, `(id)` refers to it, and anything else is the name itself. */
  #name(value) {
    const match = value.match(/^\((\d+)\)(?: (.*))?$/);
    if (!match) return value;
    if (match[2] !== undefined) this.#names.set(match[1], match[2]);
    const name = this.#names.get(match[1]);
    if (name === undefined) throw new Error(`callgrind refers to ${value}, which it has not named`);
    return name;
  }

  /** Each column is absolute, relative to the last position line, or `*` for the same value. */
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
    const profile = this.#profileOf(this.#object, address);
    if (!profile) return;
    if (pending) {
      // The line of a call contains the cost of the callee, which is not ours. Calls of other objects are not ours
      // either.
      if (this.#profileOf(pending.object, pending.to) === profile) this.#transfer(profile, address, pending);
      return;
    }
    const { executions } = profile;
    executions.set(address, (executions.get(address) ?? 0) + Number(fields[this.#columns] ?? 0));
  }

  #transfer({ transfers }, from, { to, count }) {
    if (!transfers.has(from)) transfers.set(from, new Map());
    const ways = transfers.get(from);
    ways.set(to, (ways.get(to) ?? 0) + count);
  }
}

/**
 * Reads a whole dump.
 * @param {string} text
 * @param {(object: string, address: number) => boolean} belongs whether code of that object (its path) at that address is the program's
 * @returns {Profile}
 */
export function readCallgrind(text, belongs) {
  const profile = { executions: new Map(), transfers: new Map() };
  const reader = new Reader((object, address) => (belongs(object, address) ? profile : null));
  for (const line of text.split('\n')) reader.line(line);
  return profile;
}

/**
 * Reads a whole dump, each object apart; what belongs to no object is left out.
 * @param {Iterable<string>} lines
 * @returns {Map<string, Profile>} by the object's path
 */
export function readObjects(lines) {
  const objects = new Map();
  const reader = new Reader((object) => {
    if (!object.startsWith('/')) return null;
    if (!objects.has(object)) objects.set(object, { executions: new Map(), transfers: new Map() });
    return objects.get(object);
  });
  for (const line of lines) reader.line(line);
  return objects;
}
