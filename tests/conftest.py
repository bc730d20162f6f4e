"""Hypothesis profiles, and a word on what was left out."""

import importlib.util
import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

PEERS = "test_peers.py"


def pytest_terminal_summary(terminalreporter):
    """Say how many cross-checks did not run for want of PyTorch."""
    if importlib.util.find_spec("torch") is None:
        skipped = terminalreporter.stats.get("skipped", [])
        left_out = sum(PEERS in report.nodeid for report in skipped)
        if left_out:
            terminalreporter.write_line(
                f"{left_out} cross-checks against PyTorch were left out: "
                "install the extra [peers] to run them"
            )
