# The kernel of planes: of small planes sixteen are transposed as a whole, and then gathered as the
# sixteen channels of a tensor in cache.

cdef void move_planes(const Job *job, const Workspace *space, const Tensor *tensor,
                      const Py_ssize_t *extents, Py_ssize_t first, int count, bint load,
                      char *transposed, Stage *stage) noexcept nogil:
    # transposed[position][lane] = plane first + lane of `tensor`, or the other way round.
    cdef char *planes[ROW_LANES]
    cdef int dtype = job.load_dtype if load else job.store_dtype, i
    cdef Py_ssize_t pitch = job.columns * job.size, run = extents[2], r, x, n, offset
    cdef Py_ssize_t runs = extents[0] * extents[1]
    cdef char *dst
    if (extents[1] == 1 or tensor.strides[3] == run * tensor.strides[4]) and (
            extents[0] == 1 or tensor.strides[2] == extents[1] * run * tensor.strides[4]):
        run, runs = run * runs, 1
    for i in range(count):
        planes[i] = place(tensor, (first + i) // job.channels, (first + i) % job.channels, 0, 0)
    for r in range(runs):
        offset = r // extents[1] * tensor.strides[2] + r % extents[1] * tensor.strides[3]
        x = 0
        while x < run:
            n = min(job.columns, run - x)
            if load:
                for i in range(count):
                    load_row(dtype, planes[i] + offset, tensor.strides[4], n,
                             space.rows + i * pitch)
                    if job.ahead:
                        prefetch_ahead(planes[i] + offset, job.ahead, n * job.load_size)
                transpose(job.size, space.rows, job.columns, transposed, ROW_LANES, NULL,
                          ROW_LANES, n)
            else:
                transpose(job.size, transposed, ROW_LANES, space.rows, job.columns, NULL, n,
                          ROW_LANES)
                for i in range(count):
                    dst = planes[i] + offset
                    if job.streams:
                        dst = staged(stage, dst, n * job.store_size)
                    store_row(dtype, space.rows + i * pitch, 1, dst, tensor.strides[4], n,
                              job.accumulate)
            transposed += n * ROW_LANES * job.size
            offset += n * tensor.strides[4]
            x += n


cdef Tensor as_channels(char *data, const Py_ssize_t *extents, int size) noexcept nogil:
    # Planes transposed into lanes, as a tensor of sixteen channels.
    cdef Tensor tensor
    tensor.data = data
    tensor.strides[0] = 0
    tensor.strides[1] = size
    tensor.strides[4] = ROW_LANES * size
    tensor.strides[3] = extents[2] * tensor.strides[4]
    tensor.strides[2] = extents[1] * tensor.strides[3]
    return tensor


cdef void run_planes(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t plane = task * job.task_rows
    cdef Py_ssize_t end = min(plane + job.task_rows, job.batch * job.channels)
    cdef Py_ssize_t r, grads_plane = (job.grads_extents[0] * job.grads_extents[1]
                                      * job.grads_extents[2])
    cdef Py_ssize_t[3] extents
    cdef Row row
    cdef Job inner = job[0]
    cdef Stage stage = begin_stage(space.summed, space.rows - space.summed)
    cdef int count
    extents[0], extents[1] = job.depth.extent, job.height.extent
    extents[2] = job.width.extent
    inner.kernel, inner.accumulate, inner.ahead = CHANNELS, False, 0
    inner.load_dtype = inner.store_dtype = job.real
    inner.store_size = job.size
    inner.stores_directly, inner.streams = True, False
    inner.grads = as_channels(space.planes, job.grads_extents, job.size)
    inner.result = as_channels(
        space.planes + buffer_bytes(ROW_LANES * grads_plane, job.size), extents, job.size)
    memset(space.rows, 0, ROW_LANES * job.columns * job.size)
    while plane < end:
        count = <int> min(<Py_ssize_t> ROW_LANES, end - plane)
        move_planes(job, &space, &job.grads, job.grads_extents, plane, count, True,
                    inner.grads.data, NULL)
        for r in range(extents[0] * extents[1]):
            row = result_row(&inner, 0, 0, r // extents[1], r % extents[1])
            resample_rows(&inner, &space, &row, 1, ROW_LANES, 0, extents[2], NULL)
        move_planes(job, &space, &job.result, extents, plane, count, False, inner.result.data,
                    &stage)
        flush(&stage, stage.bytes)  # its place is needed
        plane += count
