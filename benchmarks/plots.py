"""The plots of a run: speed-up over PyTorch, and both kinds of operators under their roofs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

from benchmarks.cases import label
from benchmarks.compare import CLIFF, Row

_COLOURS = {"NXC": "tab:blue", "NCX": "tab:orange"}
_NAMED = 12


def _fewest_threads(rows: list[Row]) -> list[Row]:
    """Return the rows that the plots show."""
    fewest = min((row.threads for row in rows), default=1)
    return [row for row in rows if row.threads == fewest]


def comparison(rows: list[Row], path: Path) -> None:
    """Draw the speed-up over PyTorch on the same arrays, one panel for each dtype and layout."""
    rows = [row for row in _fewest_threads(rows) if row.speedup() is not None]
    if not rows:
        return
    panels = list(dict.fromkeys((row.dtype, row.layout) for row in rows))
    names = list(dict.fromkeys(label(row.problem) for row in rows))
    size = (2.6 * len(panels) + 2.5, 0.2 * len(names) + 1.5)
    figure, axes = plt.subplots(
        1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for ax, (dtype, layout) in zip(axes[0], panels, strict=True):
        found = {
            label(row.problem): row.speedup() or 0.0
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
    _finish(figure, "gradops-cy against PyTorch on the same arrays", rows, path)


def roofline(rows: list[Row], peaks: dict[str, float], path: Path) -> None:
    """Draw the rates of convolutions over their intensities, one panel for each dtype.

    `peaks` are those of `compare.Peaks.table`. The farthest below the dashed line have names.
    """
    rows = [row for row in _fewest_threads(rows) if row.intensity]
    if not rows:
        return
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(6 * len(dtypes), 5), squeeze=False, layout="constrained"
    )
    for ax, dtype in zip(axes[0], dtypes, strict=True):
        shown = [row for row in rows if row.dtype == dtype]
        threads = shown[0].threads
        peak, bandwidth = peaks[f"{dtype} {threads}"], peaks[f"copy {threads}"]
        ends = [min(row.intensity for row in shown) / 2, max(row.intensity for row in shown) * 2]
        corners = sorted({*ends, min(max(peak / bandwidth, ends[0]), ends[1])})
        roof = [min(peak, x * bandwidth) for x in corners]
        name = f"{peak:.0f} GFLOP/s, {bandwidth:.1f} GB/s"
        ax.plot(corners, roof, color="black", linewidth=1.2, label=name)
        lower = [CLIFF * y for y in roof]
        ax.plot(corners, lower, color="black", linewidth=0.8, linestyle="--", label=f"{CLIFF:.0%}")
        for layout, colour in _COLOURS.items():
            points = [row for row in shown if row.layout == layout]
            x, y = [row.intensity for row in points], [row.rate for row in points]
            ax.scatter(x, y, s=14, color=colour, label=layout, zorder=3)
        worst: dict[str, Row] = {}
        for row in sorted(shown, key=lambda row: row.of_roof):
            worst.setdefault(row.problem, row)
        for row in list(worst.values())[:_NAMED]:
            if row.cliff:
                ax.annotate(f" {label(row.problem)}", (row.intensity, row.rate), fontsize=6)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(dtype)
        ax.set_xlabel("operations for each byte of diff_dst, weights and diff_src")
        ax.set_ylabel("GFLOP/s")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8, loc="lower right")
    _finish(figure, "Convolutions of gradops-cy under the machine's roof", rows, path)


def bandwidth(rows: list[Row], peaks: dict[str, float], path: Path) -> None:
    """Draw what resizes move in a second over what they move at all, one panel for each dtype."""
    rows = [row for row in _fewest_threads(rows) if not row.intensity]
    if not rows:
        return
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(6 * len(dtypes), 5), squeeze=False, layout="constrained"
    )
    copy = peaks[f"copy {rows[0].threads}"]
    for ax, dtype in zip(axes[0], dtypes, strict=True):
        ax.axhline(copy, color="black", linewidth=1.2, label=f"copy, {copy:.1f} GB/s")
        ax.axhline(0.7 * copy, color="black", linewidth=0.8, linestyle="--", label="70%")
        for layout, colour in _COLOURS.items():
            shown = [row for row in rows if (row.dtype, row.layout) == (dtype, layout)]
            moved = [row.rate * 1e3 * row.ours.minimum for row in shown]
            ax.scatter(moved, [row.rate for row in shown], s=14, color=colour, label=layout)
            if layout == "NXC":
                for row, x in zip(shown, moved, strict=True):
                    ax.annotate(f" {label(row.problem)}", (x, row.rate), fontsize=6)
        ax.set_xscale("log")
        ax.set_ylim(bottom=0)
        ax.set_title(dtype)
        ax.set_xlabel("MB of diff_dst and diff_src")
        ax.set_ylabel("GB/s")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    _finish(figure, "Resizes of gradops-cy and the machine's copying", rows, path)


def _finish(figure: Any, title: str, rows: list[Row], path: Path) -> None:
    figure.suptitle(f"{title}, {rows[0].threads} thread(s)")
    figure.savefig(path, dpi=110)
    plt.close(figure)
