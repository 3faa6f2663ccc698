// What the overview says of models in words, and the arithmetic of its plots.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ordered } from '../../../gateway/page/assets/overview/cards.js';
import { diagnose, news, recentDeaths, troubles, unloading, waitingKeys } from '../../../gateway/page/assets/overview/diagnosis.js';
import { freeMemory, missing, stateOf } from '../../../gateway/page/assets/overview/nodes.js';
import { readyReplicas } from '../../../gateway/page/assets/overview/replicas.js';
import { extremes, pathOf, roundMax } from '../../../gateway/page/assets/overview/scale.js';

const now = 1_800_000_000;
const ready = { state: 'ready', type: 'llm', slots: 4, tokens_per_second: 40, first_token_p50: 0.3 };
const texts = (model) => diagnose(model, now).causes.map((cause) => cause.text);

test('a model without trouble has no cause', () => {
  assert.deepEqual(diagnose(ready, now), { now, rank: 7, tone: 'good', label: 'Ready', causes: [] });
  assert.equal(diagnose({ ...ready, running: 1 }, now).rank, 6);
  assert.equal(diagnose({ state: 'absent', pinned: true }, now).rank, 8);
});

test('requests wait for a slot', () => {
  const queue = [{ key: 'a', requests: 5, wait_s: 11.2 }, { key: 'b', requests: 2, wait_s: 3 }];
  assert.deepEqual(texts({ ...ready, running: 4, waiting: 7, queue }), ['7 requests wait for a slot. All 4 slots are taken. The next one gets a slot in about 3 s.']);
  assert.deepEqual(texts({ ...ready, slots: 1, running: 1, waiting: 1 }), ['1 request waits for a slot. The only slot is taken.']);
  assert.deepEqual(texts({ ...ready, queue_wait_p50: 8.2 }), ['Requests waited 8.2 s for a slot (median of the last requests).']);
});

test('requests wait for a load', () => {
  const load = { stage: 'loading', asked_at: now - 34, done: 42, total: 100 };
  assert.deepEqual(texts({ state: 'loading', load, waiting: 3 }), ['3 requests wait for its load: the engine loads the weights (42 %), for 34 s.']);
  assert.deepEqual(texts({ state: 'checked', load: { stage: 'waiting for memory', asked_at: now - 3 } }), ['Loading: waits for memory: other models must be unloaded first, for 3 s.']);
  const lost = { stage: 'waiting for node', node: 'gpu1', done: 12, total: 30, asked_at: now - 3 };
  assert.deepEqual(texts({ state: 'queued', load: lost, waiting: 2 }), ['2 requests wait for its load: waits for gpu1, which was lost 12 s ago, for 3 s.']);
  assert.deepEqual(texts({ state: 'queued', load: { stage: 'a stage of tomorrow', asked_at: now } }), ['Loading: a stage of tomorrow, for 0 s.']);
});

test('a slow engine', () => {
  assert.deepEqual(texts({ ...ready, device: 'cpu', tokens_per_second: 1.8, first_token_p50: 9.4 }), ['The engine is slow: the first token comes after 9.4 s, 1.8 tokens/s; it runs on the CPU.']);
  assert.deepEqual(texts({ ...ready, type: 'embedding', tokens_per_second: 1 }), []);
});

test('why a model is not loaded, and when it is tried again', () => {
  const failure = { code: 'out_of_memory', message: 'it needs 3 GiB', failures: 3, retry_at: now + 46.5 };
  assert.deepEqual(texts({ state: 'backing_off', failure }), ['Not loaded: it needs 3 GiB. It has failed 3 times. It is tried again in 47 s.']);
  assert.deepEqual(texts({ state: 'absent', waiting: 2, failure: { message: 'no file.', failures: 1 } }), ['Not loaded: no file. The next request tries again. 2 requests wait.']);
  assert.deepEqual(texts({ state: 'absent', waiting: 1, failure: { message: 'no file.', failures: 1 } }), ['Not loaded: no file. The next request tries again. 1 request waits.']);
  assert.equal(diagnose({ state: 'absent', failure }, now).label, 'Failed');
});

test('what is said of machines', () => {
  assert.equal(stateOf({ state: 'ready' }), 'Ready');
  assert.equal(stateOf({ state: 'lost' }), 'Lost: it is not reachable; the others serve without it');
  assert.equal(
    stateOf({ state: 'drained', reason: 'its agent was told to end' }),
    'Drained: it gets no new models, because its agent was told to end',
  );
  assert.equal(stateOf({ state: 'a state of tomorrow' }), 'a state of tomorrow');
  const card = { total: 24 * 2 ** 30, free: 2 * 2 ** 30, name: 'Card' };
  assert.equal(freeMemory({ memory: { host: { total: 9, free: 2 ** 33 }, 'GPU-1': card } }), 'host 8 GiB, Card 2 GiB');
  assert.equal(freeMemory({}), '–');
  const [ready, lost] = [{ state: 'ready' }, { state: 'lost' }];
  assert.deepEqual([{ a: ready }, { a: ready, b: lost }, { a: lost, b: { state: 'unreachable' } }].map(missing), ['', '1 of 2 machines is missing', '2 of 2 machines are missing']);
});

test('deaths of the last day', () => {
  const death = (ago, reason) => ({ at: now - ago, code: 'backend_died', reason });
  const old = { state: 'ready', deaths: { count: 1, last: [death(86401, 'long ago')] } };
  const fresh = { state: 'ready', deaths: { count: 1, last: [death(10, 'signal 9')] } };
  const often = { state: 'absent', deaths: { count: 7, last: [death(7200, 'signal 11'), death(9000, 'signal 11'), death(90000, 'x')] } };
  assert.deepEqual(texts(old), []);
  assert.equal(diagnose(fresh, now).rank, 1);
  assert.match(texts(fresh)[0], /^Its engine died once, at .*: signal 9\.$/);
  assert.match(texts(often)[0], /^Its engine died 7 times since the server started, last at /);
  assert.deepEqual(recentDeaths({ old, often, fresh }, now).map(({ name, times }) => [name, times]), [['fresh', 1], ['often', 2]]);
});

test('the worst comes first, and a death alone is not slowness', () => {
  const models = {
    b: { ...ready, waiting: 1 },
    a: { state: 'backing_off', failure: { message: 'm', failures: 1 } },
    c: { ...ready, deaths: { count: 1, last: [{ at: now - 5, reason: 'r' }] } },
    d: ready,
  };
  assert.deepEqual(troubles(models, now).map((each) => each.name), ['a', 'b']);
  assert.deepEqual(ordered(models, now, [], false), ['a', 'c', 'b', 'd']);
});

test('cards stay where they are while the pointer is among them', () => {
  const models = { a: ready, b: { ...ready, waiting: 1 }, new: ready };
  assert.deepEqual(ordered(models, now, ['a', 'gone', 'b'], true), ['a', 'b', 'new']);
  assert.deepEqual(ordered(models, now, ['a', 'gone', 'b'], false), ['b', 'a', 'new']);
});

test('who waits, over all models', () => {
  const models = { m: { queue: [{ key: 'a', requests: 1 }, { key: '', requests: 4 }] }, n: { queue: [{ key: 'a', requests: 2 }] }, o: {} };
  assert.deepEqual(waitingKeys(models), [{ key: '', requests: 4, models: ['m'] }, { key: 'a', requests: 3, models: ['m', 'n'] }]);
});

test('when an idle model is unloaded', () => {
  const idle = { ...ready, last_use: now - 60 };
  assert.equal(unloading({ ...idle, expires_at: now + 240 }, now), 'Idle for 1 min, unloaded in 4 min');
  assert.equal(unloading({ ...idle, expires_at: now - 1 }, now), 'Idle for 1 min, about to be unloaded');
  assert.equal(unloading({ ...idle, pinned: true }, now), 'Idle for 1 min, pinned');
  assert.equal(unloading({ ...idle, running: 1 }, now), 'In use');
  assert.equal(unloading({ state: 'absent' }, now), '');
});

test('a new death and a new failure are said once', () => {
  const died = { deaths: { count: 1, last: [{ at: now, reason: 'signal 9' }] } };
  const failed = { failure: { message: 'no memory', failures: 2 } };
  assert.deepEqual(news({ a: ready }, { a: died, b: failed }), ['The engine of a died: signal 9.', 'b is not loaded: no memory.']);
  assert.deepEqual(news({ a: died, b: failed }, { a: { ...died, running: 1 }, b: failed }), []);
  assert.deepEqual(news({ b: failed }, { b: ready }), []);
});

test('a scale ends at a round number', () => {
  assert.deepEqual([0, 0.3, 1, 1.01, 7, 26, 499].map((value) => roundMax(value)), [1, 0.5, 1, 2, 10, 50, 500]);
  assert.equal(roundMax(40 * 2 ** 30, true), 64 * 2 ** 30);
});

test('a line has gaps where there was no value or no sample', () => {
  const x = (at) => at;
  const path = pathOf([[0, 1], [10, 2], [20, undefined], [30, 4], [100, 5]], x, x, 25);
  assert.equal(path, 'M0.0 1.0h0.01L10.0 2.0M30.0 4.0h0.01M100.0 5.0');
});

test('the latest and the largest value', () => {
  assert.deepEqual(extremes([[0, 1], [1, 9], [2, 3]]), { latest: 3, max: 9 });
  assert.deepEqual(extremes([[0, undefined]]), { latest: undefined, max: undefined });
});

test('the replicas of a model that are ready, and where', () => {
  assert.equal(readyReplicas({}), '');
  assert.equal(readyReplicas({ replicas: [{ state: 'ready' }, { state: 'loading' }] }), '1 of 2 ready');
  const replicas = [{ state: 'ready', node: 'head' }, { state: 'loading', node: 'head' }, { state: 'ready', node: 'gpu2' }, { state: 'queued' }];
  assert.equal(readyReplicas({ replicas }), '2 of 4 ready: head 1 of 2, gpu2 1 of 1, 1 not placed yet');
});
