# Few channels of diff_dst: the taps stand side by side in the window (im2col), so that the sum over
# taps and channels is one long row of DOT's products.
#
# The window is [position][tap][channel], padded with zeros to whole tiles. It is copied, in runs of
# taps that lie next to each other, from entries as the other kernels read them. Every position has
# a row of its own: a NaN of diff_dst reaches what it is a factor of and nothing else.

cdef extern from "unfold.h" nogil:
    ctypedef struct Run:
        const char *row
        const Py_ssize_t *entry
        Py_ssize_t bytes
    void unfold_rows(const Run *run, Py_ssize_t runs, Py_ssize_t pitch, Py_ssize_t positions,
                     char *dst, Py_ssize_t dst_pitch) noexcept


cdef Py_ssize_t point_runs(const Work *work, Py_ssize_t jd, Py_ssize_t jh, Py_ssize_t first,
                           Py_ssize_t chunk, const char *entries, Run *run) noexcept nogil:
    """Describe the products `first` to `first` + chunk - 1 of a row of positions; return the runs."""
    cdef const Axis *depth = &work.source[0]
    cdef const Axis *height = &work.source[1]
    cdef const Axis *width = &work.source[2]
    cdef Py_ssize_t pitch = work.b.source_channels * work.window_size
    cdef Py_ssize_t length = work.b.unfold * work.b.source_channels
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t runs = 0
    cdef Py_ssize_t td, th, i, low, high
    cdef const char *row
    for td in range(depth.taps):
        for th in range(height.taps):
            row = entries + pitch * width.window * (
                depth.index[td * depth.pitch + jd] * height.window
                + height.index[th * height.pitch + jh])
            for i in range(width.taps // work.b.unfold):
                low = max(at, first)
                high = min(at + length, first + chunk)
                if low < high:
                    run[runs].row = row + (low - at) * work.window_size
                    run[runs].entry = width.index + i * work.b.unfold * width.pitch
                    run[runs].bytes = (high - low) * work.window_size
                    runs += 1
                at += length
    return runs


cdef void unfold_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                        Py_ssize_t chunk, bint below, const Scratch *s) noexcept nogil:
    cdef Py_ssize_t channels = work.b.source_channels
    cdef Py_ssize_t pitch = window_pitch(work, chunk) * work.window_size
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t jd, jh, runs
    cdef Run *run = <Run *> s.pointers
    cdef char *dst
    if first == 0:
        pack_window(work, task, group, 0, channels, channels, below, s.entries, s.staging)
    class_positions(work, task, work.residue, count)
    for jd in range(count[0]):
        for jh in range(count[1]):
            runs = point_runs(work, jd, jh, first, chunk, s.entries, run)
            dst = s.window + (jd * work.axis[1].window + jh) * work.axis[2].window * pitch
            unfold_rows(run, runs, channels * work.window_size, count[2], dst, pitch)
