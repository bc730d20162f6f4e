"""How far a result may be from the exact one: stated here and nowhere else."""

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f64": np.dtype(np.float64),
}

STORE = 4
ACCUMULATION = 4


def assert_close(result, exact, magnitude, *, terms=1):
    """Check ``|error| <= 4·eps(dtype)·|exact| + 4·eps(accumulator)·magnitude``.

    `exact` is computed from the rounded arguments, and `magnitude` is the sum of the magnitudes
    of the products that it sums; the accumulator is float32, for float64 float64.

    - The first term is the store: its rounding costs half an eps, the rest is room for weights
      that are themselves rounded (interpolation).
    - The second is the accumulation. Each of n roundings errs by up to half an eps of a partial
      sum, in a random direction. Where the terms have random signs, partial sums grow like √n,
      their errors add up like n, and so does the magnitude: the constant does not depend on n
      (2.7 is the most that was ever measured). Where all terms have one sign the partial sums
      grow like n and the errors like n·√n: only such tests give `terms` = n, for a constant
      larger by √n/4.
    - A result that is subnormal is rounded to a multiple of the smallest subnormal.

    The tiers v4bf16 and amx may flush subnormal factors and products of bfloat16 to zero, which is
    outside of this bound: tests with such data state what they allow there.
    """
    info = ml_dtypes.finfo(result.dtype)
    accumulator = float(np.finfo(np.float64 if result.dtype == np.float64 else np.float32).eps)
    bound = STORE * float(info.eps) * np.abs(exact)
    bound = bound + ACCUMULATION * max(1, terms**0.5 / 4) * accumulator * magnitude
    bound = bound + float(info.smallest_subnormal)
    assert result.shape == exact.shape
    error = np.abs(result.astype(np.float64) - exact)
    worst = np.unravel_index(np.argmax(error - bound), error.shape) if error.size else ()
    assert (error <= bound).all(), (
        f"at {worst}: got {result[worst]!r}, exact {exact[worst]!r}, error {error[worst]:.3g}, "
        f"allowed {bound[worst]:.3g}"
    )


def assert_same_class(result, exact):
    """Check that NaN, +Inf, -Inf and finite elements are where the exact ones are."""
    result = result.astype(np.float64)
    for of_class in (np.isnan, np.isposinf, np.isneginf):
        assert (of_class(result) == of_class(exact)).all(), of_class.__name__


def assert_same_values(result, exact, magnitude):
    """Compare what is finite within rounding, and the rest by its class."""
    assert_same_class(result, exact)
    finite = np.isfinite(exact)
    assert_close(result[finite], exact[finite], magnitude[finite])
