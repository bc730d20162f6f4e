# float32 and float16 in bfloat16 parts: how they come into the window and the panels of AMX.
#
#   window    [entry][channel/32][part][16][2]          channels i and 16 + i of each 32 are a pair
#   panels    [group][block][chunk][tap][k/32][part][16][width][2]

cdef extern from "split.h" nogil:
    void split_row(int dtype, const char *src, Py_ssize_t n, char *dst) noexcept
    void split_rows(int dtype, const float *rows, Py_ssize_t width, char *dst) noexcept
    int unsplit(float *x, Py_ssize_t n) noexcept


cdef void split_run(const Work *work, const char *src, Py_ssize_t src_step, char *dst,
                    Py_ssize_t entry_pitch, Py_ssize_t entries, Py_ssize_t channels,
                    char *staging) noexcept nogil:
    """Pack `entries` equidistant source positions."""
    cdef Py_ssize_t channel_stride = work.diff_dst.stride[1]
    cdef int dtype = work.b.dtype
    cdef Py_ssize_t unit = element_size(dtype)
    cdef Py_ssize_t pitch = entry_pitch * work.window_size
    cdef Py_ssize_t rows, i, j
    cdef char *square = staging + AMX_K * entries * unit
    if channels == entry_pitch and channel_stride == unit and src_step == channels * unit:
        split_row(dtype, src, entries * channels, dst)
        return
    if channel_stride == unit or channels == 1:
        for j in range(entries):
            split_row(dtype, src + j * src_step, channels, dst + j * pitch)
        return
    while channels > 0:
        rows = min(AMX_K, channels)
        if src_step == unit:
            transpose(unit, src, channel_stride // unit, square, AMX_K, NULL, rows, entries)
        else:
            for i in range(rows):
                load_row(RAW16 if unit == 2 else dtype, src + i * channel_stride, src_step, entries,
                         staging + i * entries * unit)
            transpose(unit, staging, entries, square, AMX_K, NULL, rows, entries)
        for j in range(entries):
            split_row(dtype, square + j * AMX_K * unit, rows, dst + j * pitch)
        src += AMX_K * channel_stride
        dst += AMX_K * work.window_size
        channels -= AMX_K


cdef void split_panel(const Weights *w, Py_ssize_t group, const Py_ssize_t *block, Py_ssize_t first,
                      Py_ssize_t chunk, char *panel, char *staging) noexcept nogil:
    """Pack one chunk of one block."""
    cdef Weights real = w[0]
    cdef Py_ssize_t width = block[2]
    cdef Py_ssize_t step_bytes = AMX_K * width * w.size
    cdef Py_ssize_t steps = (chunk + AMX_K - 1) // AMX_K
    cdef Py_ssize_t step_rows = AMX_K * width
    cdef float *rows = <float *> (staging + place_bytes(w.taps))
    cdef Py_ssize_t step, t, low, high
    real.size = sizeof(float)
    for step in range(steps):
        low, high = step * AMX_K, min((step + 1) * AMX_K, chunk)
        pack_rows(&real, group, block, first + low, first + high, <char *> rows, step_rows, staging)
        for t in range(w.taps):
            memset(rows + t * step_rows + (high - low) * width, 0,
                   (step_rows - (high - low) * width) * sizeof(float))
            split_rows(w.dtype, rows + t * step_rows, width,
                       panel + (t * steps + step) * step_bytes)
