"""Numbers with commas and units, dates in other orders, files in Latin-1: read as declared, and drafted with a mark."""

import gzip
import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import expunge
from expunge.base.errors import BadPlan, BadRecords
from expunge.solvers import DualAveraging
from expunge.store.state import KNOWN
from expunge.tables.schema import Amount, Classes, Date, EncodedTables, Key, Numeric, Schema, Text, draft
from expunge.tables.schema.toml import parse_schema, schema_toml
from expunge.tables.schema.writing import plain_number

EUROPEAN = Schema(
    (
        Numeric("rent", 0, 2000, decimal=",", thousands=".", unit="€"),
        Numeric("share", 0, 100, decimal=",", unit="%", missing="flag"),
        Date("since", "2000-01-01", "2030-01-01", format="%d.%m.%Y"),
    ),
    Key("id"), target=Amount("paid", -1000, 1000, decimal=",", thousands=".", unit="€"),
)  # fmt: skip


# --- numbers ---


@pytest.mark.parametrize(
    ("text", "way", "plain"),
    [
        ("1.234,56", (",", ".", ""), "1234.56"),
        ("12,5", (",", "", ""), "12.5"),
        (",5", (",", "", ""), ".5"),
        ("1,5e3", (",", "", ""), "1.5e3"),
        ("1,234,567.8", (".", ",", ""), "1234567.8"),
        ("1\u00a0234,5", (",", " ", ""), "1234.5"),
        ("1\u202f234 567", (",", " ", ""), "1234567"),
        ("1’234.50", (".", "'", ""), "1234.50"),
        ("12 %", (".", "", "%"), "12"),
        ("€ 1.234", (",", ".", "€"), "1234"),
        ("1.234 €", (",", ".", "€"), "1234"),
        ("-€5", (".", "", "€"), "-5"),
        ("€-5", (".", "", "€"), "-5"),
        ("\u22125 €", (".", "", "€"), "-5"),
        ("Fr. 5.10", (".", "", "Fr."), "5.10"),
        ("7", (",", ".", "€"), "7"),
        # none
        ("1.23", (",", ".", ""), ""),
        ("1.2345", (",", ".", ""), ""),
        ("0.123", (",", ".", ""), ""),
        ("12.345.6", (",", ".", ""), ""),
        ("1234.567", (",", ".", ""), ""),
        ("1,2,3", (",", "", ""), ""),
        ("$5", (".", "", "€"), ""),
        ("5 €€", (".", "", "€"), ""),
        ("--5", (".", "", ""), ""),
        ("€", (".", "", "€"), ""),
        ("", (".", "", "€"), ""),
        (",", (",", "", ""), ""),
        ("１", (",", "", ""), ""),
        ("1_0", (",", "", ""), ""),
        ("inf", (",", "", ""), ""),
    ],
)
def test_numbers_are_read_as_declared_or_not_at_all(text, way, plain):
    assert plain_number(text, *way) == plain


@given(st.integers(-(10**12), 10**12), st.sampled_from([(",", "."), (".", ","), (",", " "), (".", "'")]))
def test_what_is_written_so_is_read_back(number, way):
    decimal, thousands = way
    text = f"{number / 100:,.2f}".translate({ord(","): thousands, ord("."): decimal})
    assert float(plain_number(f"{text} €", decimal, thousands, "€")) == number / 100


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"decimal": ";"}, "decimal = ';'"),
        ({"thousands": "_"}, "thousands = '_'"),
        ({"thousands": "."}, "also the decimal sign"),
        ({"unit": "5"}, "unit = '5'"),
        ({"unit": 5}, "unit = 5"),
        ({"unit": " %"}, "unit = ' %'"),
    ],
)
def test_impossible_ways_are_refused(fields, says):
    for kind in (Numeric, Amount):
        with pytest.raises(BadPlan, match=rf"columns\.a: .*{says}"):
            kind("a", 0, 1, **fields)


@pytest.mark.parametrize("format", ["%d.%m", "%A %d.%m.%Y", "%", "%d.%m.%Y %Z", "day", 5, "%d.%d.%Y", "%x"])
def test_impossible_formats_are_refused(format):
    with pytest.raises(BadPlan, match=r"columns\.a: format = "):
        Date("a", "2000-01-01", "2001-01-01", format=format)


# --- the same from every file ---


def write_all(folder):
    """The same two records in four files: as texts, as texts in JSON and Parquet, and as numbers and dates."""
    texts = [("a", "1.234,50 €", "12,5 %", "31.12.2025", "-1,25 €"), ("b", "7", "", "01.02.2003", "1.000 €")]
    names = ("id", "rent", "share", "since", "paid")
    lines = [";".join(names), *(";".join(row) for row in texts)]
    (folder / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    rows = [dict(zip(names, row, strict=True)) for row in texts]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(pa.Table.from_pylist(rows), folder / "t.parquet")
    typed = [
        {"id": "a", "rent": 1234.5, "share": 12.5, "since": date(2025, 12, 31), "paid": Decimal("-1.250")},
        {"id": "b", "rent": 7.0, "share": None, "since": date(2003, 2, 1), "paid": Decimal("1000.000")},
    ]
    parquet.write_table(pa.Table.from_pylist(typed), folder / "typed.parquet")
    written = [{**row, "since": f"{row['since']:%d.%m.%Y}", "paid": float(row["paid"])} for row in typed]
    (folder / "typed.jsonl").write_text("\n".join(map(json.dumps, written)))
    return [folder / name for name in ("t.csv", "t.jsonl", "t.parquet", "typed.parquet", "typed.jsonl")]


def test_a_value_is_the_same_number_whatever_file_it_comes_from(tmp_path):
    blocks = [EncodedTables(EUROPEAN, file).all() for file in write_all(tmp_path)]
    for block in blocks:
        np.testing.assert_array_equal(block.X, blocks[0].X)
        assert block.y.tolist() == [-1.25, 1000.0]
    share = 1 / np.sqrt(3)
    np.testing.assert_allclose(blocks[0].X[0] / share, [0.2345, -0.75, 0, 0.7332], atol=1e-4)
    np.testing.assert_allclose(blocks[0].X[1][1:3] / share, [0, 1], atol=1e-5)


def test_a_json_number_is_never_taken_for_thousands(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1.234}\n{"a": "1.234"}\n{"a": 1234}\n')
    schema = Schema((Numeric("b", 0, 1),), target=Amount("a", 0, 2000, decimal=",", thousands="."))
    (tmp_path / "t.jsonl").write_text('{"a": 1.234, "b": 0}\n{"a": "1.234", "b": 0}\n{"a": 1234, "b": 0}\n')
    assert EncodedTables(schema, tmp_path / "t.jsonl").all().y.tolist() == [1.234, 1234.0, 1234.0]


def test_what_is_not_written_so_is_named_by_line(tmp_path):
    (tmp_path / "t.csv").write_text("id;rent;share;since;paid\na;1.23;5;31.12.2025;1\nb;1;5;12/31/2025;$ 5\n")
    found = EncodedTables(EUROPEAN, tmp_path / "t.csv", on_error="skip")
    list(found.blocks())
    assert [(line, why) for _, line, why in found.broken.first] == [
        (2, "column 'rent': not a number"), (3, "column 'since': not a day or time that is written as %d.%m.%Y"),
    ]  # fmt: skip


# --- stored with the model ---


def test_a_schema_goes_through_toml_and_files_and_older_ones_are_still_read():
    schema = parse_schema(schema_toml(EUROPEAN))
    assert schema == EUROPEAN
    assert KNOWN.read(KNOWN.write(EUROPEAN)) == EUROPEAN
    plain = Schema((Numeric("a", 0, 1), Date("b", "2000-01-01", "2001-01-01")), target=Amount("y", 0, 1))
    old = KNOWN.write(plain).replace(',"decimal":".","thousands":"","unit":""', "").replace(',"format":""', "")
    old = old.replace(',"encoding":"utf-8"', "")
    assert not any(word in old for word in ("decimal", "thousands", "unit", "format", "encoding"))
    assert KNOWN.read(old) == plain
    assert "\nencoding =" not in schema_toml(plain)


# --- drafts ---


def drafted(folder, **columns):
    """What becomes of columns of texts, beside one of numbers that is the target."""
    rows = len(next(iter(columns.values())))
    lines = [";".join([*columns, "y"])]
    lines += [";".join([*row, str(number % 2)]) for number, row in enumerate(zip(*columns.values(), strict=True))]
    (folder / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    found = draft(folder / "t.csv", target="y", ranges=True)
    assert found.rows == rows
    assert parse_schema(schema_toml(found.schema, found.notes)) == found.schema
    return {one.name: one for one in found.schema.features}, found.notes


def written(decimal=",", thousands="", form="{}"):
    numbers = [f"{97.1 * number:,.1f}" for number in range(100)]
    return [form.format(one.translate({ord(","): thousands, ord("."): decimal})) for one in numbers]


def test_unusual_numbers_are_drafted_and_marked(tmp_path):
    found, notes = drafted(
        tmp_path, comma=written(), swiss=written(".", "'"), percent=written(form="{} %"), plain=written("."),
        rent=written(thousands=".", form="{} €"), dollars=written(".", ",", "${}"), whole=["12"] * 50 + ["7"] * 50,
    )  # fmt: skip
    high = found["comma"].high
    assert found["comma"] == Numeric("comma", 0, high, decimal=",")
    assert found["swiss"] == Numeric("swiss", 0, high, thousands="'")
    assert found["percent"] == Numeric("percent", 0, high, decimal=",", unit="%")
    assert found["rent"] == Numeric("rent", 0, high, decimal=",", thousands=".", unit="€")
    assert found["dollars"] == Numeric("dollars", 0, high, thousands=",", unit="$")
    assert found["plain"] == Numeric("plain", 0, high)
    assert found["whole"] == Numeric("whole", 7, 12)
    assert notes["rent"] == "numbers; guessed: decimal comma, point between thousands, unit €; check"
    assert "guessed" not in notes["plain"] + notes["whole"]


def test_what_can_be_read_in_two_ways_is_marked_so(tmp_path):
    both = [f"{1 + number},{100 + number}" for number in range(99)]
    found, notes = drafted(tmp_path, both=both)
    assert found["both"].thousands == ","
    assert "the sign could separate" in notes["both"]
    assert "guessed: " in notes["both"]
    found, notes = drafted(tmp_path, both=both, other=written()[:99])  # which leaves no doubt
    assert (found["both"].decimal, found["both"].thousands) == (",", "")
    assert "the sign could separate" in notes["both"]
    points = [text.replace(",", ".") for text in both]
    found, notes = drafted(tmp_path, both=points)
    assert (found["both"].decimal, found["both"].thousands) == (".", "")
    assert "check" in notes["both"]
    found, notes = drafted(tmp_path, both=points, other=written()[:99])
    assert (found["both"].decimal, found["both"].thousands) == (",", ".")


def test_numbers_of_several_units_are_left_out(tmp_path):
    found, notes = drafted(tmp_path, price=["5 €", "$ 6.50", "7 %"] * 30, a=[str(number) for number in range(90)])
    assert "price" not in found
    assert "in several formats" in notes["price"]


@pytest.mark.parametrize(
    ("form", "format", "said"),
    [
        ("{1:02}.{0:02}.{2}", "%d.%m.%Y", "guessed: day before month; check"),
        ("{1}/{0}/{2}", "%d/%m/%Y", "guessed: day before month; check"),
        ("{0:02}/{1:02}/{2}", "%m/%d/%Y", "guessed: month before day; check"),
        ("{0:02}-{1:02}-{2} 10:30", "%m-%d-%Y %H:%M", "guessed: month before day; check"),
        ("{2}/{0:02}/{1:02}", "%Y/%m/%d", "guessed: year before month; check"),
    ],
)
def test_unusual_dates_are_drafted_and_marked(form, format, said, tmp_path):
    days = [form.format(1 + number % 12, 1 + number % 28, 2015 + number % 9) for number in range(100)]
    found, notes = drafted(tmp_path, day=days)
    assert found["day"] == Date("day", "2015-01-01", "2024-01-01", format=format)
    assert notes["day"] == f"dates; {said}"


def test_dates_that_could_be_either_are_marked_so(tmp_path):
    for sign in "./":
        days = [f"{1 + number % 12:02}{sign}{1 + number % 11:02}{sign}2020" for number in range(100)]
        found, notes = drafted(tmp_path, day=days)
        assert found["day"].format == f"%d{sign}%m{sign}%Y"
        assert "guessed: day before month; month before day would fit as well; check" in notes["day"]


def test_a_target_with_commas_is_an_amount(tmp_path):
    (tmp_path / "t.csv").write_text("x;y\n" + "\n".join(f"{number};{text}" for number, text in enumerate(written())))
    found = draft(tmp_path / "t.csv", target="y")
    assert found.schema.target == Amount("y", decimal=",")
    assert "guessed: decimal comma; check" in found.notes["y"]


# --- encodings ---


LATIN = "größe;stadt;gut\n" + "\n".join(
    f"{150 + number % 40};{['Köln', 'Düsseldorf', 'Bonn'][number % 3]};{['ja', 'nö'][number % 2]}"
    for number in range(60)
)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_latin_1_is_read_as_declared_and_drafted_as_a_guess(name, tmp_path):
    data = LATIN.encode("cp1252")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = draft(tmp_path / name, target="gut", id=None)
    text = schema_toml(found.schema, found.notes, guessed=found.encoding_guessed)
    assert 'encoding = "cp1252" # guessed; check' in text
    assert any("cp1252, which is a guess" in remark for remark in found.remarks)
    schema = parse_schema(text)
    assert schema.encoding == "cp1252"
    assert schema.target == Classes("gut", ("ja", "nö"))
    assert {one.name for one in schema.features} == {"größe", "stadt"}
    block = EncodedTables(schema, tmp_path / name).all()
    (tmp_path / "u.csv").write_text(LATIN, encoding="utf-8")
    again = EncodedTables(schema, tmp_path / "u.csv", encoding="utf-8").all()
    np.testing.assert_array_equal(block.X, again.X)
    assert block.y.tolist() == again.y.tolist()
    assert not draft(tmp_path / "u.csv", target="gut").encoding_guessed


def test_latin_1_that_is_not_declared_is_an_error_that_says_how(tmp_path):
    (tmp_path / "t.csv").write_bytes("a;b\n1;x\n2;Köln\n".encode("latin-1"))
    schema = Schema((Numeric("a", 0, 9), Text("b")))
    with pytest.raises(BadRecords, match=r'line 3 \(byte 0xF6 is not UTF-8\); .*declare encoding = "cp1252"'):
        EncodedTables(schema, tmp_path / "t.csv").all()


def test_utf_8_that_is_declared_as_latin_1_is_noticed(tmp_path):
    schema = Schema((Numeric("a", 0, 9), Text("b")), encoding="cp1252")
    (tmp_path / "t.csv").write_text("a;b\n1;x\n2;Köln\n", encoding="utf-8")
    with pytest.raises(BadRecords, match=r"t\.csv: is UTF-8, not cp1252 as declared; give --encoding utf-8"):
        EncodedTables(schema, tmp_path / "t.csv").all()
    (tmp_path / "t.csv").write_text("a;b\n1;x\n2;Köln\n", encoding="utf-8-sig")
    assert EncodedTables(schema, tmp_path / "t.csv").all().X.shape[0] == 2
    (tmp_path / "t.csv").write_text("a;b\n1;x\n", encoding="ascii")
    assert EncodedTables(schema, tmp_path / "t.csv").all().X.shape[0] == 1
    (tmp_path / "t.csv").write_text("a;b\n1;x\n", encoding="utf-16")
    with pytest.raises(BadRecords, match="UTF-16"):
        EncodedTables(schema, tmp_path / "t.csv").all()


def test_bytes_that_an_encoding_does_not_have_break_their_line(tmp_path):
    schema = Schema((Numeric("a", 0, 9), Text("b")), encoding="cp1252")
    (tmp_path / "t.csv").write_bytes(b"a;b\n1;x\n2;\x81\xfc\n3;\xfc\n")
    found = EncodedTables(schema, tmp_path / "t.csv", on_error="skip")
    assert found.all().X.shape[0] == 2
    assert found.broken.first[0][1:] == (3, "byte 0x81 is not cp1252")
    (tmp_path / "t.jsonl").write_bytes(b'{"a": 1, "b": "x"}\n{"a": 1, "b": "\x81"}\n{"a": 1, "b": "\xfc"}\n')
    found = EncodedTables(schema, tmp_path / "t.jsonl", on_error="skip")
    assert found.all().X.shape[0] == 2
    assert found.broken.first[0][1:] == (2, "byte 0x81 is not cp1252")


def test_one_bad_byte_does_not_make_a_utf_8_file_latin_1(tmp_path):
    (tmp_path / "t.csv").write_bytes(LATIN.encode() + b"\n160;K\xf6ln;ja\n")
    found = draft(tmp_path / "t.csv", target="gut")
    assert found.schema.encoding == "utf-8"
    assert found.broken.count == 1


@pytest.mark.parametrize("encoding", ["utf-16", "klingon", "", 5, "cp932", "unicode_escape", "hex", "../x", "cp037"])
def test_encodings_that_cannot_be_are_refused(encoding):
    with pytest.raises(BadPlan, match="encoding = "):
        Schema((Numeric("a", 0, 9),), encoding=encoding)


def test_a_long_file_is_recoded_in_pieces(tmp_path):
    schema = Schema((Numeric("a", 0, 9), Text("b")), encoding="cp1252")
    words = [f"{number % 9};{'ü€ß' * (number % 50)}{number}" for number in range(3_000)]
    text = "a;b\n" + "\n".join(words)
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    (tmp_path / "u.csv").write_text(text, encoding="utf-8")
    one = EncodedTables(schema, tmp_path / "t.csv").all()
    other = EncodedTables(schema, tmp_path / "u.csv", encoding="utf-8").all()
    np.testing.assert_array_equal(one.X, other.X)
    assert len(one.lines) == 3_000


def test_a_model_keeps_how_its_tables_are_written(tmp_path):
    row = "p{0};{0},5 €;{1},5 %;0{2}.11.2020;{1},25".format
    lines = [row(number, number % 100, 1 + number % 9) for number in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["id;rent;share;since;paid", *lines]), encoding="utf-8")
    wanted = expunge.HuberRegressor(solver=DualAveraging(target_range=(-100, 200)))
    expunge.ingest(wanted, EncodedTables(EUROPEAN, tmp_path / "t.csv"), tmp_path / "m.expunge").close()
    with expunge.open(tmp_path / "m.expunge", read_only=True) as model:
        assert model.schema_ == EUROPEAN
