# Regions of a residue class: its positions are cut where taps begin or end to read inside diff_dst,
# so that tiles go without the taps that lie outside for all of them.

cdef enum:
    # Positions: fewer would wait for the weights; and of tiles of one vector for themselves.
    LEAST_REGION = 4
    LEAST_REGION_OF_ONE = 8


cdef struct Region:
    Py_ssize_t first[3]
    Py_ssize_t count[3]


cdef inline void inside_of(const Work *work, const Task *task, Py_ssize_t axis, Py_ssize_t tap,
                           Py_ssize_t count, Py_ssize_t *low, Py_ssize_t *high) noexcept nogil:
    """Tell which positions `low` to `high` - 1 of an axis find one of its taps inside."""
    cdef const Axis *a = &work.axis[axis]
    clip_run(a.offset[tap] + task.start[axis] * a.in_step, a.in_step, count, a.source, low, high)


cdef inline bint lies_outside(const Work *work, const Task *task, Py_ssize_t tap,
                              const Py_ssize_t *count, const Region *region) noexcept nogil:
    """Return whether a tap reads outside for all of a region.

    Of merged taps, which are one, none does for all of a row.
    """
    cdef Py_ssize_t axis, low, high
    for axis in range(2 if work.b.merge > 1 else 3):
        inside_of(work, task, axis, work.tap[3 * tap + axis], count[axis], &low, &high)
        if high <= region.first[axis] or region.first[axis] + region.count[axis] <= low:
            return True
    return False


cdef Py_ssize_t piece_end(const Work *work, const Task *task, const Py_ssize_t *residue,
                          Py_ssize_t axis, Py_ssize_t count, Py_ssize_t begin,
                          Py_ssize_t least) noexcept nogil:
    """Return where the piece of an axis ends that begins at `begin`, and has `least` positions."""
    cdef Py_ssize_t end = count
    cdef Py_ssize_t before = -1
    cdef Py_ssize_t t, tap, low, high
    if begin + 2 * least > count or (axis == 2 and work.b.merge > 1):
        return count
    for t in range(residue[3], residue[4]):
        tap = work.tap[3 * t + axis]
        if tap == before:
            continue
        if t > residue[3] and tap == work.tap[3 * residue[3] + axis]:
            break
        before = tap
        inside_of(work, task, axis, tap, count, &low, &high)
        if begin + least <= low < end:
            end = low
        if begin + least <= high < end:
            end = high
    return end if end + least <= count else count


cdef void cut_region(const Work *work, const Task *task, const Py_ssize_t *residue,
                     const Py_ssize_t *count, Py_ssize_t axis, Region *region) noexcept nogil:
    """Tell how far a region goes from its first position, on an axis and those behind it."""
    cdef Py_ssize_t least = LEAST_REGION if work.block[2] > 1 else LEAST_REGION_OF_ONE
    cdef Py_ssize_t others = 1
    cdef Py_ssize_t a
    for a in range(3):
        others *= region.count[a] if a < axis else count[a]
    while axis < 3:
        others //= count[axis]
        region.count[axis] = piece_end(work, task, residue, axis, count[axis], region.first[axis],
                                       (least + others - 1) // others) - region.first[axis]
        others *= region.count[axis]
        axis += 1


cdef void first_region(const Work *work, const Task *task, const Py_ssize_t *residue,
                       const Py_ssize_t *count, Region *region) noexcept nogil:
    """Begin with the first region of a class that has positions."""
    region.first[0] = region.first[1] = region.first[2] = 0
    cut_region(work, task, residue, count, 0, region)


cdef bint next_region(const Work *work, const Task *task, const Py_ssize_t *residue,
                      const Py_ssize_t *count, Region *region) noexcept nogil:
    """Go on to the next region; return whether there is one."""
    cdef Py_ssize_t axis = 2
    region.first[2] += region.count[2]
    while region.first[axis] == count[axis]:
        if axis == 0:
            return False
        region.first[axis] = 0
        axis -= 1
        region.first[axis] += region.count[axis]
    cut_region(work, task, residue, count, axis, region)
    return True
