"""Files by an attacker: whatever they say, they open or are refused by name, and none takes all memory."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import expunge
from cases import hostile
from cases.patching import patched_everywhere
from cases.stored_federations import new
from expunge import federated
from expunge.base.errors import CorruptStore, ExpungeError
from expunge.store import hints
from expunge.store.codec import Registry
from expunge.store.file import StoreFile
from expunge.store.state import DESCRIPTION, KNOWN, STATE, Description, Pending, read_state
from expunge.store.surroundings import beside

pytestmark = pytest.mark.filterwarnings("ignore::expunge.SizeWarning", "ignore::RuntimeWarning")
BOMBS = Path(__file__).parents[2] / "benchmarks" / "store" / "bombs.py"


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return {base.name: base for base in hostile.write_models(tmp_path_factory.mktemp("bases"))}


@pytest.mark.parametrize("name", ["sums", "descent", "projected", "arrival", "clusters", "ridge"])
def test_whatever_a_store_says_of_itself_it_opens_or_is_refused(bases, name):
    found = hostile.fuzz(bases[name], 60, random.Random(name))
    assert not [result for result in found if "PLAIN" in result]
    assert found["CorruptStore"] > found["opened"] > 0


def test_whatever_a_federation_says_of_itself_it_opens_or_is_refused(tmp_path):
    base, path, draw = tmp_path / "base", tmp_path / "copy", random.Random(7)
    new(base).close()
    refused = 0
    for _ in range(50):
        for ending in ("", "-key", "-seal"):
            shutil.copy(beside(base, ending), beside(path, ending))
        for ending in ("-wal", "-shm", "-lock"):
            beside(path, ending).unlink(missing_ok=True)
        hostile.alter(path, lambda said: hostile.altered(said, draw), draw.choice([DESCRIPTION, STATE]))
        try:
            federated.open(path).close()
        except ExpungeError:
            refused += 1
    assert refused > 25


def test_what_is_not_altered_opens(bases):
    assert [hostile.tried(hostile.copied(base)) for base in bases.values()] == ["opened"] * 7


def test_receipts_that_were_made_up_bring_nobody_back(tmp_path):
    assert not [one for one in hostile.forgeries(tmp_path) if "PLAIN" in one[1]]


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells and limits a process's memory so")
def test_no_bomb_takes_all_memory():
    run = subprocess.run(
        [sys.executable, BOMBS], capture_output=True, text=True, timeout=400,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(expunge.__file__).parents[1])},
    )  # fmt: skip
    found = json.loads(run.stdout)
    assert not {name: result for name, result in found.items() if "PLAIN" in result}
    assert all("CorruptStore" in result for name, result in found.items() if "10^" in name or "limit" in name)
    assert all("BadRecords" in result for name, result in found.items() if "line" in name and "60 lines" not in name)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("features", "3", "Plan: features: expected int, got str"),
        ("features", True, "Plan: features: expected int"),
        ("features", 0, "Plan: features is 0"),
        ("steps", 2**63, "Plan: steps: expected int, got int or a number out of range"),
        ("rho", float("nan"), "Plan: rho: expected float"),
        ("solver", "newton", "Plan: solver: expected Literal"),
        ("loss", 5, "Plan: loss: expected Loss"),
        ("more", 5, "Plan: it has no field 'more'"),
        ("loss", {"is": "Huber", "with": {"width": -1.0}}, "Huber: width=-1.0: give a finite number"),
    ],
)
def test_the_field_that_is_wrong_is_named(bases, where, value, words):
    path = hostile.copied(bases["sums"])

    def change(said):
        said["with"]["plan"]["with"][where] = value
        return said

    hostile.alter(path, change)
    for read_only in (False, True):
        with pytest.raises(CorruptStore, match=words):
            expunge.open(path, read_only=read_only)


def test_a_description_cannot_be_longer_than_can_be_read():
    with patched_everywhere("expunge.store.codec.LONGEST", 100):
        with pytest.raises(expunge.BadPlan, match="description has 1,002 letters, but a store takes at most 100"):
            Registry([]).write("x" * 1000)
        with pytest.raises(CorruptStore, match="more than 100 letters"):
            Registry([]).read("[" + "1," * 100 + "1]")


def test_hints_of_all_kinds():
    known = {name: hints._hints(kind) for name, kind in KNOWN.classes.items()}
    assert known["Plan"]["features"] is int
    assert hints.fits({"a": (1, None)}, dict[str, tuple[int, str | None]])
    assert not hints.fits({1: 2}, dict[str, int])
    assert not hints.fits((1, 2, 3), tuple[int, int])
    assert not hints.fits([], tuple[int, ...])
    assert Description in KNOWN.classes.values()


def test_rows_that_share_pages_do_not_add_up_to_more_than_the_file(bases, monkeypatch):
    file = StoreFile(hostile.copied(bases["sums"]))
    assert sum(len(content) for _, content in file.all("blocks")) < file.size
    monkeypatch.setattr(StoreFile, "size", 1000)
    with pytest.raises(CorruptStore, match="blocks: more bytes than the file has"):
        list(file.all("blocks"))
    file.close()


def test_a_sparse_request_that_reaches_beyond_its_arrays_is_refused():
    from scipy import sparse

    rows = sparse.csr_array(([1.0, 2.0], [0, 1], [0, 1, 2]), shape=(2, 2))
    rows.indices[1] = 10**6
    content = Pending(expunge.Insert((rows,)), "0" * 32, 0, bytes(32), "2020-02-29").to_bytes()
    with pytest.raises(CorruptStore, match="pending, row 0"):
        Pending.from_bytes(content)


def test_a_state_that_says_nothing_sound_is_refused(bases):
    path = hostile.copied(bases["sums"])
    for name, value in (("head", "x"), ("store", ""), ("version", -1), ("receipts", -1), ("key", "0" * 15)):

        def change(said, name=name, value=value):
            said["with"][name] = value
            return said

        hostile.alter(path, change, STATE)
        file = StoreFile(path)
        with pytest.raises(CorruptStore, match="about, row 1 is not the state of a store"):
            read_state(file)
        file.close()
        path = hostile.copied(bases["sums"])
