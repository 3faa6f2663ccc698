// The bounded log lines of the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { KEPT, LogBuffer, SHOWN, lineOf } from '../../../gateway/page/assets/log/buffer.js';
import { subprotocols } from '../../../gateway/page/assets/log/stream.js';

const entry = (seq, event = 'request', more = {}) => ({
  seq,
  timestamp: '2031-05-01 09:05:07.123',
  severity: 'Warning',
  tag: 'Gateway',
  line: `2031-05-01 09:05:07.123 [Warning] (Gateway) ${event} number=${seq}`,
  ...more,
});
const entries = (from, to) => Array.from({ length: to - from }, (_, index) => entry(from + index));

test('a line without what its other fields say', () => {
  assert.deepEqual(lineOf(entry(7)), { seq: 7, at: '2031-05-01 09:05:07.123', level: 'warning', process: 'gateway', text: 'request number=7' });
});

test('lines wait for a drawing once', () => {
  const buffer = new LogBuffer();
  buffer.add(entries(0, 3));
  assert.equal(buffer.waiting, 3);
  assert.deepEqual(buffer.take().map((line) => line.seq), [0, 1, 2]);
  assert.deepEqual(buffer.take(), []);
});

test('however many arrive before a drawing, the last are drawn', () => {
  const buffer = new LogBuffer();
  for (let from = 0; from < 100_000; from += 500) buffer.add(entries(from, from + 500));
  assert.equal(buffer.waiting, SHOWN);
  assert.ok(buffer.kept >= KEPT && buffer.kept <= 2 * KEPT, `${buffer.kept} lines are kept`);
  const drawn = buffer.take();
  assert.equal(drawn.length, SHOWN);
  assert.equal(drawn.at(-1).seq, 99_999);
  assert.ok(buffer.filter('request').length === SHOWN);
  assert.equal(buffer.filter(`number=${99_999 - KEPT + 1}`).length, 1);
  assert.equal(buffer.filter(`number=${99_999 - KEPT}`).length, 0);
});

test('a filter applies to lines that are kept and to those that come', () => {
  const buffer = new LogBuffer();
  buffer.add([entry(1, 'model ready'), entry(2, 'request')]);
  assert.deepEqual(buffer.filter('READY gateway').map((line) => line.seq), [1]);
  buffer.add([entry(3, 'request'), entry(4, 'ready')]);
  assert.deepEqual(buffer.take().map((line) => line.seq), [4]);
  assert.deepEqual(buffer.filter('').map((line) => line.seq), [1, 2, 3, 4]);
});

test('lines that were dropped are counted', () => {
  const buffer = new LogBuffer();
  buffer.add([entry(1), entry(9, 'request', { dropped: 7 })]);
  assert.equal(buffer.dropped, 7);
  buffer.clear();
  assert.deepEqual([buffer.dropped, buffer.waiting, buffer.filter('').length], [0, 0, 0]);
});

test('a key travels as a subprotocol', () => {
  assert.deepEqual(subprotocols(''), ['lemonbus']);
  const [, bearer] = subprotocols('ü?>key');
  assert.match(bearer, /^bearer\.[A-Za-z0-9_-]+$/);
  assert.equal(Buffer.from(bearer.slice(7), 'base64url').toString(), 'ü?>key');
});
