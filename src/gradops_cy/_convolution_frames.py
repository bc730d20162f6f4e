"""One channel of diff_dst in 1-D: the frames that positions read, taken for channels.

A transposed convolution to one channel (an inverse STFT, the decoder of separated speech) reads
``kernel`` neighbours for each position, ``stride`` apart. Where none lie in padding, a view of
diff_dst has them for channels: a product without a kernel, window or tables of thousands of taps.
"""

from __future__ import annotations

from numpy.lib.stride_tricks import as_strided

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem

# Taps that fill a vector.
FEWEST = 16


def product(problem: ConvProblem) -> ConvProblem | None:
    """Return the problem whose channels are taps, where a view of diff_dst has them.

    In the order of taps, so that not a bit of a result changes.
    """
    taps, step, frames = problem.kernel[2], problem.strides[2], problem.diff_src[2]
    single = problem.transposed and problem.rank == problem.diff_dst_channels == 1
    inside = problem.pads_begin[2] == 0 and (frames - 1) * step + taps <= problem.diff_dst[2]
    # What is converted is converted once for each frame that it belongs to.
    worth = taps >= FEWEST and (problem.plain or taps <= 2 * step)
    if not (single and inside and worth) or problem.dilations[2] > 1:
        return None
    return problem._replace(
        diff_dst_channels=taps,
        diff_dst=problem.diff_src,
        kernel=(1, 1, 1),
        strides=(1, 1, 1),
    )


def view(diff_dst: Array, asked: ConvProblem, channels_last: bool) -> Array:
    """Return the frames of (N, X, 1) or (N, 1, X) diff_dst in the same order of axes."""
    taps, step, frames = asked.kernel[2], asked.strides[2], asked.diff_src[2]
    rows = diff_dst[..., 0] if channels_last else diff_dst[:, 0]
    batch, unit = rows.strides
    found: Array = as_strided(rows, (len(rows), frames, taps), (batch, step * unit, unit))
    return found if channels_last else found.swapaxes(1, 2)
