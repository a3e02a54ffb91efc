"""`expunge fit`: tables of all formats, all models, and everything that can be wrong with data, schema and options."""

import json

import pytest

import expunge
from cli.conftest import KINDS, contents, flat
from cli.tables import COLUMNS, WRITERS, people, schema, write_csv

FIT = ("fit", "people.csv", "--schema", "schema.toml", "-o", "m.expunge")


@pytest.fixture
def ready(tmp_path):
    """A folder with a table and a schema."""
    write_csv(tmp_path / "people.csv", people())
    (tmp_path / "schema.toml").write_text(schema())
    return tmp_path


def changed(row, **values):
    """A row with other values."""
    return tuple([values.get(name, value) for name, value in zip(COLUMNS, row, strict=True)])


# --- what goes well -----------------------------------------------------------------------------------


def test_a_fit_says_what_came_of_it(ready, done):
    said = done(*FIT)
    for word in ("m.expunge: logistic", "records 60", "features 14", "a deletion replays", "a deletion takes", "size"):
        assert word in flat(said)
    assert "expunge unlearn m.expunge --id ID" in said
    left = {path.name for path in ready.iterdir()}
    assert left == {"people.csv", "schema.toml", "m.expunge", "m.expunge-key", "m.expunge-lock"}


def test_a_fit_in_json(ready, done):
    write_csv(ready / "others.csv", people(20, 101))
    found = done(*FIT, "--test", "others.csv", "--json")
    assert (found["kind"], found["records"], found["features"], found["schema_confirmed"]) == ("logistic", 60, 14, True)
    assert found["data"] == {"rows": 60, "clipped": {}, "unknown": {}, "missing": {}, "skipped": 0}
    assert found["replay_probability"] == {"worst": 1.0, "typical": 1.0}
    assert found["seconds"].keys() == {"fit", "training", "deletion"}
    assert found["bytes"] == (ready / "m.expunge").stat().st_size
    assert found["test"]["records"] == 20
    assert found["test"]["accuracy"] > 0.6
    assert "notes" not in found


def test_numbers_need_no_ranges(ready, done):
    (ready / "schema.toml").write_text(schema(age=""))
    write_csv(ready / "others.csv", people(20, 101))
    assert done(*FIT, "--test", "others.csv", "--json")["test"]["accuracy"] > 0.6
    model = expunge.open(ready / "m.expunge", read_only=True)
    assert model.transcript_.assignment.batch_at(0)[0][:, 0].max() > 50  # years, as they are


def test_dual_averaging_names_the_numbers_that_have_no_range(ready, run):
    (ready / "schema.toml").write_text(schema("bill", age="").replace("low = 0\nhigh = 1000", ""))
    result = run(*FIT, "--model", "huber", "--solver", "dual_averaging")
    assert result.code == 3
    assert "columns without a range: age, bill. dual averaging needs low and high" in flat(result.err)
    assert "expunge schema --ranges" in flat(result.err)
    assert not (ready / "m.expunge").exists()


def test_ridge_needs_no_range_of_the_target(ready, done):
    (ready / "schema.toml").write_text(schema("bill", age="").replace("low = 0\nhigh = 1000", ""))
    done(*FIT, "--model", "ridge")
    assert expunge.open(ready / "m.expunge", read_only=True).plan_.never_replays


def test_a_schema_that_nobody_has_confirmed_is_noted(ready, run):
    (ready / "schema.toml").write_text(schema(confirmed=False))
    result = run(*FIT)
    assert result.code == 0
    assert "Note: this schema was drafted from the data and nobody has confirmed it." in flat(result.err)


@pytest.mark.parametrize(("target", "kind"), [("sick", "logistic"), ("bill", "huber"), ("", "kmeans")])
def test_which_model_is_fitted_unless_another_is_asked_for(target, kind, ready, done):
    (ready / "schema.toml").write_text(schema(target))
    assert done(*FIT, "--json")["kind"] == kind


def test_less_noise_is_asked_for_by_rho(ready, done):
    found = done(*FIT, "--rho", 0.5, "--solver", "dual_averaging", "--json")
    assert found["rho"] == 0.5
    assert found["replay_probability"]["worst"] == pytest.approx(0.5)
    assert found["sigma"] > 0
    assert 0 < found["replay_probability"]["typical"] < 0.5


def test_several_files_and_a_folder_of_them_are_one_table(ready, done):
    rows = people()
    (ready / "parts").mkdir()
    for number in range(3):
        write_csv(ready / "parts" / f"{number}.csv", rows[20 * number : 20 * number + 20])
    parts = [f"parts/{number}.csv" for number in range(3)]
    assert done("fit", *parts, "--schema", "schema.toml", "-o", "a", "--json")["records"] == 60
    assert done("fit", "parts", "--schema", "schema.toml", "-o", "b", "--json")["records"] == 60


def test_values_beyond_the_range_unknown_and_missing_ones_are_counted(ready, run):
    rows = people()
    rows[9], rows[10] = changed(rows[9], age=500), changed(rows[10], age=-3, city="")
    rows[11], rows[12] = changed(rows[11], city="Bonn"), changed(rows[12], age="", joined="NA")
    write_csv(ready / "people.csv", rows)
    result = run(*FIT)
    assert result.code == 0
    said = flat(result.err)
    assert "of 60 records, values were outside the declared range, and clipped to it: age 2." in said
    assert 'values were none of the declared values, and count as "other": city 1.' in said
    assert "values were missing: age 1, city 1, joined 1." in said
    (ready / "m.expunge").rename(ready / "other")
    found = run(*FIT, "--json").data
    assert found["data"] == {
        "rows": 60, "clipped": {"age": 2}, "unknown": {"city": 1}, "missing": {"age": 1, "city": 1, "joined": 1},
        "skipped": 0,
    }  # fmt: skip
    assert len(found["notes"]) == 3


# --- every model, from a fit to a verification --------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_from_a_table_to_a_verified_erasure(kind, model, done, tmp_path):
    model(kind)
    scores = done("evaluate", "m.expunge", "others.csv", "--json")
    assert scores["records"] == 20
    measure = {"sick": "accuracy", "bill": "r2", "": "mean_squared_distance"}[KINDS[kind]]
    assert measure in scores
    lines = done("predict", "m.expunge", "others.csv").splitlines()
    assert len(lines) == 21
    chances = ',"probability of no","probability of yes"' if kind in ("logistic", "boosting") else ""
    assert lines[0] == f'"id","{"prediction" if KINDS[kind] else "cluster"}"{chances}'
    assert [line.split(",")[0] for line in lines[1:]] == [str(number) for number in range(101, 121)]
    removed = done("unlearn", "m.expunge", "--id", 7, "--id", 8, "--json")
    assert removed["records"] == 58
    assert done("insert", "m.expunge", "others.csv", "--json")["records"] == 78
    write_csv(tmp_path / "better.csv", [changed(row, age=50) for row in people(3, 20)])
    replaced = done("replace", "m.expunge", "better.csv", "--json")
    assert [(one["kind"], one["removed"], one["added"]) for one in replaced["receipts"]] == [("replace", 3, 3)]
    found = done("verify", "m.expunge", "--json")
    assert (found["ok"], found["problems"], found["records"]) == (True, [], 78)


def test_csv_parquet_and_json_lines_give_the_same_model(ready, done):
    (ready / "schema.toml").write_text(schema("bill"))
    rows = [changed(row, age=None) if number % 7 == 0 else row for number, row in enumerate(people())]
    said = {}
    for kind, write in WRITERS.items():
        write(ready / f"data.{kind}", rows)
        write(ready / f"others.{kind}", people(20, 101))
        asked = ("fit", f"data.{kind}", "--schema", "schema.toml", "--model", "ridge", "-o", f"m-{kind}", "--json")
        assert done(*asked)["data"]["missing"] == {"age": 9}
        said[kind] = done("predict", f"m-{kind}", f"others.{kind}")
    assert len(said["csv"].splitlines()) == 21
    assert said["csv"] == said["parquet"] == said["jsonl"]


# --- broken lines -------------------------------------------------------------------------------------


def broken_lines(folder):
    """A table whose every tenth line lacks two fields; return which those are."""
    lines = (folder / "people.csv").read_text().splitlines()
    for number in range(5, len(lines), 10):
        lines[number] = lines[number].rsplit(",", 2)[0]
    (folder / "broken.csv").write_text("\n".join(lines) + "\n")
    return [number + 1 for number in range(5, len(lines), 10)]


def test_broken_lines_stop_a_fit_and_are_named(ready, refused):
    lines = broken_lines(ready)
    assert lines == [6, 16, 26, 36, 46, 56]
    refused(
        3, "Error: broken.csv: lines 6, 16, 26, 36, 46 (6 fields, where the header has 8), and at least 1 more; "
        "fix the file, or leave such records out with --on-error skip.",
        "fit", "broken.csv", *FIT[2:],
    )  # fmt: skip


def test_broken_lines_are_left_out_and_counted_if_so_asked(ready, run):
    broken_lines(ready)
    result = run("fit", "broken.csv", *FIT[2:], "--on-error", "skip")
    assert result.code == 0
    assert "records 54" in flat(result.out)
    assert (
        "6 broken records were skipped: 6 × 6 fields, where the header has 8; the first: broken.csv: lines 6,"
        in flat(result.err)
    )
    found = run("info", "m.expunge", "--json").data
    assert found["records"] == 54


def test_broken_lines_of_json_are_named_too(ready, refused, done):
    WRITERS["jsonl"](ready / "people.jsonl", people())
    lines = (ready / "people.jsonl").read_text().splitlines()
    lines[3], lines[20] = lines[3][:-5], "[1]"
    (ready / "people.jsonl").write_text("\n".join(lines))
    asked = ("fit", "people.jsonl", *FIT[2:])
    refused(3, ["people.jsonl: line 4 (not JSON from character", "line 21 (not an object)"], *asked)
    assert done(*asked, "--on-error", "skip", "--json")["data"]["skipped"] == 2


VALUES = {
    "no number": ({"age": "old"}, "line 6 (column 'age': not a number)"),
    "infinite": ({"age": "inf"}, "line 6 (column 'age': infinite)"),
    "no date": ({"joined": "yesterday"}, "line 6 (column 'joined': not a day or time such as 2026-11-15)"),
    "no such class": ({"sick": "maybe"}, "line 6 (column 'sick': none of the target's values)"),
    "no target": ({"sick": ""}, "line 6 (column 'sick': missing)"),
    "no id": ({"id": ""}, "line 6 (column 'id': missing)"),
    "a text as id": ({"id": "x17"}, "line 6 (column 'id': not a 64-bit integer)"),
    "a fraction as id": ({"id": "1.5"}, "line 6 (column 'id': not a 64-bit integer)"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_do_not_match_the_schema_are_named_by_line_and_column(case, ready, refused, done):
    values, said = VALUES[case]
    rows = people()
    rows[4] = changed(rows[4], **values)
    write_csv(ready / "people.csv", rows)
    message = refused(3, [f"people.csv: {said}", "--on-error skip"], *FIT)
    assert not any(value in message for value in values.values() if len(value) > 3)  # people are not quoted
    assert done(*FIT, "--on-error", "skip", "--json")["data"]["skipped"] == 1


def test_rows_of_parquet_are_named_by_number(ready, refused):
    rows = [changed(row, sick="maybe") if row[0] == 5 else row for row in people()]
    WRITERS["parquet"](ready / "people.parquet", rows)
    refused(3, "people.parquet: row 5 (column 'sick': none of", "fit", "people.parquet", *FIT[2:])


# --- what is refused ----------------------------------------------------------------------------------


def text(path, content):
    path.write_text(content)


HEADER = ",".join(COLUMNS) + "\n"
TABLES = {
    "an empty file": ("data.csv", lambda p: text(p, ""), "data.csv: empty; give a file with a line of column names"),
    "a header only": ("data.csv", lambda p: text(p, HEADER), "no records; give at least one"),
    "blank lines only": ("data.csv", lambda p: text(p, "\n \n\n"), "data.csv: empty"),
    "no header": ("data.csv", lambda p: text(p, "1,2\n3,4\n"), "data.csv: no header, only numbers in the first line"),
    "a column twice": ("data.csv", lambda p: text(p, "age,age\n1,2\n"), "are all named 'age'; rename all but one"),
    "no such file": ("nothing.csv", lambda p: None, "nothing.csv: no such file; check the path"),
    "another kind of file": ("data.txt", lambda p: text(p, HEADER), "data.txt: unknown kind of file; give one"),
    "an empty folder": ("data", lambda p: p.mkdir(), "data: a folder without tables; put files there"),
    "one column less": (
        "data.csv", lambda p: write_csv(p, [row[1:] for row in people()], COLUMNS[1:]),
        "data.csv: no column 'id'; there are 'who', 'age'",
    ),
    "a name misspelt": (
        "data.csv", lambda p: text(p, HEADER.replace("age", "Age")), "data.csv: no column 'age'; there is 'Age'."
    ),
    "no Parquet": ("data.parquet", lambda p: text(p, HEADER), "data.parquet: cannot be read"),
    "no JSON lines": ("data.jsonl", lambda p: text(p, HEADER), "data.jsonl: no JSON objects on its lines"),
    "Parquet by another name": (
        "data.csv", lambda p: WRITERS["parquet"](p, people()), "data.csv: is a Parquet file; rename it"
    ),
    "numbers as texts": (
        "data.parquet", lambda p: WRITERS["parquet"](p, [changed(row, age=f"{row[2]} years") for row in people()]),
        "data.parquet: rows 1, 2, 3, 4, 5 (column 'age': not a number), and at least 55 more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_cannot_be_read_are_refused(case, ready, refused):
    name, write, said = TABLES[case]
    write(ready / name)
    refused(3, said, "fit", name, *FIT[2:])


def test_an_id_that_stands_twice_is_refused(ready, refused):
    write_csv(ready / "people.csv", [*people(), people()[3]])
    refused(4, "ids: duplicate id 4", *FIT)


def test_a_person_with_more_records_than_declared_is_refused(ready, refused):
    (ready / "schema.toml").write_text(schema(subject=True))
    refused(3, "'S-0001' would have 2 records, --records-per-subject 1", *FIT, "--solver", "dual_averaging")


def swap(old, new):
    """The schema, with something else in the place of something."""
    assert old in schema()
    return schema().replace(old, new)


SCHEMAS = {
    "syntax": ("format = \n", "schema.toml: invalid TOML: Invalid value (at line 1, column 10); fix the file"),
    "a table": (HEADER, "schema.toml: invalid TOML: "),
    "nothing": ("", "format: expected 'expunge schema 1'; draft a schema with `expunge schema data.csv`"),
    "another format": (swap("schema 1", "schema 9"), "format: expected 'expunge schema 1'"),
    "no columns": ('format = "expunge schema 1"\n', "columns: expected a part such as [columns.age] for each column"),
    "an unknown kind": (swap('"text"', '"prose"'), "columns.note: kind = 'prose': use one of 'numeric', 'date'"),
    "no kind": (swap('kind = "text"\n', ""), "columns.note: kind = None: use one of"),
    "a missing field": (schema(age="low = 0"), "columns.age: high: missing; give low and high, or neither"),
    "one class": (swap('["no", "yes"]', '["no"]'), "columns.sick: values = ['no']: give at least two"),
    "a value twice": (swap('"yes"]', '"no"]'), "columns.sick: values: duplicate 'no'; give each once"),
    "low above high": (schema(age="low = 9\nhigh = 1"), "columns.age: low = 9 is not below high = 1; give a range"),
    "low as high": (schema(age="low = 1\nhigh = 1"), "columns.age: low = 1 is not below high = 1"),
    "a text as low": (schema(age='low = "a"\nhigh = 1'), "columns.age: low = 'a': give a finite number"),
    "no day": (swap("2010-01-01", '"spring"'), "columns.joined: low = 'spring' is not a day such as '2026-11-15'"),
    "days the wrong way round": (swap("2010-01-01", "2030-01-01"), "is not before high = '2026-01-01'"),
    "an unknown field": (schema(age="low = 0\nhigh = 1\nmax = 1"), "columns.age: max: remove it; here are kind"),
    "an unknown scale": (schema(age='low = 0\nhigh = 1\nscale = "sqrt"'), "columns.age: scale = 'sqrt': use one of"),
    "an unknown part": (schema() + "[rows]\n", "rows: a schema has no such field; use format, confirmed"),
    "two targets": (
        swap('[columns.bill]\nkind = "ignore"', '[columns.bill]\nkind = "target"\nlow = 0\nhigh = 1'),
        "columns.bill: 'sick' is the target already; there can be only one",
    ),
    "too few buckets": (swap("buckets = 8", "buckets = 1"), "columns.note: buckets = 1: give a whole"),
    "no feature": (
        'format = "expunge schema 1"\n[columns.sick]\nkind = "target"\nvalues = ["a", "b"]\n',
        "columns: none is a feature; declare at least one",
    ),
    "neither true nor false": (swap("confirmed = true", "confirmed = 1"), "confirmed = 1: give true or false"),
    "a column twice": (schema() + "[columns.age]\n", "schema.toml: invalid TOML: "),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEMAS)
def test_schemas_that_are_wrong_are_refused_with_the_place(case, ready, refused):
    content, said = SCHEMAS[case]
    (ready / "schema.toml").write_text(content)
    assert refused(3, said, *FIT).startswith("Error: schema.toml: ")


def test_a_target_without_values_is_a_number(ready, refused):
    (ready / "schema.toml").write_text(swap('values = ["no", "yes"]', ""))
    refused(3, "(column 'sick': not a number)", *FIT)


def test_schemas_that_cannot_be_read_are_refused(ready, refused):
    asked = ("fit", "people.csv", "-o", "m.expunge", "--schema")
    refused(3, "no.toml: no such file; `expunge schema data.csv -o no.toml` drafts one", *asked, "no.toml")
    refused(3, ".: cannot be read as text", *asked, ".")
    (ready / "binary.toml").write_bytes(b"\xff\xfe\x00")
    refused(3, "binary.toml: cannot be read as text", *asked, "binary.toml")


OPTIONS = {
    "rho above 1": (3, "--rho 2.0: give a probability above 0 and at most 1", ("--rho", "2")),
    "rho of 0": (3, "--rho 0.0: give a probability above 0", ("--rho", "0")),
    "rho that is none": (2, "'--rho': 'abc' is neither a probability nor auto", ("--rho", "abc")),
    "NaN": (3, "--rho nan: give a probability", ("--rho", "nan")),
    "no such model": (2, "'forest' is not one of 'logistic', 'svm', 'huber', 'poisson'", ("--model", "forest")),
    "a model for numbers": (3, "--model huber: the target 'sick' has values = [...]", ("--model", "huber")),
    "ridge for classes": (3, "Use logistic or svm, or take out its values in the schema", ("--model", "ridge")),
    "part of a record": (2, "'1.5' is not a whole number, such as 2e6", ("--expected-records", "1.5")),
    "no records expected": (3, "--expected-records 0: give a whole number above 0", ("--expected-records", "0")),
    "no records of anyone": (3, "--records-per-subject 0: give a whole number above 0", ("--records-per-subject", "0")),
    "a negative penalty": (3, "--alpha -1.0: give a finite number of at least 0", ("--alpha", "-1")),
    "a penalty for k-means": (3, "--alpha: k-means has no penalty", ("--model", "kmeans", "--alpha", "1")),
    "no clusters": (3, "--clusters 0: give a whole number above 0", ("--model", "kmeans", "--clusters", "0")),
    "too many clusters": (3, "60 records are fewer than --clusters 61", ("--model", "kmeans", "--clusters", "61")),
    "perhaps": (2, "'maybe' is not one of 'stop', 'skip'", ("--on-error", "maybe")),
    "an unknown option": (2, "No such option: --epochs. See `expunge fit --help`.", ("--epochs", "3")),
    "no held-out file": (3, "nothing.csv: no such file", ("--test", "nothing.csv")),
    "no held-out records": (3, "header.csv: no records", ("--test", "header.csv")),
    "held-out lines that are broken": (3, "broken.csv: lines 6, 16", ("--test", "broken.csv")),
    "no key": (5, "nothing.pem: No such file or directory", ("--sign-with", "nothing.pem")),
    "a key that is none": (3, "people.csv: not a private key in PEM", ("--sign-with", "people.csv")),
    "a file that is there": (3, "schema.toml: this file exists already; give another name", ("-o", "schema.toml")),
    "a folder": (3, ".: a folder; give the name of a file in it", ("-o", ".")),
    "a folder that is not there": (3, "no/m: no such folder: no; make it first", ("-o", "no/m")),
    "a name of another": (5, "names in -wal are for files that belong to a store", ("-o", "m-wal")),
}  # fmt: skip


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_are_wrong_are_refused(case, ready, refused):
    code, said, options = OPTIONS[case]
    (ready / "header.csv").write_text(HEADER)
    broken_lines(ready)
    refused(code, said, *FIT, *options)


@pytest.mark.parametrize("arguments", [("people.csv",), ("--schema", "schema.toml"), ()])
def test_arguments_that_are_missing_are_named(arguments, ready, refused):
    what = "option '--schema'" if arguments == ("people.csv",) else "argument 'DATA'"
    refused(2, f"Missing {what}. See `expunge fit --help`.", "fit", *arguments)


def test_models_that_do_not_go_with_the_target_are_refused(ready, refused):
    (ready / "schema.toml").write_text(schema("bill"))
    refused(3, "--model svm: the target 'bill' is a number, and svm predicts classes", *FIT, "--model", "svm")
    (ready / "schema.toml").write_text(schema(""))
    refused(3, "--model linear: the schema has no target; declare a column", *FIT, "--model", "linear")


def test_an_error_in_json_names_its_kind(ready, run):
    before = contents(ready)
    found = run(*FIT, "--rho", "2", "--json").data["error"]
    assert (found["kind"], found["exit_code"]) == ("BadPlan", 3)
    assert "--rho 2.0" in found["message"]
    usage = json.loads(run(*FIT, "--rho", "abc", "--json").out)["error"]
    assert (usage["kind"], usage["exit_code"]) == ("Usage", 2)
    assert contents(ready) == before


# --- text, kept sparse --------------------------------------------------------------------------------


def test_wide_text_is_kept_sparse_and_every_command_works_on_it(ready, done, run):
    wide = schema().replace("buckets = 8", "buckets = 2048")
    (ready / "schema.toml").write_text(wide)
    write_csv(ready / "others.csv", people(20, 101))
    write_csv(ready / "one.csv", people()[4:5])
    assert done(*FIT, "--test", "others.csv", "--json")["features"] == 2054
    with expunge.open(ready / "m.expunge") as model:
        assert model._sparse
    assert run("scan", "m.expunge", "--rows", "one.csv").code == 1
    assert done("unlearn", "m.expunge", "--id", "5", "--json")["records"] == 59
    done("scan", "m.expunge", "--rows", "one.csv")
    assert done("insert", "m.expunge", "others.csv", "--json")["records"] == 79
    done("replace", "m.expunge", "others.csv")
    assert done("verify", "m.expunge", "--json")["ok"]
    assert done("evaluate", "m.expunge", "others.csv", "--json")["records"] == 20
    assert len(done("predict", "m.expunge", "others.csv").splitlines()) == 21
    assert done("audit", "m.expunge", "--test", "others.csv", "--runs", "100", "--json")["ok"]


def test_k_means_takes_wide_text_too(ready, done):
    (ready / "schema.toml").write_text(schema("").replace("buckets = 8", "buckets = 4096"))
    done(*FIT, "--clusters", "2")
    assert len(done("predict", "m.expunge", "people.csv").splitlines()) == 61
    assert done("verify", "m.expunge", "--json")["ok"]
