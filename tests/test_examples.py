"""The examples run, and are right."""

import importlib.util
import runpy
from pathlib import Path

import pytest

from gradops_cy.__main__ import main

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["unet_decoder_backward", "resnet50_stage_backward"])
def test_graphs(name, capsys):
    assert main(["run", str(EXAMPLES / f"{name}.json"), "--check", "--repeat", "1"]) == 0
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.skipif(
    importlib.util.find_spec("skimage") is None, reason="scikit-image is not installed"
)
@pytest.mark.filterwarnings("default")
def test_super_resolution(tmp_path, capsys):
    program = runpy.run_path(str(EXAMPLES / "super_resolution.py"))
    before, after = program["main"](["--output", str(tmp_path), "--iterations", "20"])
    assert after > before + 1.5
    assert (tmp_path / "restored.png").exists()
