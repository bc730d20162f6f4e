# 3x3 filters without strides by Winograd's F(2x2, 3x3) (see _convolution_winograd).
#
# Positions are tiles of 2x2 pixels, and classes the 16 planes of what is transformed: the window is
# [plane][entry][channel], and the sums of a plane are those of ROWS, of one tap for each tap in depth.


cdef void transform_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                           Py_ssize_t chunk, const Scratch *s) noexcept nogil:
    """Fill the window with what patches of diff_dst are transformed to.

    Rows of diff_dst take turns in scratch, four for each row of tiles that lies between others.
    """
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.source[1]
    cdef const Axis *width = &work.source[2]
    cdef Tensor x = work.diff_dst
    cdef Py_ssize_t row = width.window * chunk
    cdef Py_ssize_t start = task.start[2] * width.in_step
    cdef const char *base = x.data + task.image * x.stride[0]
    cdef const char *src
    cdef float *dst = <float *> s.window
    cdef const float *entries[4]
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t dilation = work.b.dilation_h
    cdef Py_ssize_t d, jh, h, y, yd, first_row
    base += (group * work.b.source_channels + first) * x.stride[1]
    class_positions(work, task, work.residue, count)
    for d in range(depth.window):
        yd = task.start[0] * depth.in_step + depth.entry[d]
        if yd < 0 or yd >= depth.source:    # nobody reads it
            continue
        for jh in range(count[1]):
            first_row = first_pixel(task.start[1] + jh, dilation)
            for h in range(PATCH):
                y = first_row + h * dilation
                entries[h] = <float *> s.entries + y % (PATCH * dilation) * row
                if jh >= dilation and h < PATCH - TILE:     # found by the tile above
                    continue
                y += height.entry[0]
                src = NULL
                if 0 <= y < height.source:
                    src = base + yd * x.stride[2] + y * x.stride[3]
                pack_row(work, src, start, <char *> entries[h], 1, chunk, chunk, s.staging)
            transform_patches(entries, count[2], chunk, work.b.dilation_w,
                              dst + (d * work.axis[1].window + jh) * work.axis[2].window * chunk,
                              work.b.window_plane)


cdef void store_planes(const Work *work, const Task *task, Py_ssize_t group, const Scratch *s,
                       int *fine) noexcept nogil:
    """Store the pixels that the sums of all planes are transformed to."""
    cdef Results r
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t pitch = work.b.result_pitch
    cdef Py_ssize_t plane = work.b.result_plane
    cdef const float *sums = <float *> s.result
    cdef float *line = <float *> s.result + PLANES * plane
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t dilation = work.b.dilation_h
    cdef Py_ssize_t jd, jh, h, y, columns
    step[0], step[1], step[2] = 1, 0, TILE
    class_positions(work, task, work.residue, count)
    columns = min(TILE * count[2], work.b.width - TILE * task.start[2])
    expect_results(work, task, group, step, &r)
    r.step[1], r.step[2] = work.diff_src.stride[3], work.diff_src.stride[4]
    for jd in range(count[0]):
        for jh in range(count[1]):
            fine[0] &= transform_sums(sums, plane, pitch, count[2], whole_vectors(work, r.channels),
                                      work.b.dilation_w, line, line + TILE * count[2] * pitch)
            sums += count[2] * pitch
            for h in range(TILE):
                y = first_pixel(task.start[1] + jh, dilation) + h * dilation
                if y < work.b.height:
                    store_line(work, &r, <char *> (line + h * TILE * count[2] * pitch),
                               r.dst + jd * r.step[0] + y * r.step[1], columns, s.staging)
