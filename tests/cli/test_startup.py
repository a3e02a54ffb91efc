"""What a command imports decides how long it takes to answer; seconds depend on the machine, so modules are counted."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import expunge
from cli.tables import people
from expunge.cli.phrases import at_the_prompt
from expunge.solvers import DualAveraging

HEAVY = {"joblib", "matplotlib", "narwhals", "pandas", "polars", "pyarrow", "rich", "sklearn", "threadpoolctl"}
PARTS = {"scipy.fft", "scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats"}
"""Parts of SciPy that take long."""
RUN = """
import sys
from expunge.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
print("\\n@" + ",".join(sys.modules), file=sys.stderr)
sys.exit(code)
"""
ESTIMATOR = {"joblib", "narwhals", "pandas", "pyarrow", "rich", "sklearn", "threadpoolctl", *PARTS}
"""What scikit-learn and tables load; rich is used by scikit-learn itself."""
COMMANDS = {
    "--help": (set(), 300),
    "--version": (set(), 300),
    "info m.expunge --json": (set(), 600),
    "info m.expunge": ({"rich"}, 650),
    "receipts m.expunge --json": (set(), 600),
    "receipts m.expunge --id 7 --json": (set(), 600),
    "verify m.expunge --json": (PARTS, 1200),
    "compact m.expunge --json": (set(), 600),
    "backup m.expunge copy --json": (set(), 600),
    "scan m.expunge --id 999999 --json": (set(), 600),
    "unlearn m.expunge --id 7 --dry-run --json": (set(), 600),
    "unlearn m.expunge --id 7 --json": (PARTS - {"scipy.stats", "scipy.optimize"}, 800),
    "unlearn m.expunge --id 7": ({"rich", *PARTS} - {"scipy.stats", "scipy.optimize"}, 850),
    "insert m.expunge others.csv --json": (ESTIMATOR, 2500),
    "predict m.expunge others.csv -o new.csv --json": (ESTIMATOR, 2500),
}
"""What each may load of what takes long, and how many modules at most."""


def loaded(code, *arguments, cwd):
    """Return the modules that a fresh process has in the end."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return set(done.stderr.rpartition("@")[2].strip().split(","))


def slow(modules):
    return ({name.partition(".")[0] for name in modules} & HEAVY) | (modules & PARTS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_what_it_needs(command, model, tmp_path):
    model()
    allowed, most = COMMANDS[command]
    modules = loaded(RUN, *command.split(), cwd=tmp_path)
    assert slow(modules) <= allowed
    assert len(modules) <= most


def test_the_package_itself_loads_almost_nothing(tmp_path):
    modules = loaded("import sys, expunge; print('@' + ','.join(sys.modules), file=sys.stderr)", cwd=tmp_path)
    assert not slow(modules)
    assert "numpy" not in modules
    assert len(modules) <= 100


def test_help_needs_no_numpy(tmp_path):
    assert "numpy" not in loaded(RUN, "--help", cwd=tmp_path)


@pytest.mark.parametrize("kind", ["svm", "huber", "ridge", "kmeans"])
def test_no_model_needs_an_estimator_to_forget(kind, model, tmp_path):
    model(kind)
    modules = loaded(RUN, "unlearn", "m.expunge", "--id", "7", "--json", cwd=tmp_path)
    assert slow(modules) <= PARTS - {"scipy.stats", "scipy.optimize"}


@pytest.mark.parametrize("kind", ["logistic", "ridge", "kmeans"])
def test_what_an_estimator_would_warn_of_is_noted(kind, model, done, tmp_path):
    """`expunge unlearn` makes no estimator; what one warns of after a request is said all the same."""
    path, copy, ids = model(kind), tmp_path / "copy.expunge", [row[0] for row in people()]
    expunge.store.backup(path, copy)
    noted = []
    for some in (ids[:-2], ids[-2:]):
        with expunge.open(copy) as other, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            other.unlearn(some)
        (tmp_path / "ids.txt").write_text("\n".join(map(str, some)))
        said = done("unlearn", "m.expunge", "--ids-file", "ids.txt", "--json").get("notes", [])
        assert said == [at_the_prompt(str(one.message)) for one in warned]
        noted += said
    assert any("every record has been deleted" in note for note in noted)


AFTER_THE_COIN = """
import sys
from expunge.models.file import open_file
from expunge.store import failpoints

before = set()


def note(point):
    if point == "request: recorded":
        before.update(sys.modules)


failpoints.hook = note
replayed = False
with open_file("tree.expunge") as model:
    for number in range(39):
        replayed |= not model.unlearn([number]).kept
        assert not {name for name in set(sys.modules) - before if name.startswith("scipy")}
sys.exit(not replayed)
"""


def test_no_library_is_imported_once_a_request_is_recorded(tmp_path):
    """Where a place becomes empty, only a replay computes scores."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) / 4
    model = expunge.LogisticRegression(rho=0.9, solver=DualAveraging(mechanism="tree", steps=400))
    model.fit(X, np.arange(40) % 2).save(tmp_path / "tree.expunge")
    subprocess.run([sys.executable, "-W", "ignore", "-c", AFTER_THE_COIN], cwd=tmp_path, check=True)
