"""How work is cut for threads: evenly, and without a bit of difference."""

from dataclasses import replace
from itertools import pairwise, product
from math import prod

import pytest

from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_choice as choice
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_threads as threads
from tests import forced
from tests.cases import POINTWISE, every_dtype, layer


def cut_by_multiply_adds(problem, num_threads):
    """Return how a problem is cut, without AMX."""
    found = choice.choose(problem, forced.CHANNELS_LAST, kernels.MODERATE, 0)
    return blocks.cut(found, num_threads)


def cut_of(num_threads, channels, extents, kernel=1, pads=0):
    """Return how a layer is cut; channels are those of diff_src and of diff_dst."""
    problem = POINTWISE._replace(
        diff_src=(1, extents, extents),
        diff_dst=(1, extents, extents),
        diff_src_channels=channels[0],
        diff_dst_channels=channels[1],
        kernel=(1, kernel, kernel),
        pads_begin=(0, pads, pads),
    )
    return cut_by_multiply_adds(problem, num_threads)


def products_of_threads(cut, num_threads):
    """Return how many sums each thread begins with, of a layer with several taps."""
    number, splits = len(cut.blocks), cut.channel_splits
    edges = [number * i // splits for i in range(splits + 1)]
    ranges = [sum(block.channels for block in cut.blocks[a:b]) for a, b in pairwise(edges)]
    counts = map(threads._pieces, cut.choice.counts, cut.block)
    tasks = [channels * prod(block) for channels, block in product(ranges, product(*counts))]
    assert len(tasks) == cut.tasks
    edges = [len(tasks) * i // num_threads for i in range(num_threads + 1)]
    return [sum(tasks[a:b]) for a, b in pairwise(edges)]


@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.parametrize("num_threads", [2, 3, 4])
@pytest.mark.usefixtures("only")
def test_threads_have_as_many_channels_each(num_threads):
    """Three tiles of channels are four narrower ones for two threads."""
    sums = products_of_threads(cut_of(num_threads, (192, 512), 7, kernel=3, pads=1), num_threads)
    assert min(sums) > 0
    assert max(sums) < 1.1 * 192 * 49 / num_threads


@pytest.mark.parametrize("kernel", [kernels.SCATTER], ids=["scatter"])
@pytest.mark.usefixtures("only")
def test_blocks_that_are_mostly_halo_are_not_cut():
    """Half of the positions would read nearly as many again."""
    assert cut_of(2, (3, 128), 12, kernel=11, pads=5).tasks == 1
    assert cut_of(2, (3, 128), 64, kernel=3, pads=1).tasks > 1


@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_rows_are_cut_evenly():
    """No thread has two blocks of a row where the other has one."""
    problem = POINTWISE._replace(
        diff_src=(1, 1, 5000),
        diff_dst=(1, 1, 5000),
        diff_src_channels=64,
        diff_dst_channels=64,
        kernel=(1, 1, 3),
    )
    sums = products_of_threads(cut_by_multiply_adds(problem, 2), 2)
    assert max(sums) < 1.05 * 64 * 5000 / 2


def test_the_last_thread():
    """Each begins with its own half, and takes what the other has left; windows are filled anew."""
    tasks = [((0, 0), 4.0), ((0, 1), 4.0), ((0, 2), 1.0), ((0, 3), 1.0)]
    assert threads._last(tasks, 0, False, 2) == 6
    assert threads._last(tasks, 0, False, 1) == 10
    alike = [((0, 0), 1.0)] * 4
    assert threads._last(alike, 3, False, 2) == 5
    assert threads._last(alike, 3, True, 2) == 8


@every_dtype
@pytest.mark.parametrize("kernel", [kernels.ROWS, kernels.COLUMNS, kernels.DOT])
@pytest.mark.parametrize("name", ["40-100-9-3-1-1", "24-70-5-2-2-0"])
@pytest.mark.parametrize("order", ["XIO", "OIX"])
@pytest.mark.usefixtures("only")
def test_weights_of_sums_that_are_cut(monkeypatch, name, order, dtype):
    """Chunks that several threads pack, for tasks that share them."""
    monkeypatch.setattr(blocks, "PANEL", 1 << 10)
    monkeypatch.setattr(threads, "TASK_FLOP", 1)
    monkeypatch.setattr(plans, "THREAD_FLOP", 1)
    case = replace(layer(name), dtype=dtype, weights_format=order, batch=3)
    case.check(large=True)
    arrays = case.formatted(*case.arrays())
    whole = case.call(*arrays, num_threads=1)
    assert case.call(*arrays, num_threads=3).tobytes() == whole.tobytes()
