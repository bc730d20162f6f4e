# The convolution engine: tasks over disjoint parts of diff_src, each a batch-reduce GEMM.
#
# A task owns one image, a range of groups, a block of positions and a range of channel blocks.
# It reads the diff_dst rows it needs where they lie or packs them into its window, computes every
# residue class of the block with register tiles, and stores the block once. Pointers are to bytes,
# strides of tensors are in bytes; sizes inside scratch are in elements of the computing type.

from cython.parallel cimport prange, threadid
from libc.string cimport memcpy, memmove, memset

include "tasks.pxi"
include "tensor.pxi"
include "work.pxi"
include "arrays.pxi"
include "split.pxi"
include "window.pxi"
include "pairs.pxi"
include "unfold.pxi"
include "weights.pxi"
include "compute.pxi"
include "regions.pxi"
include "compute_rows.pxi"
include "compute_few.pxi"
include "compute_dot.pxi"
include "compute_vectors.pxi"
include "store.pxi"
include "winograd.pxi"
include "grouped.pxi"
include "depthwise.pxi"
include "depthwise_rows.pxi"
include "depthwise_rolling.pxi"
include "boxed.pxi"
include "scatter.pxi"


cdef void compute_classes(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                          const Scratch *s, int *fine) noexcept nogil:
    """Add a chunk's products to the sums of the channel blocks `block_begin` to `block_end` - 1."""
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t unit = result_unit(work)
    cdef Py_ssize_t c
    cdef const Py_ssize_t *residue
    cdef char *result
    cdef Scratch plane = s[0]
    cdef int more = first > 0
    for c in range(task.class_begin, task.class_end):
        residue = work.residue + 5 * c
        if class_positions(work, task, residue, count) == 0:
            continue
        result = s.result + used * unit
        if work.b.kernel == COLUMNS:
            compute_columns(work, task, group, first, chunk, block_begin, block_end, residue, count,
                            result, s, more)
        elif work.b.kernel == DOT or work.b.kernel == PAIRS:
            compute_dot(work, task, group, first, chunk, block_begin, block_end, residue, count,
                        result, s, more, fine)
        else:
            if work.b.winograd:
                plane.window = s.window + c * work.b.window_plane * work.size
                result = s.result + c * work.b.result_plane * work.size
            compute_rows(work, task, group, first, chunk, block_begin, block_end, residue, count,
                         result, &plane, more)
        used += class_extent(work, count)


# The positions and the group whose window a thread has in its scratch.
cdef struct Held:
    Py_ssize_t block
    Py_ssize_t group


cdef void fill_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, bint below, const Scratch *s) noexcept nogil:
    """Fill the window; `below`, it is that of the block above."""
    if work.b.winograd:
        transform_window(work, task, group, first, chunk, s)
    elif work.b.unfold:
        unfold_window(work, task, group, first, chunk, below, s)
    elif work.b.kernel == PAIRS:
        pack_pair_window(work, task, group, first, chunk, s)
    elif work.b.windowed:
        pack_window(work, task, group, first, chunk, window_pitch(work, chunk), below, s.window,
                    s.staging)


cdef int run_group(const Work *work, const Task *task, Py_ssize_t group, char *scratch,
                   Held *held) noexcept nogil:
    """Compute a task's block of one group; return whether something is not as assumed.

    Tasks that differ in their channels alone follow each other, and use the same window.
    """
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t chunk, i
    cdef bint below = (held.block == task.block - 1 and held.group == group and task.start[1] > 0
                       and work.axis[2].blocks == 1)
    cdef int fine = 1
    while first < work.b.output_channels:
        chunk = min(work.b.chunk, work.b.output_channels - first)
        if chunk < work.b.output_channels or held.block != task.block or held.group != group:
            fill_window(work, task, group, first, chunk,
                        below and chunk == work.b.output_channels, &s)
        if work.packing == NULL:
            compute_classes(work, task, group, first, chunk, task.block_begin, task.block_end, &s,
                            &fine)
        elif not compute_few(work, task, group, first, chunk, &s):
            for i in range(task.block_begin, task.block_end):
                fine &= pack_chunk(work.packing, group, work.packing.block + 4 * i, first,
                                   min(chunk, work.packing.channels), s.panel, s.packing)
                compute_classes(work, task, group, first, chunk, i, i + 1, &s, &fine)
        first += chunk
    held.block, held.group = task.block, group
    if work.b.winograd:
        store_planes(work, task, group, &s, &fine)
    elif not work.b.direct:
        store_classes(work, task, group, &s, &fine)
    return 1 - fine


cdef inline Py_ssize_t digit(Py_ssize_t *number, Py_ssize_t base) noexcept nogil:
    """Return the last digit of a number, and drop it."""
    cdef Py_ssize_t last = number[0] % base
    number[0] = number[0] // base
    return last


cdef Task task_of(const Work *work, Py_ssize_t number) noexcept nogil:
    cdef Task task
    cdef Py_ssize_t ranges = (work.b.groups + work.b.task_groups - 1) // work.b.task_groups
    cdef Py_ssize_t blocks = work.axis[0].blocks * work.axis[1].blocks * work.axis[2].blocks
    cdef Py_ssize_t splits = work.b.channel_splits
    cdef Py_ssize_t axis, block, image
    cdef Py_ssize_t split = 0 if work.apart else digit(&number, splits)
    cdef Py_ssize_t classes = digit(&number, work.b.class_splits)
    block = digit(&number, blocks)
    if work.apart:
        split = digit(&number, splits)
    image = number
    task.block = image * blocks + block
    task.block_begin = work.blocks * split // splits
    task.block_end = work.blocks * (split + 1) // splits
    task.class_begin = work.classes * classes // work.b.class_splits
    task.class_end = work.classes * (classes + 1) // work.b.class_splits
    for axis in range(2, -1, -1):
        task.start[axis] = digit(&block, work.axis[axis].blocks) * work.axis[axis].block
    task.group = digit(&image, ranges) * work.b.task_groups
    task.group_end = min(task.group + work.b.task_groups, work.b.groups)
    task.image = image
    return task


cdef int run_task(const Work *work, Py_ssize_t number, char *scratch, Held *held) noexcept nogil:
    """Return whether the task met what the plan does not assume."""
    cdef Task task = task_of(work, number)
    cdef Py_ssize_t group
    cdef int unfit = 0
    if work.b.kernel == DEPTHWISE or work.b.kernel == GROUPED:
        return run_lanes(work, &task, scratch)
    if work.b.parts:
        amx_begin(DOT_ROWS, <int> work.b.depth, work.b.tail)
    for group in range(task.group, task.group_end):
        if work.b.kernel == SCATTER:
            unfit |= run_scatter(work, &task, group, scratch)
        else:
            unfit |= run_group(work, &task, group, scratch, held)
    if work.b.parts:
        amx_end()
    return unfit


cdef int run_tasks(const Work *work, Tasks *tasks, Py_ssize_t thread,
                   char *scratch) noexcept nogil:
    """Run a thread's share; return whether a task met what the plan does not assume."""
    cdef Py_ssize_t tried = 0
    cdef int unfit = 0
    cdef Py_ssize_t task = next_task(tasks, thread, &tried)
    cdef Held held
    held.block = held.group = -1
    while task >= 0:
        unfit |= run_task(work, task, scratch, &held)
        task = next_task(tasks, thread, &tried)
    if work.b.streams or work.b.stages:
        end_streams()
    return unfit


cdef class Program:
    """The tables of a plan, read once, and what is done with them.

    Tensors are (N, *X, C) arrays, or (N, C, *X), and weights (g, O, I, D, H, W) views. The methods
    tell whether all values are as the plan assumes: weights are finite, and what parts of values sum
    up to.
    """

    cdef Work work
    cdef Weights panels
    cdef tuple tables       # what the pointers of both point to

    def __init__(self, list axes, list sources, const Py_ssize_t[:, ::1] residues,
                 const Py_ssize_t[:, ::1] taps, const Py_ssize_t[:, ::1] blocks,
                 const Py_ssize_t[:, ::1] coordinates, const Py_ssize_t[::1] ranks,
                 const Py_ssize_t[:, ::1] panel_blocks, Blocking blocking):
        cdef Work *work = &self.work
        cdef Weights *w = &self.panels
        cdef int axis, factor_size
        self.tables = (axes, sources, residues, taps, blocks, coordinates, ranks, panel_blocks)
        work.b = blocking
        for axis in range(3):
            work.axis[axis] = read_axis(axes[axis])
            work.source[axis] = read_axis(sources[axis])
        work.f64 = blocking.dtype == F64
        work.size = compute_size(blocking.dtype)
        factor_size = 2 * (blocking.parts + blocking.paired) or work.size
        work.window_size = 2 if blocking.row_pairs else factor_size
        work.result_dtype = RAW16 if blocking.rounded else blocking.dtype
        work.result_size = 2 if blocking.rounded else work.size
        work.lanes = VECTOR_BYTES // work.size
        work.classes = residues.shape[0]
        work.residue = &residues[0, 0]
        work.tap = &taps[0, 0] if taps.shape[0] else NULL
        work.taps = taps.shape[0]
        work.blocks = blocks.shape[0]
        work.block = &blocks[0, 0]
        w.parts = blocking.parts
        w.tiles = blocking.kernel == PAIRS or (blocking.parts and blocking.along_rows)
        w.over_groups = blocking.kernel == DEPTHWISE or (
            blocking.kernel == GROUPED and not blocking.broadcast)
        w.paired = blocking.paired
        w.exact = blocking.kernel == SCATTER or (blocking.kernel == ROWS and blocking.all_inside)
        w.ahead = blocking.weights_ahead
        w.dtype = blocking.dtype
        w.load_dtype = RAW16 if blocking.parts == 1 or blocking.paired else blocking.dtype
        work.load_dtype = RAW16 if blocking.row_pairs else w.load_dtype
        w.f64 = work.f64
        w.size = work.panel_size = factor_size * (1 + blocking.paired)
        w.unit = element_size(blocking.dtype)
        w.taps = w.panel_taps = coordinates.shape[0]
        if blocking.winograd:
            w.panel_taps = work.taps
        w.tap = &coordinates[0, 0] if w.taps else NULL
        w.rank = &ranks[0] if ranks.shape[0] else NULL
        w.groups = blocking.groups * blocking.abreast
        w.channels = blocking.output_channels // blocking.abreast // blocking.packed_apart
        w.chunk = min(blocking.chunk, w.channels)
        w.depth = 2 if blocking.packed_apart > 1 or blocking.paired else blocking.unit
        w.blocks = panel_blocks.shape[0]
        w.block = &panel_blocks[0, 0]
        w.inputs = panel_blocks[w.blocks - 1, 0] + panel_blocks[w.blocks - 1, 1]
        w.group_panel = blocking.group_panel // blocking.abreast

    def pack(self, weights, packed, staging, int num_threads):
        """Fill `packed`; `staging` holds at least pack_staging(taps) bytes for each thread."""
        cdef Weights w = self.panels
        cdef Py_ssize_t number, length, stride
        cdef char *panels = read_bytes(packed, True)
        cdef char *space = read_array(staging, True, 1, &length, &stride)
        cdef Py_ssize_t share = length // num_threads // 64 * 64
        cdef int unfit = 0
        cdef Py_ssize_t pieces = pieces_of(&w)
        read_weights(weights, &w)
        w.streams = self.work.b.streams_panels and w.order != BY_INPUT and w.order != SCATTERED
        if num_threads == 1:
            with nogil:
                for number in range(pieces):
                    unfit += 1 - pack_piece(&w, number, panels, space)
        else:
            for number in prange(pieces, nogil=True, schedule="dynamic", num_threads=num_threads):
                unfit += 1 - pack_piece(&w, number, panels, space + threadid() * share)
        return unfit == 0

    def run(self, diff_dst, packed, diff_src, bint channels_last, scratch, int num_threads,
            bint accumulate):
        """Compute diff_src; `scratch` holds `scratch_bytes` for each thread, or more, aligned to 64."""
        cdef Work work = self.work
        work.weights = read_bytes(packed, False)
        return run_all(&work, diff_dst, diff_src, channels_last, scratch, num_threads, accumulate) == 0

    def run_packing(self, diff_dst, weights, diff_src, bint channels_last, scratch, int num_threads,
                    bint accumulate):
        """Compute diff_src, each task packing what it alone uses of the weights."""
        cdef Work work = self.work
        cdef Weights w = self.panels
        read_weights(weights, &w)
        work.packing = &w
        return run_all(&work, diff_dst, diff_src, channels_last, scratch, num_threads, accumulate) == 0


cdef bint whole_lines(const Tensor *y) noexcept nogil:
    """Return whether every position begins on a line of cache."""
    return (<Py_ssize_t> y.data | y.stride[0] | y.stride[2] | y.stride[3] | y.stride[4]) % 64 == 0


cdef int run_all(Work *work, diff_dst, diff_src, bint channels_last, scratch, int num_threads,
                 bint accumulate) except -1:
    """Run the tasks; return how many threads met what the plan does not assume."""
    cdef Py_ssize_t thread, number, axis, ranges, result, source
    cdef char *space = read_bytes(scratch, True)
    cdef Tensor *x = &work.diff_dst
    cdef Tensor *y = &work.diff_src
    cdef Tasks tasks
    cdef Scratch first
    cdef int unfit = 0
    x.data = read_tensor(diff_dst, False, channels_last, work, x.stride, &source)
    y.data = read_tensor(diff_src, True, channels_last, work, y.stride, &result)
    if work.b.any_width:
        fit_rows(work, result, source)
    y.stride[3] *= work.b.fold_h
    y.stride[4] *= work.b.fold_w
    work.accumulate = accumulate
    # COLUMNS looks for lines itself.
    work.streams = work.b.streams and (work.b.kernel == COLUMNS or whole_lines(y))
    ranges = (work.b.groups + work.b.task_groups - 1) // work.b.task_groups
    number = work.b.batch * ranges * work.b.channel_splits * work.b.class_splits
    for axis in range(3):
        number *= work.axis[axis].blocks
    if work.b.shares_product and num_threads > 1:
        first = carve(&work.b, space)
        work.product = product_of(work, &first)
        for thread in prange(num_threads, nogil=True, schedule="static", chunksize=1,
                             num_threads=num_threads):
            unfit += multiply_share(work, thread, num_threads,
                                    space + thread * work.b.scratch_bytes)
        num_threads = 1
    # Blocks at the borders have fewer products than others, ranges of channels all the same. One
    # thread uses a block's window for all ranges, and so do all where filling it takes long.
    work.apart = num_threads > 1 and work.taps > 1
    share_tasks(&tasks, number, num_threads)
    if num_threads == 1:  # a team of one takes longer than a small problem
        with nogil:
            return unfit + run_tasks(work, &tasks, 0, space)
    for thread in prange(num_threads, nogil=True, schedule="static", chunksize=1,
                         num_threads=num_threads):
        unfit += run_tasks(work, &tasks, thread, space + thread * work.b.scratch_bytes)
    return unfit


def tile_shapes(bint f64):
    """Return {vectors: rows} of the register tiles, the lanes of a vector, the most vectors of a
    ROWS tile, and how many bfloat16 are multiplied in the time of a float32 (0: none).
    """
    shapes = {nv: tile_rows(nv) for nv in range(1, NV_MAX + 1) if tile_rows(nv)}
    return shapes, VECTOR_BYTES // (8 if f64 else 4), ROWS_NV, BF16_RATE
