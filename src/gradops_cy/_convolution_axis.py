"""One spatial axis of a convolution: residue classes, taps, and the window of a block.

A result position is ``x = q·out_step + r``; tap t reads the source at ``q·in_step + offset[t]``
and belongs to the one residue r where that is exact. With ``out_step > 1`` this is the sub-pixel
decomposition: every class is a stride-1 problem with its own taps and no product with a zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class Axis:
    """Tables of one axis, for blocks of `block` positions of every residue class."""

    result: int
    source: int
    out_step: int
    in_step: int
    block: int
    taps: Ints  # kernel coordinates, by class, in each class by growing offset
    residues: Ints  # class of each tap
    offsets: Ints  # source coordinate each tap reads at q = 0
    phased: bool

    @property
    def classes(self) -> int:
        """Residue classes that have a position."""
        return min(self.out_step, self.result)

    @cached_property
    def entries(self) -> Ints:
        """Source offsets that a block reads, each once.

        In order; or, `phased`, by residue modulo in_step first, so that consecutive positions
        read consecutive entries whatever the step.
        """
        if not len(self.offsets):
            return self.offsets
        reach = (self.block - 1) * self.in_step + 1
        low = int(self.offsets.min())
        span = int(self.offsets.max()) - low + reach
        if span <= 4 * len(self.offsets) * self.block:
            needed = np.zeros(span, bool)
            for offset in self.offsets - low:
                needed[offset : offset + reach : self.in_step] = True
            entries = np.flatnonzero(needed) + low
        else:
            positions = np.arange(self.block, dtype=np.intp) * self.in_step
            entries = np.unique(self.offsets[:, np.newaxis] + positions)
        if self.phased:
            entries = entries[np.lexsort((entries, entries % self.in_step))]
        return entries

    @property
    def window(self) -> int:
        """Number of entries."""
        return len(self.entries)

    @cached_property
    def index(self) -> Ints:
        """Entry that each tap reads at each position of a block; phased, at the first alone."""
        columns = 1 if self.phased else self.block
        needed = self.offsets[:, np.newaxis] + np.arange(columns, dtype=np.intp) * self.in_step
        order = np.argsort(self.entries, kind="stable")
        return order[np.searchsorted(self.entries[order], needed)]

    @property
    def adjacent(self) -> bool:
        """Whether each tap reads the entry after the one that the tap before it reads."""
        return bool((np.diff(self.index, axis=0) == 1).all())

    def table(self, windowed: bool) -> Ints:
        """Return the axis as the kernels read it: one row of integers (see convolution.pxi)."""
        entries = self.entries
        step = self.in_step if self.phased else 1
        starts = np.flatnonzero(np.diff(entries, prepend=entries[:1] - step - 1) != step)
        lengths = np.diff(starts, append=len(entries))
        runs = np.stack([starts, entries[starts], lengths, np.full_like(starts, step)], axis=1)
        positions = -(-self.result // self.out_step)
        blocks = -(-positions // self.block)
        head = [self.result, self.source, self.out_step, self.in_step, self.block, blocks]
        head += [len(entries), len(self.taps), len(runs)]
        parts = [np.array(head), runs.ravel(), entries, self.offsets]
        if windowed:
            parts.append(self.index.ravel())
        return np.concatenate(parts).astype(np.intp)


@lru_cache(maxsize=256)
def axis_of(
    transposed: bool,
    result: int,
    source: int,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    block: int,
    phased: bool,
) -> Axis:
    """Return the axis of a convolution's backward pass (or a transposed convolution's)."""
    taps = np.arange(kernel, dtype=np.intp)
    if transposed:
        out_step, in_step = 1, stride
        residues = np.zeros_like(taps)
        offsets = taps * dilation - pad
    else:
        out_step, in_step = stride, 1
        residues = (taps * dilation - pad) % stride
        offsets = (residues + pad - taps * dilation) // stride
    used = residues < result
    taps, residues, offsets = taps[used], residues[used], offsets[used]
    order = np.lexsort((offsets, residues))
    return Axis(
        result,
        source,
        out_step,
        in_step,
        block,
        taps[order],
        residues[order],
        offsets[order],
        phased,
    )
