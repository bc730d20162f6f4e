"""A convolution operator with its checks and its packed weights, for many calls."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gradops_cy import _arrays, _attributes, _convolution_plan, _threads
from gradops_cy._arrays import Array
from gradops_cy._convolution_call import ConvAttributes, FormOf
from gradops_cy._convolution_kernels import MODERATE, Layout
from gradops_cy._convolution_layout import layout_of
from gradops_cy._convolution_plan import Plan

# The weights as given, and their plan and panels for every layout, number of threads and kind of
# values met so far.
_State = tuple[Array, dict[tuple[Layout, int, int], tuple[Plan, Array]]]


class ConvolutionPlan:
    """A convolution operator for one shape of diff_dst, with its weights packed.

    Made by :func:`gradops_cy.convolution_backward_data_plan` and
    :func:`gradops_cy.conv_transpose_backward_data_plan`. A call checks the arrays and computes,
    bit for bit, what the operator does. Plans may be called by several threads at once, copied
    and pickled; a pickled plan packs its weights again where it is loaded, for the processor it
    finds there.

    Examples
    --------
    >>> import pickle
    >>> import numpy as np
    >>> from gradops_cy import convolution_backward_data_plan
    >>> plan = convolution_backward_data_plan(
    ...     (1, 3, 1), np.array([1, 2], np.float32).reshape(2, 1, 1),
    ...     strides=1, pads_begin=0, pads_end=0, dilations=1,
    ... )
    >>> plan
    <convolution_backward_data_plan conv:f32:mb1ic1iw4oc1ow3kw2>
    >>> diff_dst = np.array([1, 10, 100], np.float32).reshape(1, 3, 1)
    >>> plan(diff_dst).ravel()
    array([  1.,  12., 120., 200.], dtype=float32)
    >>> pickle.loads(pickle.dumps(plan))(diff_dst).ravel()
    array([  1.,  12., 120., 200.], dtype=float32)
    """

    def __init__(
        self,
        op: str,
        form_of: FormOf,
        diff_dst_shape: object,
        weights: Array,
        given: ConvAttributes,
        num_threads: int | None,
    ) -> None:
        shape = _attributes.shape(op, "diff_dst_shape", diff_dst_shape)
        _arrays.check_array(op, "weights", weights)
        dtype = weights.dtype
        self._op = op
        self._form = form_of(op, (shape, weights.shape, dtype, dtype), given)
        self._given = given._replace(**{k: _settled(v) for k, v in given._asdict().items()})
        # Not the resolved count: that is fewer in a forked child.
        self._num_threads = num_threads
        _threads.resolve(op, num_threads)
        self._state = self._own(weights)
        self._contiguous = self._layout_in_c_order()
        if self._form.problem.batch:
            self._prepare(self._state, self._contiguous, self._threads)

    # -- what it is ------------------------------------------------------------------------

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
        return f"<{self._op} {self._form.asked}>"

    def describe(self) -> str:
        """Tell how contiguous arrays are computed.

        Returns
        -------
        str
            Kernel, tiles, tasks, threads, bytes of packed weights and of scratch, operations. In
            1-D tasks are those of rows that are up to an eighth longer, or eight positions.

        Examples
        --------
        >>> import numpy as np
        >>> from gradops_cy import convolution_backward_data_plan
        >>> plan = convolution_backward_data_plan(
        ...     (1, 14, 14, 64), np.ones((3, 3, 64, 64), np.float32),
        ...     strides=1, pads_begin=1, pads_end=1, dilations=1,
        ... )
        >>> print(plan.describe())  # doctest: +ELLIPSIS
        problem   conv:f32:mb1ic64ih14iw14oc64oh14ow14kh3kw3ph1pw1
        kernel    ...
        """
        problem, lines = self._form.asked, []
        if problem.batch:
            plan, _ = self._prepare(self._state, self._contiguous, self._threads)
            lines = plan.describe()
        return "\n".join([f"problem   {problem}", *lines, f"work      {problem.flop} flop"])

    # -- weights ---------------------------------------------------------------------------

    def set_weights(self, weights: Array) -> None:
        """Replace the weights.

        A call that runs at the same time in another thread sees either the old weights or the
        new ones, whole.

        Parameters
        ----------
        weights : ndarray
            Of the shape and the dtype of those before. They are copied.

        Raises
        ------
        TypeError
            Where `weights` is not an array of the plan's dtype.
        ValueError
            Where its shape is another one.

        Examples
        --------
        >>> import numpy as np
        >>> from gradops_cy import conv_transpose_backward_data_plan
        >>> plan = conv_transpose_backward_data_plan(
        ...     (1, 3, 1), np.ones((2, 1, 1), np.float32),
        ...     strides=1, pads_begin=0, pads_end=0, dilations=1,
        ... )
        >>> diff_dst = np.array([1, 10, 100], np.float32).reshape(1, 3, 1)
        >>> plan(diff_dst).ravel()
        array([ 11., 110.], dtype=float32)
        >>> plan.set_weights(np.array([1, 2], np.float32).reshape(2, 1, 1))
        >>> plan(diff_dst).ravel()
        array([ 21., 210.], dtype=float32)
        """
        form = self._form
        _arrays.check_known(self._op, "weights", weights, form.weights_shape, form.dtype)
        state = self._own(weights)
        for layout, threads, assumed in list(self._state[1]):
            self._prepare(state, layout, threads, assumed)
        self._state = state

    def _own(self, weights: Array) -> _State:
        return np.array(weights, self._form.dtype, order="K", copy=True, subok=False), {}

    @property
    def _threads(self) -> int:
        return _threads.resolve(self._op, self._num_threads)

    def _layout_in_c_order(self) -> Layout:
        """Return the layout of contiguous arrays."""
        form = self._form
        shapes = form.diff_dst_shape, form.diff_src_shape
        diff_dst, diff_src = (_arrays.unread(shape, form.dtype) for shape in shapes)
        return layout_of(
            form.problem,
            form.source(diff_dst),
            diff_src,
            form.weights(self._state[0]),
            form.channels_last,
            False,
        )

    def _prepare(
        self,
        state: _State,
        layout: Layout,
        threads: int,
        assumed: int = MODERATE,
    ) -> tuple[Plan, Array]:
        weights, prepared = state
        found = prepared.get((layout, threads, assumed))
        if found is None:
            # Two threads may come here at once: both pack the same.
            form = self._form
            found = _convolution_plan.prepare(
                form.problem, layout, threads, form.weights(weights), assumed
            )
            prepared[layout, threads, assumed] = found
        return found

    # -- calls -----------------------------------------------------------------------------

    def __call__(
        self, diff_dst: Array, out: Array | None = None, *, accumulate: bool = False
    ) -> Array:
        """Compute diff_src.

        Parameters
        ----------
        diff_dst : ndarray
            Of the plan's `diff_dst_shape` and `dtype`. Any strides: the first call with channels
            in another place than in contiguous arrays packs the weights once more.
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
        add = _attributes.flag(op, "accumulate", accumulate)
        result = _arrays.result_array(
            op, out, form.diff_src_shape, form.dtype, accumulate=add, inputs={"diff_dst": diff_dst}
        )
        if form.problem.batch:
            source, last = form.source(diff_dst), form.channels_last
            layout = self._contiguous  # looking strides up takes longer
            if add or not (diff_dst.flags.c_contiguous and result.flags.c_contiguous):
                weights = form.weights(self._state[0])
                layout = layout_of(form.problem, source, result, weights, last, add)
            state, threads = self._state, self._threads
            plan, packed = self._prepare(state, layout, threads)
            if not plan.run(source, packed, result, last):
                plan, packed = self._prepare(state, layout, threads, plan.choice.otherwise)
                plan.run(source, packed, result, last)
        return result

    # -- pickling --------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        """Return arguments and weights: panels fit only the processor that they are made for."""
        attributes = {**self._given._asdict(), "num_threads": self._num_threads}
        if self._form.problem.transposed:
            del attributes["dst_shape"]
        return _made_by, (self._op, self.diff_dst_shape, self._state[0], attributes)


def _made_by(
    op: str, diff_dst_shape: Sequence[int], weights: Array, attributes: dict[str, object]
) -> ConvolutionPlan:
    make = getattr(importlib.import_module("gradops_cy"), op)
    return cast(ConvolutionPlan, make(diff_dst_shape, weights, **attributes))


def _settled(value: object) -> object:
    """Return an attribute that passed its checks as a value that nobody else can change."""
    if value is None or isinstance(value, str):
        return value
    single = _attributes.as_integer(value)
    if single is not None:
        return single
    return tuple(map(operator.index, cast(Sequence[int], value)))
