"""The benchmarks' problem strings."""

import pytest

cases = pytest.importorskip("benchmarks.cases")


def test_every_shape_round_trips():
    loaded = cases.load()
    assert len(loaded) >= 40
    assert len({case.name for case in loaded}) == len(loaded)
    for case in loaded:
        assert cases.parse(case.kind, str(case)) == case


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "g1mb8ic64ih56oc64oh56kh3sh1ph1",
            "g1mb8ic64ih56iw56oc64oh56ow56kh3kw3sh1sw1ph1pw1",
        ),
        ("ic3ih9oc4kh3", "g1mb2ic3ih9iw9oc4oh7ow7kh3kw3sh1sw1ph0pw0"),
        ("mb1ic8iw16oc4kw3dw1", "g1mb1ic8iw16oc4ow12kw3sw1dw1pw0"),
        (
            'mb1_ic8id4oc4kd3pd1n"a b"',
            'g1mb1ic8id4ih4iw4oc4od4oh4ow4kd3kh3kw3sd1sh1sw1pd1ph1pw1n"a b"',
        ),
    ],
)
def test_defaults_are_those_of_benchdnn(line, expected):
    assert str(cases.parse("conv", line)) == expected


def test_derived_extents():
    case = cases.parse("deconv", "mb1ic8ih16oc4kh4sh2ph1")
    assert case.dst == (32, 32)
    assert case.pads_end == (1, 1)
    case = cases.parse("conv", "mb1ic3ih224oc64oh112kh7sh2ph3")
    assert case.pads_end == (2, 2)
    assert case.flop == 2 * 64 * 112 * 112 * 49 * 3
    case = cases.parse("resampling", "--alg=nearest mb2ic16_ih5oh3_iw10ow11")
    assert (case.src, case.dst, case.algorithm) == ((5, 10), (3, 11), "nearest")


def test_what_must_move():
    case = cases.parse("conv", 'g2mb3ic8iw10oc4ow8kw3n"a b"')
    assert case.weights == 4 * 2 * 2 * 3
    assert case.elements == 3 * (4 * 8 + 8 * 10) + case.weights
    assert cases.label(str(case)) == "a b"
    resize = cases.parse("resampling", "mb1ic2_iw5ow10")
    assert (resize.weights, resize.elements) == (0, 2 * (5 + 10))
    assert cases.label(str(resize)) == str(resize)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("conv", "mb1ic8ih4oc4"),
        ("conv", "mb1ic8ih4kh3"),
        ("conv", "ih4oc4kh3"),
        ("conv", "mb1ic8ih4oc4kh3xx2"),
        ("conv", "mb1ic8ih4oc4kh3kh3"),
        ("conv", "mb1 ic8"),
        ("conv", "g3mb1ic8ih4oc4kh3"),
        ("conv", "garbage!"),
        ("resampling", "mb1ic8ih4"),
        ("resampling", "mb1ic8ih4oh8kh3"),
        ("resampling", "--alg=cubic mb1ic8ih4oh8"),
    ],
)
def test_what_does_not_parse(kind, line):
    with pytest.raises(cases.CaseError):
        cases.parse(kind, line)
