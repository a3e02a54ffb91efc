"""Backups, going back to one without bringing anybody back, and compacting."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.base.errors import CorruptStore, NotAStore, StoreError
from expunge.solvers import DualAveraging
from expunge.store import Restored, backup, restore, scan
from expunge.store.file import StoreFile
from expunge.store.keys import make_key
from expunge.store.state import Pending, read_state

rng = np.random.default_rng(6)
X = rng.normal(size=(300, 4)) / 4
Y = np.where(X[:, 0] > 0, "yes", "no")
IDS = np.array([f"person-{number:03d}" for number in range(300)])
SUBJECTS = np.array([f"household-{number // 2:03d}" for number in range(300)])
pytestmark = pytest.mark.filterwarnings("ignore::expunge.SizeWarning")


@pytest.fixture
def path(tmp_path):
    model = expunge.LogisticRegression(rho=0.4, solver=DualAveraging(records_per_subject=2))
    model.fit(X[:200], Y[:200], ids=IDS[:200], subjects=SUBJECTS[:200]).save(tmp_path / "model")
    return tmp_path / "model"


def ids_of(path):
    with expunge.open(path) as model:
        assert model.verify().ok
        assert model.verify_receipts().ok
        return model.ids_.tolist()


def test_a_backup_is_a_store_like_the_original(path, tmp_path):
    with expunge.open(path) as model:
        model.unlearn(IDS[:3])
    backup(path, tmp_path / "copy")
    assert ids_of(tmp_path / "copy") == IDS[3:200].tolist()
    with expunge.open(path) as one, expunge.open(tmp_path / "copy") as other:
        np.testing.assert_array_equal(one.coef_, other.coef_)
        np.testing.assert_array_equal(one.transcript_.answers, other.transcript_.answers)
        assert one.export_receipts() == other.export_receipts()


def test_a_backup_has_no_request_that_waits_nor_its_coins(path, tmp_path):
    with expunge.open(path) as model:
        owner = model._owner
        with owner.lock:
            request = model.prepare_request(expunge.Delete(IDS[:2]))
            owner._record(Pending(request, "0" * 32, owner.state.version, bytes(32), "2020-02-29"))
    backup(path, tmp_path / "copy")
    file = StoreFile(tmp_path / "copy")
    assert not file.get("pending", 0)
    assert read_state(file).version == 1
    file.close()
    assert ids_of(tmp_path / "copy") == IDS[2:200].tolist()


def test_who_was_erased_since_is_erased_again(path, tmp_path):
    with expunge.open(path) as model:
        model.unlearn(IDS[:3])
    backup(path, tmp_path / "copy")
    with expunge.open(path) as model:
        model.unlearn(IDS[10:14])
        model.unlearn(subjects=["household-050", "household-051"])
        model.unlearn([IDS[3], "nobody"], missing="ignore")
        model.insert(X[200:203], Y[200:203], ids=IDS[200:203], subjects=SUBJECTS[200:203])
        model.unlearn(IDS[201:202])
        model.insert(X[10:11], Y[10:11], ids=IDS[10:11], subjects=SUBJECTS[10:11])  # came back
        model.replace(X[250:251], Y[250:251], ids=IDS[20:21])
        version, receipts = model._owner.state.version, model.export_receipts()["receipts"]
    gone = [*range(4), *range(10, 14), *range(100, 104)]
    assert restore(tmp_path / "copy", path) == Restored(erased=9, replaced=1, inserted=4)
    assert ids_of(path) == [IDS[k] for k in range(200) if k not in gone]
    assert scan(path, [*X[gone], *IDS[gone]]) == []
    with expunge.open(path) as model:
        assert model._owner.state.version == version + 1
        assert model.export_receipts()["receipts"][: len(receipts)] == receipts
        assert len(model.export_receipts(ids=[IDS[11]])["receipts"]) == 2


def leave_waiting(path, request):
    """Record a request, and do not finish it."""
    with expunge.open(path) as model:
        owner = model._owner
        with owner.lock:
            prepared = model.prepare_request(request)
            owner._record(Pending(prepared, "0" * 32, owner.state.version, bytes(32), "2020-02-29"))


@pytest.mark.parametrize("since", [False, True])
@pytest.mark.parametrize("kind", ["insert", "replace"])
def test_a_request_that_waits_is_taken_over_or_said_to_be_dropped(path, tmp_path, kind, since):
    backup(path, tmp_path / "copy")
    if since:
        with expunge.open(path) as model:
            model.unlearn(IDS[:1])
    if kind == "insert":
        leave_waiting(path, expunge.Insert((X[200:203], Y[200:203]), IDS[200:203], SUBJECTS[200:203]))
    else:
        leave_waiting(path, expunge.Replace((X[250:251], Y[250:251]), IDS[20:21]))
    found = restore(tmp_path / "copy", path)
    if not since:  # the same state: it is finished with its own coins
        assert found == Restored(0, 0, 0)
        assert len(ids_of(path)) == 200 + 3 * (kind == "insert")
    else:
        assert found == Restored(1, int(kind == "replace"), 3 * (kind == "insert"), kind)
        assert ids_of(path) == IDS[1:200].tolist()


def test_a_store_that_is_lost_is_restored_with_exported_receipts(path, tmp_path):
    backup(path, tmp_path / "copy")
    with expunge.open(path) as model:
        model.unlearn(IDS[:5])
        exported = model.export_receipts()
    path.unlink()
    with pytest.raises(StoreError, match=r"receipts: cannot read from .* who was deleted since"):
        restore(tmp_path / "copy", path)
    assert not path.exists()
    (tmp_path / "receipts.json").write_text(json.dumps(exported))
    (tmp_path / "model-key").unlink()  # the backup has the same
    for receipts in (exported, json.dumps(exported), tmp_path / "receipts.json", str(tmp_path / "receipts.json")):
        path.unlink(missing_ok=True)
        assert restore(tmp_path / "copy", path, receipts=receipts).erased == 5
        assert ids_of(path) == IDS[5:200].tolist()


def test_a_store_that_is_damaged_is_restored_too(path, tmp_path):
    backup(path, tmp_path / "copy")
    with expunge.open(path) as model:
        model.unlearn(IDS[:5])
        exported = model.export_receipts()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match=r"receipts: cannot read from .* who was deleted since"):
        restore(tmp_path / "copy", path)
    assert restore(tmp_path / "copy", path, receipts=exported).erased == 5
    assert ids_of(path) == IDS[5:200].tolist()


def test_receipts_older_than_those_of_the_store_bring_nobody_back(path, tmp_path):
    backup(path, tmp_path / "backup")
    with expunge.open(path) as model:
        model.unlearn(IDS[:1])
        old = model.export_receipts()
        model.unlearn(IDS[1:2])
        newest = model.export_receipts()
    with pytest.raises(StoreError, match=r"has receipts that are not among those given.* Leave receipts out"):
        restore(tmp_path / "backup", path, receipts=old)
    assert ids_of(path) == IDS[2:200].tolist()
    assert restore(tmp_path / "backup", path, receipts=newest).erased == 2
    assert ids_of(path) == IDS[2:200].tolist()


def test_a_key_that_is_another_stores_is_never_overwritten(path, tmp_path):
    other = tmp_path / "copy-key"
    make_key(other, b"\x07" * 32)
    before = other.read_bytes()
    with pytest.raises(StoreError, match="this is the key of another store"):
        backup(path, tmp_path / "copy")
    assert other.read_bytes() == before
    assert not (tmp_path / "copy").exists()


def test_nothing_is_restored_to_a_name_that_a_store_removes(path, tmp_path):
    backup(path, tmp_path / "backup")
    with expunge.open(path) as model:
        receipts = model.export_receipts()
    with pytest.raises(StoreError, match="names in -new are for files that belong to a store"):
        restore(tmp_path / "backup", tmp_path / "model-new", receipts=receipts)


def test_with_nothing_to_erase_the_backup_is_what_there_is(path, tmp_path):
    backup(path, tmp_path / "copy")
    assert restore(tmp_path / "copy", path) == Restored(0, 0, 0)
    assert ids_of(path) == IDS[:200].tolist()


def test_what_cannot_be_restored_leaves_the_store_as_it_is(path, tmp_path):
    backup(path, tmp_path / "copy")
    with expunge.open(path) as model:
        model.unlearn(IDS[:5])
        exported = model.export_receipts()
    before = path.read_bytes()
    expunge.LogisticRegression(solver="dual_averaging").fit(X, Y).save(tmp_path / "other")
    altered = json.loads(json.dumps(exported))
    altered["receipts"][0]["removed"] = 4
    backup(path, tmp_path / "newer")
    for source, receipts, error, words in (
        (tmp_path / "other", None, StoreError, "backup of another model"),
        (tmp_path / "copy", altered, CorruptStore, "receipts"),
        (tmp_path / "copy", {"receipts": []}, CorruptStore, "format"),
        (tmp_path / "nowhere", None, NotAStore, "no such file"),
        (tmp_path / "receipts", None, NotAStore, "no such file"),
    ):
        with pytest.raises(error, match=words):
            restore(source, path, receipts=receipts)
        assert path.read_bytes() == before
        assert not (tmp_path / "model-new").exists()
    shutil.copy(tmp_path / "copy", tmp_path / "old")
    shutil.copy(tmp_path / "copy-key", tmp_path / "old-key")
    with expunge.open(tmp_path / "old") as model:
        older = model.export_receipts()
    with pytest.raises(StoreError, match="do not continue"):
        restore(tmp_path / "newer", path, receipts=older)
    assert path.read_bytes() == before


def test_a_backup_of_another_model_is_said_to_be_just_that(path, tmp_path):
    with expunge.open(path, read_only=True) as model:
        model.save(tmp_path / "other")  # with receipts and a key of its own
    backup(tmp_path / "other", tmp_path / "copy")
    with expunge.open(path) as model:
        exported = model.export_receipts()
    before = path.read_bytes()
    for receipts in (None, exported):
        with pytest.raises(StoreError, match="copy: this is a backup of another model") as caught:
            restore(tmp_path / "copy", path, receipts=receipts)
        assert "key" not in str(caught.value)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.glob("*-new*")) == []


def test_paths_that_cannot_be(path, tmp_path):
    with pytest.raises(StoreError, match="exists already"):
        backup(path, path)
    with pytest.raises(NotAStore, match="no such folder"):
        backup(path, tmp_path / "missing" / "copy")
    with pytest.raises(NotAStore, match="no such file"):
        backup(tmp_path / "nowhere", tmp_path / "copy")
    with pytest.raises(NotAStore, match="no such folder"):
        restore(path, tmp_path / "missing" / "copy")
    assert {one.name for one in tmp_path.iterdir()} <= {"model", "model-key", "model-lock"}


# --- compacting -----------------------------------------------------------------------------------------


def pages(path):
    """Return a store's content, table by table, how many pages it has, and how many of them are free."""
    file = StoreFile(path, read_only=True)
    try:
        tables = ("places", "sums", "answers", "iterates", "ids", "subjects", "blocks", "arrays")
        content = [(table, number, bytes(part)) for table in tables for number, part in file.all(table)]
        return content, file._pragma("page_count"), file._pragma("freelist_count")
    finally:
        file.close()


def test_after_compacting_the_layout_is_that_of_a_new_file(path, tmp_path):
    with expunge.open(path) as model:
        model.insert(X[200:], Y[200:], ids=[name * 3 for name in IDS[200:]], subjects=SUBJECTS[200:])
        model.unlearn(subjects=SUBJECTS[200::2])
        model.unlearn(IDS[:150])
        before = path.stat().st_size
        model.compact()
        assert path.stat().st_size < before
        assert model.verify().ok
        model.save(tmp_path / "new")
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model-key", "model-lock", "new", "new-key"}
    with expunge.open(tmp_path / "new") as model:
        model.compact()
    compacted, new = pages(path), pages(tmp_path / "new")
    assert compacted[0] == new[0]
    assert compacted[2] == new[2] == 0


def test_to_compact_twice_changes_nothing(path):
    with expunge.open(path) as model:
        model.unlearn(IDS[:50])
        model.compact()
        first = pages(path)
        model.compact()
        assert pages(path) == first


def test_readers_go_on_reading_while_a_store_is_compacted(path):
    with expunge.open(path) as model, expunge.open(path, read_only=True) as reader:
        model.unlearn(IDS[:50])
        wanted = reader.coef_.copy()
        model.compact()
        np.testing.assert_array_equal(reader.coef_, wanted)
        model.unlearn(IDS[50:120])
        np.testing.assert_array_equal(reader.coef_, model.coef_)
        assert reader.n_records_ == 80
        assert reader.verify().ok


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are Unicode there")
def test_a_store_whose_name_is_not_utf_8_is_backed_up_compacted_and_restored(tmp_path):
    path, copy = (tmp_path / os.fsdecode(name) for name in (b"m\xff.expunge", b"copy\xff"))
    expunge.LogisticRegression(solver="dual_averaging").fit(np.eye(4), [0, 1, 0, 1]).save(path)
    with expunge.open(path) as model:
        model.compact()
        model.unlearn([1])
    backup(path, copy)
    restore(copy, path)
    with expunge.open(path) as model:
        assert model.verify().ok
        assert model.n_records_ == 3
