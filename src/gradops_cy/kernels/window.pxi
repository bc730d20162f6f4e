# The window of a task: the diff_dst elements that its block needs, converted to the type that the
# kernel multiplies, halo included.
#
#   ROWS      [entry][channel]
#   DOT       [entry][channel]     channels padded with zeros to whole tiles
#   COLUMNS   [channel][entry]
#   PAIRS     see pairs.pxi
#
# An entry is a source position of the window, counted over (d, h, w).

cdef extern from "transpose.h" nogil:
    void transpose(int size, const void *src, Py_ssize_t src_pitch, void *dst, Py_ssize_t dst_pitch,
                   const Py_ssize_t *place, Py_ssize_t rows, Py_ssize_t cols) noexcept
    void transpose_to(int streams, int size, const void *src, Py_ssize_t src_pitch, void *dst,
                      Py_ssize_t dst_pitch, const Py_ssize_t *place, Py_ssize_t rows,
                      Py_ssize_t cols) noexcept
    void strip_pairs(int streams, const unsigned short *even, const unsigned short *odd,
                     Py_ssize_t step, Py_ssize_t below, char *dst, Py_ssize_t dst_pitch,
                     const Py_ssize_t *place, Py_ssize_t rows, Py_ssize_t cols) noexcept

cdef extern from "pairs.h" nogil:
    void zip_pairs(const unsigned short *even, const unsigned short *odd, unsigned int *dst,
                   Py_ssize_t n) noexcept
    void zip_alternate(const unsigned short *even, const unsigned short *odd, unsigned int *dst,
                       Py_ssize_t n) noexcept
    void zip_runs(const unsigned short *src, Py_ssize_t run, unsigned int *dst,
                  Py_ssize_t pairs) noexcept
    void zip_single(const unsigned short *even, unsigned int *dst, Py_ssize_t n) noexcept
    void transpose_alternate(const unsigned short *src, Py_ssize_t src_pitch, unsigned short *dst,
                             Py_ssize_t dst_pitch, Py_ssize_t rows, Py_ssize_t cols) noexcept

cdef enum:
    TRANSPOSE_ROWS = 16
    NEAR = 4            # times their channels that positions lie apart, which are read as one row


# One thread's scratch, cut up.
cdef struct Scratch:
    char *zeros         # a row of zeros: what positions outside diff_dst point to
    char *window
    char *entries       # UNFOLD: diff_dst on its way into the window
    char *result        # sums of the block, all residue classes
    char *pointers      # row pointers (ROWS) or window offsets (COLUMNS)
    char *staging       # rows on their way into the window
    char *panel         # weights of a channel block and chunk, where tasks pack them
    char *packing       # and what that takes


cdef inline char *lines_for(const Scratch *s, const char *place) noexcept nogil:
    """Return where in scratch results lie in lines of cache as they will at their place."""
    return s.result + (<Py_ssize_t> place & 63)


cdef Scratch carve(const Blocking *b, char *scratch) noexcept nogil:
    cdef Scratch s
    s.zeros = scratch
    s.window = s.zeros + b.zero_bytes
    s.entries = s.window + b.window_bytes
    s.result = s.entries + b.entry_bytes
    s.pointers = s.result + b.result_bytes
    s.staging = s.pointers + b.pointer_bytes
    s.panel = s.staging + b.staging_bytes
    s.packing = s.panel + b.panel_bytes
    memset(s.zeros, 0, b.zero_bytes)
    return s


cdef void clear_entries(char *dst, Py_ssize_t channel_pitch, Py_ssize_t entry_pitch, Py_ssize_t entries,
                        Py_ssize_t channels, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t j
    if entries <= 0:
        return
    if channels == entry_pitch:
        memset(dst, 0, entries * channels * size)
    elif channel_pitch == 1:
        for j in range(entries):
            memset(dst + j * entry_pitch * size, 0, channels * size)
    else:
        for j in range(channels):
            memset(dst + j * channel_pitch * size, 0, entries * size)


cdef inline Py_ssize_t strip_rows(Py_ssize_t size) noexcept nogil:
    """Return how many rows are transposed as a square: two of 16-bit elements in the place of one."""
    return 2 * TRANSPOSE_ROWS if size == 2 else TRANSPOSE_ROWS


cdef inline Py_ssize_t staged_elements(const Work *work) noexcept nogil:
    """Return how many elements of the computing type are staged on their way into the window."""
    return work.b.staging_bytes // work.size


cdef void pack_run(const Work *work, const char *src, Py_ssize_t src_step, char *dst,
                   Py_ssize_t channel_pitch, Py_ssize_t entry_pitch, Py_ssize_t entries,
                   Py_ssize_t channels, char *staging) noexcept nogil:
    """Pack `entries` equidistant source positions; one of the two pitches is 1."""
    cdef Py_ssize_t channel_stride = work.diff_dst.stride[1]
    cdef int dtype = work.load_dtype
    cdef int size = work.window_size
    cdef Py_ssize_t unit = element_size(dtype)
    cdef Py_ssize_t block, j, i, rows, strip
    if work.b.parts > 1:
        split_run(work, src, src_step, dst, entry_pitch, entries, channels, staging)
    elif channels == entry_pitch and channel_stride == unit and src_step == channels * unit:
        load_row(dtype, src, unit, entries * channels, dst)
    elif channel_pitch == 1 and channel_stride == unit:
        load_rows(dtype, src, src_step, entries, channels, dst, entry_pitch)
    elif channel_pitch == 1 and entries == 1:
        load_row(dtype, src, channel_stride, channels, dst)
    elif entry_pitch == 1 and (channel_stride != unit or channels == 1 or src_step == unit):
        for j in range(channels):
            load_row(dtype, src + j * channel_stride, src_step, entries,
                     dst + j * channel_pitch * size)
    elif channel_pitch == 1 and size == unit and src_step == unit:
        transpose(size, src, channel_stride // unit, dst, entry_pitch, NULL, channels, entries)
    elif channel_pitch == 1 and size == unit == 2 and src_step == 2 * unit:
        transpose_alternate(<const unsigned short *> src, channel_stride // unit,
                            <unsigned short *> dst, entry_pitch, channels, entries)
    elif channel_pitch == 1:
        strip = strip_rows(size)
        for block in range((channels + strip - 1) // strip):
            j = block * strip
            rows = min(strip, channels - j)
            for i in range(rows):
                load_row(dtype, src + (j + i) * channel_stride, src_step, entries,
                         staging + i * entries * size)
            transpose(size, staging, entries, dst + j * size, entry_pitch, NULL, rows, entries)
    elif size == unit:
        transpose(size, src, src_step // unit, dst, channel_pitch, NULL, entries, channels)
    elif channel_stride == unit and 0 < src_step <= NEAR * channels * unit:
        # With what lies between, as one row: rows of few channels by themselves took twice as long.
        # Positions may overlap, so the last one's channels count in full.
        strip = 1 + (staged_elements(work) - channels) // (src_step // unit)
        strip = max(strip // TRANSPOSE_ROWS * TRANSPOSE_ROWS, min(strip, TRANSPOSE_ROWS))
        for block in range((entries + strip - 1) // strip):
            j = block * strip
            rows = min(strip, entries - j)
            load_row(dtype, src + j * src_step, unit, (rows - 1) * (src_step // unit) + channels,
                     staging)
            transpose(size, staging, src_step // unit, dst + j * size, channel_pitch, NULL, rows,
                      channels)
    else:
        for block in range((entries + TRANSPOSE_ROWS - 1) // TRANSPOSE_ROWS):
            j = block * TRANSPOSE_ROWS
            rows = min(TRANSPOSE_ROWS, entries - j)
            for i in range(rows):
                load_row(dtype, src + (j + i) * src_step, channel_stride, channels,
                         staging + i * channels * size)
            transpose(size, staging, channels, dst + j * size, channel_pitch, NULL, rows, channels)


cdef void pack_row(const Work *work, const char *src, Py_ssize_t start, char *dst,
                   Py_ssize_t channel_pitch, Py_ssize_t entry_pitch, Py_ssize_t channels,
                   char *staging) noexcept nogil:
    """Pack one (d, h) row; `src` is its element 0, NULL where the row lies outside."""
    cdef const Axis *axis = &work.source[2]
    cdef Py_ssize_t r, entry, first, length, step, low, high
    cdef Py_ssize_t size = work.window_size
    # Parts alternate: those of some channels have no room of their own.
    cdef Py_ssize_t cleared = entry_pitch if work.b.parts else channels
    if src == NULL:
        for r in range(axis.runs):
            clear_entries(dst + axis.run[4 * r] * entry_pitch * size, channel_pitch, entry_pitch,
                          axis.run[4 * r + 2], cleared, size)
        return
    for r in range(axis.runs):
        entry, first = axis.run[4 * r], axis.run[4 * r + 1] + start
        length, step = axis.run[4 * r + 2], axis.run[4 * r + 3]
        clip_run(first, step, length, axis.source, &low, &high)
        clear_entries(dst + entry * entry_pitch * size, channel_pitch, entry_pitch, low, cleared, size)
        if high > low:
            pack_run(work, src + (first + low * step) * work.diff_dst.stride[4],
                     step * work.diff_dst.stride[4], dst + (entry + low) * entry_pitch * size,
                     channel_pitch, entry_pitch, high - low, channels, staging)
        clear_entries(dst + (entry + high) * entry_pitch * size, channel_pitch, entry_pitch,
                      length - high, cleared, size)


cdef inline Py_ssize_t window_depth(const Work *work, Py_ssize_t chunk) noexcept nogil:
    """Return the elements of a window entry that are multiplied (not for COLUMNS)."""
    if work.b.parts:
        return (chunk + work.b.unit - 1) // work.b.unit * work.b.unit
    return chunk


cdef inline Py_ssize_t window_pitch(const Work *work, Py_ssize_t chunk) noexcept nogil:
    """Return the elements from window entry to entry."""
    return work.b.entry_pitch if work.b.taps_inside else window_depth(work, chunk)


cdef Py_ssize_t joined_rows(const Work *work, Py_ssize_t h, Py_ssize_t y,
                            Py_ssize_t start) noexcept nogil:
    """Return how many rows of the window, from `h` on, are one run of diff_dst, from row `y` on.

    Those of few positions would be transposed by a fraction of a square each.
    """
    cdef const Axis *height = &work.source[1]
    cdef const Axis *width = &work.source[2]
    cdef const Tensor *x = &work.diff_dst
    # What is staged of a position: of parts, two squares as deep as tiles.
    cdef Py_ssize_t staged = strip_rows(work.window_size) * work.window_size
    cdef Py_ssize_t rows = 1
    cdef Py_ssize_t most
    if (width.runs > 1 or width.window != width.source or width.run[1] + start != 0
            or width.run[3] != 1 or x.stride[3] != width.source * x.stride[4]):
        return 1
    if work.b.parts > 1:
        staged = 2 * DOT_K * element_size(work.b.dtype)
    most = work.b.staging_bytes // (staged * width.source)
    most = min(most, min(height.window - h, height.source - y))
    while rows < most and height.entry[h + rows] == height.entry[h] + rows:
        rows += 1
    return rows


cdef Py_ssize_t keep_rows(const Work *work, Py_ssize_t chunk, Py_ssize_t along,
                          char *window) noexcept nogil:
    """Move the rows up that a block shares with the one above it, whose window this is.

    Entries are `along` elements apart. Return how many rows there are. Copied from the second-level
    cache, they are not read, converted and transposed once more.
    """
    cdef const Axis *height = &work.source[1]
    cdef Py_ssize_t shift = height.block * height.in_step
    cdef Py_ssize_t kept = height.window - shift
    cdef Py_ssize_t row = work.source[2].window * along * work.window_size
    cdef Py_ssize_t channels = chunk if work.b.kernel == COLUMNS else 1
    cdef Py_ssize_t c, d, h
    cdef char *plane
    # Rows that are in pieces, left out, or sorted by residues of a stride are packed again.
    if kept <= 0 or work.b.planes > 1:
        return 0
    for h in range(1, height.window):
        if height.entry[h] != height.entry[0] + h:
            return 0
    for c in range(channels):
        plane = window + c * work.b.window_plane * work.window_size
        for d in range(work.source[0].window):
            memmove(plane, plane + shift * row, kept * row)
            plane += height.window * row
    return kept


cdef void pack_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, Py_ssize_t pitch, bint below, char *window,
                      char *staging) noexcept nogil:
    """Pack `chunk` channels from `first` on, `pitch` elements from entry to entry.

    `below`, the window is that of the block above.
    """
    cdef const Axis *depth = &work.source[0]
    cdef const Axis *height = &work.source[1]
    cdef const Axis *width = &work.source[2]
    cdef Tensor x = work.diff_dst
    cdef Py_ssize_t plane = depth.window * height.window * width.window
    cdef Py_ssize_t d, h, yd, yh, rows
    cdef Py_ssize_t size = work.window_size
    # From channel to channel of the window, and from entry to entry.
    cdef Py_ssize_t across = work.b.window_plane if work.b.kernel == COLUMNS else 1
    cdef Py_ssize_t along = 1 if work.b.kernel == COLUMNS else pitch
    cdef Py_ssize_t kept = keep_rows(work, chunk, along, window) if below else 0
    cdef char *dst
    cdef Py_ssize_t start = task.start[2] * width.in_step
    cdef const char *base = x.data + task.image * x.stride[0]
    cdef const char *src
    base += (group * work.b.source_channels + first) * x.stride[1]
    # Tiles run on past the last entry.
    if work.b.kernel == COLUMNS and first == 0:
        clear_ends(window, across * size, chunk, plane * size)
        clear_ends(window, work.b.window_bytes, 1, across * chunk * size)
    # Rows of channels fill themselves up.
    if work.b.parts == 1 and window_depth(work, chunk) > chunk and x.stride[1] != size and not kept:
        memset(window, 0, work.b.planes * plane * pitch * size)
    for d in range(depth.window):
        yd = task.start[0] * depth.in_step + depth.entry[d]
        h = kept
        while h < height.window:
            yh = task.start[1] * height.in_step + height.entry[h]
            dst = window + (d * height.window + h) * width.window * along * size
            src, rows = NULL, 1
            if 0 <= yd < depth.source and 0 <= yh < height.source:
                src = base + yd * x.stride[2] + yh * x.stride[3]
                rows = joined_rows(work, h, yh, start)
            if rows > 1:
                pack_run(work, src, x.stride[4], dst, across, along, rows * width.source, chunk,
                         staging)
            else:
                pack_row(work, src, start, dst, across, along, chunk, staging)
            h += rows
