# Weights packed once per call into the panels that the tiles stream.
#
#   ROWS, COLUMNS   [group][block][chunk][tap][k][width]    a block is one tile's channels
#   AMX             [group][block][chunk][tap][k/2][width][2]
#   CHANNELS        [tap][k][lane]                          lanes over all groups

cdef enum:
    PACK_CHANNELS = 16      # one cache line's worth of f32 channels at a time, whatever the layout

ctypedef const unsigned char[:, :, :, :, :, :, :] WeightsTensor


cdef extern from "finite.h" nogil:
    int all_finite(int f64, const void *x, Py_ssize_t n) noexcept
    int all_finite_bf16(const unsigned short *x, Py_ssize_t n) noexcept


cdef struct Weights:
    const char *data
    Py_ssize_t stride[6]            # group, o, i, d, h, w
    int dtype
    int f64
    int pairs
    Py_ssize_t size
    Py_ssize_t taps
    const Py_ssize_t *tap           # [taps][3]: kernel coordinates in the order of the panels
    Py_ssize_t groups
    Py_ssize_t channels             # of diff_dst in a group
    Py_ssize_t chunk
    Py_ssize_t blocks
    const Py_ssize_t *block         # [blocks][4]: first channel, channels, width, panel offset
    Py_ssize_t group_panel


cdef inline const char *tap_data(const Weights *w, Py_ssize_t group, Py_ssize_t t) noexcept nogil:
    cdef const Py_ssize_t *tap = w.tap + 3 * t
    return (w.data + group * w.stride[0] + tap[0] * w.stride[3] + tap[1] * w.stride[4]
            + tap[2] * w.stride[5])


cdef int pack_panel(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                    char *panel) noexcept nogil:
    """Pack one block of one group; return whether all of it is finite."""
    cdef Py_ssize_t first, chunk, low, high, t, k
    cdef Py_ssize_t valid = block[1]
    cdef Py_ssize_t width = block[2]
    cdef const char *src
    cdef char *dst
    cdef int finite = 1
    first = 0
    while first < w.channels:
        chunk = min(w.chunk, w.channels - first)
        low = 0
        while low < chunk:
            high = min(chunk, low + PACK_CHANNELS)
            for t in range(w.taps):
                src = tap_data(w, group, t) + block[0] * w.stride[2] + first * w.stride[1]
                dst = panel + t * chunk * width * w.size
                for k in range(low, high):
                    load_row(w.dtype, src + k * w.stride[1], w.stride[2], valid,
                             dst + k * width * w.size)
                    memset(dst + (k * width + valid) * w.size, 0, (width - valid) * w.size)
                finite &= all_finite(w.f64, dst + low * width * w.size, (high - low) * width)
            low = high
        panel += w.taps * chunk * width * w.size
        first += chunk
    return finite


cdef int pack_pairs(const Weights *w, Py_ssize_t group, const Py_ssize_t *block,
                    char *panel) noexcept nogil:
    """Pack one block of one group for AMX, k in pairs; return whether all of it is finite."""
    cdef Py_ssize_t first, chunk, padded, t, k, i
    cdef Py_ssize_t valid = block[1]
    cdef Py_ssize_t width = block[2]
    cdef const char *src
    cdef unsigned short *dst = <unsigned short *> panel
    cdef int finite = 1
    first = 0
    while first < w.channels:
        chunk = min(w.chunk, w.channels - first)
        padded = (chunk + AMX_K - 1) // AMX_K * AMX_K
        memset(dst, 0, w.taps * padded * width * 2)
        for t in range(w.taps):
            for k in range(chunk):
                src = tap_data(w, group, t) + block[0] * w.stride[2] + (first + k) * w.stride[1]
                for i in range(valid):
                    dst[((t * padded + k) // 2 * width + i) * 2 + k % 2] = (
                        <const unsigned short *> (src + i * w.stride[2]))[0]
        finite &= all_finite_bf16(dst, w.taps * padded * width)
        dst += w.taps * padded * width
        first += chunk
    return finite


cdef int pack_lanes(const Weights *w, Py_ssize_t group, Py_ssize_t inputs, char *panel) noexcept nogil:
    """Pack one group's lanes of the CHANNELS panel; return whether all of it is finite."""
    cdef Py_ssize_t t, k
    cdef char *dst
    cdef int finite = 1
    for t in range(w.taps):
        for k in range(w.channels):
            dst = panel + ((t * w.channels + k) * w.group_panel + group * inputs) * w.size
            load_row(w.dtype, tap_data(w, group, t) + k * w.stride[1], w.stride[2], inputs, dst)
            finite &= all_finite(w.f64, dst, inputs)
    return finite


cdef int pack_block(const Weights *w, Py_ssize_t number, char *packed) noexcept nogil:
    cdef Py_ssize_t group = number // w.blocks
    cdef const Py_ssize_t *block = w.block + 4 * (number % w.blocks)
    cdef Py_ssize_t place = group * w.group_panel + block[3]
    if w.pairs:
        return pack_pairs(w, group, block, packed + 2 * place)
    return pack_panel(w, group, block, packed + w.size * place)


def pack_weights(WeightsTensor weights, unsigned char[::1] packed, const Py_ssize_t[:, ::1] taps,
                 const Py_ssize_t[:, ::1] blocks, int dtype, int kernel, Py_ssize_t chunk,
                 Py_ssize_t group_panel, int num_threads):
    """Fill `packed` from the (group, O, I, D, H, W, itemsize) view; return whether all is finite.

    `group_panel` is the size of a group's panels, or the pitch of a row of lanes, in elements.
    """
    cdef Weights w
    cdef Py_ssize_t number, axis
    cdef Py_ssize_t inputs = weights.shape[2]
    cdef int infinite = 0
    w.data = <const char *> &weights[0, 0, 0, 0, 0, 0, 0]
    for axis in range(6):
        w.stride[axis] = weights.strides[axis]
    w.dtype = dtype
    w.f64 = dtype == F64
    w.pairs = kernel == AMX
    w.size = compute_size(dtype)
    w.taps = taps.shape[0]
    w.tap = &taps[0, 0] if w.taps else NULL
    w.groups = weights.shape[0]
    w.channels = weights.shape[1]
    w.chunk = chunk
    w.blocks = blocks.shape[0]
    w.block = &blocks[0, 0]
    w.group_panel = group_panel
    if kernel == CHANNELS:
        for number in prange(w.groups, nogil=True, schedule="static", num_threads=num_threads):
            infinite += 1 - pack_lanes(&w, number, inputs, <char *> &packed[0])
    else:
        for number in prange(w.groups * w.blocks, nogil=True, schedule="dynamic",
                             num_threads=num_threads):
            infinite += 1 - pack_block(&w, number, <char *> &packed[0])
    return infinite == 0
