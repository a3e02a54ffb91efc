"""Every script under benchmarks/ runs: with tiny sizes, through its own main, as anyone would start it.

Results are written, but say nothing. Data sets are made up (`cases/tiny_data.py`). Without them a script names what is
missing. (Flower's own: tests/flower.)
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import all as all_of_them
from benchmarks.accuracy.datasets import MISSING, NAMES
from benchmarks.all import APART, CHAPTERS, SCRIPTS
from cases.tiny_data import WRITERS, write_tiny_data

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
FLOWER = "federated/flower_exactness.py"
PRINTED = {"all.py", "federated/digits_settings.py", "speed/randomness.py", "store/bombs.py", "store/hostile.py"}
"""Scripts that print what they find, and write nothing."""
ESTIMATORS = ("paper/exactness.py", "--estimators")
SLOW = {
    "linear/kmeans.py", "store/crash.py", "store/power.py", "store/retries.py",
    "streams/exactness.py", "streams/replays.py",
}  # fmt: skip
"""Those that take some seconds all the same."""
PARTS = [f"paper/{name}.py" for name in CHAPTERS]
"""Chapters of paper/reproduce.py: test_chapters.py and test_table_1.py run them with tiny sizes."""
RUNS = [script[:1] for script in SCRIPTS if "--estimators" not in script]
RUNS += [(name,) for name in APART if name not in (FLOWER, "speed/against.py", *PARTS)]
RUNS += [("speed/against.py", "--other", str(ROOT / "src")), ESTIMATORS]
NEEDS = {
    "accuracy/scores.py": list(NAMES),
    "linear/descent.py": ["a9a", "covtype"],
    "speed/against.py": ["covtype"],
    "speed/estimators.py": ["covtype"],
    "streams/accuracy.py": ["covtype", "nycflights13"],
}
"""Scripts that can do nothing without data sets."""


def is_script(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree.body)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tiny_data(folder)
    return folder


def started(script, folder, data):
    """Run a script in a folder, as from a prompt: nothing but the installed package says where imports are."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, BENCHMARKS / script[0], *script[1:], "--smoke"], cwd=folder, capture_output=True, text=True,
        env={**environment, "EXPUNGE_DATA": str(data), "OPENBLAS_NUM_THREADS": "1"}, timeout=600, check=False,
    )  # fmt: skip


def test_every_script_is_among_those_that_run():
    scripts = {path.relative_to(BENCHMARKS).as_posix() for path in BENCHMARKS.rglob("*.py") if is_script(path)}
    assert scripts == {script[0] for script in SCRIPTS} | set(APART) | {"all.py"}
    assert scripts == {run[0] for run in RUNS} | {FLOWER, "all.py", *PARTS}


def marked(run):
    slow = run[0] in SLOW or run == ESTIMATORS
    return pytest.param(run, id=" ".join(run[:1] + run[1:2]), marks=[pytest.mark.long] * slow)


@pytest.mark.parametrize("script", [marked(run) for run in RUNS])
def test_a_script_runs_and_writes_its_result(script, data, tmp_path):
    done = started(script, tmp_path, data)
    if script[0] == "store/power.py" and shutil.which("strace") is None:
        assert "strace is missing" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl")]
    assert bool(written) == (script[0] not in PRINTED)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * bool(written)  # nothing goes to docs/
    assert all(path.is_relative_to(tmp_path / "out" / "smoke") for path in written)


def test_made_up_data_are_of_all_kinds():
    assert list(WRITERS) == list(NAMES)


@pytest.mark.parametrize("script", NEEDS)
def test_without_its_data_a_script_names_what_is_missing_and_where_it_looks(script, tmp_path):
    given = next(run for run in RUNS if run[0] == script)
    done = started(given, tmp_path, tmp_path / "data")
    assert done.returncode == MISSING
    assert "Traceback" not in done.stderr
    for name in NEEDS[script]:
        assert f"The data set {name} is missing: there is no folder {tmp_path / 'data' / name}." in done.stderr
    assert "EXPUNGE_DATA" in done.stderr


@pytest.mark.parametrize("script", ["linear/kmeans.py", "streams/accuracy.py"])
def test_what_is_there_is_measured_though_other_data_are_missing(script, data, tmp_path):
    if script == "streams/accuracy.py":
        shutil.copytree(data / "covtype", tmp_path / "data" / "covtype")
    done = started((script,), tmp_path, tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert "is missing" in done.stderr
    assert list((tmp_path / "out" / "smoke").glob("*.json"))


def test_one_that_fails_or_lacks_its_data_does_not_stop_the_others(tmp_path, monkeypatch, capfd):
    scripts = (("speed/estimators.py", "--smoke"), ("speed/against.py", "--smoke"), ("speed/randomness.py", "--smoke"))
    monkeypatch.setattr(all_of_them, "SCRIPTS", scripts)
    monkeypatch.setattr(sys, "argv", ["all.py"])
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert all_of_them.main() == 1
    said = capfd.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[-3:]] == [script[0] for script in scripts]
    assert [line.split(" --smoke")[1].split(",")[0].strip() for line in said.splitlines()[-3:]] == [
        "its data are missing", "FAILED", "done",
    ]  # fmt: skip
