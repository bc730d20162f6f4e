"""``python -m benchmarks compare``: ours against the peers, checked, interleaved, saved."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import gradops_cy
from benchmarks import cases, compare, providers, report

# Every family once: the quick run.
QUICK = (
    "resnet50_conv2_3x3", "resnet50_conv3_3x3_s2", "resnet50_conv5_3x3", "resnet50_conv1",
    "mobilenet2_dw3x3", "resnext50_conv2", "deeplab_rate2", "unet_up2", "wavenet_d4",
    "bilinear_x2", "nearest_x2", "deeplab_logits",
)  # fmt: skip


def _list(text: str) -> list[str]:
    return text.split(",")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    compare_parser = commands.add_parser("compare", help="compare with the peers")
    add = compare_parser.add_argument
    add("--only", default="", help="cases whose problem string contains this")
    add("--quick", action="store_true", help="one case of each family, one thread")
    add("--dtype", type=_list, default=None, help="f32,bf16,f16 (quick: f32,bf16)")
    add("--layout", type=_list, default=["NXC", "NCX"], help="NXC,NCX")
    add("--threads", type=_list, default=None, help="numbers of threads (default: 1 and all)")
    add("--providers", type=_list, default=None, help="peers (default: all that are installed)")
    add("--data", choices=providers.DATA, default="normal", help="what the arrays are")
    add(
        "--memory",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure the memory of a call (default: unless quick)",
    )
    add("--budget", type=float, default=None, help="seconds of timing for a row")
    add("--output", type=Path, default=Path("benchmarks/results/latest"), help="folder of results")
    return parser


def main() -> int:
    """Run the command line."""
    arguments = _parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)
    selected = [case for case in cases.load() if arguments.only in str(case)]
    if arguments.quick:
        selected = [case for case in selected if case.name in QUICK]
    if not selected:
        console.print(f"no case contains {arguments.only!r}")
        return 2
    peers = providers.available()
    if arguments.providers is not None:
        unknown = set(arguments.providers) - set(peers)
        if unknown:
            console.print(f"not installed: {', '.join(sorted(unknown))}; there are {list(peers)}")
            return 2
        peers = {name: peers[name] for name in arguments.providers}
    everything = gradops_cy.get_num_threads()
    default = [1] if arguments.quick else sorted({1, everything})
    threads = [int(n) for n in arguments.threads or default]
    budget = arguments.budget or (0.05 if arguments.quick else 0.5)
    dtypes = arguments.dtype or ["f32", "bf16", "f16"][: 2 if arguments.quick else 3]
    memory = not arguments.quick if arguments.memory is None else arguments.memory
    settings = compare.Settings(peers, compare.Peaks(), budget, arguments.data, memory)
    rows = []
    total = len(selected) * len(dtypes) * len(arguments.layout) * len(threads)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("comparing", total=total)
        for row in compare.run(selected, dtypes, arguments.layout, threads, settings):
            rows.append(row)
            progress.advance(task)
    environment = compare.environment(cases.load(), settings)
    report.print_table(rows, console)
    report.print_summary(rows, environment, console)
    report.save(rows, environment, arguments.output)
    console.print(f"saved to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
