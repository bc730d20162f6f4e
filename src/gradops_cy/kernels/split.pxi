# float32 and float16 in bfloat16 parts: how they come into the window and the panels of AMX.
#
#   window    [entry][channel/32][part][16][2]          channels i and 16 + i of each 32 are a pair
#   panels    [group][block][chunk][tap][k/32][part][16][width][2]
#
# and of PAIRS, [segment][channel/32][part][16][entry][2] and [group]...[tap][k/32][part][width][16][2].

cdef extern from "split.h" nogil:
    void split_row(int dtype, const char *src, Py_ssize_t n, char *dst) noexcept
    void zip_split(int dtype, const char *low, const char *high, Py_ssize_t n, char *dst,
                   Py_ssize_t pitch) noexcept
    void split_step(int dtype, const float *row, char *dst, Py_ssize_t pitch) noexcept
    void split_rows(int dtype, const float *rows, Py_ssize_t width, char *dst) noexcept
    int unsplit(float *x, Py_ssize_t pitch, Py_ssize_t rows, Py_ssize_t n) noexcept


cdef void split_run(const Work *work, const char *src, Py_ssize_t src_step, char *dst,
                    Py_ssize_t entry_pitch, Py_ssize_t entries, Py_ssize_t channels,
                    char *staging) noexcept nogil:
    """Pack `entries` equidistant source positions."""
    cdef Py_ssize_t channel_stride = work.diff_dst.stride[1]
    cdef int dtype = work.b.dtype
    cdef Py_ssize_t unit = element_size(dtype)
    cdef Py_ssize_t pitch = entry_pitch * work.window_size
    cdef Py_ssize_t rows, i, j
    cdef char *square = staging + DOT_K * entries * unit
    if channels == entry_pitch and channel_stride == unit and src_step == channels * unit:
        split_row(dtype, src, entries * channels, dst)
        return
    if channel_stride == unit or channels == 1:
        for j in range(entries):
            split_row(dtype, src + j * src_step, channels, dst + j * pitch)
        return
    while channels > 0:
        rows = min(DOT_K, channels)
        if src_step == unit:
            transpose(unit, src, channel_stride // unit, square, DOT_K, NULL, rows, entries)
        else:
            for i in range(rows):
                load_row(RAW16 if unit == 2 else dtype, src + i * channel_stride, src_step, entries,
                         staging + i * entries * unit)
            transpose(unit, staging, entries, square, DOT_K, NULL, rows, entries)
        for j in range(entries):
            split_row(dtype, square + j * DOT_K * unit, rows, dst + j * pitch)
        src += DOT_K * channel_stride
        dst += DOT_K * work.window_size
        channels -= DOT_K


cdef void split_tap(const Weights *w, const float *rows, Py_ssize_t width, char *dst,
                    float *across) noexcept nogil:
    """Pack a step of 32 rows of one tap."""
    cdef Py_ssize_t i
    if not w.tiles:
        split_rows(w.dtype, rows, width, dst)
        return
    transpose(sizeof(float), rows, width, across, DOT_K, NULL, DOT_K, width)
    for i in range(width):
        split_step(w.dtype, across + i * DOT_K, dst + i * DOT_K * 2, width * DOT_K * 2)


cdef void split_steps(const Weights *w, const Weights *real, Py_ssize_t group,
                      const Py_ssize_t *block, Py_ssize_t first, Py_ssize_t chunk, Py_ssize_t tap,
                      char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block, the taps of `real`, which begin at `tap`."""
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t step_rows = DOT_K * width
    cdef Py_ssize_t steps = (chunk + DOT_K - 1) // DOT_K
    cdef float *rows = <float *> (staging + place_bytes(w.taps))
    cdef Py_ssize_t step, t, low, high
    for step in range(steps):
        low, high = step * DOT_K, min((step + 1) * DOT_K, chunk)
        pack_rows(real, group, block, first + low, first + high, <char *> rows, step_rows, staging)
        for t in range(real.taps):
            memset(rows + t * step_rows + (high - low) * width, 0,
                   (step_rows - (high - low) * width) * sizeof(float))
            split_tap(w, rows + t * step_rows, width,
                      panel + ((tap + t) * steps + step) * step_rows * w.size, <float *> staging)


cdef void split_panel(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                      Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block: all taps at once only where they lie side by side."""
    cdef Weights real = w[0]
    cdef Py_ssize_t t
    real.size = sizeof(float)
    if taps_in_runs(w):
        split_steps(w, &real, group, block, first, chunk, 0, panel, staging)
        return
    real.taps = 1
    for t in range(w.taps):
        real.tap = w.tap + 3 * t
        split_steps(w, &real, group, block, first, chunk, t, panel, staging)
