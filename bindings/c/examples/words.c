/*
 * A pool with a map of words: reads, writes, scans and reports.
 *
 *     cc -std=c99 words.c $(pkg-config --cflags --libs pando) -o words && ./words FOLDER
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pando.h"

/* Ends the program if a call has failed. */
static void check(pando_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", pando_error_message(error));
        pando_error_free(error);
        exit(1);
    }
}

/* Ends the program unless a call has failed with that code. */
static void refused(pando_error *error, pando_code code) {
    assert(pando_error_code(error) == code);
    assert(strlen(pando_error_message(error)) > 0);
    pando_error_free(error);
}

static pando_slice text(const char *text) {
    pando_slice slice;
    slice.data = (const uint8_t *)text;
    slice.len = strlen(text);
    return slice;
}

static int is(pando_slice slice, const char *expected) {
    return slice.len == strlen(expected) && memcmp(slice.data, expected, slice.len) == 0;
}

static int holds(const pando_bytes *bytes, const char *expected) {
    return bytes->len == strlen(expected) && memcmp(bytes->data, expected, bytes->len) == 0;
}

static void count_bytes(void *context, pando_slice value) { *(size_t *)context += value.len; }

static void one_key(const pando_map *map) {
    pando_bytes value = PANDO_BYTES_INIT;
    pando_error *error;
    size_t bytes = 0;
    bool found;

    check(pando_map_insert(map, text("aspen"), text("1")));
    refused(pando_map_insert(map, text("aspen"), text("2")), PANDO_CODE_KEY_EXISTS);
    check(pando_map_update(map, text("aspen"), text("2")));
    check(pando_map_put(map, text("aspen"), text("3")));
    check(pando_map_upsert(map, text("beech"), text("4"), &found));
    assert(found);
    check(pando_map_get(map, text("aspen"), &value, &found));
    assert(found && holds(&value, "3"));
    check(pando_map_swap(map, text("aspen"), text("five"), &value, &found));
    assert(found && holds(&value, "3"));
    check(pando_map_read(map, text("aspen"), count_bytes, &bytes, &found));
    assert(found && bytes == 4);
    check(pando_map_contains(map, text("cedar"), &found));
    assert(!found);
    check(pando_map_compare_exchange(map, text("beech"), text("4"), text("6")));
    error = pando_map_compare_exchange(map, text("beech"), text("4"), text("7"));
    assert(pando_error_code(error) == PANDO_CODE_VALUE_MISMATCH);
    assert(is(pando_error_bytes(error), "6"));
    pando_error_free(error);
    check(pando_map_compare_remove(map, text("beech"), text("6")));
    check(pando_map_take(map, text("aspen"), &value, &found));
    assert(found && holds(&value, "five"));
    check(pando_map_remove(map, text("aspen"), &found));
    assert(!found);
    pando_bytes_free(&value);
    /* The struct is zeros now. */
    pando_bytes_free(&value);
}

/* A value that is lent for longer than a call. */
static void lent(const pando_pool *pool, const pando_map *map) {
    pando_guard *guard;
    pando_slice value;
    bool found;

    check(pando_map_put(map, text("aspen"), text("one organism, many trees")));
    check(pando_pool_guard(pool, &guard));
    check(pando_guard_read(guard, map, text("aspen"), &value, &found));
    assert(found && is(value, "one organism, many trees"));
    check(pando_map_remove(map, text("aspen"), NULL));
    /* The guard keeps what it has lent. Free it soon: the pool grows meanwhile. */
    assert(is(value, "one organism, many trees"));
    check(pando_guard_free(guard));
}

static void many_keys(const pando_map *map) {
    pando_record records[4];
    pando_slice keys[3];
    pando_bytes values[3] = {PANDO_BYTES_INIT, PANDO_BYTES_INIT, PANDO_BYTES_INIT};
    pando_bytes key = PANDO_BYTES_INIT;
    pando_range range;
    pando_scan *scan;
    pando_slice lent_key, lent_value;
    uint64_t number;
    bool found[3];
    size_t seen = 0;

    records[0].key = text("aspen"), records[0].value = text("1");
    records[1].key = text("beech"), records[1].value = text("2");
    records[2].key = text("birch"), records[2].value = text("3");
    records[3].key = text("cedar"), records[3].value = text("4");
    check(pando_map_put_many(map, records, 4));
    keys[0] = text("birch"), keys[1] = text("oak"), keys[2] = text("aspen");
    check(pando_map_get_many(map, keys, 3, values, found));
    assert(found[0] && holds(&values[0], "3") && !found[1] && found[2]);

    /* The keys that begin with b, from the back. */
    memset(&range, 0, sizeof range);
    range.struct_size = sizeof range;
    range.prefix = text("b");
    range.reverse = 1;
    check(pando_map_scan(map, &range, &scan));
    check(pando_scan_next(scan, &lent_key, &lent_value, &found[0]));
    assert(found[0] && is(lent_key, "birch") && is(lent_value, "3"));
    for (;;) {
        check(pando_scan_next(scan, &lent_key, &lent_value, &found[0]));
        if (!found[0]) break;
        seen++;
    }
    assert(seen == 1);
    check(pando_scan_free(scan));

    check(pando_map_first(map, &key, NULL, &found[0]));
    assert(found[0] && holds(&key, "aspen"));
    check(pando_map_last(map, &key, NULL, &found[0]));
    assert(found[0] && holds(&key, "cedar"));
    check(pando_map_pop_first(map, &key, NULL, NULL));
    assert(holds(&key, "aspen"));
    check(pando_map_pop_last(map, &key, NULL, NULL));
    assert(holds(&key, "cedar"));
    check(pando_map_remove_many(map, keys, 3, &number));
    assert(number == 1);
    check(pando_map_len(map, &number));
    assert(number == 1);
    check(pando_map_clear(map, &number));
    assert(number == 1);
    pando_bytes_free(&key);
    for (seen = 0; seen < 3; seen++) pando_bytes_free(&values[seen]);
}

int main(int count, char **arguments) {
    pando_pool_options options;
    pando_map_options wide;
    pando_pool *pool;
    pando_map *map, *again;
    pando_bytes report = PANDO_BYTES_INIT;
    size_t max_key_bytes, problems;
    uint64_t records;
    char path[4096];

    if (count != 2) {
        fprintf(stderr, "usage: words FOLDER\n");
        return 2;
    }
    printf("pando %s\n", pando_version());
    snprintf(path, sizeof path, "%s/words.pando", arguments[1]);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.max_bytes = 64 << 20;
    check(pando_pool_create(path, &options, &pool));
    refused(pando_pool_create(path, &options, &pool), PANDO_CODE_POOL_EXISTS);
    check(pando_pool_map(pool, "words", NULL, &map));
    assert(strcmp(pando_map_name(map), "words") == 0 && !pando_map_is_transactional(map));
    check(pando_map_limits(map, &max_key_bytes, NULL));
    assert(max_key_bytes == 32 << 10);
    one_key(map);
    lent(pool, map);
    many_keys(map);

    memset(&wide, 0, sizeof wide);
    wide.struct_size = sizeof wide;
    wide.settings = "leaf_bytes=4096 value_mode=pointer";
    check(pando_pool_map(pool, "wide", &wide, &again));
    check(pando_map_free(again));
    check(pando_pool_drop_map(pool, "wide"));
    refused(pando_pool_open_map(pool, "wide", &again), PANDO_CODE_MAP_NOT_FOUND);

    check(pando_map_insert(map, text("aspen"), text("one organism, many trees")));
    check(pando_pool_stat(pool, &report));
    check(pando_pool_maps(pool, &report));
    printf("%.*s\n", (int)report.len, (const char *)report.data);
    check(pando_pool_check(pool, &problems, &report));
    assert(problems == 0);
    pando_bytes_free(&report);
    check(pando_map_free(map));
    check(pando_pool_free(pool));

    /* The records are there after the process. */
    check(pando_pool_open(path, NULL, &pool));
    check(pando_pool_open_map(pool, "words", &map));
    /* The map keeps its pool open. */
    check(pando_pool_free(pool));
    check(pando_map_len(map, &records));
    assert(records == 1);
    check(pando_map_free(map));
    check(pando_pool_open_or_create(path, NULL, &pool));
    check(pando_pool_free(pool));
    check(pando_pool_volatile(&options, &pool));
    check(pando_pool_free(pool));
    return 0;
}
