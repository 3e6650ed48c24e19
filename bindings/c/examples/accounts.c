/*
 * Transactions, snapshots, batches that are applied once, and power safety.
 *
 *     cc -std=c99 accounts.c $(pkg-config --cflags --libs pando) -o accounts && ./accounts FOLDER
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pando.h"

static void check(pando_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", pando_error_message(error));
        pando_error_free(error);
        exit(1);
    }
}

static pando_slice text(const char *text) {
    pando_slice slice;
    slice.data = (const uint8_t *)text;
    slice.len = strlen(text);
    return slice;
}

/* The number that a value has in decimals; 0 if there is none. */
static int number(const pando_bytes *value) {
    char digits[16] = "";
    size_t at;
    for (at = 0; at < value->len && at + 1 < sizeof digits; at++) digits[at] = (char)value->data[at];
    return atoi(digits);
}

static bool count(void *context, pando_slice key, pando_slice value) {
    (void)key, (void)value;
    ++*(size_t *)context;
    return true;
}

/* Moves an amount from one account to another. Returns false if there is not enough. */
static bool move(const pando_pool *pool, const pando_map *map, const char *from, const char *to,
                 int amount) {
    pando_bytes value = PANDO_BYTES_INIT;
    bool is_enough = false;
    for (;;) {
        pando_transaction *transaction;
        pando_error *error;
        char left[16], more[16];
        bool found;
        int balance, other = 0;

        check(pando_pool_begin(pool, PANDO_ISOLATION_SERIALIZABLE, &transaction));
        check(pando_transaction_get(transaction, map, text(from), &value, &found));
        balance = found ? number(&value) : 0;
        check(pando_transaction_get(transaction, map, text(to), &value, &found));
        if (found) other = number(&value);
        is_enough = balance >= amount;
        if (is_enough) {
            snprintf(left, sizeof left, "%d", balance - amount);
            check(pando_transaction_put(transaction, map, text(from), text(left)));
            snprintf(more, sizeof more, "%d", other + amount);
            check(pando_transaction_put(transaction, map, text(to), text(more)));
        }
        error = pando_transaction_commit(transaction, NULL);
        check(pando_transaction_free(transaction));
        if (pando_error_code(error) == PANDO_CODE_CONFLICT) {
            /* Another transaction came first: run this one again. */
            pando_error_free(error);
            continue;
        }
        check(error);
        break;
    }
    pando_bytes_free(&value);
    return is_enough;
}

static void once(const pando_pool *pool, const pando_map *map) {
    pando_session *session, *again;
    pando_batch *batch;
    pando_outcome outcome;
    pando_slice value = text("0");
    uint64_t lsn, durable;
    pando_error *error;

    check(pando_session_new(pool, &session));
    check(pando_batch_new(pool, &batch));
    check(pando_batch_require(batch, map, text("oak"), NULL));
    check(pando_batch_put(batch, map, text("oak"), value));
    check(pando_batch_remove(batch, map, text("fir")));
    check(pando_session_apply(session, 1, batch, &outcome));
    assert(outcome == PANDO_OUTCOME_APPLIED);
    /* The client did not see the answer, and sends the batch again, in another process. */
    check(pando_session_open(pool, pando_session_id(session), &again));
    check(pando_session_apply(again, 1, batch, &outcome));
    assert(outcome == PANDO_OUTCOME_APPLIED);
    check(pando_session_outcome(again, 2, &outcome));
    assert(outcome == PANDO_OUTCOME_NOT_APPLIED);
    check(pando_session_end(again));
    check(pando_session_free(again));
    check(pando_session_free(session));

    /* Without a session: oak is there now, so the condition does not hold. */
    error = pando_pool_write(pool, batch, NULL);
    assert(pando_error_code(error) == PANDO_CODE_CONDITION_FAILED);
    pando_error_free(error);
    check(pando_batch_free(batch));
    check(pando_batch_new(pool, &batch));
    check(pando_batch_require(batch, map, text("oak"), &value));
    check(pando_batch_remove(batch, map, text("oak")));
    check(pando_pool_write(pool, batch, &lsn));
    check(pando_batch_free(batch));
    /* From here on the batch survives a power cut. */
    check(pando_pool_sync_to(pool, lsn));
    check(pando_pool_durable_lsn(pool, &durable));
    assert(durable >= lsn);
}

int main(int argument_count, char **arguments) {
    pando_pool_options options;
    pando_map_options transactional;
    pando_pool *pool, *other;
    pando_map *map, *synced;
    pando_error *error;
    pando_snapshot *snapshot;
    pando_scan *scan;
    pando_transaction *transaction;
    pando_bytes value = PANDO_BYTES_INIT;
    char path[4096], log[4096], backup[4096];
    size_t records = 0;
    bool found;

    if (argument_count != 2) {
        fprintf(stderr, "usage: accounts FOLDER\n");
        return 2;
    }
    snprintf(path, sizeof path, "%s/accounts.pando", arguments[1]);
    snprintf(log, sizeof log, "%s/accounts.log", arguments[1]);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.max_bytes = 64 << 20;
    options.log = log;
    check(pando_pool_create(path, &options, &pool));
    memset(&transactional, 0, sizeof transactional);
    transactional.struct_size = sizeof transactional;
    transactional.transactional = PANDO_TRANSACTIONAL_YES;
    check(pando_pool_map(pool, "accounts", &transactional, &map));

    check(pando_map_put(map, text("ash"), text("70")));
    check(pando_pool_snapshot(pool, &snapshot));
    assert(move(pool, map, "ash", "elm", 10));
    assert(!move(pool, map, "ash", "elm", 100));
    /* The snapshot has the moment before. */
    check(pando_snapshot_get(snapshot, map, text("ash"), &value, &found));
    assert(found && value.len == 2 && memcmp(value.data, "70", 2) == 0);
    assert(pando_snapshot_lsn(snapshot) > 0);
    check(pando_snapshot_scan(snapshot, map, NULL, &scan));
    /* The scan keeps the snapshot. */
    check(pando_snapshot_free(snapshot));
    check(pando_scan_next(scan, NULL, NULL, &found));
    assert(found);
    check(pando_scan_next(scan, NULL, NULL, &found));
    assert(!found);
    check(pando_scan_free(scan));

    check(pando_pool_begin(pool, PANDO_ISOLATION_SNAPSHOT, &transaction));
    check(pando_transaction_scan(transaction, map, NULL, count, &records));
    assert(records == 2);
    check(pando_transaction_remove(transaction, map, text("elm")));
    check(pando_transaction_acknowledge(transaction, PANDO_ACKNOWLEDGE_SYNCED));
    check(pando_transaction_free(transaction)); /* It has not taken place. */
    once(pool, map);

    /* When this returns, it survives a power cut. */
    check(pando_map_acknowledge(map, PANDO_ACKNOWLEDGE_SYNCED, &synced));
    check(pando_map_put(synced, text("fir"), text("5")));
    check(pando_map_free(synced));
    check(pando_pool_sync(pool, NULL));
    check(pando_pool_write_image(pool));
    snprintf(backup, sizeof backup, "%s/backup", arguments[1]);
    check(pando_pool_backup(pool, backup, NULL));
    check(pando_map_free(map));
    check(pando_pool_free(pool));

    snprintf(path, sizeof path, "%s/restored.pando", arguments[1]);
    snprintf(log, sizeof log, "%s/restored.log", arguments[1]);
    check(pando_pool_restore(backup, path, &options, &other));
    check(pando_pool_open_map(other, "accounts", &map));
    check(pando_map_get(map, text("fir"), &value, &found));
    assert(found);
    check(pando_map_free(map));
    check(pando_pool_free(other));

    /* A store: maps that are larger than memory. */
    snprintf(path, sizeof path, "%s/store", arguments[1]);
    check(pando_store_open(path, 16 << 20, NULL, &pool));
    check(pando_pool_map(pool, "accounts", NULL, &map));
    assert(pando_map_is_transactional(map));
    check(pando_map_put(map, text("ash"), text("1")));
    check(pando_map_free(map));
    check(pando_pool_free(pool));

    /* For reading alone, also where it cannot be written. */
    check(pando_store_open_read_only(path, 16 << 20, &pool));
    check(pando_pool_open_map(pool, "accounts", &map));
    check(pando_map_get(map, text("ash"), &value, &found));
    assert(found && value.len == 1);
    error = pando_map_put(map, text("ash"), text("2"));
    assert(pando_error_code(error) == PANDO_CODE_READ_ONLY);
    pando_error_free(error);
    check(pando_map_free(map));
    check(pando_pool_free(pool));
    pando_bytes_free(&value);
    return 0;
}
