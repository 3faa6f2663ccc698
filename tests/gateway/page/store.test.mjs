// The state of the page: merge patches, samples, the pauses between attempts to connect.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { pauseBefore } from '../../../gateway/page/assets/live.js';
import { Store, mergePatch, withSample } from '../../../gateway/page/assets/store.js';

// The merge patch between two states without null.
function difference(before, after) {
  const isObject = (value) => typeof value === 'object' && !Array.isArray(value);
  if (before === undefined || !isObject(before) || !isObject(after)) return after;
  const changed = Object.entries(after).filter(([key, value]) => JSON.stringify(before[key]) !== JSON.stringify(value));
  const removed = Object.keys(before).filter((key) => !(key in after));
  return Object.fromEntries([...changed.map(([key, value]) => [key, difference(before[key], value)]), ...removed.map((key) => [key, null])]);
}

// The states that can be made of three names, nested twice: small enough to try each pair.
function* states(depth) {
  yield* [1, 'a', [1, {}]];
  if (depth === 0) return;
  const inner = [undefined, ...states(depth - 1)];
  for (const a of inner) for (const b of inner) yield JSON.parse(JSON.stringify({ a, b }));
}

test('a patch leads from any state to any other', () => {
  const all = [...states(2)].filter((state, index) => index % 3 === 0 && typeof state === 'object' && !Array.isArray(state));
  assert.ok(all.length > 50);
  for (const before of all) for (const after of all) assert.deepEqual(mergePatch(before, difference(before, after)), after);
});

test('what a patch does not touch is the same object', () => {
  const state = { models: { a: { state: 'ready' }, b: { state: 'ready' } }, requests: {} };
  const next = mergePatch(state, { models: { b: { state: 'loading' } } });
  assert.equal(next.models.a, state.models.a);
  assert.equal(next.requests, state.requests);
  assert.equal(next.models.b.state, 'loading');
  assert.equal(state.models.b.state, 'ready');
});

test('a key named __proto__ changes nothing else', () => {
  mergePatch({}, JSON.parse('{"__proto__": {"polluted": true}}'));
  assert.equal({}.polluted, undefined);
});

test('the samples of an hour are bounded and in order', () => {
  const samples = [0, 1, 2, 3, 4].map((at) => ({ at }));
  assert.deepEqual(withSample(samples, { at: 9 }, 3).map((each) => each.at), [3, 4, 9]);
  assert.deepEqual(withSample(samples, { at: 4, again: true }, 9).at(-1), { at: 4, again: true });
  assert.equal(withSample(samples, { at: 4 }, 9).length, 5);
});

test('a lost connection is announced once, and its return once', () => {
  const store = new Store();
  const said = [];
  store.onConnectionChange = (text) => said.push(text);
  store.receive('overview', { time: 1 });
  for (const retryAt of [1, 2, 3]) {
    store.setConnection('lost', 'the server cannot be reached', retryAt);
    store.setConnection('connecting', 'the server cannot be reached');
  }
  store.receive('overview', { time: 9 });
  store.receive('patch', { time: 10 });
  assert.deepEqual(said, ['The connection to the server is lost.', 'Connected to the server again.']);
});

test('pauses double up to a limit, and vary', () => {
  assert.deepEqual([0, 1, 2, 9, 1000].map((attempt) => pauseBefore(attempt, 0.5)), [500, 1000, 2000, 15000, 15000]);
  assert.deepEqual([0, 1].map((random) => pauseBefore(0, random)), [375, 625]);
});
