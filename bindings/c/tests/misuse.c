/* Wrong handles, NULL, double frees and forks: each is an error, and nothing else happens. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pando.h"

static void check(pando_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", pando_error_message(error));
        exit(1);
    }
}

static void refused_at(pando_error *error, pando_code code, int line) {
    if (pando_error_code(error) != code) {
        fprintf(stderr, "line %d: %u, %s\n", line, (unsigned)pando_error_code(error),
                pando_error_message(error));
        exit(1);
    }
    pando_error_free(error);
    pando_error_free(error); /* A second time: left alone. */
    assert(error == NULL || pando_error_code(error) == PANDO_CODE_FREED_HANDLE);
    assert(error == NULL || strlen(pando_error_message(error)) > 0);
    assert(pando_error_bytes(error).len == 0);
}
#define refused(error, code) refused_at(error, code, __LINE__)

static pando_slice text(const char *text) {
    pando_slice slice;
    slice.data = (const uint8_t *)text;
    slice.len = text == NULL ? 0 : strlen(text);
    return slice;
}

static pando_map *used;

static bool use_again(void *context, pando_slice key, pando_slice value) {
    (void)key, (void)value;
    refused(pando_transaction_remove(context, used, text("aspen")), PANDO_CODE_IN_USE);
    refused(pando_transaction_commit(context, NULL), PANDO_CODE_IN_USE);
    refused(pando_transaction_free(context), PANDO_CODE_IN_USE);
    return false;
}

static void null_handles(pando_pool *pool, pando_map *map) {
    pando_bytes bytes = PANDO_BYTES_INIT;
    pando_slice hollow;
    bool found;
    hollow.data = NULL, hollow.len = 3;
    check(pando_pool_free(NULL));
    check(pando_map_free(NULL));
    check(pando_scan_free(NULL));
    check(pando_snapshot_free(NULL));
    check(pando_transaction_free(NULL));
    check(pando_batch_free(NULL));
    check(pando_session_free(NULL));
    check(pando_guard_free(NULL));
    pando_error_free(NULL);
    pando_bytes_free(NULL);
    assert(pando_error_code(NULL) == PANDO_CODE_NONE && *pando_error_message(NULL) == 0);
    assert(pando_map_name(NULL) == NULL && pando_session_id(NULL) == NULL);
    refused(pando_pool_open(NULL, NULL, &pool), PANDO_CODE_NULL);
    refused(pando_pool_open("/nowhere/pool", NULL, NULL), PANDO_CODE_NULL);
    refused(pando_pool_open("/nowhere/pool", NULL, &pool), PANDO_CODE_POOL_NOT_FOUND);
    refused(pando_pool_map(NULL, "map", NULL, &map), PANDO_CODE_NULL);
    refused(pando_pool_map(pool, NULL, NULL, &map), PANDO_CODE_NULL);
    refused(pando_map_put(NULL, text("key"), text("value")), PANDO_CODE_NULL);
    refused(pando_map_put(map, hollow, text("value")), PANDO_CODE_NULL);
    refused(pando_map_get(map, text("key"), &bytes, NULL), PANDO_CODE_NULL);
    refused(pando_map_read(map, text("key"), NULL, NULL, NULL), PANDO_CODE_NULL);
    refused(pando_map_get_many(map, &hollow, 1, &bytes, &found), PANDO_CODE_NULL);
    refused(pando_map_put_many(map, NULL, 2), PANDO_CODE_NULL);
    check(pando_map_put_many(map, NULL, 0));
    /* An empty key and an empty value are allowed, also as NULL. */
    check(pando_map_put(map, text(NULL), text(NULL)));
    check(pando_map_get(map, text(NULL), &bytes, &found));
    assert(found && bytes.len == 0);
    /* What is empty has an address, which Go checks. */
    assert((uintptr_t)bytes.data > 4096);
    assert((uintptr_t)pando_error_bytes(NULL).data > 4096);
    pando_bytes_free(&bytes);
    assert(bytes.data == NULL);
}

/* Keys that lie in the bytes which the call replaces, and one place for two outputs. */
static void outputs(pando_map *map) {
    pando_bytes values[2] = {PANDO_BYTES_INIT, PANDO_BYTES_INIT};
    pando_slice keys[2];
    uint8_t longer[600];
    bool found[2];
    memset(longer, 'x', sizeof longer);
    keys[0].data = longer, keys[0].len = sizeof longer;
    check(pando_map_put(map, text("first"), text("second")));
    check(pando_map_put(map, text("second"), keys[0]));
    check(pando_map_get(map, text("first"), &values[0], found));
    keys[0] = text("second");
    keys[1].data = values[0].data, keys[1].len = values[0].len;
    check(pando_map_get_many(map, keys, 2, values, found));
    assert(found[0] && found[1] && values[0].len == 600 && values[1].len == 600);
    check(pando_map_get(map, text("first"), &values[0], found));
    keys[1].data = values[0].data, keys[1].len = values[0].len;
    check(pando_map_get(map, keys[1], &values[0], found));
    assert(found[0] && values[0].len == 600 && memcmp(values[0].data, longer, 600) == 0);
    refused(pando_map_first(map, values, values, found), PANDO_CODE_OPTION);
    refused(pando_map_pop_last(map, values, values, found), PANDO_CODE_OPTION);
    check(pando_map_pop_last(map, NULL, NULL, found));
    check(pando_map_last(map, &values[0], &values[1], found));
    assert(found[0] && values[0].len == 5 && values[1].len == 6);
    check(pando_map_remove(map, text("first"), NULL));
    pando_bytes_free(&values[0]);
    pando_bytes_free(&values[1]);
}

static void wrong_handles(pando_pool *pool, pando_map *map) {
    pando_map *second = NULL;
    pando_scan *scan;
    bool found;
    int local = 0;
    refused(pando_map_put((pando_map *)pool, text("k"), text("v")), PANDO_CODE_WRONG_HANDLE);
    refused(pando_pool_free((pando_pool *)map), PANDO_CODE_WRONG_HANDLE);
    refused(pando_map_put((pando_map *)&local, text("k"), text("v")), PANDO_CODE_FREED_HANDLE);
    check(pando_pool_map(pool, "second", NULL, &second));
    check(pando_map_free(second));
    refused(pando_map_free(second), PANDO_CODE_FREED_HANDLE);
    refused(pando_map_put(second, text("k"), text("v")), PANDO_CODE_FREED_HANDLE);
    check(pando_map_scan(map, NULL, &scan));
    check(pando_scan_free(scan));
    refused(pando_scan_next(scan, NULL, NULL, &found), PANDO_CODE_FREED_HANDLE);
    refused(pando_scan_free(scan), PANDO_CODE_FREED_HANDLE);
}

enum { RACES = 200 };
static pando_map *raced[RACES];

/* Frees each handle, beside another thread that does the same. Returns how many it has freed. */
static void *free_all(void *freed) {
    int at;
    for (at = 0; at < RACES; at++) {
        pando_error *error = pando_map_free(raced[at]);
        if (error == NULL) {
            ++*(int *)freed;
        } else {
            refused(error, PANDO_CODE_FREED_HANDLE);
        }
    }
    return NULL;
}

/* Two threads free the same handles: each is freed once, and the other thread gets an error. */
static void frees_at_once(pando_pool *pool) {
    pthread_t other;
    int at, here = 0, there = 0;
    for (at = 0; at < RACES; at++) check(pando_pool_map(pool, "raced", NULL, &raced[at]));
    assert(pthread_create(&other, NULL, free_all, &there) == 0);
    free_all(&here);
    assert(pthread_join(other, NULL) == 0);
    assert(here + there == RACES);
    /* No handle is held any more. */
    check(pando_pool_drop_map(pool, "raced"));
}

static void options(pando_pool *pool, pando_map *map) {
    struct {
        pando_range range;
        uint64_t later;
    } larger;
    pando_pool_options settings;
    pando_scan *scan;
    pando_map *wide;
    pando_map_options map_options;
    pando_pool *refused_pool;
    memset(&larger, 0, sizeof larger);
    refused(pando_map_scan(map, &larger.range, &scan), PANDO_CODE_OPTION); /* No size. */
    larger.range.struct_size = sizeof larger; /* A program of a later version. */
    check(pando_map_scan(map, &larger.range, &scan));
    check(pando_scan_free(scan));
    larger.later = 1; /* It sets an option that this version does not know. */
    refused(pando_map_scan(map, &larger.range, &scan), PANDO_CODE_OPTION);
    larger.range.struct_size = sizeof(size_t) * 3; /* A program of an earlier version. */
    check(pando_map_scan(map, &larger.range, &scan));
    check(pando_scan_free(scan));
    larger.range.struct_size = sizeof larger.range;
    larger.range.low_bound = 7;
    refused(pando_map_scan(map, &larger.range, &scan), PANDO_CODE_OPTION);
    larger.range.low_bound = PANDO_BOUND_INCLUDED;
    larger.range.prefix = text("a");
    refused(pando_map_scan(map, &larger.range, &scan), PANDO_CODE_OPTION);
    larger.range.low_bound = PANDO_BOUND_NONE;
    larger.range.prefix.data = NULL, larger.range.prefix.len = 3;
    refused(pando_map_scan(map, &larger.range, &scan), PANDO_CODE_NULL);
    memset(&settings, 0, sizeof settings);
    settings.struct_size = sizeof settings;
    settings.max_bytes = 64 << 20;
    settings.shared = 2;
    refused(pando_pool_volatile(&settings, &refused_pool), PANDO_CODE_OPTION);
    settings.shared = 0, settings.domain = 9;
    refused(pando_pool_volatile(&settings, &refused_pool), PANDO_CODE_OPTION);
    settings.domain = 0, settings.reserved = 1;
    refused(pando_pool_volatile(&settings, &refused_pool), PANDO_CODE_OPTION);
    settings.reserved = 0, settings.acknowledge = PANDO_ACKNOWLEDGE_SYNCED;
    refused(pando_pool_volatile(&settings, &refused_pool), PANDO_CODE_NO_LOG);
    memset(&map_options, 0, sizeof map_options);
    map_options.struct_size = sizeof map_options;
    map_options.settings = "leaf_bytes";
    refused(pando_pool_map(pool, "wide", &map_options, &wide), PANDO_CODE_OPTION);
    map_options.settings = NULL, map_options.reserved = 1;
    refused(pando_pool_map(pool, "wide", &map_options, &wide), PANDO_CODE_OPTION);
    map_options.reserved = 0, map_options.index = "\xff";
    refused(pando_pool_map(pool, "wide", &map_options, &wide), PANDO_CODE_OPTION);
    refused(pando_pool_begin(pool, 5, (pando_transaction **)&wide), PANDO_CODE_OPTION);
}

static void one_at_a_time(pando_pool *pool) {
    pando_map_options transactional;
    pando_transaction *transaction;
    memset(&transactional, 0, sizeof transactional);
    transactional.struct_size = sizeof transactional;
    transactional.transactional = PANDO_TRANSACTIONAL_YES;
    check(pando_pool_map(pool, "transactional", &transactional, &used));
    check(pando_map_put(used, text("aspen"), text("1")));
    check(pando_pool_begin(pool, 0, &transaction));
    check(pando_transaction_scan(transaction, used, NULL, use_again, transaction));
    check(pando_transaction_commit(transaction, NULL));
    refused(pando_transaction_commit(transaction, NULL), PANDO_CODE_OPTION);
    refused(pando_transaction_remove(transaction, used, text("aspen")), PANDO_CODE_OPTION);
    check(pando_transaction_free(transaction));
    check(pando_map_free(used));
}

/* A guard keeps what it has lent, is used by one call at a time, and is freed once. */
static void guards(pando_pool *pool, pando_map *map) {
    pando_guard *guard, *second;
    pando_slice value, again;
    uint8_t long_value[600];
    pando_slice long_slice;
    bool found;
    memset(long_value, 'x', sizeof long_value);
    long_slice.data = long_value, long_slice.len = sizeof long_value;
    refused(pando_pool_guard(NULL, &guard), PANDO_CODE_NULL);
    refused(pando_pool_guard(pool, NULL), PANDO_CODE_NULL);
    refused(pando_pool_guard((pando_pool *)map, &guard), PANDO_CODE_WRONG_HANDLE);
    check(pando_map_put(map, text("aspen"), long_slice));
    check(pando_map_put(map, text("none"), text(NULL)));
    check(pando_pool_guard(pool, &guard));
    check(pando_pool_guard(pool, &second));
    check(pando_guard_read(guard, map, text("aspen"), &value, &found));
    assert(found && value.len == sizeof long_value && value.data != long_value);
    check(pando_guard_read(guard, map, text("none"), &again, &found));
    assert(found && again.len == 0 && (uintptr_t)again.data > 4096);
    check(pando_guard_read(guard, map, text("aspen"), NULL, &found));
    again = value;
    check(pando_guard_read(guard, map, text("oak"), &again, &found));
    assert(!found && again.data == value.data);
    refused(pando_guard_read(guard, map, text("aspen"), &again, NULL), PANDO_CODE_NULL);
    refused(pando_guard_read(NULL, map, text("aspen"), &again, &found), PANDO_CODE_NULL);
    refused(pando_guard_read(guard, NULL, text("aspen"), &again, &found), PANDO_CODE_NULL);
    refused(pando_guard_read((pando_guard *)map, map, text("aspen"), &again, &found),
            PANDO_CODE_WRONG_HANDLE);
    refused(pando_map_free((pando_map *)guard), PANDO_CODE_WRONG_HANDLE);
    check(pando_guard_free(second));
    refused(pando_guard_free(second), PANDO_CODE_FREED_HANDLE);
    refused(pando_guard_read(second, map, text("aspen"), &again, &found), PANDO_CODE_FREED_HANDLE);
    /* The value stays while it is replaced and removed. */
    memset(long_value, 'y', sizeof long_value);
    for (; long_slice.len > 500; long_slice.len--) {
        check(pando_map_put(map, text("aspen"), long_slice));
    }
    check(pando_map_remove(map, text("aspen"), &found));
    assert(found && value.data[0] == 'x' && value.data[value.len - 1] == 'x');
    check(pando_guard_free(guard));
    refused(pando_guard_free(guard), PANDO_CODE_FREED_HANDLE);
    check(pando_map_remove(map, text("none"), NULL));
}

/* A guard keeps its pool and the maps of its values open. */
static void guard_is_last(void) {
    pando_pool_options small;
    pando_pool *pool;
    pando_map *map;
    pando_guard *guard;
    pando_slice value;
    bool found;
    memset(&small, 0, sizeof small);
    small.struct_size = sizeof small;
    small.max_bytes = 64 << 20;
    check(pando_pool_volatile(&small, &pool));
    check(pando_pool_map(pool, "map", NULL, &map));
    check(pando_map_put(map, text("aspen"), text("one organism, many trees")));
    check(pando_pool_guard(pool, &guard));
    check(pando_guard_read(guard, map, text("aspen"), &value, &found));
    check(pando_map_free(map));
    refused(pando_pool_drop_map(pool, "map"), PANDO_CODE_HANDLES_HELD);
    check(pando_pool_free(pool));
    assert(found && value.len == 24 && memcmp(value.data, "one organism, many trees", 24) == 0);
    check(pando_guard_free(guard));
}

/* A child of fork may call anything: it gets errors, and frees nothing of its parent. */
static void forks(const char *path, const char *log) {
    pando_pool_options settings;
    pando_pool *pool;
    pando_map *map;
    pando_snapshot *snapshot;
    pando_guard *guard;
    int status;
    pid_t child;
    memset(&settings, 0, sizeof settings);
    settings.struct_size = sizeof settings;
    settings.max_bytes = 64 << 20;
    settings.log = log;
    check(pando_pool_create(path, &settings, &pool));
    check(pando_pool_map(pool, "map", NULL, &map));
    check(pando_pool_snapshot(pool, &snapshot));
    check(pando_pool_guard(pool, &guard));
    child = fork();
    if (child == 0) {
        uint64_t len;
        refused(pando_map_put(map, text("k"), text("v")), PANDO_CODE_FORKED);
        refused(pando_map_len(map, &len), PANDO_CODE_FORKED);
        refused(pando_pool_sync(pool, NULL), PANDO_CODE_FORKED);
        assert(strcmp(pando_map_name(map), "map") == 0);
        refused(pando_pool_guard(pool, &guard), PANDO_CODE_FORKED);
        check(pando_guard_free(guard));
        check(pando_snapshot_free(snapshot));
        check(pando_map_free(map));
        check(pando_pool_free(pool)); /* It does not wait for the threads of the log. */
        refused(pando_pool_open(path, &settings, &pool), PANDO_CODE_POOL_BUSY);
        /* What it has of its parent's memory is no leak, so tools must not look for leaks here. */
        execlp("true", "true", (char *)NULL);
        abort();
    }
    assert(waitpid(child, &status, 0) == child);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check(pando_map_put(map, text("k"), text("v")));
    check(pando_guard_free(guard));
    check(pando_snapshot_free(snapshot));
    check(pando_map_free(map));
    check(pando_pool_free(pool));
    check(pando_pool_open(path, NULL, &pool));
    check(pando_pool_free(pool));
}

int main(int count, char **arguments) {
    pando_pool *pool;
    pando_pool_options small;
    pando_map *map;
    char path[4096], log[4096];
    assert(count == 2);
    memset(&small, 0, sizeof small);
    small.struct_size = sizeof small;
    small.max_bytes = 64 << 20;
    check(pando_pool_volatile(&small, &pool));
    check(pando_pool_map(pool, "map", NULL, &map));
    null_handles(pool, map);
    outputs(map);
    wrong_handles(pool, map);
    frees_at_once(pool);
    options(pool, map);
    one_at_a_time(pool);
    guards(pool, map);
    guard_is_last();
    check(pando_map_free(map));
    check(pando_pool_free(pool));
    refused(pando_pool_free(pool), PANDO_CODE_FREED_HANDLE);
    snprintf(path, sizeof path, "%s/forked.pando", arguments[1]);
    snprintf(log, sizeof log, "%s/forked.log", arguments[1]);
    forks(path, log);
    return 0;
}
