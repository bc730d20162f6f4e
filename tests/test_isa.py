"""Every instruction-set tier that this machine has, each in a process of its own."""

import os
import subprocess
import sys

import pytest

from gradops_cy import _isa

TIERS = ("v2", "v3", "v4", "amx", "generic")

BATTERY = """
import sys
from gradops_cy import _isa
assert _isa.TIER == sys.argv[1]
from tests import test_interpolation
from tests.cases import conv_case
from tests.test_convolution import CHANNELS, layer
from tests.tolerances import DTYPES

for seed in range(250):
    conv_case(seed).check(num_threads=1 + seed % 3)
for dtype in DTYPES:
    for data_format in ("NXC", "NCX"):
        for channels in CHANNELS:
            layer(f"{channels}-{channels}-5-3-1-1", data_format=data_format, dtype=dtype).check()
        for groups in (16, 33):
            layer("1-1-9-3-2-1", groups=groups, data_format=data_format, dtype=dtype).check()
            layer("4-4-9-3-1-1", groups=groups, data_format=data_format, dtype=dtype).check()
        for src, dst in test_interpolation.EXTENTS:
            for mode in ("nearest", "linear"):
                for channels in (1, 5, 40):
                    test_interpolation.check(
                        dtype, data_format, 2, channels, src, dst, mode, "half_pixel"
                    )
print("all exact")
"""


def run(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("tier", TIERS)
def test_a_forced_tier_is_exact(tier):
    if tier not in _isa.supported_tiers():
        pytest.skip(f"this machine cannot run tier {tier}")
    process = run(BATTERY, tier, GRADOPS_ISA=tier)
    assert process.stdout == "all exact\n", process.stderr


@pytest.mark.parametrize("tier", _isa.supported_tiers())
def test_a_forced_tier_rounds_halves_alike(tier):
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {!r}]))"
    path = os.path.join(os.path.dirname(__file__), "test_half.py")
    process = run(code.format(path), GRADOPS_ISA=tier)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize("name", ["avx9", "v5", "none"])
def test_an_unknown_tier_is_refused(name):
    process = run("import gradops_cy", GRADOPS_ISA=name)
    assert process.returncode != 0
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: gradops_cy: GRADOPS_ISA must be one of ")
    assert repr(name) in last


def test_the_name_is_read_in_any_case():
    tier = _isa.supported_tiers()[0]
    code = "from gradops_cy import _isa; print(_isa.TIER)"
    assert run(code, GRADOPS_ISA=f" {tier.upper()} ").stdout.strip() == tier
    assert run(code, GRADOPS_ISA="").stdout.strip() == _isa.supported_tiers()[-1]


def test_a_processor_below_the_baseline_is_told(monkeypatch):
    monkeypatch.setattr(_isa, "supported_tiers", tuple)
    with pytest.raises(ImportError, match="below x86-64-v2"):
        _isa._choose()
