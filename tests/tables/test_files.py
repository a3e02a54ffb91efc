"""Raw tables: every kind of file gives the same chunks, and what is broken is said with its line."""

import bz2
import csv
import gzip
import io
import json
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from expunge.base.errors import BadPlan, BadRecords
from expunge.tables import delimited, limits
from expunge.tables.files import open_table, open_tables
from expunge.tables.reading import Broken

COLUMNS = {"name": ["Ann", "Bo", "Cy"], "größe [m]": ["1.5", "", "1.75"], "a.b": ["x", "y", "z"]}
CSV = "name,größe [m],a.b\nAnn,1.5,x\nBo,,y\nCy,1.75,z\n".encode()
OBJECTS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
JSONL = "".join(json.dumps(one) + "\n" for one in OBJECTS).encode()


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def read(path, columns=None, on_error="skip", rows=65536):
    """Return (line, values...) of each row, and (line, reason) of each broken one."""
    broken = Broken(on_error)
    found = []
    for chunk in open_table(path).chunks(columns, broken, rows):
        assert chunk.file == path
        assert chunk.lines.dtype == np.int64
        assert 0 < len(chunk.lines) <= rows
        assert {len(column) for column in chunk.columns.values()} <= {len(chunk.lines)}
        found += zip(chunk.lines.tolist(), *[column.to_pylist() for column in chunk.columns.values()], strict=True)
    assert broken.count >= len(broken.first)
    return found, [(line, reason) for _, line, reason in broken.first]


@contextmanager
def blocks_of(size):
    """Read texts in small blocks."""
    usual = limits.BLOCK
    limits.BLOCK = size
    try:
        yield
    finally:
        limits.BLOCK = usual


@contextmanager
def record_by_record():
    """Read CSV without PyArrow."""
    usual = delimited.Delimited._at_once
    delimited.Delimited._at_once = lambda *_: None
    try:
        yield
    finally:
        delimited.Delimited._at_once = usual


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


# Kinds of files


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv", CSV),
        ("T.CSV", b"\xef\xbb\xbf" + CSV),
        ("t.tsv", CSV.replace(b",", b"\t")),
        ("semicolons.csv", CSV.replace(b",", b";")),
        ("bars.csv", CSV.replace(b",", b"|")),
        ("spaces.csv", CSV.replace(b",", b" , ")),
        ("crlf.csv", CSV.replace(b"\n", b"\r\n")),
        ("no-newline.csv", CSV.rstrip()),
        ("t.csv.gz", gzip.compress(CSV, mtime=0)),
        ("t.csv.bz2", bz2.compress(CSV)),
        ("t.jsonl", JSONL),
        ("t.json", b"\xef\xbb\xbf" + JSONL.rstrip()),
        ("t.ndjson.gz", gzip.compress(JSONL, mtime=0)),
    ],
)
def test_every_kind_of_text_gives_the_same_rows(tmp_path, name, data):
    path = write(tmp_path, name, data)
    table = open_table(path)
    assert (table.names, table.total, table.size_bytes) == (list(COLUMNS), None, len(data))
    first = 1 if "json" in name else 2
    rows = [(first + number, *one.values()) for number, one in enumerate(OBJECTS)]
    assert read(path, on_error="stop") == (rows, [])
    assert read(path, ["a.b", "name"], rows=1) == ([(row[0], row[3], row[1]) for row in rows], [])
    assert read(path, []) == ([row[:1] for row in rows], [])
    assert table.position() == 0
    list(table.chunks(None, Broken()))
    assert table.position() == table.size_bytes


def test_parquet_comes_as_it_is_with_categories_as_values(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [1, None, 3], "a.b": [0.5, 1.5, 2.5], "c": pa.array(["x", None, "x"]).dictionary_encode(),
                      "list": [[1], [2], []]})  # fmt: skip
    parquet.write_table(table, path, row_group_size=2)
    opened = open_table(path)
    assert (opened.names, opened.nested, opened.total) == (["a", "a.b", "c"], ["list"], 3)
    assert read(path, on_error="stop") == ([(1, 1, 0.5, "x"), (2, None, 1.5, None), (3, 3, 2.5, "x")], [])
    assert read(path, ["c", "a"], rows=1)[0] == [(1, "x", 1), (2, None, None), (3, "x", 3)]
    chunk = next(opened.chunks(None, Broken(), 2))
    assert [column.type for column in chunk.columns.values()] == [pa.int64(), pa.float64(), pa.string()]
    assert 0 < opened.position() < opened.size_bytes
    with pytest.raises(BadRecords, match="column 'list' has lists or objects; leave it out"):
        list(opened.chunks(["a", "list"], Broken()))


def test_json_lines_have_numbers_as_they_are_written_and_null_for_absent_keys(tmp_path):
    lines = [
        '{"a": 1, "b": 12345678901234567890, "deep": {"x": 1}}',
        "",
        '{"b": 1.50, "a": true, "c": null}',
        '{"a": " ü\\u00fc ", "late": 1, "b": "", "c": -1e5}',
    ]
    path = write(tmp_path, "t.jsonl", "\n".join(lines))
    assert (open_table(path).names, open_table(path).nested) == (["a", "b", "c", "late"], ["deep"])
    rows = [(1, "1", "12345678901234567890", None), (3, "true", "1.50", None), (4, "üü", "", "-1e5")]
    assert read(path, ["a", "b", "c"], "stop") == (rows, [])


def test_broken_json_lines_are_named_with_reasons(tmp_path):
    lines = [
        '{"a": 1}', "[1]", '{"a": 2', '{"a": NaN}', b'{"a": "\xff"}', "7", '{"a": [1]}', '{"a": "\\ud800"}',
        '{"a": "x\\u0000"}', '{"a": ' + "[" * 10**5, '{"a": 3}',
    ]  # fmt: skip
    data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    path = write(tmp_path, "t.jsonl", b'{"a": 0}\n' * 1000 + data)
    reading_first = Broken("skip")
    rows = [row for chunk in open_table(path).chunks(None, reading_first) for row in chunk.columns["a"].to_pylist()]
    assert rows == ["0"] * 1000 + ["1", "3"]
    assert reading_first.count == 9
    assert [(line, reason) for _, line, reason in reading_first.first] == [
        (1002, "not an object"), (1003, "not JSON from character 8 on"), (1004, "NaN, which is not JSON"),
        (1005, "byte 0xFF is not UTF-8"), (1006, "not an object"),
    ]  # fmt: skip
    last = write(tmp_path, "u.jsonl", b'{"a": 0}\n' * 1000 + b"\n".join(data.split(b"\n")[6:]))
    assert [reason for _, reason in read(last)[1]] == [
        "a list or object in column 'a'", "a NUL, or half a character", "a NUL, or half a character",
        "nested too deeply",
    ]  # fmt: skip


# CSV, line by line


def test_lines_are_exact_after_line_breaks_blank_lines_and_broken_lines(tmp_path):
    text = (
        'a;b\n1;2\n\n"x\ny";3\n4;5;6\n  \n7;"8" \r\n\r\n9;"bad\n1;"2"3\n 5 ; "p;""q" \n6\n7;5" pipe\n'
        '8;\0\n9;\xff\n10;x\ry\n11;"y\r\nz"\n'
    )
    rows, broken = read(write(tmp_path, "t.csv", text.encode("latin1")))
    assert rows == [
        (2, "1", "2"), (4, "x\ny", "3"), (8, "7", "8"), (12, "5", 'p;"q'), (14, "7", '5" pipe'), (18, "11", "y\r\nz"),
    ]  # fmt: skip
    undoubled = "a quote inside a value that is not doubled"
    assert broken == [
        (6, "3 fields, where the header has 2"), (10, undoubled), (11, undoubled),
        (13, "1 field, where the header has 2"), (15, "a NUL byte"),
    ]  # fmt: skip
    tail = "a;b\n" + "".join(text.partition("6\n7")[2].partition("\n")[2])
    assert read(write(tmp_path, "u.csv", tail.encode("latin1")))[1] == [
        (2, "a NUL byte"), (3, "byte 0xFF is not UTF-8"), (4, "CR without LF")
    ]  # fmt: skip


def test_a_quote_that_is_not_closed_is_named_where_it_opens_and_swallows_nothing(tmp_path):
    path = write(tmp_path, "t.csv", 'a,b\n1,2\n"x\ny","open\n3,4\n5,6\n')
    assert read(path) == ([(2, "1", "2"), (5, "3", "4"), (6, "5", "6")], [(4, "a quote that is not closed")])
    with blocks_of(8):
        assert read(path) == ([(2, "1", "2"), (5, "3", "4"), (6, "5", "6")], [(4, "a quote that is not closed")])


def test_a_quote_is_given_up_before_a_large_file_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST", 1000)
    path = write(tmp_path, "t.csv", 'a,b\n1,"2\n' + "3,4\n" * 3000)
    with blocks_of(100):
        rows, broken = read(path)
    assert (len(rows), broken) == (3000, [(2, "a quote that is not closed")])
    with blocks_of(100), pytest.raises(BadRecords, match="line 2 is longer than"):
        read(write(tmp_path, "u.csv", "a,b\n" + "x" * 2000 + ",1\n"))


values = st.text(st.sampled_from('ab1ü ",;|\n'), max_size=6)
tables = st.integers(2, 4).flatmap(lambda width: st.lists(st.lists(values, min_size=width, max_size=width), max_size=8))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tables, st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(0, 8)), st.data())
def test_lines_and_values_are_those_of_the_csv_module(folder, rows, delimiter, newline, blanks, data):
    width = len(rows[0]) if rows else 2
    broken = data.draw(st.lists(st.integers(0, 8), max_size=3))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=newline)
    writer.writerow([f"name {number}" for number in range(width)])
    for number, row in enumerate(rows):
        text.write(newline * blanks.count(number))
        if number in broken:
            writer.writerow([*row, "x"])
        writer.writerow(row)
    path = folder / "written.csv"
    path.write_bytes(text.getvalue().encode())
    oracle, wrong = [], []
    reader = csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=delimiter)
    line = 1
    for row in reader:
        if line > 1 and len(row) == width:
            oracle.append((line, *[value.strip() for value in row]))
        elif line > 1 and row:
            wrong.append((line, f"{width + 1} fields, where the header has {width}"))
        line = reader.line_num + 1
    with blocks_of(data.draw(st.sampled_from([4, 11, 40, 2**22]))):
        assert read(path, rows=data.draw(st.integers(1, 5))) == (oracle, wrong[:5])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(st.sampled_from('ab,,""\n\n\r \0ü'), max_size=40), st.integers(1, 3), st.sampled_from([4, 7, 20]))
def test_whatever_a_file_holds_it_is_read_the_same_at_once_and_record_by_record(folder, text, width, size):
    path = folder / "any.csv"
    path.write_bytes(f"{','.join('xyz'[:width])}\n{text}".encode())
    whole = read(path)
    with record_by_record():
        assert read(path) == whole
        with blocks_of(size):
            assert read(path) == whole
    with blocks_of(size):
        assert read(path) == whole


def test_reading_needs_little_memory_whatever_the_size(tmp_path):
    line = "1234567,some words of text,2020-01-01,0.12345\n"
    path = write(tmp_path, "t.csv", "a,b,c,d\n" + line * 400_000)
    with blocks_of(2**18):
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        rows = peak = 0
        for chunk in open_table(path).chunks(None, Broken()):
            rows += len(chunk.lines)
            peak = max(peak, pa.total_allocated_bytes() - before)
        peak += tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert rows == 400_000
    assert peak < path.stat().st_size / 5


# What is wrong


def test_broken_records_stop_the_reading_with_lines_and_a_remedy(tmp_path):
    path = write(tmp_path, "t.csv", "a,b\n1,2\n" + "3\n" * 3 + '"4\n' + "5\n" * 6)
    message = (
        f"{path}: lines 3, 4, 5 (1 field, where the header has 2), line 6 (a quote that is not closed), "
        "line 7 (1 field, where the header has 2), and at least 5 more; fix the file, or leave such records out with "
        'on_error="skip" (--on-error skip).'
    )
    with pytest.raises(BadRecords) as caught:
        read(path, on_error="stop")
    assert str(caught.value) == message
    with pytest.raises(BadPlan, match='on_error=\'never\': give "stop" or "skip"'):
        Broken("never")


def test_broken_rows_of_several_files_are_told_apart():
    broken = Broken("skip")
    broken.check()
    for file, line in (("a.csv", 2), ("a.csv", 3), ("b.parquet", 1)):
        broken.add(Path(file), np.int64(line), "no number")
    assert str(broken) == "a.csv: lines 2, 3 (no number), b.parquet: row 1 (no number)"
    broken.check()
    broken.on_error = "stop"
    with pytest.raises(BadRecords):
        broken.check()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", "empty; give a file with a line of column names"),
        ("t.csv", b"\xef\xbb\xbf \n\r\n", "empty"),
        ("t.csv", b"1,2.5,-3\n4,5,6\n", "no header, only numbers in the first line; add a line of column names"),
        ("t.csv", b"a,,b,\n", "columns number 2, 4 without a name; name every column"),
        ("t.csv", b"a, b,b \n", "columns number 2, 3 are all named 'b'; rename all but one"),
        ("t.csv", b'"a,b\n1,2\n', r"header is broken \(a quote that is not closed\)"),
        ("t.csv", b"gr\xf6\xdfe,b\n1,2\n", r"broken \(byte 0xF6 is not UTF-8\); if .*cp1252.* save the"),
        ("t.csv", b"a,b\r1,2\r", r"header is broken \(CR without LF\)"),
        ("t.csv", "a,b\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("t.csv", b"\x89PNG\0\0\0\n", "is not a text"),
        ("t.csv", b"PAR1abc", "is a Parquet file; rename it"),
        ("t.csv", gzip.compress(CSV, mtime=0), "is compressed with gzip; rename it"),
        ("t.csv.gz", CSV, "cannot be read .*damaged"),
        ("t.csv.gz", gzip.compress(CSV, mtime=0)[:-10], "cannot be read .*cut short"),
        ("t.csv.bz2", bz2.compress(CSV)[:-10], "cannot be read .*cut short"),
        ("t.parquet", b"PAR1", "cannot be read"),
        ("t.parquet.gz", b"", "unknown kind of file; give one that ends in .csv, .tsv, .jsonl"),
        ("t.xlsx", b"PK", "unknown kind of file"),
        ("t.jsonl", b"\n", "empty; give a file with a JSON object on every line"),
        ("t.json", b'[{"a": 1},\n{"a": 2}]', r"no JSON objects on its lines; .* \(jq -c '\.\[\]' does this"),
        ("t.json", b'{\n"a": 1\n}\n', "no JSON objects on its lines; write every record as one, on a line"),
        ("t.jsonl", "{}".encode("utf-16"), "is UTF-16"),
    ],
)
def test_files_that_are_no_tables_are_named_with_a_remedy(tmp_path, name, data, message):
    path = write(tmp_path, name, data)
    with pytest.raises(BadRecords, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_parquet_file_cut_short_or_damaged_inside_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": np.arange(10_000) % 977}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    with pytest.raises(BadRecords, match="cannot be read"):
        open_table(write(tmp_path, "cut.parquet", bytes(data[: len(data) // 2])))
    data[4:200] = b"\xff" * 196
    with pytest.raises(BadRecords, match=r"bad\.parquet: cannot be read"):
        read(write(tmp_path, "bad.parquet", bytes(data)))


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    assert read(write(tmp_path, "t.csv", "a,b"), on_error="stop") == ([], [])
    parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", on_error="stop") == ([], [])


def test_columns_that_lack_are_all_named_with_those_most_like_them(tmp_path):
    path = write(tmp_path, "t.csv", "Age,Weight [kg],Name\n1,2,3\n")
    with pytest.raises(BadRecords) as caught:
        read(path, ["age", "weight[kg]", "Name"])
    assert str(caught.value) == (
        f"{path}: no columns 'age', 'weight[kg]'; there is 'Age', 'Weight [kg]'. Check the names."
    )
    with pytest.raises(BadRecords, match="no column 'zzz'; there are 'Age', 'Weight \\[kg\\]', 'Name'"):
        read(path, ["zzz"])


def test_folders_give_their_tables_in_order_and_missing_files_are_named(tmp_path):
    inside = tmp_path / "many"
    inside.mkdir()
    with pytest.raises(BadRecords, match="many: a folder without tables; put files there that end in"):
        open_tables([inside])
    for name in ("2.csv", "1.jsonl", "_3.csv", ".4.csv", "notes.txt"):
        write(inside, name, JSONL if name.endswith("l") else CSV)
    assert [table.path.name for table in open_tables([inside, inside / "2.csv"])] == ["1.jsonl", "2.csv", "2.csv"]
    with pytest.raises(BadRecords, match="many: a folder; give one of the files in it"):
        open_table(inside)
    with pytest.raises(BadRecords, match=r"gone\.csv: no such file; check the path"):
        open_tables([inside, str(tmp_path / "gone.csv")])


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, "t.csv", CSV)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BadRecords, match=r"t\.csv: cannot be read \(permission denied\)"):
        open_table(path)


def test_a_file_that_changed_since_it_was_opened_is_named(tmp_path):
    path = write(tmp_path, "t.csv", CSV)
    table = open_table(path)
    write(tmp_path, "t.csv", b"other,names\n1,2\n")
    with pytest.raises(BadRecords, match="header has changed since it was opened"):
        list(table.chunks(["name"], Broken()))
    path.unlink()
    with pytest.raises(BadRecords, match="cannot be read"):
        list(table.chunks(["name"], Broken()))
