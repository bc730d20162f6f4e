# DOT without AMX: tiles of any positions of a plane, each a row of vectors of channels.

cdef enum:
    MOST_POSITIONS = 48     # that meet a panel before the next one


cdef void point_positions(Py_ssize_t width, Py_ssize_t first, Py_ssize_t end, const char *source,
                          const Py_ssize_t *step, char *place, const Py_ssize_t *out_step,
                          const char **a, char **c) noexcept nogil:
    """Point to where positions of a plane are read and where their results go."""
    cdef Py_ssize_t p, row, column
    row, column = first // width, first % width
    for p in range(end - first):
        a[p] = source + row * step[1] + column * step[2]
        c[p] = place + row * out_step[1] + column * out_step[2]
        column += 1
        if column == width:
            row += 1
            column = 0


cdef void compute_vectors(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                          const Py_ssize_t *residue, const Py_ssize_t *count, char *sums,
                          const Scratch *s, int more) noexcept nogil:
    """Compute some channel blocks of a residue class; sums, unless direct, are [position][channel]."""
    cdef Py_ssize_t kc = depth_of(work, chunk)
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef char *place = result_place(work, task, group, residue, out_step)
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t plane = count[1] * count[2]
    cdef Py_ssize_t pieces = (plane + MOST_POSITIONS - 1) // MOST_POSITIONS
    cdef Py_ssize_t jd, piece, i, begin, end, low, high, row, channel
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *a[MOST_POSITIONS]
    cdef char *c[MOST_POSITIONS]
    if not work.b.direct:
        unit = work.size
        out_step[2] = work.b.result_pitch * work.size
        out_step[1] = out_step[2] * count[2]
        out_step[0] = out_step[1] * count[1]
        place = sums - work.block[4 * task.block_begin] * unit
    for jd in range(count[0]):
        for piece in range(pieces):
            begin, end = plane * piece // pieces, plane * (piece + 1) // pieces
            point_positions(count[2], begin, end, source + jd * step[0], step,
                            place + jd * out_step[0], out_step, a, c)
            row = begin // count[2]
            trim_taps(work, task, residue, jd, row, (end - 1) // count[2] + 1 - row, &low, &high)
            for i in range(block_begin, block_end):
                block = work.block + 4 * i
                channel = block[0]
                weights = panel_of(work, group, block, first, block[2] * DOT_COLUMNS, s)
                weights += work.window_size * (residue[3] + low) * kc * block[2] * DOT_COLUMNS
                # Abreast, a group's channels are where its results are.
                run_vectors(end - begin, block[2], high - low, kc, a,
                            channel * work.window_size if work.b.abreast > 1 else 0, offset + low,
                            weights, c, channel * unit, block[1] if work.b.direct else 0, more)
