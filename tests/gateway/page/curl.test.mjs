// How requests are written as curl lines. test_curl_lines.py runs such lines in a shell.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { curlLine, quoted } from '../../../gateway/page/assets/curl.js';

const base = 'http://127.0.0.1:13305/';
const picture = `data:image/png;base64,${'A'.repeat(400)}`;

test('a GET', () => {
  assert.equal(curlLine('GET', '/v1/models?show_all=true', null, { base }), `curl \\\n  '${base}v1/models?show_all=true'`);
});

test('a POST with a key names the variable, never the key', () => {
  const line = curlLine('POST', '/v1/load', { model_name: "it's" }, { base, key: true });
  assert.equal(
    line,
    [
      'curl',
      `${base}v1/load`,
      '-H "Authorization: Bearer $LEMONBUS_API_KEY"',
      "-H 'Content-Type: application/json'",
      `-d '{"model_name":"it'\\''s"}'`,
    ].join(' \\\n  '),
  );
});

test('another method, with and without a body', () => {
  assert.match(curlLine('DELETE', '/internal/requests/a:1', null, { base }), /^curl \\\n {2}-X DELETE \\\n/);
  assert.match(curlLine('POST', '/v1/unload', null, { base }), /-X POST/);
  assert.doesNotMatch(curlLine('POST', '/v1/unload', {}, { base }), /-X/);
});

test('a long data URL becomes a file, a short one stays', () => {
  const line = curlLine('POST', '/v1/x', { url: picture, short: 'data:image/png;base64,AA==' }, { base });
  assert.match(line, /^\{ printf %s '\{"url":"data:image\/png;base64,'; base64 < file-1\.png \| tr -d '\\n'; printf %s /);
  assert.match(line, /"short":"data:image\/png;base64,AA=="/);
  assert.match(line, /--data-binary @-$/);
  assert.doesNotMatch(line, /AAAAA/);
});

test('a server below a prefix of a proxy', () => {
  assert.match(curlLine('GET', '/v1/models', null, { base: 'https://h/ai/' }), /https:\/\/h\/ai\/v1\/models$/);
});

test('a file keeps its name, quoted', () => {
  const line = curlLine('POST', '/v1/x', [picture], { base, files: [{ name: "-my cat's.png", url: picture }] });
  assert.match(line, /base64 < '\.\/-my cat'\\''s\.png' \| tr/);
});

test('a form: texts are never taken for files', () => {
  const form = [['file', { file: 'a;b,"c.wav' }], ['prompt', '@/etc/passwd'], ['model', 'tiny']];
  const line = curlLine('POST', '/v1/audio/transcriptions', null, { base, form });
  assert.match(line, /-F 'file=@"a;b,\\"c\.wav"'/);
  assert.match(line, /--form-string prompt=@\/etc\/passwd/);
  assert.doesNotMatch(line, /Content-Type/);
});

test('a large body goes by a pipe, because an argument has a limit', () => {
  const line = curlLine('POST', '/v1/x', { text: 'ü'.repeat(70_000) }, { base });
  assert.match(line, /^\{ printf %s '\{"text":"ü/);
});

test('what a terminal acts upon is escaped', () => {
  const line = curlLine('POST', '/v1/x', { text: '\u001b[2J\u009b\u202e\u2028!' }, { base });
  assert.match(line, /\\u001b\[2J\\u009b\\u202e\\u2028!/);
});

test('empty collections', () => {
  assert.match(curlLine('POST', '/v1/x', { a: [], b: {} }, { base }), /-d '\{"a":\[\],"b":\{\}\}'/);
});

test('fields without a value are left out, as JSON.stringify does', () => {
  assert.match(curlLine('POST', '/v1/x', { a: undefined, b: null, c: [1, false] }, { base }), /-d '\{"b":null,"c":\[1,false\]\}'/);
});

test('answers that are files', () => {
  assert.match(curlLine('POST', '/v1/x', {}, { base, output: 'speech.mp3' }), /-o speech\.mp3$/);
  const line = curlLine('POST', '/v1/x', {}, { base, picture: 'picture.png' });
  assert.match(line, /-o answer\.json --fail-with-body &&\nsed -n .* answer\.json \| base64 -d > picture\.png$/);
});

test('a stream is shown as it comes', () => {
  assert.match(curlLine('POST', '/v1/x', {}, { base, stream: true }), /^curl -N/);
});

test('quoted', () => {
  assert.equal(quoted('plain-1.txt'), 'plain-1.txt');
  assert.equal(quoted(''), "''");
  assert.equal(quoted('$HOME `x`'), "'$HOME `x`'");
  assert.equal(quoted('~/x'), "'~/x'");
});
