# Blocks of pixels of diff_src that were taken for channels, back to where they belong
# (see _convolution_fold).

cdef extern from "fold.h" nogil:
    enum:
        BLOCK_PITCH
    Py_ssize_t join_runs(const float *sums, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t count,
                         char *dst, Py_ssize_t row_step) noexcept


cdef void store_blocks(const Work *work, const char *c, Py_ssize_t pitch, Py_ssize_t rows,
                       char *dst, Py_ssize_t row_step, Py_ssize_t columns,
                       char *staging) noexcept nogil:
    """Store rows of pixels, of `columns` each, that stand side by side in blocks of channels."""
    cdef Tensor y = work.diff_src
    cdef int dtype = work.result_dtype
    cdef Py_ssize_t size = work.result_size
    cdef Py_ssize_t unit = element_size(dtype)
    cdef Py_ssize_t turns = work.b.fold_w
    cdef Py_ssize_t channels = work.b.input_channels // (work.b.fold_h * turns)
    cdef Py_ssize_t run = turns * channels
    cdef Py_ssize_t step = y.stride[4] // turns
    cdef Py_ssize_t whole = columns // turns
    cdef Py_ssize_t blocks = (columns + turns - 1) // turns
    cdef Py_ssize_t row, j, i
    cdef char *line = staging + BLOCK_PITCH * blocks * size
    cdef const char *src[BLOCK_PITCH]
    if y.stride[1] == unit and step == channels * unit:
        j = 0
        if dtype == BF16 and run < BLOCK_PITCH:
            j = join_runs(<const float *> c, rows, run, whole, dst, row_step)
        for row in range(rows):
            store_rows(dtype, c + (j * pitch + row * run) * size, pitch,
                       dst + row * row_step + j * y.stride[4], y.stride[4], whole - j, run, 0)
            store_row(dtype, c + (whole * pitch + row * run) * size, 1,
                      dst + row * row_step + whole * y.stride[4], unit, columns % turns * channels, 0)
        return
    transpose(size, c, pitch, staging, blocks, NULL, blocks, rows * run)
    for row in range(rows):
        for i in range(channels):
            for j in range(turns):
                src[j] = staging + (row * run + j * channels + i) * blocks * size
            interleave(size, turns, src, columns, line)
            store_row(dtype, line, 1, dst + row * row_step + i * y.stride[1], step, columns, 0)


cdef void store_folded(const Work *work, const Results *r, const Py_ssize_t *count, const char *c,
                       char *staging) noexcept nogil:
    """Store positions whose channels are those of blocks of pixels."""
    cdef Py_ssize_t columns = min(count[2] * work.b.fold_w, work.b.width - r.start_w * work.b.fold_w)
    cdef Py_ssize_t rows = work.b.fold_h
    cdef Py_ssize_t pitch[3]
    cdef Py_ssize_t jd, jh
    cdef const char *source
    class_pitch(work, count, pitch)
    for jd in range(count[0]):
        for jh in range(count[1]):
            source = c + (jd * pitch[0] + jh * pitch[1]) * r.position_pitch * work.result_size
            store_blocks(work, source, r.position_pitch,
                         min(rows, work.b.height - (r.start_h + jh) * rows),
                         r.dst + jd * r.step[0] + jh * r.step[1], r.step[1] // rows, columns,
                         staging)
