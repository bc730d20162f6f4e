# Weights packed into the panels that the tiles stream: all at once, or a chunk at a time by the
# one task that uses it.
#
#   ROWS, COLUMNS, GROUPED of whole vectors
#                   [group][block][chunk][tap][k][width]    a block is one tile's channels
#   DOT             [group][block][chunk][tap][k/2][width][2]
#   PAIRS           [group][block][chunk][tap][k/32][width][32]
#   of parts        see split.pxi
#   GROUPED, DEPTHWISE    [tap][k][lane]                    lanes over all groups

cdef enum:
    LONG_ROW = 1 << 12       # bytes of rows, of which no prefetcher follows short pieces
    PACK_PIECE = 256         # of such a row, what is asked for at a time
    PACK_CHANNELS = 512      # channels of diff_dst packed at a time: the panel's part stays in L1
    PACK_AHEAD = 16          # rows of a tap that are asked for before they are packed
    FEW_CHANNELS = 64        # of a row, which prefetchers do not follow to the next ones
    PACK_STAGED = 2048       # elements of a tap that are staged to be transformed
    PACK_RUN = 128           # columns of a strip that is transposed, where taps of many k are a row

cdef extern from "finite.h" nogil:
    int all_finite(int f64, const void *x, Py_ssize_t n) noexcept
    int all_finite_bf16(const unsigned short *x, Py_ssize_t n) noexcept
    int all_finite_of(int dtype, const void *x, Py_ssize_t n) noexcept


cdef extern from "lanes.h" nogil:
    void gather_lanes(int size, Py_ssize_t n, const char *src, Py_ssize_t group_step,
                      Py_ssize_t step, Py_ssize_t groups, void *dst) noexcept


cdef inline Py_ssize_t run_places(Py_ssize_t taps) noexcept nogil:
    return max(taps, PACK_RUN)


cdef inline Py_ssize_t place_bytes(Py_ssize_t taps) noexcept nogil:
    """Return the bytes of places and of a strip of rows that is transposed."""
    cdef Py_ssize_t rows = TRANSPOSE_ROWS * max(taps, PACK_CHANNELS) * sizeof(double)
    return (run_places(taps) * sizeof(Py_ssize_t) + rows + 63) // 64 * 64


cdef inline const char *tap_data(const Weights *w, Py_ssize_t group, Py_ssize_t t) noexcept nogil:
    cdef const Py_ssize_t *tap = w.tap + 3 * t
    return (w.data + group * w.stride[0] + tap[0] * w.stride[3] + tap[1] * w.stride[4]
            + tap[2] * w.stride[5])


cdef inline bint taps_in_runs(const Weights *w) noexcept nogil:
    """Return whether the taps of a weight lie side by side."""
    return w.order == BY_TAP or w.order == BY_SUM


cdef inline int finite_rows(const Weights *w, const char *src, Py_ssize_t rows,
                            Py_ssize_t cols) noexcept nogil:
    """Return whether rows of weights are finite, where nobody looks at the panel for that.

    Each is contiguous, and belongs to another input channel.
    """
    cdef Py_ssize_t r
    cdef int finite = 1
    if not w.streams or w.exact:
        return 1
    if w.stride[2] == cols * w.unit:
        return all_finite_of(w.dtype, src, rows * cols)
    for r in range(rows):
        finite &= all_finite_of(w.dtype, src + r * w.stride[2], cols)
    return finite


cdef int transpose_rows(const Weights *w, const char *src, char *dst, Py_ssize_t dst_pitch,
                        const Py_ssize_t *place, Py_ssize_t rows, Py_ssize_t cols,
                        char *staging) noexcept nogil:
    """Transpose rows of input channels, each contiguous in the weights, converting on the way.

    Return finite_rows of them.
    """
    cdef Py_ssize_t strip, r, j, height, pitch
    cdef const char *rows_of
    cdef int finite = 1
    for strip in range((rows + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
        r = strip * TRANSPOSE_ROWS
        height = min(TRANSPOSE_ROWS, rows - r)
        rows_of, pitch = src + r * w.stride[2], w.stride[2] // w.unit
        finite &= finite_rows(w, rows_of, height, cols)
        if w.size != w.unit:
            if w.stride[2] == cols * w.unit:  # short rows, one after the other
                load_row(w.load_dtype, rows_of, w.unit, height * cols, staging)
            else:
                for j in range(height):
                    load_row(w.load_dtype, rows_of + j * w.stride[2], w.unit, cols,
                             staging + j * cols * w.size)
            rows_of, pitch = staging, cols
        transpose_to(w.streams, w.size, rows_of, pitch, dst + r * w.size, dst_pitch, place, height,
                     cols)
    return finite


cdef Py_ssize_t place_run(const Weights *w, Py_ssize_t most, Py_ssize_t tap_pitch,
                          Py_ssize_t k_pitch, Py_ssize_t *place) noexcept nogil:
    """Tell where the taps of up to `most` k in a row go; return of how many."""
    cdef Py_ssize_t count = max(1, min(most, run_places(w.taps) // w.taps))
    cdef Py_ssize_t k, t
    for k in range(count):
        for t in range(w.taps):
            place[k * w.taps + t] = w.rank[t] * tap_pitch + k * k_pitch
    return count


cdef int pack_rows(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t low,
                   Py_ssize_t high, char *dst, Py_ssize_t tap_pitch, char *staging) noexcept nogil:
    """Pack dst[t][k][i] for k in [low, high) of one block; pitches tap_pitch and the block's width.

    Return finite_rows of them.
    """
    cdef Py_ssize_t valid = block[1]
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t *place = <Py_ssize_t *> staging
    cdef char *rows = staging + run_places(w.taps) * sizeof(Py_ssize_t)
    cdef Py_ssize_t t, k, step
    cdef int finite = 1
    cdef const char *src
    if taps_in_runs(w):
        step = place_run(w, high - low if w.order == BY_SUM else 1, tap_pitch, width, place)
        k = low
        while k < high:
            src = w.data + group * w.stride[0] + k * w.stride[1] + block[0] * w.stride[2]
            if w.ahead:
                fetch_ahead(src, w.stride[1], w.ahead * step, w.ahead * step + 1,
                            step * valid * w.taps * w.unit)
            finite &= transpose_rows(w, src, dst + (k - low) * width * w.size, 0, place, valid,
                                     min(step, high - k) * w.taps, rows)
            k += step
    else:
        for t in range(w.taps):
            src = tap_data(w, group, t) + low * w.stride[1] + block[0] * w.stride[2]
            if w.order == BY_OUTPUT:
                if w.ahead and high - low <= FEW_CHANNELS:
                    fetch_ahead(src + (high - low) * w.unit, w.stride[2], 0, valid,
                                (high - low) * w.unit)
                finite &= transpose_rows(w, src, dst + t * tap_pitch * w.size, width, NULL, valid,
                                         high - low, rows)
            else:
                for k in range(high - low):
                    if w.ahead:
                        fetch_ahead(src + k * w.stride[1], w.stride[1], PACK_AHEAD, PACK_AHEAD + 1,
                                    valid * w.unit + 63)
                    load_row(w.load_dtype, src + k * w.stride[1], w.stride[2], valid,
                             dst + (t * tap_pitch + k * width) * w.size)
    if valid < width:
        for t in range(w.taps):
            for k in range(high - low):
                memset(dst + (t * tap_pitch + k * width + valid) * w.size, 0,
                       (width - valid) * w.size)
    return finite


cdef int pack_panel(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                    Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block; return whether all of it is finite, or need not be."""
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t checked = 0 if w.streams or w.exact else w.taps
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high, t
    cdef char *dst
    cdef int finite = 1
    while low < chunk:
        high = min(chunk, low + PACK_CHANNELS)
        dst = panel + low * width * w.size
        finite &= pack_rows(w, group, block, first + low, first + high, dst, chunk * width, staging)
        for t in range(checked):
            finite &= all_finite(w.f64, dst + t * chunk * width * w.size, (high - low) * width)
        low = high
    return finite


cdef int pack_filters(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                      Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block, each filter transformed.

    What is not finite shows in the results.
    """
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t planes = w.taps // FILTER_TAPS      # of filters, in depth
    cdef float *rows = <float *> (staging + place_bytes(w.taps))
    cdef float *dst = <float *> panel
    cdef Py_ssize_t k = 0
    cdef Py_ssize_t count, plane
    while k < chunk:
        count = min(PACK_STAGED // width, chunk - k)
        pack_rows(w, group, block, first + k, first + k + count, <char *> rows, count * width, staging)
        for plane in range(planes):
            transform_filters(rows + plane * FILTER_TAPS * count * width, count * width, count * width,
                              dst + (plane * chunk + k) * width, planes * chunk * width)
        k += count
    return 1


cdef int pack_pairs_by_rows(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                            Py_ssize_t first, Py_ssize_t chunk, Py_ssize_t begin,
                            Py_ssize_t pairs, char *panel, char *staging) noexcept nogil:
    """Pack pairs `begin` and on of a chunk's panel by two rows; rows past the chunk are zero.

    Return finite_rows of them.
    """
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t pair, k, t
    cdef char *rows = staging + place_bytes(w.taps)
    cdef const unsigned short *row
    cdef int finite = 1
    for pair in range(begin, pairs):
        k = 2 * pair
        if k + 1 >= chunk:
            memset(rows, 0, w.taps * 2 * width * 2)
        if k < chunk:
            finite &= pack_rows(w, group, block, first + k, first + min(k + 2, chunk), rows,
                                2 * width, staging)
        for t in range(w.taps):
            row = <const unsigned short *> rows + t * 2 * width
            zip_pairs(row, row + width,
                      <unsigned int *> panel + (t * pairs + pair) * width, width)
    return finite


cdef int pack_pairs_by_taps(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                            Py_ssize_t first, Py_ssize_t pairs, char *panel, Py_ssize_t pitch,
                            char *staging) noexcept nogil:
    """Pack pairs whose taps are contiguous; a tap's part of the panel is `pitch` bytes."""
    cdef Py_ssize_t *place = <Py_ssize_t *> staging
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t pair, strip, i, height
    cdef const char *src
    cdef const char *even
    cdef const char *odd
    cdef int finite = 1
    place_run(w, 1, pitch, 0, place)
    for pair in range(pairs):
        src = w.data + group * w.stride[0] + (first + 2 * pair) * w.stride[1]
        if w.ahead:
            fetch_ahead(src + block[0] * w.stride[2], w.stride[1], 2 * w.ahead, 2 * w.ahead + 2,
                        block[1] * w.taps * w.unit)
        for strip in range((block[1] + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
            i = strip * TRANSPOSE_ROWS
            height = min(TRANSPOSE_ROWS, block[1] - i)
            even = src + (block[0] + i) * w.stride[2]
            odd = even + w.stride[1]
            finite &= finite_rows(w, even, height, w.taps) & finite_rows(w, odd, height, w.taps)
            strip_pairs(w.streams, <const unsigned short *> even, <const unsigned short *> odd,
                        w.stride[2] // w.unit, 0, panel + (pair * width + i) * 4, 0, place, height,
                        w.taps)
    return finite


cdef int pack_pairs_by_sums(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                            Py_ssize_t first, Py_ssize_t pairs, char *panel, Py_ssize_t pitch,
                            char *staging) noexcept nogil:
    """Pack pairs whose taps and k are contiguous; a tap's part of the panel is `pitch` bytes."""
    cdef Py_ssize_t *place = <Py_ssize_t *> staging
    cdef unsigned int *rows = <unsigned int *> (staging + run_places(w.taps) * sizeof(Py_ssize_t))
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t step = place_run(w, pairs, pitch // 4, width, place)
    cdef Py_ssize_t strip, i, r, pair, height, count
    cdef const char *src
    cdef int finite = 1
    for strip in range((block[1] + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
        i = strip * TRANSPOSE_ROWS
        height = min(TRANSPOSE_ROWS, block[1] - i)
        src = w.data + group * w.stride[0] + first * w.stride[1] + (block[0] + i) * w.stride[2]
        finite &= finite_rows(w, src, height, 2 * pairs * w.taps)
        pair = 0
        while pair < pairs:
            count = min(step, pairs - pair)
            for r in range(height):
                zip_runs(<const unsigned short *> (src + r * w.stride[2] + 2 * pair * w.stride[1]),
                         w.taps, rows + r * count * w.taps, count)
            transpose_to(w.streams, 4, rows, count * w.taps, panel + (pair * width + i) * 4, 0, place,
                         height, count * w.taps)
            pair += count
    return finite


cdef int pack_pairs_by_inputs(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                              Py_ssize_t first, Py_ssize_t chunk, Py_ssize_t t, char *panel,
                              char *staging) noexcept nogil:
    """Pack the pairs of a tap that lie side by side in the row of each channel of diff_src.

    A pair is an element of four bytes. Rows of an odd number, or an odd number of elements apart, are
    copied first, and end with a zero.
    """
    cdef Py_ssize_t pitch = PACK_CHANNELS * 2
    cdef bint whole = chunk % 2 == 0 and w.stride[2] % 4 == 0
    cdef Py_ssize_t most = PACK_RUN if whole and w.ahead else PACK_CHANNELS
    cdef Py_ssize_t strip, i, r, low, count, height
    cdef const char *src = tap_data(w, group, t) + first * w.stride[1] + block[0] * w.stride[2]
    cdef const char *rows
    cdef char *dst
    cdef int finite = finite_rows(w, src, block[1], chunk)
    for strip in range((block[1] + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
        i = strip * TRANSPOSE_ROWS
        height = min(TRANSPOSE_ROWS, block[1] - i)
        low = 0
        while low < chunk:
            count = min(most, chunk - low)
            rows = src + i * w.stride[2] + 2 * low
            dst = panel + 4 * (low // 2 * block[2] + i)
            if w.ahead:
                fetch_ahead(rows + TRANSPOSE_ROWS * w.stride[2], w.stride[2], 0, height, 2 * count)
            if whole:
                transpose_to(w.streams, 4, rows, w.stride[2] // 4, dst, block[2], NULL, height,
                             count // 2)
            else:
                copy_rows(rows, w.stride[2], staging, pitch, height, 2 * count)
                if count % 2:
                    for r in range(height):
                        memset(staging + r * pitch + 2 * count, 0, 2)
                transpose_to(w.streams, 4, staging, pitch // 4, dst, block[2], NULL, height,
                             (count + 1) // 2)
            low += count
    return finite


cdef inline Py_ssize_t bytes_ahead(const Weights *w, const Py_ssize_t *block) noexcept nogil:
    """Return how far on what later blocks read of long rows is to be asked for, or 0 for not now.

    Memory gives away a line of a row at a time a third slower than some together.
    """
    cdef Py_ssize_t begin = block[0] * w.unit
    cdef Py_ssize_t piece = (begin + block[1] * w.unit) // PACK_PIECE
    if not w.ahead or w.stride[1] < LONG_ROW or begin // PACK_PIECE == piece:
        return 0
    return (piece + 1) * PACK_PIECE - begin


cdef int pack_pairs(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                    Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block for DOT, k in pairs; return whether all of it is finite.

    The last k of an odd number has zeros beside it.
    """
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t pairs = (chunk + w.depth - 1) // w.depth * w.depth // 2
    cdef Py_ssize_t t, pair, ahead
    cdef int finite = 1
    cdef const char *src
    if w.order == SCATTERED:
        pack_pairs_by_rows(w, group, block, first, chunk, 0, pairs, panel, staging)
        return all_finite_bf16(<const unsigned short *> panel, w.taps * pairs * 2 * width)
    if block[1] < width or chunk < 2 * pairs:
        memset(panel, 0, w.taps * pairs * width * 4)
    if w.order == BY_TAP:
        finite = pack_pairs_by_taps(w, group, block, first, chunk // 2, panel, pairs * width * 4,
                                    staging)
    elif w.order == BY_SUM:
        finite = pack_pairs_by_sums(w, group, block, first, chunk // 2, panel, pairs * width * 4,
                                    staging)
    for t in range(w.taps):
        if w.order == BY_OUTPUT:
            finite &= pack_pairs_by_inputs(w, group, block, first, chunk, t,
                                           panel + t * pairs * width * 4, staging)
        elif w.order == BY_INPUT:
            src = tap_data(w, group, t) + first * w.stride[1] + block[0] * w.stride[2]
            ahead = bytes_ahead(w, block)
            for pair in range(chunk // 2):
                if ahead:
                    fetch_ahead(src + ahead, w.stride[1], 2 * pair, 2 * pair + 2, PACK_PIECE)
                zip_pairs(<const unsigned short *> (src + 2 * pair * w.stride[1]),
                          <const unsigned short *> (src + (2 * pair + 1) * w.stride[1]),
                          <unsigned int *> panel + (t * pairs + pair) * width, block[1])
    if chunk % 2 and w.order != BY_OUTPUT:
        finite &= pack_pairs_by_rows(w, group, block, first, chunk, chunk // 2, pairs, panel, staging)
    if w.streams:
        return finite
    return all_finite_bf16(<const unsigned short *> panel, w.taps * pairs * 2 * width)


cdef int pack_tiles(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                    Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block for PAIRS, k innermost; return whether all of it is finite."""
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t steps = (chunk + DOT_K - 1) // DOT_K
    cdef Py_ssize_t tap_bytes = steps * width * DOT_K * 2
    cdef Py_ssize_t *place = <Py_ssize_t *> staging
    cdef Py_ssize_t step, t, i, k, count, even
    cdef Py_ssize_t pitch = 2 * w.stride[1] // w.unit
    cdef const char *src
    cdef const char *row
    cdef char *dst
    if block[1] < width or chunk % DOT_K:
        memset(panel, 0, w.taps * tap_bytes)
    if taps_in_runs(w):
        place_run(w, 1, tap_bytes, 0, place)
    for step in range(steps):
        k = step * DOT_K
        count = min(DOT_K, chunk - k)
        even = 0
        if taps_in_runs(w):
            even = count // 2 * 2
            src = w.data + group * w.stride[0] + (first + k) * w.stride[1] + block[0] * w.stride[2]
            for i in range(block[1]):
                row = src + i * w.stride[2]
                strip_pairs(0, <const unsigned short *> row,
                            <const unsigned short *> (row + w.stride[1]), pitch, 0,
                            panel + (k * width + i * DOT_K) * 2, 0, place, even // 2, w.taps)
        for t in range(w.taps):
            src = tap_data(w, group, t) + (first + k) * w.stride[1] + block[0] * w.stride[2]
            dst = panel + t * tap_bytes + k * width * 2
            if w.order == BY_INPUT:
                even = count // 2 * 2
                strip_pairs(0, <const unsigned short *> src,
                            <const unsigned short *> (src + w.stride[1]), pitch, 0, dst,
                            DOT_K * 2, NULL, even // 2, block[1])
            if even < count:
                for i in range(block[1]):
                    load_row(RAW16, src + i * w.stride[2] + even * w.stride[1], w.stride[1],
                             count - even, dst + (i * DOT_K + even) * 2)
    return all_finite_bf16(<const unsigned short *> panel, w.taps * tap_bytes // 2)


cdef int pack_chunk(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                    Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block; return whether all of it is finite.

    Where it is split, what is not shows in the results.
    """
    cdef Weights single
    if w.parts > 1:
        split_panel(w, group, block, first, chunk, panel, staging)
        return 1
    if w.tiles:
        return pack_tiles(w, group, block, first, chunk, panel, staging)
    if w.parts:
        return pack_pairs(w, group, block, first, chunk, panel, staging)
    if w.paired:
        single = w[0]
        single.size = w.unit
        return pack_pairs(&single, group, block, 2 * first, 2 * chunk, panel, staging)
    if w.panel_taps != w.taps:
        return pack_filters(w, group, block, first, chunk, panel, staging)
    return pack_panel(w, group, block, first, chunk, panel, staging)


cdef int pair_lanes(const Weights *w, const char *src, unsigned short *dst) noexcept nogil:
    """Pack two rows of k of all groups; return whether all of them are finite."""
    cdef Py_ssize_t group, i, k
    for group in range(w.groups):
        for i in range(w.inputs):
            for k in range(2):
                dst[2 * (group * w.inputs + i) + k] = (<const unsigned short *> (
                    src + group * w.stride[0] + i * w.stride[2] + k * w.stride[1]))[0]
    return all_finite_bf16(dst, 2 * w.groups * w.inputs)


cdef int pack_lanes(const Weights *w, Py_ssize_t t, char *panel, char *staging) noexcept nogil:
    """Pack one tap of all groups over the lanes; return whether all of it is finite."""
    cdef Py_ssize_t inputs = w.inputs
    cdef Py_ssize_t k, group, groups
    cdef Py_ssize_t staged = place_bytes(w.taps) // (inputs * w.unit)
    cdef Py_ssize_t row = w.group_panel * w.size
    cdef Py_ssize_t used = w.groups * inputs * w.size
    cdef const char *src
    cdef char *dst = panel + t * w.channels * row
    cdef int finite = 1
    for k in range(w.channels):
        src = tap_data(w, 0, t) + k * (1 + w.paired) * w.stride[1]
        # Lanes that nobody reads are multiplied, too: subnormals there took up to 77 times as long.
        memset(dst + used, 0, row - used)
        if w.paired:
            finite &= pair_lanes(w, src, <unsigned short *> dst)
            dst += row
            continue
        if inputs == 1:
            load_row(w.load_dtype, src, w.stride[0], w.groups, dst)
        elif w.size == w.unit:
            gather_lanes(<int> w.unit, inputs, src, w.stride[0], w.stride[2], w.groups, dst)
        else:
            group = 0
            while group < w.groups:
                groups = min(staged, w.groups - group)
                gather_lanes(<int> w.unit, inputs, src + group * w.stride[0], w.stride[0],
                             w.stride[2], groups, staging)
                load_row(w.load_dtype, staging, w.unit, groups * inputs,
                         dst + group * inputs * w.size)
                group += groups
        finite &= all_finite(w.f64, dst, w.groups * inputs)
        dst += row
    return finite


cdef inline Py_ssize_t chunks_of(const Weights *w) noexcept nogil:
    return (w.channels + w.chunk - 1) // w.chunk


cdef inline Py_ssize_t pieces_of(const Weights *w) noexcept nogil:
    """Count what threads pack side by side: taps over the lanes, or chunks of blocks."""
    return w.taps if w.over_groups else w.groups * w.blocks * chunks_of(w)


cdef int pack_part(const Weights *w, Py_ssize_t number, char *packed, char *staging) noexcept nogil:
    """Pack one chunk of one block of one group, where all of them are."""
    cdef Py_ssize_t chunk = number % chunks_of(w)
    cdef Py_ssize_t group = number // chunks_of(w) // w.blocks
    cdef const Py_ssize_t *block = w.block + 4 * (number // chunks_of(w) % w.blocks)
    cdef Py_ssize_t first = chunk * w.chunk
    cdef Py_ssize_t rows = (w.chunk + w.depth - 1) // w.depth * w.depth if w.parts else w.chunk
    cdef int finite
    packed += (group * w.group_panel + block[3] + w.panel_taps * chunk * rows * block[2]) * w.size
    finite = pack_chunk(w, group, block, first, min(w.chunk, w.channels - first), packed, staging)
    if w.streams:
        end_streams()
    return finite


cdef int pack_piece(const Weights *w, Py_ssize_t number, char *packed, char *staging) noexcept nogil:
    """Pack a tap over the lanes, or a chunk of a block; return whether all of it is finite."""
    if w.over_groups:
        return pack_lanes(w, number, packed, staging)
    return pack_part(w, number, packed, staging)


cdef int read_weights(weights, Weights *w) except -1:
    """Complete a plan's description of the panels with where the weights lie."""
    cdef Py_ssize_t axis, dense
    cdef Py_ssize_t shape[6]
    cdef Py_ssize_t step = w.unit
    w.data = read_array(weights, False, 6, shape, w.stride)
    dense = w.rank != NULL
    for axis in range(5, 2, -1):
        dense = dense and (shape[axis] == 1 or w.stride[axis] == step)
        step *= shape[axis]
    if w.stride[2] == w.unit or w.inputs == 1:
        w.order = BY_INPUT
    elif w.stride[1] == w.unit or (w.taps == 1 and w.channels == 1):
        w.order = BY_OUTPUT
    elif dense:
        w.order = BY_SUM if w.stride[1] == step else BY_TAP
    else:
        w.order = SCATTERED
    return 0


def pack_staging(Py_ssize_t taps, int parts, bint winograd):
    """Return the bytes of scratch that packing needs for each thread."""
    # Rows of a panel's width: a pair of bfloat16, a step of floats that are to be split, or some that
    # are to be transformed.
    cdef Py_ssize_t row = 2 * DOT_COLUMNS * (DOT_K * 4 if parts > 1 else 2 * 2)
    if winograd:
        row = PACK_STAGED * sizeof(float)
    return place_bytes(taps) + taps * row + 64
