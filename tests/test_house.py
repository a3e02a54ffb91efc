"""Files and functions stay small."""

import subprocess
import sys
from pathlib import Path

SIZES = Path(__file__).parents[1] / "tools" / "sizes.py"


def test_nothing_has_grown_beyond_its_limit():
    found = subprocess.run([sys.executable, str(SIZES)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
