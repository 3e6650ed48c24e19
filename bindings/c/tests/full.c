/* A store on a full file system: the folder is on one of 64 MiB. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "pando.h"

static pando_slice slice(const void *bytes, size_t len) {
    pando_slice slice;
    slice.data = bytes;
    slice.len = len;
    return slice;
}

int main(int count, char **arguments) {
    static const uint8_t value[1000] = {0};
    char path[4096];
    uint32_t number;
    pando_pool *store;
    pando_map *map;
    pando_error *error = NULL;
    assert(count == 2);
    snprintf(path, sizeof path, "%s/store", arguments[1]);
    error = pando_store_open(path, 16 << 20, NULL, &store);
    assert(error == NULL);
    error = pando_pool_map(store, "map", NULL, &map);
    assert(error == NULL);
    for (number = 0; error == NULL && number < 1000000; number++) {
        error = pando_map_put(map, slice(&number, sizeof number), slice(value, sizeof value));
    }
    if (pando_error_code(error) != PANDO_CODE_FULL) {
        fprintf(stderr, "%u: %s\n", (unsigned)pando_error_code(error), pando_error_message(error));
        return 1;
    }
    pando_error_free(error);
    error = pando_map_free(map);
    assert(error == NULL);
    /* The handle has ended also if the disk refuses. */
    error = pando_pool_free(store);
    assert(error == NULL || pando_error_code(error) == PANDO_CODE_FULL);
    pando_error_free(error);
    error = pando_pool_free(store);
    assert(pando_error_code(error) == PANDO_CODE_FREED_HANDLE);
    pando_error_free(error);
    return 0;
}
