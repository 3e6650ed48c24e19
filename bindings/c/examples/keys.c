/*
 * Typed keys: the encodings of docs/typed-keys.md, to copy. Keys of one type are in their order.
 *
 *     cc -std=c99 keys.c $(pkg-config --cflags --libs pando) -o keys && ./keys FOLDER [VECTORS]
 *
 * VECTORS is the file of test vectors that all languages share; each of its keys is checked.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pando.h"

/* A key that is being written. */
typedef struct {
    uint8_t bytes[256];
    size_t len;
} key_bytes;

static void put_byte(key_bytes *key, uint8_t byte) {
    assert(key->len < sizeof key->bytes);
    key->bytes[key->len++] = byte;
}

/* The lowest `len` bytes, big-endian. */
static void put_unsigned(key_bytes *key, uint64_t value, unsigned len) {
    while (len-- > 0) put_byte(key, (uint8_t)(value >> (8 * len)));
}

/* The same with the sign bit flipped, so that negative numbers come first. */
static void put_signed(key_bytes *key, int64_t value, unsigned len) {
    put_unsigned(key, (uint64_t)value ^ (UINT64_C(1) << (8 * len - 1)), len);
}

/* Returns false for NaN, which is no key. */
static bool put_double(key_bytes *key, double value) {
    uint64_t bits;
    const uint64_t sign = UINT64_C(1) << 63;
    if (value != value) return false;
    if (value == 0) value = 0; /* -0.0 is the key 0.0. */
    memcpy(&bits, &value, sizeof bits);
    put_unsigned(key, bits & sign ? ~bits : bits ^ sign, 8);
    return true;
}

static bool put_float(key_bytes *key, float value) {
    uint32_t bits;
    const uint32_t sign = UINT32_C(1) << 31;
    if (value != value) return false;
    if (value == 0) value = 0;
    memcpy(&bits, &value, sizeof bits);
    put_unsigned(key, bits & sign ? ~bits : bits ^ sign, 4);
    return true;
}

/* A string, bytes or a UUID as a whole key. */
static void put_bytes(key_bytes *key, const uint8_t *bytes, size_t len) {
    for (size_t at = 0; at < len; at++) put_byte(key, bytes[at]);
}

/* A string or bytes inside a tuple: zero bytes are escaped, and two zero bytes end it. */
static void put_element(key_bytes *key, const uint8_t *bytes, size_t len) {
    for (size_t at = 0; at < len; at++) {
        put_byte(key, bytes[at]);
        if (bytes[at] == 0) put_byte(key, 0xFF);
    }
    put_unsigned(key, 0, 2);
}

/* Seconds since 1970, rounded down, and the nanoseconds behind them. */
static void put_time(key_bytes *key, int64_t seconds, uint32_t nanoseconds) {
    put_signed(key, seconds, 8);
    put_unsigned(key, nanoseconds, 4);
}

/* Ends the program if a call has failed. */
static void check(pando_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", pando_error_message(error));
        pando_error_free(error);
        exit(1);
    }
}

static pando_slice slice(const key_bytes *key) {
    pando_slice slice;
    slice.data = key->bytes;
    slice.len = key->len;
    return slice;
}

/* Cities by country and postal code: the keys are tuples (string, u32). */
static void cities(const pando_map *map) {
    static const struct {
        const char *country, *name;
        uint32_t code;
    } all[] = {{"de", "Berlin", 10115}, {"de", "Dresden", 1067}, {"ch", "Zurich", 8001}};
    pando_slice name;
    pando_range range;
    pando_scan *scan;
    key_bytes prefix = {{0}, 0};
    bool found;

    for (size_t at = 0; at < 3; at++) {
        key_bytes key = {{0}, 0};
        put_element(&key, (const uint8_t *)all[at].country, strlen(all[at].country));
        put_unsigned(&key, all[at].code, 4);
        name.data = (const uint8_t *)all[at].name;
        name.len = strlen(all[at].name);
        check(pando_map_put(map, slice(&key), name));
    }
    /* Those of one country, in the order of their codes. */
    put_element(&prefix, (const uint8_t *)"de", 2);
    memset(&range, 0, sizeof range);
    range.struct_size = sizeof range;
    range.prefix = slice(&prefix);
    check(pando_map_scan(map, &range, &scan));
    check(pando_scan_next(scan, NULL, &name, &found));
    assert(found && name.len == 7 && memcmp(name.data, "Dresden", 7) == 0);
    check(pando_scan_next(scan, NULL, &name, &found));
    assert(found && name.len == 6 && memcmp(name.data, "Berlin", 6) == 0);
    check(pando_scan_next(scan, NULL, &name, &found));
    assert(!found);
    check(pando_scan_free(scan));
}

static size_t from_hex(const char *hex, uint8_t *bytes) {
    size_t len = 0;
    for (; hex[0] != 0 && hex[1] != 0; hex += 2, len++) {
        char digits[3] = {hex[0], hex[1], 0};
        bytes[len] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return len;
}

/* Writes the value of a vector as a whole key, or as an element of a tuple. Returns false if it has
 * no key. Sets known to false for a type that C99 does not have. */
static bool put_value(key_bytes *key, const char *type, char *value, int is_element, bool *known) {
    uint8_t bytes[128];
    size_t len;
    unsigned size;
    char *second = strchr(value, ';');
    char *third = second == NULL ? NULL : strchr(second + 1, ';');

    *known = true;
    if (second != NULL) *second++ = 0;
    if (third != NULL) *third++ = 0;
    if (strcmp(type, "f64") == 0) return put_double(key, strtod(value, NULL));
    if (strcmp(type, "f32") == 0) return put_float(key, strtof(value, NULL));
    if (strcmp(type, "bool") == 0) {
        put_byte(key, value[0] == '1');
    } else if (strcmp(type, "char") == 0) {
        put_unsigned(key, strtoull(value, NULL, 10), 4);
    } else if (strcmp(type, "string") == 0 || strcmp(type, "bytes") == 0) {
        len = from_hex(value, bytes);
        (is_element ? put_element : put_bytes)(key, bytes, len);
    } else if (strcmp(type, "uuid") == 0) {
        put_bytes(key, bytes, from_hex(value, bytes));
    } else if (strcmp(type, "time") == 0) {
        put_time(key, strtoll(value, NULL, 10), (uint32_t)strtoul(second, NULL, 10));
    } else if (strcmp(type, "option(i8)") == 0) {
        put_byte(key, strcmp(value, "none") != 0);
        if (strcmp(value, "none") != 0) put_signed(key, strtoll(value, NULL, 10), 1);
    } else if (strcmp(type, "(string,u32)") == 0) {
        put_element(key, bytes, from_hex(value, bytes));
        put_unsigned(key, strtoull(second, NULL, 10), 4);
    } else if (strcmp(type, "(i16,bytes,bytes)") == 0) {
        put_signed(key, strtoll(value, NULL, 10), 2);
        put_element(key, bytes, from_hex(second, bytes));
        put_element(key, bytes, from_hex(third, bytes));
    } else if (sscanf(type + 1, "%u", &size) == 1 && size <= 64) {
        if (type[0] == 'u') put_unsigned(key, strtoull(value, NULL, 10), size / 8);
        else put_signed(key, strtoll(value, NULL, 10), size / 8);
    } else {
        *known = false;
    }
    return true;
}

static void vectors(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256];
    unsigned checked = 0, refused = 0, others = 0;

    assert(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        char *columns[4];
        char *rest = line;
        bool known;

        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#') continue;
        for (int at = 0; at < 4; at++) {
            columns[at] = rest;
            rest = strchr(rest, '\t');
            if (rest != NULL) *rest++ = 0;
            else rest = columns[at] + strlen(columns[at]);
        }
        if (strcmp(columns[1], "refused") == 0) continue; /* Bytes that are no key. */
        for (int is_element = 0; is_element < 2; is_element++) {
            uint8_t expected[128];
            char value[256];
            key_bytes key = {{0}, 0};
            size_t len = from_hex(columns[2 + is_element], expected);
            bool is_key;

            strcpy(value, columns[1]);
            is_key = put_value(&key, columns[0], value, is_element, &known);
            if (!known) {
                others++;
            } else if (strcmp(columns[2], "refused") == 0) {
                assert(!is_key);
                refused++;
            } else if (!is_key || key.len != len || memcmp(key.bytes, expected, len) != 0) {
                fprintf(stderr, "%s %s has other bytes\n", columns[0], columns[1]);
                exit(1);
            } else {
                checked++;
            }
        }
    }
    fclose(file);
    printf("%u keys, %u refused, %u of types that C99 does not have\n", checked, refused, others);
    assert(checked > 250 && refused == 4);
}

int main(int count, char **arguments) {
    pando_pool *pool;
    pando_pool_options options;
    pando_map *map;
    char path[4096];

    assert(count > 1);
    snprintf(path, sizeof path, "%s/cities.pando", arguments[1]);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.max_bytes = 64 << 20;
    check(pando_pool_open_or_create(path, &options, &pool));
    check(pando_pool_map(pool, "cities", NULL, &map));
    cities(map);
    check(pando_map_free(map));
    check(pando_pool_free(pool));
    if (count > 2) vectors(arguments[2]);
    return 0;
}
