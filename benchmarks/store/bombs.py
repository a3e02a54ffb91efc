"""Small files that would fill any memory: each must be refused, or read, within half a gigabyte.

python benchmarks/store/bombs.py      # what comes of each, as JSON
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.smoke import SMOKE, parser_of
from cases.hostile import alter, tried, write_models
from expunge.base.errors import ExpungeError
from expunge.store.state import DESCRIPTION, STATE
from expunge.store.surroundings import beside
from expunge.tables.blocks import blocks_of
from expunge.tables.files import open_table
from expunge.tables.reading import Broken
from expunge.tables.schema.toml import parse_schema

ROOM = 2**29
"""How many bytes more than before a bomb may take."""


def _set(*way: str, to: Any) -> Callable[[Any], Any]:
    def change(said: Any) -> Any:
        inside = said
        for key in way[:-1]:
            inside = inside["with"][key]
        inside["with"][way[-1]] = to
        return said

    return change


def _packed(path: Path, piece: bytes, times: int, end: bytes = b"") -> Path:
    """Write a long text in little room: a gzip file may be the same one many times over."""
    path.write_bytes(gzip.compress(piece) * times + gzip.compress(end))
    return path


def _read(path: Path) -> str:
    rows = sum(len(chunk.lines) for chunk in open_table(path).chunks(None, Broken("skip")))
    return f"{rows} rows read"


def _blocks(path: Path) -> str:
    return f"{sum(len(block.X) for block in blocks_of(path, target='a'))} rows read"


def _parquet(path: Path, **how: Any) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"a": ["x" * 15_000_000] * 60, "n": np.arange(60.0)})
    parquet.write_table(table, path, compression="gzip", **how)
    return path


def _arrow(path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import ipc

    column = pa.array(np.zeros(2**27))
    batch = pa.record_batch({"a": column, "n": column})
    with ipc.new_file(path, batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_batch(batch)
    return path


def bombs(folder: Path) -> dict[str, Callable[[], str]]:
    """Write the files; return what reads each. With ``--smoke`` only those that take no time to write."""
    return {**stores(folder), **({} if SMOKE else tables(folder)), **schemas()}


def stores(folder: Path) -> dict[str, Callable[[], str]]:
    """Write models that say they are large; return what opens each."""
    base, *_ = write_models(folder)
    strings = {"dict": [[f"a{n}", {"array": ["<U16000000", [1], ["a"]]}] for n in range(200)]}
    shape = {"is": "ColumnType", "with": {"kind": "f8", "tail": {"tuple": [2**30]}, "sparse": False, "kept": ""}}
    changes: dict[str, tuple[int, Callable[[Any], Any]]] = {
        "200 arrays of strings at the limit": (DESCRIPTION, _set("attributes", to=strings)),
        "a plan with 10^9 features": (DESCRIPTION, _set("plan", "features", to=10**9)),
        "a plan with 10^9 steps": (DESCRIPTION, _set("plan", "steps", to=10**9)),
        "a loss with 10^9 classes": (
            DESCRIPTION, _set("plan", "loss", to={"is": "Multinomial", "with": {"classes": 10**9}})
        ),
        "10^12 records": (STATE, _set("inventory", "count", to=10**12)),
        "a column of 2^30 numbers a row": (
            STATE, _set("inventory", "layout", "columns", to={"tuple": [shape, shape, shape, shape]})
        ),
    }  # fmt: skip
    actions: dict[str, Callable[[], str]] = {}
    for number, (name, (row, change)) in enumerate(changes.items()):
        path = folder / f"bomb{number}"
        for ending in ("", "-key"):
            shutil.copy(beside(base, ending), beside(path, ending))
        alter(path, change, row)
        actions[f"store: {name}"] = partial(tried, path)
    return actions


def tables(folder: Path) -> dict[str, Callable[[], str]]:
    """Write tables that are much larger when they are unpacked; return what reads each."""
    actions: dict[str, Callable[[], str]] = {}
    letters = b"x" * 2**24
    line = _packed(folder / "line.jsonl.gz", letters, 256)
    actions["JSON: one line of 4 GB"] = lambda: _read(line)
    short, end = b'{"n": 1, "a": 1}\n' * 1000, letters * 4 + b'"}\n'
    after = _packed(folder / "after.jsonl.gz", short + b'{"a": "' + letters, 1, end)
    actions["JSON: a line of 80 MB after a thousand short ones"] = lambda: _read(after)
    many = _packed(folder / "many.jsonl.gz", b'{"a": "' + b"x" * (2**24 - 20) + b'"}\n', 60)
    actions["JSON: 60 lines of 16 MB, before any is short"] = lambda: str(open_table(many).names)
    quoted = _packed(folder / "quoted.csv.gz", b'a,b\n1,"' + letters, 1, letters * 16)
    actions["CSV: a quote that is not closed for 270 MB"] = lambda: _read(quoted)
    delta = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    for name, how in (("in a dictionary", {}), ("as differences", delta)):
        table = _parquet(folder / f"{name}.parquet", **how)
        actions[f"Parquet: 60 times a text of 15 MB, {name}"] = partial(_read, table)
        actions[f"Parquet: the same {name}, as a target"] = partial(_blocks, table)
    for name, path in (("a line of 4 GB", line), ("a line of 80 MB after short ones", after)):
        actions[f"JSON, for ingest: {name}"] = partial(_blocks, path)
    actions["CSV, for ingest: a quote that is not closed for 270 MB"] = lambda: _blocks(quoted)
    zeros = _arrow(folder / "zeros.arrow")
    actions["Arrow: 2 GB of zeros in a batch"] = lambda: _read(zeros)
    actions["Arrow: the same, for ingest"] = lambda: _blocks(zeros)
    return actions


def schemas() -> dict[str, Callable[[], str]]:
    """Return what reads a schema that is deep."""
    deep = "a = " + "[" * 100_000
    return {"TOML: 100,000 lists in each other": lambda: str(parse_schema(deep))}


def confined(action: Callable[[], str]) -> str:
    """Do something in a process of its own with little memory; return what came of it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
        try:
            result = action()
        except ExpungeError as error:
            result = f"{type(error).__name__}: {error}"
        except BaseException as error:
            result = f"PLAIN {type(error).__name__}: {error}"
        os.write(writing, result[:1000].encode("utf-8", "replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read().decode() or "PLAIN killed"
    os.waitpid(child, 0)
    return result


def results() -> dict[str, str]:
    """Return what comes of each bomb, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: confined(action) for name, action in bombs(Path(folder)).items()}


def main() -> None:
    parser_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    json.dump(results(), sys.stdout)


if __name__ == "__main__":
    main()
