"""Tables by an attacker: no line, value or batch is larger than it may be, and what is honest is read all the same."""

import gzip
import time
import tracemalloc

import numpy as np
import pytest

import expunge
from expunge.base.errors import BadPlan, BadRecords
from expunge.tables import limits
from expunge.tables.arrow import of_parquet
from expunge.tables.blocks import blocks_of
from expunge.tables.files import open_table
from expunge.tables.reading import Broken
from expunge.tables.schema import Classes, EncodedTables, Numeric, Schema
from expunge.tables.schema.toml import parse_schema

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ipc = pytest.importorskip("pyarrow.ipc")


def by_blocks(path):
    return list(blocks_of(path, target="a"))


def by_a_schema(path):
    return EncodedTables(Schema((Numeric("b", 0, 1),), target=Classes("a", ("x", "y"))), path, on_error="skip").all()


def by_ingest(path):
    model = expunge.LogisticRegression(classes=["x", "y"], rho=0.4, solver="dual_averaging")
    return expunge.ingest(model, path, path.parent / "model", target="a")


def by_ingest_with_a_schema(path):
    schema = Schema((Numeric("b", 0, 1),), target=Classes("a", ("x", "y")))
    model = expunge.LogisticRegression(classes=["x", "y"], rho=0.4, solver="dual_averaging")
    return expunge.ingest(model, EncodedTables(schema, path, on_error="skip"), path.parent / "model")


both_ways = pytest.mark.parametrize("way", [by_blocks, by_a_schema, by_ingest, by_ingest_with_a_schema])


def rows_of(path, rows=65536):
    chunks = list(open_table(path).chunks(None, Broken(), rows))
    return [row for chunk in chunks for row in zip(*(one.to_pylist() for one in chunk.columns.values()), strict=True)]


@pytest.fixture
def small(monkeypatch):
    """Limits of a few hundred bytes."""
    monkeypatch.setattr(limits, "BLOCK", 100)
    monkeypatch.setattr(limits, "LONGEST", 300)
    monkeypatch.setattr(limits, "BUDGET", 1000)


def test_a_long_line_of_json_is_named_with_its_limit(tmp_path, monkeypatch, small):
    monkeypatch.setattr(limits, "LONGEST", 2**20)
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1500 + b'{"a": "' + b"x" * 2**21 + b'"}\n'))
    with pytest.raises(BadRecords, match="line 1501 is longer than 1 MB; write one record per line"):
        rows_of(path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n"])
def test_json_lines_across_blocks_are_whole(tmp_path, small, end):
    lines = [b'{"a": "%s", "b": %d}' % (b"x" * (number % 90), number) for number in range(200)]
    (tmp_path / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + end)
    assert rows_of(tmp_path / "t.jsonl") == [("x" * (number % 90), str(number)) for number in range(200)]


def test_objects_that_lack_most_columns_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("expunge.tables.json_lines._CELLS", 50)
    (tmp_path / "t.jsonl").write_text('{"a": 1, "b": 2, "c": 3}\n' + "{}\n" * 100)
    chunks = list(open_table(tmp_path / "t.jsonl").chunks(None, Broken()))
    assert max(len(chunk.lines) for chunk in chunks) <= 50 // 3
    assert np.concatenate([chunk.lines for chunk in chunks]).tolist() == [*range(1, 102)]


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"  \n"], ids=["LF", "CRLF", "spaces"])
@pytest.mark.parametrize("header", [b"", b"a,b\n", b"a\n"], ids=["none", "two", "one"])
def test_blank_lines_are_passed_over_soon_and_need_no_room(header, line, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST", 2**20)
    monkeypatch.setattr(limits, "BLOCK", 2**19)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(line * 2_000_000 + header + line * 2_000_000, 1))
    began = time.process_time()
    tracemalloc.start()
    try:
        if header:
            assert rows_of(path) == []
        else:
            with pytest.raises(BadRecords, match=r"t.csv.gz: empty; give a file with a line of column names"):
                rows_of(path)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5.0


def test_lines_are_counted_past_any_number_of_blank_ones(tmp_path, small):
    (tmp_path / "t.csv").write_bytes(b"\n" * 5000 + b" \r\na;b\n" + b"\r\n" * 5000 + b"1;2\n\n\n3;4")
    chunks = list(open_table(tmp_path / "t.csv").chunks(None, Broken()))
    assert np.concatenate([chunk.lines for chunk in chunks]).tolist() == [10_003, 10_006]
    assert rows_of(tmp_path / "t.csv") == [("1", "2"), ("3", "4")]


def test_too_many_columns_and_too_long_a_header_are_named(tmp_path, monkeypatch, small):
    (tmp_path / "t.csv").write_text(",".join(f"column{number}" for number in range(200)))
    with pytest.raises(BadRecords, match="the header is longer than 0 MB"):
        open_table(tmp_path / "t.csv")
    monkeypatch.setattr(limits, "MOST_COLUMNS", 2)
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(BadRecords, match="3 columns, but a table may have at most 2"):
        open_table(tmp_path / "t.csv")


DELTA = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}


@pytest.mark.parametrize("how", [{}, {"use_dictionary": False}, DELTA], ids=["dictionary", "plain", "delta"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_parquet_is_read_in_parts_within_the_budget(tmp_path, small, how, kind):
    texts = [None if number % 7 == 0 else "x" * (number % 250) for number in range(300)]
    table = pa.table({"a": pa.array(texts).cast(kind), "b": np.arange(300), "c": np.arange(300) % 2 == 0})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=170, **how)
    batches = list(of_parquet(tmp_path / "t.parquet").read(["b", "a", "c"], 64))
    assert pa.Table.from_batches(batches).column("b").to_pylist() == [*range(300)]
    found = [one for batch in batches for one in batch.column("a").cast(pa.string()).to_pylist()]
    assert found == texts
    room = [sum(len(text or "") for text in batch.column("a").cast(pa.string()).to_pylist()) for batch in batches]
    assert max(room) <= 1000
    assert max(map(len, batches)) <= 64


@pytest.mark.parametrize("how", [{}, DELTA], ids=["dictionary", "delta"])
def test_a_long_value_of_parquet_is_named(tmp_path, small, how):
    pq.write_table(pa.table({"b": [1.0] * 40, "a": ["y"] * 30 + ["x" * 301] * 10}), tmp_path / "t.parquet", **how)
    with pytest.raises(BadRecords, match=r"t.parquet: column 'a': row 31 has 301 bytes, but a value may have at most"):
        rows_of(tmp_path / "t.parquet")
    with pytest.raises(BadRecords, match="column 'a': row 31"):
        list(blocks_of(tmp_path / "t.parquet", target="a"))


# The same files, whoever reads them


def write_arrow(path, table, compression=None, rows=None):
    with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table, max_chunksize=rows)
    return path


LONG = pa.table({"b": [1.0] * 40, "a": ["y"] * 30 + ["x" * 301] * 10})
HOSTILE = {
    "JSON: a long line": (
        "t.jsonl.gz",
        lambda path: path.write_bytes(gzip.compress(b'{"a": "x", "b": 1}\n' * 9 + b'{"a": "' + b"x" * 999 + b'"}\n')),
        "line 10 is longer than|lines of more than",
    ),
    "CSV: a long line": (
        "t.csv.gz",
        lambda path: path.write_bytes(gzip.compress(b"a,b\n" + b"x,1\n" * 9 + b"x" * 2000 + b",1\n")),
        "line 11 is longer than",
    ),
    "CSV: a long header": (
        "t.csv", lambda path: path.write_text("a,b," + "c" * 999), "the header is longer than"
    ),
    "CSV: many columns": (
        "t.csv", lambda path: path.write_text(",".join("abcdefghijklm") + "\n"), "13 columns, but a table may have"
    ),
    "Parquet: a long value, often": ("t.parquet", lambda path: pq.write_table(LONG, path), "'a': row 31 has 301"),
    "Parquet: a long value as differences": (
        "t.parquet", lambda path: pq.write_table(LONG, path, **DELTA), "column 'a': row 31 has 301 bytes"
    ),
    "Arrow: a long value": ("t.arrow", lambda path: write_arrow(path, LONG, rows=7), "column 'a': row 31 has 301"),
    "Arrow: a long value, often": (
        "t.feather",
        lambda path: write_arrow(path, LONG.set_column(1, "a", LONG["a"].combine_chunks().dictionary_encode())),
        "column 'a': row 31 has 301 bytes",
    ),
    "Arrow: a batch that is packed well": (
        "t.arrow",
        lambda path: write_arrow(path, pa.table({"b": np.zeros(200_000), "a": pa.nulls(200_000, pa.int64())}), "zstd"),
        "bytes must be unpacked together, but the limit is [0-9,]*; write it in batches of fewer rows, or as Parquet",
    ),
    "Arrow: a dictionary that is packed well": (
        "t.arrow",
        lambda path: write_arrow(
            path,
            pa.table({"b": [0.5], "a": pa.DictionaryArray.from_arrays([0], ["x", "y" * 1_000_000])}),
            "lz4",
        ),
        "bytes must be unpacked together",
    ),
    "Arrow: many columns": (
        "t.arrow", lambda path: write_arrow(path, pa.table({name: [1] for name in "abcdefghijklm"})), "13 columns, but"
    ),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_file_is_refused_whoever_reads_it(hostile, way, tmp_path, monkeypatch, small):
    monkeypatch.setattr(limits, "MOST_COLUMNS", 9)
    monkeypatch.setattr(limits, "UNPACKED", 10_000)
    name, write, says = HOSTILE[hostile]
    write(tmp_path / name)
    with pytest.raises(BadRecords, match=says):
        way(tmp_path / name)
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_how_large_an_arrow_file_is_unpacked_is_told_as_it_is(tmp_path, monkeypatch, compression):
    kinds = pa.array(["x" * 100, "y"] * 50_000).dictionary_encode()
    table = pa.table({"a": np.arange(100_000.0), "b": kinds, "c": [str(number) for number in range(100_000)]})
    path = write_arrow(tmp_path / "t.arrow", table, compression, 60_000)
    most = 60_000 * (8 + 4 + 9) + 101 + 12  # numbers, codes and texts of the first batch; the dictionary
    monkeypatch.setattr(limits, "UNPACKED_TIMES", 0)
    monkeypatch.setattr(limits, "UNPACKED", round(0.9 * most))
    with pytest.raises(BadRecords, match=r"[0-9,]{9} bytes must be unpacked together"):
        rows_of(path)
    monkeypatch.setattr(limits, "UNPACKED", round(1.1 * most))
    assert len(rows_of(path)) == 100_000


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_an_arrow_file_with_wrong_bytes_is_read_or_refused(tmp_path, compression):
    texts = pa.array(["ab", "c", "ddd", "z", "e"] * 10)
    table = pa.table({"a": texts, "b": np.arange(50.0), "who": texts.dictionary_encode(), "id": np.arange(50)})
    path = write_arrow(tmp_path / "t.arrow", table, compression, 20)
    sound, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(300):
        data = bytearray(sound)
        for place in rng.integers(len(data), size=3):
            data[place] = rng.integers(256)
        path.write_bytes(data)
        try:
            list(blocks_of(path, target="a", id="id", subject="who"))
        except BadRecords:
            refused += 1
    assert 100 < refused < 300


def test_categories_and_empty_files_of_parquet_are_read(tmp_path, small):
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert rows_of(tmp_path / "t.parquet") == [("x", 1), ("y", 2), ("x", 3)]
    pq.write_table(table[:0], tmp_path / "t.parquet")
    assert rows_of(tmp_path / "t.parquet") == []


def test_texts_of_a_source_take_no_more_room_than_they_may(monkeypatch):
    monkeypatch.setattr("expunge.tables.limits.MOST_TEXT", 400)
    table = pa.table({"n": [1.0, 2.0, 3.0], "y": ["a", "b" * 50, "c"]})
    with pytest.raises(BadRecords, match="column 'y': a text of 50 letters in row 1; shorten it"):
        list(blocks_of(table, target="y"))


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 10_000, "a = " + "{a = " * 10_000, "[" + ".".join(["a"] * 50_000) + "]"]
)
def test_schemas_that_are_nested_too_deeply_are_refused(text):
    with pytest.raises(BadPlan, match=r"nested too deeply|invalid TOML|format"):
        parse_schema(text)
