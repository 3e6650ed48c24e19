/* What the adapter of BerkeleyDB calls. BerkeleyDB's handles are structs of function pointers
 * whose layout only db.h knows, so each call that Rust needs is a plain function here.
 *
 * Functions return 0, DB_NOTFOUND, DB_KEYEXIST, or an error number of BerkeleyDB or the system;
 * the adapter has the same three numbers. A deadlock that BerkeleyDB resolved against a single
 * operation is tried again here, as its Programmer's Reference Guide demands. */

#include <db.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The numbers that berkeleydb.rs has. */
_Static_assert(DB_NOTFOUND == -30988, "DB_NOTFOUND differs from the adapter's");
_Static_assert(DB_KEYEXIST == -30994, "DB_KEYEXIST differs from the adapter's");
_Static_assert(DB_LOCK_DEADLOCK == -30993, "DB_LOCK_DEADLOCK differs from the adapter's");

struct pando_bdb {
    DB_ENV *env;
    DB *db;
};

int pando_bdb_close(struct pando_bdb *map) {
    int failed = 0;
    if (map->db != NULL)
        failed = map->db->close(map->db, 0);
    if (map->env != NULL) {
        int env_failed = map->env->close(map->env, 0);
        if (failed == 0)
            failed = env_failed;
    }
    free(map);
    return failed;
}

static int open_in(struct pando_bdb *map, const char *folder, u_int32_t cache_gib, int is_synced,
                   u_int32_t most_threads) {
    int failed;
    DB_ENV *env;
    if ((failed = db_env_create(&map->env, 0)) != 0)
        return failed;
    env = map->env;
    if ((failed = env->set_cachesize(env, cache_gib, 0, 1)) != 0 ||
        (failed = env->set_lk_detect(env, DB_LOCK_DEFAULT)) != 0 ||
        (failed = env->set_lk_max_locks(env, 64 * most_threads)) != 0 ||
        (failed = env->set_lk_max_objects(env, 64 * most_threads)) != 0 ||
        (failed = env->set_lk_max_lockers(env, 8 * most_threads)) != 0 ||
        (failed = env->set_tx_max(env, most_threads)) != 0 ||
        (failed = env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1)) != 0 ||
        (failed = env->set_flags(env, DB_TXN_WRITE_NOSYNC, !is_synced)) != 0)
        return failed;
    failed = env->open(env, folder,
                       DB_CREATE | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL | DB_INIT_TXN |
                           DB_PRIVATE | DB_RECOVER | DB_THREAD,
                       0);
    if (failed != 0)
        return failed;
    if ((failed = db_create(&map->db, env, 0)) != 0)
        return failed;
    return map->db->open(map->db, NULL, "bench.db", NULL, DB_BTREE,
                         DB_AUTO_COMMIT | DB_CREATE | DB_THREAD, 0);
}

int pando_bdb_open(const char *folder, u_int32_t cache_gib, int is_synced, u_int32_t most_threads,
                   struct pando_bdb **out) {
    int failed;
    struct pando_bdb *map = calloc(1, sizeof *map);
    if (map == NULL)
        return ENOMEM;
    if ((failed = open_in(map, folder, cache_gib, is_synced, most_threads)) != 0) {
        pando_bdb_close(map);
        return failed;
    }
    *out = map;
    return 0;
}

/* Bytes that BerkeleyDB only reads. */
static DBT given(const void *bytes, u_int32_t length) {
    DBT dbt;
    memset(&dbt, 0, sizeof dbt);
    dbt.data = (void *)bytes;
    dbt.size = length;
    return dbt;
}

/* Room for bytes that BerkeleyDB writes. */
static DBT room(void *bytes, u_int32_t capacity, u_int32_t length) {
    DBT dbt = given(bytes, length);
    dbt.ulen = capacity;
    dbt.flags = DB_DBT_USERMEM;
    return dbt;
}

int pando_bdb_put(struct pando_bdb *map, const void *key, u_int32_t key_bytes, const void *value,
                  u_int32_t value_bytes, int is_only_new) {
    DBT k = given(key, key_bytes), v = given(value, value_bytes);
    int done;
    do
        done = map->db->put(map->db, NULL, &k, &v, is_only_new ? DB_NOOVERWRITE : 0);
    while (done == DB_LOCK_DEADLOCK);
    return done;
}

int pando_bdb_delete(struct pando_bdb *map, const void *key, u_int32_t key_bytes) {
    DBT k = given(key, key_bytes);
    int done;
    do
        done = map->db->del(map->db, NULL, &k, 0);
    while (done == DB_LOCK_DEADLOCK);
    return done;
}

int pando_bdb_get(struct pando_bdb *map, const void *key, u_int32_t key_bytes, void *value,
                  u_int32_t capacity, u_int32_t *value_bytes) {
    DBT k = given(key, key_bytes), v = room(value, capacity, 0);
    int done;
    do
        done = map->db->get(map->db, NULL, &k, &v, 0);
    while (done == DB_LOCK_DEADLOCK);
    *value_bytes = v.size;
    return done;
}

/* Writes a checkpoint if that much was logged since the last one; logs before it go away. */
int pando_bdb_checkpoint(struct pando_bdb *map, u_int32_t logged_kib) {
    return map->env->txn_checkpoint(map->env, logged_kib, 0, 0);
}

int pando_bdb_count(struct pando_bdb *map, u_int64_t *records) {
    DB_BTREE_STAT *stat = NULL;
    int failed = map->db->stat(map->db, NULL, &stat, 0);
    if (failed == 0)
        *records = stat->bt_ndata;
    free(stat);
    return failed;
}

int pando_bdb_cursor(struct pando_bdb *map, DBC **cursor) {
    return map->db->cursor(map->db, NULL, cursor, 0);
}

int pando_bdb_cursor_close(DBC *cursor) {
    return cursor->close(cursor);
}

/* Moves a cursor and copies the record that it then stands on: to the first key that is not less
 * than `key` (0), to the next one (1), to the one before (2), to the last one (3). */
int pando_bdb_cursor_get(DBC *cursor, int where, void *key, u_int32_t key_capacity,
                         u_int32_t *key_bytes, void *value, u_int32_t value_capacity,
                         u_int32_t *value_bytes) {
    static const u_int32_t moves[] = {DB_SET_RANGE, DB_NEXT, DB_PREV, DB_LAST};
    DBT k = room(key, key_capacity, *key_bytes), v = room(value, value_capacity, 0);
    int done = cursor->get(cursor, &k, &v, moves[where]);
    *key_bytes = k.size;
    *value_bytes = v.size;
    return done;
}

const char *pando_bdb_text(int error) {
    return db_strerror(error);
}
