"""The programs in the README and in the documentation run, and do what they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, program in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
    )
]


def test_there_are_programs():
    assert len(PROGRAMS) >= 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program):
    exec(compile(program, "<document>", "exec"), {})


def test_readme_has_the_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("run", "test"):
        assert re.search(rf"<!-- command: {name} -->\n```sh\n[^\n]+\n```\n", readme)
