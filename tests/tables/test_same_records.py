"""One reader: a file gives the same records to `expunge.ingest`, whatever its kind, with a schema and without one."""

import bz2
import gzip
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

import expunge
from expunge.base.errors import BadRecords
from expunge.solvers import DualAveraging
from expunge.tables.blocks import blocks_of
from expunge.tables.forming import Block
from expunge.tables.schema import Amount, Classes, EncodedTables, Key, Numeric, Schema
from expunge.tables.schema.encoding import SHARE

COUNT = 60
rng = np.random.default_rng(5)
X = rng.integers(-64, 65, (COUNT, 3)) / 64.0  # numbers that a schema with bounds -1 and 1 encodes as they are
AMOUNT = rng.integers(-1000, 1000, COUNT) / 8.0
CLASS = rng.choice(["no", "yes", "perhaps, or not"], COUNT)
NUMBER = np.arange(COUNT) * 7 - 20
NAME = np.array([f"Änne {number:03}" for number in range(COUNT)])
WHO = rng.integers(0, 20, COUNT)
TABLE = pa.table(
    {"a": X[:, 0], "class": CLASS, "b": X[:, 1], "number": NUMBER, "name": NAME, "who": WHO, "amount": AMOUNT,
     "c": X[:, 2]}
)  # fmt: skip
FEATURES = ["c", "a", "b"]


def text(table, delimiter=","):
    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(delimiter=delimiter))
    return out.getvalue().to_pybytes()


def lines(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def in_batches(table, path, **how):
    with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(**how)) as file:
        file.write_table(table, max_chunksize=17)


def with_categories(table, path):
    at = table.schema.get_field_index("class")
    in_batches(table.set_column(at, "class", table["class"].combine_chunks().dictionary_encode()), path)


def in_a_folder(table, path):
    path.mkdir()
    (path / "1.csv").write_bytes(text(table[:10]))
    (path / "2.jsonl.gz").write_bytes(gzip.compress(lines(table[10:30])))
    parquet.write_table(table[30:40], path / "3.parquet")
    in_batches(table[40:], path / "4.arrow")
    (path / "_5.csv").write_bytes(text(table))


KINDS = {
    "t.csv": lambda table, path: path.write_bytes(text(table)),
    "semicolons.csv": lambda table, path: path.write_bytes(text(table, ";")),
    "mark.CSV": lambda table, path: path.write_bytes(b"\xef\xbb\xbf" + text(table).replace(b"\n", b"\r\n")),
    "t.tsv": lambda table, path: path.write_bytes(text(table, "\t")),
    "t.csv.gz": lambda table, path: path.write_bytes(gzip.compress(text(table))),
    "t.tsv.bz2": lambda table, path: path.write_bytes(bz2.compress(text(table, "\t"))),
    "t.jsonl": lambda table, path: path.write_bytes(lines(table)),
    "t.ndjson.gz": lambda table, path: path.write_bytes(gzip.compress(lines(table))),
    "t.json": lambda table, path: path.write_bytes(lines(table).rstrip()),
    "t.parquet": lambda table, path: parquet.write_table(table, path, row_group_size=17),
    "pandas.parquet": lambda table, path: table.to_pandas().iloc[::-1].sort_values("number").to_parquet(path),
    "t.arrow": in_batches,
    "packed.arrow": lambda table, path: in_batches(table, path, compression="zstd"),
    "categories.arrow": with_categories,
    "t.feather": lambda table, path: feather.write_feather(table, path),
    "polars.arrow": lambda table, path: pl.from_arrow(table).write_ipc(path, compression="lz4"),
    "polars.parquet": lambda table, path: pl.from_arrow(table).write_parquet(path),
    "a folder": in_a_folder,
}


def schema(target, id):
    key = Key(id, "integer" if id == "number" else "text")
    what = Amount(target, -200, 200) if target == "amount" else Classes(target, ("no", "perhaps, or not", "yes"))
    return Schema(tuple([Numeric(name, -1, 1) for name in FEATURES]), key, Key("who", "integer"), what)


@pytest.fixture
def written(tmp_path):
    def write(kind):
        path = tmp_path / kind
        KINDS[kind](TABLE, path)
        return path

    return write


@pytest.mark.parametrize("rows", [7, 65536])
@pytest.mark.parametrize(("target", "id"), [("amount", "number"), ("class", "name")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_the_same_records_by_a_schema_and_without_one(written, kind, target, id, rows):
    path = written(kind)
    blocks = list(blocks_of(path, target=target, id=id, subject="who", features=FEATURES, rows=rows))
    assert max(len(block.X) for block in blocks) <= rows
    plain = [np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]
    encoded = EncodedTables(schema(target, id), path).all()
    expected = (X[:, [2, 0, 1]], {"amount": AMOUNT, "class": CLASS}[target], {"number": NUMBER, "name": NAME}[id], WHO)
    for mine, theirs, wanted in zip(plain, encoded, expected, strict=False):
        np.testing.assert_array_equal(mine, wanted)
        if wanted is not expected[0]:
            np.testing.assert_array_equal(theirs, wanted)
            assert mine.dtype.kind == theirs.dtype.kind == wanted.dtype.kind
    share = np.float32(SHARE / np.sqrt(3))
    np.testing.assert_array_equal(encoded.X, plain[0].astype(np.float32) * share)


@pytest.mark.parametrize("kind", KINDS)
def test_models_have_the_same_records_by_a_schema_and_without_one(written, kind, tmp_path):
    path = written(kind)
    model = expunge.LogisticRegression(
        classes=["no", "perhaps, or not", "yes"], rho=0.4, solver=DualAveraging(records_per_subject=20)
    )
    names = {"target": "class", "id": "name", "subject": "who"}
    with (
        expunge.ingest(model, path, tmp_path / "plain", features=FEATURES, **names) as plain,
        expunge.ingest(model, EncodedTables(schema("class", "name"), path), tmp_path / "encoded") as encoded,
    ):
        for stored in (plain, encoded):
            assert sorted(stored.ids_) == sorted(NAME)
            assert sorted(stored.subjects_) == np.unique(WHO).tolist()
            assert stored.unlearn(subjects=[int(WHO[0])]) is not None
            assert sorted(stored.ids_) == sorted(NAME[WHO[0] != WHO])
            assert stored.verify().ok


@pytest.mark.parametrize("kind", ["pandas.parquet", "t.parquet"])
def test_an_index_of_pandas_is_no_feature(written, kind):
    assert blocks_of(written(kind), target="class", id="name").names == ["a", "b", "number", "who", "amount", "c"]


# Types of texts


def read(path, content, **names):
    path.write_text(content)
    blocks = list(blocks_of(path, **names))
    return Block._make(
        [arrays[0] if arrays[0] is None else np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]
    )


def test_types_of_texts_are_guessed(tmp_path):
    block = read(tmp_path / "t.csv", "x,z,flag,y\n 1 ,1e3,true,2020-01-01\n2,.5,False,x\n", target="y")
    assert block.X.tolist() == [[1.0, 1000.0, 1.0], [2.0, 0.5, 0.0]]
    assert block.y.tolist() == ["2020-01-01", "x"]
    assert read(tmp_path / "t.csv", "x,y\n1,true\n2,FALSE\n", target="y").y.tolist() == [True, False]
    assert read(tmp_path / "t.csv", "x,id\n1,007\n2,10\n", id="id").ids.tolist() == [7, 10]
    assert read(tmp_path / "t.csv", "x,id\n1,007\n2,1O\n", id="id").ids.tolist() == ["007", "1O"]
    assert read(tmp_path / "t.csv", "x,y\n1,1\n2,2.5\n", target="y").y.tolist() == [1.0, 2.5]


def test_in_json_a_number_in_quotes_is_a_text(tmp_path):
    content = '{"x": 1, "id": "007", "y": true}\n{"x": 2.5, "id": "8", "y": false}\n'
    block = read(tmp_path / "t.jsonl", content, id="id", target="y")
    assert (block.X.tolist(), block.ids.tolist(), block.y.tolist()) == ([[1.0], [2.5]], ["007", "8"], [True, False])
    assert read(tmp_path / "t.jsonl", '{"x": 1, "id": 7}\n{"x": 2, "id": "8"}', id="id").ids.tolist() == [7, 8]
    assert read(tmp_path / "t.jsonl", '{"x": 1, "id": 7}\n{"x": 2, "id": 8}', id="id").ids.tolist() == [7, 8]
    with pytest.raises(BadRecords, match="column 'x': string, but numbers are needed"):
        read(tmp_path / "t.jsonl", '{"x": "1"}\n{"x": "2"}')


@pytest.mark.parametrize("missing", ["", "NA", "null", "NaN", '""'])
@pytest.mark.parametrize("kind", ["whole", "number", "text"])
def test_what_stands_for_null_in_texts_is_missing(tmp_path, missing, kind):
    values = {"whole": ["1", "2"], "number": ["1.5", "2"], "text": ["a", "b"]}[kind]
    content = "x,y\n" + "".join(f"1,{value}\n" for value in [*values, missing, *values])
    with pytest.raises(BadRecords, match="column 'y': row 2 is missing"):
        read(tmp_path / "t.csv", content, target="y")


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [("7", "7.5", "a whole number"), ("0.5", "x", "a number"), ("true", "x", "true or false")],
)
def test_the_line_is_named_that_is_not_of_the_type_of_those_before(tmp_path, monkeypatch, first, later, words):
    monkeypatch.setattr("expunge.tables.limits.BLOCK", 100)
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + f"1,{first}\n" * 500 + "\n" + f"1,{later}\n" + f"1,{first}\n" * 9)
    with pytest.raises(BadRecords) as caught:
        list(blocks_of(path, target="y"))
    assert str(caught.value).startswith(f"{path}: column 'y': line 503 is not {words}, unlike the lines before it;")
    assert "EncodedTables" in str(caught.value)


@pytest.mark.parametrize("rows", [1, 1000])
def test_types_do_not_depend_on_how_many_rows_are_read_together(tmp_path, rows):
    (tmp_path / "t.csv").write_text("x,id\n1,7\n2.5,a")
    blocks = list(blocks_of(tmp_path / "t.csv", id="id", rows=rows))
    assert np.concatenate([block.ids for block in blocks]).tolist() == ["7", "a"]


def test_columns_of_lists_are_refused_unless_others_are_named(tmp_path):
    parquet.write_table(pa.table({"x": [1.0, 2.0], "list": [[1], [2]]}), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text('{"x": 1, "list": [1]}\n')
    for name in ("t.parquet", "t.jsonl"):
        with pytest.raises(BadRecords, match="column 'list' has lists or objects; leave it out"):
            list(blocks_of(tmp_path / name))
        assert [block.X[0].tolist() for block in blocks_of(tmp_path / name, features=["x"])] == [[1.0]]
