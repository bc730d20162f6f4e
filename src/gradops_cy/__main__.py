"""The command line: ``python -m gradops_cy run FILE`` executes a serialised oneDNN Graph."""

from __future__ import annotations

import argparse
import itertools
import sys
import zipfile
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from gradops_cy import _graph, _run, _threads
from gradops_cy._config import show_config
from gradops_cy._graph import GraphError
from gradops_cy._version import __version__

Array = np.ndarray[Any, np.dtype[Any]]

_EXAMPLE = """\
example:
  gradops-cy run examples/unet_decoder_backward.json --check
  gradops-cy run conv_bwd_d_2d.json --in-shapes=0:1x128x14x14*acdb --op-attrs=0:auto_pad:VALID
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradops-cy", description="Backward operators of convolution and image resizing."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("config", help="print kernel set, threads and build")
    run = commands.add_parser(
        "run",
        help="execute a oneDNN Graph",
        description="Execute every ConvolutionBackwardData, ConvTransposeBackwardData, "
        "InterpolateBackward and InterpolateBackprop operator of a serialised oneDNN Graph "
        "(ONEDNN_GRAPH_DUMP, benchdnn --graph --case) and print what each took.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("file", metavar="FILE", help="the graph, a JSON file")
    run.add_argument(
        "--inputs",
        metavar="NPZ",
        help="input tensors by id or operator name (its first input); bfloat16 as uint16 bits. "
        "What is missing is random",
    )
    run.add_argument("--output", metavar="NPZ", help="write every result, by tensor id")
    run.add_argument(
        "--in-shapes",
        default="",
        metavar="R",
        help="rewrite shapes and layouts: ID:SHAPE*LAYOUT, joined with +; several runs with ,",
    )
    run.add_argument(
        "--op-attrs",
        default="",
        metavar="R",
        help="rewrite attributes: OP_ID:NAME:VALUE*NAME:VALUE, joined with +; several runs with ,",
    )
    run.add_argument("--check", action="store_true", help="compare with a float64 reference")
    run.add_argument("--seed", type=int, default=0, help="of random inputs (default 0)")
    run.add_argument("--repeat", type=int, default=5, help="timed runs of each op (default 5)")
    run.add_argument("--num-threads", type=int, help="threads (default: the library's setting)")
    return parser


def _load_inputs(path: str | None, graph: _graph.Graph) -> dict[str, Array]:
    """Read an .npz; names of operators stand for their first input."""
    if path is None:
        return {}
    try:
        with zipfile.ZipFile(path):  # np.load would take a lone .npy for its one array
            archive = np.load(path, allow_pickle=False)
        arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror or error}") from None
    except (ValueError, zipfile.BadZipFile, AttributeError, EOFError):
        raise GraphError(f"{path}: not an .npz file of plain arrays") from None
    first = {op.name: str(op.inputs[0]) for op in graph.ops if op.name and op.inputs}
    produced = graph.produced
    result = {}
    for name, array in arrays.items():
        key = first.get(name, name)
        if not key.isdigit() or int(key) not in graph.tensors or int(key) in produced:
            raise GraphError(f"{path}: {name!r} is no input of the graph")
        result[key] = array
    return result


def _save(path: str, values: dict[int, Array], produced: set[int]) -> None:
    """Write results; bfloat16 as its bits."""
    arrays = {
        str(number): value.view(np.uint16) if value.dtype == ml_dtypes.bfloat16 else value
        for number, value in values.items()
        if number in produced
    }
    try:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror or error}") from None


def _execute(arguments: argparse.Namespace) -> int:
    graph = _graph.load(arguments.file)
    if arguments.repeat < 1:
        raise GraphError(f"--repeat must be at least 1, got {arguments.repeat}")
    if arguments.seed < 0:
        raise GraphError(f"--seed must not be negative, got {arguments.seed}")
    try:
        threads = _threads.resolve("--num-threads", arguments.num_threads)
    except ValueError as error:
        raise GraphError(str(error)) from None
    rewrites = list(
        itertools.product(arguments.in_shapes.split(","), arguments.op_attrs.split(","))
    )
    if len(rewrites) > 1 and arguments.output:
        raise GraphError("--output must go with a single alternative of rewrites")
    wrong = False
    for shapes, attributes in rewrites:
        variant = _graph.rewrite_shapes(_graph.rewrite_attributes(graph, attributes), shapes)
        runner = _run.Runner(
            variant,
            _load_inputs(arguments.inputs, variant),
            seed=arguments.seed,
            repeat=arguments.repeat,
            num_threads=threads,
            check=arguments.check,
        )
        reports = runner.run()
        print(_run.table(reports))
        wrong |= any(report.error is not None and not report.error <= 1 for report in reports)
        if arguments.output:
            _save(arguments.output, runner.values, variant.produced)
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 for a failed check, 2 for an error."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "config":
        show_config()
        return 0
    try:
        return _execute(arguments)
    except GraphError as error:
        print(f"gradops-cy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
