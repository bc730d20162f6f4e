# From the sums of residue classes in scratch to diff_src, rounded once.

cdef extern from "interleave.h" nogil:
    void interleave(int size, Py_ssize_t streams, const char **src, Py_ssize_t n,
                    void *dst) noexcept
    void deal_out(int size, Py_ssize_t streams, const void *src, Py_ssize_t n, void *dst,
                  Py_ssize_t pitch) noexcept

cdef extern from "turned.h" nogil:
    enum:
        MOST_STREAMS
    void store_turned(int dtype, Py_ssize_t streams, Py_ssize_t run, Py_ssize_t skip,
                      const char *const *src, Py_ssize_t pitch, Py_ssize_t n, Py_ssize_t channels,
                      char *dst, Py_ssize_t dst_pitch) noexcept


# Where a task's results go, and the classes that wait to be stored with others.
cdef struct Results:
    char *dst                           # diff_src at the block's first position of residue 0
    Py_ssize_t channels
    Py_ssize_t channel_pitch            # of scratch, in elements
    Py_ssize_t position_pitch
    Py_ssize_t step[3]                  # of diff_src, from position to position of a class
    bint past                           # rows of positions go past the caches, nothing is added
    Py_ssize_t start_h
    Py_ssize_t start_w
    Py_ssize_t streams
    Py_ssize_t taps                     # of the classes that wait
    const char *waiting[MOST_STREAMS]
    Py_ssize_t pitch[MOST_STREAMS][3]
    Py_ssize_t total                    # positions that wait


cdef void expect_results(const Work *work, const Task *task, Py_ssize_t group,
                         const Py_ssize_t *pixels, Results *r) noexcept nogil:
    """Tell where results go: `pixels` of diff_src from position to position on each axis."""
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t first = work.block[4 * task.block_begin]
    cdef Py_ssize_t last = task.block_end - 1
    cdef Py_ssize_t axis
    r.channels = work.block[4 * last] + work.block[4 * last + 1] - first
    r.channel_pitch, r.position_pitch = 1, work.b.result_pitch
    if channels_first(work):
        r.channel_pitch, r.position_pitch = work.b.result_pitch, 1
    r.dst = y.data + task.image * y.stride[0]
    r.dst += (group * work.b.input_channels + first) * y.stride[1]
    for axis in range(3):
        r.step[axis] = y.stride[2 + axis] * pixels[axis]
        r.dst += task.start[axis] * r.step[axis]
    r.start_h, r.start_w = task.start[1], task.start[2]
    r.past = False
    r.streams = r.taps = r.total = 0


cdef void store_line(const Work *work, const Results *r, const char *c, char *dst, Py_ssize_t count,
                     char *staging) noexcept nogil:
    """Store `count` positions of a row.

    The inner loop runs along the axis on which diff_src is denser; where scratch lies the other
    way round, it is transposed first, a strip at a time.
    """
    cdef Py_ssize_t channel_stride = work.diff_src.stride[1]
    cdef Py_ssize_t channels = r.channels
    cdef int dtype = work.result_dtype
    cdef int add = work.accumulate
    cdef Py_ssize_t size = work.result_size
    cdef Py_ssize_t step = r.step[2]
    cdef Py_ssize_t j, i, rows, strip
    cdef bint plain = element_size(dtype) == size and not add
    cdef char *converted = staging + TRANSPOSE_ROWS * count * size
    cdef char *line
    cdef char *target
    if magnitude(channel_stride) < magnitude(step):
        if r.channel_pitch == 1 and channel_stride == element_size(dtype):
            store_rows(dtype, c, r.position_pitch, dst, step, count, channels, add)
            return
        if r.channel_pitch == 1:
            for j in range(count):
                store_row(dtype, c + j * r.position_pitch * size, 1, dst + j * step, channel_stride,
                          channels, add)
            return
        if channel_stride == element_size(dtype) and not add:
            store_turned(dtype, 1, 1, 0, &c, r.channel_pitch, channels, count, dst, step)
            return
        for strip in range((count + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
            j = strip * TRANSPOSE_ROWS
            rows = min(TRANSPOSE_ROWS, count - j)
            transpose(size, c + j * size, r.channel_pitch, staging, channels, NULL, channels, rows)
            for i in range(rows):
                store_row(dtype, staging + i * channels * size, 1, dst + (j + i) * step,
                          channel_stride, channels, add)
    else:
        if r.position_pitch == 1:
            for j in range(channels):
                store_row(dtype, c + j * r.channel_pitch * size, 1, dst + j * channel_stride, step,
                          count, add)
            return
        if step == element_size(dtype) and not add and not r.past:
            store_turned(dtype, 1, 1, 0, &c, r.position_pitch, count, channels, dst,
                         channel_stride)
            return
        for strip in range((channels + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
            j = strip * TRANSPOSE_ROWS
            rows = min(TRANSPOSE_ROWS, channels - j)
            transpose(size, c + j * size, r.position_pitch, staging, count, NULL, count, rows)
            for i in range(rows):
                line, target = staging + i * count * size, dst + (j + i) * channel_stride
                if not r.past:
                    store_row(dtype, line, 1, target, step, count, add)
                    continue
                if not plain:
                    # A row after those of the strip.
                    store_row(dtype, line, 1, converted, step, count, 0)
                    line = converted
                stream(line, target, count * step)


cdef inline bint narrow_rows(const Work *work, const Results *r, const Py_ssize_t *count,
                             const Py_ssize_t *pitch) noexcept nogil:
    """Return whether rows of positions are parts of vectors, which are best stored many at a time."""
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    # Squares that are transposed are no more than for each row by itself.
    return (not work.accumulate and r.step[2] == unit and count[1] > 1
            and count[2] * unit <= VECTOR_BYTES
            and pitch[1] <= (count[2] + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS * TRANSPOSE_ROWS)


cdef void store_narrow(const Work *work, const Results *r, const char *c, Py_ssize_t pitch, char *dst,
                       Py_ssize_t rows, Py_ssize_t width, char *staging) noexcept nogil:
    """Store `rows` rows of `width` positions, which follow each other every `pitch` in scratch.

    They are transposed and rounded as one.
    """
    cdef Py_ssize_t size = work.result_size
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t count = (rows - 1) * pitch + width
    cdef Py_ssize_t j = 0
    cdef Py_ssize_t i, channels
    cdef const char *line
    while j < r.channels:
        channels = min(TRANSPOSE_ROWS, r.channels - j)
        line = c + j * r.channel_pitch * size
        if r.position_pitch != 1:
            store_turned(work.result_dtype, 1, 1, 0, &line, r.position_pitch, count, channels, staging,
                         count * unit)
        else:
            for i in range(channels):
                store_row(work.result_dtype, line + i * r.channel_pitch * size, 1,
                          staging + i * count * unit, unit, count, 0)
        for i in range(channels):
            copy_rows(staging + i * count * unit, pitch * unit,
                      dst + (j + i) * work.diff_src.stride[1], r.step[1], rows, width * unit)
        j += channels


cdef void store_streams(const Work *work, const Results *r, const Py_ssize_t *residue,
                        Py_ssize_t planes, Py_ssize_t rows, char *staging) noexcept nogil:
    """Store the waiting classes, which differ in the last axis alone, as whole rows.

    An element at a time at a stride takes longer than the sums of a small kernel.
    """
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t size = work.size
    cdef int sums = F64 if work.f64 else F32
    cdef bint turned = r.position_pitch != 1
    cdef Py_ssize_t strip = TRANSPOSE_ROWS if turned else 1
    cdef bint dense = y.stride[4] == element_size(work.b.dtype) and not work.accumulate
    cdef bint direct = dense and y.stride[4] == size
    cdef Py_ssize_t jd, jh, j, i, s, width
    cdef const char *src[MOST_STREAMS]
    cdef char *dst
    for jd in range(planes):
        for jh in range(rows):
            dst = r.dst + jd * r.step[0] + jh * r.step[1] + residue[0] * y.stride[2]
            dst += residue[1] * y.stride[3]
            # Strides beyond the kernel leave rows that nothing is added to.
            if dense and r.taps == 0:
                for j in range(r.channels):
                    memset(dst + j * y.stride[1], 0, r.total * y.stride[4])
                continue
            for s in range(r.streams):
                src[s] = r.waiting[s] + size * r.position_pitch * (
                    jd * r.pitch[s][0] + jh * r.pitch[s][1])
            if dense and turned:
                store_turned(work.b.dtype, r.streams, 1, 0, src, r.position_pitch, r.total, r.channels,
                             dst, y.stride[1])
                continue
            j = 0
            while j < r.channels:
                width = min(strip, r.channels - j)
                if turned:
                    store_turned(sums, r.streams, 1, 0, src, r.position_pitch, r.total, width, staging,
                                 r.total * size)
                else:
                    interleave(size, r.streams, src, r.total,
                               dst + j * y.stride[1] if direct else staging)
                if not direct:
                    for i in range(width):
                        store_row(work.b.dtype, staging + i * r.total * size, 1,
                                  dst + (j + i) * y.stride[1], y.stride[4], r.total, work.accumulate)
                for s in range(r.streams):
                    src[s] += strip * r.channel_pitch * size
                j += strip


include "fold.pxi"


cdef inline void wait_for_others(Results *r, const char *c, const Py_ssize_t *pitch,
                                 Py_ssize_t positions) noexcept nogil:
    r.waiting[r.streams] = c
    r.pitch[r.streams][0], r.pitch[r.streams][1] = pitch[0], pitch[1]
    r.streams += 1
    r.total += positions


cdef inline bint rows_follow(const Work *work, const Results *r,
                             const Py_ssize_t *count) noexcept nogil:
    """Return whether narrow rows of diff_src follow each other, so that a square holds many of them."""
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    return (r.position_pitch != 1 and not work.accumulate and r.step[2] == unit
            and count[2] * unit < VECTOR_BYTES and work.diff_src.stride[3] == count[2] * unit
            and (work.b.all_classes or work.axis[1].out_step == 1))


cdef void store_rows_in_turns(const Work *work, const Results *r, const Py_ssize_t *residue,
                              Py_ssize_t planes, Py_ssize_t width) noexcept nogil:
    """Store the waiting classes, whose rows take turns in a plane."""
    cdef const char *src[MOST_STREAMS]
    cdef Py_ssize_t jd, s
    for jd in range(planes):
        for s in range(r.streams):
            src[s] = r.waiting[s] + jd * r.pitch[s][0] * r.position_pitch * work.result_size
        store_turned(work.result_dtype, r.streams, width, r.pitch[0][1] - width, src,
                     r.position_pitch, r.total, r.channels,
                     r.dst + jd * r.step[0] + residue[0] * work.diff_src.stride[2],
                     work.diff_src.stride[1])


cdef inline bint last_residue(const Axis *axis, Py_ssize_t start, Py_ssize_t residue) noexcept nogil:
    """Return whether no later residue has a position in the block that begins at `start`."""
    return (residue + 1 == min(axis.out_step, axis.result)
            or positions(axis, start, residue + 1) == 0)


cdef void store_class(const Work *work, Results *r, const Py_ssize_t *residue,
                      const Py_ssize_t *count, const char *c, char *staging) noexcept nogil:
    """Store a class, or let it wait for the others of its rows."""
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t pitch[3]
    cdef Py_ssize_t jd, jh, rows
    cdef Py_ssize_t most = 1
    cdef bint narrow
    cdef const char *source
    cdef char *dst = r.dst + residue[0] * y.stride[2] + residue[1] * y.stride[3]
    if folds(work):
        store_folded(work, r, count, c, staging)
        return
    class_pitch(work, count, pitch)
    if rows_follow(work, r, count):
        wait_for_others(r, c, pitch, count[1] * count[2])
        if last_residue(&work.axis[1], r.start_h, residue[1]):
            store_rows_in_turns(work, r, residue, count[0], count[2])
            r.streams = r.taps = r.total = 0
        return
    if not work.b.interleave:
        dst += residue[2] * y.stride[4]
        narrow = False
        # Rows that follow each other both in scratch and in diff_src are one.
        if pitch[1] == count[2] and r.step[1] == count[2] * r.step[2]:
            most = work.b.staging_bytes // (TRANSPOSE_ROWS * work.size * count[2])
        elif narrow_rows(work, r, count, pitch):
            most = work.b.staging_bytes // (TRANSPOSE_ROWS * element_size(work.b.dtype) * pitch[1])
            narrow = most > 1
        most = max(1, most)
        for jd in range(count[0]):
            jh = 0
            while jh < count[1]:
                rows = min(most, count[1] - jh)
                source = c + (jd * pitch[0] + jh * pitch[1]) * r.position_pitch * work.result_size
                if narrow:
                    store_narrow(work, r, source, pitch[1], dst + jd * r.step[0] + jh * r.step[1], rows,
                                 count[2], staging)
                else:
                    store_line(work, r, source, dst + jd * r.step[0] + jh * r.step[1],
                               rows * count[2], staging)
                jh += rows
        return
    wait_for_others(r, c, pitch, count[2])
    r.taps += residue[4] - residue[3]
    if last_residue(&work.axis[2], r.start_w, residue[2]):
        store_streams(work, r, residue, count[0], count[1], staging)
        r.streams = r.taps = r.total = 0


cdef int check_class(const Work *work, const Py_ssize_t *count, const Results *r,
                     char *c) noexcept nogil:
    """Return whether all sums of a class are finite, those of parts scaled back."""
    cdef Py_ssize_t rows = r.channels if r.position_pitch == 1 else count[2]
    cdef Py_ssize_t length = count[2] if r.position_pitch == 1 else r.channels
    cdef Py_ssize_t pitch[3]
    cdef Py_ssize_t jd, jh
    cdef float *row
    cdef int fine = 1
    class_pitch(work, count, pitch)
    for jd in range(count[0]):
        for jh in range(count[1]):
            row = <float *> c + (jd * pitch[0] + jh * pitch[1]) * r.position_pitch
            fine &= check_rows(work.b.parts, row, work.b.result_pitch, rows, length)
    return fine


cdef void store_classes(const Work *work, const Task *task, Py_ssize_t group,
                        const Scratch *s, int *fine) noexcept nogil:
    """Store the sums of all classes of a task."""
    cdef Results results
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t c
    cdef const Py_ssize_t *residue
    cdef char *result
    for c in range(3):
        step[c] = work.axis[c].out_step
    expect_results(work, task, group, step, &results)
    for c in range(task.class_begin, task.class_end):
        residue = work.residue + 5 * c
        if class_positions(work, task, residue, count):
            result = s.result + used * result_unit(work)
            if work.b.checks:
                fine[0] &= check_class(work, count, &results, result)
            store_class(work, &results, residue, count, result, s.staging)
            used += class_extent(work, count)
