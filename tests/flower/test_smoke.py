"""The benchmark that needs Flower runs, with tiny sizes; tests/benchmarks/test_smoke.py has all others."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "federated" / "flower_exactness.py"


def test_the_script_runs_and_writes_its_result(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--smoke"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "smoke" / "flower_exactness.json").exists()
