/* The results of the tile before are stored row by row between the products of the next one.
 *
 * A product keeps the tile unit busy for 16 cycles, and leaves all others idle. Only as many
 * instructions as these have time for cost nothing: a row is tested, rounded and stored in about ten,
 * and where it lies stays in registers. */
#ifndef GRADOPS_BETWEEN_H
#define GRADOPS_BETWEEN_H

#include "meanwhile.h"

/* Rows of up to 32 sums that lie the same way. */
typedef struct {
    const float *sums;
    char *place;
    ptrdiff_t sums_pitch, pitch;  /* elements, bytes */
    ptrdiff_t rows;
    __mmask32 given;              /* the sums of a row */
    ptrdiff_t share;              /* rows for each step along k */
} Between;

/* The next span of those that wait. */
static Between next_span(Meanwhile *m, ptrdiff_t share) {
    const WaitingRows *w = m->waiting + m->next++;
    m->rows -= w->rows;
    return (Between){w->sums, w->place, m->sums_pitch, w->pitch, w->rows, ~0u >> (32 - w->n), share};
}

/* All that wait are shared out between steps along k, the same number to each of `rounds` times
 * `steps` until none is left; `busy`, that many rounds. */
INLINE Between share_out(Meanwhile *m, ptrdiff_t rounds, ptrdiff_t steps, ptrdiff_t *busy) {
    const ptrdiff_t all = rounds * steps;
    *busy = 0;
    if (all == 0 && m->between) store_waiting(m);
    if (!m->between || m->rows == 0) return (Between){.share = 0};
    const ptrdiff_t share = (m->rows + all - 1) / all;
    *busy = (m->rows + share * steps - 1) / (share * steps);
    return next_span(m, share);
}

/* What is to be known, and what rounds otherwise as well. */
#define INFINITE_SUMS (0x01 | 0x08 | 0x10 | 0x80)
#define UNUSUAL_SUMS (BF16_DIFFERS | INFINITE_SUMS)

static __attribute__((noinline)) void store_unusual(const float *sums, char *place, ptrdiff_t n,
                                                    Meanwhile *m) {
    if (m->checks) m->fine &= rows_finite(sums, 0, 1, n);
    store_rows(BF16, sums, 0, place, 0, 1, n, 0);
}

/* One row: bfloat16 is its own part, two make a float16 and three a float32. */
INLINE void store_sums(const int parts, const Between *r, Meanwhile *m) {
    const __mmask16 few = (__mmask16)r->given, more = (__mmask16)(r->given >> 16);
    __m512 low = _mm512_maskz_loadu_ps(few, r->sums);
    __m512 high = _mm512_maskz_loadu_ps(more, r->sums + 16);
    const int class = parts == 1 ? UNUSUAL_SUMS : INFINITE_SUMS;
    const int unusual = _mm512_fpclass_ps_mask(low, class) | _mm512_fpclass_ps_mask(high, class);
    if (parts == 1) {
        if (__builtin_expect(unusual, 0))
            store_unusual(r->sums, r->place, __builtin_popcount(r->given), m);
        else
            _mm512_mask_storeu_epi16(r->place, r->given, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        return;
    }
    if (__builtin_expect(unusual, 0)) m->fine = 0;
    low *= UNSPLIT_SCALE;
    high *= UNSPLIT_SCALE;
    if (parts == 2) {
        const __m256i first = _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT);
        const __m256i last = _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT);
        _mm512_mask_storeu_epi16(r->place, r->given,
                                 _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1));
    } else {
        _mm512_mask_storeu_ps(r->place, few, low);
        _mm512_mask_storeu_ps(r->place + 64, more, high);
    }
}

/* Of a step's share those from `begin` on, but not beyond `end`. */
INLINE Between store_share(const int parts, Between r, ptrdiff_t begin, ptrdiff_t end, Meanwhile *m) {
    for (ptrdiff_t i = begin; i < MIN(r.share, end); i++) {
        store_sums(parts, &r, m);
        r.sums += r.sums_pitch;
        r.place += r.pitch;
        if (--r.rows == 0) {
            if (m->rows == 0) return (Between){.share = 0};
            r = next_span(m, r.share);
        }
    }
    return r;
}

#endif
