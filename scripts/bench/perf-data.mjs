// What a file of perf's holds, counted by its records' headers: perf itself orders and resolves all of it first, which for a
// minute at 20,000 Hz takes longer than recording it did. Enters: perf.data, uncompressed. Leaves: samples, and losses as told.

import { closeSync, openSync, readSync } from 'node:fs';

/** linux/perf_event.h, and struct perf_file_header in tools/perf/util/header.h. */
const [LOST, SAMPLE, LOST_SAMPLES] = [2, 9, 13];
const [MAGIC, DATA_AT, DATA_BYTES_AT, HEADER_BYTES] = ['PERFILE2', 40, 48, 104];
const RECORD_HEADER_BYTES = 8;
const CHUNK_BYTES = 1 << 20;

/** Where the records lie in the file. */
function dataOf(file) {
  const header = Buffer.alloc(HEADER_BYTES);
  readSync(file, header, 0, HEADER_BYTES, 0);
  if (header.toString('latin1', 0, MAGIC.length) !== MAGIC) throw new Error('no file of perf’s');
  const [start, bytes] = [DATA_AT, DATA_BYTES_AT].map((at) => Number(header.readBigUInt64LE(at)));
  return { start, end: start + bytes };
}

/** Samples, and samples that its records say are missing. */
export function countPerfData(path) {
  const file = openSync(path);
  const counted = { samples: 0, lost: 0 };
  try {
    const { start, end } = dataOf(file);
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let [at, first, known] = [start, start, 0];
    while (at + RECORD_HEADER_BYTES <= end) {
      // A record is no longer than 64 KiB.
      if (at + (1 << 16) > first + known && first + known < end) {
        [first, known] = [at, readSync(file, chunk, 0, CHUNK_BYTES, at)];
      }
      const [type, bytes] = [chunk.readUInt32LE(at - first), chunk.readUInt16LE(at - first + 6)];
      if (bytes < RECORD_HEADER_BYTES) break; // Cut off while it was written.
      if (type === SAMPLE) counted.samples++;
      if (type === LOST) counted.lost += Number(chunk.readBigUInt64LE(at - first + 16)); // behind the event's id
      if (type === LOST_SAMPLES) counted.lost += Number(chunk.readBigUInt64LE(at - first + 8));
      at += bytes;
    }
  } finally {
    closeSync(file);
  }
  return counted;
}
