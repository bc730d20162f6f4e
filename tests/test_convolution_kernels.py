"""Every kernel that can compute a problem computes it, whatever the estimates say."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _arrays, _convolution_grouped, _processor
from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_program as programs
from tests import forced
from tests.cases import POINTWISE, conv_case, every_dtype, layer, sequence, volume
from tests.forced import NAMES
from tests.test_convolution import in_format
from tests.test_convolution_plans import plan_of
from tests.test_threads import same_bits
from tests.tolerances import DTYPES
from tests.views import VIEWS, WRITEABLE

SOME = ("rows", "columns", "grouped", "scatter", "dot", "pairs", "unfold")
every_kernel = pytest.mark.parametrize("kernel", [NAMES.index(name) for name in SOME], ids=SOME)


@every_dtype
@every_kernel
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("only")
def test_kernels_compute_drawn_cases(seed, dtype):
    case = conv_case(seed, dtype=dtype)
    case.check()
    replace(case, data_format="NCX" if case.data_format == "NXC" else "NXC").check()


@every_kernel
@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.usefixtures("only")
def test_kernels_compute_drawn_cases_with_threads(threads):
    for seed in range(40):
        conv_case(seed, dtype="f32").check(num_threads=threads)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@every_kernel
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("taps", "stride"), [(2, 2), (3, 2), (4, 2), (6, 2), (6, 3), (7, 3), (3, 1)]
)
@pytest.mark.usefixtures("only")
def test_blocks_below_each_other(taps, stride, transposed, data_format, dtype):
    """What a block shares with the one above it: with a stride no rows that follow each other."""
    extents = (70, 25) if transposed else (36, 25)
    for batch, channels in ((2, 3), (3, 12)):
        layer(
            f"{channels}-4-9-3-1-0",
            transposed=transposed,
            batch=batch,
            dst=extents,
            kernel=(taps, 3),
            strides=(stride, 1),
            data_format=data_format,
            dtype=dtype,
        ).check()


CHUNKS = {
    "of rows": sequence(8, 1030, 203, transposed=True, kernel=3, stride=2, begin=1, end=1),
    "of images": layer("9-770-27-7-2-3", transposed=True),
    "without strides": layer("5-2060-9-7-1-3", dst=(2, 300)),
    "of volumes": volume(3, 520, (7, 9, 11), transposed=True),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("case", CHUNKS.values(), ids=CHUNKS)
@every_kernel
@pytest.mark.usefixtures("only")
def test_sums_of_many_channels(case, data_format, dtype):
    """Windows hold a part of them at a time, and the next one's products are added."""
    replace(case, data_format=data_format, dtype=dtype).check(large=True)


GROUPS = {
    "of 4": layer("4-6-9-3-1-1", groups=9, batch=2),
    "of 8 and 2, strides": layer("8-2-20-3-2-1", groups=5, extra=(1, 0)),
    "of 16, transposed": layer("16-5-9-4-2-1", groups=3, transposed=True),
    "of 4, a row": layer("4-4-600-1-1-0", groups=8, dst=(2, 600), kernel=(2, 3)),
    "of 4, thousands": layer("4-2-2-2-1-0", groups=8500),
    "of 2, 3-D": replace(volume(2, 4, (5, 6, 7)), groups=21),
    "of 4, dilated": layer("4-6-40-3-1-4", groups=9, dilations=(4, 5)),
    "of 8, dilated, strides": layer("8-4-21-3-2-2", groups=5, dilations=(2, 3)),
    "of 4, dilated by steps": layer(
        "4-3-20-3-2-4", groups=5, transposed=True, dilations=(3, 4), batch=2
    ),
    "of 16, dilated": layer("16-4-33-3-1-2", groups=2, dilations=(2, 2)),
    "of 4, 3-D, dilated": replace(
        volume(4, 4, (9, 8, 7)),
        groups=6,
        dilations=(3, 2, 2),
        pads_begin=(3, 2, 2),
        pads_end=(3, 2, 2),
    ),
    "all padding": layer("4-4-3-1-2-2", groups=8, dst=(3, 3)),
}


@every_dtype
@pytest.mark.parametrize("case", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("view", ["contiguous", "inside", "spaced", "reversed"])
@pytest.mark.parametrize("kernel", [kernels.GROUPED], ids=["grouped"])
@pytest.mark.usefixtures("only")
def test_groups_past_the_caches(monkeypatch, view, case, dtype):
    """As if no cache held anything, and in small blocks: bit for bit the same."""
    case = replace(case, dtype=dtype)
    arrays = case.formatted(*case.arrays())
    before = case.call(*arrays)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    monkeypatch.setattr(blocks, "TOUCHED", 1 << 12)
    plans.plan_for.cache_clear()
    for accumulate in (False, True):
        case.check(view=view, out_view=view, accumulate=accumulate, large=True)
    assert case.call(*arrays, num_threads=2).tobytes() == before.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", [kernels.GROUPED], ids=["grouped"])
@pytest.mark.usefixtures("only")
def test_blocks_of_dilated_groups(threads):
    """Whole rows, and enough of them that what is spread serves several taps."""
    changes = {"groups": 32, "diff_src_channels": 128, "diff_dst_channels": 128}
    volumes = {"diff_src": (32, 32, 16), "diff_dst": (32, 32, 16), "kernel": (3, 3, 5)}
    problem = POINTWISE._replace(dilations=(4, 4, 4), pads_begin=(4, 4, 8), **volumes, **changes)
    cut = blocks.cut(forced.choice_of(problem), threads)
    assert _convolution_grouped.rings([axis.taps for axis in cut.axes]) == [3, 3]
    assert cut.block[2] == 16
    assert min(cut.block[:2]) >= 8


@pytest.mark.parametrize("extents", [(1, 56, 56), (1, 3, 4000)])
@pytest.mark.parametrize("kernel", [kernels.GROUPED], ids=["grouped"])
@pytest.mark.usefixtures("only")
def test_blocks_of_groups_past_the_caches(monkeypatch, extents):
    """What a task touches fits the second-level cache."""
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    changes = {"groups": 64, "diff_src_channels": 256, "diff_dst_channels": 256}
    problem = POINTWISE._replace(diff_src=extents, diff_dst=extents, kernel=(1, 3, 1), **changes)
    cut = blocks.cut(forced.choice_of(problem), 1)
    assert cut.touches_block
    assert cut.touched_bytes <= blocks.TOUCHED


@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.parametrize(
    ("amd", "outputs", "streams"), [(False, 6, True), (False, 96, False), (True, 6, False)]
)
@pytest.mark.usefixtures("only")
def test_results_that_outgrow_what_is_read(monkeypatch, amd, outputs, streams):
    """Past the caches although these hold them."""
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: False)
    monkeypatch.setattr(_processor, "AMD", amd)
    changes = {"diff_src_channels": 192, "diff_dst_channels": outputs}
    problem = POINTWISE._replace(diff_src=(1, 112, 112), diff_dst=(1, 112, 112), **changes)
    assert blocks.cut(forced.choice_of(problem), 1).streams == streams


@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.parametrize(
    ("dtype", "outputs", "held", "streams"),
    [
        ("f32", 4, True, False),
        ("f32", 4, False, True),
        ("f32", 5, True, True),
        ("bf16", 1, True, False),
        ("bf16", 2, True, True),
    ],
)
@pytest.mark.usefixtures("only")
def test_results_of_few_products(monkeypatch, dtype, outputs, held, streams):
    """Not past the largest cache while this keeps them."""
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    monkeypatch.setattr(_processor, "holds", lambda *_: held)
    monkeypatch.setattr(_processor, "AMD", True)
    changes = {"diff_src_channels": 64, "diff_dst_channels": outputs}
    problem = POINTWISE._replace(diff_src=(1, 112, 112), diff_dst=(1, 112, 112), **changes)
    problem = problem._replace(dtype=_arrays.DTYPE_CODES[DTYPES[dtype]])
    assert blocks.cut(forced.choice_of(problem), 1).streams == streams


FEW_PRODUCTS = {
    "a vector": layer("16-1-9-1-1-0", batch=3),
    "less": layer("5-4-9-1-1-0", batch=3),
    "registers": layer("64-3-9-1-1-0", batch=3),
    "more": layer("144-2-9-1-1-0", batch=3),
    "no whole lines": layer("83-1-9-1-1-0", batch=3),
    "more than are gathered": layer("1300-4-5-1-1-0", batch=3),
    "strides": layer("100-3-7-1-2-0", batch=3, transposed=True),
    "groups": layer("120-4-7-1-1-0", batch=3, groups=2),
    "groups that begin within a line": layer("48-4-9-1-1-0", batch=3, groups=2),
    "padding": layer("96-2-7-1-1-2", batch=3),
    "pairs": layer("40-8-9-1-1-0", batch=3),
    "an odd number of products": layer("75-13-9-1-1-0", batch=3),
    "the most pairs": layer("96-16-9-1-1-0", batch=3),
    "a tap of each class": layer("70-5-7-2-2-0", batch=3, transposed=True),
}


@every_dtype
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("case", FEW_PRODUCTS.values(), ids=FEW_PRODUCTS)
@pytest.mark.parametrize("kernel", [kernels.ROWS, kernels.DOT], ids=["rows", "dot"])
@pytest.mark.usefixtures("only")
def test_few_products(monkeypatch, case, past, dtype):
    """Positions are written whole, through the caches or past them."""
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: past)
    replace(case, data_format="NXC", dtype=dtype).check()


FEW_PLANES = {
    "a product": layer("19-1-40-1-1-0", batch=3),
    "the most": layer("24-4-33-1-1-0", batch=2),
    "rows that are not whole vectors": layer("5-3-7-1-1-0", batch=2),
    "groups": layer("6-2-21-1-1-0", batch=2, groups=3),
    "taps and classes without one": layer("9-1-11-3-2-1", batch=2),
    "one axis": sequence(33, 2, 1500, kernel=1),
    "a volume": volume(7, 3, (4, 5, 9), kernel=1, pad=0),
}


@every_dtype
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("case", FEW_PLANES.values(), ids=FEW_PLANES)
@pytest.mark.parametrize("kernel", [kernels.COLUMNS], ids=["columns"])
@pytest.mark.usefixtures("only")
def test_few_products_of_planes(monkeypatch, case, past, dtype):
    """Channels are written one after the other, through the caches or past them."""
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: past)
    case = in_format(case, "NCX", dtype)
    case.check()
    case.check(view="inside", out_view="spaced")
    case.check(out_view="contiguous", accumulate=True)


@every_dtype
@pytest.mark.parametrize("case", [layer("64-1-9-1-1-0"), layer("150-1-9-1-1-0")])
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_few_products_that_round_otherwise(case, dtype):
    """NaN and subnormal numbers, of single positions."""
    case = replace(case, data_format="NXC", dtype=dtype)
    dy, w = case.formatted(*case.arrays())
    w[...] = 1
    tiny = dy.dtype.type(2.0**-130 if dtype == "bf16" else 2.0**-24)
    dy[0, 3, 4], dy[0, 3, 5] = np.nan, tiny
    after = case.call(dy, w)
    assert np.isnan(after[0, 3, 4]).all()
    assert (after[0, 3, 5] == tiny).all()
    assert same_bits(after[0, 4:], np.broadcast_to(dy[0, 4:], after[0, 4:].shape).copy())


@every_dtype
@pytest.mark.parametrize("outputs", [1, 3, 15])
@pytest.mark.parametrize("kernel", [kernels.ROWS, kernels.DOT], ids=["rows", "dot"])
@pytest.mark.usefixtures("only")
def test_few_products_of_their_own_position(outputs, dtype):
    """What follows an odd number of them in memory is another position's."""
    case = replace(layer(f"40-{outputs}-9-1-1-0"), data_format="NXC", dtype=dtype)
    dy, w = case.formatted(*case.arrays())
    expected = case.call(dy, w)
    dy[0, 3, 5] = np.nan
    after = case.call(dy, w)
    assert np.isnan(after[0, 3, 5]).all()
    after[0, 3, 5] = expected[0, 3, 5]
    assert same_bits(after, expected)


@every_dtype
@pytest.mark.parametrize("case", [layer("72-24-20-1-1-0", batch=2), layer("21-5-9-3-1-1")])
@pytest.mark.parametrize("kernel", [kernels.ROWS, kernels.DOT], ids=["rows", "dot"])
@pytest.mark.usefixtures("only")
def test_lines_asked_for_before_they_are_written(monkeypatch, case, kernel, dtype):
    """Results that are no whole lines, of which no cache holds all: the same bits."""
    case = replace(case, data_format="NXC", dtype=dtype)
    arrays = case.formatted(*case.arrays())
    before = case.call(*arrays)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    monkeypatch.setattr(_processor, "AMD_512", True)
    plans.plan_for.cache_clear()
    case.check()
    assert case.call(*arrays, num_threads=2).tobytes() == before.tobytes()


READ_IN_PLACE = {
    "without a kernel": layer("72-96-20-1-1-0", batch=3),
    "a kernel": layer("33-100-15-3-1-1", batch=2),
    "strides": layer("20-130-15-3-2-1"),
    "apart": layer("24-68-24-2-2-0", transposed=True),
    "a vector": layer("5-144-23-1-1-0"),
    "scattered": layer("3-64-12-5-2-0", batch=2),
    "a row": sequence(40, 90, 300, kernel=2, dilation=3, begin=4),
}


@every_dtype
@pytest.mark.parametrize("amd", [False, True])
@pytest.mark.parametrize("case", READ_IN_PLACE.values(), ids=READ_IN_PLACE)
@every_kernel
@pytest.mark.usefixtures("only")
def test_rows_asked_for_before_they_are_read(monkeypatch, case, amd, dtype):
    """As if all came from memory: the same bits."""
    case = replace(case, data_format="NXC", dtype=dtype)
    arrays = case.formatted(*case.arrays())
    before = case.call(*arrays)
    monkeypatch.setattr(programs, "LARGE_SOURCE", 0)
    monkeypatch.setattr(_processor, "AMD", amd)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    plans.plan_for.cache_clear()
    case.check()
    assert same_bits(case.call(*arrays, num_threads=2), before)


@pytest.mark.parametrize(
    ("vectors", "outputs", "past", "asks"),
    [
        (4, 128, False, True),
        (4, 1024, False, True),
        (4, 32, True, False),
        (1, 128, False, False),
        (1, 128, True, True),
        (1, 1024, True, False),
    ],
)
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_what_is_asked_for_on_amd(monkeypatch, vectors, outputs, past, asks):
    """Rows of more than two lines; of a single vector from memory, if they are no pages."""
    monkeypatch.setattr(_processor, "AMD", True)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: past)
    inputs = vectors * forced.choice_of(POINTWISE).lanes
    changes = {"diff_src_channels": inputs, "diff_dst_channels": outputs}
    problem = POINTWISE._replace(diff_src=(1, 160, 160), diff_dst=(1, 160, 160), **changes)
    cut = blocks.cut(forced.choice_of(problem), 1)
    assert programs._asks(problem, cut, 1) == asks


@pytest.mark.parametrize(
    ("amd", "outputs", "asks"), [(True, 64, True), (True, 32, False), (False, 64, False)]
)
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_what_groups_ask_for(monkeypatch, amd, outputs, asks):
    """A group's rows are what counts, not those of all groups."""
    monkeypatch.setattr(_processor, "AMD", amd)
    inputs = 4 * forced.choice_of(POINTWISE).lanes
    changes = {"diff_src_channels": 4 * inputs, "diff_dst_channels": 4 * outputs, "groups": 4}
    problem = POINTWISE._replace(diff_src=(1, 160, 160), diff_dst=(1, 160, 160), **changes)
    assert programs._asks(problem, blocks.cut(forced.choice_of(problem), 1), 1) == asks


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_long_rows_are_cut_before_sums(last):
    changes = {"diff_src_channels": 64, "diff_dst_channels": 256, "rank": 1}
    changes |= {"diff_src": (1, 1, 16000), "diff_dst": (1, 1, 15998), "kernel": (1, 1, 3)}
    f16 = POINTWISE._replace(dtype=1, **changes)
    layout = forced.CHANNELS_LAST if last else forced.CHANNELS_FIRST
    cut = blocks.cut(forced.choice_of(f16, layout), 1)
    assert cut.cuts_sums != last


SHORT_SUMS = {
    "one channel": layer("64-1-20-1-1-0", batch=2),
    "whole lines": layer("128-5-9-3-1-1"),
    "parts of lines": layer("80-3-14-1-1-0"),
    "groups": layer("32-2-17-1-1-0", groups=4),
    "narrow": layer("7-2-12-3-1-1"),
    "strides": layer("48-4-11-3-2-1", extra=(1, 1)),
    "strides beyond the kernel": layer("33-2-9-2-3-0"),
    "transposed": layer("40-4-13-4-2-1", transposed=True),
    "a volume": volume(100, 2, (3, 5, 6)),
}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("case", SHORT_SUMS.values(), ids=SHORT_SUMS)
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_short_sums_of_halves(monkeypatch, case, dtype):
    """Rounded tile by tile, past the caches or not, and by way of scratch: the same bits."""
    case = replace(case, dtype=dtype)
    arrays = case.formatted(*case.arrays())
    for view in WRITEABLE:
        case.check(view=view, out_view=view)
        case.check(out_view=view, accumulate=True)
    before = case.call(*arrays, num_threads=2)
    for value in (np.inf, np.nan):
        forced.assert_value_reaches_what_it_touches(case, value)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    plans.plan_for.cache_clear()
    case.check()
    assert same_bits(case.call(*arrays), before)
    monkeypatch.setattr(kernels, "SHORT_SUM", 0)
    plans.plan_for.cache_clear()
    assert same_bits(case.call(*arrays), before)


FEW = {
    "a position": layer("100-70-1-1-1-0"),
    "positions": layer("37-130-2-1-1-0"),
    "images": layer("530-17-1-1-1-0", batch=3),
    "groups": layer("35-33-1-1-1-0", groups=3),
    "transposed": layer("50-60-1-1-1-0", transposed=True, batch=2),
    "padded": layer("40-30-1-1-1-1", dst=(3, 3)),
    "one channel": layer("1-90-2-1-1-0"),
    "of one": layer("90-1-2-1-1-0"),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("case", FEW.values(), ids=FEW)
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_weights_that_few_positions_meet(case, data_format, dtype):
    """Multiplied where they lie: bit for bit what packed ones are."""
    case = replace(case, data_format=data_format, dtype=dtype)
    for weights_format in ("XOI", "IOX") if case.transposed else ("XIO", "OIX"):
        case = replace(case, weights_format=weights_format)
        arrays = case.formatted(*case.arrays())
        for view in VIEWS:
            case.check(view=view, num_threads=2)
        assert plan_of(case, arrays[1])(arrays[0]).tobytes() == case.call(*arrays).tobytes()
        for value in (np.inf, np.nan):
            forced.assert_value_reaches_what_it_touches(case, value)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("extent", [6, 7, 9, 12, 13])
@pytest.mark.parametrize(("inputs", "outputs"), [(80, 256), (112, 128), (200, 600), (40, 1100)])
def test_panels_of_heavy_weights(inputs, outputs, extent, data_format, dtype):
    """Where packing takes long, those of AMX are two tiles wide if weights lie so."""
    case = layer(
        f"{inputs}-{outputs}-{extent}-3-1-1",
        transposed=True,
        data_format=data_format,
        dtype=dtype,
        weights_format="XOI",
    )
    case.check()
    other = replace(case, weights_format="IOX")
    assert same_bits(
        case.call(*case.formatted(*case.arrays())), other.call(*other.formatted(*other.arrays()))
    )


PADDED = {
    "an image": layer("20-18-15-5-1-2"),
    "images": layer("20-18-6-5-1-2", batch=5),
    "images of few positions": layer("20-18-2-5-1-2", batch=3),
    "dilations": layer("17-20-19-3-1-0", dilations=(5, 7), pads_begin=(5, 7), pads_end=(5, 7)),
    "two sides": layer("20-18-12-5-1-0", pads_begin=(4, 0), pads_end=(0, 4)),
    "strides": layer("20-18-9-7-2-3", extra=(1, 0)),
    "strides beyond the kernel": layer(
        "20-18-1-1-1-0",
        dst=(1, 2),
        kernel=(1, 2),
        strides=(1, 4),
        dilations=(1, 5),
        pads_end=(0, 4),
    ),
    "transposed": layer("20-18-13-5-2-2", transposed=True),
    "a volume": replace(volume(18, 20, (3, 5, 9)), batch=2),
    "a wide kernel": layer("20-18-5-9-1-4", groups=2),
    "a row": sequence(20, 18, 40, kernel=5, dilation=9, begin=18, end=18),
}


@pytest.mark.parametrize("case", PADDED.values(), ids=PADDED)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("kernel", [kernels.ROWS, kernels.DOT], ids=["rows", "dot"])
@pytest.mark.usefixtures("only")
def test_padding_is_left_out_on_every_axis(monkeypatch, kernel, data_format, case):
    """However tasks cut the regions that have the same taps inside."""
    case = replace(case, data_format=data_format, dtype="bf16" if kernel == kernels.DOT else "f32")
    case.check()
    for value in (np.inf, np.nan):
        forced.assert_value_reaches_what_it_touches(case, value)
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


MOSTLY_PADDED = {
    "full": layer("20-33-5-5-1-0"),
    "dilated": layer("17-6-9-3-1-0", dilations=(4, 3)),
    "strided": layer("24-9-3-7-2-0"),
    "transposed": layer("16-21-4-7-1-6", transposed=True),
    "transposed, strided": layer("16-5-5-6-2-4", transposed=True),
    "rows": sequence(40, 7, 3, kernel=12),
}


@every_dtype
@pytest.mark.parametrize("case", MOSTLY_PADDED.values(), ids=MOSTLY_PADDED)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_images_that_are_mostly_padding(case, data_format, dtype):
    """Blocks have rows of many images, of which each has the same bits whatever their number."""
    case = replace(case, data_format=data_format, dtype=dtype, batch=27)
    case.check()
    dy, weights = case.formatted(*case.arrays())
    together = case.call(dy, weights)
    for some in (1, 3, 14):
        part = replace(case, batch=some)
        assert same_bits(part.call(dy[:some], weights), together[:some])


TRANSPOSED = {
    "patches": layer("33-3-12-4-4-0", transposed=True, batch=2),
    "that overlap": layer("16-2-17-5-2-0", transposed=True),
    "with gaps": layer("17-1-14-2-3-0", transposed=True),
    "padded above": layer("16-7-12-3-3-0", transposed=True, pads_begin=(2, 0), pads_end=(1, 0)),
    "3-D": volume(16, 4, (4, 6, 8), transposed=True, kernel=2, stride=2, pad=0),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("case", TRANSPOSED.values(), ids=TRANSPOSED)
@pytest.mark.parametrize("kernel", [kernels.ROWS], ids=["rows"])
@pytest.mark.usefixtures("only")
def test_taps_of_few_channels_in_place(case, dtype):
    """A row of taps is one run of diff_dst; where positions are apart, of a window: the same."""
    case = replace(case, dtype=dtype)
    arrays = case.formatted(*case.arrays())
    for view in ("contiguous", "reversed", "unaligned"):
        case.check(view=view, num_threads=2)
    plan = plan_of(case, arrays[1])
    assert "diff_dst in place" in plan.describe()
    apart = case.call(VIEWS["inside"](arrays[0]), arrays[1])
    assert case.call(*arrays).tobytes() == apart.tobytes()
    for value in (np.inf, np.nan):
        forced.assert_value_reaches_what_it_touches(case, value)


@every_dtype
@pytest.mark.parametrize("kernel", [kernels.GROUPED], ids=["grouped"])
@pytest.mark.usefixtures("only")
def test_lanes_without_channels_have_no_weights(monkeypatch, dtype):
    """What lies in their memory is not multiplied: subnormals take many times as long."""
    case = layer("3-4-9-3-1-1", groups=7, dtype=dtype)
    _, weights = case.formatted(*case.arrays())
    aligned = _arrays.aligned_bytes

    def packed(fill):
        def filled(count):
            memory = aligned(count)
            memory[...] = fill
            return memory

        monkeypatch.setattr(_arrays, "aligned_bytes", filled)
        plan = plan_of(case, weights)
        (found,) = plan._state[1].values()
        return found[1]

    assert np.array_equal(packed(1), packed(2))
