"""Kill -9 while a store is written to: at every failpoint, and at some random instants.

What must be true afterwards is in tests/cases/killing.py; benchmarks/store/crash.py has more instants, and every
failpoint of every operation with every kind of model.
"""

import ast
import os
from pathlib import Path

import numpy as np
import pytest

import expunge
from cases.killing import LATER, crash, landing, problems, rehearse, run
from cases.patching import patched_method
from cases.store_stories import FIRST, MODELS, OPERATIONS, people, states, story, write_store
from expunge.store.failpoints import FEDERATION, NAMES
from expunge.store.owner import StoredOwner
from expunge.store.session import Session

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed by a signal"),
    pytest.mark.long,
]
SOURCES = Path(expunge.__file__).parent
KINDS = tuple(MODELS)


@pytest.mark.parametrize(("number", "name"), list(enumerate(NAMES)), ids=lambda given: str(given))
def test_after_a_kill_at_a_failpoint_nothing_is_lost_and_nothing_is_done_twice(number, name, tmp_path):
    work = name.partition(":")[0]
    operation = ("unlearn", "bulk unlearn", "insert", "replace")[number % 4] if work == "request" else work
    kind = KINDS[number % len(KINDS)]
    found = crash(tmp_path / "store" / "model", kind, story(kind, operation), (name, 2))
    assert found.at == name
    assert found.operation == operation
    assert found.problems == ()


def test_every_point_that_the_code_reaches_is_one_at_which_processes_are_killed():
    assert sorted(points(SOURCES)) == sorted(NAMES + FEDERATION)


def points(folder):
    """The names of all points that sources reach; raise if one could be hidden from whoever reads them."""
    found = []
    for path in folder.rglob("*.py"):
        tree, called = ast.parse(path.read_text()), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoints.pass_point":
                called.add(node.func)
                [name] = node.args
                found.append(ast.literal_eval(name))
        for node in ast.walk(tree):
            if path.name != "failpoints.py":
                imported = isinstance(node, ast.ImportFrom) and node.module == "expunge.store.failpoints"
                renamed = isinstance(node, ast.alias) and node.name == "failpoints" and node.asname
                other = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "failpoints"
                hidden = imported or renamed or (other and node not in called)
                assert not hidden, (path, node.lineno)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "failpoints.pass_point(POINT)", "passes = failpoints.pass_point", "failpoints.hook('save: written')",
        "from expunge.store.failpoints import pass_point", "from expunge.store import failpoints as points",
        "failpoints.pass_point(name=POINT)",
    ],
)  # fmt: skip
def test_a_point_that_is_hidden_is_found_out(line, tmp_path):
    (tmp_path / "module.py").write_text(line)
    with pytest.raises((AssertionError, ValueError)):
        points(tmp_path)


@pytest.mark.parametrize(("number", "operation"), list(enumerate(OPERATIONS)), ids=lambda given: str(given))
def test_after_a_kill_at_some_instant_nothing_is_lost_and_nothing_is_done_twice(number, operation, tmp_path):
    kind = "replaying" if operation == "replay" else KINDS[number % len(KINDS)]
    rng = np.random.default_rng(number)
    told = story(kind, operation)
    seconds, _ = rehearse(tmp_path / "rehearsal", kind, told, times=1)
    for turn in range(2):
        delay = seconds * (turn + rng.uniform()) / 2
        found = crash(tmp_path / str(turn) / "model", kind, told, delay=delay)
        assert found.problems == (), found


@pytest.mark.parametrize("kind", ["scattered", "arrival", "k-means"])
def test_a_request_that_is_killed_again_and_again_ends_as_the_first_attempt_would_have(kind, tmp_path):
    told = story(kind, "bulk unlearn")
    found = crash(tmp_path / "store" / "model", kind, told, ("request: recorded", 2), again=LATER)
    assert found.where == "midway"
    assert found.problems == ()


# --- controls: a store that does not do its part is found out ------------------------------------------


def killed(tmp_path, deadly, kind="replaying"):
    path, told = tmp_path / "store" / "model", story(kind, "unlearn")
    path.parent.mkdir()
    write_store(kind, path)
    done = len(run(path, kind, told, deadly).acknowledged)
    return path, kind, told, done, landing(path, told[done], states(kind, told)[done])


@pytest.mark.parametrize("point", ["request: committed", "request: recorded", "request: recording"])
def test_without_a_mistake_nothing_is_found(point, tmp_path):
    assert problems(*killed(tmp_path, (point, 2))) == []


def test_a_log_that_is_not_emptied_is_found_out(tmp_path):
    with patched_method(Session, "empty_log", lambda session: None):
        found = problems(*killed(tmp_path, ("request: committed", 2)))
    assert any(problem.startswith("model: the features of") for problem in found), found


def test_a_request_that_is_recorded_and_forgotten_is_found_out(tmp_path):
    with patched_method(StoredOwner, "_waiting", lambda owner: None):
        found = problems(*killed(tmp_path, ("request: recorded", 2)))
    assert found[0] == "unlearn: midway when it was killed, and not done afterwards"


def test_a_request_that_nobody_made_is_found_out(tmp_path):
    path, kind, told, done, where = killed(tmp_path, ("request: recording", 2))
    with expunge.open(path) as model:
        model.unlearn(people(kind).ids[FIRST - 1])
    found = problems(path, kind, told, done, where)
    assert any(problem.startswith("receipts:") for problem in found)
    assert any(problem.startswith("records:") for problem in found)
