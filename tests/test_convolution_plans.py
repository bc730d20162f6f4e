"""Plans give the bits of the operator, whatever arrays they meet and whoever calls them."""

import concurrent.futures
import copy
import itertools
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from gradops_cy._convolution_layout import layout_of
from tests.cases import LAYERS, POINTWISE, conv_case, every_dtype, layer
from tests.test_threads import same_bits
from tests.tolerances import DTYPES
from tests.views import VIEWS, WRITEABLE

MAKERS = {
    "convolution_backward_data_plan": gradops_cy.convolution_backward_data_plan,
    "conv_transpose_backward_data_plan": gradops_cy.conv_transpose_backward_data_plan,
}


def plan_of(case, weights, diff_dst_shape=None, **changes):
    """Return the plan of a case's own call."""
    channels = case.outputs * case.groups
    shape = (case.batch, *case.dst, channels)
    if case.data_format == "NCX":
        shape = (case.batch, channels, *case.dst)
    keywords = {
        **case.geometry,
        "pads_end": case.pads_end,
        "data_format": case.data_format,
        "weights_format": case.weights_format,
        **changes,
    }
    name = "conv_transpose_backward_data_plan"
    if not case.transposed:
        name = "convolution_backward_data_plan"
        keywords.setdefault("dst_shape", case.shape)
    return MAKERS[name](diff_dst_shape or shape, weights, **keywords)


def check_call(case, plan, dy, weights, **keywords):
    """Compare a call that writes into a new array, into `out`, and adds."""
    expected = case.call(dy, weights, **keywords)
    assert same_bits(plan(dy), expected)
    out = np.full_like(expected, np.nan)
    assert plan(dy, out) is out
    assert same_bits(out, expected)
    before = np.random.default_rng(1).standard_normal(case.shape).astype(expected.dtype)
    added = case.call(dy, weights, out=before.copy(), accumulate=True, **keywords)
    out = before.copy()
    assert plan(dy, out=out, accumulate=True) is out
    assert same_bits(out, added)
    assert same_bits(plan(dy), expected)


@pytest.mark.parametrize("case", [conv_case(seed) for seed in range(120)], ids=str)
def test_cases(case):
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    assert plan.diff_dst_shape == dy.shape
    assert plan.diff_src_shape == case.shape
    assert plan.dtype == DTYPES[case.dtype]
    check_call(case, plan, dy, weights)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("threads", [1, 3])
def test_layers(name, threads):
    case = LAYERS[name]
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights, num_threads=threads)
    assert same_bits(plan(dy), case.call(dy, weights, num_threads=threads))


SMALL = [
    replace(case, dtype=dtype, data_format=data_format)
    for case in (
        layer("20-17-9-3-2-1", batch=2),
        layer("4-4-9-3-1-1", groups=4),
        layer("4-3-9-3-2-1", groups=4, transposed=True),
        layer("1-1-9-3-1-1", groups=33),
    )
    for dtype in ("f32", "bf16")
    for data_format in ("NXC", "NCX")
]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_one_plan_takes_all_layouts(case):
    """Layouts may have kernels of their own, which add in another order."""
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, VIEWS["reversed"](weights))
    before = np.random.default_rng(1).standard_normal(case.shape).astype(dy.dtype)
    for (view, make), (out_view, place) in itertools.product(VIEWS.items(), WRITEABLE.items()):
        for accumulate in (True, False):
            case.check(view=view, out_view=out_view, accumulate=accumulate)
            out, expected = place(before.copy()), place(before.copy())
            case.call(make(dy), weights, out=expected, accumulate=accumulate)
            plan(make(dy), out, accumulate=accumulate)
            assert same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("case", SMALL[:4], ids=str)
def test_weights_are_copied(case, view):
    dy, weights = case.formatted(*case.arrays())
    given = VIEWS[view](weights.copy())
    plan = plan_of(case, given)
    expected = case.call(dy, weights)
    if given.flags.writeable:
        given[...] = 0
    for other_layout in (False, True):
        assert same_bits(plan(VIEWS["spaced"](dy) if other_layout else dy), expected)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_set_weights(case):
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    for turn in range(3):
        changed = (weights * (turn + 2)).astype(weights.dtype)
        view = list(VIEWS.values())[turn * 3 % len(VIEWS)](changed)
        plan.set_weights(view)
        check_call(case, plan, dy, changed)


@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(value, transposed, dtype):
    """NaN on padding is no product: such weights need another plan, and finite ones the first."""
    case = layer("17-8-6-3-1-1", transposed=transposed, dtype=dtype)
    dy, weights = case.formatted(*case.arrays())
    special = weights.copy()
    special[0, 1, 0, 2] = value
    plan = plan_of(case, special)
    for chosen in (special, weights, special):
        plan.set_weights(chosen)
        check_call(case, plan, dy, chosen)
        for copied in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            assert same_bits(copied(dy), plan(dy))


@pytest.mark.parametrize("seed", range(30))
def test_pickling(seed):
    case = conv_case(seed)
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights, num_threads=2)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(plan, protocol))
        assert repr(again) == repr(plan)
        assert again.describe() == plan.describe()
        assert same_bits(again(dy), plan(dy))


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("extent", [1, 6])
def test_contiguous_arrays_are_what_is_prepared_for(extent, channels, data_format):
    """What a call takes for granted of them is what their strides say."""
    last = data_format == "NXC"
    shape = (2, extent, extent, channels) if last else (2, channels, extent, extent)
    plan = gradops_cy.convolution_backward_data_plan(
        shape,
        np.ones((3, 3, channels, channels), np.float32),
        shape,
        strides=[1, 1],
        pads_begin=[1, 1],
        pads_end=[1, 1],
        dilations=[1, 1],
        data_format=data_format,
        weights_format="XIO",
    )
    array = np.ones(shape, np.float32)
    assert len(plan._state[1]) == 1
    plan(array)
    assert len(plan._state[1]) == 1
    form = plan._form
    weights = form.weights(plan._state[0])
    found = layout_of(form.problem, array, array, weights, last, False)
    assert plan._contiguous == found


def test_a_channel_of_its_own_may_have_any_stride():
    """A plane that is seen with its channel last is planned for as an array of that shape."""
    weights = np.ones((1, 1, 1, 8, 1, 1), np.float32)
    problem = POINTWISE._replace(diff_src_channels=8, diff_dst_channels=1)
    result = np.empty((1, 1, 6, 6, 8), np.float32)
    array = np.ones((1, 1, 6, 6, 1), np.float32)
    seen = np.moveaxis(np.ones((1, 1, 1, 6, 6), np.float32), 1, -1)
    assert seen.strides != array.strides
    found = [layout_of(problem, a, result, weights, True, False) for a in (array, seen)]
    assert found[0] == found[1]
    assert found[0].channels_last


def test_attributes_are_settled():
    """A list that changes later, or one of NumPy integers, is pickled as it was."""
    strides, extents = [2], np.array([9])
    plan = gradops_cy.convolution_backward_data_plan(
        np.array([1, 4, 1]),
        np.ones((3, 1, 1), np.float32),
        extents,
        strides=strides,
        pads_begin=np.int64(0),
        pads_end=range(1),
        dilations=np.array([1]),
        output_padding=[0] * 12,
        auto_pad="VALID",
    )
    strides[0], extents[0] = 3, 5
    dy = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    assert same_bits(pickle.loads(pickle.dumps(plan))(dy), plan(dy))


def test_an_empty_batch():
    case = layer("4-4-5-3-1-1", batch=0)
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    assert plan(dy).shape == (0, 5, 5, 4)
    assert "work      0 flop" in plan.describe()
    plan.set_weights(weights)
    assert pickle.loads(pickle.dumps(plan))(dy).shape == (0, 5, 5, 4)


def test_texts():
    case = LAYERS["resnet 3x3"]
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert repr(plan).startswith("<convolution_backward_data_plan conv:f32:")
    for word in ("kernel", "tiles of", "tasks", "threads", "bytes of scratch", "flop"):
        assert word in plan.describe()


# -- threads -------------------------------------------------------------------------------


def test_concurrent_callers():
    cases = [conv_case(seed) for seed in range(12)]
    arrays = [case.formatted(*case.arrays()) for case in cases]
    plans = [plan_of(case, pair[1]) for case, pair in zip(cases, arrays, strict=True)]
    expected = [case.call(*pair) for case, pair in zip(cases, arrays, strict=True)]
    views = [VIEWS[name] for name in ("contiguous", "spaced", "fortran order", "reversed")]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        turns = [(i, view) for view in views for i in range(len(cases))] * 4
        results = pool.map(lambda turn: plans[turn[0]](turn[1](arrays[turn[0]][0])), turns)
        for (i, _), result in zip(turns, results, strict=True):
            assert same_bits(result, expected[i])


def test_a_call_sees_old_or_new_weights_whole():
    case = layer("32-32-8-3-1-1", batch=2)
    dy, weights = case.formatted(*case.arrays())
    choices = [weights, (-2 * weights).astype(weights.dtype)]
    choices.append(np.full_like(weights, np.nan))
    allowed = {case.call(dy, chosen).tobytes() for chosen in choices}
    plan = plan_of(case, weights, num_threads=1)
    done = threading.Event()

    def replace_weights():
        for turn in range(600):
            plan.set_weights(choices[turn % 3])
        done.set()

    def call():
        results = set()
        while not done.is_set():
            results.add(plan(dy).tobytes())
        return results

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(call) for _ in range(2)]
        pool.submit(replace_weights).result()
        for caller in callers:
            assert caller.result() <= allowed


def test_the_setting_counts_when_a_plan_is_called():
    case = LAYERS["resnet 3x3"]
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    before = gradops_cy.get_num_threads()
    try:
        for threads in (2, 1, 3):
            gradops_cy.set_num_threads(threads)
            assert f"threads   {threads}" in plan.describe()
            assert same_bits(plan(dy), case.call(dy, weights))
    finally:
        gradops_cy.set_num_threads(before)


# -- errors --------------------------------------------------------------------------------


def arguments(name):
    """Return valid keyword arguments, N = 2, O = 6, I = 4, 5x6 to 5x6."""
    weights = (3, 3, 6, 4) if name.startswith("conv_transpose") else (3, 3, 4, 6)
    return {
        "diff_dst_shape": (2, 5, 6, 6),
        "weights": np.ones(weights, np.float32),
        "strides": 1,
        "pads_begin": 1,
        "pads_end": 1,
        "dilations": 1,
    }


@pytest.fixture(params=MAKERS)
def name(request):
    return request.param


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"diff_dst_shape": 5}, TypeError, "diff_dst_shape must be a list or 1-D array"),
        ({"diff_dst_shape": (2, 5.0, 6, 6)}, TypeError, "diff_dst_shape[1] must be an integer"),
        ({"diff_dst_shape": (2, True, 6, 6)}, TypeError, "diff_dst_shape[1] must be an integer"),
        ({"diff_dst_shape": (2, 5, -6, 6)}, ValueError, "diff_dst_shape[2] must be in [0,"),
        ({"diff_dst_shape": (2, 6)}, ValueError, "diff_dst must have 3, 4 or 5 axes, got 2"),
        ({"diff_dst_shape": (2, 5, 6)}, ValueError, "weights must have 3 axes like diff_dst"),
        ({"diff_dst_shape": (2, 5, 0, 6)}, ValueError, "no zero extent"),
        ({"diff_dst_shape": (2, 5, 6, 7)}, ValueError, "weights of format X"),
        ({"weights": [1.0]}, TypeError, "weights must be a NumPy array, got list"),
        ({"weights": np.ones((3, 3, 4, 6), int)}, TypeError, "weights must have dtype float32"),
        ({"strides": 1.0}, TypeError, "strides must be an integer or a list of integers"),
        ({"strides": True}, TypeError, "strides must be an integer or a list of integers"),
        ({"pads_end": [1, True]}, TypeError, "pads_end[1] must be an integer"),
        ({"groups": 4}, ValueError, "groups must divide"),
        ({"data_format": "NCW"}, ValueError, "data_format must be"),
        ({"num_threads": 0}, ValueError, "num_threads must be a positive integer"),
        ({"num_threads": 1.5}, TypeError, "num_threads must be a positive integer"),
    ],
)
def test_bad_plans(name, changes, error, text):
    make = MAKERS[name]
    make(**arguments(name))  # so that what could be remembered is
    with pytest.raises(error) as caught:
        make(**{**arguments(name), **changes})
    assert str(caught.value).startswith(f"{name}: ")
    assert text in str(caught.value)


def test_a_bad_dst_shape():
    with pytest.raises(ValueError, match=r"^convolution_backward_data_plan: dst_shape must"):
        MAKERS["convolution_backward_data_plan"](
            **arguments("convolution_backward_data_plan"), dst_shape=(2, 4, 6, 4)
        )


DY = np.ones((2, 5, 6, 6), np.float32)
OUT = np.ones((2, 5, 6, 4), np.float32)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"diff_dst": None}, TypeError, "diff_dst must be a NumPy array, got NoneType"),
        ({"diff_dst": np.ma.masked_array(DY)}, TypeError, "must be a NumPy array, got MaskedArray"),
        ({"diff_dst": DY.astype(int)}, TypeError, "diff_dst must have dtype float32, float16"),
        ({"diff_dst": DY.astype(float)}, TypeError, "diff_dst must have dtype float32, got"),
        ({"diff_dst": DY[:1]}, ValueError, "diff_dst must have shape (2, 5, 6, 6), got (1, 5,"),
        ({"diff_dst": DY[0]}, ValueError, "diff_dst must have shape (2, 5, 6, 6), got (5, 6, 6)"),
        ({"out": [1]}, TypeError, "out must be a NumPy array or None, got list"),
        ({"out": OUT.astype(float)}, TypeError, "out must have dtype float32, got float64"),
        ({"out": OUT[1:]}, ValueError, "out must have shape (2, 5, 6, 4), got (1, 5, 6, 4)"),
        ({"out": VIEWS["read-only"](OUT)}, ValueError, "out must be writeable"),
        ({"out": VIEWS["unaligned"](OUT)}, ValueError, "out must be aligned"),
        ({"out": VIEWS["byte-swapped"](OUT)}, TypeError, "out must have dtype float32"),
        ({"out": DY[..., :4]}, ValueError, "out must not overlap diff_dst"),
        ({"accumulate": True}, ValueError, "accumulate=True must come with out="),
        ({"accumulate": 1}, TypeError, "accumulate must be True or False"),
    ],
)
def test_bad_calls(name, changes, error, text):
    plan = MAKERS[name](**arguments(name))
    plan(DY)
    with pytest.raises(error) as caught:
        plan(**{"diff_dst": DY, **changes})
    assert str(caught.value).startswith(f"{name}: ")
    assert text in str(caught.value)


def test_bad_weights(name):
    plan = MAKERS[name](**arguments(name))
    expected = plan(DY)
    weights = arguments(name)["weights"]
    for bad, error, text in (
        (None, TypeError, "weights must be a NumPy array"),
        (weights.astype(np.float64), TypeError, "weights must have dtype float32, got float64"),
        (weights[1:], ValueError, "weights must have shape (3, 3, "),
        (weights.transpose(3, 2, 1, 0), ValueError, "weights must have shape (3, 3, "),
    ):
        with pytest.raises(error) as caught:
            plan.set_weights(bad)
        assert str(caught.value).startswith(f"{name}: ")
        assert text in str(caught.value)
    assert same_bits(plan(DY), expected)


# -- what the operators remember -----------------------------------------------------------


@pytest.mark.parametrize("attribute", ["strides", "dilations", "pads_begin", "pads_end", "groups"])
@pytest.mark.parametrize(
    "value",
    [True, 1.0, np.float64(1), np.True_, np.array([1.0, 1.0]), [1, True], (1, 1.0), [1, np.True_]],
)
def test_equal_is_not_the_same(attribute, value):
    """True and 1.0 equal 1, and are no attributes, even right after a call with 1."""
    keywords = arguments("convolution")
    del keywords["diff_dst_shape"]
    for usual in (1, [1, 1], (1, 1)):
        gradops_cy.convolution_backward_data(
            DY, **{**keywords, attribute: 1 if attribute == "groups" else usual}
        )
        with pytest.raises(TypeError, match=attribute):
            gradops_cy.convolution_backward_data(DY, **{**keywords, attribute: value})


def test_a_list_may_change_between_calls():
    keywords = arguments("convolution")
    del keywords["diff_dst_shape"]
    pads = [1, 1]
    keywords["pads_end"] = pads
    assert gradops_cy.convolution_backward_data(DY, **keywords).shape == (2, 5, 6, 4)
    pads[1] = 0
    assert gradops_cy.convolution_backward_data(DY, **keywords).shape == (2, 5, 7, 4)
    pads[:] = np.array(pads)
    assert gradops_cy.convolution_backward_data(DY, **keywords).shape == (2, 5, 7, 4)
