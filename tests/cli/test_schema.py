"""`expunge schema`, and a newcomer's way from a table of theirs to an erasure."""

import tomllib

import pytest

from cli.conftest import flat
from cli.tables import COLUMNS, people, write_csv
from expunge.schema import read_schema

SCHEMA = ("schema", "people.csv")


@pytest.fixture
def table(tmp_path):
    write_csv(tmp_path / "people.csv", people())
    return tmp_path


def test_a_draft_warns_that_it_was_read_off_the_data(table, run):
    result = run(*SCHEMA)
    assert result.code == 0
    assert "schema.toml, drafted from 60 rows" in result.out
    assert "Next: confirm it, then expunge fit people.csv --schema schema.toml" in flat(result.out)
    said = flat(result.err)
    assert "this draft was read off the data. Everything in it must be PUBLIC KNOWLEDGE, since it stays" in said
    assert "set confirmed = true" in said
    found = read_schema(table / "schema.toml")
    assert (found.confirmed, found.id.name, found.target.name) == (False, "id", "sick")


def test_a_draft_in_json(table, done):
    found = done(*SCHEMA, "-o", "draft.toml", "--target", "bill", "--subject", "who", "--ignore", "joined", "--json")
    assert (found["schema"], found["rows"], found["confirmed"]) == ("draft.toml", 60, False)
    kinds = {name: one["kind"] for name, one in found["columns"].items()}
    assert (kinds["bill"], kinds["who"], kinds["joined"], kinds["age"]) == ("target", "subject", "ignore", "numeric")
    assert set(kinds) == set(COLUMNS)
    assert all(one.keys() == {"kind", "declared", "why"} for one in found["columns"].values())
    assert found["features"] == read_schema(table / "draft.toml").width
    assert "PUBLIC KNOWLEDGE" in found["notes"][-1]


def test_a_draft_is_overwritten_only_by_force(table, done, refused):
    (table / "schema.toml").write_text("mine")
    refused(3, "schema.toml: there is such a file already; give another name, or --force", *SCHEMA)
    done(*SCHEMA, "--force")
    assert tomllib.loads((table / "schema.toml").read_text())["confirmed"] is False


def test_broken_lines_are_passed_over_and_counted(table, run):
    lines = (table / "people.csv").read_text().splitlines()
    (table / "people.csv").write_text("\n".join([*lines[:4], "7,8", *lines[4:]]))
    result = run(*SCHEMA)
    assert result.code == 0
    said = "1 records cannot be read, and were passed over: people.csv: line 5 (2 fields, where the header has 8)."
    assert said in flat(result.err)


REFUSED = {
    "no such target": (3, "people.csv: no column 'sik'; there is 'sick'. Check the names", ("--target", "sik")),
    "no such id": (3, "people.csv: no column 'number'", ("--id", "number")),
    "no such subject": (3, "people.csv: no column 'person'", ("--subject", "person")),
    "no such column to leave out": (3, "people.csv: no column 'x'", ("--ignore", "x")),
    "two roles": (3, "id='id': the column is the target already", ("--target", "id", "--id", "id")),
    "nothing left": (
        3, "people.csv: no column is left to predict from",
        ("--target", "sick", *[word for name in COLUMNS[1:7] for word in ("--ignore", name)]),
    ),
    "a folder": (3, ".: a folder; give the name of a file in it", ("-o", ".")),
    "a folder that is not there": (3, "no/s.toml: there is no folder no; make it first", ("-o", "no/s.toml")),
    "an unknown option": (2, "No such option: --model", ("--model", "svm")),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drafted_is_refused(case, table, refused):
    code, said, options = REFUSED[case]
    refused(code, said, *SCHEMA, *options)


def test_tables_that_cannot_be_read_are_refused(table, refused):
    (table / "empty.csv").write_text("")
    write_csv(table / "header.csv", [])
    (table / "broken.csv").write_text("a,b\n1\n2\n")
    refused(3, "empty.csv: empty", "schema", "empty.csv")
    refused(3, "header.csv: there are no records to draft a schema from", "schema", "header.csv")
    refused(3, "all are broken (broken.csv: lines 2, 3 (1 field, where the header has 2))", "schema", "broken.csv")
    refused(3, "no.csv: there is no such file", "schema", "no.csv")
    refused(2, "Missing argument 'DATA'", "schema")


def test_a_newcomer_with_an_untidy_table(tmp_path, done, run):
    """Odd names, missing values, a date, free text, a decimal comma, a person with many records."""
    lines = ["Kunden-Nr.;Größe (cm);first visit;Bemerkung;größte Rechnung;is sick?"]
    for number, (_, who, age, _, day, note, bill, sick) in enumerate(people(80), 1):
        size = "" if number % 9 == 0 else "NA" if number % 10 == 0 else 100 + age
        text = f'"{note}; said ""{note}"", then left and came again"'
        lines.append(f"{who};{size};{day if number % 7 else '?'};{text};{str(bill).replace('.', ',')};{sick}")
    (tmp_path / "Kunden 2026.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    draft = done("schema", "Kunden 2026.csv", "--subject", "Kunden-Nr.", "--target", "is sick?", "--json")
    kinds = {name: one["kind"] for name, one in draft["columns"].items()}
    assert kinds == {
        "Kunden-Nr.": "subject", "Größe (cm)": "numeric", "first visit": "date", "Bemerkung": "text",
        "größte Rechnung": "ignore", "is sick?": "target",
    }  # fmt: skip
    asked = ("fit", "Kunden 2026.csv", "--schema", "schema.toml", "-o", "m.expunge")
    stopped = run(*asked)
    assert stopped.code == 3
    assert "--records-per-subject 1. Declare" in flat(stopped.err)
    found = done(*asked, "--records-per-subject", 2, "--json")
    assert (found["records"], found["schema_confirmed"]) == (80, False)
    assert found["data"]["missing"] == {"Größe (cm)": 16, "first visit": 11}
    assert done("unlearn", "m.expunge", "--subject", "S-0003", "--json")["records"] == 78
    assert done("verify", "m.expunge", "--json")["ok"]
