"""Hypothesis profiles, slow tests, and a word on what was left out."""

import importlib.util
import os

import pytest
from hypothesis import settings

from tests import forced

settings.register_profile("default", deadline=None, max_examples=400)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("quick", settings.get_profile("default"), max_examples=60)
settings.load_profile("ci" if os.environ.get("CI") else "default")

PEERS = "test_peers.py"


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        skip = pytest.mark.skip(reason="slow: run with --slow")
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(skip)


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


@pytest.fixture
def only(kernel, monkeypatch):
    """Let one kernel compute what it can."""
    yield from forced.kernel_that_can(monkeypatch, kernel)
