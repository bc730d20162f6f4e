# The convolution engine: tasks over disjoint parts of diff_src, each a batch-reduce GEMM.
#
# A task owns one image, a range of groups, a block of positions and a range of channel blocks.
# It reads the diff_dst rows it needs where they lie or packs them into its window, computes every
# residue class of the block with register tiles, and stores the block once. Pointers are to bytes,
# strides of tensors are in bytes; sizes inside scratch are in elements of the computing type.

from cython.parallel cimport prange, threadid
from libc.string cimport memset

cdef extern from "rows.h" nogil:
    int F32
    int F64
    int RAW16
    int element_size(int dtype) noexcept
    int compute_size(int dtype) noexcept
    void load_row(int dtype, const char *src, Py_ssize_t src_stride, Py_ssize_t n,
                  void *dst) noexcept
    void store_row(int dtype, const void *src, Py_ssize_t src_stride, char *dst,
                   Py_ssize_t dst_stride, Py_ssize_t n, int accumulate) noexcept

cdef extern from "tile.h" nogil:
    int VECTOR_BYTES
    int ROWS_NV
    int CHANNELS_NV
    int NV_MAX
    int tile_rows(int nv) noexcept
    void run_rows(int f64, int mr, int nv, Py_ssize_t taps, Py_ssize_t kc, const void *a,
                  Py_ssize_t a_pitch, const void *b, void *c, Py_ssize_t shift,
                  int accumulate) noexcept
    void run_columns(int f64, int mr, int nv, Py_ssize_t kc, const void *a, const void *b,
                     const Py_ssize_t *offset, void *c, Py_ssize_t ldc, int accumulate) noexcept
    void run_channels(int f64, int mr, int nv, Py_ssize_t taps, Py_ssize_t kc, const void *a,
                      Py_ssize_t a_pitch, Py_ssize_t lda, const void *b, Py_ssize_t ldb, void *c,
                      Py_ssize_t shift, int accumulate) noexcept

cdef extern from "amx.h" nogil:
    int HAVE_AMX
    void amx_begin() noexcept
    void amx_end() noexcept
    void run_amx(int mr, int nv, Py_ssize_t taps, Py_ssize_t kc, const char *a, Py_ssize_t a_pitch,
                 const Py_ssize_t *offset, const char *b, char *c, Py_ssize_t c_pitch,
                 int accumulate) noexcept

cdef enum:
    AMX_ROWS = 16       # positions of a tile
    AMX_COLUMNS = 16    # channels of a tile
    AMX_K = 32          # products of a tile

ctypedef const unsigned char[:, :, :, :, :, :] InputTensor
ctypedef unsigned char[:, :, :, :, :, :] OutputTensor


cdef enum Kernel:
    ROWS = 0
    COLUMNS = 1
    CHANNELS = 2
    AMX = 3
    DEPTHWISE = 4


# One spatial axis, as the plan tabulates it (see _convolution_plan.Axis).
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


# The scalars of a plan (see _convolution_plan.Plan.blocking).
cdef struct Blocking:
    int kernel
    int dtype
    int windowed
    int direct
    int flatten
    int exact_halo
    int interleave
    Py_ssize_t groups
    Py_ssize_t task_groups
    Py_ssize_t input_channels
    Py_ssize_t output_channels
    Py_ssize_t chunk
    Py_ssize_t merge
    Py_ssize_t channel_splits
    Py_ssize_t class_splits
    Py_ssize_t group_panel
    Py_ssize_t nv
    Py_ssize_t result_pitch
    Py_ssize_t zero_bytes
    Py_ssize_t window_bytes
    Py_ssize_t result_bytes
    Py_ssize_t pointer_bytes
    Py_ssize_t staging_bytes
    Py_ssize_t scratch_bytes


cdef struct Task:
    Py_ssize_t image
    Py_ssize_t group
    Py_ssize_t group_end
    Py_ssize_t block_begin
    Py_ssize_t block_end
    Py_ssize_t class_begin
    Py_ssize_t class_end
    Py_ssize_t start[3]     # first position of the block on each axis, before residue classes


# A strided tensor without its Python object.
cdef struct Tensor:
    char *data
    Py_ssize_t stride[5]


cdef struct Work:
    Blocking b
    Axis axis[3]
    Tensor diff_dst
    Tensor diff_src
    int f64
    int accumulate
    Py_ssize_t size                 # bytes of the type that sums
    Py_ssize_t window_size          # bytes of the type that multiplies
    int load_dtype                  # what load_row makes of diff_dst
    Py_ssize_t lanes
    Py_ssize_t classes
    const Py_ssize_t *residue       # [classes][5]: residues d, h, w; first and last + 1 of taps
    const Py_ssize_t *tap           # [taps][3]: tap index on each axis
    Py_ssize_t taps
    Py_ssize_t blocks
    const Py_ssize_t *block         # [blocks][4]: first channel, channels, tile width, panel offset
    const char *weights


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


include "window.pxi"
include "compute.pxi"
include "store.pxi"
include "depthwise.pxi"
include "weights.pxi"


cdef void run_group(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t groups,
                    char *scratch) noexcept nogil:
    """Compute a task's block of one group, or of `groups` side by side for the channels kernel."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t first, chunk, c, used, axis, last, unit
    cdef Py_ssize_t count[3]
    cdef const Py_ssize_t *residue
    cdef char *result
    cdef Results results
    cdef int more
    # Scratch is [channel][position] for COLUMNS, [position][channel] for the others.
    unit = work.size if work.b.kernel == COLUMNS else work.b.result_pitch * work.size
    expect_results(work, task, group, groups, &results)
    first = 0
    while first < work.b.output_channels:
        chunk = min(work.b.chunk, work.b.output_channels - first)
        more = first > 0
        last = first + chunk == work.b.output_channels
        if work.b.windowed:
            pack_window(work, task, group, groups, first, chunk, &s)
        used = 0
        for c in range(task.class_begin, task.class_end):
            residue = work.residue + 5 * c
            for axis in range(3):
                count[axis] = positions(&work.axis[axis], task.start[axis], residue[axis])
            if count[0] * count[1] * count[2] == 0:
                continue
            result = s.result + used * unit
            if work.b.kernel == COLUMNS:
                compute_columns(work, task, group, first, chunk, residue, count, result, &s, more)
            elif work.b.kernel == AMX:
                compute_amx(work, task, group, first, chunk, residue, count, result, &s, more)
            else:
                compute_rows(work, task, group, groups, first, chunk, residue, count, result, &s,
                             more)
            if last and not work.b.direct:
                store_class(work, &results, residue, count, result, s.staging)
            used += class_extent(work, count)
        first += chunk


cdef void run_task(const Work *work, Py_ssize_t number, char *scratch) noexcept nogil:
    cdef Task task
    cdef Py_ssize_t ranges, split, group, axis
    split = number % work.b.channel_splits
    number = number // work.b.channel_splits
    task.block_begin = work.blocks * split // work.b.channel_splits
    task.block_end = work.blocks * (split + 1) // work.b.channel_splits
    split = number % work.b.class_splits
    number = number // work.b.class_splits
    task.class_begin = work.classes * split // work.b.class_splits
    task.class_end = work.classes * (split + 1) // work.b.class_splits
    for axis in range(2, -1, -1):
        task.start[axis] = number % work.axis[axis].blocks * work.axis[axis].block
        number = number // work.axis[axis].blocks
    ranges = (work.b.groups + work.b.task_groups - 1) // work.b.task_groups
    task.group = number % ranges * work.b.task_groups
    task.group_end = min(task.group + work.b.task_groups, work.b.groups)
    task.image = number // ranges
    if work.b.kernel == DEPTHWISE:
        run_depthwise(work, &task, scratch)
        return
    if work.b.kernel == CHANNELS:
        run_group(work, &task, task.group, task.group_end - task.group, scratch)
        return
    if work.b.kernel == AMX:
        amx_begin()
    for group in range(task.group, task.group_end):
        run_group(work, &task, group, 1, scratch)
    if work.b.kernel == AMX:
        amx_end()


def convolve(InputTensor diff_dst, const unsigned char[::1] weights, OutputTensor diff_src,
             const Py_ssize_t[::1] axis_d, const Py_ssize_t[::1] axis_h,
             const Py_ssize_t[::1] axis_w, const Py_ssize_t[:, ::1] residues,
             const Py_ssize_t[:, ::1] taps, const Py_ssize_t[:, ::1] blocks, Blocking blocking,
             unsigned char[::1] scratch, int num_threads, bint accumulate):
    """Run a plan: diff_src from diff_dst and packed weights, on `num_threads` threads.

    `scratch` holds `scratch_bytes` for each thread, aligned to 64 bytes. The tensors are
    (N, C, D, H, W, itemsize) views; the tables are the plan's.
    """
    cdef Work work
    cdef Py_ssize_t task, tasks, axis, ranges
    work.b = blocking
    work.axis[0], work.axis[1], work.axis[2] = read_axis(axis_d), read_axis(axis_h), read_axis(axis_w)
    work.diff_dst.data = <char *> &diff_dst[0, 0, 0, 0, 0, 0]
    work.diff_src.data = <char *> &diff_src[0, 0, 0, 0, 0, 0]
    for axis in range(5):
        work.diff_dst.stride[axis] = diff_dst.strides[axis]
        work.diff_src.stride[axis] = diff_src.strides[axis]
    work.f64 = blocking.dtype == F64
    work.accumulate = accumulate
    work.size = compute_size(blocking.dtype)
    work.window_size = 2 if blocking.kernel == AMX else work.size
    work.load_dtype = RAW16 if blocking.kernel == AMX else blocking.dtype
    work.lanes = VECTOR_BYTES // work.size
    work.classes = residues.shape[0]
    work.residue = &residues[0, 0]
    work.tap = &taps[0, 0] if taps.shape[0] else NULL
    work.taps = taps.shape[0]
    work.blocks = blocks.shape[0]
    work.block = &blocks[0, 0]
    work.weights = <const char *> &weights[0]
    ranges = (blocking.groups + blocking.task_groups - 1) // blocking.task_groups
    tasks = diff_src.shape[0] * ranges * blocking.channel_splits * blocking.class_splits
    for axis in range(3):
        tasks *= work.axis[axis].blocks
    for task in prange(tasks, nogil=True, schedule="dynamic", num_threads=num_threads):
        run_task(&work, task, <char *> &scratch[0] + threadid() * blocking.scratch_bytes)


def tile_shapes(bint f64):
    """Return {vectors: rows} of the register tiles, the lanes of a vector, the most vectors of a
    ROWS tile, and whether there is AMX.
    """
    shapes = {nv: tile_rows(nv) for nv in range(1, NV_MAX + 1) if tile_rows(nv)}
    return shapes, VECTOR_BYTES // (8 if f64 else 4), ROWS_NV, bool(HAVE_AMX)
