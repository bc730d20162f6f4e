"""Reading and rewriting serialised oneDNN Graphs."""

import copy
import json
from pathlib import Path

import pytest

from gradops_cy import _graph
from gradops_cy._graph import GraphError

GRAPHS = Path(__file__).parent / "graphs"
CONV = json.loads((GRAPHS / "conv_bwd_d_2d.json").read_text())


def load(document, folder):
    path = folder / "graph.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return _graph.load(path)


def changed(**keys):
    """Return the convolution's document with keys of its operator replaced."""
    document = copy.deepcopy(CONV)
    document["graph"][0].update(keys)
    return document


def test_reading():
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    (op,) = graph.ops
    assert (op.id, op.name, op.kind) == (0, "conv", "ConvolutionBackwardData")
    assert op.attributes["strides"] == [2, 2]
    assert (op.inputs, op.outputs) == ([0, 1], [2])
    assert graph.tensors[0].shape == (1, 128, 14, 14)
    assert graph.boundary == {0, 1, 2}


def test_operators_are_put_in_order(tmp_path):
    second = copy.deepcopy(CONV["graph"][0])
    second["id"] = 1
    second["inputs"][0] = copy.deepcopy(CONV["graph"][0]["outputs"][0])
    second["outputs"][0]["id"] = 7
    graph = load({"graph": [second, CONV["graph"][0]]}, tmp_path)
    assert [op.id for op in graph.ops] == [0, 1]
    assert graph.boundary == {0, 1, 7}


TENSOR = CONV["graph"][0]["inputs"][0]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "must be an object"),
        ({}, "'graph' is missing"),
        ({"graph": {}}, "'graph' has the wrong type"),
        ({"graph": []}, "no operators"),
        ({"graph": [3]}, "must be an object"),
        ({"graph": [{"id": "x"}]}, "'id' has the wrong type"),
        (changed(kind=None), "'kind' has the wrong type"),
        (changed(attrs=[]), "'attrs' has the wrong type"),
        (changed(attrs={"strides": [1, 1]}), "'strides' must have a type and a value"),
        (changed(inputs=[{**TENSOR, "dtype": "f99"}]), "dtype must be one of"),
        (changed(inputs=[{**TENSOR, "shape": "1x2"}]), "'shape' has the wrong type"),
        (changed(inputs=[{**TENSOR, "shape": [1, 2.5]}]), "must be a list of integers"),
        (changed(inputs=[{**TENSOR, "stride": [1, 1]}]), "stride must have 4 elements"),
        (changed(inputs=[{**TENSOR, "stride": [1, 1, 1, 1]}]), "two elements"),
        (changed(inputs=[{**TENSOR, "stride": [25088, 0, 14, 1]}]), "two elements"),
        (changed(inputs=[{**TENSOR, "id": 2}]), "in two ways"),
        (changed(outputs=[TENSOR]), "cycle"),
    ],
)
def test_malformed_documents(document, text, tmp_path):
    with pytest.raises(GraphError) as caught:
        load(document, tmp_path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_writers_of_a_tensor(tmp_path):
    second = {**CONV["graph"][0], "id": 1}
    with pytest.raises(GraphError, match="tensor 2 is also written by op 0"):
        load({"graph": [CONV["graph"][0], second]}, tmp_path)


def test_unreadable_files(tmp_path):
    with pytest.raises(GraphError, match="No such file"):
        _graph.load(tmp_path / "none.json")
    with pytest.raises(GraphError):
        _graph.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GraphError, match="not a text file"):
        _graph.load(tmp_path / "binary")


@pytest.mark.parametrize(
    ("rewrite", "number", "shape", "strides"),
    [
        ("0:2x64x7x8", 0, (2, 64, 7, 8), None),
        ("0:*acdb", 0, (1, 128, 14, 14), (25088, 1, 1792, 128)),
        ("0:*abdc", 0, (1, 128, 14, 14), (25088, 196, 1, 14)),
        ("0:2x3x4x5*dcba", 0, (2, 3, 4, 5), (1, 2, 6, 24)),
        ("0:2x3x4x5*100x30x6x1", 0, (2, 3, 4, 5), (100, 30, 6, 1)),
        ("1:2x3+0:1x1", 1, (2, 3), None),
        ("2:*acdb", 2, (1, 32, 28, 28), (25088, 1, 896, 32)),
    ],
)
def test_shapes_are_rewritten(rewrite, number, shape, strides):
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    tensor = _graph.rewrite_shapes(graph, rewrite).tensors[number]
    assert tensor.shape == shape
    assert tensor.strides == strides


def test_results_are_inferred_anew_after_a_rewrite():
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    assert _graph.rewrite_shapes(graph, "0:2x64x7x8").tensors[2].shape is None
    assert _graph.rewrite_shapes(graph, "") is graph


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        ("0", "must have the form"),
        ("x:1x2", "must have the form"),
        ("9:1x2", "no input or output"),
        ("0:1xy", "integers joined by x"),
        ("0:1x-2", "must not be negative"),
        ("0:*abc", "tag must permute"),
        ("0:*aabb", "tag must permute"),
        ("0:2x2*1x1", "two elements"),
        ("0:2x2*4x2x1", "stride must have 2 elements"),
    ],
)
def test_bad_shape_rewrites(rewrite, text):
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    with pytest.raises(GraphError, match=text):
        _graph.rewrite_shapes(graph, rewrite)


def test_attributes_are_rewritten():
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    new = _graph.rewrite_attributes(
        graph, "0:strides:1x3*groups:4*auto_pad:SAME_LOWER*dst_shape:undef"
    )
    attributes = new.ops[0].attributes
    assert attributes["strides"] == [1, 3]
    assert attributes["groups"] == 4
    assert attributes["auto_pad"] == "SAME_LOWER"
    assert "dst_shape" not in attributes
    assert graph.ops[0].attributes["strides"] == [2, 2]
    new = _graph.rewrite_attributes(graph, "0:scales:2.5x0.5*mode:linear")
    assert new.ops[0].attributes["scales"] == [2.5, 0.5]


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        ("0", "must have the form"),
        ("a:strides:1", "must have the form"),
        ("0:strides", "must have the form"),
        ("5:strides:1", "no op 5"),
        ("0:strides:1y", "integers joined by x"),
        ("0:scales:abc", "numbers joined by x"),
    ],
)
def test_bad_attribute_rewrites(rewrite, text):
    graph = _graph.load(GRAPHS / "conv_bwd_d_2d.json")
    with pytest.raises(GraphError, match=text):
        _graph.rewrite_attributes(graph, rewrite)
