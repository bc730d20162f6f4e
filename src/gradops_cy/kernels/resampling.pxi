# The resampling kernels: every result element gathers the elements of diff_dst that touch it.
# This file holds what a job is, where its rows lie, and how its tasks are run. What is done to rows
# is in resampling_passes.pxi, with the kernel of rows, and resampling_shared.pxi; what is asked of
# memory meanwhile in resampling_asking.pxi. The other kernels have files of their own, from
# resampling_boxes.pxi to resampling_width.pxi.

from cpython.buffer cimport (PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
                             PyObject_GetBuffer)
from cython.parallel cimport prange
from libc.string cimport memcpy, memmove, memset

include "tasks.pxi"
include "tensor.pxi"

cdef extern from "resampling.h" nogil:
    enum:
        SLACK, F32, F64
    cpdef enum:
        ROWS_AT_ONCE, ROWS_OF_A_PLANE, COLUMNS_IN_SEQUENCE
    int compute_size(int dtype) noexcept
    int element_size(int dtype) noexcept
    void load_row(int dtype, const char *src, Py_ssize_t src_stride, Py_ssize_t n,
                  void *dst) noexcept
    void store_row(int dtype, const void *src, Py_ssize_t src_stride, char *dst,
                   Py_ssize_t dst_stride, Py_ssize_t n, int accumulate) noexcept
    void row_products(bint f64, const char *base, Py_ssize_t outer_stride, const void *outer,
                      Py_ssize_t inner_stride, const void *inner, Py_ssize_t inner_count,
                      Py_ssize_t r0, Py_ssize_t rows, const char **row, void *weight) noexcept
    void add_rows(int dtype, const char **row, Py_ssize_t stride, const void *weight,
                  Py_ssize_t rows, Py_ssize_t ahead, Py_ssize_t n, void *dst,
                  bint add) noexcept
    enum:
        ASKED_RUNS, ASKING_LANES
    ctypedef struct Asking:
        const char *run[16]  # ASKED_RUNS
        Py_ssize_t runs, bytes, each, due, current, place
        bint near
    void add_shared_rows(int dtype, const char **row, const void **weight, Py_ssize_t rows,
                         Py_ssize_t ahead, Asking *meanwhile, Py_ssize_t n, char **dst,
                         const int *add) noexcept
    void add_columns(int dtype, bint accumulate, const void *src, Py_ssize_t lanes,
                     const Py_ssize_t *start, const Py_ssize_t *first, const void *weight,
                     int chains, Py_ssize_t origin, Py_ssize_t x0, Py_ssize_t x1, char *dst,
                     Py_ssize_t step) noexcept
    cpdef enum:
        NEAR  # added to how far ahead is asked: into the first-level cache, not the second
    void prefetch_ahead(const char *p, Py_ssize_t ahead, Py_ssize_t bytes) noexcept
    void stream(const char *src, char *dst, Py_ssize_t bytes) noexcept
    void end_streams() noexcept
    void touch(const char *p, Py_ssize_t bytes) noexcept
    void add_boxes(int dtype, int chains, bint streams, const char *const *row, Py_ssize_t rows,
                   const Py_ssize_t *start, const Py_ssize_t *first, Py_ssize_t step,
                   Py_ssize_t lanes, Py_ssize_t x0, Py_ssize_t x1, char *dst,
                   Py_ssize_t dst_step) noexcept
    ctypedef struct SlidingRow:
        const char *const *row
        const float *row_weight
        Py_ssize_t rows, asked, ahead
        Asking *meanwhile
        const Py_ssize_t *start
        const Py_ssize_t *first
        const float *weight
        Py_ssize_t extent, lanes, piece, step, dst_step
        bint streams
    void slide_row(int dtype, int chains, const SlidingRow *job, bint first, Py_ssize_t x0,
                   Py_ssize_t x1, void *carried, char *dst) noexcept
    void add_to(bint f64, const void *src, Py_ssize_t n, void *dst) noexcept
    void transpose(int size, const void *src, Py_ssize_t src_pitch, void *dst,
                   Py_ssize_t dst_pitch, const Py_ssize_t *place, Py_ssize_t rows,
                   Py_ssize_t cols) noexcept

cpdef enum:
    CHANNELS, ROWS, PLANES, WIDTH, PHASES, POINTS  # what the lanes of a block are
    ROW_LANES = 16      # rows or planes side by side
    MAX_PRODUCTS = 256  # rows summed at most before their sum is rounded off; more are halved
    MAX_RUN = 128       # columns of a run that a block must hold; longer runs are halved


cdef struct Axis:
    Py_ssize_t extent
    const Py_ssize_t *start  # the first index of diff_dst that touches x
    const Py_ssize_t *first  # the place of its weight; first[x+1] ends the run


cdef struct Tensor:
    char *data
    Py_ssize_t strides[5]  # in bytes: n, c, d, h, w


cdef struct Job:
    int load_dtype, store_dtype
    int kernel
    bint f64, accumulate
    bint stores_directly  # the last pass stores where the result lies, without a buffer
    bint streams  # ... and past the caches
    int real, size  # the type that computes, and the size of its elements
    int load_size, store_size  # of elements of diff_dst and of the result
    Py_ssize_t batch, channels, lanes, columns, longest_product, longest_run
    Py_ssize_t pixel  # channels of a position of a row that is a lane
    Py_ssize_t task_images, task_depths, task_rows, task_columns
    Py_ssize_t rows_in_cache  # rows of the result whose rows of all depths stay in cache
    Axis depth, height, width
    const char *weights  # those of all axes
    int chains  # that the products of a column are summed in
    Py_ssize_t ahead  # bytes of a row that are asked for before they are loaded
    bint in_order  # ... of PHASES, one row after the other, where these follow each other
    Py_ssize_t rows_ahead  # CHANNELS: of the result, what these read is asked for instead; or 0
    bint asks_near  # WIDTH: ... of diff_dst, into the first-level cache
    bint boxes  # CHANNELS: all weights are 1, and a result's element reads few rows and columns
    bint slides  # CHANNELS: both passes at once
    # For WIDTH: rows side by side, chunks of a row, blocks and what these share; what is gathered to
    # go past the caches; the rows of a batch, as many as there are, however long.
    Py_ssize_t group, chunk_count, stage_bytes, long_rows
    const Py_ssize_t *chunks
    const Py_ssize_t *blocks
    const int *patterns
    # For PHASES: columns of diff_dst for each of the result, or the other way round; taps of each and
    # their weights.
    int scale, spread, taps
    const float *phases
    bint shares  # rows are read once for both rows of the result that they touch, where they can be
    # For PHASES: whether they load and store tensors without a buffer; or how many planes take turns.
    bint direct
    Py_ssize_t planes_at_once
    # For PHASES and WIDTH, and CHANNELS and POINTS where the height shrinks: from each row of the
    # result on, the number of those `period` on in turn that have the same weights, and read `apart`
    # rows of diff_dst on, which are none where it shrinks. The period is 1 but for WIDTH.
    const Py_ssize_t *alike
    Py_ssize_t period, apart
    Tensor grads, result
    const char *grads_end  # of the last byte
    Py_ssize_t grads_extents[3]  # d, h, w


# A row of the result: where it lies, and the rows of diff_dst that touch it.
cdef struct Row:
    const char *grads
    char *result
    Py_ssize_t depth_count, height_count
    const char *depth_weights
    const char *height_weights


# A row of the result by its indices. Rows count height fastest, then depth, then channels (unless
# a row holds these), then the batch.
cdef struct Cursor:
    Py_ssize_t n, c, d, h


# The buffers of one thread.
cdef struct Workspace:
    char *loaded     # columns x lanes, reduced over depth and height
    char *summed     # columns x lanes of the result
    char *rows       # lanes x columns, before or after transposing
    char *carried    # the next row, reduced as far as it shares rows of diff_dst; in their place
    char *planes     # sixteen planes of diff_dst and of the result, transposed
    char *row_sums   # columns x lanes for each time a list of rows is halved
    char *column_sums  # lanes for each time a run of columns is halved


cdef Py_ssize_t halvings(Py_ssize_t count, Py_ssize_t limit) noexcept nogil:
    # How often `count` is halved, rounded up, until it is at most `limit`.
    cdef Py_ssize_t times = 0
    while count > limit:
        count -= count // 2
        times += 1
    return times


cdef Py_ssize_t buffer_bytes(Py_ssize_t elements, int size) noexcept nogil:
    # Whole cache lines, and room for what vectors touch past the end.
    return (elements * size + SLACK + 63) // 64 * 64


def workspace_bytes(int size, Py_ssize_t lanes, Py_ssize_t columns, Py_ssize_t longest_product,
                    Py_ssize_t longest_run, Py_ssize_t grads_plane, Py_ssize_t result_plane):
    """Return how many bytes of buffers each thread of :func:`resample` needs.

    The plane extents are 0 for the kernels that do not transpose whole planes; that of widths takes
    the first one for what it gathers to go past the caches.
    """
    return (buffer_bytes(lanes * columns, size) * (3 + halvings(longest_product, MAX_PRODUCTS))
            + buffer_bytes(lanes, size) * halvings(longest_run, MAX_RUN)
            + buffer_bytes(lanes * grads_plane, size) + buffer_bytes(lanes * result_plane, size)
            + 64)


cdef Workspace carve(const Job *job, char *memory) noexcept nogil:
    cdef Workspace space
    cdef Py_ssize_t block = buffer_bytes(job.lanes * job.columns, job.size)
    space.loaded = memory + (-<Py_ssize_t> memory & 63)
    space.summed = space.loaded + block
    space.rows = space.carried = space.summed + block
    space.row_sums = space.rows + block
    space.column_sums = space.row_sums + halvings(job.longest_product, MAX_PRODUCTS) * block
    space.planes = (space.column_sums
                    + halvings(job.longest_run, MAX_RUN) * buffer_bytes(job.lanes, job.size))
    return space


cdef inline Py_ssize_t run_of(const Axis *axis, Py_ssize_t x) noexcept nogil:
    # How many indices of diff_dst touch x.
    return axis.first[x + 1] - axis.first[x]


cdef char *place(const Tensor *tensor, Py_ssize_t n, Py_ssize_t c, Py_ssize_t d,
                 Py_ssize_t h) noexcept nogil:
    return (tensor.data + n * tensor.strides[0] + c * tensor.strides[1] + d * tensor.strides[2]
            + h * tensor.strides[3])


cdef inline Row result_row(const Job *job, Py_ssize_t n, Py_ssize_t c, Py_ssize_t d,
                           Py_ssize_t h) noexcept nogil:
    cdef Row row
    row.grads = place(&job.grads, n, c, job.depth.start[d], job.height.start[h])
    row.result = place(&job.result, n, c, d, h)
    row.depth_count, row.height_count = run_of(&job.depth, d), run_of(&job.height, h)
    row.depth_weights = job.weights + job.depth.first[d] * job.size
    row.height_weights = job.weights + job.height.first[h] * job.size
    return row


cdef Py_ssize_t channels_in_rows(const Job *job) noexcept nogil:
    # The channels that have rows of their own.
    return job.channels if job.pixel == 1 and job.kernel != CHANNELS else 1


cdef Py_ssize_t count_rows(const Job *job) noexcept nogil:
    return job.batch * channels_in_rows(job) * job.depth.extent * job.height.extent


cdef Cursor cursor_at(const Job *job, Py_ssize_t r) noexcept nogil:
    cdef Cursor at
    cdef Py_ssize_t height = job.height.extent, depth = job.depth.extent
    cdef Py_ssize_t channels = channels_in_rows(job)
    at.h, at.d = r % height, r // height % depth
    at.c, at.n = r // height // depth % channels, r // height // depth // channels
    return at


cdef void step_by(const Job *job, Cursor *at, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t channels
    at.h += rows
    if at.h < job.height.extent:
        return
    channels = channels_in_rows(job)
    at.d += at.h // job.height.extent
    at.c += at.d // job.depth.extent
    at.n += at.c // channels
    at.h, at.d, at.c = at.h % job.height.extent, at.d % job.depth.extent, at.c % channels


cdef void step_on(const Job *job, Cursor *at) noexcept nogil:
    step_by(job, at, 1)


cdef Row next_row(const Job *job, Py_ssize_t c0, Cursor *at) noexcept nogil:
    cdef Row row = result_row(job, at.n, c0 + at.c, at.d, at.h)
    step_on(job, at)
    return row


cdef Axis take_axis(const Py_ssize_t *table, Py_ssize_t extent) noexcept nogil:
    cdef Axis axis
    axis.extent = extent
    axis.start = table
    axis.first = table + extent
    return axis


include "resampling_passes.pxi"
include "resampling_shared.pxi"
include "resampling_asking.pxi"
include "resampling_width.pxi"
include "resampling_phases.pxi"
include "resampling_points.pxi"
include "resampling_boxes.pxi"
include "resampling_sliding.pxi"
include "resampling_channels.pxi"
include "resampling_planes.pxi"


cdef void run_any(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    if job.kernel == PLANES:
        run_planes(job, task, memory)
    elif job.kernel == WIDTH:
        run_width(job, task, memory)
    elif job.kernel == POINTS:
        run_points(job, task, memory)
    elif job.planes_at_once > 1:
        run_phase_planes(job, task, memory)
    elif job.kernel == PHASES and job.shares and shares_rows(job, 1):
        run_shared(job, task, memory)
    elif job.kernel == PHASES:
        run_phases(job, task, memory)
    elif job.kernel == CHANNELS:
        run_channels(job, task, memory)
    else:
        run_task(job, task, memory)


cdef void run_tasks(const Job *job, Tasks *tasks, Py_ssize_t thread, char *memory) noexcept nogil:
    """Run a thread's share."""
    cdef Py_ssize_t tried = 0
    cdef Py_ssize_t task = next_task(tasks, thread, &tried)
    while task >= 0:
        run_any(job, task, memory)
        task = next_task(tasks, thread, &tried)
    if job.streams:
        end_streams()


cdef Tensor take_tensor(const Py_buffer *view, bint channels_last, bint folds) noexcept nogil:
    # With `folds` the channels are rows of one.
    cdef Tensor tensor
    tensor.data = <char *> view.buf
    read_strides(view, channels_last, tensor.strides)
    if folds:
        tensor.strides[3], tensor.strides[1] = tensor.strides[1], 0
    return tensor


cdef const char *end_of(const Py_buffer *view) noexcept nogil:
    # Where the memory of a tensor ends.
    cdef const char *end = <const char *> view.buf + view.itemsize
    cdef int axis
    for axis in range(view.ndim):
        end += (view.shape[axis] - 1) * max(<Py_ssize_t> 0, view.strides[axis])
    return end


cdef class Resampling:
    """The tables and block sizes of one problem, as the kernels take them; see ResamplePlan."""

    cdef Job job
    cdef Py_ssize_t tasks
    cdef bint streams, folds
    cdef object tables  # what the job points into

    def __init__(self, *, int kernel, int load_dtype, int store_dtype, result_shape, grads_shape,
                 const Py_ssize_t[::1] table, const unsigned char[::1] weights,
                 const Py_ssize_t[::1] chunks, const Py_ssize_t[::1] blocks,
                 const int[::1] patterns, const float[::1] phases,
                 const Py_ssize_t[::1] alike, int scale, int spread, int taps,
                 Py_ssize_t planes_at_once, Py_ssize_t period, Py_ssize_t apart,
                 Py_ssize_t stage_bytes, Py_ssize_t long_rows, int chains, Py_ssize_t pixel,
                 Py_ssize_t group, Py_ssize_t lanes, Py_ssize_t columns, Py_ssize_t longest_product,
                 Py_ssize_t longest_run, Py_ssize_t rows_in_cache, Py_ssize_t task_rows,
                 Py_ssize_t task_columns, Py_ssize_t tasks, Py_ssize_t ahead,
                 Py_ssize_t rows_ahead, bint in_order, bint asks_near, bint streams,
                 bint boxes, bint slides, bint shares, bint folds):
        cdef Job *job = &self.job
        cdef int axis
        self.tables = (table, weights, chunks, blocks, patterns, phases, alike)
        self.tasks, self.streams, self.folds = tasks, streams, folds
        job.kernel = kernel
        job.load_dtype, job.store_dtype = load_dtype, store_dtype
        job.f64, job.size = load_dtype == F64, compute_size(load_dtype)
        job.real = F64 if job.f64 else F32
        job.load_size, job.store_size = element_size(load_dtype), element_size(store_dtype)
        job.batch, job.channels = result_shape[0], result_shape[1]
        job.chains, job.pixel, job.group = chains, pixel, group
        job.ahead, job.rows_ahead = ahead, rows_ahead
        job.in_order, job.asks_near = in_order, asks_near
        job.boxes, job.slides, job.shares = boxes, slides, shares
        job.lanes, job.columns = lanes, columns
        job.longest_product, job.longest_run = longest_product, longest_run
        job.task_rows, job.task_columns, job.rows_in_cache = task_rows, task_columns, rows_in_cache
        job.depth = take_axis(&table[0], result_shape[2])
        job.height = take_axis(job.depth.first + job.depth.extent + 1, result_shape[3])
        job.width = take_axis(job.height.first + job.height.extent + 1, result_shape[4])
        job.weights = <const char *> &weights[0]
        job.planes_at_once, job.stage_bytes = planes_at_once, stage_bytes
        job.long_rows = long_rows
        job.period, job.apart = period, apart
        for axis in range(3):
            job.grads_extents[axis] = grads_shape[axis + 2]
        if kernel == WIDTH or kernel == POINTS:
            job.chunks, job.patterns = &chunks[0], &patterns[0]
            job.chunk_count = chunks.shape[0] // CHUNK_WORDS
        if kernel == WIDTH:
            job.blocks = &blocks[0]
        if kernel == PHASES:
            job.phases = &phases[0]
            job.chunk_count = blocks_of(job.width.extent, task_columns)
        if alike.shape[0]:
            job.alike = &alike[0]
        job.scale, job.spread, job.taps = scale, spread, taps

    def run(self, grads, result, bint channels_last, bint accumulate, workspace, int threads):
        """Gather `result` from `grads`, tensors of any strides that export buffers.

        The workspace has equal shares of bytes for each thread.
        """
        cdef Job job = self.job
        cdef Py_buffer[3] views
        cdef int taken = 0
        try:
            PyObject_GetBuffer(grads, &views[0], PyBUF_STRIDES)
            taken = 1
            PyObject_GetBuffer(result, &views[1], PyBUF_STRIDES | PyBUF_WRITABLE)
            taken = 2
            PyObject_GetBuffer(workspace, &views[2], PyBUF_WRITABLE)
            taken = 3
            job.grads = take_tensor(&views[0], channels_last, self.folds)
            job.grads_end = end_of(&views[0])
            job.result = take_tensor(&views[1], channels_last, self.folds)
            job.accumulate = accumulate
            with nogil:
                self.compute(&job, <char *> views[2].buf, views[2].len // threads, threads)
        finally:
            while taken > 0:
                taken -= 1
                PyBuffer_Release(&views[taken])

    cdef void compute(self, Job *job, char *workspace, Py_ssize_t workspace_bytes,
                      int threads) noexcept nogil:
        cdef Py_ssize_t thread, number = self.tasks
        cdef Tasks tasks
        cdef bint at_once, contiguous = job.lanes == 1 or job.result.strides[1] == job.store_size
        if job.kernel != CHANNELS:
            contiguous = (job.result.strides[4] == job.pixel * job.store_size
                          and (job.pixel == 1 or job.result.strides[1] == job.store_size))
        job.stores_directly = contiguous and (
            job.kernel != ROWS or not job.accumulate and job.store_dtype == job.real)
        job.streams = (self.streams and job.stores_directly and not job.accumulate and (
            job.kernel != CHANNELS or job.result.strides[4] == job.lanes * job.store_size))
        job.direct = (job.stores_directly and not job.accumulate
                      and job.load_dtype == job.store_dtype
                      and job.grads.strides[4] == job.pixel * job.load_size
                      and (job.pixel == 1 or job.grads.strides[1] == job.load_size))
        at_once = (job.stores_directly and not job.accumulate
                   and job.grads.strides[1] == job.load_size)
        job.boxes, job.slides = job.boxes and at_once, job.slides and at_once
        if job.kernel == CHANNELS:
            number = split_channels(job, threads)
        share_tasks(&tasks, number, threads)
        if threads == 1:
            run_tasks(job, &tasks, 0, workspace)
            return
        for thread in prange(threads, schedule="static", chunksize=1, num_threads=threads):
            run_tasks(job, &tasks, thread, workspace + thread * workspace_bytes)
