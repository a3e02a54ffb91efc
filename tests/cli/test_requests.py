"""`expunge unlearn`, `insert`, `replace` and `replan`: whole requests or none, and their receipts."""

import sqlite3

import numpy as np
import pytest
import typer

import expunge
from cli.conftest import flat
from cli.tables import COLUMNS, people, write_csv
from expunge.cli.inspect import info
from expunge.cli.requests import insert, replace, unlearn
from expunge.store import failpoints, scan
from expunge.store.receipts import Receipt

UNLEARN, INSERT, REPLACE = ("unlearn", "m.expunge"), ("insert", "m.expunge"), ("replace", "m.expunge")


def ids_in(path):
    with expunge.open(path, read_only=True) as found:
        return set(found.ids_.tolist())


# --- erasing ------------------------------------------------------------------------------------------


def test_records_are_erased_and_the_receipt_is_printed(model, done):
    path = model()
    said = done(*UNLEARN, "--id", 7, "--id", "8")
    assert "Done, and on disk" in said
    row = next(line for line in said.splitlines() if " delete " in line)
    assert row.split()[1:4] == ["delete", "2", "0"]
    assert row.split()[-1] == "no"
    assert "58 records are in the model now." in said
    assert ids_in(path) == set(range(1, 61)) - {7, 8}


def test_a_receipt_in_json_says_that_and_never_how(model, done):
    model()
    found = done(*UNLEARN, "--id", 7, "--json")
    assert found.keys() == {"receipts", "records"}
    (receipt,) = found["receipts"]
    assert receipt.keys() == {
        "request", "kind", "named_by", "digests", "removed", "added", "day", "version", "plan", "previous", "signature",
        "hash",
    }  # fmt: skip
    assert (receipt["kind"], receipt["named_by"], receipt["removed"], len(receipt["digests"])) == (
        "delete",
        "ids",
        1,
        1,
    )


def test_of_all_receipts_only_the_one_that_was_made_is_read(model, tmp_path, monkeypatch):
    path = model()
    with expunge.open(path) as found:
        found.unlearn(np.arange(1, 21))
    parsed, read = [], Receipt.from_json.__func__
    monkeypatch.setattr(
        Receipt, "from_json", classmethod(lambda cls, text: parsed.append(read(cls, text)) or parsed[-1])
    )
    unlearn([path], id=["30"])
    replace(path, [write_csv(tmp_path / "corrected.csv", people(2, 41, seed=2))])
    info(path)
    assert [(one.kind, one.removed, one.added) for one in parsed] == [
        ("delete", 1, 0), ("replace", 2, 2),
    ]  # fmt: skip
    parsed.clear()
    insert(path, [write_csv(tmp_path / "new.csv", people(3, 901))])  # who looks for those who were erased, once
    assert [one.kind for one in parsed] == ["delete", "delete", "replace", "insert"]


def test_the_outcome_is_told_only_to_who_asks(model, run):
    model()
    result = run(*UNLEARN, "--id", 7)
    assert "replay" not in result.out + result.err
    result = run(*UNLEARN, "--id", 8, "--outcome")
    assert "Note: outcome, for you only (it depends on the record, so do not store it): the request" in flat(result.err)
    assert "replay" not in result.out
    found = run(*UNLEARN, "--id", 9, "--outcome", "--json").data
    assert found["outcome"].keys() == {"kept", "seconds", "evaluations"}


def test_ids_come_from_a_file_with_blank_lines_and_spaces(model, done, tmp_path):
    path = model()
    (tmp_path / "erase.txt").write_text("\ufeff11\n\n  12 \n\n13")
    assert done(*UNLEARN, "--ids-file", "erase.txt", "--id", 14, "--json")["records"] == 56
    assert ids_in(path) == set(range(1, 61)) - {11, 12, 13, 14}


def test_those_that_are_not_there_are_passed_over_if_so_asked(model, done):
    path = model()
    found = done(*UNLEARN, "--id", 7, "--id", 999, "--ignore-missing", "--json")
    assert (found["receipts"][0]["removed"], found["records"]) == (1, 59)
    assert ids_in(path) == set(range(1, 61)) - {7}


def test_ids_that_are_texts(model, done, refused, tmp_path):
    path = model(id="text")
    done(*UNLEARN, "--id", "7")
    refused(4, "--id 07: not in m.expunge", *UNLEARN, "--id", "07")
    assert "7" not in ids_in(path)


def test_records_without_ids_are_named_by_their_number(model, done, refused):
    model(id="")
    assert done(*UNLEARN, "--number", 0, "--json")["records"] == 59
    refused(4, "--number 60: not in m.expunge", *UNLEARN, "--number", 60)
    refused(3, "--id: the schema has no id column. Records are numbered from 0", *UNLEARN, "--id", 1)
    refused(3, "the schema has no id column", *REPLACE, "others.csv")


def test_people_are_erased_with_all_their_records(model, done, refused, tmp_path):
    path = model(subject=True)
    assert done(*UNLEARN, "--subject", "S-0004", "--json")["receipts"][0]["named_by"] == "subjects"
    (tmp_path / "erase.txt").write_text("S-0007\nS-0009\n")
    assert done(*UNLEARN, "--subjects-file", "erase.txt", "--json")["records"] == 54
    assert ids_in(path) == set(range(1, 61)) - {7, 8, 13, 14, 17, 18}
    assert done(*UNLEARN, "--id", 1, "--json")["records"] == 53  # single records can be, too
    assert not scan(path, ["S-0004", "S-0007", "S-0009"])
    refused(4, "--subject S-0004: not in m.expunge", *UNLEARN, "--subject", "S-0004")
    found = done("receipts", "m.expunge", "--subject", "S-0007", "--json")
    assert [one["removed"] for one in found["receipts"]] == [4]
    assert done("receipts", "m.expunge", "--subject", "S-0001", "--json")["receipts"] == []


def test_all_can_be_erased_and_others_come(model, done, tmp_path):
    model("ridge")
    (tmp_path / "all.txt").write_text("\n".join(map(str, range(1, 61))))
    assert done(*UNLEARN, "--ids-file", "all.txt", "--json")["records"] == 0
    assert done("verify", "m.expunge", "--json")["records"] == 0
    assert done(*INSERT, "others.csv", "--json")["records"] == 20


def test_a_model_made_in_python_takes_ids_but_no_tables(refused, done, tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    names = [f"p{number}" for number in range(50)]
    expunge.LogisticRegression(solver="dual_averaging").fit(X, X[:, 0] > 0, ids=names).save(tmp_path / "m.expunge")
    write_csv(tmp_path / "others.csv", people())
    assert done(*UNLEARN, "--id", "p17", "--json")["records"] == 49
    said = "m.expunge: this model was made in Python, without a schema"
    for command in ("predict", "evaluate", "insert", "replace"):
        assert "or fit it with `expunge fit --schema`" in refused(3, said, command, "m.expunge", "others.csv")
    refused(4, "--id p17: not in m.expunge", *UNLEARN, "--id", "p17")
    assert "schema" not in done("info", "m.expunge", "--json")


UNKNOWN = {
    "nobody": (3, "--id: no ids are given; give records (--id, --ids-file), people", ()),
    "both": (3, "--id: too many kinds of names at once; give records", ("--id", "1", "--subject", "S-0001")),
    "people without a column": (
        3,
        "the schema has no subject column; give records with --id",
        ("--subject", "x"),
    ),
    "not there": (4, "--id 999: not in m.expunge. They were deleted already, or were never in it", ("--id", "999")),
    "one of two": (4, "--id 999: not in m.expunge", ("--id", "1", "--id", "999")),
    "twice": (4, "--id 1, --id 1: duplicate name; give each name once", ("--id", "1", "--id", "1")),
    "another type": (3, "--id abc: not a 64-bit integer, as all of the column 'id' are", ("--id", "abc")),
    "a fraction": (3, "--id 1.0: not a 64-bit integer", ("--id", "1.0")),
    "too large": (3, "--id 99999999999999999999: not a 64-bit integer", ("--id", "9" * 20)),
    "empty": (3, "--id: empty; give the id itself", ("--id", "")),
    "no such file": (3, "--ids-file: no.txt cannot be read", ("--ids-file", "no.txt")),
    "a folder": (3, "--ids-file: . cannot be read", ("--ids-file", ".")),
    "an empty file": (3, "--ids-file: empty.txt is empty; write one id on each line", ("--ids-file", "empty.txt")),
    "twice in a file": (
        4,
        "line 1 of twice.txt, line 2 of twice.txt: duplicate name",
        ("--ids-file", "twice.txt"),
    ),
    "in a file and beside": (
        4,
        "--id 6, line 1 of once.txt: duplicate name",
        ("--ids-file", "once.txt", "--id", "6"),
    ),
    "no number in a file": (3, "line 1 of header.txt: not a 64-bit integer", ("--ids-file", "header.txt")),
    "no text": (3, "--ids-file: binary.txt cannot be read", ("--ids-file", "binary.txt")),
    "an empty file of people": (3, "--subjects-file: empty.txt is empty", ("--subjects-file", "empty.txt")),
    "a key that is none": (3, "others.csv: not a private key in PEM", ("--id", "1", "--sign-with", "others.csv")),
    "no key": (5, "no.pem: No such file", ("--id", "1", "--sign-with", "no.pem")),
    "a wait below 0": (3, "--wait -1.0: give a number of seconds, 0 or more", ("--id", "1", "--wait", "-1")),
    "no wait": (2, "Invalid value for '--wait'", ("--id", "1", "--wait", "x")),
    "an option of another": (2, "No such option: --on-error", ("--id", "1", "--on-error", "skip")),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_erased_is_refused_and_nothing_is(case, model, refused, tmp_path):
    model()
    for name, content in (("empty.txt", "\n \n"), ("twice.txt", "5\n5\n"), ("once.txt", "6"), ("header.txt", "id\n1")):
        (tmp_path / name).write_text(content)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe1")
    code, said, arguments = UNKNOWN[case]
    refused(code, said, *UNLEARN, *arguments)


# --- adding and correcting ----------------------------------------------------------------------------


def test_records_are_added(model, done):
    path = model()
    said = done(*INSERT, "others.csv")
    assert next(line for line in said.splitlines() if " insert " in line).split()[1:4] == ["insert", "0", "20"]
    assert "80 records are in the model now." in said
    assert ids_in(path) == {*range(1, 61), *range(101, 121)}


def test_records_are_corrected(model, done, tmp_path):
    path = model("ridge")
    before = done("predict", "m.expunge", "others.csv")
    write_csv(tmp_path / "better.csv", [(*row[:6], 999.0, row[7]) for row in people(4)])
    said = done(*REPLACE, "better.csv")
    assert next(line for line in said.splitlines() if " replace " in line).split()[1:4] == ["replace", "4", "4"]
    assert ids_in(path) == set(range(1, 61))
    assert done("predict", "m.expunge", "others.csv") != before


def test_a_table_may_have_some_that_are_not_there_if_so_asked(model, done, tmp_path):
    model()
    write_csv(tmp_path / "better.csv", people(4, 59))
    found = done(*REPLACE, "better.csv", "--ignore-missing", "--json")
    assert (found["receipts"][0]["removed"], found["records"]) == (2, 60)


def test_broken_lines_are_skipped_and_counted(model, run, tmp_path):
    model()
    rows = [list(row) for row in people(5, 101)]
    rows[2][7] = "maybe"
    write_csv(tmp_path / "odd.csv", rows)
    found = run(*INSERT, "odd.csv", "--on-error", "skip", "--json").data
    assert (found["data"]["skipped"], found["data"]["rows"], found["records"]) == (1, 4, 64)
    assert "line 4 (column 'sick': none of the target's values)" in found["notes"][0]


CHANGES = {
    "an id that is taken": (4, INSERT, people(3), "ids: 1 is in the model already; use replace, or give a new id"),
    "an id twice": (4, INSERT, [*people(3, 101), people(1, 101)[0]], "ids: duplicate id 101"),
    "an id that is not there": (
        4,
        REPLACE,
        people(3, 59),
        "line 4: id not found in the model. `expunge insert` adds new records; --ignore-missing skips them.",
    ),
    "a correction twice": (4, REPLACE, [people(1)[0], people(1)[0]], "ids: duplicate id 1; give each record once"),
    "no records": (3, INSERT, [], "new.csv: no records; give at least one"),
    "no corrections": (3, REPLACE, [], "new.csv: no records; give at least one"),
    "an id of another type": (
        3,
        INSERT,
        [("x", *people(1)[0][1:])],
        "new.csv: line 2 (column 'id': not a 64-bit integer",
    ),
    "no id": (3, REPLACE, [("", *people(1)[0][1:])], "new.csv: line 2 (column 'id': missing)"),
    "a short line": (3, INSERT, [*people(2, 101), (103, "S-1")], "new.csv: line 4 (2 fields, where the header has 8)"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_cannot_be_added_or_corrected_is_refused_and_nothing_is(case, model, refused, tmp_path):
    model()
    code, command, rows, said = CHANGES[case]
    write_csv(tmp_path / "new.csv", rows)
    refused(code, said, *command, "new.csv")


def test_tables_that_lack_columns_are_refused(model, refused, tmp_path):
    model()
    write_csv(tmp_path / "lack.csv", [row[:7] for row in people(3, 101)], COLUMNS[:7])
    refused(3, "lack.csv: no column 'sick'", *INSERT, "lack.csv")
    write_csv(tmp_path / "lack.csv", [row[1:] for row in people(3, 101)], COLUMNS[1:])
    refused(3, "lack.csv: no column 'id'", *REPLACE, "lack.csv")
    refused(3, "no.csv: no such file", *INSERT, "no.csv")
    refused(2, "Missing argument 'DATA'", *INSERT)


def test_a_person_cannot_get_more_records_than_declared(model, done, refused, tmp_path):
    """With noise on sums, that is; Newton's method takes as many as there are."""
    model(subject=True).unlink()
    fit = ("fit", "people.csv", "--schema", "schema.toml", "--solver", "dual_averaging", "-o", "m.expunge")
    refused(3, "--records-per-subject 1. Declare", *fit)
    done(*fit, "--records-per-subject", 2)
    write_csv(tmp_path / "new.csv", [(101, "S-0001", *people(1)[0][2:])])
    refused(3, "'S-0001' would have 3 records, --records-per-subject 2", *INSERT, "new.csv")


# --- a new plan ---------------------------------------------------------------------------------------


def test_a_new_plan(model, done, refused):
    model()
    assert "m.expunge was refitted in" in done("replan", "m.expunge")
    found = done("replan", "m.expunge", "--expected-records", "1e4", "--json")
    assert found["records"] == 60
    assert found["size_class"][0] <= 10_000 <= found["size_class"][1]
    assert done("verify", "m.expunge", "--json")["ok"]
    refused(3, "--expected-records 0: give a whole number above 0", "replan", "m.expunge", "--expected-records", "0")
    refused(2, "'1.5' is not a whole number, such as 2e6", "replan", "m.expunge", "--expected-records", "1.5")


def test_a_plan_that_is_outgrown_is_noted(model, run, tmp_path):
    model()
    write_csv(tmp_path / "many.csv", people(300, 101))
    result = run(*INSERT, "many.csv")
    assert result.code == 0
    assert "Note: there are now 360 records, and the plan is for 16 to 256" in flat(result.err)


# --- two at once --------------------------------------------------------------------------------------


def test_a_second_writer_is_told_to_try_again(model, run, monkeypatch):
    path = model()
    commands = ((*UNLEARN, "--id", "9"), (*INSERT, "others.csv"), (*REPLACE, "people.csv"), ("compact", "m.expunge"))
    told = []

    def meanwhile(name):
        if name == "request: decided":
            failpoints.hook = None
            told.extend(run(*command, "--wait", "0.1") for command in commands)
            told.append(run(*UNLEARN, "--id", "9", "--wait", "0", "--json"))

    monkeypatch.setattr(failpoints, "hook", meanwhile)
    with expunge.open(path) as found:
        found.unlearn([7])
    assert [result.code for result in told] == [6] * 5
    for result in told[:4]:
        assert (result.out, "other processes have been writing for 0.1 s" in flat(result.err)) == ("", True)
    assert told[4].data["error"]["kind"] == "BusyStore"
    assert ids_in(path) == set(range(1, 61)) - {7}


def test_a_correction_does_not_give_a_record_to_someone_else(model, done, refused, tmp_path):
    model(subject=True)
    mine = people(1)[0]
    write_csv(tmp_path / "same.csv", [mine])
    assert done(*REPLACE, "same.csv", "--json")["records"] == 60
    write_csv(tmp_path / "moved.csv", [(mine[0], "S-0002", *mine[2:])])
    refused(3, ["column 'who': record 1 belongs to another subject", "insert it again"], *REPLACE, "moved.csv")


# --- what others do meanwhile -------------------------------------------------------------------------


@pytest.fixture
def other(model):
    """Another program that has the model's file open."""
    connection = sqlite3.connect(model(), isolation_level=None)
    yield connection
    connection.close()


def test_what_is_done_is_acknowledged_though_deleted_bytes_are_still_in_the_log(other, run):
    other.execute("BEGIN")
    other.execute("SELECT * FROM about").fetchall()
    result = run(*UNLEARN, "--id", "7", "--wait", "0.1")
    assert result.code == 0
    assert "Done, and on disk" in result.out
    assert "log, which may have deleted bytes, cannot be emptied" in flat(result.err)
    assert "completed and saved. Do not repeat it" in flat(result.err)
    result = run(*UNLEARN, "--id", "8", "--wait", "0.1", "--json")
    assert (result.code, result.data["error"]["kind"]) == (6, "BusyStore")
    other.execute("ROLLBACK")
    found = run(*UNLEARN, "--id", "8", "--json").data
    assert (found["records"], len(found["receipts"]), "notes" in found) == (58, 1, False)


def test_while_another_program_writes_nothing_is_done_and_it_says_so(other, run):
    other.execute("BEGIN IMMEDIATE")
    result = run(*UNLEARN, "--id", "7", "--wait", "0.1")
    assert (result.code, result.out) == (6, "")
    assert "cannot be emptied, since another program is writing" in flat(result.err)
    assert "done" not in result.err
    other.execute("ROLLBACK")
    assert run(*UNLEARN, "--id", "7", "--json").data["records"] == 59


def test_who_waits_to_be_erased_is_not_to_be_asked_for_again(other, monkeypatch, capsys, tmp_path):
    def meanwhile(name):
        if name == "request: recorded":
            other.execute("BEGIN IMMEDIATE")

    monkeypatch.setattr(failpoints, "hook", meanwhile)
    with pytest.raises(typer.Exit) as caught:
        unlearn([tmp_path / "m.expunge"], id=["7"], wait=0.1)
    assert caught.value.exit_code == 5
    assert "recorded; the next use of the store finishes it, so do not repeat it." in flat(capsys.readouterr().err)
    other.execute("ROLLBACK")
    monkeypatch.setattr(failpoints, "hook", None)
    with expunge.open(tmp_path / "m.expunge") as found:
        assert found.n_records_ == 59
