"""Kernels that are chosen whatever the estimates say, and what holds for all of them."""

import numpy as np

from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_choice as choice
from gradops_cy import (
    _convolution_depthwise_times,
    _convolution_threads,
    _interpolation_call,
    _resampling_choice,
)
from gradops_cy import _convolution_fastest as fastest
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans

# Of every kernel that choose_kernel may return.
NAMES = [*kernels.KERNEL_NAMES, "unfold", "fold"]
CHANNELS_LAST = kernels.Layout(True, True, False, False, True, True, 0, False)
CHANNELS_FIRST = kernels.Layout(False, False, True, True, False, False, 0, False)


def choice_of(problem, layout=CHANNELS_LAST, assumed=kernels.MODERATE):
    """Return what is chosen for a problem."""
    return choice.choose(problem, layout, assumed, choice.dot_parts(problem, assumed, False))


def other_plans():
    """Yield while no plan made before is used, nor any made meanwhile after."""
    plans.plan_for.cache_clear()
    yield
    plans.plan_for.cache_clear()


def whole_vectors(monkeypatch):
    """Yield while vectors of 64 bytes are multiplied at once, whatever the processor."""
    monkeypatch.setattr(_convolution_depthwise_times, "ZEN4", False)
    _convolution_depthwise_times.nanoseconds.cache_clear()
    yield from other_plans()
    _convolution_depthwise_times.nanoseconds.cache_clear()


def kernel(monkeypatch, wanted):
    """Yield while `wanted(problem, assumed)` says the kernel, or None for what is chosen."""
    choose = choice.choose_kernel

    def forced(problem, layout, tiles, assumed, parts):
        found = wanted(problem, assumed)
        return choose(problem, layout, tiles, assumed, parts) if found is None else found

    monkeypatch.setattr(choice, "choose_kernel", forced)
    yield from other_plans()


def kernel_that_can(monkeypatch, kernel):
    """Yield while one kernel computes every problem that it can, float32 or pairs."""
    choose = choice.choose_kernel
    leaves_padding_out = kernel in (kernels.ROWS, kernels.GROUPED, kernels.SCATTER)

    def forced(problem, layout, tiles, assumed, parts):
        case = fastest.Case(problem, layout, tiles, assumed, parts)
        can = kernel in fastest.kernels_that_can(case)
        can = can and (leaves_padding_out or assumed != kernels.NOTHING)
        return kernel if can else choose(problem, layout, tiles, assumed, parts)

    monkeypatch.setattr(choice, "choose_kernel", forced)
    yield from other_plans()


def resampling_kernel(monkeypatch, name):
    """Let one kernel be the only choice, in plans that are made from now on."""
    candidates = _resampling_choice._Candidates
    monkeypatch.setattr(candidates, "by_time", lambda _: [name])
    monkeypatch.setattr(candidates, "by_rules", lambda _: [name])
    monkeypatch.setattr(_interpolation_call, "_forms", {})


def assert_cuts_do_not_change_a_bit(monkeypatch, case, room="WORKSPACE", sizes=(10, 14, 16, 20)):
    """Cut for threads and for blocks whose `room` is so small; `sizes` are powers of two."""
    arrays = case.formatted(*case.arrays())
    whole = case.call(*arrays, num_threads=1)
    monkeypatch.setattr(_convolution_threads, "TASK_FLOP", 1)
    monkeypatch.setattr(_convolution_threads, "ROWS_TASK_FLOP", 1)
    monkeypatch.setattr(plans, "THREAD_FLOP", 1)
    for size in sizes:
        monkeypatch.setattr(blocks, room, 1 << size)
        for threads in (1, 3):
            plans.plan_for.cache_clear()
            assert case.call(*arrays, num_threads=threads).tobytes() == whole.tobytes()


def assert_value_reaches_what_it_touches(case, value):
    """Put an infinity or a NaN into the middle of each array, and nothing else may change."""
    arrays = case.arrays()
    # By taps, padding is multiplied as zero: NaN where a weight is infinite.
    for array, reference in zip(arrays, (case.exact_by_taps, case.exact), strict=True):
        where = tuple(extent // 2 for extent in array.shape)
        kept, array[where] = array[where], value
        result = case.ncx(case.call(*case.formatted(*arrays))).astype(np.float64)
        with np.errstate(invalid="ignore"):
            exact, _ = reference(*arrays)
        assert not np.isfinite(exact).all()
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(exact))
        np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
        array[where] = kept
