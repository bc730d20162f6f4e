"""What resampling kernels take together: rows of the result that are alike, and small planes."""

from __future__ import annotations

import math

from gradops_cy._resampling_problem import ResampleProblem

# Elements of the rows that the kernel of widths reduces, or their sums, before others follow.
# Volumes have few rows that are alike, and more planes of them share what each costs before it
# begins.
_BATCH_ELEMENTS, _BATCH_ELEMENTS_OF_VOLUMES = 6144, 24576
# The rows of a batch of long ones, which leave more of a cache to what they read the fewer they
# are, and of those with more patterns than so many, which are set up once for all of a batch.
_LONG_ROWS, _LONG_ROWS_OF_MANY, _FEW_PATTERNS = 4, 8, 16
# The most rows of the result among which its kinds of rows repeat, for this to be made use of, and
# the elements that one is summed from: longer ones are better read one after the other.
_LONGEST_PERIOD, _PERIODIC_ELEMENTS = 16, 1024
# Elements loaded and stored of the planes that the kernel of phases takes by turns, and the fewest
# planes.
_TURN_ELEMENTS, _FEW_PLANES = 1 << 13, 4


def batch_elements(problem: ResampleProblem) -> int:
    """Return the elements of a batch of rows of the kernel of widths."""
    return _BATCH_ELEMENTS_OF_VOLUMES if problem.src[0] > 1 else _BATCH_ELEMENTS


def long_rows(patterns: int) -> int:
    """Return the rows of a batch of the kernel of widths that are long, of so many patterns."""
    return _LONG_ROWS_OF_MANY if patterns > _FEW_PATTERNS else _LONG_ROWS


def period(problem: ResampleProblem, pixel: int, products: int) -> int:
    """Return after how many rows of the result its kinds come again, 1 where this is of no use.

    They have up to `products` rows of diff_dst, whose positions have `pixel` elements.
    """
    terms = problem.src[1] // math.gcd(problem.src[1], problem.dst[1])
    short = problem.dst[2] * pixel * products <= _PERIODIC_ELEMENTS
    return terms if short and terms <= _LONGEST_PERIOD else 1


def planes_at_once(problem: ResampleProblem) -> int:
    """Return how many planes the kernel of phases takes by turns, if their rows are not cut."""
    elements = math.prod(problem.src) + math.prod(problem.dst)
    planes = min(problem.channels, _TURN_ELEMENTS // elements)
    return planes if planes >= _FEW_PLANES else 1
