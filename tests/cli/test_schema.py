"""`expunge schema`, and a newcomer's way from a table of theirs to an erasure."""

import tomllib

import pytest

from cli.conftest import flat
from cli.tables import COLUMNS, people, write_csv
from expunge.tables.schema import read_schema

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
    assert "this draft was derived from the data. Everything in it must be PUBLIC KNOWLEDGE, since it stays" in said
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
    refused(3, "schema.toml: this file exists already; give another name, or --force", *SCHEMA)
    done(*SCHEMA, "--force")
    assert tomllib.loads((table / "schema.toml").read_text())["confirmed"] is False


def test_broken_lines_are_passed_over_and_counted(table, run):
    lines = (table / "people.csv").read_text().splitlines()
    (table / "people.csv").write_text("\n".join([*lines[:4], "7,8", *lines[4:]]))
    result = run(*SCHEMA)
    assert result.code == 0
    said = "1 record cannot be read, and was skipped: people.csv: line 5 (2 fields, where the header has 8)."
    assert said in flat(result.err)


REFUSED = {
    "no such target": (3, "people.csv: no column 'sik'; there is 'sick'. Check the names", ("--target", "sik")),
    "no such id": (3, "people.csv: no column 'number'", ("--id", "number")),
    "no such subject": (3, "people.csv: no column 'person'", ("--subject", "person")),
    "no such column to leave out": (3, "people.csv: no column 'x'", ("--ignore", "x")),
    "two roles": (3, "id='id': the column is the target already", ("--target", "id", "--id", "id")),
    "nothing left": (
        3, "people.csv: no feature columns",
        ("--target", "sick", *[word for name in COLUMNS[1:7] for word in ("--ignore", name)]),
    ),
    "a folder": (3, ".: a folder; give the name of a file in it", ("-o", ".")),
    "a folder that is not there": (3, "no/s.toml: no such folder: no; make it first", ("-o", "no/s.toml")),
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
    refused(3, "header.csv: no records to draft a schema from", "schema", "header.csv")
    refused(3, "all are broken (broken.csv: lines 2, 3 (1 field, where the header has 2))", "schema", "broken.csv")
    refused(3, "no.csv: no such file", "schema", "no.csv")
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
        "größte Rechnung": "numeric", "is sick?": "target",
    }  # fmt: skip
    asked = ("fit", "Kunden 2026.csv", "--schema", "schema.toml", "-o", "m.expunge")
    stopped = run(*asked, "--solver", "dual_averaging")
    assert stopped.code == 3
    assert "columns without a range: Größe (cm), first visit, größte Rechnung" in flat(stopped.err)
    found = done(*asked, "--json")
    assert (found["records"], found["schema_confirmed"]) == (80, False)
    assert found["data"]["missing"] == {"Größe (cm)": 16, "first visit": 11}
    assert done("unlearn", "m.expunge", "--subject", "S-0003", "--json")["records"] == 78
    assert done("verify", "m.expunge", "--json")["ok"]


# --- tables from elsewhere ----------------------------------------------------------------------------


def write_european(path, first, count, encoding="cp1252"):
    """A table as European offices have them: semicolons, decimal commas, % and €, the day first, umlauts in Latin-1."""
    lines = ["Nr;Größe;Anteil;Miete;Seit;Stadt;zahlt"]
    for number in range(first, first + count):
        rent = f"{250 * (number % 11) + 0.5:,.2f}".translate({ord(","): ".", ord("."): ","})
        city = ("Köln", "Münster", "Bonn")[number % 3]
        day = f"{1 + number % 28:02}.{1 + number % 12:02}.{2015 + number % 9}"
        paid = "nö" if number % 11 > 5 else "ja"
        lines.append(f"{number};1,{50 + number % 49};{number % 100},5 %;{rent} €;{day};{city};{paid}")
    path.write_bytes("\r\n".join(lines).encode(encoding))


def test_a_european_table_from_draft_to_prediction(tmp_path, done, run, refused):
    write_european(tmp_path / "leute.csv", 1, 200)
    result = run("schema", "leute.csv", "--id", "Nr", "--target", "zahlt")
    assert result.code == 0
    assert "they were read as cp1252, which is a guess" in flat(result.err)
    text = (tmp_path / "schema.toml").read_text(encoding="utf-8")
    for said in (
        'encoding = "cp1252" # guessed; check',
        "# numbers; guessed: decimal comma; check",
        "# numbers; guessed: decimal comma, unit %; check",
        "guessed: decimal comma, point between thousands, unit €; check",
        "# dates; guessed: day before month; check",
        'format = "%d.%m.%Y"',
        'values = ["Bonn", "Köln", "Münster"]',
    ):
        assert said in text
    found = read_schema(tmp_path / "schema.toml")
    kinds = {part.name: part.kind for part in found.features}
    assert kinds == {
        "Größe": "numeric", "Anteil": "numeric", "Miete": "numeric", "Seit": "date", "Stadt": "categorical",
    }  # fmt: skip
    (tmp_path / "schema.toml").write_text(text.replace("confirmed = false", "confirmed = true"), encoding="utf-8")
    write_european(tmp_path / "neue.csv", 201, 40)
    fitted = done("fit", "leute.csv", "--schema", "schema.toml", "-o", "m.expunge", "--rho", "1", "--json")
    assert fitted["data"] == {"rows": 200, "clipped": {}, "unknown": {}, "missing": {}, "skipped": 0}
    latin = done("predict", "m.expunge", "neue.csv")
    assert len(latin.splitlines()) == 41
    assert "probability of nö" in latin
    assert done("evaluate", "m.expunge", "neue.csv", "--json")["accuracy"] > 0.6
    write_european(tmp_path / "utf8.csv", 201, 40, "utf-8")
    refused(3, "utf8.csv: is UTF-8, not cp1252 as declared; give --encoding utf-8", "evaluate", "m.expunge", "utf8.csv")
    assert done("predict", "m.expunge", "utf8.csv", "--encoding", "utf-8") == latin
    assert done("insert", "m.expunge", "neue.csv", "--json")["records"] == 240
    done("replace", "m.expunge", "utf8.csv", "--encoding", "utf-8")
    assert done("verify", "m.expunge", "--json")["ok"]
    (tmp_path / "odd.csv").write_bytes((tmp_path / "neue.csv").read_bytes().replace(b",5 %", b".5 %", 1))
    refused(3, "odd.csv: line 2 (column 'Anteil': not a number); fix the file", "evaluate", "m.expunge", "odd.csv")


def test_latin_1_without_a_word_about_it_is_refused_with_a_remedy(tmp_path, done, refused):
    write_european(tmp_path / "leute.csv", 1, 60, "utf-8")
    done("schema", "leute.csv", "--id", "Nr", "--target", "zahlt")
    write_european(tmp_path / "leute.csv", 1, 60)
    fit = ("fit", "leute.csv", "--schema", "schema.toml", "-o", "m.expunge")
    refused(3, "the header is broken (byte 0xF6 is not UTF-8); if the file is in Latin-1, declare encoding", *fit)
    refused(3, "encoding = 'klingon': use \"utf-8\"", *fit, "--encoding", "klingon")
    done(*fit, "--encoding", "cp1252", "-q")
