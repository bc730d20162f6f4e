"""An interpolation operator with its checks and its tables, for many calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradops_cy import _arrays, _attributes, _threads
from gradops_cy._arrays import Array
from gradops_cy._interpolation_call import (
    Gradient,
    InterpolationAttributes,
    Source,
    interpolation_form,
    run,
)


class InterpolationPlan:
    """An interpolation operator for one shape of src and of diff_dst, with its tables.

    Made by :func:`gradops_cy.interpolate_backward_plan`. A call checks the arrays and computes, bit
    for bit, what the operator does. Plans may be called by several threads at once, copied and
    pickled; a pickled plan makes its tables again where it is loaded, for the processor it finds
    there.

    Examples
    --------
    >>> import pickle
    >>> import numpy as np
    >>> from gradops_cy import interpolate_backward_plan
    >>> plan = interpolate_backward_plan((1, 2, 1), (1, 4, 1), mode="linear")
    >>> plan
    <interpolate_backward_plan mb1ic1_iw2ow4 linear half_pixel>
    >>> plan(np.ones((1, 4, 1), np.float32)).ravel()
    array([2., 2.], dtype=float32)
    >>> pickle.loads(pickle.dumps(plan))(np.ones((1, 4, 1), np.float32)).ravel()
    array([2., 2.], dtype=float32)
    """

    def __init__(
        self,
        op: str,
        src_shape: object,
        diff_dst_shape: object,
        dtype: object,
        given: InterpolationAttributes,
        num_threads: int | None,
    ) -> None:
        try:
            element = np.dtype(dtype)  # type: ignore[call-overload]
        except TypeError:
            raise TypeError(
                f"{op}: dtype must be a NumPy dtype, got {_attributes.found(dtype)}"
            ) from None
        if element not in _arrays.DTYPE_CODES:
            raise TypeError(
                f"{op}: dtype must be float32, float16, bfloat16 or float64, got {element}"
            )
        src = Source("src_shape", _attributes.shape(op, "src_shape", src_shape), element)
        shape = _attributes.shape(op, "diff_dst_shape", diff_dst_shape)
        self._op = op
        self._given = given._replace(**{k: _settled(v) for k, v in given._asdict().items()})
        # Not the resolved count: that is fewer in a forked child.
        self._num_threads = num_threads
        _threads.resolve(op, num_threads)
        gradient = Gradient("diff_dst_shape", shape, element)
        self._form = interpolation_form(op, src, gradient, self._given)
        if 0 not in shape:
            self._form.plan(self._form.contiguous)

    @property
    def diff_dst_shape(self) -> tuple[int, ...]:
        """Shape of the diff_dst that a call takes."""
        return self._form.diff_dst_shape

    @property
    def diff_src_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self._form.diff_src_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of all arrays."""
        return self._form.dtype

    def __repr__(self) -> str:
        """Return the problem in a line."""
        return f"<{self._op} {self._form.problem}>"

    def describe(self) -> str:
        """Tell how contiguous arrays are computed.

        Returns
        -------
        str
            Kernel, blocks, tasks, bytes of scratch and of tables.

        Examples
        --------
        >>> from gradops_cy import interpolate_backward_plan
        >>> plan = interpolate_backward_plan((1, 8, 8, 64), (1, 16, 16, 64), mode="bilinear")
        >>> print(plan.describe())  # doctest: +ELLIPSIS
        mb1ic64_ih8oh16_iw8ow16 linear half_pixel: kernel of channels, ...
        """
        if 0 in self.diff_dst_shape:
            return f"{self._form.problem}: no work"
        return self._form.plan(self._form.contiguous).describe()

    def __call__(
        self, diff_dst: Array, out: Array | None = None, *, accumulate: bool = False
    ) -> Array:
        """Compute diff_src.

        Parameters
        ----------
        diff_dst : ndarray
            Of the plan's `diff_dst_shape` and `dtype`. Any strides.
        out : ndarray, optional
            Where to write the result: of `diff_src_shape` and `dtype`, no overlap with diff_dst.
        accumulate : bool
            Add to `out` instead of overwriting it, rounded once.

        Returns
        -------
        ndarray
            diff_src, of `diff_src_shape` and `dtype`; `out` where given.

        Raises
        ------
        TypeError
            Where an argument has a wrong type or dtype.
        ValueError
            Where diff_dst has another shape or `out` cannot be used. `out` is untouched then.
        """
        op, form = self._op, self._form
        _arrays.check_known(op, "diff_dst", diff_dst, form.diff_dst_shape, form.dtype)
        inputs = {"diff_dst": diff_dst}
        return run(op, form, diff_dst, inputs, out, accumulate, self._num_threads)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments: tables fit only the processor that they are made for."""
        arguments = self._op, self.diff_src_shape, self.diff_dst_shape, self.dtype, self._given
        return InterpolationPlan, (*arguments, self._num_threads)


def _settled(value: object) -> object:
    """Return an attribute as a value that nobody else can change."""
    return tuple(value) if isinstance(value, (list, np.ndarray)) else value
