# The convolution engine: tasks over disjoint parts of diff_src, each a batch-reduce GEMM.
#
# A task owns one image, a range of groups, a block of positions and a range of channel blocks.
# It reads the diff_dst rows it needs where they lie or packs them into its window, computes every
# residue class of the block with register tiles, and stores the block once. Pointers are to bytes,
# strides of tensors are in bytes; sizes inside scratch are in elements of the computing type.

from cpython.buffer cimport (Py_buffer, PyBUF_STRIDED, PyBUF_STRIDES, PyBuffer_Release,
                             PyObject_GetBuffer)
from cython.parallel cimport prange, threadid
from libc.string cimport memcpy, memset

include "tasks.pxi"
include "tensor.pxi"

cdef extern from "rows.h" nogil:
    int F32
    int F64
    int RAW16
    int element_size(int dtype) noexcept
    int compute_size(int dtype) noexcept
    void load_row(int dtype, const char *src, Py_ssize_t src_stride, Py_ssize_t n,
                  void *dst) noexcept
    void load_rows(int dtype, const char *src, Py_ssize_t src_pitch, Py_ssize_t rows, Py_ssize_t n,
                   void *dst, Py_ssize_t dst_pitch) noexcept
    void store_row(int dtype, const void *src, Py_ssize_t src_stride, char *dst,
                   Py_ssize_t dst_stride, Py_ssize_t n, int accumulate) noexcept
    void store_rows(int dtype, const void *src, Py_ssize_t src_pitch, char *dst,
                    Py_ssize_t dst_pitch, Py_ssize_t rows, Py_ssize_t n, int accumulate) noexcept

cdef extern from "prefetch.h" nogil:
    void fetch_ahead(const char *p, Py_ssize_t stride, Py_ssize_t begin, Py_ssize_t end,
                     Py_ssize_t bytes) noexcept

cdef extern from "stream.h" nogil:
    int BEGIN
    int STREAM
    void end_streams() noexcept

cdef extern from "tile.h" nogil:
    int VECTOR_BYTES
    int ROWS_NV
    int NV_MAX
    int tile_rows(int nv) noexcept
    void run_rows(int f64, int mr, int nv, Py_ssize_t taps, Py_ssize_t kc, const void *a,
                  Py_ssize_t a_pitch, Py_ssize_t a_shift, Py_ssize_t ahead, const void *b, void *c,
                  Py_ssize_t c_shift, int how) noexcept
    void run_columns(int f64, int mr, int nv, Py_ssize_t kc, const void *a, const void *b,
                     const Py_ssize_t *offset, Py_ssize_t ahead, void *c, Py_ssize_t ldc,
                     int accumulate) noexcept

cdef extern from "meanwhile.h" nogil:
    ctypedef struct Meanwhile:
        int dtype
        int parts
        int accumulate
        int fine
        Py_ssize_t sums_pitch
        Py_ssize_t rows
        Py_ssize_t share
        Py_ssize_t lines
        const char *ahead
        const char *ahead_end
    void store_waiting(Meanwhile *m, Py_ssize_t rows) noexcept
    void let_wait(Meanwhile *m, void *sums, char *place, Py_ssize_t pitch, Py_ssize_t rows,
                  Py_ssize_t n) noexcept

cdef extern from "dot.h" nogil:
    int HAVE_AMX
    int BF16_RATE
    void amx_begin(int rows, int depth) noexcept
    void amx_end() noexcept
    void run_amx(int parts, Py_ssize_t rows, int nv, int stream, Py_ssize_t taps, Py_ssize_t kc,
                 const char *a, Py_ssize_t a_pitch, const Py_ssize_t *offset, const char *b, char *c,
                 Py_ssize_t c_pitch, int accumulate, Meanwhile *m) noexcept
    void run_vectors(Py_ssize_t rows, int nv, Py_ssize_t taps, Py_ssize_t kc, const char *const *a,
                     Py_ssize_t a_shift, const Py_ssize_t *offset, const Py_ssize_t *index,
                     const char *panel, char *const *c, Py_ssize_t c_shift, Py_ssize_t channels,
                     int how, Py_ssize_t following) noexcept
    void run_pairs(int parts, Py_ssize_t channels, Py_ssize_t width, int nv, int stream,
                   Py_ssize_t taps, Py_ssize_t kc, const char *a, const char *b, Py_ssize_t b_pitch,
                   const Py_ssize_t *offset, char *c, Py_ssize_t c_pitch, int accumulate,
                   Meanwhile *m) noexcept

cdef enum:
    DOT_ROWS = 16       # positions of a tile
    DOT_COLUMNS = 16    # channels of a tile
    DOT_K = 32          # products of a tile
    DOT_PANELS = 1 << 18    # bytes of weights that a tile of positions passes by
    L1_PANELS = 1 << 15     # of these, what stays in the first-level cache
    L2_PANELS = 1 << 20     # of all, what stays in the second-level cache
    STREAM_BYTES = 1 << 23  # results that no cache holds


cdef enum Kernel:
    ROWS = 0
    COLUMNS = 1
    GROUPED = 2
    DOT = 3
    DEPTHWISE = 4
    SCATTER = 5
    PAIRS = 6


# One spatial axis, as the plan tabulates it (see _convolution_axis.Axis).
cdef struct Axis:
    Py_ssize_t result
    Py_ssize_t source
    Py_ssize_t out_step
    Py_ssize_t in_step
    Py_ssize_t block
    Py_ssize_t blocks
    Py_ssize_t window
    Py_ssize_t taps
    Py_ssize_t runs
    const Py_ssize_t *run       # [runs][4]: first entry, first source offset, length, step
    const Py_ssize_t *entry     # [window]: source offset of a window entry
    const Py_ssize_t *offset    # [taps]: source offset of a tap at the block's first position
    const Py_ssize_t *index     # [taps][block]: window entry of a tap at a position (COLUMNS: [taps])


# The scalars of a plan (see _convolution_plan.Plan._program).
cdef struct Blocking:
    int kernel
    int dtype
    int windowed
    int direct
    int flatten
    int rounded         # results in scratch are as they will be stored
    int exact_halo
    int interleave
    int parts           # of bf16, that DOT tiles multiply: more than one for f16 and f32, or 0
    int broadcast       # GROUPED: a vector of lanes is of one group
    int paired          # GROUPED: two channels of diff_dst, of bfloat16, are multiplied as one
    int abreast         # DOT: groups that are taken for one; or 1
    int unfold          # taps stand side by side in the window: runs of so many along the last axis
    int joins           # axes that stand in the rows of the last one
    Py_ssize_t batch
    Py_ssize_t groups
    Py_ssize_t task_groups
    Py_ssize_t input_channels
    Py_ssize_t output_channels  # summed; unfolded, of all taps
    Py_ssize_t source_channels  # of diff_dst in a group
    Py_ssize_t chunk
    Py_ssize_t merge
    Py_ssize_t channel_splits
    Py_ssize_t class_splits
    Py_ssize_t group_panel
    Py_ssize_t nv
    Py_ssize_t step             # positions that units are padded to a multiple of
    Py_ssize_t tile_positions   # of DOT and PAIRS
    Py_ssize_t depth            # products of a DOT tile
    Py_ssize_t unit             # what channels in its window are padded to a multiple of
    Py_ssize_t planes           # of the window: DOT, where rows run into each other
    int shares_product          # SCATTER: there is one product, whose columns threads share
    Py_ssize_t strip            # SCATTER: positions multiplied at a time
    Py_ssize_t box_pitch        # SCATTER: elements of a row of sums
    Py_ssize_t box_bytes        # SCATTER: of result_bytes, the sums'
    Py_ssize_t result_pitch
    Py_ssize_t pair_pitch       # PAIRS: bytes from pair to pair of the window
    Py_ssize_t ring_d
    Py_ssize_t ring_h
    Py_ssize_t zero_bytes
    Py_ssize_t window_bytes
    Py_ssize_t entry_bytes
    Py_ssize_t result_bytes
    Py_ssize_t pointer_bytes
    Py_ssize_t staging_bytes
    Py_ssize_t panel_bytes
    Py_ssize_t packing_bytes
    Py_ssize_t scratch_bytes


cdef struct Task:
    Py_ssize_t image
    Py_ssize_t group
    Py_ssize_t group_end
    Py_ssize_t block_begin
    Py_ssize_t block_end
    Py_ssize_t class_begin
    Py_ssize_t class_end
    Py_ssize_t block        # number of the image, range of groups and block of positions
    Py_ssize_t start[3]     # first position of the block on each axis, before residue classes


# A strided tensor without its Python object.
cdef struct Tensor:
    char *data
    Py_ssize_t stride[5]


# Which axis of the weights is contiguous in memory, and so how rows of panels are made.
cdef enum Order:
    BY_INPUT        # the lanes of a panel: rows are copied
    BY_OUTPUT       # k: transposed tap by tap
    BY_TAP          # the kernel's axes: transposed k by k
    SCATTERED


cdef struct Weights:
    const char *data
    Py_ssize_t stride[6]            # group, o, i, d, h, w
    int dtype
    int load_dtype
    int f64
    int parts                       # of bf16, k in whole tiles; or 0
    int tiles                       # PAIRS: as the left-hand factor of DOT
    int over_groups                 # lanes run over all groups
    int paired                      # two of bfloat16 are one element
    int order
    Py_ssize_t size                 # bytes of an element of the panels
    Py_ssize_t unit                 # bytes of an element of the weights
    Py_ssize_t taps
    const Py_ssize_t *tap           # [taps][3]: kernel coordinates in the order of the panels
    const Py_ssize_t *rank          # [taps]: where the n-th tap in memory stands in that order
    Py_ssize_t groups
    Py_ssize_t inputs               # channels of diff_src in a group, or columns of SCATTER
    Py_ssize_t channels             # of diff_dst in a group
    Py_ssize_t chunk
    Py_ssize_t blocks
    const Py_ssize_t *block         # [blocks][4]: first channel, channels, width, panel offset
    Py_ssize_t group_panel
    Py_ssize_t depth                # of parts: what k is padded to a multiple of


cdef struct Work:
    Blocking b
    Axis axis[3]
    Axis source[3]                  # how the window reads diff_dst; differs where taps are unfolded
    Tensor diff_dst
    Tensor diff_src
    int f64
    int accumulate
    bint streams                    # direct results go past the caches
    Py_ssize_t size                 # bytes of the type that sums
    Py_ssize_t window_size          # bytes of the type that multiplies
    int load_dtype                  # what load_row makes of diff_dst
    int result_dtype                # what store_row makes of results in scratch
    Py_ssize_t result_size          # bytes of one
    Py_ssize_t lanes
    Py_ssize_t classes
    const Py_ssize_t *residue       # [classes][5]: residues d, h, w; first and last + 1 of taps
    const Py_ssize_t *tap           # [taps][3]: tap index on each axis
    # SCATTER: the runs of a row of columns and the rows of columns (see _convolution_scatter).
    Py_ssize_t taps
    Py_ssize_t blocks
    const Py_ssize_t *block         # [blocks][4]: first channel, channels, tile width, panel offset
    const char *weights             # packed before, or
    const Weights *packing          # to be packed by the tasks
    char *product                   # SCATTER: that of all positions, where threads have shared it


cdef char *read_array(object array, bint writable, int axes, Py_ssize_t *shape,
                      Py_ssize_t *stride) except NULL:
    """Return where an array begins; fill in its extents and its strides in bytes.

    Asked for without a format, NumPy hands out any dtype, and faster than a typed memoryview.
    """
    cdef Py_buffer view
    cdef int axis
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED if writable else PyBUF_STRIDES)
    try:
        if view.ndim != axes:
            raise ValueError(f"expected {axes} axes, got {view.ndim}")
        for axis in range(axes):
            shape[axis], stride[axis] = view.shape[axis], view.strides[axis]
        return <char *> view.buf
    finally:
        PyBuffer_Release(&view)


cdef char *read_tensor(object array, bint writable, bint channels_last, const Work *work,
                       Py_ssize_t *stride) except NULL:
    """Return where a tensor begins; fill in its strides over n, c, d, h and w.

    Images without a depth of their own are planes.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED if writable else PyBUF_STRIDES)
    try:
        if not 3 <= view.ndim <= 5:
            raise ValueError(f"expected 3 to 5 axes, got {view.ndim}")
        read_strides(&view, channels_last, stride)
        if view.ndim < 5:
            stride[0], stride[2] = 0, stride[0]
        if work.b.joins > 0:
            stride[3] = work.axis[2].result * stride[4]
        if work.b.joins > 1:
            stride[2] = work.axis[1].result * stride[3]
        return <char *> view.buf
    finally:
        PyBuffer_Release(&view)


cdef char *read_bytes(object array, bint writable) except NULL:
    """Return where contiguous bytes begin."""
    cdef Py_ssize_t shape, stride
    return read_array(array, writable, 1, &shape, &stride)


cdef Axis read_axis(const Py_ssize_t[::1] table) noexcept nogil:
    cdef Axis axis
    cdef const Py_ssize_t *p = &table[0]
    axis.result, axis.source, axis.out_step, axis.in_step = p[0], p[1], p[2], p[3]
    axis.block, axis.blocks, axis.window, axis.taps, axis.runs = p[4], p[5], p[6], p[7], p[8]
    axis.run = p + 9
    axis.entry = axis.run + 4 * axis.runs
    axis.offset = axis.entry + axis.window
    axis.index = axis.offset + axis.taps
    return axis


cdef inline Py_ssize_t magnitude(Py_ssize_t stride) noexcept nogil:
    return stride if stride >= 0 else -stride


cdef inline Py_ssize_t positions(const Axis *axis, Py_ssize_t start, Py_ssize_t residue) noexcept nogil:
    """Count the positions of a residue class in the block that begins at `start`."""
    cdef Py_ssize_t count = (axis.result - residue + axis.out_step - 1) // axis.out_step - start
    return max(0, min(count, axis.block))


cdef inline Py_ssize_t source_of(const Axis *axis, Py_ssize_t start, Py_ssize_t tap,
                                 Py_ssize_t j) noexcept nogil:
    """Return the source coordinate that a tap reads for position `start` + j, or -1 outside."""
    cdef Py_ssize_t y = axis.offset[tap] + (start + j) * axis.in_step
    return y if 0 <= y < axis.source else -1


cdef inline void clip_run(Py_ssize_t first, Py_ssize_t step, Py_ssize_t length, Py_ssize_t extent,
                          Py_ssize_t *low, Py_ssize_t *high) noexcept nogil:
    """Tell which elements `low` to `high` - 1 of a run lie inside: `step` apart, from `first` on."""
    low[0] = min(length, (-first + step - 1) // step if first < 0 else 0)
    high[0] = (extent - first + step - 1) // step if first < extent else 0
    high[0] = max(low[0], min(length, high[0]))


cdef Py_ssize_t class_positions(const Work *work, const Task *task, const Py_ssize_t *residue,
                                Py_ssize_t *count) noexcept nogil:
    """Count the positions of a residue class in a task on each axis, and return their product."""
    cdef Py_ssize_t axis
    for axis in range(3):
        count[axis] = positions(&work.axis[axis], task.start[axis], residue[axis])
    return count[0] * count[1] * count[2]


cdef inline bint channels_first(const Work *work) noexcept nogil:
    """Return whether results in scratch are [channel][position] instead of [position][channel]."""
    return work.b.kernel == COLUMNS or work.b.kernel == PAIRS


cdef inline Py_ssize_t result_unit(const Work *work) noexcept nogil:
    """Return the bytes of scratch from position to position of the results."""
    return work.result_size * (1 if channels_first(work) else work.b.result_pitch)


include "split.pxi"
include "window.pxi"
include "pairs.pxi"
include "unfold.pxi"
include "weights.pxi"
include "compute.pxi"
include "compute_rows.pxi"
include "compute_dot.pxi"
include "compute_vectors.pxi"
include "store.pxi"
include "grouped.pxi"
include "depthwise.pxi"
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
            compute_rows(work, task, group, first, chunk, block_begin, block_end, residue, count,
                         result, s, more)
        used += class_extent(work, count)


# The positions and the group whose window a thread has in its scratch.
cdef struct Held:
    Py_ssize_t block
    Py_ssize_t group


cdef void fill_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, const Scratch *s) noexcept nogil:
    if work.b.unfold:
        unfold_window(work, task, group, first, chunk, s)
    elif work.b.kernel == PAIRS:
        pack_pair_window(work, task, group, first, chunk, s)
    elif work.b.windowed:
        pack_window(work, task, group, first, chunk, window_pitch(work, chunk), s.window, s.staging)


cdef int run_group(const Work *work, const Task *task, Py_ssize_t group, char *scratch,
                   Held *held) noexcept nogil:
    """Compute a task's block of one group; return whether something is not as assumed.

    Tasks that differ in their channels alone follow each other, and use the same window.
    """
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t chunk, i
    cdef int fine = 1
    while first < work.b.output_channels:
        chunk = min(work.b.chunk, work.b.output_channels - first)
        if chunk < work.b.output_channels or held.block != task.block or held.group != group:
            fill_window(work, task, group, first, chunk, &s)
        if work.packing != NULL:
            for i in range(task.block_begin, task.block_end):
                fine &= pack_chunk(work.packing, group, work.packing.block + 4 * i, first, chunk,
                                   s.panel, s.packing)
                compute_classes(work, task, group, first, chunk, i, i + 1, &s, &fine)
        else:
            compute_classes(work, task, group, first, chunk, task.block_begin, task.block_end, &s,
                            &fine)
        first += chunk
    held.block, held.group = task.block, group
    if not work.b.direct:
        store_classes(work, task, group, &s, &fine)
    return 1 - fine


cdef Task task_of(const Work *work, Py_ssize_t number) noexcept nogil:
    cdef Task task
    cdef Py_ssize_t ranges, split, axis
    split = number % work.b.channel_splits
    number = number // work.b.channel_splits
    task.block_begin = work.blocks * split // work.b.channel_splits
    task.block_end = work.blocks * (split + 1) // work.b.channel_splits
    split = number % work.b.class_splits
    number = number // work.b.class_splits
    task.class_begin = work.classes * split // work.b.class_splits
    task.class_end = work.classes * (split + 1) // work.b.class_splits
    task.block = number
    for axis in range(2, -1, -1):
        task.start[axis] = number % work.axis[axis].blocks * work.axis[axis].block
        number = number // work.axis[axis].blocks
    ranges = (work.b.groups + work.b.task_groups - 1) // work.b.task_groups
    task.group = number % ranges * work.b.task_groups
    task.group_end = min(task.group + work.b.task_groups, work.b.groups)
    task.image = number // ranges
    return task


cdef int run_task(const Work *work, Py_ssize_t number, char *scratch, Held *held) noexcept nogil:
    """Return whether the task met what the plan does not assume."""
    cdef Task task = task_of(work, number)
    cdef Py_ssize_t group
    cdef int unfit = 0
    if work.b.kernel == DEPTHWISE or work.b.kernel == GROUPED:
        return run_lanes(work, &task, scratch)
    if work.b.parts:
        amx_begin(DOT_ROWS, <int> work.b.depth)
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
    if work.streams:
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
        cdef int axis
        self.tables = (axes, sources, residues, taps, blocks, coordinates, ranks, panel_blocks)
        work.b = blocking
        for axis in range(3):
            work.axis[axis] = read_axis(axes[axis])
            work.source[axis] = read_axis(sources[axis])
        work.f64 = blocking.dtype == F64
        work.size = compute_size(blocking.dtype)
        work.window_size = 2 * (blocking.parts + blocking.paired) or work.size
        work.load_dtype = RAW16 if blocking.parts == 1 or blocking.paired else blocking.dtype
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
        w.tiles = blocking.kernel == PAIRS
        w.over_groups = blocking.kernel == DEPTHWISE or (
            blocking.kernel == GROUPED and not blocking.broadcast)
        w.paired = blocking.paired
        w.dtype = blocking.dtype
        w.load_dtype = work.load_dtype
        w.f64 = work.f64
        w.size = work.window_size * (1 + blocking.paired)
        w.unit = element_size(blocking.dtype)
        w.taps = coordinates.shape[0]
        w.tap = &coordinates[0, 0] if w.taps else NULL
        w.rank = &ranks[0] if ranks.shape[0] else NULL
        w.groups = blocking.groups * blocking.abreast
        w.channels = blocking.output_channels // blocking.abreast
        w.chunk = min(blocking.chunk, w.channels)
        w.depth = blocking.unit
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
        read_weights(weights, &w)
        if w.over_groups:
            for number in prange(w.taps, nogil=True, schedule="static", num_threads=num_threads):
                unfit += 1 - pack_lanes(&w, number, panels)
        else:
            for number in prange(w.groups * w.blocks, nogil=True, schedule="dynamic",
                                 num_threads=num_threads):
                unfit += 1 - pack_block(&w, number, panels, space + threadid() * share)
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


cdef bint streams_result(const Work *work) noexcept nogil:
    """Return whether vectors of whole sums may be written past the caches, line by line.

    Where no cache holds the result.
    """
    cdef const Tensor *y = &work.diff_src
    cdef Py_ssize_t size = work.b.batch * y.stride[4]
    cdef Py_ssize_t steps = y.stride[0] | y.stride[2] | y.stride[3] | y.stride[4]
    cdef Py_ssize_t axis
    if not work.b.direct or work.accumulate or channels_first(work):
        return False
    for axis in range(3):
        size *= work.axis[axis].result
    return size >= STREAM_BYTES and (<Py_ssize_t> y.data | steps) % 64 == 0


cdef int run_all(Work *work, diff_dst, diff_src, bint channels_last, scratch, int num_threads,
                 bint accumulate) except -1:
    """Run the tasks; return how many threads met what the plan does not assume."""
    cdef Py_ssize_t thread, number, axis, ranges
    cdef char *space = read_bytes(scratch, True)
    cdef Tasks tasks
    cdef Scratch first
    cdef int unfit = 0
    work.diff_dst.data = read_tensor(diff_dst, False, channels_last, work, work.diff_dst.stride)
    work.diff_src.data = read_tensor(diff_src, True, channels_last, work, work.diff_src.stride)
    work.accumulate = accumulate
    work.streams = streams_result(work)
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
    share_tasks(&tasks, number, num_threads)
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
