"""The scan finds what is there, in every form and across the ends of pages, and nothing else."""

import uuid
from contextlib import nullcontext

import numpy as np
import pytest

import expunge
import expunge.store
from cases.patching import patched_method
from expunge.base.errors import BadRecords, NotAStore
from expunge.solvers import DualAveraging
from expunge.store import scan, scanning
from expunge.store.file import StoreFile

PAGE = 512
rng = np.random.default_rng(8)
ROW = rng.normal(size=20)


def pages(number=6):
    """Return a file of pages, each pointing to the one after the next."""
    content = bytearray(PAGE * number)
    for page in range(number):
        content[page * PAGE : page * PAGE + 4] = ((page + 2) % number + 1).to_bytes(4, "big")
    content[:18] = b"SQLite format 3\0" + PAGE.to_bytes(2, "big")
    return content


def found(tmp_path, content, patterns, name="store"):
    if name != "store":
        (tmp_path / "store").write_bytes(pages())
    (tmp_path / name).write_bytes(content)
    return [(one.file.name, one.offset, one.pattern) for one in scan(tmp_path / "store", patterns)]


@pytest.mark.parametrize(
    ("pattern", "stored"),
    [
        ("Zoë!", "Zoë!".encode()),
        ("Zoë!", "Zoë!".encode("latin-1")),
        ("Zoë!", "Zoë!".encode("utf-32-le")),
        ("naïve-\ud800", "naïve-\ud800".encode("utf-8", "surrogatepass")),
        (b"\x01\x02\x03\x04", b"\x01\x02\x03\x04"),
        (2**40 + 1234567, (2**40 + 1234567).to_bytes(8, "little")),
        (-12345678, np.int64(-12345678).tobytes()),
        (0.1, np.float64(0.1).tobytes()),
        (ROW, ROW.tobytes()),
        (ROW, ROW.astype(np.float32).tobytes()),
        (np.float64(0.3), np.float64(0.3).tobytes()),
    ],
)
def test_every_form_is_found(pattern, stored, tmp_path):
    content = pages()
    content[700 : 700 + len(stored)] = stored
    assert found(tmp_path, content, ["something else", pattern]) == [("store", 700, 1)]
    assert found(tmp_path, pages(), ["something else", pattern]) == []


@pytest.mark.parametrize("stored", [ROW.tobytes(), b"customer 0007", (2**61 + 98765).to_bytes(8, "little")])
def test_what_the_end_of_a_page_cuts_in_two_is_found(stored, tmp_path):
    for cut in range(1, len(stored)):
        content = pages()
        content[2 * PAGE - cut : 2 * PAGE] = stored[:cut]
        content[3 * PAGE + 4 : 3 * PAGE + 4 + len(stored) - cut] = stored[cut:]
        assert found(tmp_path, content, [stored]), cut


def test_half_of_a_row_is_found_where_the_other_half_is_gone(tmp_path):
    stored = ROW.tobytes()
    for cut in (80, 100):
        content = pages()
        content[2 * PAGE - cut : 2 * PAGE] = stored[:cut]
        assert found(tmp_path, content, [ROW]) == [("store", 2 * PAGE - cut, 0)]
    content = pages()
    content[PAGE + 4 : PAGE + 4 + 90] = stored[-90:]
    assert found(tmp_path, content, [ROW]) == [("store", PAGE + 4, 0)]


def test_names_that_begin_alike_are_not_taken_for_each_other(tmp_path):
    content = pages()
    content[2 * PAGE - 9 : 2 * PAGE] = b"customer "
    content[3 * PAGE + 4 : 3 * PAGE + 8] = b"0008"
    assert found(tmp_path, content, ["customer 0007"]) == []
    assert found(tmp_path, content, ["customer 0008"]) == [("store", 2 * PAGE - 9, 0)]


def test_every_file_of_the_store_is_read(tmp_path):
    log = bytearray(32 + 3 * (24 + PAGE))
    log[1000 : 1000 + len(ROW.tobytes())] = ROW.tobytes()
    assert found(tmp_path, log, [ROW], "store-wal") == [("store-wal", 1000, 0)]
    assert found(tmp_path, b"xx" + ROW.tobytes(), [ROW], "store-new") == [("store-new", 2, 0), ("store-wal", 1000, 0)]


@pytest.mark.parametrize("pattern", [0, 1, 17, 1.0, -2.0, "", "Zoë", b"abc", b"\0" * 99, np.zeros(5), True, None, [1]])
def test_what_is_everywhere_or_makes_no_sense_is_refused(pattern, tmp_path):
    (tmp_path / "store").write_bytes(pages())
    with pytest.raises(BadRecords, match=r"patterns\[1\]"):
        scan(tmp_path / "store", ["something", pattern])


@pytest.mark.parametrize("patterns", ["something", b"something", 5, None, 12345678.5])
def test_patterns_come_in_a_list(patterns, tmp_path):
    (tmp_path / "store").write_bytes(pages())
    with pytest.raises(BadRecords, match="patterns: give a list of them"):
        scan(tmp_path / "store", patterns)


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(NotAStore, match="no such file"):
        scan(tmp_path / "store", ["something"])


@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
def test_nothing_of_a_deleted_record_is_left_whatever_the_history(tmp_path):
    """Ids of growing length make rows grow, move and split pages; each record is looked for when it is gone."""
    number = 300
    X, y = rng.normal(size=(number, 9)) / 9, rng.uniform(-1, 1, size=number)
    ids = np.array([str(uuid.UUID(bytes=rng.bytes(16))) * (1 + k % 3) for k in range(number)])
    subjects = np.array([f"household-{rng.integers(10**12)}" for _ in range(number)])
    path = tmp_path / "model"
    model = expunge.HuberRegressor(solver=DualAveraging(target_range=(-1, 1), steps=8), rho=0.5)
    model.fit(X[:200], y[:200], ids=ids[:200], subjects=subjects[:200]).save(path)

    def patterns(which):
        stored = y[which]  # in [-1, 1] as they are
        return [*X[which], *stored.tolist(), *ids[which], *subjects[which], *X[which, 3].tolist()]

    with expunge.open(path) as stored:
        assert len(scan(path, patterns(slice(0, 200)))) >= 5 * 200
        for step in range(20):
            gone = slice(8 * step, 8 * step + 8)
            stored.insert(
                X[200 + 5 * step : 205 + 5 * step], y[200 + 5 * step : 205 + 5 * step],
                ids=[name * 7 for name in ids[200 + 5 * step : 205 + 5 * step]],
                subjects=subjects[200 + 5 * step : 205 + 5 * step],
            )  # fmt: skip
            stored.unlearn(ids[gone])
            assert scan(path, patterns(gone)) == []
        assert scan(path, patterns(slice(0, 160))) == []
        stored.unlearn(subjects=subjects[200:300])
        assert scan(path, patterns(slice(200, 300))) == []
        stored.compact()
        assert stored.verify().ok
        assert scan(path, patterns(slice(0, 160))) == scan(path, patterns(slice(200, 300))) == []
        assert len(scan(path, patterns(slice(160, 200)))) >= 5 * 40


def stale(tmp_path, name):
    """Write, rewrite and drop rows of many sizes; return how many of the rows that were gone were still found."""
    chance, gone, live, found = np.random.default_rng(4), set(), {}, set()
    file = StoreFile.create(tmp_path / name, 4096)
    for step in range(2000):
        number = int(chance.integers(200))
        if number in live:
            gone.add(live.pop(number))
        if chance.random() < 0.5:
            live[number] = chance.bytes(16)
            file.put("blocks", number, live[number] + chance.bytes(int(chance.integers(1500))))
        else:
            file.drop("blocks", number, number + 1)
        if step % 100 == 99:
            content = (tmp_path / name).read_bytes()
            assert all(one in content for one in live.values())
            found |= {one for one in gone if one in content}
    file.close()
    return len(found)


def test_sqlite_alone_leaves_stale_copies_in_its_trees_and_a_store_does_not(tmp_path):
    assert stale(tmp_path, "store") == 0

    def plain(self, table, number, content):
        self._run(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (number, content))

    with patched_method(StoreFile, "put", plain):
        assert stale(tmp_path, "control") > 0


def no_log_is_emptied():
    return patched_method(StoreFile, "truncate_log", lambda self: None)


def nothing_freed_is_blanked():
    greet = StoreFile._greet

    def careless(self):
        greet(self)
        self._connection.execute("PRAGMA secure_delete=OFF")

    return patched_method(StoreFile, "_greet", careless)


@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
@pytest.mark.parametrize("way", [nothing_freed_is_blanked, no_log_is_emptied])
def test_without_its_precautions_a_deleted_record_is_found(way, tmp_path):
    X = rng.normal(size=(300, 9)) / 9
    for precaution, leaves_some in ((nullcontext(), False), (way(), True)):
        path = tmp_path / str(leaves_some)
        with precaution:
            expunge.LogisticRegression(rho=0.5, solver=DualAveraging(steps=8)).fit(X, X[:, 0] > 0).save(path)
            with expunge.open(path) as model:
                for first in range(0, 200, 40):
                    model.unlearn(np.arange(first, first + 40))
                assert bool(scan(path, X[:200])) == leaves_some


@pytest.mark.parametrize("size", [3, 8, 2**20 + 5])
def test_many_patterns_are_found_as_few_are(size):
    rng = np.random.default_rng(0)
    content = bytearray(rng.integers(0, 3, size, dtype=np.uint8).tobytes())
    lengths = rng.integers(4, 30, size=60).tolist()
    starts = rng.integers(0, max(1, size - 30), size=60).tolist()
    spots = [*zip(starts, lengths, strict=True), (2**20 - 3, 5), (2**20 - 4, 9), (size - 4, 4), (0, 8)]
    forms = [bytes(content[start : start + length]) for start, length in spots] + [b"nowhere", b"nowhere at all"]
    forms = {number: form for number, form in enumerate(forms) if len(form) >= 4}
    found = sorted(scanning._find(content, forms))
    assert len(found) >= len(forms) - 2
    assert sorted(scanning._find_names(content, forms)) == found
    alike = [{number: form for number, form in forms.items() if len(form) == length} for length in range(4, 31)]
    assert sorted(place for some in alike if some for place in scanning._find_rows(content, some)) == found


def simply(content, form, page, log):
    """Return where a pattern is, in the plainest way."""
    first, skip = (32, 24) if log else (0, 0)
    bases = range(first + skip, len(content) - page + 1, page + skip)
    found = {at for at in range(len(content)) if content[at : at + len(form)] == form}
    for base in bases:
        after = int.from_bytes(content[base : base + 4], "big") - 1
        for cut in range(1, len(form)):
            head, tail = form[:cut], form[cut:]
            ends = content[base + 4 : base + page].endswith(head)
            begins = content[base + 4 : base + page].startswith(tail)
            follows = 0 <= after < len(bases) and content[bases[after] + 4 : bases[after] + page].startswith(tail)
            half = max(64, len(form) // 2)
            if ends and (follows or (len(head) >= half and len(head) - head.count(0) >= 4)):
                found.add(base + page - cut)
            if begins and len(tail) >= half and len(tail) - tail.count(0) >= 4:
                found.add(base + 4)
    return found


@pytest.mark.parametrize("few", [0, 99])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_many_zeros_are_found_wherever_the_plainest_way_finds_them(few, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "FEW", few)
    monkeypatch.setattr(scanning, "BLOCK", 2048)
    monkeypatch.setattr(scanning, "PAGES", 4)
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((8, 24)) < 0.15, 1.0, 0.0)
    rows[:, 3], rows[:4, 12:] = rng.normal(size=8), 0.0
    rows[4:, :12], rows[4:, 20] = 0.0, rng.normal(size=4)
    forms = [form for row in rows for form in (row.tobytes(), row.astype("<f4").tobytes())]
    name, log = ("store-wal", True) if seed == 2 else ("store", False)
    content = bytearray(32 + 10 * (PAGE + 24) if log else 10 * PAGE)
    bases = range(56 if log else 0, len(content), PAGE + 24 if log else PAGE)
    after = rng.permutation(10)
    for _ in range(60):
        form, base = forms[rng.integers(len(forms))], int(rng.integers(10))
        cut = int(rng.integers(1, len(form)))
        end, begin = bases[base] + PAGE, bases[after[base]] + 4
        if rng.random() < 0.7:
            content[end - cut : end] = form[:cut]
        if rng.random() < 0.7:
            content[begin : begin + len(form) - cut] = form[cut:]
    for number, base in enumerate(bases):
        content[base : base + 4] = int(after[number] + 1).to_bytes(4, "big")
        if log:
            content[base - 24 : base - 20] = (number + 1).to_bytes(4, "big")
    if not log:
        content[:18] = b"SQLite format 3\0" + PAGE.to_bytes(2, "big")
    wanted = {(name, at, which) for which, form in enumerate(forms) for at in simply(bytes(content), form, PAGE, log)}
    assert len(wanted) >= 8
    assert set(found(tmp_path, content, forms, name)) == wanted


@pytest.mark.parametrize("features", [100, 1200])
@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
def test_rows_longer_than_pages_are_found_until_they_are_gone(features, tmp_path):
    X = rng.normal(size=(40, features)) / features
    expunge.LogisticRegression(rho=0.5, solver=DualAveraging(steps=4)).fit(X, X[:, 0] > 0).save(tmp_path / "model")
    assert {one.pattern for one in scan(tmp_path / "model", X)} == set(range(40))
    with expunge.open(tmp_path / "model") as model:
        model.unlearn(np.arange(20))
    assert {one.pattern for one in scan(tmp_path / "model", X)} == set(range(20, 40))


def test_in_the_log_pages_are_known_by_their_numbers(tmp_path):
    log = bytearray(32 + 3 * (24 + PAGE))
    for frame, (number, after) in enumerate([(7, 0), (9, 0), (5, 7)]):
        base = 32 + frame * (24 + PAGE)
        log[base : base + 4], log[base + 24 : base + 28] = number.to_bytes(4, "big"), after.to_bytes(4, "big")
    log[-8:], log[60:65] = b"customer", b" 0007"
    assert found(tmp_path, log, ["customer 0007"], "store-wal") == [("store-wal", len(log) - 8, 0)]
    log[32:36] = (8).to_bytes(4, "big")
    assert found(tmp_path, log, ["customer 0007"], "store-wal") == []


def test_a_search_that_is_broken_off_says_why(tmp_path):
    (tmp_path / "store").write_bytes(pages())

    def stop(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scanning.search(tmp_path / "store", ["something"], stop)
