"""Every instruction-set tier that this machine has, each in a process of its own."""

import os
import subprocess
import sys

import pytest

from gradops_cy import _isa

TIERS = ("v2", "v3", "v4", "v4bf16", "amx", "generic")

BATTERY = """
import sys
from gradops_cy import _isa
assert _isa.TIER == sys.argv[1]
from tests import test_interpolation
from tests.cases import LAYERS, conv_case, layer
from tests.test_convolution import CHANNELS, in_format
from tests.tolerances import DTYPES
from tests.views import VIEWS, WRITEABLE

views, out_views = list(VIEWS), [None, *WRITEABLE]
for seed in range(400):
    conv_case(seed).check(
        num_threads=1 + seed % 3,
        view=views[seed % len(views)],
        out_view=out_views[seed % len(out_views)],
        accumulate=seed % 2 == 0,
    )
for number, case in enumerate(LAYERS.values()):
    if case.inputs <= 512:
        data_format = ("NXC", "NCX")[number // 4 % 2]
        in_format(case, data_format, list(DTYPES)[number % 4]).check(large=True)
for data_format in ("NXC", "NCX"):
    for dtype in DTYPES:
        for channels in CHANNELS:
            layer(f"{channels}-{channels}-5-3-1-1", data_format=data_format, dtype=dtype).check()
        for groups in (16, 33):
            layer("1-1-9-3-2-1", groups=groups, data_format=data_format, dtype=dtype).check()
            layer("4-4-9-3-1-1", groups=groups, data_format=data_format, dtype=dtype).check()
            layer("8-20-9-3-2-1", groups=groups, data_format=data_format, dtype=dtype).check()
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


@pytest.mark.parametrize("file", ["test_half.py", "test_special_values.py"])
@pytest.mark.parametrize("tier", _isa.supported_tiers())
def test_a_forced_tier_passes(tier, file):
    path = os.path.join(os.path.dirname(__file__), file)
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick"]
    command = [sys.executable, "-m", "pytest", *options, path]
    environment = {**os.environ, "GRADOPS_ISA": tier}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
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
