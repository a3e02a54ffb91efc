"""Looking for bytes in the files of a store."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from expunge.base.errors import BadRecords, NotAStore
from expunge.base.progress import Show
from expunge.base.types import AnyArray
from expunge.store.saving import as_path
from expunge.store.surroundings import ENDINGS, beside, read_open

LEAST = 4
"""How many bytes, not all of them zeros, a pattern must have to mean anything."""
LONG = 64
"""Half of a pattern means something if it has as many bytes."""
FEW = 8
"""Up to so many patterns are looked for one by one."""
BLOCK = 2**20
"""How many bytes are looked at in one go."""
PAGES = 4096
"""At how many pages' edges."""
BASE = 0x9E3779B97F4A7C15
"""Bytes are summed up with its powers as weights, modulo 2**64; it is odd, so that it has an inverse."""
_ENCODINGS = ("utf-8", "latin-1", "utf-16-le", "utf-32-le")

Content = bytes | bytearray | mmap.mmap
Places = Iterator[tuple[int, int, bytes | None]]
"""Which form, where, and the half of it that stands there, if it is not whole."""


class Finding(NamedTuple):
    """Where a pattern was found."""

    file: Path
    offset: int
    """How far from the beginning of the file; of a pattern that is cut in two by the end of a page, its first half."""
    pattern: int
    """Which of the patterns, from 0."""


class Hit(NamedTuple):
    """A finding, and whether it is of a half only."""

    finding: Finding
    half: bytes | None
    """The bytes that stand there, if these are not the whole pattern."""


def scan(path: str | PathLike[str], patterns: Iterable[Any]) -> list[Finding]:
    """Look for patterns in every file that belongs to a store, byte by byte, and return where they are.

    A pattern is a record's features (an array), a string such as an id or a subject, a whole number of at least eight
    digits or so, a floating-point number, or bytes. It is looked for in every form in which a store could hold it, also
    where the end of a page cuts it in two. What is as common as 0 or 1 is refused: it would be found everywhere.

    >>> import tempfile, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/model.expunge"
    ...     expunge.LogisticRegression().fit(X, X[:, 0] > 0).save(path)
    ...     before = scan(path, [X[17]])
    ...     with expunge.open(path) as model:
    ...         outcome = model.unlearn([17])
    ...     len(before), scan(path, [X[17]])
    (1, [])
    """
    return sorted({hit.finding for hit in search(path, patterns, lambda stage, done, total: None)})


def search(path: str | PathLike[str], patterns: Iterable[Any], show: Show) -> set[Hit]:
    """Do what `scan` does, show how far it is, and say of what is found whether it is whole."""
    path = as_path(path)
    if isinstance(patterns, (str, bytes)) or not isinstance(patterns, Iterable):
        raise BadRecords(f"patterns: give a list of them, such as [{patterns!r}].")
    if not path.exists():
        raise NotAStore(f"{path}: no such file; give the path of a store.")
    owners: dict[bytes, list[int]] = {}
    groups: dict[int, dict[int, bytes]] = {}  # names (0), and rows by their length
    for number, pattern in enumerate(patterns):
        for form in forms_of(number, pattern):
            if form not in owners:
                group = 0 if isinstance(pattern, (str, int, float)) else len(form)
                groups.setdefault(group, {})[len(owners)] = form
            owners.setdefault(form, []).append(number)
    numbers, page = list(owners.values()), 4096
    found: set[Hit] = set()
    files = [file for file in _files_of(path) if file.is_file() and file.stat().st_size]
    for done, file in enumerate(files):
        with _opened(file, path) as content:
            page = _page_size(content) if file == path else page
            for part, places in enumerate(_searches(content, groups, page, file.name.endswith("-wal"))):
                for which, at, half in places:
                    found.update(Hit(Finding(file, at, number), half) for number in numbers[which])
                show("searching", done * (2 * len(groups) + 1) + part + 1, len(files) * (2 * len(groups) + 1))
    return found


def standing(content: bytes, parts: Iterable[bytes]) -> set[bytes]:
    """Return those of some parts that stand in a content."""
    alike: dict[int, list[bytes]] = {}
    for part in parts:
        alike.setdefault(len(part), []).append(part)
    found: set[bytes] = set()
    for some in alike.values():
        if len(some) > FEW:
            found.update(some[number] for number, _, _ in _find_rows(content, dict(enumerate(some))))
        else:
            found.update(part for part in some if part in content)
    return found


def _files_of(path: Path) -> list[Path]:
    """Return all files that may belong to a store."""
    endings = ["", *ENDINGS, *(first + second for first in ("-new", "-key") for second in ENDINGS)]
    files = [beside(path, ending) for ending in endings]
    return files + sorted(beside(path, "-spool").glob("*"))


@contextmanager
def _opened(file: Path, store: Path) -> Iterator[Content]:
    """Give the bytes of a file: those of a store that this process has open are copied, others are not."""
    held = read_open(file, store)
    if held is not None:
        yield held
        return
    with open(file, "rb") as opened:
        yield mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)  # closed when no array looks at it any more


def forms_of(number: int, pattern: Any) -> list[bytes]:
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


def _page_size(content: Content) -> int:
    page = int.from_bytes(content[16:18]) if content[:16] == b"SQLite format 3\0" else 4096
    return 65536 if page == 1 else max(512, page)


def _searches(content: Content, groups: dict[int, dict[int, bytes]], page: int, log: bool) -> Iterator[Places]:
    """Return all that is to be done with a file: one search after the other."""
    pages = _Pages(content, page, log)
    for length, forms in groups.items():
        find = _find if len(forms) <= FEW else _find_rows if length else _find_names
        yield find(content, forms)
        yield pages.cut(find, forms)
    yield pages.halves({number: form for forms in groups.values() for number, form in forms.items()})


def _find(content: Content, forms: dict[int, bytes]) -> Places:
    """Return all places, going through the file once for every form."""
    more = max(map(len, forms.values())) - 1
    for start in range(0, len(content), BLOCK):
        block = content[start : start + BLOCK + more]
        for number, form in forms.items():
            at = block.find(form)
            while 0 <= at < BLOCK:
                yield number, start + at, None
                at = block.find(form, at + 1)


def _find_names(content: Content, forms: dict[int, bytes]) -> Places:
    """Return the same, going through the file a few times only: the words that forms end with are looked up."""
    for wide in (4, 8):
        ending: dict[int, list[tuple[int, bytes]]] = {}
        for number, form in forms.items():
            if (len(form) >= 8) == (wide == 8):
                ending.setdefault(int.from_bytes(form[-wide:], "little") * BASE % 2**64, []).append((number, form))
        wanted = np.array(list(ending), dtype=np.uint64)
        for start in range(0, len(content) if ending else 0, BLOCK):
            block = content[start : start + BLOCK + wide - 1]
            for shift in range(min(wide, len(block) - wide + 1)):
                words = np.frombuffer(block, f"<u{wide}", (len(block) - shift) // wide, shift) * np.uint64(BASE)
                for position in _among(words, wanted):
                    stop = start + shift + (position + 1) * wide
                    for number, form in ending[int(words[position])]:
                        if stop >= len(form) and content[stop - len(form) : stop] == form:
                            yield number, stop - len(form), None


def _find_rows(content: Content, forms: dict[int, bytes]) -> Places:
    """Return the same for forms of one length, going through the file once: sums of so many bytes are looked up.

    Parts of rows may be common, zeros above all, but whole rows are not. Bytes are weighted by powers of a large
    number, so that hardly any others have the same sum, and what has is compared.
    """
    length = len(next(iter(forms.values())))
    size = max(BLOCK // 8, 2 * length)
    powers = np.cumprod(np.full(size + length, BASE, dtype=np.uint64))
    inverses = np.cumprod(np.full(size, pow(BASE, -1, 2**64), dtype=np.uint64))
    with_sum: dict[int, list[int]] = {}
    for number, form in forms.items():
        total = (np.frombuffer(form, np.uint8) * powers[:length]).sum() * inverses[:1]
        with_sum.setdefault(int(total[0]), []).append(number)
    wanted = np.array(list(with_sum), dtype=np.uint64)
    for start in range(0, len(content) - length + 1, size):
        block = content[start : start + size + length - 1]
        until = np.zeros(len(block) + 1, dtype=np.uint64)
        np.cumsum(np.frombuffer(block, np.uint8) * powers[: len(block)], out=until[1:])
        spans = (until[length:] - until[:-length]) * inverses[: len(block) - length + 1]
        for at in _among(spans, wanted):
            for number in with_sum[int(spans[at])]:
                if block[at : at + length] == forms[number]:
                    yield number, start + at, None


def _among(values: AnyArray, wanted: AnyArray) -> list[int]:
    """Return the positions of the values, of 64 bits, that are wanted."""
    begins = np.zeros(2**16, dtype=bool)
    begins[wanted >> 48] = True
    near = np.flatnonzero(begins[values >> 48])  # hardly any
    found: list[int] = near[np.isin(values[near], wanted)].tolist() if near.size else []
    return found


class _Pages:
    """The pages of a file. Content that does not fit goes on, after four bytes, in the page that these point to."""

    def __init__(self, content: Content, page: int, log: bool) -> None:
        first, skip = (32, 24) if log else (0, 0)
        step = page + skip
        count = max(0, len(content) - first) // step
        pages = np.frombuffer(content, np.uint8, count * step, first).reshape(count, step)
        self._content = pages[:, skip + 4 :]
        self._offsets = first + skip + 4 + step * np.arange(count)
        """Where the content of each begins."""
        points_to = _numbers(pages[:, skip:])
        numbers = _numbers(pages) if log else np.arange(1, count + 1)
        order = np.argsort(numbers, kind="stable")
        last = order[np.searchsorted(numbers[order], points_to, "right") - 1] if count else order
        self._after = np.append(np.where(numbers[last] == points_to, last, count), count)
        """To which each points; the number of pages if to none."""

    def cut(self, find: Callable[[Content, dict[int, bytes]], Places], forms: dict[int, bytes]) -> Places:
        """Return the places where a form begins at the end of a page and goes on in those that follow."""
        count, size = self._content.shape
        more = max(map(len, forms.values())) - 1
        before = min(more, size)
        leading = np.flatnonzero(self._after[:-1] < count)
        at_once = max(1, 16 * BLOCK // (before + more))
        for start in range(0, len(leading), at_once):
            some = after = leading[start : start + at_once]
            parts, reach = [self._content[some, size - before :]], np.full(len(some), before)
            for taken in range(0, more, size):
                after = self._after[after]
                parts.append(self._content[np.minimum(after, count - 1), : more - taken])
                reach += np.where(after < count, parts[-1].shape[1], 0)
            for number, at, _ in find(np.concatenate(parts, axis=1).tobytes(), forms):
                row, column = divmod(at, before + more)
                if column < before < column + len(forms[number]) <= reach[row]:
                    yield number, int(self._offsets[some[row]]) + size - before + column, None

    def halves(self, forms: dict[int, bytes]) -> Places:
        """Return the places where the larger half of a long form stands at an edge of a page.

        It may go on in another page, or that may be gone: names often begin or end alike, long rows of numbers do not.
        """
        turned = {number: form[::-1] for number, form in forms.items()}
        for number, page, length in _endings(self._content, forms):
            yield number, int(self._offsets[page]) + self._content.shape[1] - length, forms[number][:length]
        for number, page, length in _endings(self._content[:, ::-1], turned):
            yield number, int(self._offsets[page]), forms[number][-length:]


def _endings(pages: AnyArray, forms: dict[int, bytes]) -> Iterator[tuple[int, int, int]]:
    """Return (form, page, length) where the larger half of a form, of so many bytes, ends a page."""
    numbers = [number for number, form in forms.items() if _least(form) < len(form)]
    least, lengths = (np.array([of(forms[number]) for number in numbers], dtype=np.int64) for of in (_least, len))
    top = min(pages.shape[1], int(lengths.max(initial=1)) - 1)
    begins = np.zeros((top, len(numbers)), dtype=np.uint8)
    for column, number in enumerate(numbers):
        some = np.frombuffer(forms[number][:top], np.uint8)
        begins[: len(some), column] = some
    for start in range(0, len(pages) if numbers else 0, PAGES):
        columns = np.ascontiguousarray(pages[start : start + PAGES, pages.shape[1] - top :].T)
        ends, heads = np.zeros(columns.shape[1], np.uint64), np.zeros(len(numbers), np.uint64)
        for length in range(1, top + 1):
            ends += columns[-length] * np.uint64(pow(BASE, length - 1, 2**64))
            heads = heads * np.uint64(BASE) + begins[length - 1]
            able = np.flatnonzero((least <= length) & (length < lengths))
            for page in _among(ends, heads[able]) if len(able) else ():
                for one in able[heads[able] == ends[page]].tolist():
                    if columns[top - length :, page].tobytes() == forms[numbers[one]][:length]:
                        yield numbers[one], start + page, length


def _numbers(pages: AnyArray) -> AnyArray:
    """Return the numbers that the first four bytes of pages are."""
    return np.ascontiguousarray(pages[:, :4]).view(">u4")[:, 0].astype(np.int64)


def _least(form: bytes) -> int:
    """Return how long the beginning of a form must be to be no accident."""
    return max(LONG, len(form) // 2, int(np.flatnonzero(np.frombuffer(form, np.uint8))[LEAST - 1]) + 1)
