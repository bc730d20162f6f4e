"""What a run leaves behind: the printed tables, JSON, CSV and the plots."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import plots
from benchmarks.cases import label
from benchmarks.compare import CLIFF, Row, as_record, geometric_mean

_CHOSEN = "onednn any"  # has no layout of ours


def _ratios(rows: list[Row]) -> dict[str, Callable[[Row], float | None]]:
    """Return the columns that say how many times as fast as a peer."""
    columns: dict[str, Callable[[Row], float | None]] = {}
    peers = sorted({peer for row in rows for peer in row.best})
    for peer in peers:
        if peer != _CHOSEN:
            columns[f"x {peer}\nsame layout"] = partial(Row.speedup, peer=peer)
        columns[f"x {peer}\nany layout"] = partial(Row.speedup, peer=peer, any_layout=True)
    if _CHOSEN in peers:
        columns[f"plan x\n{_CHOSEN}"] = partial(
            Row.speedup, peer=_CHOSEN, any_layout=True, plan=True
        )
    return columns


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if table.columns else "left", no_wrap=True)
    return table


def _red(text: str, wrong: bool) -> str:
    return f"[red]{text}[/]" if wrong else text


def _ratio(value: float | None) -> str:
    return "" if value is None else _red(f"{value:.2f}", value < 1)


def _memory(row: Row) -> str:
    """Return the MiB of a call and how many there may be."""
    if row.extra_bytes is None or row.allowed_bytes is None:
        return ""
    text = f"{row.extra_bytes / 2**20:.1f} of {row.allowed_bytes / 2**20:.1f}"
    return _red(text, row.extra_bytes > row.allowed_bytes)


def print_table(rows: list[Row], console: Console) -> None:
    """Print one line a row."""
    ratios = _ratios(rows)
    memory = ["extra memory\nMiB"] * any(row.extra_bytes is not None for row in rows)
    heads = ("problem", "dtype", "layout", "threads", "ours\nµs", "plan\nµs", "rate", "of\npeak")
    table = _table(*heads, "of\nroof", *memory, *ratios)
    for row in rows:
        cells = [label(row.problem), row.dtype, row.layout, str(row.threads)]
        cells.append(f"{row.ours.minimum * 1e6:.0f}")
        cells.append(f"{row.plan.minimum * 1e6:.0f}" if row.plan else "")
        cells += [f"{row.rate:.1f} {row.unit}", f"{row.share:.0%}"]
        cells.append(_red("cliff " * row.cliff + f"{row.of_roof:.0%}", row.cliff))
        cells += [_memory(row)] * len(memory)
        table.add_row(*cells, *(_ratio(ratio(row)) for ratio in ratios.values()))
    console.print(table)


def print_summary(rows: list[Row], environment: dict[str, Any], console: Console) -> None:
    """Print the geometric means with how many rows are slower, the cliffs, and what calls cost."""
    ratios = _ratios(rows)
    table = _table("\ngeometric mean (slower)", *ratios)
    for dtype in dict.fromkeys(row.dtype for row in rows):
        for kinds, title in ((("conv", "deconv"), "convolutions"), (("resampling",), "resizes")):
            chosen = [row for row in rows if row.dtype == dtype and row.kind in kinds]
            cells = []
            for ratio in ratios.values():
                found = [x for row in chosen if (x := ratio(row)) is not None]
                slower = sum(x < 1 for x in found)
                cells.append(f"{geometric_mean(found):.2f} ({slower}/{len(found)})" * bool(found))
            if chosen:
                table.add_row(f"{dtype} {title}", *cells)
    console.print(table)
    cliffs = sum(row.cliff for row in rows)
    console.print(f"cliffs, below {CLIFF:.0%} of the roof: {cliffs} of {len(rows)} rows")
    overhead = environment["call_overhead_us"].items()
    console.print("call overhead: " + ", ".join(f"{name} {us:.1f} µs" for name, us in overhead))
    for name, ratio_of in environment["cold"].items():
        text = ", ".join(f"{provider} {ratio:.2f}" for provider, ratio in ratio_of.items())
        console.print(f"cold call over a warm one, {name}: {text}")


def save(rows: list[Row], environment: dict[str, Any], folder: Path) -> None:
    """Write comparison.json, .csv and .png, roofline.png and bandwidth.png."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {**environment, "rows": [as_record(row) for row in rows]}
    (folder / "comparison.json").write_text(json.dumps(document, indent=1) + "\n")
    with (folder / "comparison.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        peers = sorted({peer for row in rows for peer in row.best})
        head = ["problem", "dtype", "layout", "threads", "ours_us", "plan_us", "rate", "unit"]
        head += ["share", "of_roof", "extra_bytes", "allowed_bytes"]
        writer.writerow(head + [f"{peer} {k}" for peer in peers for k in ("same_us", "best_us")])
        for row in rows:
            cells: list[object] = [row.problem, row.dtype, row.layout, row.threads]
            cells += [row.ours.minimum * 1e6, row.plan.minimum * 1e6 if row.plan else ""]
            cells += [row.rate, row.unit, row.share, row.of_roof]
            cells += [row.extra_bytes, row.allowed_bytes]
            for peer in peers:
                for times in (row.same, row.best):
                    cells.append(times[peer] * 1e6 if peer in times else "")
            writer.writerow(cells)
    plots.comparison(rows, folder / "comparison.png")
    plots.roofline(rows, environment["peaks"], folder / "roofline.png")
    plots.bandwidth(rows, environment["peaks"], folder / "bandwidth.png")
