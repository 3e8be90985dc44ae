// Tests that one build serves dwell and the binding: once dwell is built, building the binding compiles nothing.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { building } from './cargo.mjs';
import { top } from './step.mjs';

const run = (program, words) => spawnSync(program, words, { cwd: top, encoding: 'utf8' });

test('the binding is built with dwell', () => {
  const built = run('cargo', building());
  assert.equal(built.status, 0, built.stderr);
  const again = run('npm', ['run', '-s', 'build', '-w', '@dwell/core']);
  assert.equal(again.status, 0, again.stderr);
  assert.match(again.stderr, /Finished/);
  assert.doesNotMatch(again.stderr, /Compiling/, 'the binding compiles again what dwell has compiled: scripts/cargo.mjs');
});
