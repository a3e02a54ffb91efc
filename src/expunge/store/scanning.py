"""Looking for bytes in the files of a store."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from expunge.errors import BadRecords, NotAStore
from expunge.store import descriptors
from expunge.store.file import ENDINGS, beside
from expunge.store.saving import as_path
from expunge.types import AnyArray

LEAST = 4
"""How many bytes, not all of them zeros, a pattern must have to mean anything."""
LONG = 64
"""Half of a pattern means something if it has as many bytes."""
FEW = 32
"""Up to so many patterns are looked for one by one."""
BLOCK = 2**20
"""How many bytes are looked at in one go for many of them."""
_ENCODINGS = ("utf-8", "latin-1", "utf-16-le", "utf-32-le")


class Finding(NamedTuple):
    """Where a pattern was found."""

    file: Path
    offset: int
    """How far from the beginning of the file; of a pattern that is cut in two by the end of a page, its first half."""
    pattern: int
    """Which of the patterns, from 0."""


def scan(path: str | PathLike[str], patterns: Iterable[Any]) -> list[Finding]:
    """Look for patterns in every file that belongs to a store, byte by byte, and return where they are.

    A pattern is a record's features (an array), a string such as an id or a subject, a whole number of at least eight
    digits or so, a floating-point number, or bytes. It is looked for in every form in which a store could hold it, also
    where the end of a page cuts it in two. What is as common as 0 or 1 is refused: it would be found everywhere.

    >>> import tempfile, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/model.expunge"
    ...     expunge.LogisticRegression(feature_norm=9.0).fit(X, X[:, 0] > 0).save(path)
    ...     before = scan(path, [X[17]])
    ...     with expunge.open(path) as model:
    ...         outcome = model.unlearn([17])
    ...     len(before), scan(path, [X[17]])
    (1, [])
    """
    path = as_path(path)
    if isinstance(patterns, (str, bytes)):
        raise BadRecords(f"patterns: give a list of them, such as [{patterns!r}].")
    if not path.exists():
        raise NotAStore(f"{path}: there is no such file; give the path of a store.")
    forms = [(number, form) for number, pattern in enumerate(patterns) for form in _forms(number, pattern)]
    found: set[Finding] = set()
    page = 4096
    for file in _files_of(path):
        if file.is_file() and file.stat().st_size:
            with _opened(file, path) as content:
                page = _page_size(content) if file == path else page
                found.update(_scan_content(file, content, forms, page))
    return sorted(found)


def _files_of(path: Path) -> list[Path]:
    """Return all files that may belong to a store."""
    endings = ["", *ENDINGS, *(first + second for first in ("-new", "-key") for second in ENDINGS)]
    files = [beside(path, ending) for ending in endings]
    return files + sorted(beside(path, "-spool").glob("*"))


@contextmanager
def _opened(file: Path, store: Path) -> Iterator[bytearray | mmap.mmap]:
    """Give the bytes of a file: those of a store that this process has open are copied, others are not."""
    held = descriptors.read(file, store)
    if held is not None:
        yield held
        return
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _forms(number: int, pattern: Any) -> list[bytes]:
    """Return the bytes that a pattern can be stored as."""
    if isinstance(pattern, np.generic):
        pattern = pattern.item()
    forms: list[bytes]
    if isinstance(pattern, (bytes, bytearray, memoryview)):
        forms = [bytes(pattern)]
    elif isinstance(pattern, str):
        forms = []
        for encoding in _ENCODINGS:
            try:
                forms.append(pattern.encode(encoding, "surrogatepass"))
            except UnicodeEncodeError:
                continue
    elif isinstance(pattern, bool) or not isinstance(pattern, (int, float, np.ndarray)):
        raise BadRecords(
            f"patterns[{number}]: expected a string, a number, an array or bytes, got {type(pattern).__name__}."
        )
    elif isinstance(pattern, int):
        forms = [(pattern % 2**64).to_bytes(8, "little")]
    else:
        forms = _floats(number, np.asarray(pattern))
    if not forms or any(_common(form) for form in forms):
        raise BadRecords(
            f"patterns[{number}]: {pattern!r} is too common to look for, since such bytes are everywhere; give a "
            "longer string, a larger number, or a whole row."
        )
    return list(dict.fromkeys(forms))


def _floats(number: int, values: AnyArray) -> list[bytes]:
    if values.dtype.kind not in "fiub":
        raise BadRecords(f"patterns[{number}]: expected an array of numbers, got {values.dtype}.")
    numbers = values.astype("<f8").ravel()
    whole = [numbers.tobytes()]
    return whole if values.ndim == 0 else [*whole, numbers.astype("<f4").tobytes()]  # four bytes say too little


def _common(form: bytes) -> bool:
    return len(form) - form.count(0) < LEAST


def _page_size(content: bytearray | mmap.mmap) -> int:
    page = int.from_bytes(content[16:18]) if content[:16] == b"SQLite format 3\0" else 4096
    return 65536 if page == 1 else page


def _scan_content(
    file: Path, content: bytearray | mmap.mmap, forms: list[tuple[int, bytes]], page: int
) -> Iterator[Finding]:
    for number, at in _find(content, forms) if len(forms) <= FEW else _find_many(content, forms):
        yield Finding(file, at, number)
    first, step, skip = (32, page + 24, 24) if file.name.endswith("-wal") else (0, page, 0)
    count = (len(content) - first) // step
    if count > 0:
        pages = _Pages(np.frombuffer(content, np.uint8, count * step, first).reshape(count, step)[:, skip:])
        for number, form in forms:
            for row, column in pages.cut_in_two(form):
                yield Finding(file, first + row * step + skip + column, number)


def _find(content: bytearray | mmap.mmap, forms: list[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Return (number of the pattern, offset) for all places, going through the file once for every pattern."""
    for number, form in forms:
        at = content.find(form)
        while at >= 0:
            yield number, at
            at = content.find(form, at + 1)


def _find_many(content: bytearray | mmap.mmap, forms: list[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Return the same, going through the file a few times only: the words that patterns end with are looked up."""
    for wide in (4, 8):
        ending: dict[int, list[tuple[int, bytes]]] = {}
        for number, form in forms:
            if (len(form) >= 8) == (wide == 8):
                ending.setdefault(int.from_bytes(form[-wide:], "little"), []).append((number, form))
        wanted = np.array(sorted(ending), dtype=f"<u{wide}")
        for start in range(0, len(content) if ending else 0, BLOCK):
            block = content[start : start + BLOCK + wide - 1]
            for shift in range(min(wide, len(block) - wide + 1)):
                words = np.frombuffer(block, wanted.dtype, (len(block) - shift) // wide, shift)
                found = np.minimum(np.searchsorted(wanted, words), len(wanted) - 1)
                for position in np.flatnonzero(wanted[found] == words).tolist():
                    stop = start + shift + (position + 1) * wide
                    for number, form in ending[int(words[position])]:
                        if stop >= len(form) and content[stop - len(form) : stop] == form:
                            yield number, stop - len(form)


class _Edges:
    """The words that stand at an edge of each page, to look some up quickly."""

    def __init__(self, words: AnyArray) -> None:
        self._order = np.argsort(words, kind="stable")
        self._sorted = words[self._order]

    def pages_with(self, words: AnyArray) -> Iterator[tuple[int, int]]:
        """Return (position of the word, page) for all that stand there."""
        first, stop = np.searchsorted(self._sorted, words), np.searchsorted(self._sorted, words, "right")
        for position in np.flatnonzero(first < stop).tolist():
            for page in self._order[first[position] : stop[position]].tolist():
                yield position, page


class _Pages:
    """The pages of a file. Content that does not fit goes on, after four bytes, in the page that these point to."""

    def __init__(self, pages: AnyArray) -> None:
        self._pages = pages
        self._after = np.ascontiguousarray(pages[:, :4]).view(">u4")[:, 0].astype(np.int64) - 1
        self._ends = {wide: _Edges(_words(pages[:, -wide:])) for wide in (4, 8)}
        self._begins = {wide: _Edges(_words(pages[:, 4 : 4 + wide])) for wide in (4, 8)}

    def cut_in_two(self, form: bytes) -> Iterator[tuple[int, int]]:
        """Return (page, offset) where a pattern begins at the end of a page and goes on in the one it points to.

        Of a long one, also where the larger half alone stands at an edge of a page: the other page may be gone.
        """
        length, size = len(form), self._pages.shape[1]
        if length < 8:
            return
        wide = 8 if length >= 16 else 4
        words = np.ndarray((length - wide + 1,), f"<u{wide}", form, 0, (1,)).copy()  # one from every byte on
        for position, page in self._ends[wide].pages_with(words[:-1]):
            head, tail = form[: position + wide], form[position + wide :]
            if self._pages[page, -len(head) :].tobytes() == head and (
                _telling(head, length) or self._starts(self._after[page], tail)
            ):
                yield page, size - len(head)
        for position, page in self._begins[wide].pages_with(words[1:]):
            head, tail = form[: position + 1], form[position + 1 :]
            short = len(head) < wide  # else its end was found above
            if self._starts(page, tail) and (_telling(tail, length) or (short and self._leads_to(page, head))):
                yield page, 4

    def _starts(self, page: int, tail: bytes) -> bool:
        """Say whether the content of a page starts with something."""
        return 0 <= page < len(self._pages) and self._pages[page, 4 : 4 + len(tail)].tobytes() == tail

    def _leads_to(self, page: int, head: bytes) -> bool:
        """Say whether a page that points to this one ends in something."""
        before = np.flatnonzero(self._after == page)
        return any(self._pages[one, -len(head) :].tobytes() == head for one in before)


def _words(edges: AnyArray) -> AnyArray:
    return np.ascontiguousarray(edges).view(f"<u{edges.shape[1]}")[:, 0]


def _telling(part: bytes, length: int) -> bool:
    """Say whether a part of a pattern is no accident: names often begin or end alike, rows of numbers do not."""
    return len(part) >= max(LONG, length // 2) and not _common(part)
