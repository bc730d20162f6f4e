"""What a run leaves behind: the printed table, JSON, CSV and a plot."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.compare import Row, as_record, geometric_mean


def _short(problem: str) -> str:
    """Return a case's name, or its problem string where it has none."""
    _, quote, name = problem.rstrip('"').rpartition('"')
    return name if quote else problem


def print_table(rows: list[Row], console: Console) -> None:
    """Print one line a row, and the geometric means."""
    peers = sorted({peer for row in rows for peer in row.same})
    table = Table(box=None, pad_edge=False)
    for column in ("problem", "dtype", "layout", "threads", "ours µs", "rate", "of peak"):
        table.add_column(column, justify="left" if column == "problem" else "right")
    for peer in peers:
        table.add_column(f"x {peer}", justify="right")
        table.add_column("any layout", justify="right")
    for row in rows:
        cells = [_short(row.problem), row.dtype, row.layout, str(row.threads)]
        cells += [f"{row.ours.minimum * 1e6:.0f}", f"{row.rate:.1f} {row.unit}", f"{row.share:.0%}"]
        for peer in peers:
            for any_layout in (False, True):
                speedup = row.speedup(peer, any_layout=any_layout)
                colour = "red" if speedup is not None and speedup < 1 else "default"
                cells.append("" if speedup is None else f"[{colour}]{speedup:.2f}[/]")
        table.add_row(*cells)
    console.print(table)
    for peer in peers:
        for dtype in dict.fromkeys(row.dtype for row in rows):
            for kinds, title in (
                (("conv", "deconv"), "convolutions"),
                (("resampling",), "resizes"),
            ):
                found = [
                    speedup
                    for row in rows
                    if row.dtype == dtype
                    and row.kind in kinds
                    and (speedup := row.speedup(peer)) is not None
                ]
                if found:
                    console.print(
                        f"geometric mean over {peer}, {dtype} {title}: "
                        f"{geometric_mean(found):.2f} ({sum(s < 1 for s in found)} of {len(found)} "
                        "slower)"
                    )


def save(rows: list[Row], environment: dict[str, Any], folder: Path) -> None:
    """Write comparison.json, .csv and .png."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [as_record(row) for row in rows]
    document = {**environment, "rows": records}
    (folder / "comparison.json").write_text(json.dumps(document, indent=1) + "\n")
    with (folder / "comparison.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        peers = sorted({peer for row in rows for peer in row.best})
        head = ["problem", "dtype", "layout", "threads", "ours_us", "rate", "unit", "share"]
        writer.writerow(head + [f"{peer} {k}" for peer in peers for k in ("same_us", "best_us")])
        for row in rows:
            cells: list[object] = [row.problem, row.dtype, row.layout, row.threads]
            cells += [row.ours.minimum * 1e6, row.rate, row.unit, row.share]
            for peer in peers:
                for times in (row.same, row.best):
                    cells.append(times[peer] * 1e6 if peer in times else "")
            writer.writerow(cells)
    _plot(rows, folder / "comparison.png")


def _plot(rows: list[Row], path: Path) -> None:
    """Draw the speed-up over PyTorch on the same arrays, one panel for each dtype and layout."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter

    threads = min(row.threads for row in rows)
    rows = [row for row in rows if row.threads == threads and row.speedup() is not None]
    if not rows:
        return
    panels = list(dict.fromkeys((row.dtype, row.layout) for row in rows))
    names = list(dict.fromkeys(_short(row.problem) for row in rows))
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(2.6 * len(panels) + 2.5, 0.2 * len(names) + 1.5),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, (dtype, layout) in zip(axes[0], panels, strict=True):
        found = {
            _short(row.problem): row.speedup() or 0.0
            for row in rows
            if (row.dtype, row.layout) == (dtype, layout)
        }
        values = [found.get(name, 0.0) for name in names]
        colours = ["tab:green" if value >= 1 else "tab:red" for value in values]
        # Bars grow from 1x, to the left where the peer is faster.
        ax.barh(range(len(names)), [v - 1 for v in values], left=1, color=colours, height=0.7)
        ax.set_xscale("log", base=2)
        ax.set_xlim(0.2, 40)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.axvline(1, color="black", linewidth=0.8)
        ax.set_title(f"{dtype} {layout}")
        ax.set_xlabel("times as fast")
        ax.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=7)
    axes[0][0].invert_yaxis()
    figure.suptitle(f"gradops-cy against PyTorch on the same arrays, {threads} thread(s)")
    figure.savefig(path, dpi=110)
    plt.close(figure)
