"""Tables as people have them, in CSV, Parquet or JSON lines, read a chunk at a time.

`open_table` and `open_tables` open files; `Table.chunks` reads them, and notes in `Broken` what cannot be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from expunge.errors import BadRecords
from expunge.schema.delimited import Delimited
from expunge.schema.json_lines import JsonLines
from expunge.schema.reading import Broken, Chunk, OnError, Table, arrow, check_names, reading, unpacked_name

__all__ = ["Broken", "Chunk", "OnError", "Table", "open_table", "open_tables"]


def open_tables(paths: Iterable[str | os.PathLike[str]]) -> list[Table]:
    """Open files, each by its ending; of a folder, all tables in it in the order of their names."""
    return [open_table(file) for path in paths for file in _files(Path(path))]


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a file (.csv, .tsv, .parquet, .jsonl, .ndjson, .json, and all but Parquet with .gz or .bz2 after it).

    A CSV file has a header. Its delimiter, one of ``, ; |`` and tab, is the one that the header has most of.
    Of JSON lines, the columns are the keys of the first 1000 objects; a key that an object lacks is null.
    """
    path = Path(path)
    if path.is_dir():
        raise BadRecords(f"{path}: a folder; give one of the files in it.")
    opener = _opener(path)
    if opener is None:
        raise BadRecords(f"{path}: unknown kind of file; give one that ends in {', '.join(_KINDS)}.")
    if not path.exists():
        raise BadRecords(f"{path}: there is no such file; check the path.")
    with reading(path):
        return opener(path)


def _opener(path: Path) -> Callable[[Path], Table] | None:
    """Return what opens a file, by its ending."""
    unpacked = unpacked_name(path)
    opener = _KINDS.get(Path(unpacked).suffix)
    return None if opener is _Parquet and unpacked != path.name.lower() else opener


def _files(path: Path) -> list[Path]:
    """Return a file, or the tables in a folder."""
    if not path.is_dir():
        return [path]
    with reading(path):
        files = [file for file in sorted(path.iterdir()) if file.name[0] not in "._" and _opener(file) is not None]
    if not files:
        raise BadRecords(f"{path}: a folder without tables; put files there that end in {', '.join(_KINDS)}.")
    return files


_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas names a column with the numbers of rows."""


class _Parquet(Table):
    """A Parquet file, opened."""

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            fields, total = list(file.schema_arrow), file.metadata.num_rows
        fields = [field for field in fields if not _INDEX.fullmatch(field.name)]
        check_names(path, [field.name for field in fields])
        nested = [field.name for field in fields if arrow().types.is_nested(field.type)]
        super().__init__(path, [field.name for field in fields if field.name not in nested], nested, total)

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        from pyarrow.parquet import ParquetFile

        done = 0
        with ParquetFile(self.path, pre_buffer=False, buffer_size=2**16) as file:  # or else it reads many rows ahead
            for batch in file.iter_batches(rows, columns=columns):
                lines = np.arange(done + 1, done + 1 + len(batch))
                done += len(batch)
                self._position = self.size_bytes * done // max(self.total or 0, 1)
                yield Chunk({name: _decoded(batch.column(name)) for name in columns}, lines, self.path)


def _decoded(column: Any) -> Any:
    """Return a column of categories as one of their values."""
    return column.dictionary_decode() if arrow().types.is_dictionary(column.type) else column


_KINDS: dict[str, Callable[[Path], Table]] = {
    ".csv": Delimited,
    ".tsv": Delimited,
    ".parquet": _Parquet,
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonLines,
}
