# What a kernel works on: the scalars and tables of a plan, tensors and weights without their Python
# objects, a task; and what the axes of a task say of positions and taps.

cdef extern from "rows.h" nogil:
    int F32
    int BF16
    int F64
    int RAW16
    int element_size(int dtype) noexcept
    int compute_size(int dtype) noexcept
    void load_row(int dtype, const char *src, Py_ssize_t src_stride, Py_ssize_t n,
                  void *dst) noexcept
    void load_rows(int dtype, const char *src, Py_ssize_t src_pitch, Py_ssize_t rows, Py_ssize_t n,
                   void *dst, Py_ssize_t dst_pitch) noexcept
    void copy_rows(const char *src, Py_ssize_t src_pitch, char *dst, Py_ssize_t dst_pitch,
                   Py_ssize_t rows, Py_ssize_t bytes) noexcept
    void store_row(int dtype, const void *src, Py_ssize_t src_stride, char *dst,
                   Py_ssize_t dst_stride, Py_ssize_t n, int accumulate) noexcept
    void store_rows(int dtype, const void *src, Py_ssize_t src_pitch, char *dst,
                    Py_ssize_t dst_pitch, Py_ssize_t rows, Py_ssize_t n, int accumulate) noexcept

cdef extern from "rounded_rows.h" nogil:
    cpdef enum:
        FEW_PRODUCTS  # of sums that need no tile
    enum:
        FEW_WEIGHTS
    ctypedef struct FewWeights:
        float *w
    void store_tile(int dtype, const float *sums, Py_ssize_t pitch, char **place, Py_ssize_t shift,
                    Py_ssize_t rows, Py_ssize_t n, int streams) noexcept
    void few_products(int dtype, Py_ssize_t kc, Py_ssize_t nv, const char **row, Py_ssize_t row_shift,
                      const float *weights, char **place, Py_ssize_t shift, Py_ssize_t rows,
                      Py_ssize_t n, int streams) noexcept

cdef extern from "prefetch.h" nogil:
    void fetch_to_write(char *p, Py_ssize_t stride, Py_ssize_t begin, Py_ssize_t end,
                        Py_ssize_t bytes) noexcept
    void fetch_ahead(const char *p, Py_ssize_t stride, Py_ssize_t begin, Py_ssize_t end,
                     Py_ssize_t bytes) noexcept
    void touch(const char *p, Py_ssize_t bytes) noexcept

cdef extern from "stream.h" nogil:
    int BEGIN
    int STREAM
    void stream(const char *src, char *dst, Py_ssize_t bytes) noexcept
    void end_streams() noexcept

cdef extern from "tile.h" nogil:
    int VECTOR_BYTES
    int ROWS_NV
    int NV_MAX
    bint HAVE_HALVES
    enum:
        MR_MAX
    int tile_rows(int nv) noexcept
    void run_rows(int f64, int mr, int nv, int half, Py_ssize_t taps, Py_ssize_t kc, const void *a,
                  Py_ssize_t a_pitch, Py_ssize_t a_shift, Py_ssize_t ahead, int apart, const void *b,
                  void *c, Py_ssize_t c_shift, int last, int how) noexcept
    void run_columns(int f64, int mr, int nv, Py_ssize_t kc, const void *a, const void *b,
                     const Py_ssize_t *offset, Py_ssize_t ahead, Py_ssize_t part,
                     Py_ssize_t parts, void *c, Py_ssize_t ldc, int accumulate) noexcept

cdef extern from "meanwhile.h" nogil:
    ctypedef struct Meanwhile:
        int dtype
        int parts
        int accumulate
        int checks
        int fine
        Py_ssize_t sums_pitch
        Py_ssize_t rows
        int between
        Py_ssize_t lines
        const char *ahead
        const char *ahead_end
    int check_rows(int parts, float *sums, Py_ssize_t pitch, Py_ssize_t rows,
                   Py_ssize_t n) noexcept
    void store_waiting(Meanwhile *m) noexcept
    void let_wait(Meanwhile *m, void *sums, char *place, Py_ssize_t pitch, Py_ssize_t rows,
                  Py_ssize_t n) noexcept

cdef extern from "dot.h" nogil:
    int HAVE_AMX
    int BF16_RATE
    void amx_begin(int rows, int depth, int tail) noexcept
    void amx_end() noexcept
    void run_amx(int parts, Py_ssize_t rows, int nv, int stream, int inside, int tail,
                 Py_ssize_t taps, Py_ssize_t kc, const char *a, Py_ssize_t a_pitch,
                 const Py_ssize_t *offset, const char *b, char *c, Py_ssize_t c_pitch,
                 int accumulate, Meanwhile *m) noexcept
    void run_vectors(Py_ssize_t rows, int nv, Py_ssize_t taps, Py_ssize_t kc, const char *const *a,
                     Py_ssize_t a_shift, const Py_ssize_t *offset, const Py_ssize_t *index,
                     const char *panel, char *const *c, Py_ssize_t c_shift, Py_ssize_t channels,
                     int rounded, int how, Py_ssize_t following, Py_ssize_t touched) noexcept
    void run_pairs(int parts, Py_ssize_t channels, Py_ssize_t width, int nv, int stream,
                   Py_ssize_t taps, Py_ssize_t kc, const char *a, const char *b, Py_ssize_t b_pitch,
                   const Py_ssize_t *offset, char *c, Py_ssize_t c_pitch, int accumulate,
                   Meanwhile *m) noexcept
    void run_zipped(Py_ssize_t channels, Py_ssize_t kc, const char *a, Py_ssize_t width,
                    const char *b, Py_ssize_t b_pitch, Py_ssize_t ahead, char *c, Py_ssize_t c_pitch,
                    int accumulate) noexcept

cdef extern from "few_planes.h" nogil:
    enum:
        FEW_PLANES
    void few_planes(int dtype, int streams, Py_ssize_t kc, int channels, const float *w,
                    Py_ssize_t w_step, const float *const *x, Py_ssize_t n, char *dst,
                    Py_ssize_t dst_pitch) noexcept

cdef extern from "few_pairs.h" nogil:
    cpdef enum:
        FEW_PAIRED  # products of sums that need no tile; or 0
    enum:
        MORE_PAIRED
    ctypedef struct FewPairs:
        const char *panel
        const char *last_panel
        Py_ssize_t blocks
        Py_ssize_t block_bytes
        Py_ssize_t channels
        int pairs
        int nv
        int single
        int streams
        int checks
    int run_few_pairs(const FewPairs *few, const char *a, Py_ssize_t a_step, char *c,
                      Py_ssize_t c_step, Py_ssize_t rows) noexcept

cdef extern from "winograd.h" nogil:
    enum:
        TILE
        PATCH
        PLANES
        FILTER_TAPS
    Py_ssize_t first_pixel(Py_ssize_t tile, Py_ssize_t dilation) noexcept
    void transform_patches(const float *const *rows, Py_ssize_t tiles, Py_ssize_t channels,
                           Py_ssize_t dilation, float *dst, Py_ssize_t plane) noexcept
    void transform_filters(const float *taps, Py_ssize_t pitch, Py_ssize_t n, float *dst,
                           Py_ssize_t plane) noexcept
    int transform_sums(const float *sums, Py_ssize_t plane, Py_ssize_t pitch, Py_ssize_t tiles,
                       Py_ssize_t channels, Py_ssize_t dilation, float *upper,
                       float *lower) noexcept

cdef enum:
    DOT_ROWS = 16       # positions of a tile
    DOT_COLUMNS = 16    # channels of a tile
    DOT_K = 32          # products of a tile
    DOT_PANELS = 1 << 18    # bytes of weights that a tile of positions passes by
    L1_PANELS = 1 << 15     # of these, what stays in the first-level cache
    L2_PANELS = 1 << 20     # of all, what stays in the second-level cache


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
    const Py_ssize_t *index     # [taps][pitch]: window entry of a tap at a position (COLUMNS: [taps])
    Py_ssize_t pitch            # positions of a block as it is tabulated


# The scalars of a plan (see _convolution_plan.Plan._program).
cdef struct Blocking:
    int kernel
    int dtype
    int windowed
    int direct
    int streams         # results in place go past the caches where their vectors are whole lines
    int stages          # lanes over groups: ... by way of scratch, where their rows are dense
    int asks            # for what tiles in place read next, for rows of diff_src (GROUPED)
    int touches         # what lies in no cache is asked for before it is used
    int flatten
    int rounded         # results in scratch are as they will be stored
    int exact_halo
    int all_inside      # no product is with padding
    int interleave      # classes of a row are stored together
    int all_classes     # of its positions are a task's
    int parts           # of bf16, that DOT tiles multiply: more than one for f16 and f32, or 0
    int broadcast       # GROUPED: lanes of a vector that is of one group, all or half of them; or 0
    int entry_channels  # GROUPED: channels of diff_dst that an entry of a row holds for each group
    int paired          # GROUPED: two channels of diff_dst, of bfloat16, are multiplied as one
    int abreast         # DOT: groups that are taken for one; or 1
    int checks          # DOT, PAIRS: sums have to be finite
    int fold_h          # DOT: rows of diff_src that are taken for channels,
    int fold_w          # and columns; or 1
    Py_ssize_t height   # of diff_src, not in such blocks or in tiles
    Py_ssize_t width
    int along_rows      # DEPTHWISE, SCATTER: lanes are positions of a row
    int stride_columns  # DEPTHWISE: columns of diff_dst that are summed side by side; or 1
    int row_classes     # DEPTHWISE: residue classes of a row that are computed together; or 1
    int column_pairs    # DEPTHWISE: taps of neighbouring columns of bfloat16 are multiplied as one
    int row_pairs       # DEPTHWISE: or those of neighbouring rows
    int rolls           # DEPTHWISE along rows: diff_dst is read in place, a row after the other
    int strided         # DEPTHWISE along rows: lanes are columns, those of a stride side by side
    int packed_apart    # unfolded taps that are packed by themselves; or 1
    int streams_panels  # packed weights go past the caches
    int weights_ahead   # runs of weights that are asked for before they are packed; or 0
    int unfold          # taps stand side by side in the window: runs of so many along the last axis
    int winograd        # ROWS: the classes are planes of patches and filters that were transformed
    Py_ssize_t dilation_h       # of its filters
    Py_ssize_t dilation_w
    Py_ssize_t window_plane     # elements from plane to plane of the window, or channel (COLUMNS),
    Py_ssize_t result_plane     # and of the sums
    int joins           # axes that stand in the rows of the last one
    int in_order        # DOT: rows of the window are not sorted by the residues of a stride
    int any_width       # rows are those of the arrays, which may be shorter than the plan's
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
    int tail                    # products of the last step along k of a DOT tile; or 0 for as many
    int taps_inside             # DOT: tiles meet all taps of a step along k before the next step
    Py_ssize_t entry_pitch      # ... in a window of such entries
    Py_ssize_t planes           # of the window: DOT, where rows run into each other
    int shares_product          # SCATTER: there is one product, whose columns threads share
    # SCATTER: positions multiplied at a time; DEPTHWISE: positions or rows of sums in scratch.
    Py_ssize_t strip
    Py_ssize_t box_pitch        # SCATTER: elements of a row of sums
    Py_ssize_t box_bytes        # SCATTER: of result_bytes, the sums'
    Py_ssize_t result_pitch
    Py_ssize_t window_pitch     # DEPTHWISE along rows: elements from row to row of the window
    Py_ssize_t pair_pitch       # PAIRS: bytes from pair to pair of the window
    Py_ssize_t ring_d           # GROUPED: spread rows that follow each other in place, or 0
    Py_ssize_t ring_h
    Py_ssize_t taps_apart_d     # ... rows of diff_dst from tap to tap: rings hold those of a residue
    Py_ssize_t taps_apart_h
    Py_ssize_t visits_d         # ... positions from one to the next that reads the same residue
    Py_ssize_t visits_h
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
    BY_SUM          # the kernel's axes, then k: transposed with the taps of many k in a row
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
    Py_ssize_t panel_taps           # as many, or those that they are transformed to
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
    int streams                     # transposed vectors go past the caches
    Py_ssize_t ahead                # runs of rows that are asked for
    int exact                       # no product with padding: weights need not be finite


cdef struct Work:
    Blocking b
    Axis axis[3]
    Axis source[3]                  # how the window reads diff_dst; differs where taps are unfolded
    Tensor diff_dst
    Tensor diff_src
    int f64
    int accumulate
    bint streams                    # direct results go past the caches
    bint apart                      # ranges of channels one after the other, each with all blocks
    Py_ssize_t size                 # bytes of the type that sums
    Py_ssize_t window_size          # bytes of the type that multiplies
    Py_ssize_t panel_size           # bytes of an element of the panels: of two where they are paired
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
    cdef Py_ssize_t before = max(0, -first)
    cdef Py_ssize_t inside = max(0, extent - first)
    if step > 1:  # divisions take longest
        before = (before + step - 1) // step
        inside = (inside + step - 1) // step
    low[0] = min(length, before)
    high[0] = max(low[0], min(length, inside))


cdef Py_ssize_t class_positions(const Work *work, const Task *task, const Py_ssize_t *residue,
                                Py_ssize_t *count) noexcept nogil:
    """Count the positions of a residue class in a task on each axis, and return their product."""
    cdef Py_ssize_t axis
    for axis in range(3):
        count[axis] = positions(&work.axis[axis], task.start[axis], residue[axis])
    return count[0] * count[1] * count[2]


cdef inline Py_ssize_t whole_vectors(const Work *work, Py_ssize_t count) noexcept nogil:
    """Return the elements of the vectors that hold `count` of the type that sums."""
    return (count + work.lanes - 1) // work.lanes * work.lanes


cdef inline bint folds(const Work *work) noexcept nogil:
    """Return whether blocks of pixels of diff_src are taken for channels."""
    return work.b.fold_h * work.b.fold_w > 1


cdef inline bint channels_first(const Work *work) noexcept nogil:
    """Return whether results in scratch are [channel][position] instead of [position][channel]."""
    return work.b.kernel == COLUMNS or work.b.kernel == PAIRS


cdef inline Py_ssize_t result_unit(const Work *work) noexcept nogil:
    """Return the bytes of scratch from position to position of the results."""
    return work.result_size * (1 if channels_first(work) else work.b.result_pitch)
