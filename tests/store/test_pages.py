"""What the pages of a closed file tell: until it is compacted, which places were rewritten; afterwards nothing."""

import sqlite3

import numpy as np
import pytest

import expunge
from expunge.solvers import DualAveraging

RECORDS, STEPS = 4000, 16


def layout(path):
    """Return what lies on every page: the table, and the path to it in the table's tree."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT pageno, name, path FROM dbstat ORDER BY pageno").fetchall()
    except sqlite3.OperationalError:
        pytest.skip("this SQLite cannot tell what lies on its pages")
    finally:
        connection.close()


def free_pages(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA freelist_count").fetchone()[0]
    finally:
        connection.close()


def torn(path):
    """Return the ranks of the parts of places that do not lie side by side, or have a free page after them."""
    pages, used = {}, set()
    for number, name, where in layout(path):
        used.add(number)
        if name == "blocks" and "+" in where:
            pages.setdefault(where.split("+")[0], []).append((int(where.split("+")[1], 16), number))
    runs = [[number for _, number in sorted(pages[tree])] for tree in sorted(pages)]
    last = max(used)
    return [
        rank
        for rank, run in enumerate(runs)
        if run != list(range(run[0], run[-1] + 1)) or (run[-1] < last and run[-1] + 1 not in used)
    ]


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS, 20)) / 5
    model = expunge.LogisticRegression(rho=0.03, solver=DualAveraging(steps=STEPS)).fit(x, x[:, 0] > 0)
    model.save(tmp_path / "m.expunge")
    return tmp_path / "m.expunge"


def delete_from(path, place, number):
    with expunge.open(path) as model:
        model.unlearn(model._owner.records.ids_at(place)[:number].tolist())


def test_until_it_is_compacted_the_pages_of_a_file_tell_which_place_lost_records(path):
    """This is stated in docs/guarantee.md under "Containers"."""
    assert torn(path) == []
    delete_from(path, 5, 40)
    assert free_pages(path) > 0
    with expunge.open(path) as model:
        lengths, rows = model._owner.records.places.lengths, model._owner.records.places.layout.rows
    parts = -(-lengths // rows)
    beside = set(range(parts[:5].sum() - 1, parts[:6].sum()))  # the gap is on one side of it or the other
    assert torn(path)
    assert set(torn(path)) <= beside


def test_after_compacting_the_layout_is_that_of_a_model_that_was_just_saved(path, tmp_path):
    for place in (5, 2, 9):
        delete_from(path, place, 40)
    other = tmp_path / "other.expunge"
    with expunge.open(path) as model:
        model.save(other)
        model.compact()
    with expunge.open(other) as model:
        model.compact()
    assert free_pages(path) == 0
    assert torn(path) == []
    receipts = {"receipts"}  # which the other does not have
    mine, theirs = ([page[1:] for page in layout(one) if page[1] not in receipts] for one in (path, other))
    assert mine == theirs


def test_whether_a_request_replayed_does_not_show_in_the_pages(tmp_path):
    """Answers, iterates, sums and the model stay where they lie, however it went."""
    rng = np.random.default_rng(1)
    x, seen = rng.normal(size=(400, 3)) / 3, set()
    for seed, rho in enumerate([0.01, 1.0] * 5):  # hardly ever, and always
        path = tmp_path / f"{seed}.expunge"
        expunge.LogisticRegression(rho=rho, solver=DualAveraging(steps=4)).fit(x, x[:, 0] > 0).save(path)
        before = layout(path)
        with expunge.open(path) as model:
            seen.add(model.unlearn([seed]).kept)
        after = layout(path)
        for table in ("answers", "iterates", "sums", "arrays", "places"):
            assert [page for page in before if page[1] == table] == [page for page in after if page[1] == table]
    assert seen == {True, False}
