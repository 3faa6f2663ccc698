// Server-sent events from pieces of any size.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { EventParser } from '../../../gateway/page/assets/events.js';

const text = 'event: overview\ndata: {"a": 1}\n\n: nothing\n\ndata: one\ndata: two\n\nevent: patch\ndata: {"unfini';
const expected = [{ event: 'overview', data: '{"a": 1}' }, { event: 'message', data: 'one\ntwo' }];

for (const [name, whole] of [['LF', text], ['CRLF', text.replaceAll('\n', '\r\n')]]) {
  for (const size of [1, 2, 7, 1000]) {
    test(`${name} in pieces of ${size}`, () => {
      const parser = new EventParser();
      const pieces = whole.match(new RegExp(`[^]{1,${size}}`, 'g'));
      assert.deepEqual(pieces.flatMap((piece) => parser.push(piece)), expected);
    });
  }
}
