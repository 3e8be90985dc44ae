/** Files' URIs and paths, names that are no UTF-8 among them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pathOf, uriOf } from '../src/fileUri';

const pairs: [uri: string, path: string][] = [
  ['file:///home/me/a.c', '/home/me/a.c'],
  ['file:///home/me/a%20b%23.c', '/home/me/a b#.c'],
  ['file:///tmp/pr%C3%B6g.c', '/tmp/pr\u00F6g.c'],
  ['file:///tmp/pr%E9g.c', '/tmp/pr\uFFFDE9g.c'],
  ['file:///tmp/%FF%C3/%C3%B6%E9.c', '/tmp/\uFFFDFF\uFFFDC3/\u00F6\uFFFDE9.c'],
  ['file:///tmp/a%EF%BF%BDb.c', '/tmp/a\uFFFDEF\uFFFDBF\uFFFDBDb.c'],
];

test('URIs and paths are converted into each other', () => {
  for (const [uri, path] of pairs) {
    assert.equal(pathOf(uri), path);
    assert.equal(uriOf(path), uri);
  }
});

test('a URI that is not a file has no path', () => {
  for (const uri of ['untitled:a', 'http://host/a.c', 'file:///a%2Fb', 'no URI', 'file:///%']) assert.equal(pathOf(uri), undefined, uri);
});
