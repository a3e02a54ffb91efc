import pytest

from expunge.base.errors import BadPlan
from expunge.tables.schema import Amount, Categorical, Classes, Date, Hashed, Key, Numeric, Schema, Text
from expunge.tables.schema.toml import KINDS, parse_schema, read_schema, schema_toml

HEAD = 'format = "expunge schema 1"\n'
AGE = '[columns.age]\nkind = "numeric"\nlow = 0\nhigh = 120\n'
A = HEAD + "[columns.a]\n"

FULL = Schema(
    (
        Numeric("age", 0, 120, missing="flag"),
        Numeric('gain "in" €', 0.5, 1e6, "log"),
        Date("born on", "1900-01-01", "2026-01-01T12:00:00", "refuse"),
        Categorical("city.of birth", ("Rome", "São Paulo", "")),
        Hashed("zip", 64),
        Text("notes", 128, (1, 3)),
    ),
    Key("id", "integer"), Key("who"), Classes("sick", ("yes", "no")), ("x y", "name"), ("", "n/a"), True,
)  # fmt: skip


def test_a_schema_is_read_as_it_was_written():
    assert parse_schema(schema_toml(FULL, {"age": "from 3 to 90"})) == FULL
    whole = Schema((Numeric("a", -1, 1),), target=Classes("t", (3, 1, 2)))
    assert parse_schema(schema_toml(whole)) == whole
    amount = Schema((Text("a"),), target=Amount("t", -1.5, 2))
    assert parse_schema(schema_toml(amount)) == amount


def test_nothing_in_a_written_schema_is_hidden_or_turned_around():
    odd = "a\x9b\u202e\u2066\U000e0041\x85\u2028\xa0\t\n\x7f\"'\\é"
    schema = Schema(
        (Categorical(odd, (odd + "1", odd + "2")), Numeric("b", 0, 1)), Key(f"id {odd}"), None,
        Classes(odd + "target", (odd + "yes", "no")), (odd + "left out",), ("", odd),
    )  # fmt: skip
    text = schema_toml(schema, {odd: f"values such as {odd}", "b": "low = 3\nhigh = 4"})
    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert "# low = 3\\u000ahigh = 4\n" in text
    assert parse_schema(text) == schema


def test_a_number_of_thousands_of_digits_is_named():
    with pytest.raises(BadPlan, match="a number in it has thousands of digits"):
        parse_schema(A + 'kind = "numeric"\nlow = 0\nhigh = 1' + "0" * 5000)


def test_the_draft_explains_every_kind():
    assert max(map(len, schema_toml(FULL).splitlines())) <= 84
    assert all(f'"{kind}"' in schema_toml(FULL) for kind in KINDS)


def test_features_have_names():
    assert FULL.width == len(FULL.feature_names) == 2 + 1 + 1 + 4 + 64 + 128
    assert FULL.feature_names[:5] == ("age", "age is missing", 'gain "in" €', "born on", "city.of birth = Rome")
    assert len(set(FULL.feature_names)) == FULL.width


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("", "format", "expunge schema data.csv"),
        ("format = 3", "format", "draft"),
        ("[[[", "invalid TOML", "line 1"),
        (HEAD, "columns", "[columns.age]"),
        (HEAD + "columns = 3", "columns", "[columns.age]"),
        (HEAD + "[columns]\nage = 3", "columns", "[columns.age]"),
        (A + 'kind = "ignore"', "none is a feature", "declare at least one"),
        (A + 'kind = "number"', "columns.a: kind = 'number'", "'numeric', 'date'"),
        (A + "low = 3", "columns.a: kind = None", "use one of"),
        (A + 'kind = "numeric"\nlow = 3', "columns.a: high: missing", "or neither"),
        (A + 'kind = "numeric"\nlow = 3\nhigh = 3', "columns.a: low = 3", "range of some width"),
        (A + 'kind = "numeric"\nlow = "3"\nhigh = 4', "columns.a: low = '3'", "finite number"),
        (A + 'kind = "numeric"\nlow = nan\nhigh = 4', "columns.a: low = nan", "finite number"),
        (A + 'kind = "numeric"\nlow = true\nhigh = 4', "columns.a: low = True", "finite number"),
        (HEAD + AGE + 'scale = "cubic"', "columns.age: scale = 'cubic'", "'linear', 'log'"),
        (HEAD + AGE + 'missing = "zero"', "columns.age: missing = 'zero'", "'middle', 'flag', 'refuse'"),
        (HEAD + AGE + "values = [1]", "columns.age: values", "remove it"),
        (A + 'kind = "date"\nlow = "x"\nhigh = "2020-01-01"', "columns.a: low = 'x'", "2026-11-15"),
        (A + 'kind = "date"\nlow = "2021-01-01"\nhigh = "2020-01-01"', "columns.a: low", "not before"),
        (A + 'kind = "categorical"', "columns.a: values = [...] or buckets", "needs it"),
        (A + 'kind = "categorical"\nvalues = []', "columns.a: values", "list of texts"),
        (A + 'kind = "categorical"\nvalues = ["x", " x "]', "columns.a: values: duplicate 'x'", "each once"),
        (A + 'kind = "categorical"\nbuckets = 1', "columns.a: buckets = 1", "from 2 to"),
        (A + 'kind = "text"\nbuckets = 1e3', "columns.a: buckets = 1000.0", "whole number"),
        (A + 'kind = "text"\nwords = [2, 1]', "columns.a: words", "such as [1, 2]"),
        (HEAD + AGE + '[columns.a]\nkind = "id"\ntype = "uuid"', "columns.a: type = 'uuid'", "'integer', 'text'"),
        (HEAD + AGE + '[columns.a]\nkind = "id"\n[columns.b]\nkind = "id"', "columns.b", "only one"),
        (HEAD + AGE + '[columns.a]\nkind = "target"\nhigh = 3', "columns.a: low: missing", "or neither"),
        (HEAD + '[columns.a]\nkind = "categorical"', "columns.a: values = [...] or buckets: missing", "needs it"),
        (HEAD + AGE + '[columns.a]\nkind = "target"\nvalues = ["x"]', "columns.a: values", "at least two"),
        (HEAD + AGE + '[columns.a]\nkind = "target"\nvalues = ["x", 1]', "columns.a: values", "list of texts"),
        (HEAD + AGE + '[columns.a]\nkind = "target"\nvalues = [1, 1]', "columns.a: values: duplicate 1", "each once"),
        (HEAD + "missing = 3\n" + AGE, "missing", "list of texts"),
        (HEAD + "missing = [3]\n" + AGE, "missing", "list of texts"),
        (HEAD + 'confirmed = "yes"\n' + AGE, "confirmed = 'yes'", "true or false"),
        (HEAD + "colour = 3\n" + AGE, "colour", "no such field"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, field, remedy):
    file = tmp_path / "schema.toml"
    file.write_text(text)
    with pytest.raises(BadPlan) as caught:
        read_schema(file)
    assert str(file) in str(caught.value)
    assert field in str(caught.value)
    assert remedy in str(caught.value)


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(BadPlan, match=r"no such file; `expunge schema data.csv"):
        read_schema(tmp_path / "schema.toml")
    (tmp_path / "schema.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadPlan, match="cannot be read as text"):
        read_schema(tmp_path / "schema.toml")


def test_dates_of_toml_are_dates():
    text = A + 'kind = "date"\nlow = 2020-01-01\nhigh = 2021-01-01T10:00:00\n'
    assert parse_schema(text).features == (Date("a", "2020-01-01", "2021-01-01T10:00:00"),)


def test_a_column_stands_once():
    with pytest.raises(BadPlan, match="columns: duplicate 'a'"):
        Schema((Numeric("a", 0, 1), Text("a")))
    with pytest.raises(BadPlan, match="columns: duplicate 'a'"):
        Schema((Numeric("a", 0, 1),), ignored=("a",))
