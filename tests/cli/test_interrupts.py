"""Ctrl-C at any moment: what was acknowledged is done, what had begun is finished, and nothing is left half."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import expunge
from cli.conftest import contents, flat
from cli.tables import people, schema, write_csv
from expunge.cli import main
from expunge.store import check_receipts
from expunge.store.failpoints import NAMES

INTERRUPTED = 130
POINTS = [name for name in NAMES if name.startswith("request: ")]
BEGUN = POINTS[1:]
REQUESTS = {
    "unlearn": (("unlearn", "m.expunge", "--id", "7", "--id", "8"), set(range(1, 61)) - {7, 8}),
    "insert": (("insert", "m.expunge", "others.csv"), {*range(1, 61), *range(101, 121)}),
    "replace": (("replace", "m.expunge", "better.csv"), set(range(1, 61))),
}
FIT = ("fit", "people.csv", "--schema", "schema.toml", "--rho", "0.5", "-o", "m.expunge")


@pytest.fixture
def ready(model, tmp_path):
    """A model, and tables for all requests."""
    path = model()
    write_csv(tmp_path / "better.csv", [(*row[:2], 50, *row[3:]) for row in people(2)])
    return path


def look(path):
    """The ids and the number of receipts of a sound model; what waits is finished by it."""
    with expunge.open(path) as found:
        assert found.verify().ok
        assert found.verify_receipts().ok
        return set(found.ids_.tolist()), len(found.export_receipts()["receipts"])


# --- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_had_not_begun_is_not_made(kind, ready, run, tmp_path):
    before = contents(tmp_path)
    result = run(*REQUESTS[kind][0], hook={"points": [POINTS[0]]})
    assert (result.code, result.out) == (INTERRUPTED, "")
    assert "Error: interrupted; acknowledged requests are done, nothing else was begun." in flat(result.err)
    assert look(ready) == (set(range(1, 61)), 0)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("point", BEGUN)
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_had_begun_is_finished_and_its_receipt_is_printed(kind, point, ready, run):
    asked, ids = REQUESTS[kind]
    result = run(*asked, hook={"points": [point]})
    assert result.code == INTERRUPTED
    assert "Ctrl-C came after the request had started, so it is being completed" in flat(result.err)
    assert result.out.count(f" {kind.replace('unlearn', 'delete')} ") == 1
    assert f"{len(ids)} records are in the model now." in result.out
    assert look(ready) == (ids, 1)


def test_a_request_that_was_finished_is_told_in_json_too(ready, run):
    result = run(*REQUESTS["unlearn"][0], "--json", hook={"points": ["request: decided"]})
    assert (result.code, result.err) == (INTERRUPTED, "")
    assert [one["removed"] for one in result.data["receipts"]] == [2]
    assert "being completed" in result.data["notes"][0]


@pytest.mark.parametrize("again", ["request: decided", "request: written"])
def test_who_presses_it_again_leaves_the_rest_to_the_next(again, ready, run, done):
    asked, ids = REQUESTS["unlearn"]
    result = run(*asked, hook={"points": ["request: recorded", again]})
    assert (result.code, result.out) == (INTERRUPTED, "")
    assert "interrupted again; the next command that may write, such" in flat(result.err)
    assert done("info", "m.expunge", "--json")["records"] == 60  # who only reads finishes nothing
    assert done("verify", "m.expunge", "--json")["records"] == 58
    assert look(ready) == (ids, 1)


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in ("unlearn", "insert") for seed in range(6)])
def test_a_request_that_is_interrupted_at_some_line_is_made_or_not(kind, seed, ready, run):
    asked, ids = REQUESTS[kind]
    line = int(np.random.default_rng(seed).integers(100, 8000))
    result = run(*asked, hook={"line": line})
    assert result.code in (0, INTERRUPTED), result
    there, receipts = look(ready)
    assert (there, receipts) in ((ids, 1), (set(range(1, 61)), 0))
    if "records are in the model now." in result.out:
        assert there == ids
    if "nothing else was begun" in flat(result.err):
        assert receipts == 0


@pytest.mark.parametrize("turn", range(4))
def test_a_request_that_is_interrupted_at_some_instant_is_made_or_not(turn, ready, start):
    asked, ids = REQUESTS["unlearn"]
    command = start(*asked)
    time.sleep(0.01 * turn + 0.005)
    command.interrupt()
    result = command.wait()
    assert result.code in (0, INTERRUPTED), result
    assert "Traceback" not in result.err
    there, receipts = look(ready)
    assert (there, receipts) in ((ids, 1), (set(range(1, 61)), 0))


def test_who_presses_it_when_the_command_has_ended_presses_nothing(start):
    command = start("--version")
    while Path(f"/proc/{command.pid}").exists():
        time.sleep(0.005)
    command.interrupt()
    assert command.wait().code == 0


def test_outside_of_a_command_it_ends_without_a_traceback(monkeypatch):
    def press(*given, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr("expunge.cli.app.app", press)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is before


def test_before_a_command_has_begun_nothing_is_printed_wherever_it_comes(run):
    """An exception in a destructor could only be printed."""
    result = run("--version", hook={"in a destructor": True})
    assert (result.code, result.out, result.err) == (INTERRUPTED, "", "")


@pytest.mark.parametrize("name", ["compact: copied", "compact: replacing", "compact: replaced", "backup: copied"])
def test_copies_are_whole_or_not_there(name, ready, run, tmp_path):
    asked = ("compact", "m.expunge") if name.startswith("compact") else ("backup", "m.expunge", "copy")
    before = set(contents(tmp_path))
    result = run(*asked, hook={"points": [name]})
    assert result.code == INTERRUPTED
    assert set(contents(tmp_path)) == before
    assert look(ready) == (set(range(1, 61)), 0)


def test_a_restoration_that_is_interrupted_leaves_the_model_or_what_was_restored(ready, run, done):
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", "7")
    for point in ("restore: prepared", "restore: renamed"):
        result = run("restore", "monday", "m.expunge", hook={"points": [point]})
        assert result.code == INTERRUPTED
        assert 7 not in look(ready)[0]


# --- a fit, and predictions ---------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    write_csv(tmp_path / "people.csv", people())
    (tmp_path / "schema.toml").write_text(schema())
    return tmp_path


@pytest.mark.parametrize("line", [50, 900, 3000, 6000, 9000, 9500, 10000, 10500, 11000, 12000, 15000])
def test_a_fit_that_is_interrupted_leaves_nothing_or_a_whole_model(line, tables, run):
    before = contents(tables)
    result = run(*FIT, hook={"line": line})
    assert result.code in (0, INTERRUPTED), result
    if not (tables / "m.expunge").exists():
        assert result.code == INTERRUPTED
        assert "Error: interrupted" in result.err
        assert contents(tables) == before
        assert list(tables.glob("*-lock")) == list(tables.glob("*-shm")) == []
    else:
        assert look(tables / "m.expunge") == (set(range(1, 61)), 0)
        assert "m.expunge is complete: only the summary is missing" in flat(result.err)


def test_a_fit_that_is_interrupted_when_the_file_is_written(tables, run):
    before = contents(tables)
    result = run(*FIT, hook={"points": ["save: written"]})
    assert (result.code, result.out) == (INTERRUPTED, "")
    assert contents(tables) == before
    assert run(*FIT).code == 0


@pytest.mark.parametrize("seed", range(5))
def test_predictions_that_are_interrupted_leave_no_half_file(seed, ready, run, tmp_path):
    before = contents(tmp_path)
    line = int(np.random.default_rng(seed).integers(100, 3500))
    result = run("predict", "m.expunge", "others.csv", "-o", "p.csv", hook={"line": line})
    assert result.code in (0, INTERRUPTED), result
    if (tmp_path / "p.csv").exists():
        assert len((tmp_path / "p.csv").read_text().splitlines()) == 21
        (tmp_path / "p.csv").unlink()
    assert contents(tmp_path) == before


def test_an_export_that_is_interrupted_is_whole_or_not_there(ready, done, run, tmp_path):
    done(*REQUESTS["unlearn"][0])
    for line in (1000, 1500, 1700, 1800, 2000):
        result = run("receipts", "m.expunge", "-o", "r.json", hook={"line": line})
        assert result.code in (0, INTERRUPTED)
        if (tmp_path / "r.json").exists():
            assert check_receipts(tmp_path / "r.json").ok
            (tmp_path / "r.json").unlink()
