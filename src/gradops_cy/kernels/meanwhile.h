/* What a core does while its tiles multiply: the results before are stored, later panels asked for.
 * between.h does it between products. */
#ifndef GRADOPS_MEANWHILE_H
#define GRADOPS_MEANWHILE_H

#include "finite.h"
#include "rows.h"
#include "split.h"

enum { WAITING = 96 }; /* most spans of a tile's results: each position by itself */

/* Rows of n sums, on their way to places `pitch` bytes apart. */
typedef struct {
    float *sums;
    char *place;
    ptrdiff_t pitch, rows, n;
} WaitingRows;

typedef struct {
    int dtype;
    int parts;                    /* of the sums, which are then scaled back */
    int accumulate;
    int checks;                   /* whether sums have to be finite, */
    int fine;                     /* and whether all were */
    ptrdiff_t sums_pitch;         /* elements from row to row of sums */
    ptrdiff_t next, spans, rows;  /* spans that wait, and how many rows they have left */
    int between;                  /* whether products of the next tile take turns with them */
    ptrdiff_t lines;              /* cache lines that a step along k asks for */
    const char *ahead, *ahead_end;
    WaitingRows waiting[WAITING];
} Meanwhile;

/* Whether rows of n sums are finite, those of parts scaled back. */
static int check_rows(int parts, float *sums, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t n) {
    return parts == 1 ? rows_finite(sums, pitch, rows, n) : unsplit(sums, pitch, rows, n);
}

static void store_waiting(Meanwhile *m) {
    for (; m->rows > 0; m->next++) {
        const WaitingRows *w = m->waiting + m->next;
        if (m->checks) m->fine &= check_rows(m->parts, w->sums, m->sums_pitch, w->rows, w->n);
        store_rows(m->dtype, w->sums, m->sums_pitch, w->place, w->pitch, w->rows, w->n, m->accumulate);
        m->rows -= w->rows;
    }
}

static void let_wait(Meanwhile *m, void *sums, char *place, ptrdiff_t pitch, ptrdiff_t rows,
                     ptrdiff_t n) {
    if (m->rows == 0) m->next = m->spans = 0;
    m->waiting[m->spans++] = (WaitingRows){sums, place, pitch, rows, n};
    m->rows += rows;
}

/* Some of the lines that come next, in each step along k. */
INLINE void ask_ahead(Meanwhile *m, ptrdiff_t lines) {
    if (lines)
        for (ptrdiff_t i = 0; i < lines && m->ahead < m->ahead_end; i++, m->ahead += 64)
            __builtin_prefetch(m->ahead, 0, 2);
}

#endif
