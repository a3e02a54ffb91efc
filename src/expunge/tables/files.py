"""Tables in files: which endings are read, what is in a folder, and how a file is opened.

`open_table` and `open_tables` open files; `Table.chunks` reads them, and notes in `Broken` what cannot be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from expunge.base.errors import BadRecords
from expunge.tables import limits
from expunge.tables.arrow import Batches, of_arrow_file, of_parquet
from expunge.tables.delimited import Delimited
from expunge.tables.json_lines import JsonLines
from expunge.tables.reading import NUMBERED, Broken, Chunk, Table, check_names, reading
from expunge.tables.texts import check_encoding, opened, unpacked_name


def open_tables(paths: Iterable[str | os.PathLike[str]], encoding: str = "utf-8") -> list[Table]:
    """Open files, each by its ending; of a folder, all tables in it in the order of their names."""
    check_encoding(encoding)
    return [open_table(file, encoding) for path in paths for file in tables_in(Path(path))]


def open_table(path: str | os.PathLike[str], encoding: str = "utf-8") -> Table:
    """Open a file (.csv, .tsv, .jsonl, .ndjson, .json, also with .gz or .bz2 after it; .parquet, .arrow, .feather).

    A CSV file has a header. Its delimiter, one of ``, ; |`` and tab, is the one that the header has most of.
    Of JSON lines, the columns are the keys of the first 1000 objects; a key that an object lacks is null.
    """
    path = Path(path)
    if path.is_dir():
        raise BadRecords(f"{path}: a folder; give one of the files in it.")
    opener = _opener(path)
    if opener is None:
        raise BadRecords(f"{path}: unknown kind of file; give one that ends in {', '.join(ENDINGS)}.")
    if not path.exists():
        raise BadRecords(f"{path}: no such file; check the path.")
    with reading(path):
        return opener(path, encoding)


def tables_in(path: Path) -> list[Path]:
    """Return a file, or the tables in a folder."""
    if not path.is_dir():
        return [path]
    with reading(path):
        files = [file for file in sorted(path.iterdir()) if file.name[0] not in "._" and _opener(file) is not None]
    if not files:
        raise BadRecords(f"{path}: a folder without tables; put files there that end in {', '.join(ENDINGS)}.")
    return files


def guess_encoding(paths: Iterable[str | os.PathLike[str]]) -> str:
    """Return "cp1252" if more letters beyond ASCII are not UTF-8 than are, or else "utf-8"."""
    wrong = right = 0
    for file in [file for path in paths for file in tables_in(Path(path))]:
        if not file.is_file() or _opener(file) is None or file.suffix.lower() in NUMBERED:
            continue
        with reading(file), opened(file) as (text, _):
            while block := text.read(limits.BLOCK) + text.readline(limits.BLOCK):
                if not block.isascii():
                    odd = len(_NOT_UTF8.findall(decoded := block.decode("utf-8", "surrogateescape")))
                    wrong, right = wrong + odd, right + len(_BEYOND_ASCII.findall(decoded)) - odd
    return "cp1252" if wrong > right else "utf-8"


_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\0-\x7f]")


class _InBatches(Table):
    """A file that is read in record batches, opened."""

    of_texts = False

    def __init__(self, batches_of: Callable[[Path], Batches], path: Path, encoding: str = "utf-8") -> None:
        batches = batches_of(path)
        names = [name for name in batches.names if not _INDEX.fullmatch(name)]
        check_names(path, names)
        flat = [name for name in names if name not in batches.nested]
        super().__init__(path, flat, [name for name in names if name in batches.nested], batches.total)
        self._batches = batches.read

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        done = 0
        for batch in self._batches(columns, rows):
            lines = np.arange(done + 1, done + 1 + len(batch))
            done += len(batch)
            self._position = self.size_bytes * done // max(self.total or 0, 1)
            yield Chunk({name: batch.column(name) for name in columns}, lines, self.path)


_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas names a column with the numbers of rows."""

_TEXTS: dict[str, Callable[[Path, str], Table]] = {
    ".csv": Delimited,
    ".tsv": partial(Delimited, delimiter=b"\t"),
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonLines,
}
_BATCHES: dict[str, Callable[[Path, str], Table]] = {
    ".parquet": partial(_InBatches, of_parquet),
    **dict.fromkeys((".arrow", ".feather"), partial(_InBatches, of_arrow_file)),
}
ENDINGS = (*_TEXTS, *_BATCHES)
"""How the names of tables end; those of texts may go on with an ending of `texts.PACKED`."""


def _opener(path: Path) -> Callable[[Path, str], Table] | None:
    """Return what opens a file, by its ending."""
    return _BATCHES.get(path.suffix.lower()) or _TEXTS.get(Path(unpacked_name(path)).suffix)
