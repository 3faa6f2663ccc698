// Sums of usage, and the months that can be chosen.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { lastMonths, sumsBy } from '../../../gateway/page/assets/usage/sums.js';

const row = (key, model, number) => ({
  ...{ key, model, requests: number, errors: 1, refusals: 0, cancelled: 0 },
  ...{ prompt_tokens: 10 * number, cached_tokens: 0, output_tokens: number, engine_seconds: number / 2 },
});

test('sums by a field, the largest first', () => {
  const rows = [row('a', 'x', 1), row('b', 'x', 5), row('a', 'y', 2)];
  const sums = sumsBy(rows, 'key');
  assert.deepEqual(sums.map(([key, { requests, errors, prompt_tokens: read }]) => [key, requests, errors, read]), [['b', 5, 1, 50], ['a', 3, 2, 30]]);
  assert.deepEqual(sumsBy(rows, 'model').map(([model, { engine_seconds: time }]) => [model, time]), [['x', 3], ['y', 1]]);
});

test('months go on over a new year', () => {
  assert.deepEqual(lastMonths('2031-02', 4), ['2031-02', '2031-01', '2030-12', '2030-11']);
});
