/*
 * Forks while another thread makes the table of handles grow. Not run by valgrind and sanitizers:
 * the locks of their allocators may stay held in a child, and those of the C library do not.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pando.h"

/* The table begins with FIRST cells, and each further segment has twice as many as the one before.
 * So the handle of number FIRST * (2^n - 1) makes a new one. */
enum { FIRST = 64, SEGMENTS = 11, KEPT = FIRST << SEGMENTS };
static pando_error *kept[KEPT];
static volatile size_t how_many, allowed;

/* Keeps errors, so that the table of handles grows. */
static void *keep_errors(void *context) {
    for (; how_many < FIRST * ((1 << SEGMENTS) - 1); how_many++) {
        while (how_many == allowed) continue;
        kept[how_many] = pando_pool_sync(NULL, NULL);
    }
    return context;
}

/* Forks while another thread makes a segment. The child gets more handles than the table has room
 * for, and waits for no thread of its parent. */
static void fork_at_segment(int segment) {
    const size_t boundary = FIRST * (((size_t)1 << segment) - 1);
    pid_t child;
    size_t at;
    int status;
    allowed = boundary;
    while (how_many < boundary) continue;
    allowed = boundary + 1;
    child = fork();
    if (child == 0) {
        alarm(60); /* It ends by a signal if it hangs. */
        for (at = 0; at < boundary + 200; at++) {
            pando_error *error = pando_pool_sync(NULL, NULL);
            if (pando_error_code(error) != PANDO_CODE_NULL) abort();
        }
        execlp("true", "true", (char *)NULL);
        abort();
    }
    assert(waitpid(child, &status, 0) == child);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    pthread_t growing;
    size_t at;
    int segment;
    assert(pthread_create(&growing, NULL, keep_errors, NULL) == 0);
    for (segment = 1; segment < SEGMENTS; segment++) fork_at_segment(segment);
    allowed = KEPT;
    assert(pthread_join(growing, NULL) == 0);
    for (at = 0; at < how_many; at++) {
        assert(pando_error_code(kept[at]) == PANDO_CODE_NULL);
        pando_error_free(kept[at]);
    }
    return 0;
}
