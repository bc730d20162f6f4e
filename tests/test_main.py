"""The command line: results, the check, and one line with status 2 for every error."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _run
from gradops_cy.__main__ import main
from tests import reference
from tests.tolerances import DTYPES

GRAPHS = Path(__file__).parent / "graphs"
CONV = GRAPHS / "conv_bwd_d_2d.json"


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch):
    """Measure no peaks here: the share of peak is test_config's."""
    monkeypatch.setattr(_run, "_peak", lambda dtype, num_threads: 100.0)


def run(capsys, *arguments):
    status = main(["run", *map(str, arguments), "--repeat", "1"])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.json")), ids=lambda path: path.stem)
def test_every_graph_is_right(path, capsys):
    status, out, err = run(capsys, path, "--check")
    assert status == 0
    assert err == ""
    header, *rows = out.splitlines()
    assert header.split("  ")[0] == "op"
    assert len(rows) == len(json.loads(path.read_text())["graph"])
    assert gradops_cy.show_config("dicts")["kernels"]["tier"] in rows[0]


# What oneDNN's own harness does with its single-operator graphs.
HARNESS = [
    ("conv_bwd_d_2d", "", "0:auto_pad:SAME_UPPER"),
    ("conv_bwd_d_2d", "", "0:auto_pad:SAME_LOWER"),
    ("conv_bwd_d_2d", "", "0:auto_pad:VALID"),
    ("conv_bwd_d_2d", "", "0:output_padding:2x2"),
    (
        "conv_bwd_d_2d",
        "0:1x14x14x128*abcd+1:128x32x1x1*abcd",
        "0:data_format:NXC*dst_shape:1x28x28x32",
    ),
    ("conv_bwd_d_2d", "1:1x1x32x128*abcd", "0:weights_format:XIO"),
    ("conv_bwd_d_2d", "0:*acdb+1:*cdba+2:*acdb", ""),
    (
        "conv_bwd_d_3d",
        "0:1x32x12x14x15+1:32x3x3x3x3",
        "0:strides:1x1x1*dst_shape:1x3x14x16x17*groups:1",
    ),
    (
        "conv_bwd_d_3d",
        "0:3x64x16x16+1:64x64x1x1",
        "0:strides:1x1*dilations:1x1*pads_begin:0x0*pads_end:0x0*dst_shape:3x64x16x16",
    ),
    ("deconv_bwd_d", "", "0:auto_pad:SAME_UPPER"),
    ("deconv_bwd_d", "", "0:auto_pad:SAME_LOWER"),
    ("deconv_bwd_d", "", "0:auto_pad:VALID"),
    ("deconv_bwd_d", "0:1x16x16x128", "0:data_format:NXC"),
    ("deconv_bwd_d", "1:3x3x128x32", "0:weights_format:XOI"),
    ("deconv_bwd_d_groups", "0:2x17x5x5x5+1:17x1x3x3x3", "0:groups:17"),
    (
        "deconv_bwd_d_groups",
        "0:2x16x5x5+1:17x16x1x3",
        "0:groups:1*strides:1x1*dilations:1x1*pads_begin:1x3*pads_end:1x2",
    ),
    ("interpolate_bwd", "", "0:mode:bilinear"),
    ("interpolate_bwd", "", "0:mode:trilinear"),
    ("interpolate_bwd", "", "0:coordinate_transformation_mode:align_corners*mode:linear"),
    ("interpolate_bwd", "0:2x7x14x17+1:2x6x12x17", "0:data_format:NXC"),
    ("interpolate_bwd", "0:2x64x32+1:2x64x64", "0:sizes:64*mode:linear"),
    ("interpolate_bwd", "0:2x17x17*acb+1:2x17x21*acb", "0:sizes:21"),
    ("interpolate_bwd", "0:2x8x2x4x6*acdeb+1:2x8x4x8x12", "0:sizes:4x8x12*mode:trilinear"),
    ("interpolate_bwd", "0:2x9x3x8x7+1:2x9x4x5x3", "0:sizes:undef*scales:1.34x0.63x0.43"),
]


@pytest.mark.parametrize(("graph", "shapes", "attributes"), HARNESS)
def test_the_harness_of_onednn(graph, shapes, attributes, capsys):
    status, out, err = run(
        capsys,
        GRAPHS / f"{graph}.json",
        "--check",
        f"--in-shapes={shapes}",
        f"--op-attrs={attributes}",
    )
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 2


def test_alternatives_are_run_one_after_the_other(capsys):
    status, out, _ = run(capsys, CONV, "--op-attrs=,0:auto_pad:VALID", "--in-shapes=,0:*acdb")
    assert status == 0
    assert len(out.splitlines()) == 8


def test_inputs_and_outputs(capsys, tmp_path):
    rng = np.random.default_rng(5)
    dy = rng.standard_normal((1, 128, 14, 14)).astype(np.float32)
    w = rng.standard_normal((128, 32, 1, 1)).astype(np.float32)
    source, target = tmp_path / "x.npz", tmp_path / "y.npz"
    for names in (("0", "1"), ("conv", "1")):
        np.savez(source, **dict(zip(names, (dy, w), strict=True)))
        status, _, _ = run(capsys, CONV, "--inputs", source, "--output", target)
        assert status == 0
        with np.load(target) as result:
            assert result.files == ["2"]
            expected = gradops_cy.convolution_backward_data(
                dy, w, (1, 32, 28, 28), strides=2, pads_begin=0, pads_end=0, dilations=1,
                data_format="NCX", weights_format="OIX",
            )  # fmt: skip
            assert (result["2"] == expected).all()


@pytest.mark.parametrize("bits", [np.uint16, "V2"])
def test_bfloat16_travels_as_bits(bits, capsys, tmp_path):
    dy = np.ones((2, 16, 5, 11), DTYPES["bf16"]) * DTYPES["bf16"].type(1.5)
    source, target = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(source, **{"1": dy.view(bits)})
    graph = GRAPHS / "interpolate_bwd_acdb.json"
    status, _, err = run(capsys, graph, "--inputs", source, "--output", target)
    assert (status, err) == (0, "")
    with np.load(target) as result:
        values = result["2"].view(DTYPES["bf16"])
    exact = reference.interpolate_backward(dy, (3, 11), "linear", "half_pixel")
    np.testing.assert_allclose(values.astype(np.float64), exact, rtol=2**-8)


def chain(folder):
    """Write a graph of two operators, the second reading what the first writes."""
    document = json.loads(CONV.read_text())
    first = document["graph"][0]
    second = copy.deepcopy(json.loads((GRAPHS / "interpolate_bwd.json").read_text())["graph"][0])
    second["id"], second["name"] = 1, "resize"
    second["attrs"]["sizes"]["value"] = [28, 28]
    second["inputs"][0] = {
        "id": 8, "dtype": "f32", "shape": [1, 32, 14, 14], "stride": [], "layout_type": "strided"
    }  # fmt: skip
    second["inputs"][1] = copy.deepcopy(first["outputs"][0])
    second["outputs"][0] = {**second["inputs"][0], "id": 9}
    document["graph"] = [second, first]
    path = folder / "chain.json"
    path.write_text(json.dumps(document))
    return path


def test_operators_are_chained(capsys, tmp_path):
    target = tmp_path / "y.npz"
    status, out, _ = run(capsys, chain(tmp_path), "--check", "--output", target)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["op", "conv", "resize"]
    with np.load(target) as result:
        middle, last = result["2"], result["9"]
    np.testing.assert_allclose(
        last,
        reference.interpolate_backward(middle, (14, 14), "nearest", "half_pixel"),
        rtol=1e-6,
        atol=1e-5,
    )


def with_third_input(folder, graph, dtype="s32"):
    document = json.loads((GRAPHS / f"{graph}.json").read_text())
    op = document["graph"][0]
    for name in ("dst_shape", "sizes"):
        op["attrs"].pop(name, None)
    op["inputs"].append({"id": 5, "dtype": dtype, "shape": [4], "stride": [1]})
    path = folder / "third.json"
    path.write_text(json.dumps(document))
    return path


def test_the_shape_as_a_third_input(capsys, tmp_path):
    path = with_third_input(tmp_path, "conv_bwd_d_2d")
    assert run(capsys, path, "--check")[0] == 0
    np.savez(tmp_path / "x.npz", **{"5": np.array([1, 32, 28, 28], np.int32)})
    assert run(capsys, path, "--check", "--inputs", tmp_path / "x.npz")[0] == 0
    np.savez(tmp_path / "x.npz", **{"5": np.array([1, 32, 30, 28], np.int32)})
    status, _, err = run(capsys, path, "--inputs", tmp_path / "x.npz")
    assert status == 2
    assert "dst_shape" in err
    assert run(capsys, with_third_input(tmp_path, "interpolate_bwd"), "--check")[0] == 0


def test_a_failed_check_is_told(capsys, monkeypatch):
    wrong = lambda *arguments: (np.zeros((1, 32, 28, 28)), np.ones((1, 32, 28, 28)))  # noqa: E731
    monkeypatch.setattr("gradops_cy._reference.convolution_backward_data", wrong)
    status, out, _ = run(capsys, CONV, "--check")
    assert status == 1
    assert "WRONG" in out


def edited(folder, change):
    document = json.loads(CONV.read_text())
    change(document["graph"][0])
    path = folder / "edited.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda op: op.update(kind="Convolution"), "operator 'Convolution' is not supported"),
        (lambda op: op["inputs"].pop(), "must have 2 or 3 inputs"),
        (lambda op: op["outputs"].pop(), "1 output"),
        (lambda op: op["attrs"].pop("strides"), "strides"),
        (lambda op: op["attrs"].update(strides={"value": [2]}), "strides must have 2 elements"),
        (lambda op: op["attrs"].update(strides={"value": "2x2"}), "strides"),
        (lambda op: op["attrs"].update(groups={"value": 3}), "groups"),
        (lambda op: op["attrs"].update(dst_shape={"value": [1, 32, 28]}), "dst_shape"),
        (lambda op: op["inputs"][0].update(shape=[1, 128, 14]), "stride must have 3"),
        (lambda op: op["inputs"][0].update(shape=[-1, 128, 14, 14]), "tensor 0 has no shape"),
        (lambda op: op["inputs"][1].update(dtype="f16"), "weights must have dtype float32"),
        (lambda op: op["inputs"][1].update(dtype="s32"), "input 1 (tensor 1) has dtype s32"),
        (lambda op: op["outputs"][0].update(dtype="f16"), "tensor 2 must have dtype float32"),
        (lambda op: op["outputs"][0].update(shape=[1, 32, 27, 28]), "tensor 2 must have shape"),
        (
            lambda op: op["inputs"][0].update(shape=[2**40, 128, 14, 14]),
            "does not fit into memory",
        ),
    ],
)
def test_bad_graphs(change, text, capsys, tmp_path):
    status, out, err = run(capsys, edited(tmp_path, change))
    assert (status, out) == (2, "")
    assert err.startswith("gradops-cy: ")
    assert err.count("\n") == 1
    assert text in err


def test_bad_files(capsys, tmp_path):
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "array.npy", np.ones(3))
    np.savez(tmp_path / "unknown.npz", **{"17": np.ones(3)})
    np.savez(tmp_path / "result.npz", **{"2": np.ones((1, 32, 28, 28), np.float32)})
    np.savez(tmp_path / "dtype.npz", **{"0": np.ones((1, 128, 14, 14))})
    np.savez(tmp_path / "shape.npz", **{"0": np.ones((1, 128, 14, 15), np.float32)})
    np.savez(tmp_path / "pickle.npz", **{"0": np.array([None], object)})
    for arguments, text in (
        (["--inputs", tmp_path / "none.npz"], "No such file"),
        (["--inputs", tmp_path / "text.npz"], "not an .npz file"),
        (["--inputs", tmp_path / "array.npy"], "not an .npz file"),
        (["--inputs", tmp_path / "pickle.npz"], "not an .npz file"),
        (["--inputs", tmp_path / "unknown.npz"], "'17' is no input"),
        (["--inputs", tmp_path / "result.npz"], "'2' is no input"),
        (["--inputs", tmp_path / "dtype.npz"], "must have dtype float32, got float64"),
        (["--inputs", tmp_path / "shape.npz"], "must have shape [1, 128, 14, 14]"),
        (["--output", tmp_path / "no folder" / "y.npz"], "No such file"),
        (["--in-shapes", "0:1x2"], "op 0"),
        (["--op-attrs", "0:data_format:XXX"], "data_format"),
        (["--op-attrs", ",0:auto_pad:VALID", "--output", tmp_path / "y.npz"], "single"),
        (["--num-threads", "0"], "num_threads"),
        (["--seed", "-1"], "--seed"),
    ):
        status, _, err = run(capsys, CONV, *arguments)
        assert status == 2
        assert err.count("\n") == 1
        assert text in err, err
    assert main(["run", str(CONV), "--repeat", "0"]) == 2
    assert main(["run", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize("arguments", [[], ["walk"], ["run"], ["run", "x", "--repeat", "many"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_seeds(capsys, tmp_path):
    results = []
    for seed in (0, 0, 1):
        run(capsys, CONV, "--seed", seed, "--output", tmp_path / "y.npz")
        with np.load(tmp_path / "y.npz") as archive:
            results.append(archive["2"])
    assert (results[0] == results[1]).all()
    assert (results[0] != results[2]).any()


def test_as_a_module():
    command = [sys.executable, "-m", "gradops_cy"]
    help_text = subprocess.run([*command, "run", "--help"], capture_output=True, text=True)
    assert help_text.returncode == 0
    assert "example:" in help_text.stdout
    config = subprocess.run([*command, "config"], capture_output=True, text=True)
    assert json.loads(config.stdout)["version"] == gradops_cy.__version__
    failing = subprocess.run([*command, "run", "none.json"], capture_output=True, text=True)
    assert failing.returncode == 2
    assert failing.stderr == "gradops-cy: none.json: No such file or directory\n"
