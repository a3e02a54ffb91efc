"""The file of a store: rows come back or are known to be damaged, transactions are whole, deleted bytes are gone."""

import os
import signal
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.stores import PAGE_SIZES, is_tree, leaf_cells, new_file, raw_pages
from expunge.base.errors import BusyStore, CorruptStore, FullStore, NotAStore, ReadOnlyStore, StoreError
from expunge.store import file as module
from expunge.store.file import StoreFile, blob_size, least_local
from expunge.store.locks import WriterLock
from expunge.store.sqlite import named_errors
from expunge.store.surroundings import beside

MARKER = b"\xa7\x5c\xe3\x91"
each_page_size = pytest.mark.parametrize("page", PAGE_SIZES)
some = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def file(tmp_path):
    with_pages = new_file(tmp_path / "store")
    yield with_pages
    with_pages.close()


def marked(length):
    return (MARKER * (length // 4 + 1))[:length]


# --- rows -----------------------------------------------------------------------------------------------


@each_page_size
def test_a_row_comes_back(tmp_path, page):
    file = new_file(tmp_path / "store", page)
    lengths = [0, 1, 7, page - 13, page - 12, page - 11, page - 4, page, 3 * page, 70_000]
    contents = {number: os.urandom(length) for number, length in enumerate(lengths)}
    with file.transaction():
        for number, content in contents.items():
            file.put("blocks", number, content)
        file.put("ids", 2**62, b"far")
    for number, content in contents.items():
        assert file.get("blocks", number) == file.need("blocks", number) == content
    assert {number: bytes(content) for number, content in file.all("blocks")} == contents
    assert file.get("sums", 0) is None
    file.close()


def test_a_row_is_replaced_by_one_of_any_length(file):
    for length in (10, 5000, 499, 0, 500, 3):
        content = os.urandom(length)
        with file.transaction():
            file.put("blocks", 5, content)
        assert file.need("blocks", 5) == content


def test_rows_are_dropped_by_number(file):
    with file.transaction():
        for number in range(10):
            file.put("blocks", number, b"x")
        file.drop("blocks", 2, 4)
        file.drop("blocks", 7)
    assert [number for number, _ in file.all("blocks")] == [0, 1, 4, 5, 6]


def test_a_row_that_must_be_there_is_missed_by_name(file):
    with pytest.raises(CorruptStore, match=r"store: blocks, row 7 is missing; restore a backup"):
        file.need("blocks", 7)


def test_texts_come_back(file):
    with file.transaction():
        for number, text in enumerate(["", "ä\0b", "x" * 10_000]):
            file.put_text("receipts", number, text)
        file.put_text("about", 0, "first")
        file.put_text("about", 0, "second")
    assert file.text("about", 0) == "second"
    assert file.text("about", 1) is None
    assert list(file.texts("receipts")) == ["", "ä\0b", "x" * 10_000]
    assert list(file.texts("receipts", 2)) == ["x" * 10_000]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE blocks SET content=(SELECT content FROM blocks WHERE number=2) WHERE number=1",
        "UPDATE blocks SET content=(SELECT content FROM ids WHERE number=1) WHERE number=1",
        "UPDATE blocks SET content=x'' WHERE number=1",
        "UPDATE blocks SET content=zeroblob(600) WHERE number=1",
        "UPDATE blocks SET content=substr(content, 1, length(content) - 200) WHERE number=1",
        "UPDATE blocks SET content='text' WHERE number=1",
        "UPDATE blocks SET content=5 WHERE number=1",
    ],
)
def test_a_row_that_is_another_than_was_written_is_named(file, damage):
    with file.transaction():
        file.put("blocks", 1, b"a" * 900)
        file.put("blocks", 2, b"b" * 900)
        file.put("ids", 1, b"a" * 900)
    file._connection.execute(damage)
    for ask in (lambda: file.get("blocks", 1), lambda: list(file.all("blocks"))):
        with pytest.raises(CorruptStore, match=r"store: blocks, row 1: the bytes are not those that were written"):
            ask()
    assert file.damage() == ["blocks: row 1 is not as it was written"]
    assert file.need("blocks", 2) == b"b" * 900


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE receipts SET content='other' WHERE number=1",
        "UPDATE receipts SET content=x'61' WHERE number=1",
        "UPDATE receipts SET content=5 WHERE number=1",
        "UPDATE receipts SET checksum=0 WHERE number=1",
        "UPDATE receipts SET checksum='x' WHERE number=1",
        "UPDATE receipts SET content=CAST(x'ff' AS TEXT) WHERE number=1",
        "UPDATE receipts SET number=3 WHERE number=1",
    ],
)
def test_a_text_that_is_another_than_was_written_is_named(file, damage):
    with file.transaction():
        file.put_text("receipts", 1, "a")
        file.put_text("receipts", 2, "b")
    file._connection.execute(damage)
    with pytest.raises(CorruptStore, match=r"store: receipts, row [13]: the bytes are not those that were written"):
        list(file.texts("receipts"))
    assert len(file.damage()) == 1
    assert file.text("receipts", 2) == "b"


# --- what lies in the pages -----------------------------------------------------------------------------


@some
@given(
    st.sampled_from(PAGE_SIZES),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6000) | st.none()), min_size=1, max_size=40),
)
def test_no_byte_of_content_lies_in_a_b_tree_and_pages_are_full(tmp_path, page, history):
    path = tmp_path / "store"
    path.unlink(missing_ok=True)
    file, there = new_file(path, page), {}
    with file.transaction():
        for number, length in history:
            if length is None:
                file.drop("blocks", number, number + 1)
                there.pop(number, None)
            else:
                file.put("blocks", number, marked(length))
                there[number] = length
    file.truncate_log()
    file.close()
    pages = raw_pages(path)
    trees = [each for each in pages if is_tree(each)]
    assert not [each for each in trees if MARKER[:2] in each or MARKER[2:] in each]
    cells = [cell for each in trees if each[0] == 0x0D for cell in leaf_cells(each) if cell.payload > page - 35]
    assert {cell.number for cell in cells} >= set(there)
    step, least = page - 4, least_local(page)
    for cell in cells:
        assert len(cell.local) == least
        assert (cell.payload - least) % step == 0
        if there.get(cell.number) is not None:
            used, room = there[cell.number] + 8, cell.payload - least
            assert used <= room < max(used, 1) + step + 8
    full = sum((cell.payload - least) // step for cell in cells)
    free = int.from_bytes(pages[0][36:40])
    assert full + free == len([each for each in pages[1:] if not is_tree(each)])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from([512, 1024, 2048, 4096, 65536]), st.integers(0, 2**33))
def test_blobs_fill_their_pages(page, content):
    size, least, step = blob_size(page, content), least_local(page), page - 4
    header = 2 + next(count for count in range(1, 10) if (2 * size + 12) >> 7 * count == 0)
    assert (size + header - least) % step == 0
    assert content + 8 <= size - least < content + 8 + step + header


@each_page_size
def test_what_was_overwritten_or_dropped_is_nowhere_in_the_file(tmp_path, page):
    path = tmp_path / "store"
    file = new_file(path, page)
    with file.transaction():
        for number in range(60):
            file.put("blocks", number, marked(100 + 70 * number))
    file.truncate_log()
    assert MARKER in path.read_bytes()
    with file.transaction():
        for number in range(0, 60, 2):
            file.put("blocks", number, b"\x11" * (9 * number))
        file.drop("blocks", 1, 2)
        for number in range(3, 60, 2):
            file.drop("blocks", number, number + 1)
    file.truncate_log()
    for each in tmp_path.iterdir():
        assert MARKER not in each.read_bytes(), each
    file.close()


def test_a_small_change_of_a_large_row_writes_few_pages(file):
    content = bytearray(os.urandom(100_000))
    with file.transaction():
        file.put("blocks", 0, content)
    file.truncate_log()
    content[50_000] ^= 1
    with file.transaction():
        file.put("blocks", 0, content)
    assert beside(file.path, "-wal").stat().st_size < 20 * 512


# --- transactions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, FullStore])
def test_a_transaction_that_fails_leaves_nothing(file, error):
    def fail():
        with file.transaction():
            file.put("blocks", 1, b"two")
            raise error

    with file.transaction():
        file.put("blocks", 1, b"one")
    with pytest.raises(error):
        fail()
    assert file.need("blocks", 1) == b"one"
    with file.transaction():
        file.put("blocks", 1, b"three")
    assert file.need("blocks", 1) == b"three"


def test_others_see_whole_transactions_only(file):
    with file.transaction():
        file.put("blocks", 1, b"old")
    other = StoreFile(file.path, read_only=True)
    changes = other.changes
    with other.reading():
        assert other.need("blocks", 1) == b"old"
        with file.transaction():
            file.put("blocks", 1, b"new")
        assert other.need("blocks", 1) == b"old"
    assert other.need("blocks", 1) == b"new"
    assert other.changes != changes
    other.close()


def test_the_log_is_empty_afterwards_unless_somebody_reads(file):
    other = StoreFile(file.path, read_only=True)
    file._connection.execute("PRAGMA busy_timeout=1")
    with other.reading():
        other.get("blocks", 1)
        with file.transaction():
            file.put("blocks", 1, marked(3000))
        with pytest.raises(BusyStore, match="cannot be emptied, since another program is writing, or keeps reading"):
            file.truncate_log()
    file.truncate_log()
    assert beside(file.path, "-wal").stat().st_size == 0
    other.close()


def test_a_second_writer_waits_and_gives_up(file):
    other = StoreFile(file.path, wait=0.05)
    with file.transaction(), pytest.raises(BusyStore, match="another process is writing; wait for it"):
        other.begin()
    with other.transaction():
        other.put("blocks", 1, b"mine")
    other.close()


def test_what_may_only_be_read_is_not_written(file):
    other = StoreFile(file.path, read_only=True)
    with pytest.raises(ReadOnlyStore, match="may not be written to"), other.transaction():
        other.put("blocks", 1, b"x")
    other.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, FullStore), (sqlite3.SQLITE_BUSY, BusyStore), (sqlite3.SQLITE_LOCKED, BusyStore),
        (sqlite3.SQLITE_READONLY, ReadOnlyStore), (sqlite3.SQLITE_PERM, ReadOnlyStore),
        (sqlite3.SQLITE_CORRUPT, CorruptStore), (sqlite3.SQLITE_NOTADB, NotAStore),
        (sqlite3.SQLITE_CANTOPEN, StoreError), (sqlite3.SQLITE_IOERR, StoreError),
        (sqlite3.SQLITE_IOERR | 3 << 8, StoreError), (sqlite3.SQLITE_READONLY | 6 << 8, ReadOnlyStore), (0, StoreError),
        (None, StoreError),
    ],
)  # fmt: skip
def test_every_error_of_sqlite_has_a_name_and_a_remedy(tmp_path, code, kind):
    error = sqlite3.OperationalError("what SQLite said")
    if code is not None:
        error.sqlite_errorcode = code
    with (
        pytest.raises(StoreError, match=r"/some: .*\(what SQLite said\)\.$") as caught,
        named_errors(tmp_path / "some"),
    ):
        raise error
    assert type(caught.value) is kind
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, OSError)


def test_errors_of_the_kinds_that_sqlite_makes_itself(file):
    file._connection.execute("PRAGMA query_only=ON")
    with pytest.raises(ReadOnlyStore):
        file.put("blocks", 1, b"x")
    file._connection.execute("PRAGMA query_only=OFF")
    pages = file._pragma("page_count")
    file._connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(FullStore, match="the disk is full; free some space and call again"), file.transaction():
        file.put("blocks", 1, marked(5000))
    file._connection.execute(f"PRAGMA max_page_count={pages + 99}")
    with file.transaction():
        file.put("blocks", 1, marked(5000))
    assert file.damage() == []


# --- one writer -----------------------------------------------------------------------------------------


def test_one_lock_at_a_time(tmp_path):
    one, two = WriterLock(tmp_path / "store", 0.05), WriterLock(tmp_path / "store", 0.05)
    one.acquire()
    with pytest.raises(BusyStore, match=r"store: other processes have been writing for 0\.05 s\. .* longer wait="):
        two.acquire()
    one.release()
    two.acquire()
    with pytest.raises(BusyStore):
        one.acquire()
    two.close()
    one.acquire()
    one.close()
    one.close()
    one.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_lock_of_a_process_that_died_is_free(tmp_path):
    lock = WriterLock(tmp_path / "store", 0.02)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        held = WriterLock(tmp_path / "store", 1)
        held.acquire()
        os.write(tell, b"x")
        signal.pause()
    os.read(ready, 1)
    with pytest.raises(BusyStore):
        lock.acquire()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    lock.acquire()
    lock.close()


def test_a_lock_needs_a_folder(tmp_path):
    with pytest.raises(ReadOnlyStore, match=r"store-lock: cannot be locked .*permissions"):
        WriterLock(tmp_path / "nowhere" / "store", 0.05).acquire()


# --- versions -------------------------------------------------------------------------------------------


def test_a_file_says_what_it_is(tmp_path):
    path = tmp_path / "store"
    new_file(path, 1024).close()
    raw = path.read_bytes()
    assert int.from_bytes(raw[16:18]) == 1024
    assert raw[68:72] == b"EXPG"
    assert int.from_bytes(raw[60:64]) == module.FORMAT == 1
