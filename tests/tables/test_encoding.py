import csv
import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy import sparse

import expunge
from expunge.base.errors import BadRecords
from expunge.tables.schema import (
    Amount,
    Categorical,
    Classes,
    Date,
    EncodedTables,
    Hashed,
    Key,
    Numeric,
    Schema,
    Text,
    parse_keys,
)
from expunge.tables.schema.columns import MISSING

SCHEMA = Schema(
    (
        Numeric("age", 0, 100, missing="flag"),
        Numeric("gain", 0, 1000, "log"),
        Date("joined", "2000-01-01", "2020-01-01"),
        Categorical("city", ("Rome", "Oslo", "none")),
        Hashed("zip", 8),
        Text("notes", 16),
    ),
    Key("id"), Key("who", "integer"), Classes("sick", ("no", "yes")), missing=(*MISSING, "-999"),
)  # fmt: skip
ROW = {
    "id": "a1", "who": "7", "age": "50", "gain": "0", "joined": "2010-01-01", "city": "Rome", "zip": "9001",
    "notes": "likes tea", "sick": "yes",
}  # fmt: skip


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    return path


def tables(tmp_path, *changes, schema=SCHEMA, **how):
    rows = [{**ROW, "id": f"a{number}", **change} for number, change in enumerate(changes)]
    return EncodedTables(schema, write_csv(tmp_path / "t.csv", rows), **how)


def features(tmp_path, *changes):
    """Return features by name, before each column's share."""
    X = tables(tmp_path, *changes).all().X * np.sqrt(len(SCHEMA.features))
    return {name: X[:, position].round(4).tolist() for position, name in enumerate(SCHEMA.feature_names)}


def test_numbers_lie_between_their_bounds(tmp_path):
    found = features(tmp_path, {"age": "0"}, {"age": "75"}, {"age": " 1e2 "}, {"age": "-3"}, {"age": "?"})
    assert found["age"] == [-1, 0.5, 1, -1, 0]
    assert found["age is missing"] == [0, 0, 0, 0, 1]


def test_amounts_that_are_mostly_small(tmp_path):
    low, middle, high = features(tmp_path, {"gain": "0"}, {"gain": "30.6386"}, {"gain": "1000"})["gain"]
    assert (low, high) == (-1, 1)
    assert abs(middle) < 1e-3  # the square root of 1001, less 1


RAW = Schema((Numeric("age", missing="flag"), Numeric("gain", scale="log"), Date("joined")), target=Amount("who"))


def test_without_ranges_numbers_and_dates_are_taken_as_they_are(tmp_path):
    rows = [
        {"age": "1763500000.25", "gain": "0", "joined": "1970-01-03", "who": "-7"},
        {"age": "?", "gain": "-1e6", "joined": "1969-12-31 12:00", "who": "1e9"},
    ]
    found = tables(tmp_path, *rows, schema=RAW).all()
    assert found.X.dtype == np.float64
    assert found.X[:, :2].tolist() == [[1763500000.25, 0], [0, 1]]
    assert found.X[:, 2].tolist() == [0, -np.log1p(1e6)]
    assert found.X[:, 3].tolist() == [2, -0.5]
    assert found.y.tolist() == [-7, 1e9]


def test_a_missing_number_without_a_range_has_no_middle(tmp_path):
    with pytest.raises(BadRecords, match='\'gain\': missing; declare missing = "flag" or "refuse" for this column'):
        tables(tmp_path, {"gain": "?"}, schema=RAW).all()


def test_beside_a_number_as_it_is_others_are_not_shortened(tmp_path):
    mixed = Schema((Numeric("age"), Numeric("gain", 0, 1000), Categorical("city", ("Rome",)), Text("notes", 2**11)))
    row = {"age": "52"}
    dense, thin = (tables(tmp_path, row, schema=mixed, target=False, sparse=how).all().X for how in (False, True))
    assert dense[0, :4].tolist() == [52, -1, 1, 0]
    assert sparse.issparse(thin)
    assert np.array_equal(thin.toarray(), dense)


def test_a_range_has_two_ends():
    for part in (Numeric, Amount):
        with pytest.raises(expunge.BadPlan, match=r"columns\.age: high: missing; give low and high, or neither"):
            part("age", low=0)
    with pytest.raises(expunge.BadPlan, match=r"columns\.day: low: missing; give low and high, or neither"):
        Date("day", high="2026-01-01")


def test_dates(tmp_path):
    days = ["2000-01-01", "2020-01-01 00:00", "1999-05-05", "", "2020-01-01T01:00:00+01:00"]
    assert features(tmp_path, *[{"joined": day} for day in days])["joined"] == [-1, 1, -1, 0, 1]


def test_categories(tmp_path):
    found = features(tmp_path, {"city": "Oslo"}, {"city": "Paris"}, {"city": "NA"}, {"city": "none"}, {"city": "oslo"})
    assert found["city = Oslo"] == [1, 0, 0, 0, 0]
    assert found["city = Rome"] == [0, 0, 0, 0, 0]
    assert found["city = none"] == [0, 0, 0, 1, 0]  # declared, so not missing
    assert found["city is other"] == [0, 1, 0, 0, 1]


def test_hashes_and_texts(tmp_path):
    block = tables(tmp_path, {}, {"zip": "1"}, {"zip": ""}, {"notes": "likes  TEA!"}, {"notes": "hates tea"}).all()
    X = block.X * np.sqrt(6)
    start = SCHEMA.feature_names.index("zip #0")
    hashed, text = X[:, start : start + 8], X[:, start + 8 :]
    np.testing.assert_allclose(hashed.sum(axis=1), [1, 1, 0, 1, 1], atol=1e-5)
    assert np.array_equal(text[0], text[3])
    assert not np.array_equal(text[0], text[4])
    np.testing.assert_allclose(np.linalg.norm(text, axis=1), 1, atol=1e-5)


def test_what_is_noticed_is_counted(tmp_path):
    found = tables(tmp_path, {"age": "101", "city": "Paris"}, {"age": "", "joined": "1990-01-01"}, {"gain": "-1"})
    found.all()
    assert found.counts.to_dict() == {
        "rows": 3, "clipped": {"age": 1, "gain": 1, "joined": 1}, "unknown": {"city": 1}, "missing": {"age": 1},
    }  # fmt: skip


def test_ids_subjects_and_targets(tmp_path):
    block = tables(tmp_path, {"id": "007"}, {"id": "b", "who": "-8", "sick": "no"}).all()
    assert block.ids.tolist() == ["007", "b"]
    assert block.subjects.tolist() == [7, -8]
    assert block.y.tolist() == ["yes", "no"]
    assert block.lines.tolist() == [2, 3]


def test_targets_that_are_numbers(tmp_path):
    amount = Schema(SCHEMA.features, target=Amount("gain2", 0, 10))
    (tmp_path / "t.csv").write_text(",".join([*ROW, "gain2"]) + "\n" + ",".join([*ROW.values(), "12"]) + "\n")
    found = EncodedTables(amount, tmp_path / "t.csv")
    assert found.all().y.tolist() == [10]
    assert found.counts.clipped["gain2"] == 1
    whole = Schema(SCHEMA.features, target=Classes("who", (7, 8)))
    assert EncodedTables(whole, write_csv(tmp_path / "u.csv", [{**ROW, "who": "7.0"}])).all().y.tolist() == [7]


BAD = [
    ({"age": "qqq"}, "age", "not a number"),
    ({"age": "1_0"}, "age", "not a number"),
    ({"age": "1e999"}, "age", "infinite"),
    ({"joined": "31/12/2010"}, "joined", "not a day or time such as 2026-11-15"),
    ({"id": ""}, "id", "missing"),
    ({"id": "q" * 1001}, "id", "longer than 1000 letters"),
    ({"who": "qqq"}, "who", "not a 64-bit integer"),
    ({"who": str(2**63)}, "who", "not a 64-bit integer"),
    ({"who": ""}, "who", "missing"),
    ({"sick": "qqq"}, "sick", "none of the target's values"),
    ({"sick": ""}, "sick", "missing"),
]


@pytest.mark.parametrize(("change", "column", "why"), BAD)
def test_values_that_do_not_fit_stop_the_reading(tmp_path, change, column, why):
    with pytest.raises(BadRecords) as caught:
        tables(tmp_path, {}, change, {}).all()
    message = str(caught.value).replace(str(tmp_path), "")
    assert f"line 3 (column {column!r}: {why}" in message
    assert "--on-error skip" in message
    for value in change.values():
        assert len(value) < 2 or value not in message  # what is said may be kept


@pytest.mark.parametrize(("change", "column", "why"), BAD)
def test_or_their_records_are_left_out(tmp_path, change, column, why):
    found = tables(tmp_path, {}, change, {}, on_error="skip")
    assert found.all().ids.tolist() == ["a0", "a2"]
    assert (found.counts.rows, found.broken.count) == (2, 1)


def test_a_missing_number_can_be_refused(tmp_path):
    strict = Schema((Numeric("age", 0, 1, missing="refuse"),))
    with pytest.raises(BadRecords, match=r"line 2 \(column 'age': missing"):
        EncodedTables(strict, write_csv(tmp_path / "t.csv", [{**ROW, "age": "NA"}])).all()


def test_all_formats_give_the_same(tmp_path):
    rows = [{**ROW, "id": f"a{number}", "age": number, "gain": number * 1.5, "zip": number} for number in range(20)]
    rows[3] |= {"age": None, "city": None, "notes": None, "joined": None}
    write_csv(tmp_path / "t.csv", rows)
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    typed = pa.Table.from_pylist([{**row, "who": int(row["who"])} for row in rows])
    joined = pa.array([None if row["joined"] is None else date.fromisoformat(row["joined"]) for row in rows])
    typed = typed.set_column(typed.schema.get_field_index("joined"), "joined", joined)
    assert pa.types.is_date(typed.schema.field("joined").type)
    parquet.write_table(typed, tmp_path / "t.parquet")
    one, two, three = (EncodedTables(SCHEMA, tmp_path / f"t.{kind}").all() for kind in ("csv", "jsonl", "parquet"))
    for other in (two, three):
        for mine, theirs in zip(one[:4], other[:4], strict=True):
            assert mine.dtype.kind == theirs.dtype.kind
            assert np.array_equal(mine, theirs)


def test_numbers_and_truths_are_the_same_text_in_all_formats(tmp_path):
    schema = Schema(
        (Numeric("a", 0, 10), Numeric("d", 0, 10), Categorical("b", ("True", "other")), Hashed("h", 64)),
        subject=Key("who"), target=Classes("t", (1, 2)), missing=("", "7"),
    )  # fmt: skip
    typed = pa.table(
        {
            "a": pa.array([1, 7, None], pa.int32()), "b": pa.array([True, False, None]),
            "d": pa.array([Decimal("1.30"), Decimal("0.10"), Decimal("7")], pa.decimal128(9, 2)),
            "h": pa.array([True, False, True]), "who": pa.array([17.0, 18.5, 19.0]), "t": pa.array([1.0, 2.0, 1.0]),
        }
    )  # fmt: skip
    parquet.write_table(typed, tmp_path / "t.parquet")
    typed.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    lines = [json.dumps({**row, "d": float(row["d"])}) for row in typed.to_pylist()]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    one, two, three = (EncodedTables(schema, tmp_path / f"t.{kind}").all() for kind in ("parquet", "csv", "jsonl"))
    assert one.subjects.tolist() == ["17.0", "18.5", "19.0"]
    assert one.y.tolist() == [1, 2, 1]
    for other in (two, three):
        assert np.array_equal(one.X, other.X)
        assert np.array_equal(one.subjects, other.subjects)
        assert np.array_equal(one.y, other.y)


def test_odd_types_of_parquet(tmp_path):
    schema = Schema((Numeric("a", 0, 10, missing="flag"), Numeric("n", 0, 10)), id=Key("id", "integer"))
    nothing = pa.array([None, None], pa.null())
    table = pa.table({"a": pa.array(["3", "x"]), "n": nothing, "id": pa.array([1.0, 2.0])})
    parquet.write_table(table, tmp_path / "t.parquet")
    found = EncodedTables(schema, tmp_path / "t.parquet", on_error="skip")
    assert found.all().ids.tolist() == [1]
    assert found.counts.missing["n"] == 1
    binary = pa.table({"a": pa.array([1.0]), "n": [1.0], "id": pa.array([b"\xff\xfe"], pa.binary())})
    parquet.write_table(binary, tmp_path / "b.parquet")
    with pytest.raises(BadRecords, match=r"b.parquet: column 'id' has type binary, which is not text"):
        EncodedTables(schema, tmp_path / "b.parquet").all()


def test_wide_rows_are_encoded_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("expunge.tables.schema.encoding.MOST_NUMBERS", 3 * SCHEMA.width)
    assert [len(block.X) for block in tables(tmp_path, *[{}] * 8).blocks()] == [3, 3, 2]


cells = st.fixed_dictionaries(
    {
        "age": st.sampled_from(["", "3", "1e9", "-2.5", "-999", "-999.0"]),
        "gain": st.sampled_from(["0", "17", "5000", "-999"]),
        "joined": st.sampled_from(["", "2004-02-29", "1900-01-01"]),
        "city": st.sampled_from(["Rome", "", "Bonn"]),
        "zip": st.sampled_from(["1", "2", "?"]),
        "notes": st.text("abc ,\n\"'é", max_size=12),
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6))
def test_no_row_is_longer_than_1_and_each_depends_on_itself_alone(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("t")
    together = tables(folder, *changes).all().X
    assert (np.linalg.norm(together.astype(np.float64), axis=1) <= 1.0).all()
    for position, change in enumerate(changes):
        assert np.array_equal(tables(folder, change).all().X[0], together[position])


def test_no_records(tmp_path):
    with pytest.raises(BadRecords, match="no records"):
        tables(tmp_path).all()
    with pytest.raises(BadRecords, match="no records"):
        tables(tmp_path, {"age": "x"}, on_error="skip").all()


def test_columns_that_lack(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ID,age\n1,2\n")
    with pytest.raises(BadRecords, match="no columns 'gain', 'joined'"):
        EncodedTables(SCHEMA, path)


def test_names_given_as_texts():
    assert parse_keys(Key("id"), ["007"]) == ["007"]
    assert parse_keys(Key("id", "integer"), ["007", "-1"]) == [7, -1]
    assert parse_keys(None, ["3"]) == [3]
    with pytest.raises(BadRecords, match=r"column 'id': 'x' is not a 64-bit integer"):
        parse_keys(Key("id", "integer"), ["1", "x"])


def test_a_model_keeps_its_schema(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"age": str(age), "sick": "yes" if age > 50 else "no"} for age in rng.integers(0, 100, 300).tolist()]
    block = tables(tmp_path, *rows).all()
    wanted = expunge.LogisticRegression(classes=["no", "yes"], solver="dual_averaging")
    found = EncodedTables(SCHEMA, tmp_path / "t.csv", keys=("id",))
    with expunge.ingest(wanted, found, tmp_path / "m.expunge") as model:
        assert model.score(block.X.astype(float), block.y) > 0.9
        model.unlearn(["a17"])
        model.compact()
        model.replan()
    with expunge.open(tmp_path / "m.expunge") as model:
        assert model.schema_ == SCHEMA
        assert model.n_records_ == 299
        assert model.verify().ok
        model.save(tmp_path / "copy.expunge")
    with expunge.open(tmp_path / "copy.expunge", read_only=True) as model:
        assert model.schema_ == SCHEMA


def test_a_bar_knows_how_far_it_is(tmp_path):
    found = tables(tmp_path, *[{}] * 500)
    assert found.estimate(0) is None
    for block in found.blocks(100):
        assert found.estimate(len(block.X)) is not None
    assert found.estimate(500) == 500


# --- sparse rows ---


WIDE = Schema(
    (Numeric("age", 0, 100, missing="flag"), Hashed("zip", 300), Categorical("city", ("Rome",)), Text("notes", 4096)),
    Key("id"), target=Classes("sick", ("no", "yes")),
)  # fmt: skip


def test_sparse_rows_have_the_numbers_of_dense_ones(tmp_path):
    changes = [{"age": "", "notes": "a b c a"}, {"zip": "", "city": "Bonn"}, {"age": "50", "city": "", "notes": ""}, {}]
    found = tables(tmp_path, *changes, schema=WIDE).all()
    dense = tables(tmp_path, *changes, schema=WIDE, sparse=False).all()
    assert WIDE.sparse
    assert sparse.issparse(found.X)
    assert found.X.has_canonical_format
    assert found.X.data.all()
    assert dense.X.dtype == np.float32
    assert np.array_equal(found.X.toarray(), dense.X)
    assert np.array_equal(found.ids, dense.ids)


def test_sparse_records_that_do_not_fit_are_left_out(tmp_path):
    found = tables(tmp_path, {}, {"age": "old"}, {"notes": "more"}, schema=WIDE, on_error="skip")
    assert found.all().X.shape == (2, WIDE.width)
    assert found.broken.first[0][1:] == (3, "column 'age': not a number")


def test_a_store_that_was_written_dense_stays_so(tmp_path):
    changes = [
        {"age": str(number), "notes": f"tea {number % 7}", "sick": ("no", "yes")[number % 2]} for number in range(80)
    ]
    wanted = expunge.LogisticRegression(classes=["no", "yes"], solver="dual_averaging")
    old = tables(tmp_path, *changes, schema=WIDE, sparse=False)
    with expunge.ingest(wanted, old, tmp_path / "m.expunge") as model:
        new = EncodedTables(WIDE, tmp_path / "t.csv").all()
        assert sparse.issparse(new.X)
        model.insert(new.X[:9], new.y[:9], [f"b{number}" for number in range(9)])
        model.replace(new.X[9:12], new.y[9:12], ["a1", "a2", "a3"])
        assert not model._sparse
        assert isinstance(model._records.batch_at(0)[0], np.ndarray)
        assert model.verify().ok
        assert model.predict(new.X).tolist() == model.predict(new.X.toarray()).tolist()


def test_whether_rows_are_sparse_follows_from_what_is_declared():
    few = Categorical("city", ("Rome", "Oslo"))
    for columns, expected in (
        ((few, Numeric("age", 0, 1)), False),
        ((Text("notes"),), False),
        ((few, Text("notes", 2**14)), True),
        ((Hashed("zip", 128),), False),
        ((Hashed("zip", 256),), True),
        ((Hashed("zip", 256), *(Numeric(f"x{number}", 0, 1) for number in range(30))), False),
    ):
        assert Schema(columns).sparse == expected
