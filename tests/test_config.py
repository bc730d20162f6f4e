"""What the package says of itself."""

import doctest
import importlib
import importlib.metadata
import inspect
import json
import pathlib
import pkgutil
import re
import subprocess
import sys

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


def test_the_version_is_the_installed_one():
    assert gradops_cy.__version__ == importlib.metadata.version("gradops-cy")


CONVOLUTION = (
    "*, strides, pads_begin, pads_end, dilations, auto_pad='none', auto_pad_rule='forward', "
    "output_padding=None, groups=1, data_format='NXC', weights_format={}, "
)
INTERPOLATION = (
    "*, mode, coordinate_transformation_mode='half_pixel', scales=None, data_format='NXC', "
    "coordinate_scales=None, "
)
LAST = "out=None, accumulate=False, num_threads=None"
SIGNATURES = {
    "convolution_backward_data": "diff_dst, weights, dst_shape=None, "
    + CONVOLUTION.format("'XIO'"),
    "conv_transpose_backward_data": "diff_dst, weights, " + CONVOLUTION.format("'XOI'"),
    "interpolate_backward": "src, diff_dst, sizes=None, "
    + INTERPOLATION
    + "antialias=False, cubic_coeff_a=-0.75, ",
    "interpolate_backprop": "input_forward, output_delta, sizes=None, " + INTERPOLATION,
    "resize_bilinear_v2_grad": "grads, original_image, *, align_corners=False, "
    "half_pixel_centers=False, scales=(0.0, 0.0), data_format='NCX', ",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_the_contract(name):
    signature = inspect.signature(getattr(gradops_cy, name))
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({SIGNATURES[name]}{LAST})"


def test_no_cache_grows_without_bound():
    for info in pkgutil.iter_modules(gradops_cy.__path__, "gradops_cy."):
        if info.name in ("gradops_cy.__main__", "gradops_cy._run"):
            continue  # the command measures each peak once
        for value in vars(importlib.import_module(info.name)).values():
            if hasattr(value, "cache_parameters"):
                assert value.cache_parameters()["maxsize"] is not None, info.name


def test_public_names():
    assert set(gradops_cy.__all__) == {
        "ConvolutionPlan",
        "InterpolationPlan",
        "__version__",
        "conv_transpose_backward_data",
        "conv_transpose_backward_data_plan",
        "convolution_backward_data",
        "convolution_backward_data_plan",
        "get_num_threads",
        "interpolate_backprop",
        "interpolate_backward",
        "interpolate_backward_plan",
        "resize_bilinear_v2_grad",
        "set_num_threads",
        "show_config",
    }
    for name in gradops_cy.__all__:
        assert hasattr(gradops_cy, name)


@pytest.mark.parametrize(
    "module", ["convolution", "_convolution_reuse", "interpolation", "_threads", "_config"]
)
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


def test_missing_cross_checks_are_counted():
    """Without PyTorch the suite says how much it did not check."""
    code = (
        "import sys, pytest; sys.modules['torch'] = None; "
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))"
    )
    peers = pathlib.Path(__file__).with_name("test_peers.py")
    process = subprocess.run(
        [sys.executable, "-c", code, str(peers)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    count = re.search(r"^(\d+) cross-checks against PyTorch were left out", process.stdout, re.M)
    assert count is not None, process.stdout
    assert f"{count[1]} skipped in" in process.stdout
    assert int(count[1]) > 100
