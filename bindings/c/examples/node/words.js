// A pool with a map of words, from Node by koffi:
//
//     npm install && node words.js FOLDER
//
// PANDO_LIBRARY names the library, if it is not where the system looks for it.
'use strict';
const assert = require('node:assert');
const path = require('node:path');
const koffi = require('koffi');

const library = koffi.load(process.env.PANDO_LIBRARY ?? 'libpando.so');
koffi.opaque('pando_error');
koffi.opaque('pando_pool');
koffi.opaque('pando_map');
koffi.struct('pando_slice', { data: 'const uint8_t *', len: 'size_t' });
koffi.struct('pando_bytes', { data: 'uint8_t *', len: 'size_t', capacity: 'size_t' });
const message = library.func('const char *pando_error_message(pando_error *error)');
const freeError = library.func('void pando_error_free(pando_error *error)');
const open = library.func(
  'pando_error *pando_pool_open_or_create(const char *path, void *options, _Out_ pando_pool **pool)');
const freePool = library.func('pando_error *pando_pool_free(pando_pool *pool)');
const openMap = library.func(
  'pando_error *pando_pool_map(pando_pool *pool, const char *name, void *options, _Out_ pando_map **map)');
const freeMap = library.func('pando_error *pando_map_free(pando_map *map)');
const put = library.func('pando_error *pando_map_put(pando_map *map, pando_slice key, pando_slice value)');
const get = library.func(
  'pando_error *pando_map_get(pando_map *map, pando_slice key, _Inout_ pando_bytes *value, _Out_ bool *found)');
const freeBytes = library.func('void pando_bytes_free(_Inout_ pando_bytes *bytes)');

// Throws an error of Pando as one of JavaScript.
function check(error) {
  if (error === null) return;
  const text = message(error);
  freeError(error);
  throw new Error(text);
}

function slice(text) {
  const data = Buffer.from(text);
  return { data, len: data.length };
}

function read(map, key) {
  const value = { data: null, len: 0, capacity: 0 };
  const found = [false];
  check(get(map, slice(key), value, found));
  if (!found[0]) return undefined;
  const bytes = Buffer.from(koffi.decode(value.data, koffi.array('uint8_t', Number(value.len))));
  freeBytes(value);
  return bytes;
}

if (process.argv.length !== 3) {
  console.error('usage: node words.js FOLDER');
  process.exit(2);
}
const place = [null];
check(open(path.join(process.argv[2], 'words.node.pando'), null, place));
const pool = place[0];
check(openMap(pool, 'words', null, place));
const words = place[0];
check(put(words, slice('aspen'), slice('one organism, many trees')));
console.log(`aspen: ${read(words, 'aspen')}`);
assert.strictEqual(read(words, 'aspen').toString(), 'one organism, many trees');
assert.strictEqual(read(words, 'elm'), undefined);
check(freeMap(words));
assert.throws(() => check(freeMap(words)), /was freed/);
check(freePool(pool));
