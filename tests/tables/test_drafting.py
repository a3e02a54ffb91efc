"""Drafts: every kind of column is guessed as one would, the notes say why, and none tells a value."""

import json
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from expunge.base.errors import BadPlan, BadRecords
from expunge.tables.schema import profiles
from expunge.tables.schema.columns import Amount, Categorical, Classes, Date, Hashed, Key, Numeric, Text
from expunge.tables.schema.drafting import draft, round_range
from expunge.tables.schema.naming import names_a_thing, names_people, names_records, names_target, tells_who, words
from expunge.tables.schema.toml import parse_schema, schema_toml

ROWS = 200
RNG = np.random.default_rng(0)
WORDS = ["pain", "in", "the", "left", "leg", "since", "yesterday", "no", "fever"]


def draws(values, **options):
    return RNG.choice(values, ROWS, **options).tolist()


MESSY = {
    "row id": range(1, ROWS + 1),
    "PatientNo": [f"P{number:03}" for number in RNG.integers(60, size=ROWS)],
    "Größe [cm]": [" n/a " if number < 150 else number for number in RNG.integers(140, 196, size=ROWS)],
    "born": RNG.integers(1951, 2004, size=ROWS),
    'said "so"': [" ".join(RNG.choice(WORDS, 6)) for _ in range(ROWS)],
    "seen on": [f"2021-0{month}-1{month} 10:00" if month else "?" for month in RNG.integers(0, 10, size=ROWS)],
    "city": [f"city{number}" for number in RNG.integers(110, size=ROWS)],
    "charges": [f"{number:.2f}" for number in np.exp(RNG.normal(size=ROWS) * 3 + 4)],
    "sex": ["m", "f"] * 98 + ["x"] * 4,
    "e-mail": [f"a{number}@b.org" for number in range(ROWS)],
    "call sign": [f"{number:x}-tango" for number in range(ROWS)],
    "zip": [f"0{number}" for number in RNG.integers(1000, 1100, size=ROWS)],
    "day": [f"{number}.11.2025" for number in RNG.integers(10, 29, size=ROWS)],
    "weight": [f"{number / 10:.1f}".replace(".", ",") for number in RNG.integers(400, 990, size=ROWS)],
    "country": ["NL"] * ROWS,
    "unused": [""] * ROWS,
    "sick?": draws(["yes", "no"]),
}


def write(folder, columns, name="t.csv"):
    lines = [columns, *zip(*columns.values(), strict=True)]
    quoted = (";".join('"' + str(value).replace('"', '""') + '"' for value in line) for line in lines)
    (folder / name).write_text("\n".join(quoted), encoding="utf-8")
    return folder / name


def parts(drafted):
    return {part.name: part for part in drafted.schema.features}


def test_a_messy_table_is_drafted_as_one_would(tmp_path):
    drafted = draft(write(tmp_path, MESSY), ranges=True)
    schema = drafted.schema
    assert (drafted.rows, drafted.broken.count, drafted.remarks) == (ROWS, 0, ())
    assert schema.id == Key("row id", "integer")
    assert schema.subject == Key("PatientNo", "text")
    assert schema.target == Classes("sick?", ("no", "yes"))
    assert schema.features == (
        Numeric("Größe [cm]", 150, 200, missing="flag"),
        Numeric("born", 1950, 2010),
        Text('said "so"'),
        Date("seen on", "2021-01-01", "2022-01-01", "flag"),
        Hashed("city", 128),
        Numeric("charges", 0, parts(drafted)["charges"].high, "log"),
        Categorical("sex", ("f", "m", "x")),
        Hashed("zip", 128),
        Date("day", "2025-01-01", "2026-01-01", format="%d.%m.%Y"),
        Numeric("weight", 0, 100, decimal=","),
    )
    assert schema.ignored == ("e-mail", "call sign", "country", "unused")
    assert not schema.confirmed
    assert list(drafted.notes) == list(MESSY)
    assert drafted.notes["sick?"] == "guessed: it is the last column; 2 values"
    assert drafted.notes["sex"] == "3 values; some are rare: they may identify a person, so consider leaving them out"
    assert drafted.notes["day"] == "dates; guessed: day before month; check"
    assert drafted.notes["weight"] == "numbers; guessed: decimal comma; check"
    assert drafted.notes["call sign"] == "nearly all values differ: it may name people"
    assert "missing" in drafted.notes["Größe [cm]"]


def test_numbers_get_no_ranges_if_there_is_a_target_since_these_would_tell_the_largest(tmp_path):
    path = write(tmp_path, MESSY)
    found = parts(draft(path))
    assert found["charges"] == Numeric("charges", scale="log")
    assert found["seen on"] == Date("seen on", missing="flag")
    assert draft(path, target="charges").schema.target == Amount("charges")
    of_points = {name: MESSY[name] for name in ("city", "zip")} | {"born": MESSY["born"], "kind": ["a"] * ROWS}
    points = draft(write(tmp_path, of_points), ignore=["kind", "city", "zip"]).schema
    assert (points.target, points.without_range) == (None, ())


def test_of_a_target_whose_values_are_left_out_it_is_said_that_records_are_refused(tmp_path):
    note = draft([write(tmp_path, MESSY)], target="sex").notes["sex"]
    assert "consider leaving them out; records with other values are then refused, unless you give --on-error" in note


def test_a_draft_becomes_toml_that_is_read_back_the_same(tmp_path):
    drafted = draft(write(tmp_path, MESSY))
    text = schema_toml(drafted.schema, drafted.notes)
    assert parse_schema(text) == drafted.schema
    assert all(f"# {note}" in text for note in drafted.notes.values())


def test_roles_that_are_asked_for_are_taken_as_they_are(tmp_path):
    path = write(tmp_path, MESSY)
    drafted = draft([path], target="Größe [cm]", id="e-mail", subject="zip", ignore=["born", "city"], ranges=True)
    schema = drafted.schema
    assert (schema.id, schema.subject) == (Key("e-mail", "text"), Key("zip", "text"))
    assert schema.target == Amount("Größe [cm]", 150, 200)
    assert {"born", "city", "row id", "PatientNo"} <= {*schema.ignored, *parts(drafted)}
    assert drafted.notes["born"] == drafted.notes["e-mail"] == "as asked"
    assert "missing: such records are refused" in drafted.notes["Größe [cm]"]
    assert draft(path, id="zip").notes["zip"] == "as asked; but values repeat: ids must differ"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"target": "sick"}, BadRecords, r"no column 'sick'; there is 'sick\?'"),
        ({"id": "rowid", "ignore": ["cty"]}, BadRecords, "no columns 'rowid', 'cty'; there is 'row id', 'city'"),
        ({"target": "city", "subject": "city"}, BadPlan, "subject='city': the column is the target already"),
        ({"id": "city", "ignore": ["city"]}, BadPlan, "id='city': the column is to be ignored already"),
        ({"ignore": "city"}, BadPlan, "ignore='city': give a list of names"),
        ({"target": "country"}, BadRecords, "target='country': it has no two values; choose a column of numbers"),
        ({"target": "unused"}, BadRecords, "target='unused': it has no two values"),
    ],
)
def test_roles_that_cannot_be_are_refused(tmp_path, asked, error, message):
    with pytest.raises(error, match=message):
        draft(write(tmp_path, MESSY), **asked)


def test_a_target_of_very_many_texts_is_refused(tmp_path):
    path = write(tmp_path, {"a": range(300), "b": [f"x{number}" for number in range(300)]})
    with pytest.raises(BadRecords, match="target='b': it has 300 different texts; choose a column of numbers"):
        draft(path, target="b")


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ([0, 1], Classes("y", (0, 1))),
        (["3.0", "1", "2"], Classes("y", (1, 2, 3))),
        ([0.5, 1.5], Amount("y")),
        (range(21), Amount("y")),
        (["b", "a", "?"], Classes("y", ("a", "b"))),
        (["01", "02"], Classes("y", ("01", "02"))),
    ],
)
def test_targets_are_values_if_they_are_few_and_amounts_otherwise(tmp_path, values, target):
    column = [list(values)[number % len(values)] for number in range(100)]
    other = RNG.normal(size=100)
    assert draft(write(tmp_path, {"y": column, "x": other})).schema.target == target
    assert draft(write(tmp_path, {"was": column, "x": other}), target="was").schema.target.name == "was"


def test_the_last_column_of_numbers_or_categories_is_the_target_if_no_name_says_so(tmp_path):
    columns = {name: MESSY[name] for name in ("sex", "Größe [cm]", 'said "so"', "city", "e-mail")}
    drafted = draft(write(tmp_path, columns))
    assert drafted.schema.target == Amount("Größe [cm]")
    assert drafted.notes["Größe [cm]"].startswith("guessed: it is the last column")
    alone = draft(write(tmp_path, {"sex": MESSY["sex"]}))
    assert (alone.schema.target, [*parts(alone)]) == (None, ["sex"])
    named = draft(write(tmp_path, {"Label": MESSY["sex"], "b": MESSY["born"], "c": MESSY["born"]}))
    assert named.schema.target.name == "Label"
    assert named.notes["Label"].startswith("guessed from its name")


def test_ids_and_subjects_are_guessed_by_name_only_if_their_values_fit(tmp_path):
    numbers, twice = list(range(100)), [number // 2 for number in range(100)]
    x = {"x": RNG.normal(size=100)}

    def keys(columns):
        drafted = draft(write(tmp_path, columns | x | {"y": twice}))
        return [key and (key.name, key.type) for key in (drafted.schema.id, drafted.schema.subject)], drafted

    assert keys({"customer": numbers})[0] == [("customer", "integer"), None]
    assert keys({"customer": twice, "order_id": numbers})[0] == [("order_id", "integer"), ("customer", "integer")]
    assert keys({"userId": numbers, "id": numbers})[0] == [("id", "integer"), None]
    assert keys({"uuid": [f"{number:032x}" for number in numbers]})[0] == [("uuid", "text"), None]
    assert keys({"id": [f"{number:03}" for number in numbers]})[0] == [("id", "text"), None]
    found, drafted = keys({"id": twice, "body mass index": [number + 0.5 for number in numbers]})
    assert found == [None, None]
    assert drafted.remarks == ("there is no id column, so records will be numbered",)
    found, drafted = keys({"id": ["", *numbers[1:]], "patient": ["-", *twice[1:]]})
    assert found == [None, ("patient", "integer")]
    assert drafted.notes["id"] == (
        "named like an id: nothing to learn from; it cannot be the id, since values repeat or are missing"
    )
    assert drafted.notes["patient"].endswith("; some are missing: such records are refused")
    shops = [f"shop{number % 7}" for number in range(100)]
    assert parts(keys({"shop_id": shops})[1])["shop_id"] == Categorical("shop_id", tuple(sorted(set(shops))))


def test_some_values_that_are_no_numbers_or_dates_are_taken_for_mistakes(tmp_path):
    days = [f"2020-01-{number % 28 + 1:02}" for number in range(100)]
    columns = {"a": ["about 5", *range(1, 100)], "b": ["2020-02-30", *days[1:]], "c": days, "d": range(100)}
    drafted = draft(write(tmp_path, columns), ranges=True)
    assert parts(drafted)["a"] == Numeric("a", 0, 100)
    assert (
        drafted.notes["a"] == 'whole numbers; some are not numbers: fix them, or add what is written there to "missing"'
    )
    assert parts(drafted)["b"] == Date("b", "2020-01-01", "2021-01-01")
    assert "some are not dates" in drafted.notes["b"]
    assert "no dates" not in drafted.notes["c"]


def test_parquet_and_json_lines_are_drafted_by_their_types(tmp_path):
    number = range(60)
    table = pa.table({
        "id": number, "float": [value / 7 for value in number], "whole": [float(value % 5) for value in number],
        "flag": [value % 2 == 0 for value in number], "day": [date(2019, 1, 1 + value % 28) for value in number],
        "time": [datetime(2019, 1, 1 + value % 28, 3) for value in number], "price": list(map(Decimal, number)),
        "kind": pa.array(["a", "b", None] * 20).dictionary_encode(), "raw": [b"x"] * 60, "list": [[1]] * 60,
        "null": pa.nulls(60),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    drafted = draft(tmp_path / "t.parquet", target="whole", ranges=True)
    assert drafted.schema.target == Classes("whole", (0, 1, 2, 3, 4))
    assert drafted.schema.features == (
        Numeric("float", 0, 10), Categorical("flag", ("false", "true")), Date("day", "2019-01-01", "2020-01-01"),
        Date("time", "2019-01-01", "2020-01-01"), Numeric("price", 0, 60), Categorical("kind", ("a", "b")),
    )  # fmt: skip
    assert drafted.schema.ignored == ("raw", "null", "list")
    assert drafted.notes["raw"].startswith("of type binary")
    assert drafted.notes["list"] == "holds lists or objects"
    with pytest.raises(BadRecords, match="target='list': the column holds lists or objects"):
        draft(tmp_path / "t.parquet", target="list")
    lines = [json.dumps({"a": value, "b": value % 2 == 0, "deep": {}}) for value in number]
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, "broken"]))
    drafted = draft(tmp_path / "t.jsonl")
    assert drafted.schema.features == (Numeric("a"),)
    assert (drafted.schema.target, drafted.schema.ignored) == (Classes("b", ("false", "true")), ("deep",))
    assert (drafted.rows, drafted.broken.count) == (60, 1)


def test_several_files_are_one_table(tmp_path):
    first = write(tmp_path, {"a": range(100), "b": ["x", "y"] * 50}, "1.csv")
    second = write(tmp_path, {"b": ["z", "y"] * 50, "a": range(1000, 1100)}, "2.csv")
    drafted = draft([first, second], ranges=True)
    assert drafted.rows == 200
    assert (parts(drafted)["a"].high, drafted.schema.target.values) == (1500, ("x", "y", "z"))
    third = write(tmp_path, {"a": range(9)}, "3.csv")
    with pytest.raises(BadRecords, match=r"3\.csv: no column 'b'"):
        draft([first, third])


def test_tables_without_records_or_features_are_refused(tmp_path):
    with pytest.raises(BadRecords, match="no records to draft a schema from; give at least one"):
        draft(write(tmp_path, {"a": [], "b": []}))
    with pytest.raises(BadRecords, match="no feature columns"):
        draft(write(tmp_path, {"id": range(9), "b": ["x"] * 9}))
    (tmp_path / "t.csv").write_text("a,b\n1\n2\n")
    with pytest.raises(BadRecords, match=r"all are broken .*lines 2, 3"):
        draft(tmp_path / "t.csv")
    with pytest.raises(BadRecords, match="no files"):
        draft([])


def test_of_many_values_a_few_are_kept_and_their_number_is_estimated(monkeypatch):
    monkeypatch.setattr(profiles, "KEPT", 500)
    profile = profiles.Profile([""])
    for start in range(0, 50_000, 5000):
        profile.add(pa.array([f"v{number}" for number in range(start, start + 5000)]))
    assert len(profile.kept) <= 500
    assert not profile.all_kept
    assert not profile.repeated
    assert profile.distinct == pytest.approx(50_000, rel=0.2)
    profile.add(pa.array([f"v{number}" for number in range(100, 5100)]))
    assert profile.repeated
    assert set(profile.kept.values()) == {1, 2}


@pytest.mark.parametrize(
    ("observed", "whole", "expected"),
    [
        ((17, 90), True, (0, 100)), ((0, 1), True, (0, 1)), ((0.02, 0.97), False, (0, 1)), ((1, 3), True, (0, 3)),
        ((1987, 2026), True, (1980, 2030)), ((-12.3, 45), False, (-20, 60)), ((36.1, 41.9), False, (36, 42)),
        ((0, 123456), True, (0, 150000)), ((1e-9, 3e-9), False, (0, 3e-9)), ((990, 1004), True, (990, 1005)),
        ((-0.3, -0.1), False, (-0.3, -0.1)), ((7, 7), True, (7, 8)), ((0, 0.1), False, (0, 0.1)),
        ((0, 0), True, (0, 1)),
        ((-1e300, 1e300), False, (-1e300, 1e300)), ((2**60, 2**60 + 2), True, (1152921504 * 10**9, 1152921506 * 10**9)),
    ],
)  # fmt: skip
def test_ranges_are_widened_to_round_numbers(observed, whole, expected):
    low, high = round_range(*observed, whole)
    assert (low, high) == expected
    assert low <= observed[0] <= observed[1] <= high


def test_names_say_what_a_column_is():
    assert words("Customer_ID") == words("customerId") == words("customerid") == ["customer", "id"]
    assert [name for name in ("id", "order_id", "row id", "nr", "Record", "solid", "paid", "body mass index", "index")
            if names_records(name)] == ["id", "order_id", "row id", "nr", "Record", "index"]  # fmt: skip
    people = ("subject", "patient no", "user.id", "E-Mail", "e-mail address", "client", "patient age", "user agent")
    assert [name for name in people if names_people(name)] == list(people[:6])
    assert names_a_thing("shop key")
    assert not names_a_thing("keyboard")
    assert all(map(tells_who, ["Name", "first name", "Phone", "customer name", "Street"]))
    assert not tells_who("product name")
    assert all(map(names_target, ["y", "Class", "target"]))
    assert not names_target("first class")
