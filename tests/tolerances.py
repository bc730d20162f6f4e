"""How far a result may be from the exact one: stated here and nowhere else."""

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f64": np.dtype(np.float64),
}


def assert_close(result, exact, magnitude):
    """Check ``|error| <= 4·eps(dtype)·|exact| + 8·eps(accumulator)·magnitude``.

    `magnitude` is the sum of the magnitudes of the products that `exact` sums. The first term is
    the rounding at the store: half an eps is what it costs, the rest is room for weights that are
    themselves rounded. The second is the accumulation: each of n roundings errs by half an eps of
    a partial sum, at random, so that c grows like the square root of n, not like n: 8 is what
    sums of a few thousand terms need at most. A float16 or bfloat16 result that is subnormal is
    rounded to a multiple of the smallest subnormal.
    """
    info = ml_dtypes.finfo(result.dtype)
    eps = float(info.eps)
    accumulator = float(np.finfo(np.float64 if result.dtype == np.float64 else np.float32).eps)
    bound = 4 * eps * np.abs(exact) + 8 * accumulator * magnitude
    bound = bound + float(info.smallest_subnormal)
    assert result.shape == exact.shape
    error = np.abs(result.astype(np.float64) - exact)
    worst = np.unravel_index(np.argmax(error - bound), error.shape) if error.size else ()
    assert (error <= bound).all(), (
        f"at {worst}: got {result[worst]!r}, exact {exact[worst]!r}, error {error[worst]:.3g}, "
        f"allowed {bound[worst]:.3g}"
    )
