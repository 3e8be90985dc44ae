// Reads the records of a perf.data file. perf itself sorts and resolves all records first, which takes longer than recording for
// a minute at 20,000 Hz, and it aborts on some build IDs. Enters: perf.data, uncompressed. Leaves: samples, reported losses, and
// the program that each process executed.

import { closeSync, openSync, readSync } from 'node:fs';

/** Types of records (linux/perf_event.h). The layout of the file is in tools/perf/util/header.h (struct perf_file_header). */
const [LOST, COMM, SAMPLE, MMAP2, LOST_SAMPLES] = [2, 3, 9, 10, 13];
const [MAGIC, ATTRIBUTES_AT, DATA_AT, DATA_BYTES_AT, HEADER_BYTES] = ['PERFILE2', 24, 40, 48, 104];
const SAMPLE_TYPE_AT = 24;
/** The sample type with IP, TID, TIME, CPU and PERIOD: the fields that -F and --sample-cpu record for one event. */
const SAMPLE_TYPE = 0x187n;
const COMM_EXEC = 1 << 13;
const PROT_EXEC = 4;
const RECORD_HEADER_BYTES = 8;
const CHUNK_BYTES = 1 << 20;

/** Returns the position of the records in the file. */
function dataOf(file) {
  const header = Buffer.alloc(HEADER_BYTES);
  readSync(file, header, 0, HEADER_BYTES, 0);
  if (header.toString('latin1', 0, MAGIC.length) !== MAGIC) throw new Error('not a perf.data file');
  const [start, bytes] = [DATA_AT, DATA_BYTES_AT].map((at) => Number(header.readBigUInt64LE(at)));
  return { start, end: start + bytes };
}

/** Calls `each` with every record: its type, its misc flags, and its bytes, whose buffer is reused. */
function eachRecord(path, each) {
  const file = openSync(path);
  try {
    const { start, end } = dataOf(file);
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let [at, first, known] = [start, start, 0];
    while (at + RECORD_HEADER_BYTES <= end) {
      // A record has at most 64 KiB.
      if (at + (1 << 16) > first + known && first + known < end) {
        [first, known] = [at, readSync(file, chunk, 0, CHUNK_BYTES, at)];
      }
      const [type, misc, bytes] = [chunk.readUInt32LE(at - first), chunk.readUInt16LE(at - first + 4), chunk.readUInt16LE(at - first + 6)];
      if (bytes < RECORD_HEADER_BYTES) break; // The file was cut off while it was written.
      each(type, misc, chunk.subarray(at - first, at - first + bytes));
      at += bytes;
    }
  } finally {
    closeSync(file);
  }
}

/** Counts samples, and samples that records report as lost. */
export function countPerfData(path) {
  const counted = { samples: 0, lost: 0 };
  eachRecord(path, (type, misc, record) => {
    if (type === SAMPLE) counted.samples++;
    if (type === LOST) counted.lost += Number(record.readBigUInt64LE(16)); // after the event's id
    if (type === LOST_SAMPLES) counted.lost += Number(record.readBigUInt64LE(8));
  });
  return counted;
}

/** Returns samples, executions, and executable mappings of files with their inodes, in order of time. */
export function readPerfData(path) {
  checkSampleType(path);
  const records = [];
  eachRecord(path, (type, misc, record) => {
    const word = (at) => record.readBigUInt64LE(at);
    const pid = () => record.readUInt32LE(type === SAMPLE ? 16 : 8);
    const time = () => word(type === SAMPLE ? 24 : record.length - 16); // Other records end with: thread, time, CPU.
    if (type === SAMPLE) {
      records.push({ kind: 'sample', time: time(), pid: pid(), pc: word(8), cpu: record.readUInt32LE(32) });
    } else if (type === COMM && misc & COMM_EXEC) {
      records.push({ kind: 'exec', time: time(), pid: pid() });
    } else if (type === MMAP2 && record.readUInt32LE(64) & PROT_EXEC && record[72] === '/'.charCodeAt(0)) {
      const device = (record.readUInt32LE(40) << 20) | record.readUInt32LE(44);
      records.push({ kind: 'map', time: time(), pid: pid(), start: word(16), end: word(16) + word(24), inode: word(48), device });
    }
  });
  return records.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
}

function checkSampleType(path) {
  const file = openSync(path);
  try {
    const word = Buffer.alloc(8);
    readSync(file, word, 0, 8, ATTRIBUTES_AT);
    readSync(file, word, 0, 8, Number(word.readBigUInt64LE()) + SAMPLE_TYPE_AT);
    const type = word.readBigUInt64LE();
    if (type !== SAMPLE_TYPE) throw new Error(`${path}: sample type ${type.toString(16)}, not ${SAMPLE_TYPE.toString(16)}`);
  } finally {
    closeSync(file);
  }
}
