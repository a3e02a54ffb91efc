"""A deletion that was recorded and interrupted is not lost when a backup is restored."""

import os

import pytest

import expunge
from cases.killing import run
from cases.store_stories import FIRST, people, story, write_store
from expunge.store import backup, restore, scan

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed by a signal")


@pytest.mark.parametrize(("kind", "by"), [("scattered", "ids"), ("ridge", "subjects")])
def test_who_waits_to_be_erased_is_erased_from_a_backup_too(kind, by, tmp_path):
    path, copy, told, those = tmp_path / "model", tmp_path / "copy", story(kind, "unlearn"), people(kind)
    write_store(kind, path)
    backup(path, copy)
    death = run(path, kind, told, ("request: recorded", 2))
    assert len(death.acknowledged) == 1
    assert told[1].by == by
    gone = [told[0].who[0], told[1].who[0]] + [told[1].who[0] + 1] * (by == "subjects")
    assert restore(copy, path).erased == len(gone)
    with expunge.open(path) as model:
        assert model.n_records_ == FIRST - len(gone)
        assert model.verify().ok
        assert model.verify_receipts().ok
        assert scan(path, [those.columns[0][who] for who in gone]) == []
