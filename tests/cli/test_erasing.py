"""`expunge unlearn`: names from files and tables, dry runs, several models at once; and who comes back by `insert`."""

import shutil

import pytest

import expunge
from cli.conftest import contents, flat
from cli.tables import people, write_csv, write_parquet
from expunge.base.errors import BadRecords, FullStore
from expunge.cli import requests as commands
from expunge.store import failpoints

UNLEARN = ("unlearn", "m.expunge")
SECRET = "Maria Smith"


def ids_in(path):
    with expunge.open(path, read_only=True) as found:
        return set(found.ids_.tolist())


def customers(count=3, first=11):
    """Rows of a table that has more of people than their ids."""
    return [(number, f"{SECRET} {number}", "17 Main Street") for number in range(first, first + count)]


COLUMNS = ("customer_id", "name", "street")


# --- names from files ---------------------------------------------------------------------------------


def test_ids_come_from_standard_input(model, done, refused):
    path = model()
    assert done(*UNLEARN, "--ids-file", "-", "--json", given=b"11\n\r\n 12 \r\n")["records"] == 58
    assert ids_in(path) == set(range(1, 61)) - {11, 12}
    refused(3, "--ids-file: standard input is empty; write one id on each line", *UNLEARN, "--ids-file", "-")
    refused(4, "line 2 of standard input: not in", *UNLEARN, "--ids-file", "-", given=b"1\n12\n")
    refused(
        3,
        "--column: standard input has one id on each line",
        *UNLEARN,
        "--ids-file",
        "-",
        "--column",
        "x",
        given=b"x\n1",
    )


def test_people_come_from_standard_input(model, done):
    model(subject=True)
    assert done(*UNLEARN, "--subjects-file", "-", "--json", given=b"S-0004\n")["records"] == 58


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_ids_come_from_a_column_of_a_table(write, model, done, tmp_path):
    path = model()
    name = "requests.csv" if write is write_csv else "requests.parquet"
    write(tmp_path / name, customers(), COLUMNS)
    assert done(*UNLEARN, "--ids-file", name, "--column", "customer_id", "--json")["records"] == 57
    assert ids_in(path) == set(range(1, 61)) - {11, 12, 13}
    found = done("receipts", "m.expunge", "--ids-file", name, "--column", "customer_id", "--json")
    assert len(found["receipts"]) == 1


def test_a_table_of_one_column_needs_no_name_but_its_header_is_no_id(model, done, refused, tmp_path):
    model()
    (tmp_path / "bare.csv").write_text("11\n12\n")
    (tmp_path / "one.csv").write_text("customer_id\n13\n")
    write_parquet(tmp_path / "one.parquet", [(14,)], COLUMNS[:1])
    assert done(*UNLEARN, "--ids-file", "bare.csv", "--json")["records"] == 58
    refused(
        3,
        "line 1 of one.csv: not a 64-bit integer, as all of the column 'id' are. If it is a header, say so with "
        "--column",
        *UNLEARN,
        "--ids-file",
        "one.csv",
    )
    assert done(*UNLEARN, "--ids-file", "one.csv", "--column", "customer_id", "--json")["records"] == 57
    assert done(*UNLEARN, "--ids-file", "one.parquet", "--json")["records"] == 56


TABLES = {
    "no column": (3, "customers.csv has 3 columns ('customer_id', 'name', 'street'); say with --column", ()),
    "another column": (
        3,
        "--column id: customers.csv has no such column; there are 3 ('customer_id', 'name', 'street')",
        ("--column", "id"),
    ),
    "names instead of ids": (3, "line 2 of customers.csv: not a 64-bit integer", ("--column", "name")),
    "someone who is not there": (4, "line 5 of customers.csv: not in m.expunge", ("--column", "customer_id")),
}


@pytest.mark.parametrize("kind", ["integer", "text"])
@pytest.mark.parametrize("case", TABLES)
def test_rows_of_a_table_that_was_given_are_never_repeated(case, kind, model, refused, run, tmp_path):
    model(id=kind)
    write_csv(tmp_path / "customers.csv", [*customers(), (999, f"{SECRET} 999", "17 Main Street")], COLUMNS)
    code, said, how = TABLES[case]
    if (case, kind) == ("names instead of ids", "text"):
        code, said = 4, "line 2 of customers.csv, line 3 of customers.csv"
    message = refused(code, said, *UNLEARN, "--ids-file", "customers.csv", *how)
    assert "Maria" not in message
    assert "Main" not in message


@pytest.fixture
def latin(done, tmp_path):
    """A model of a table in Latin-1, whose ids have umlauts."""
    rows = [(f"Köln-{number}", number % 80, ("nö", "ja")[number % 2]) for number in range(1, 41)]
    table = "".join(f"{key};{age};{answer}\n" for key, age, answer in [("Kunde", "Alter", "Antwort"), *rows])
    (tmp_path / "kunden.csv").write_text(table, "cp1252")
    done("schema", "kunden.csv", "--id", "Kunde", "--target", "Antwort", "-q")
    done("fit", "kunden.csv", "--schema", "schema.toml", "-q", "-o", "m.expunge")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_requests_in_the_encoding_of_the_schema_are_understood(encoding, latin, done, run, tmp_path):
    (tmp_path / "req.csv").write_text("Nr;Kunde\n1;Köln-7\n2;Köln-8\n", encoding)
    (tmp_path / "one.txt").write_text("Köln-9\n", encoding)
    asked = (*UNLEARN, "--ids-file", "req.csv", "--column", "Kunde", "--json")
    assert done(*asked)["receipts"][0]["removed"] == 2
    assert done(*UNLEARN, "--ids-file", "one.txt", "--json")["receipts"][0]["removed"] == 1
    assert len(done("receipts", "m.expunge", "--ids-file", "one.txt", "--json")["receipts"]) == 1
    assert done("scan", "m.expunge", "--ids-file", "one.txt", "--json")["ok"]


def test_requests_in_another_encoding_are_understood_if_it_is_said(model, done, refused, tmp_path):
    model(id="text")
    write_csv(tmp_path / "new.csv", [("Köln", *row[1:]) for row in people(1, 101)])
    done("insert", "m.expunge", "new.csv")
    (tmp_path / "one.txt").write_text("Köln\n", "cp1252")
    (tmp_path / "req.csv").write_text("Nr,Kunde\n1,Köln\n", "cp1252")
    table = (*UNLEARN, "--ids-file", "req.csv", "--column", "Kunde")
    refused(3, "not UTF-8", *table)
    refused(3, "one.txt cannot be read (not in utf-8); give a text file, and its encoding with --encoding", *UNLEARN,
            "--ids-file", "one.txt")  # fmt: skip
    refused(3, 'use "utf-8", or one of a byte for each letter', *UNLEARN, "--ids-file", "one.txt", "--encoding", "x")
    done(*table, "--encoding", "cp1252", "--dry-run")
    done(*UNLEARN, "--ids-file", "one.txt", "--encoding", "cp1252")


@pytest.mark.parametrize("kind", ["integer", "text"])
@pytest.mark.parametrize("name", ["customers.csv", "customers.tsv", "customers.txt"])
def test_nor_are_they_where_the_header_is_lacking(name, kind, model, run, tmp_path):
    model(id=kind)
    lines = [f"{number},{SECRET},ms{number}@example.org,17 Main Street" for number in range(3)]
    text = "\n".join(lines)
    (tmp_path / name).write_text(text.replace(",", "\t") if name.endswith(".tsv") else text)
    for how in ((), ("--column", "customer_id"), ("--dry-run",), ("--ignore-missing", "--dry-run")):
        for command in (UNLEARN, ("receipts", "m.expunge"), ("scan", "m.expunge")):
            result = run(*command, "--ids-file", name, *how)
            assert result.code in (0, 2, 3, 4), result
            assert "Maria" not in result.out + result.err
            assert "Main" not in result.out + result.err


def test_nor_when_another_process_has_erased_them_meanwhile(model, monkeypatch, capsys, tmp_path):
    path = model(id="text")
    (tmp_path / "erase.txt").write_text("7\n")
    usual = commands.check_known

    def meanwhile(*what):
        usual(*what)
        with expunge.open(path) as found:
            found.unlearn(["7"])

    monkeypatch.setattr(commands, "check_known", meanwhile)
    with pytest.raises(commands.typer.Exit) as caught:
        commands.unlearn([path], ids_file=tmp_path / "erase.txt")
    assert caught.value.exit_code == 4
    said = flat(capsys.readouterr().err)
    assert "another process has deleted some of these in the meantime" in said
    assert "'7'" not in said


def test_a_column_without_a_file_or_with_gaps_is_refused(model, refused, tmp_path):
    model()
    refused(3, "--column: no file is given", *UNLEARN, "--id", 1, "--column", "customer_id")
    write_csv(tmp_path / "gaps.csv", [(11, "a", "b"), ("", "c", "d")], COLUMNS)
    refused(
        3, "--column customer_id: line 3 of gaps.csv has no id", *UNLEARN, "--ids-file", "gaps.csv", "--column",
        "customer_id",
    )  # fmt: skip
    write_csv(tmp_path / "none.csv", [], COLUMNS)
    refused(3, "none.csv is empty", *UNLEARN, "--ids-file", "none.csv", "--column", "customer_id")
    refused(3, "no such file", *UNLEARN, "--ids-file", "no.csv", "--column", "customer_id")
    (tmp_path / "nul.txt").write_bytes(b"1\n2\0\n")
    refused(3, "line 2 of nul.txt has a NUL byte", *UNLEARN, "--ids-file", "nul.txt")


# --- dry runs -----------------------------------------------------------------------------------------


def test_a_dry_run_says_who_would_be_erased_and_changes_nothing(model, done, run, tmp_path):
    model(subject=True)
    before = contents(tmp_path)
    said = done(*UNLEARN, "--subject", "S-0004", "--subject", "S-0005", "--dry-run")
    assert "m.expunge: 4 records would be deleted" in said
    assert "--subject S-0004 2" in flat(said)
    assert "This was a dry run: nothing was changed." in said
    found = done(*UNLEARN, "--id", 7, "--dry-run", "--json")
    assert found == {
        "dry_run": True,
        "models": [{"model": "m.expunge", "records": 1, "named": [{"name": "--id 7", "records": 1}]}],
    }
    assert contents(tmp_path) == before


def test_a_dry_run_exits_as_the_request_would(model, run, refused, tmp_path):
    model()
    before = contents(tmp_path)
    asked = (*UNLEARN, "--id", 7, "--id", 999)
    result = run(*asked, "--dry-run")
    assert result.code == run(*asked).code == 4
    assert "--id 999 not found" in flat(result.out)
    assert "1 record would be deleted" in result.out
    found = run(*asked, "--dry-run", "--json")
    assert (found.code, found.data["error"]["exit_code"], found.data["dry_run"]) == (4, 4, True)
    assert [one["records"] for one in found.data["models"][0]["named"]] == [1, 0]
    assert run(*asked, "--dry-run", "--ignore-missing").code == 0
    assert contents(tmp_path) == before
    refused(4, "duplicate name", *UNLEARN, "--id", 7, "--id", 7, "--dry-run")
    refused(3, "not a 64-bit integer", *UNLEARN, "--id", "x", "--dry-run")
    refused(5, "no such file", "unlearn", "no.expunge", "--id", 7, "--dry-run")


def test_a_dry_run_of_many_is_cut_and_one_of_the_last_is_none(model, done, tmp_path):
    model("ridge")
    (tmp_path / "all.txt").write_text("\n".join(map(str, range(1, 61))))
    assert "... and 40 more; --json lists all." in done(*UNLEARN, "--ids-file", "all.txt", "--dry-run")
    done(*UNLEARN, "--ids-file", "all.txt")
    assert "0 records would be deleted" in done(*UNLEARN, "--id", 1, "--dry-run", "--ignore-missing")


# --- several models -----------------------------------------------------------------------------------


@pytest.fixture
def three(model, tmp_path):
    """Three models of the same people."""
    path = model()
    paths = [tmp_path / f"{name}.expunge" for name in "abc"]
    for copy in paths:
        shutil.copy(path, copy)
        shutil.copy(f"{path}-key", f"{copy}-key")
    return paths


ALL = ("unlearn", "a.expunge", "b.expunge", "c.expunge")


def counts(paths):
    return [len(ids_in(path)) for path in paths]


def test_someone_is_erased_from_several_models(three, done):
    said = done(*ALL, "--id", 7)
    assert said.count("Done, and on disk") == said.count("59 records are in the model now.") == 3
    found = done(*ALL, "--id", 8, "--outcome", "--json")
    assert [(one["model"], one["status"], one["records"]) for one in found["models"]] == [
        ("a.expunge", "done", 58),
        ("b.expunge", "done", 58),
        ("c.expunge", "done", 58),
    ]
    assert len({one["receipts"][0]["request"] for one in found["models"]}) == 3
    assert all(len(one["receipts"]) == 1 and "outcome" in one for one in found["models"])
    assert counts(three) == [58] * 3


def test_who_is_in_some_of_the_models_only_is_erased_from_none_unless_asked(three, done, refused):
    done("unlearn", "b.expunge", "--id", 7)
    done("unlearn", "c.expunge", "--id", 8)
    said = refused(4, "--id 7: not in b.expunge; --id 8: not in c.expunge", *ALL, "--id", 7, "--id", 8)
    assert "a.expunge" not in said
    assert "Nothing was deleted" in said
    assert counts(three) == [60, 59, 59]
    dry = done(*ALL, "--id", 7, "--id", 8, "--dry-run", "--ignore-missing", "--json")
    assert [one["records"] for one in dry["models"]] == [2, 1, 1]
    found = done(*ALL, "--id", 7, "--id", 8, "--ignore-missing", "--json")
    assert [one["receipts"][0]["removed"] for one in found["models"]] == [2, 1, 1]
    assert counts(three) == [58] * 3


def test_all_models_are_looked_at_before_the_first_is_changed(three, done, refused, tmp_path):
    refused(5, "no.expunge: no such file", "unlearn", "a.expunge", "no.expunge", "--id", 7)
    refused(
        3, "a.expunge: is the same file as a.expunge", "unlearn", "a.expunge", "b.expunge", "./a.expunge", "--id", 7
    )
    done("keygen", "key.pem")
    done("unlearn", "c.expunge", "--id", 60, "--sign-with", "key.pem")
    refused(3, "c.expunge: --sign-with: the receipts of this store are signed", *ALL, "--id", 7)
    (tmp_path / "b.expunge-key").unlink()
    refused(5, "b.expunge-key: No such file", *ALL, "--id", 7, "--sign-with", "key.pem")
    assert counts(three) == [60, 60, 59]


def test_models_with_other_ids_are_named(three, model, refused, tmp_path):
    model(id="text")
    refused(3, "a.expunge: --id x: not a 64-bit integer", "unlearn", "m.expunge", "a.expunge", "--id", "x")


class Midway:
    """Fails when a request comes to a point for the n-th time."""

    def __init__(self, point, time, error):
        self.point, self.left, self.error = point, time, error

    def __call__(self, name):
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                raise self.error


@pytest.mark.parametrize(
    ("point", "status", "standing"),
    [
        ("request: recording", "not done", "Done: a.expunge. Not done: b.expunge, c.expunge."),
        (
            "request: decided",
            "begun",
            "Done: a.expunge. Begun, and finished by the next command that may write there, such as `expunge verify`: "
            "b.expunge. Not done: c.expunge.",
        ),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_failure_midway_says_what_was_done_where(
    point, status, standing, as_json, three, monkeypatch, capsys, tmp_path
):
    import json

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(failpoints, "hook", Midway(point, 2, FullStore("there is no room on the disk.")))
    with pytest.raises(commands.typer.Exit) as caught:
        commands.unlearn([path.relative_to(tmp_path) for path in three], id=["7"], json=as_json)
    assert caught.value.exit_code == 7
    printed = capsys.readouterr()
    if as_json:
        found = json.loads(printed.out)
        assert [one["status"] for one in found["models"]] == ["done", status, "not done"]
        assert found["models"][0]["records"] == 59
        assert standing in found["error"]["message"]
        assert found["error"]["exit_code"] == 7
    else:
        assert standing in flat(printed.err)
    monkeypatch.setattr(failpoints, "hook", None)
    for path in three:
        with expunge.open(path) as found:
            assert found.n_records_ == (59 if path == three[0] or (status == "begun" and path == three[1]) else 60)


@pytest.mark.parametrize(
    ("points", "statuses"),
    [
        (["request: recording"], ["not done", "not done", "not done"]),
        (["request: decided"], ["done", "not done", "not done"]),
        (["request: recorded", "request: written"], ["begun", "not done", "not done"]),
    ],
)
def test_ctrl_c_midway_says_what_was_done_where(points, statuses, three, run):
    result = run(*ALL, "--id", 7, "--json", hook={"points": points})
    assert result.code == 130
    assert [one["status"] for one in result.data["models"]] == statuses
    assert any("Not done: " in note for note in result.data["notes"])
    for path, status in zip(three, statuses, strict=True):
        with expunge.open(path) as found:
            assert found.n_records_ == (60 if status == "not done" else 59)


# --- who comes back -----------------------------------------------------------------------------------


def test_who_was_erased_and_comes_back_is_noted(model, done, run, tmp_path):
    model()
    done("unlearn", "m.expunge", "--id", 7, "--id", 9)
    write_csv(tmp_path / "back.csv", [people(1, 101)[0], *people(1, 7), people(1, 102)[0], *people(1, 9)])
    result = run("insert", "m.expunge", "back.csv")
    assert (result.code, "62 records are in the model now." in result.out) == (0, True)
    assert "Note: 2 records are of somebody who was deleted before, according to the receipts: see lines 3, 5." in flat(
        result.err
    )


def test_an_insertion_that_is_refused_brings_nobody_back_and_says_nothing_of_it(model, done, run, tmp_path):
    model()
    done("unlearn", "m.expunge", "--id", 7)
    write_csv(tmp_path / "back.csv", [*people(1, 7), *people(1, 8)])
    result = run("insert", "m.expunge", "back.csv")
    assert (result.code, "Note" in result.err) == (4, False), result


@pytest.mark.parametrize("by", ["--id", "--subject"])
def test_who_was_never_there_was_not_erased(by, model, done, run, tmp_path):
    model(subject=True, id="text")
    asked = (*UNLEARN, by, "ghost", "--ignore-missing")
    said = done(*asked)
    assert "Nothing was deleted: none of those given is in the model." in said
    assert "The receipt only says that the request was served" in flat(said)
    assert "Done" not in said
    assert done(*asked, "--json")["receipts"][0]["removed"] == 0
    write_csv(tmp_path / "new.csv", [("ghost", "ghost", *people(1, 101)[0][2:])])
    result = run("insert", "m.expunge", "new.csv")
    assert (result.code, result.err) == (0, "")


def test_people_and_several_tables(model, done, run, tmp_path):
    model(subject=True)
    done("unlearn", "m.expunge", "--subject", "S-0004")
    write_csv(tmp_path / "one.csv", [people(1, 201)[0]])
    write_csv(tmp_path / "two.csv", [(501, "S-0004", *people(1)[0][2:])])
    found = run("insert", "m.expunge", "one.csv", "two.csv", "--json").data
    assert found["erased_before"] == [2]
    assert (
        "1 record is of somebody who was deleted before, according to the receipts: "
        "counting the records read, number 2." in (found["notes"][-1])
    )
    write_csv(tmp_path / "new.csv", [people(1, 301)[0]])
    assert run("insert", "m.expunge", "new.csv", "--json").data["erased_before"] == []


def test_in_python_it_can_be_asked_for(model):
    path = model(subject=True)
    with expunge.open(path) as found:
        assert found.were_erased([7, 8]).tolist() == [False, False]
        found.unlearn([7])
        found.unlearn(subjects=["S-0009"])
        assert found.were_erased([7, 8, 17]).tolist() == [True, False, False]
        assert found.were_erased(subjects=["S-0009", "S-0004"]).tolist() == [True, False]
        assert found.were_erased([]).tolist() == []
        with pytest.raises(BadRecords, match="give either ids or subjects"):
            found.were_erased()
