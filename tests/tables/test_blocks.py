"""Sources: every form gives the same blocks, and everything that is wrong is said with column and row."""

import gzip
import sys
import tracemalloc
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet
from scipy import sparse

from expunge.base.errors import BadPlan, BadRecords
from expunge.tables.blocks import blocks_of
from expunge.tables.forming import Block

X = np.random.default_rng(0).normal(size=(11, 3)).round(3)
Y = np.array(["no", "yes", "maybe", "no", "yes", "no", "yes", "yes", "no", "maybe", "no"])
IDS = np.arange(11) * 7 - 20
SUBJECTS = np.array(["ann", "bob", "ann", "cy", "dora", "bob", "eve", "ann", "fritz", "gil", "hermione"])
NAMES = {"target": "y", "id": "id", "subject": "who"}
TABLE = pa.table({"a": X[:, 0], "y": Y, "b": X[:, 1], "id": IDS, "who": SUBJECTS, "c": X[:, 2]})
ARRAYS = (X, Y, IDS, SUBJECTS)


def halves(table):
    return [table[:4], table[4:]]


def array_halves():
    return [tuple([array[:4] for array in ARRAYS]), tuple([array[4:] for array in ARRAYS])]


def write(folder, name, table=TABLE):
    path = folder / name
    if name.endswith(".parquet"):
        parquet.write_table(table, path, row_group_size=5)
    elif name.endswith(".csv"):
        csv.write_csv(table, path)
    elif name.endswith(".csv.gz"):
        with gzip.open(path, "wb") as file:
            csv.write_csv(table, file)
    elif name.endswith(".arrow"):
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=5)
    else:
        feather.write_feather(table, path)
    return path


def folder_of_files(folder):
    (folder / "many").mkdir()
    for row in reversed(range(11)):
        write(folder / "many", f"{row:02}.parquet", TABLE[row : row + 1])
    write(folder / "many", "_notes.parquet", TABLE)
    return folder / "many"


def memmaps(folder):
    for number, array in enumerate(ARRAYS):
        np.save(folder / f"{number}.npy", array)
    return tuple([np.load(folder / f"{number}.npy", mmap_mode="r") for number in range(4)])


FILES = {
    "parquet": lambda folder: write(folder, "t.parquet"),
    "a path as a string": lambda folder: str(write(folder, "t.parquet")),
    "csv": lambda folder: write(folder, "t.csv"),
    "csv.gz": lambda folder: write(folder, "t.csv.gz"),
    "arrow": lambda folder: write(folder, "t.arrow"),
    "feather": lambda folder: write(folder, "T.FEATHER"),
    "a list of files": lambda folder: [write(folder, "1.csv", TABLE[:4]), write(folder, "2.parquet", TABLE[4:])],
    "a generator of files": lambda folder: (file for file in sorted(folder_of_files(folder).glob("[0-9]*"))),
    "a folder": folder_of_files,
}
TABLES = {
    "Table": lambda _: TABLE,
    "Table in one chunk": lambda _: TABLE.combine_chunks(),
    "RecordBatch": lambda _: TABLE.to_batches()[0],
    "a list of Tables": lambda _: halves(TABLE),
    "a list of RecordBatches": lambda _: TABLE.to_batches(max_chunksize=4),
    "columns in another order": lambda _: [TABLE[:4], TABLE[4:].select(["who", "c", "b", "a", "y", "id"])],
    "pandas": lambda _: TABLE.to_pandas(),
    "pandas with categories": lambda _: TABLE.to_pandas().astype({"y": "category", "who": "category"}),
    "pandas with an index": lambda _: TABLE.to_pandas().set_index(X[:, 0]),
    "a list of pandas": lambda _: halves(TABLE.to_pandas()),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars with categories": lambda _: pl.from_arrow(TABLE).cast({"y": pl.Categorical}),
    "a list of polars": lambda _: halves(pl.from_arrow(TABLE)),
}
TUPLES = {
    "arrays": lambda _: ARRAYS,
    "a list of arrays": lambda _: list(ARRAYS),
    "lists beside an array": lambda _: (X, Y.tolist(), IDS.tolist(), SUBJECTS.astype(object)),
    "arrays in another order of bytes and memory": lambda _: (np.asfortranarray(X.astype(">f8")), Y, IDS, SUBJECTS),
    "memmap": memmaps,
    "a list of tuples": lambda _: array_halves(),
    "a list of tuples of lists": lambda _: [tuple([array.tolist() for array in half]) for half in array_halves()],
}
ONCE = {
    "RecordBatchReader": lambda _: TABLE.to_reader(max_chunksize=4),
    "a generator of Tables": lambda _: (half for half in halves(TABLE)),
    "a generator of pandas": lambda _: (half for half in halves(TABLE.to_pandas())),
    "a generator of polars": lambda _: iter(halves(pl.from_arrow(TABLE))),
    "a generator of tuples": lambda _: (half for half in array_halves()),
}
EVERY = FILES | TABLES | TUPLES | ONCE


def named(kind):
    return {} if kind in TUPLES or kind == "a generator of tuples" else NAMES


def together(blocks):
    return [None if arrays[0] is None else np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rows", [3, 100])
@pytest.mark.parametrize("kind", EVERY)
def test_every_source_gives_the_same_records(kind, rows, tmp_path):
    source = blocks_of(EVERY[kind](tmp_path), **named(kind), rows=rows)
    blocks = list(source)
    assert_same(together(blocks), ARRAYS)
    for block in blocks:
        assert isinstance(block, Block)
        assert 1 <= len(block.X) <= rows
        assert block.X.flags.c_contiguous
        assert all(type(array) is np.ndarray for array in block)
    assert source.names == (["a", "b", "c"] if named(kind) else None)
    assert source.total == (None if kind in ONCE or "csv" in kind or kind == "a list of files" else 11)


@pytest.mark.parametrize("kind", EVERY)
def test_a_source_can_be_read_again_if_what_it_was_made_from_can(kind, tmp_path):
    source = blocks_of(EVERY[kind](tmp_path), **named(kind))
    assert_same(together(source), ARRAYS)
    if kind in ONCE:
        with pytest.raises(BadRecords, match="read already"):
            iter(source)
    else:
        assert_same(together(source), ARRAYS)


def test_columns_that_are_not_named_are_not_read():
    frame = TABLE.to_pandas().assign(junk=[{1}] * 11, text=SUBJECTS)
    source = blocks_of(frame, features=["c", "a"], target="b")
    assert source.names == ["c", "a"]
    (block,) = source
    np.testing.assert_array_equal(block.X, X[:, [2, 0]])
    np.testing.assert_array_equal(block.y, X[:, 1])
    assert block.ids is None
    assert block.subjects is None


def test_an_array_alone_is_a_source():
    (block,) = blocks_of(X)
    np.testing.assert_array_equal(block.X, X)
    assert block[1:] == (None, None, None)
    assert [len(block.X) for block in blocks_of(iter([X[:4], X[4:]]))] == [4, 7]
    (block,) = blocks_of((X, None, IDS, None))
    assert block.y is None
    np.testing.assert_array_equal(block.ids, IDS)


def test_numbers_as_names_of_columns():
    source = blocks_of(pd.DataFrame(X), target="1")
    assert source.names == ["0", "2"]
    np.testing.assert_array_equal(together(source)[0], X[:, [0, 2]])


def test_arrays_in_files_are_read_a_block_at_a_time(tmp_path):
    array = np.memmap(tmp_path / "x", dtype=np.int16, mode="w+", shape=(2**20, 256))
    tracemalloc.start()
    try:
        source = blocks_of((array, array[:, 0]), rows=1000)
        block = next(iter(source))
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert source.total == 2**20
    assert block.X.shape == (1000, 256)


def test_arrays_in_the_right_form_are_not_copied():
    assert all(np.shares_memory(block.X, X) for block in blocks_of(ARRAYS, rows=4))


def test_a_column_may_be_both_id_and_subject():
    (block,) = blocks_of(TABLE, features=["a"], id="id", subject="id")
    assert block.ids.tolist() == block.subjects.tolist() == IDS.tolist()


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["float32"], "float32"),
        (["float16", "bool"], "float32"),
        (["int8", "int16", "uint8", "uint16", "bool", "float32"], "float32"),
        (["float32", "int32"], "float64"),
        (["uint32"], "float64"),
        (["int64", "bool"], "float64"),
        (["float32", "float64"], "float64"),
    ],
)
def test_features_are_the_smallest_floats_that_hold_their_types(kinds, expected):
    columns = {f"{number}": np.array([0, 1, 1]).astype(kind) for number, kind in enumerate(kinds)}
    for source in (pa.table(columns), pd.DataFrame(columns), pl.from_arrow(pa.table(columns))):
        assert together(blocks_of(source))[0].dtype == expected
    if len(kinds) == 1:
        assert together(blocks_of(columns["0"][:, None]))[0].dtype == expected


def test_decimals_are_numbers():
    column = pa.array([Decimal("1.5"), Decimal("2.25")])
    (block,) = blocks_of(pa.table({"a": column, "y": column}), target="y")
    assert block.X.tolist() == [[1.5], [2.25]]
    assert block.y.tolist() == [1.5, 2.25]


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "bool"])
def test_targets_keep_their_type(dtype):
    y = np.array([0, 1, 1]).astype(dtype)
    for source in ((X[:3], y), pa.table({"x": X[:3, 0], "y": y}), pl.DataFrame({"x": X[:3, 0], "y": y})):
        (block,) = blocks_of(source, **({"target": "y"} if not isinstance(source, tuple) else {}))
        assert block.y.dtype == dtype
        np.testing.assert_array_equal(block.y, y)


def test_types_are_those_of_the_first_block_where_that_is_exact():
    first = (X[:2].astype(np.float32), np.array([0, 1], dtype=np.int16))
    blocks = list(blocks_of([first, (np.full((2, 3), 0.25), np.array([1.0, 3.0]))]))
    assert [(block.X.dtype, block.y.dtype) for block in blocks] == [(np.float32, np.int16)] * 2
    assert blocks[1].X.tolist() == [[0.25] * 3] * 2
    blocks = blocks_of([(X[:2],), (X[2:].astype(np.float32),)])
    assert [block.X.dtype for block in blocks] == [np.float64] * 2


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ((np.array([[0.0, 0.0, 0.0], [0.0, 0.1, 0.0]]), [0, 1]), r"X\[:, 1\]: .* row 3; declare all as float64"),
        ((np.full((2, 3), 1e300), [0, 1]), r"X\[:, 0\]: .* row 2; declare all as float64"),
        ((np.zeros((2, 3)), [0.0, 0.5]), "y: .* row 3; declare all as float64"),
        ((np.zeros((2, 3)), [0, 2**40]), "y: .* row 3"),
        ((np.zeros((2, 3)), ["0", "1"]), "y: <U1 from row 2 on, int16 before"),
        ((np.zeros((2, 4)), [0, 1]), "X: 4 columns from row 2 on, 3 before"),
        ((np.zeros((2, 3)),), "y: given before, but not from row 2 on"),
        ((np.zeros((2, 3)), [0, 1], [5, 6]), "ids: given from row 2 on, but not before"),
        (TABLE, "Table from row 2 on; give either tables or arrays"),
        (7, "cannot read records from int"),
    ],
)
def test_a_later_block_of_another_form_is_refused(second, says):
    first = (X[:2].astype(np.float32), np.array([0, 1], dtype=np.int16))
    blocks = iter(blocks_of(iter([first, second])))
    assert len(next(blocks).X) == 2
    with pytest.raises(BadRecords, match=says):
        next(blocks)


def test_whole_numbers_that_wrap_around_are_refused():
    first = (X[:1], np.array([1], dtype=np.int64))
    with pytest.raises(BadRecords, match=r"y: .* row 1"):
        list(blocks_of([first, (X[:1], np.array([2**64 - 1], dtype=np.uint64))]))
    first = (X[:1], np.array([1.0]))
    with pytest.raises(BadRecords, match=r"y: .* row 1"):
        list(blocks_of([first, (X[:1], np.array([2**53 + 1]))]))


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (TABLE.drop(["c"]), "2 feature columns from row 4 on, 3 before"),
        (TABLE.append_column("d", [IDS]), "4 feature columns from row 4 on, 3 before"),
        (TABLE.rename_columns(["a", "y", "b", "id", "who", "d"]), "column 'c': not in the table at row 4; .*'d'"),
        (TABLE.drop(["y"]), "column 'y': not in the table at row 4"),
        (TABLE.set_column(3, "id", [SUBJECTS]), "column 'id': <U8 from row 4 on, int64 before"),
        (ARRAYS, "tuple from row 4 on; give either tables or arrays"),
    ],
)
def test_a_later_table_of_another_form_is_refused(second, says):
    blocks = iter(blocks_of(iter([TABLE[:4], second]), **NAMES))
    next(blocks)
    with pytest.raises(BadRecords, match=says):
        next(blocks)


def test_further_columns_in_a_later_table_do_no_harm_if_features_are_named():
    tables = [TABLE[:4], TABLE[4:].append_column("d", [IDS[4:]])]
    assert_same(together(blocks_of(tables, features=["a", "b", "c"], **NAMES)), ARRAYS)


def spoiled(column, value):
    values = TABLE[column].to_pylist()
    values[9] = value
    return TABLE.set_column(TABLE.schema.get_field_index(column), column, [values])


@pytest.mark.parametrize("form", ["Table", "batches", "pandas", "polars", "parquet", "csv", "arrow"])
@pytest.mark.parametrize(
    ("column", "value"),
    [("a", None), ("c", np.nan), ("b", np.inf), ("c", -np.inf), ("id", None), ("who", None), ("y", None)],
)
def test_the_column_and_row_of_what_is_missing_are_named(column, value, form, tmp_path):
    table = spoiled(column, value)
    forms = {"Table": lambda: table, "batches": lambda: table.to_batches(max_chunksize=2)}
    forms |= {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table)}
    source = forms[form]() if form in forms else write(tmp_path, f"t.{form}", table)
    rows = 100 if (form, column) == ("pandas", "id") else 4  # these ids are floats, which is said first
    with pytest.raises(BadRecords, match=f"column '{column}': row 9 is missing"):
        list(blocks_of(source, rows=rows, **NAMES))


@pytest.mark.parametrize(
    ("position", "value", "says"),
    [
        (0, np.nan, r"X\[:, 2\]: row 9 is missing"),
        (0, np.inf, r"X\[:, 2\]: row 9 is missing"),
        (1, np.nan, "y: row 9 is missing"),
        (2, None, "ids: row 9 is missing"),
        (3, None, "subjects: row 9 is missing"),
    ],
)
def test_the_row_of_what_is_missing_in_arrays_is_named(position, value, says):
    arrays = [X.copy(), np.zeros(11), IDS.astype(str).astype(object), SUBJECTS.astype(object)]
    arrays[position][(9, 2) if position == 0 else 9] = value
    with pytest.raises(BadRecords, match=says):
        list(blocks_of(tuple(arrays), rows=4))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ((X, Y[:5]), "y: 5 for the 11 rows of X from row 0 on"),
        ((X, Y, IDS[:3]), "ids: 3 for the 11 rows"),
        ((X, Y, IDS, SUBJECTS[:4]), "subjects: 4 for the 11 rows"),
        ((X, Y, IDS, SUBJECTS, Y), "5 arrays at row 0"),
        ((X, X), "y: expected a flat array"),
        ((X[:, 0], Y), "X: expected a table"),
        ((X[:, :0], Y), r"X: expected a table, .* got shape \(11, 0\)"),
        ([(None, Y)], "X: expected a table, .* got None"),
        ((X.astype(str), Y), "X: expected numbers, got <U"),
        ((X, Y.astype("S")), "y: expected numbers or strings, got .S5"),
        ((X, np.array([{}] * 11)), "y: expected numbers or strings, got object"),
        ((X, Y, X[:, 0]), "ids: ids must be integers or strings, got float64"),
        ((X, Y, X[:, 0] > 0), "ids: got a mask"),
        ((X, Y, IDS, X[:, 0]), "subjects: ids must be integers or strings"),
        ((np.ma.masked_array(X), Y), "X: a masked array"),
        ((X, np.ma.masked_array(IDS)), "y: a masked array"),
        ((X, sparse.csr_array(X)), "y: sparse"),
        ([(sparse.csr_array(X), Y), (X, Y)], "X: dense from row 11 on, sparse before"),
        ([(X, Y), (sparse.csr_array(X), Y)], "X: sparse from row 11 on, dense before"),
        (
            (sparse.csr_array(np.where(np.arange(33).reshape(11, 3) == 16, np.inf, X)), Y),
            r"X\[:, 1\]: row 5 is missing",
        ),
        ((sparse.csr_array(X, dtype=complex), Y), "X: expected numbers, got complex"),
        ([()], "0 arrays at row 0"),
        ({"a": X}, "cannot read records from dict"),
        (3, "cannot read records from int"),
        (b"t.csv", "cannot read records from bytes"),
        ([3], "cannot read records from int"),
        ((pd.DataFrame(X), pd.Series(Y)), "cannot read records from Series"),
        ("nowhere.parquet", "nowhere.parquet: no such file"),
        (["nowhere.csv"], "nowhere.csv: no such file"),
    ],
)
def test_what_cannot_be_read_is_refused(source, says):
    with pytest.raises(BadRecords, match=says):
        list(blocks_of(source))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"target": "z"}, "column 'z': not in the table at row 0; there are 'a', 'y', 'b', 'id', 'who', 'c'"),
        ({"id": "z"}, "column 'z'"),
        ({"subject": "z"}, "column 'z'"),
        ({"features": ["a", "z"]}, "column 'z'"),
        ({"features": []}, "no feature columns; there are 'a'"),
        ({"features": ["a", "b", "a"]}, "column 'a': duplicate name"),
        ({"features": ["a", "y"], "target": "y"}, "column 'y': a feature, but also target"),
        ({"target": "y"}, "column 'who': (large_)?string, but numbers are needed; .* features="),
        ({"features": ["a"], "id": "b"}, "column 'b': ids must be integers or strings, got float64"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "csv", "pandas"])
def test_wrong_names_of_columns_are_refused(names, says, form, tmp_path):
    source = TABLE.to_pandas() if form == "pandas" else write(tmp_path, f"t.{form}")
    with pytest.raises(BadRecords, match=says):
        list(blocks_of(source, **names))


@pytest.mark.parametrize("name", ["target", "id", "subject"])
def test_columns_of_arrays_cannot_be_named(name):
    with pytest.raises(BadRecords, match=f"{name}='y': the columns of arrays have no names"):
        blocks_of(ARRAYS, **{name: "y"})
    with pytest.raises(BadRecords, match="features="):
        blocks_of(ARRAYS, features=["y"])


def test_a_name_that_stands_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"])
    for source in (table, table.to_pandas()):
        for features in (None, ["a"]):
            with pytest.raises(BadRecords, match="column 'a': duplicate name"):
                blocks_of(source, features=features)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s"), pa.list_(pa.int8()), pa.binary(3)])
def test_dates_lists_and_bytes_are_refused(kind):
    column = pa.nulls(2, kind).fill_null(pa.scalar({pa.list_(pa.int8()): [1], pa.binary(3): b"abc"}.get(kind, 3), kind))
    table = pa.table({"a": [1.0, 2.0], "d": column})
    with pytest.raises(BadRecords, match=r"column 'd': .* but numbers are needed"):
        list(blocks_of(table))
    with pytest.raises(BadRecords, match="column 'd': expected numbers or strings"):
        list(blocks_of(table, target="d"))
    with pytest.raises(BadRecords, match="column 'd': ids must be integers or strings"):
        list(blocks_of(table, id="d"))


def test_uuids_become_strings():
    ids = [uuid.UUID(int=7**40 * number) for number in range(11)]
    expected = np.array([str(one) for one in ids])
    raw = pa.array([one.bytes for one in ids], pa.binary(16))
    columns = [raw, pa.ExtensionArray.from_storage(pa.uuid(), raw)]
    sources = [pa.table({"x": X[:, 0], "id": column}) for column in columns]
    sources.append(pd.DataFrame({"x": X[:, 0], "id": ids}))
    for source in sources:
        found = together(blocks_of(source, id="id", rows=4))[2]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == "U36"
    np.testing.assert_array_equal(together(blocks_of((X, None, np.array(ids)), rows=4))[2], expected)


def test_no_records_are_an_empty_stream(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n")
    empty = TABLE.select(["a", "b", "y"])[:0]
    sources = [empty, empty.to_pandas(), pl.from_arrow(empty), write(tmp_path, "t.parquet", empty), tmp_path / "t.csv"]
    for source in sources:
        stream = blocks_of(source, target="y")
        assert stream.names == ["a", "b"]
        assert list(stream) == []
        assert stream.total in (0, None)
    for source in ([], iter([]), (X[:0], Y[:0]), [(X[:0], Y[:0], [])]):
        assert list(blocks_of(source)) == []
    blocks = list(blocks_of([(X[:0], [], []), (X, Y, SUBJECTS)]))
    assert_same(together(blocks)[:1], [X])


def test_no_columns_are_refused():
    with pytest.raises(BadRecords, match="no feature columns"):
        blocks_of(pa.table({}))
    with pytest.raises(BadRecords, match="no feature columns"):
        blocks_of(TABLE.select(["y"]), target="y")


def test_files_and_folders_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "t.txt").write_text("a\n1\n")
    with pytest.raises(BadRecords, match=r"t.txt: unknown kind of file; give one that ends in .csv, .tsv"):
        blocks_of(tmp_path / "t.txt")
    with pytest.raises(BadRecords, match="a folder without tables"):
        blocks_of(tmp_path)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather", "t.csv.gz"])
def test_files_that_are_damaged_are_named(name, tmp_path):
    (tmp_path / name).write_bytes(b"nonsense" * 10)
    with pytest.raises(BadRecords, match=f"{name}: cannot be read"):
        list(blocks_of(tmp_path / name))


def test_a_csv_file_may_have_whole_numbers_before_others(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "1,2\n" * 1_500_000 + "0.5,3\n")
    *_, last = blocks_of(path, target="y")
    assert last.X[-1].tolist() == [0.5]
    assert last.y.dtype == np.int64


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3\n", "t.csv: line 3 .1 field, where the header has 2.; fix the file, or read it by a schema"),
        ("a,b\n1,x\n", "column 'b': string"),
        ("", "t.csv: empty; give a file with a line of column names"),
        ("a,b\n1,2\n,3\n", "'a': row 1"),
    ],
)
def test_the_row_of_a_csv_file_that_is_wrong_is_named(text, says, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadRecords, match=says):
        list(blocks_of(tmp_path / "t.csv"))


def test_types_of_a_csv_file_can_be_declared(tmp_path):
    (tmp_path / "t.csv").write_text("x,id\n1,007\n2,008\n")
    declared = csv.ConvertOptions(column_types={"x": pa.float32(), "id": pa.string()})
    (block,) = blocks_of(csv.open_csv(tmp_path / "t.csv", convert_options=declared), id="id")
    assert block.ids.tolist() == ["007", "008"]
    assert block.X.dtype == np.float32


def test_without_pyarrow_arrays_can_be_read_and_files_say_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path, "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_same(together(blocks_of(ARRAYS)), ARRAYS)
    for source in (path, TABLE, pd.DataFrame(X), pl.DataFrame(X)):
        with pytest.raises(BadPlan, match=r"install 'expunge\[arrow\]'"):
            blocks_of(source)


def test_impossible_settings_are_refused():
    with pytest.raises(BadPlan, match="rows=0"):
        blocks_of(ARRAYS, rows=0)
    with pytest.raises(BadPlan, match="features='abc'"):
        blocks_of(TABLE, features="abc")
