/**
 * Keys of the core's answers, which are those of the command line's JSON (`cpi_min`), as those of the protocol (`cpiMin`). Pure.
 */

type CamelKey<K> = K extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelKey<Tail> & string>}` : K;

/** An object of the core as the protocol spells its keys. `schema`, the version of the command line's JSON, is no part of it. */
export type Camel<T> = { [K in keyof T as K extends 'schema' ? never : CamelKey<K>]: T[K] };

/** Keys seen so far, since an answer has few of them many times over. */
const spelled = new Map<string, string>();

/** Spells the keys of one object. Objects within it stay as they are: their keys may be names of events. */
export function camel<T extends object>(part: T): Camel<T> {
  const result: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(part) as [string, unknown][]) {
    if (key !== 'schema') result[spell(key)] = value;
  }
  return result as Camel<T>;
}

function spell(key: string): string {
  let known = spelled.get(key);
  if (known === undefined) {
    known = key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
    spelled.set(key, known);
  }
  return known;
}
