"""What the package says of itself."""

import doctest
import importlib
import json
import pathlib

import pytest

import gradops_cy
from gradops_cy import _machine


def test_show_config_prints_json(capsys):
    assert gradops_cy.show_config() is None
    printed = json.loads(capsys.readouterr().out)
    assert printed == gradops_cy.show_config("dicts")
    assert printed["version"] == gradops_cy.__version__
    assert printed["kernels"]["tier"] in printed["kernels"]["supported"]
    assert printed["threads"]["num_threads"] >= 1
    assert printed["build"]["compiler"]


def test_show_config_refuses_other_modes():
    with pytest.raises(ValueError, match="show_config: mode must be 'stdout' or 'dicts'"):
        gradops_cy.show_config("xml")


def test_the_package_is_typed():
    folder = pathlib.Path(gradops_cy.__file__).parent
    assert (folder / "py.typed").exists()
    stubs = {path.stem for path in folder.glob("**/*.pyi")}
    compiled = {path.name.split(".")[0] for path in folder.glob("**/*.so")}
    assert compiled <= stubs


def test_public_names():
    assert set(gradops_cy.__all__) == {
        "__version__",
        "conv_transpose_backward_data",
        "convolution_backward_data",
        "get_num_threads",
        "interpolate_backprop",
        "interpolate_backward",
        "resize_bilinear_v2_grad",
        "set_num_threads",
        "show_config",
    }
    for name in gradops_cy.__all__:
        assert hasattr(gradops_cy, name)


@pytest.mark.parametrize("module", ["convolution", "interpolation", "_threads", "_config"])
def test_docstring_examples(module):
    module = importlib.import_module(f"gradops_cy.{module}")
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0


def test_probes_measure_something():
    for dtype in ("f32", "f16", "bf16", "f64"):
        assert _machine.peak_gflops(dtype, 1) > 0.1
    assert _machine.copy_bandwidth(1) > 0.1
    assert _machine.description()["cpus"] >= 1
