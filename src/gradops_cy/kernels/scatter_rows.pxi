# SCATTER along rows: the lanes are positions, which are multiplied where they lie.
#
# The product is [tap][channel][position]. The box is [channel][d][h][residue][position]: a tap of
# every position adds to one residue of the stride, a row to a row.

cdef enum:
    ROWS_AHEAD = 2      # tiles


cdef inline Py_ssize_t whole_sources(const Work *work, Py_ssize_t count) noexcept nogil:
    """Return the elements of the vectors that hold `count` of what is multiplied."""
    cdef Py_ssize_t lanes = VECTOR_BYTES // work.window_size
    return (count + lanes - 1) // lanes * lanes


cdef inline bint rows_join(const Work *work, Py_ssize_t width) noexcept nogil:
    """Return whether a row of `width` goes on where the next one begins."""
    return work.diff_dst.stride[3] == width * element_size(work.b.dtype)


cdef inline Py_ssize_t patch_row(const Work *work, Py_ssize_t width) noexcept nogil:
    """Return the positions of a product that a row of `width` takes."""
    if work.b.along_rows and not rows_join(work, width):
        return whole_sources(work, width)
    return width


cdef inline Py_ssize_t place_in_row(const Work *work, Py_ssize_t w) noexcept nogil:
    """Return where the sum at `w` of a row of the box stands among its residues."""
    cdef Py_ssize_t stride = work.axis[2].out_step
    return w % stride * (work.b.box_pitch // work.b.input_channels // stride) + w // stride


cdef void multiply_pairs(const Work *work, Py_ssize_t group, Py_ssize_t first, Py_ssize_t kc,
                         const char *source, Py_ssize_t pitch, Py_ssize_t count, Py_ssize_t ahead,
                         char *product) noexcept nogil:
    """Multiply channels `first` to `first` + kc - 1 of bfloat16, two at a time."""
    cdef const char *panels = work.weights + group * work.b.group_panel * work.window_size
    cdef const Py_ssize_t *block
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t i, width
    while begin < count:
        for i in range(work.blocks):
            block = work.block + 4 * i
            width = block[2] * DOT_COLUMNS
            run_zipped(block[1], kc, panels + work.window_size * (block[3] + first * width), width,
                       source + begin * work.window_size, pitch,
                       ahead * work.window_size if i == 0 else 0,
                       product + work.size * (block[0] * work.b.result_pitch + begin),
                       work.b.result_pitch * work.size, first > 0)
        begin += 2 * work.lanes


cdef void multiply_run(const Work *work, Py_ssize_t group, Py_ssize_t first, Py_ssize_t kc,
                       const char *source, Py_ssize_t pitch, Py_ssize_t count, Py_ssize_t ahead,
                       char *product, const Scratch *s) noexcept nogil:
    """Multiply channels `first` to `first` + kc - 1 of positions in rows `pitch` bytes apart."""
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t begin = 0
    cdef const char *panels = work.weights + group * work.b.group_panel * size
    cdef const Py_ssize_t *block
    cdef Py_ssize_t i, k
    cdef int nv
    if work.b.parts:
        multiply_pairs(work, group, first, kc, source, pitch, count, ahead, product)
        return
    for k in range(kc):
        offset[k] = k * (pitch // size)
    while begin < count:
        nv = tile_vectors(work, (count - begin + work.lanes - 1) // work.lanes)
        for i in range(work.blocks):
            block = work.block + 4 * i
            run_columns(work.f64, <int> block[1], nv, kc,
                        panels + size * (block[3] + first * block[1]), source + begin * size,
                        offset, ahead, i, work.blocks,
                        product + size * (block[0] * work.b.result_pitch + begin),
                        work.b.result_pitch, first > 0)
        begin += nv * work.lanes


cdef void multiply_rows(const Work *work, const Task *task, Py_ssize_t group, const Patch *p,
                        char *product, const Scratch *s) noexcept nogil:
    """Compute product[column][position].

    Rows are read where they lie but for their last vector, which may end beyond the tensor.
    """
    cdef const Tensor *x = &work.diff_dst
    cdef Py_ssize_t outputs = work.b.output_channels
    cdef Py_ssize_t rows = 1 if rows_join(work, p.width) else p.rows
    cdef Py_ssize_t width = p.rows * p.width // rows
    cdef Py_ssize_t last = whole_sources(work, 1)
    cdef Py_ssize_t whole = 0 if work.b.windowed else width // last * last
    cdef Py_ssize_t pitch = whole_sources(work, width - whole) * work.window_size
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t r, kc
    cdef const char *source
    cdef char *target
    while first < outputs:
        kc = min(work.b.chunk, outputs - first)
        for r in range(rows):
            source = source_at(work, task, group, p.d, p.h + r, p.w) + first * x.stride[1]
            target = product + r * patch_row(work, p.width) * work.size
            multiply_run(work, group, first, kc, source, x.stride[1], whole,
                         ROWS_AHEAD * work.b.nv * work.lanes, target, s)
            if whole < width:
                load_rows(work.load_dtype, source + whole * unit, x.stride[1], kc, width - whole,
                          s.window, pitch // work.window_size)
                clear_ends(s.window, pitch, kc, (width - whole) * work.window_size)
                multiply_run(work, group, first, kc, s.window, pitch, width - whole, 0,
                             target + whole * work.size, s)
        first += kc


cdef void scatter_rows(const Work *work, const Box *box, const Patch *p,
                       const char *product) noexcept nogil:
    """Add the columns of a product to the sums of the block, leaving out rows outside."""
    cdef Py_ssize_t channels = work.b.input_channels
    cdef Py_ssize_t pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t width = work.b.box_pitch // channels
    cdef Py_ssize_t plane = box.extent[0] * box.extent[1]
    cdef Py_ssize_t first = p.w * work.axis[2].out_step - box.begin[2]
    cdef Py_ssize_t r, i, t, c, row, shift, place
    cdef const Py_ssize_t *tap
    cdef const Py_ssize_t *run
    for r in range(p.rows):
        for i in range(work.classes):
            run = work.residue + 5 * i
            shift = place_in_row(work, first + run[0])
            for t in range(work.taps):
                tap = work.tap + 3 * t
                row = box_row(work, box, p, r, tap)
                if row < 0:
                    continue
                for c in range(channels):
                    place = (c * plane + row) * width + shift
                    add_row(work.f64, product + (tap[2] + run[2] + c) * pitch,
                            box.sums + place * work.size, p.width)
        product += patch_row(work, p.width) * work.size


cdef void store_box_rows(const Work *work, const Task *task, Py_ssize_t group, const Box *box,
                         const Scratch *s) noexcept nogil:
    cdef const Tensor *y = &work.diff_src
    cdef Py_ssize_t stride = work.axis[2].out_step
    cdef Py_ssize_t channels = work.b.input_channels
    cdef const char **residue = <const char **> s.pointers
    cdef const char *sums = box.sums
    cdef const char *line
    cdef Py_ssize_t c, d, h, i
    cdef char *dst
    for c in range(channels):
        for d in range(box.extent[0]):
            for h in range(box.extent[1]):
                dst = y.data + task.image * y.stride[0] + (group * channels + c) * y.stride[1]
                dst += (box.begin[0] + d) * y.stride[2] + (box.begin[1] + h) * y.stride[3]
                dst += (box.begin[2] + box.margin) * y.stride[4]
                for i in range(stride):
                    residue[i] = sums + place_in_row(work, box.margin + i) * work.size
                line = residue[0]
                if stride > 1:
                    interleave(<int> work.size, stride, residue, box.extent[2], s.staging)
                    line = s.staging
                store_row(work.b.dtype, line, 1, dst, y.stride[4], box.extent[2], work.accumulate)
                sums += work.b.box_pitch // channels * work.size
