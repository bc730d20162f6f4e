/* Tasks for a team of threads. Each thread begins with a range of its own, the same in every call, so
 * that a core finds in its cache what it left there; who is done helps the others. */
#ifndef GRADOPS_TASKS_H
#define GRADOPS_TASKS_H

#include <stddef.h>

enum { TASK_RANGES = 64 }; /* larger teams share ranges */

typedef struct {
    ptrdiff_t next, end;
    char apart[64 - 2 * sizeof(ptrdiff_t)]; /* each on a cache line of its own */
} TaskRange;

typedef struct {
    ptrdiff_t count;
    TaskRange range[TASK_RANGES];
} Tasks;

static void share_tasks(Tasks *tasks, ptrdiff_t number, ptrdiff_t threads) {
    tasks->count = threads < TASK_RANGES ? threads : TASK_RANGES;
    for (ptrdiff_t i = 0; i < tasks->count; i++) {
        tasks->range[i].next = number * i / tasks->count;
        tasks->range[i].end = number * (i + 1) / tasks->count;
    }
}

/* The next task of a thread, or -1. `tried` counts the ranges that have none left; at first 0. */
static ptrdiff_t next_task(Tasks *tasks, ptrdiff_t thread, ptrdiff_t *tried) {
    for (; *tried < tasks->count; ++*tried) {
        TaskRange *range = tasks->range + (thread + *tried) % tasks->count;
        ptrdiff_t task = __atomic_fetch_add(&range->next, 1, __ATOMIC_RELAXED);
        if (task < range->end) return task;
    }
    return -1;
}

#endif
