"""The memory that a call takes beyond its arguments and its result, as the system sees it.

``python -m benchmarks.memory conv mb1ic64ih56oc64oh56kh3ph1 f32 NXC`` prints bytes. A process of
its own makes the arrays, resets the high-water mark of its resident memory, calls the operator for
the first time on that problem, and tells what the mark has risen by. What it may be is the weights
as the call packs them and 2 MiB. Code does not count, of which a kernel's first call brings in some
hundred KiB that stay and that all processes share. The mark is that of ``/proc/self/status``:
getrusage's cannot be reset, and a child's starts at its parent's. The C library is told to return
what is freed at once, so that no call hides in memory left from before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.cases import Case, parse
from benchmarks.ours import Ours
from benchmarks.providers import Arrays

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "32768", "MALLOC_TRIM_THRESHOLD_": "0"}
_SCRATCH = 2 << 20


def extra(
    case: Case, dtype: str, layout: str, data: str = "normal"
) -> tuple[int, int] | tuple[None, None]:
    """Return the bytes that a call of one thread takes and may take, where the system tells."""
    if not _RESET.exists():
        return None, None
    command = [sys.executable, "-m", __name__, case.kind, str(case), dtype, layout, data]
    environment = {**os.environ, **_MALLOC}
    run = subprocess.run(command, env=environment, capture_output=True, check=True)
    taken, allowed = map(int, run.stdout.split())
    return taken, allowed


def _status(key: str) -> int:
    """Return a line of the process's status, in bytes."""
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(lines[key].split()[0]) << 10


def _measure(
    kind: str, problem: str, dtype: str, layout: str, data: str = "normal"
) -> tuple[int, int]:
    case = parse(kind, problem)
    axis = "dhw"[3 - case.rank]
    tiny = parse(kind, f"mb1ic8i{axis}8" + (f"oc8k{axis}1" if case.oc else f"o{axis}8"))
    arrays = Arrays.random(case, dtype, data)
    first = Ours().prepare(tiny, Arrays.random(tiny, dtype, data), layout, 1)
    work = Ours().prepare(case, arrays, layout, 1)
    assert first is not None
    assert work is not None
    first()  # what the first call of a process loads
    _RESET.write_text("5")
    before, code = _status("VmRSS"), _status("RssFile")
    work()
    taken = max(0, _status("VmHWM") - before - (_status("RssFile") - code))
    packed = 0
    if case.oc:
        described = Ours().plan(case, arrays, layout, 1).describe()
        packed = int(described.split(" bytes of packed weights")[0].split()[-1])
    return taken, packed + _SCRATCH


if __name__ == "__main__":
    print(*_measure(*sys.argv[1:]))
