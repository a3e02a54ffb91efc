"""What several tests of stores use."""

from dataclasses import dataclass

from expunge.store.file import StoreFile

PAGE_SIZES = (512, 1024, 2048, 4096)


def new_file(path, page=512):
    """An empty store, in its usual mode."""
    StoreFile.create(path, page).close()
    return StoreFile(path)


@dataclass(frozen=True)
class Cell:
    """A row as it lies in a leaf page of a B-tree."""

    number: int
    payload: int
    local: bytes


def raw_pages(path):
    """The pages of a SQLite file, from the first on, as they lie on the disk."""
    raw = path.read_bytes()
    page = int.from_bytes(raw[16:18])
    assert len(raw) % page == 0
    return [raw[first : first + page] for first in range(0, len(raw), page)]


def is_tree(page):
    """Whether a page belongs to a B-tree. (Others begin with the number of a page, so with a zero in small files.)"""
    return page[0] in (0x02, 0x05, 0x0A, 0x0D)


def varint(raw, at):
    """A number of SQLite's own form, and where it ends."""
    value = 0
    for count in range(9):
        byte = raw[at + count]
        if count == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    raise AssertionError


def leaf_cells(page):
    """The rows of a leaf page whose blobs go on elsewhere: all that lies of them here, and the overflow page."""
    assert page[0] == 0x0D
    count, size = int.from_bytes(page[3:5]), len(page)
    for cell in range(count):
        at = int.from_bytes(page[8 + 2 * cell : 10 + 2 * cell])
        payload, at = varint(page, at)
        number, at = varint(page, at)
        least = (size - 12) * 32 // 255 - 23
        local = payload if payload <= size - 35 else least + (payload - least) % (size - 4)
        local = least if local > size - 35 and payload > size - 35 else local
        yield Cell(number, payload, page[at : at + local])
