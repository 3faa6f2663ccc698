// Numbers, sizes and times as people read them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as format from '../../../gateway/page/assets/format.js';

function check(function_, cases) {
  for (const [given, expected] of cases) assert.equal(function_(...[given].flat()), expected, JSON.stringify(given));
}

test('sizes', () => {
  check(format.bytes, [
    [0, '0 B'], [1023, '1023 B'], [1024, '1 KiB'], [1536, '1.5 KiB'], [20 * 2 ** 30, '20 GiB'], [1048575, '1 MiB'],
    [150.4 * 2 ** 20, '150 MiB'], [-2048, '-2 KiB'], [null, '–'], [NaN, '–'],
  ]);
});

test('lengths of time', () => {
  check(format.duration, [
    [0, '0 s'], [0.00001, '1 ms'], [0.0042, '4 ms'], [0.9996, '1 s'], [1.234, '1.2 s'], [9.96, '10 s'], [59.4, '59 s'], [59.6, '1 min'],
    [75, '1 min 15 s'], [3600, '1 h'], [7500, '2 h 5 min'], [86399, '23 h 59 min'], [200000, '2 d 7 h'], [-3, '0 s'], [undefined, '–'],
  ]);
});

test('ages change seldom', () => {
  check(format.age, [[0.4, '0 s'], [1.9, '1 s'], [119.9, '1 min 59 s'], [239, '3 min'], [3660, '1 h 1 min'], [-1, '0 s'], [undefined, '–']]);
});

test('shares of a whole', () => {
  check(format.percent, [[0, '0 %'], [0.001, '<1 %'], [0.125, '13 %'], [1, '100 %']]);
  check(format.share, [[[1, 4], 0.25], [[5, 4], 1], [[-1, 4], 0], [[1, 0], 0], [[undefined, 4], 0]]);
});

test('numbers', () => {
  check(format.rate, [[0.2, '0.2'], [12.34, '12.3'], [1234.5, '1,235'], [undefined, '–']]);
  check(format.plural, [[[1, 'slot'], '1 slot'], [[0, 'slot'], '0 slots'], [[2, 'query', 'queries'], '2 queries']]);
});

test('moments have their day unless it is today', () => {
  const noon = new Date(2031, 4, 1, 12, 30, 5).getTime() / 1000;
  assert.equal(format.moment(noon, noon + 60), '12:30:05');
  assert.equal(format.moment(noon, noon + 86400), '2031-05-01 12:30:05');
});

test('a device by its name, unless two have the same', () => {
  const places = { host: {}, '0000:01:00.0': { name: 'L4' }, '0000:02:00.0': { name: 'L4' }, '0000:03:00.0': { name: 'A2' } };
  assert.deepEqual(Object.keys(places).map((key) => format.placeName(key, places)), ['host', 'L4 (0000:01:00.0)', 'L4 (0000:02:00.0)', 'A2']);
});
