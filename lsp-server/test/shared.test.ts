/** Answers that several wait for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CancellationToken, CancellationTokenSource } from 'vscode-languageserver';
import { Cancelled, SharedAnswers } from '../src/shared';
import { FakeCancel } from './fake';

test('a request that was cancelled before it starts computes nothing and gets no cached answer', async () => {
  const answers = new SharedAnswers<number>(4, () => new FakeCancel());
  let asked = 0;
  const ask = (): Promise<number> => Promise.resolve(++asked);
  await assert.rejects(answers.get('key', CancellationToken.Cancelled, ask), Cancelled);
  assert.equal(asked, 0);
  assert.equal(await answers.get('key', new CancellationTokenSource().token, ask), 1);
  await assert.rejects(answers.get('key', CancellationToken.Cancelled, ask), Cancelled);
  assert.equal(await answers.get('key', undefined, ask), 1);
});
