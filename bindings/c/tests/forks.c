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

/* Errors that are kept, so that the table of handles grows. */
enum { KEPT = 1 << 16, CHILDREN = 64 };
static pando_error *kept[KEPT];
static volatile size_t how_many;

static void *keep_errors(void *context) {
    for (; how_many < KEPT; how_many++) kept[how_many] = pando_pool_sync(NULL, NULL);
    return context;
}

/* Forks while another thread makes the table of handles grow. Each child gets more handles than the
 * table has room for, and waits for no thread of its parent. */
static void fork_while_the_table_grows(void) {
    pthread_t growing;
    pid_t children[CHILDREN];
    size_t at, forks = 0;
    int status;
    assert(pthread_create(&growing, NULL, keep_errors, NULL) == 0);
    while (how_many < KEPT && forks < CHILDREN) {
        children[forks] = fork();
        if (children[forks] == 0) {
            alarm(60); /* It ends by a signal if it hangs. */
            for (at = how_many + 200; at > 0; at--) {
                pando_error *error = pando_pool_sync(NULL, NULL);
                if (pando_error_code(error) != PANDO_CODE_NULL) abort();
            }
            execlp("true", "true", (char *)NULL);
            abort();
        }
        assert(children[forks] > 0);
        forks++;
    }
    while (forks > 0) {
        forks--;
        assert(waitpid(children[forks], &status, 0) == children[forks]);
        assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert(pthread_join(growing, NULL) == 0);
    for (at = 0; at < KEPT; at++) {
        assert(pando_error_code(kept[at]) == PANDO_CODE_NULL);
        pando_error_free(kept[at]);
    }
}

int main(void) {
    fork_while_the_table_grows();
    return 0;
}
