"""One spatial axis of a convolution: residue classes, taps, and the window of a block.

A result position is ``x = q·out_step + r``; tap t reads the source at ``q·in_step + offset[t]``
and belongs to the one residue r where that is exact. With ``out_step > 1`` this is the sub-pixel
decomposition: every class is a stride-1 problem with its own taps and no product with a zero.

Planning asks for windows' sizes many times and for their tables once: sizes are counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from gradops_cy._distinct import Ints, distinct

# Farther than any block reaches.
_FAR = 1 << 62
# Runs, entries and index.
_NO_WINDOW = np.empty((0, 4), np.intp), np.empty(0, np.intp), np.empty(0, np.intp)


def _runs_of(starts: Ints, lengths: Ints, step: int) -> Ints:
    """Return the coordinates of runs: so many from each start on, `step` apart."""
    entries = np.repeat(starts - (lengths.cumsum() - lengths) * step, lengths)
    entries += np.arange(len(entries), dtype=np.intp) * step
    return entries


@dataclass(frozen=True, eq=False)
class AxisTaps:
    """The taps of one axis, whatever its extents."""

    kernel: int
    out_step: int
    in_step: int
    classes: int  # residue classes that have a position
    taps: Ints  # kernel coordinates, by class, in each class by growing offset
    residues: Ints  # class of each tap
    offsets: Ints  # source coordinate each tap reads at q = 0

    def __len__(self) -> int:
        """Return the number of taps."""
        return len(self.taps)

    @cached_property
    def low(self) -> int:
        """The smallest offset."""
        return int(self.offsets.min()) if len(self) else 0

    @cached_property
    def span(self) -> int:
        """Source coordinates from the smallest offset to the largest."""
        return int(self.offsets.max()) - self.low + 1 if len(self) else 0

    @cached_property
    def apart(self) -> int:
        """The source coordinates from tap to tap of a position; 1 if there are several classes."""
        return int(self.offsets[1] - self.offsets[0]) if self.classes == 1 and len(self) > 1 else 1

    @cached_property
    def _starts(self) -> tuple[Ints, Ints, Ints]:
        """Return the offsets, each once, by residue modulo in_step first, gaps, and places of taps.

        A gap is the number of positions until an offset reads what the next one reads first.
        """
        firsts, place = distinct(self.offsets)
        offsets = self.offsets[firsts]
        phases = offsets % self.in_step
        order = np.lexsort((offsets, phases))
        offsets, phases = offsets[order], phases[order]
        gaps = np.full_like(offsets, _FAR)
        gaps[:-1] = np.where(np.diff(phases) == 0, np.diff(offsets) // self.in_step, _FAR)
        return offsets, gaps, np.argsort(order)[place]

    @cached_property
    def _gaps_before(self) -> Ints:
        return np.roll(self._starts[1], 1)

    @cached_property
    def _gaps(self) -> list[tuple[int, int]]:
        return list(Counter(self._starts[1].tolist()).items())

    def window(self, block: int) -> int:
        """Count the source coordinates that a block of positions reads."""
        return sum(count * min(gap, block) for gap, count in self._gaps)

    def runs(self, block: int) -> int:
        """Count the runs of a window that consecutive positions read."""
        return sum(count for gap, count in self._gaps if gap > block) or 1

    def longest_run(self, block: int) -> int:
        """Return the entries of the longest run of a window."""
        _, gaps, _ = self._starts
        if not len(gaps):
            return 0
        return int(np.add.reduceat(np.minimum(gaps, block), self._heads(block)).max())

    def _heads(self, block: int) -> Ints:
        """Return the offsets behind a gap that no block fills, before the first the last one."""
        return np.flatnonzero(self._gaps_before > block)

    def tables(self, block: int, phased: bool, indexed: int) -> tuple[Ints, Ints, Ints]:
        """Return runs, entries and the index of the first `indexed` taps.

        Entries: the source offsets that a block reads, each once. In order; or, `phased`, by
        residue modulo in_step first, so that consecutive positions read consecutive entries
        whatever the step. Runs: first entry, its offset, length, step. Index: the entry that a tap
        reads at each position of a block; phased, at the first alone.
        """
        starts, gaps, place = self._starts
        step = self.in_step
        lengths = np.minimum(gaps, block)
        firsts = lengths.cumsum() - lengths
        positions = np.arange(1 if phased else block, dtype=np.intp)
        if phased or step == 1:
            entries = _runs_of(starts, lengths, step)
            heads = firsts[self._heads(block)]
            index = firsts[place[:indexed], np.newaxis] + positions
        else:
            needed = self.offsets[:indexed, np.newaxis] + positions * step
            count = int(lengths.sum())
            if count == self.span + (block - 1) * step:
                # All coordinates: there is nothing to be put in order, or looked for.
                entries = np.arange(self.low, self.low + count, dtype=np.intp)
                heads, index = np.zeros(1, np.intp), needed - self.low
            else:
                entries = np.sort(_runs_of(starts, lengths, step))
                heads = np.flatnonzero(np.diff(entries, prepend=entries[:1] - 2) != 1)
                index = np.searchsorted(entries, needed)
            step = 1
        runs = np.empty((len(heads), 4), np.intp)
        runs[:, 0], runs[:, 1], runs[:, 3] = heads, entries[heads], step
        # Where the next one begins: numpy.diff takes longer than all the rest.
        runs[:-1, 2], runs[-1:, 2] = heads[1:], len(entries)
        runs[:, 2] -= heads
        return runs, entries, index


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis in blocks of `block` positions of every residue class."""

    taps: AxisTaps
    result: int
    source: int
    block: int

    @cached_property
    def window(self) -> int:
        """Number of source coordinates that a block reads."""
        return self.taps.window(self.block)

    @property
    def runs(self) -> int:
        """Runs of the window that consecutive positions read."""
        return self.taps.runs(self.block)

    @cached_property
    def longest_run(self) -> int:
        """Entries of the longest of them."""
        return self.taps.longest_run(self.block)

    @property
    def adjacent(self) -> bool:
        """Whether each tap reads the entry after the one that the tap before it reads.

        Of taps of one class, which are evenly spaced: where no other position reads between them.
        """
        taps = self.taps
        if len(taps) < 2 or self.block == 1 or taps.span <= taps.in_step:
            return True
        return taps.in_step % int(taps.offsets[1] - taps.offsets[0]) == 0

    @property
    def extent(self) -> int:
        """Source coordinates that a block spans at most."""
        taps = self.taps
        return min(self.source, taps.span + (self.block - 1) * taps.in_step) if len(taps) else 0


# Problems that differ in one extent, as calls of many lengths do, share the other axes.
@lru_cache(maxsize=256)
def axis_taps(
    transposed: bool, classes: int, kernel: int, stride: int, dilation: int, pad: int
) -> AxisTaps:
    """Return the taps of a convolution's backward pass (or a transposed convolution's)."""
    taps = np.arange(kernel, dtype=np.intp)
    if transposed:
        out_step, in_step = 1, stride
        residues = np.zeros_like(taps)
        offsets = taps * dilation - pad
    else:
        out_step, in_step = stride, 1
        residues = (taps * dilation - pad) % stride
        offsets = (residues + pad - taps * dilation) // stride
    used = residues < classes
    taps, residues, offsets = taps[used], residues[used], offsets[used]
    order = np.lexsort((offsets, residues))
    return AxisTaps(
        kernel, out_step, in_step, classes, taps[order], residues[order], offsets[order]
    )


@lru_cache(maxsize=256)
def axis_of(taps: AxisTaps, result: int, source: int, block: int) -> Axis:
    """Return one axis of a problem."""
    return Axis(taps, result, source, block)


@lru_cache(maxsize=128)
def table(axis: Axis, phased: bool, indexed: int, plane: int = 0, bare: bool = False) -> Ints:
    """Return an axis as the kernels read it: one row of integers (see convolution.pxi).

    With the index of its first `indexed` taps. Where runs have planes of their own, `plane` is the
    entries of one; `bare`, of a window that no kernel reads by entries, there are none.
    """
    taps = axis.taps
    runs, entries, index = _NO_WINDOW if bare else taps.tables(axis.block, phased, indexed)
    if plane:
        heads, count = runs[:, 0].copy(), np.arange(len(runs), dtype=np.intp)
        run = np.searchsorted(heads, index, side="right") - 1
        index = index - heads[run] + run * plane
        runs[:, 0] = count * plane
        entries = entries[: runs[:, 2].max()]
    blocks = -(-axis.result // (taps.out_step * axis.block))
    head = [axis.result, axis.source, taps.out_step, taps.in_step, axis.block, blocks]
    head += [len(entries), len(taps), len(runs)]
    parts = np.array(head, np.intp), runs.ravel(), entries, taps.offsets, index.ravel()
    return np.concatenate(parts)
