"""Files and functions stay small, and a deletion goes through few of them."""

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[1] / "tools"
FURTHEST = {"unlearn in memory": (17, 60), "unlearn stored": (26, 142)}
"""Through how many files a kept deletion may go, and how often from one to another. Do not raise it without need."""


def run(tool):
    """Run a tool in a process of its own: what is traced must not depend on other tests."""
    return subprocess.run([sys.executable, str(TOOLS / tool)], capture_output=True, text=True, check=False)


def test_nothing_has_grown_beyond_its_limit():
    found = run("sizes.py")
    assert found.returncode == 0, found.stdout


def test_a_kept_deletion_goes_through_few_files_in_few_hops():
    """The median of several is taken, which does not vary: see `tools/walk.py`."""
    lines = {line[:18].strip(): line[18:].replace(",", "").split() for line in run("walk.py").stdout.splitlines()}
    for name, (files, changes) in FURTHEST.items():
        assert int(lines[name][2]) <= files, name
        assert int(lines[name][3]) <= changes, name
