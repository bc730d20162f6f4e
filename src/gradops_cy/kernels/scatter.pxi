# Few channels of diff_src: a plain matrix product, then every column to where it belongs (col2im).
#
# The product of some positions of diff_dst and all weights, [position][tap][channel], stays in
# cache. Its columns are added to a box of sums, [d][h][w][channel], which is stored once; at each
# position the taps of a row are one run of the box. The box is wider than the block by what its
# positions reach beyond it, so that runs need no clipping.
#
# An element is the sum over the rows of diff_dst, then over strips and phases of their positions:
# all of them counted from the tensor's begin, not from the block's.
#
# Along rows (scatter_rows.pxi) the product is [tap][channel][position] and the box has a row for each
# channel.

cdef extern from "scatter.h" nogil:
    void add_row(int f64, const char *src, char *dst, Py_ssize_t n) noexcept
    void add_runs(int f64, Py_ssize_t rows, const char **src, Py_ssize_t pitch, char **dst,
                  Py_ssize_t step, Py_ssize_t n, Py_ssize_t first, Py_ssize_t count,
                  Py_ssize_t phases) noexcept


# A range of positions of diff_dst in one plane.
cdef struct Patch:
    Py_ssize_t d
    Py_ssize_t h
    Py_ssize_t w
    Py_ssize_t rows
    Py_ssize_t width
    const char *next            # of diff_dst, where the next range begins


# The sums of a block, from `begin` of diff_src on.
cdef struct Box:
    char *sums
    Py_ssize_t begin[3]
    Py_ssize_t extent[3]
    Py_ssize_t margin           # w that the box holds before and behind the block


cdef const char *source_at(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t d,
                           Py_ssize_t h, Py_ssize_t w) noexcept nogil:
    cdef const Tensor *x = &work.diff_dst
    return (x.data + task.image * x.stride[0] + group * work.b.output_channels * x.stride[1]
            + d * x.stride[2] + h * x.stride[3] + w * x.stride[4])


cdef void fetch_next(const Work *work, const Patch *p, Py_ssize_t part,
                     Py_ssize_t parts) noexcept nogil:
    """Ask for a part of the next range while this one is multiplied.

    Products of pairs are fast enough to wait for memory, and the rows are too short to be seen coming.
    """
    cdef const Tensor *x = &work.diff_dst
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t segments = p.width
    cdef Py_ssize_t stride = x.stride[4]
    cdef Py_ssize_t bytes = work.b.output_channels * unit
    cdef Py_ssize_t r
    if x.stride[1] != unit:
        segments, stride, bytes = work.b.output_channels, x.stride[1], p.width * unit
    for r in range(p.rows):
        fetch_ahead(p.next + r * x.stride[3], stride, segments * part // parts,
                    segments * (part + 1) // parts, bytes)


cdef inline char *product_of(const Work *work, const Scratch *s) noexcept nogil:
    return s.result + work.b.box_bytes


cdef inline void clear_padding(const Work *work, const Scratch *s) noexcept nogil:
    if work.b.parts and work.b.output_channels % DOT_K:
        memset(s.window, 0, work.b.window_bytes)


cdef int multiply_patch(const Work *work, const Task *task, Py_ssize_t group, const Patch *p,
                        Py_ssize_t block_begin, Py_ssize_t block_end, char *product,
                        const Scratch *s) noexcept nogil:
    """Compute product[position][column] of some blocks of columns.

    Return whether weights packed here are all finite.
    """
    cdef const Tensor *x = &work.diff_dst
    cdef Py_ssize_t total = p.rows * p.width
    cdef Py_ssize_t outputs = work.b.output_channels
    cdef Py_ssize_t kc = window_pitch(work, outputs) if work.b.windowed else outputs
    cdef Py_ssize_t pitch = kc * work.window_size
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef const char **row = <const char **> s.pointers
    cdef char **result = <char **> s.pointers + total
    cdef const char *source
    cdef const char *weights
    cdef const Py_ssize_t *block
    cdef Py_ssize_t i, r, j, nv, limit, tiles, tile, position, end, column, ahead
    cdef Py_ssize_t here = 0
    cdef int fine = 1
    cdef Meanwhile nothing
    begin_meanwhile(work, &nothing)
    for r in range(p.rows):
        source = source_at(work, task, group, p.d, p.h + r, p.w)
        position = r * p.width
        if work.b.windowed:
            pack_run(work, source, x.stride[4], s.window + position * pitch, 1, kc,
                     p.width, outputs, s.staging)
        for j in range(p.width):
            row[position + j] = source + j * x.stride[4]
            if work.b.windowed:
                row[position + j] = s.window + (position + j) * pitch
            result[position + j] = product + (position + j) * c_pitch
    for i in range(block_begin, block_end):
        block = work.block + 4 * i
        column, nv = block[0], block[2]
        limit = 2 * DOT_ROWS if work.b.parts else tile_rows(nv)
        tiles = (total + limit - 1) // limit
        if work.packing != NULL:
            fine &= pack_chunk(work.packing, group, work.packing.block + 4 * i, 0, outputs, s.panel,
                               s.packing)
            weights = s.panel
        else:
            weights = work.weights + work.window_size * (group * work.b.group_panel + block[3])
        for tile in range(tiles):
            if work.b.parts and work.b.windowed:
                fetch_next(work, p, i * tiles + tile, work.blocks * tiles)
            position = total * tile // tiles
            end = total * (tile + 1) // tiles
            if work.b.parts and not HAVE_AMX:
                run_vectors(end - position, nv, 1, kc, row + position, 0, &here, &here, weights,
                            result + position, column * work.size, nv * DOT_COLUMNS, 0, 0,
                            total - end if work.b.asks and i == 0 else 0, 0)
            elif work.b.parts:
                position = tile * limit
                run_amx(work.b.parts, min(limit, total - position), nv, 0, 0, 0, 1, kc,
                        row[position], pitch, &here, weights,
                        result[position] + column * work.size, c_pitch, 0, &nothing)
            else:
                ahead = 0
                if work.b.asks and i == 0 and 2 * end - position <= total:
                    ahead = end - position
                run_rows(work.f64, end - position, nv, 0, 1, kc, row + position, total, 0, ahead, 0,
                         weights, result + position, column, <int> work.lanes, 0)
    return fine


cdef int multiply_share(const Work *work, Py_ssize_t thread, Py_ssize_t threads,
                        char *scratch) noexcept nogil:
    """Compute a thread's columns of the only product; return whether something is not as assumed."""
    cdef Task task = task_of(work, 0)
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef Py_ssize_t axis
    cdef Patch p
    cdef int fine
    for axis in range(3):
        source_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
        if low[axis] >= high[axis]:
            return 0
    p.d, p.h, p.w = low[0], low[1], low[2]
    p.rows, p.width = high[1] - low[1], high[2] - low[2]
    p.next = source_at(work, &task, task.group, p.d, p.h, p.w)
    clear_padding(work, &s)
    if work.b.parts:
        amx_begin(DOT_ROWS, DOT_K, 0)
    fine = multiply_patch(work, &task, task.group, &p, work.blocks * thread // threads,
                          work.blocks * (thread + 1) // threads, work.product, &s)
    if work.b.parts:
        amx_end()
    return 1 - fine


cdef inline Py_ssize_t box_row(const Work *work, const Box *box, const Patch *p, Py_ssize_t r,
                               const Py_ssize_t *tap) noexcept nogil:
    """Return the row of a plane of the box that a row of columns adds to, or -1 outside."""
    cdef Py_ssize_t d = p.d * work.axis[0].out_step + tap[0] - box.begin[0]
    cdef Py_ssize_t h = (p.h + r) * work.axis[1].out_step + tap[1] - box.begin[1]
    if 0 <= d < box.extent[0] and 0 <= h < box.extent[1]:
        return d * box.extent[1] + h
    return -1


cdef void scatter_patch(const Work *work, const Box *box, const Patch *p, const char *product,
                        char *pointers) noexcept nogil:
    """Add the columns of a product to the sums of the block, leaving out rows outside."""
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t step = work.axis[2].out_step * work.b.input_channels
    cdef Py_ssize_t first = p.w * work.axis[2].out_step - box.begin[2]
    cdef Py_ssize_t pitch = work.b.result_pitch
    cdef const char **src = <const char **> pointers
    cdef char **dst = <char **> pointers + work.taps
    cdef Py_ssize_t r, t, row, i, inside, shift
    cdef const Py_ssize_t *tap
    cdef const Py_ssize_t *run
    for r in range(p.rows):
        for i in range(work.classes):
            run = work.residue + 5 * i
            shift = (first + run[0]) * work.b.input_channels
            inside = 0
            for t in range(work.taps):
                tap = work.tap + 3 * t
                row = box_row(work, box, p, r, tap)
                if row >= 0:
                    src[inside] = product + (tap[2] + run[2]) * size
                    dst[inside] = box.sums + size * (row * work.b.box_pitch + shift)
                    inside += 1
            add_runs(work.f64, inside, src, pitch, dst, step, run[1], p.w, p.width, run[3])
        product += p.width * pitch * size


cdef void store_box(const Work *work, const Task *task, Py_ssize_t group, const Box *box,
                    char *staging) noexcept nogil:
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t channels = work.b.input_channels
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t d, h
    cdef const char *sums = box.sums + box.margin * channels * work.size
    cdef char *dst
    cdef Results results
    results.channels, results.channel_pitch, results.position_pitch = channels, 1, channels
    results.step[2], results.past = y.stride[4], False
    y.data += task.image * y.stride[0] + group * channels * y.stride[1]
    y.data += (box.begin[2] + box.margin) * y.stride[4]
    for d in range(box.extent[0]):
        for h in range(box.extent[1]):
            dst = y.data + (box.begin[0] + d) * y.stride[2] + (box.begin[1] + h) * y.stride[3]
            if y.stride[4] == channels * unit and (channels == 1 or y.stride[1] == unit):
                store_row(work.b.dtype, sums, 1, dst, unit, box.extent[2] * channels,
                          work.accumulate)
            else:
                store_line(work, &results, sums, dst, box.extent[2], staging)
            sums += work.b.box_pitch * work.size


include "scatter_rows.pxi"


cdef int run_scatter(const Work *work, const Task *task, Py_ssize_t group,
                     char *scratch) noexcept nogil:
    """Compute a task's block of one group; return whether something is not as assumed."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef const Py_ssize_t *last = work.residue + 5 * (work.classes - 1)
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef Py_ssize_t axis
    cdef Patch p
    cdef Box box
    cdef char *product
    cdef int fine = 1
    # Positions that reach the block reach at most the width of the kernel beyond it.
    box.margin = last[0] + last[1] // work.b.input_channels - 1 - work.residue[0]
    for axis in range(3):
        source_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
        box.begin[axis] = task.start[axis] * work.axis[axis].out_step
        box.extent[axis] = min(work.axis[axis].block * work.axis[axis].out_step,
                               work.axis[axis].result - box.begin[axis])
    box.begin[2] -= box.margin
    box.sums = s.result
    product = product_of(work, &s)
    memset(box.sums, 0, work.b.box_bytes)
    if work.product == NULL:
        clear_padding(work, &s)
    for p.d in range(low[0], high[0]):
        p.h = low[1]
        while p.h < high[1]:
            p.rows = 1
            # Several rows at a time only where none is cut: else strips would come before rows.
            if low[2] // work.b.strip == (high[2] - 1) // work.b.strip and low[2] < high[2]:
                p.rows = min(work.b.strip // patch_row(work, high[2] - low[2]), high[1] - p.h)
            p.w = low[2]
            while p.w < high[2]:
                p.width = min(high[2], (p.w // work.b.strip + 1) * work.b.strip) - p.w
                p.next = source_at(work, task, group, p.d, p.h, p.w + p.width)
                if p.w + p.width == high[2]:
                    p.next = source_at(work, task, group, p.d, p.h + p.rows, low[2])
                if work.b.along_rows:
                    multiply_rows(work, task, group, &p, product, &s)
                    scatter_rows(work, &box, &p, product)
                else:
                    if work.product == NULL:
                        fine &= multiply_patch(work, task, group, &p, 0, work.blocks, product, &s)
                    scatter_patch(work, &box, &p, product, s.pointers)
                p.w += p.width
            p.h += p.rows
    if work.b.parts > 1:
        fine &= unsplit(<float *> box.sums, 0, 1, work.b.box_bytes // work.size)
    if work.b.along_rows:
        store_box_rows(work, task, group, &box, &s)
    else:
        store_box(work, task, group, &box, s.staging)
    return 1 - fine
