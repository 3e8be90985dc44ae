/**
 * Files' URIs ↔ paths as the core's answers spell them. A file's name may hold bytes that are no UTF-8: in a path each is U+FFFD
 * and two uppercase hexadecimal digits (`core/profile/src/path_text.rs`), in a URI it is percent-encoded as any other. Pure.
 */
import { fileURLToPath, pathToFileURL } from 'node:url';

const mark = '%EF%BF%BD';

export function uriOf(path: string): string {
  return pathToFileURL(path).href.replace(/%EF%BF%BD([89A-F][0-9A-F])/g, '%$1');
}

/** Undefined: the URI is of no file. */
export function pathOf(uri: string): string | undefined {
  try {
    return fileURLToPath(uri.replace(/(?:%[0-9a-f]{2})+/gi, spelledOut));
  } catch {
    return undefined;
  }
}

/** A run of percent-encoded bytes with those spelled out that are no UTF-8, and those of a U+FFFD. */
function spelledOut(run: string): string {
  const bytes = Buffer.from(run.replaceAll('%', ''), 'hex');
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const length = characterLength(bytes, at);
    const digits = bytes.toString('hex', at, at + Math.max(length, 1)).toUpperCase();
    text += length === 0 ? mark + digits : digits.replace(/../g, '%$&');
    at += Math.max(length, 1);
  }
  return text;
}

/** How many bytes the character at a place has; 0 where there is none, or a U+FFFD. */
function characterLength(bytes: Buffer, at: number): number {
  const first = bytes[at] ?? 0;
  const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  try {
    const character = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes.subarray(at, at + length));
    return character === '\uFFFD' ? 0 : length;
  } catch {
    return 0;
  }
}
