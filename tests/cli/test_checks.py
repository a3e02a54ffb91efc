"""`expunge info`, `receipts`, `keygen`, `verify` and `scan`; and files that are no stores, for all commands."""

import json
import sqlite3

import numpy as np
import pytest

import expunge
from cli.conftest import KINDS, flat
from cli.tables import COLUMNS, people, write_csv
from expunge.store import check_receipts

RECEIPTS, SCAN, VERIFY = ("receipts", "m.expunge"), ("scan", "m.expunge"), ("verify", "m.expunge")


# --- info ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic", "ridge", "boosting", "kmeans"])
def test_what_a_model_is(kind, model, done):
    path = model(kind)
    said = flat(done("info", "m.expunge"))
    for word in ("records 60", "features 14", "schema confirmed as public", "receipts 0"):
        assert word in said
    found = done("info", "m.expunge", "--json")
    assert found.keys() >= {
        "kind", "records", "features", "size_class", "bytes", "receipts", "head", "store", "version", "schema",
    }  # fmt: skip
    assert (found["records"], found["bytes"], found["receipts"]) == (60, path.stat().st_size, 0)
    assert found["schema"]["columns"][:4] == ["age", "city", "joined", "note"]
    assert (found["schema"]["id"], found["schema"]["target"]) == ("id", KINDS[kind] or None)
    assert ("classes" in found) == (KINDS[kind] == "sick")


def test_a_draft_that_nobody_confirmed_is_named(model, done):
    model(confirmed=False)
    assert "drafted from data, NOT confirmed as public" in flat(done("info", "m.expunge"))


# --- receipts -----------------------------------------------------------------------------------------


@pytest.fixture
def erased(model, done):
    """A model from which two were erased, one after the other, signed."""
    path = model()
    done("keygen", "key.pem")
    for number in (7, 8):
        done("unlearn", "m.expunge", "--id", number, "--sign-with", "key.pem")
    return path


def test_a_key_is_made_once(done, refused, tmp_path):
    said = flat(done("keygen", "key.pem"))
    assert "private key key.pem public key key.pem.pub" in said
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert done("keygen", "other.pem", "--json") == {"key": "other.pem", "public_key": "other.pem.pub"}
    refused(3, "key.pem: this is a secret key, and is never overwritten; give another name.", "keygen", "key.pem")
    refused(3, ".: a folder; give the name of a file in it", "keygen", ".")
    refused(3, "no/key.pem: no such folder: no; make it first", "keygen", "no/key.pem")
    (tmp_path / "third.pem.pub").write_text("")
    refused(5, "third.pem.pub: exists already", "keygen", "third.pem")
    refused(2, "Missing argument 'KEY'", "keygen")


def test_receipts_are_listed_and_checked(erased, done):
    said = done(*RECEIPTS, "--public-key", "key.pem.pub")
    rows = [line.split() for line in said.splitlines() if " delete " in line]
    assert [row[1:4] + row[-1:] for row in rows] == [["delete", "1", "0", "yes"]] * 2
    assert "2 receipts in all, 2 of them signed: an unbroken chain." in said
    found = done(*RECEIPTS, "--json")
    assert (found["ok"], found["problems"], found["checked"], found["signed"]) == (True, [], 2, 2)
    assert [one["removed"] for one in found["receipts"]] == [1, 1]
    noted = found["receipts"][0]["hash"]
    assert done(*RECEIPTS, "--noted", noted, "--json")["ok"]


def test_a_model_without_requests_has_no_receipts(model, done):
    model()
    assert "0 receipts in all, 0 of them signed: an unbroken chain" in done(*RECEIPTS)


def test_receipts_of_one_record(erased, done):
    assert len(done(*RECEIPTS, "--id", 7, "--json")["receipts"]) == 1
    assert done(*RECEIPTS, "--id", 9, "--json")["receipts"] == []
    (erased.parent / "both.txt").write_text("7\n8\n")
    assert len(done(*RECEIPTS, "--ids-file", "both.txt", "--json")["receipts"]) == 2


def test_receipts_are_exported_and_checked_without_the_model(erased, done, refused, tmp_path):
    assert "Exported to r.json." in done(*RECEIPTS, "-o", "r.json")
    erased.unlink()
    said = done("receipts", "r.json", "--public-key", "key.pem.pub")
    assert "2 receipts in all, 2 of them signed: an unbroken chain" in said
    assert check_receipts(tmp_path / "r.json").ok
    public = check_receipts(tmp_path / "r.json", public_key=tmp_path / "key.pem.pub")
    assert (public.ok, public.signed) == (True, 2)
    refused(
        3, "exported receipts name people by digests only; give the model's own file", "receipts", "r.json", "--id", 7
    )


def tampered(path, change):
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


TAMPERED = {
    "a count": (lambda told: told["receipts"][0].update(removed=2), "receipts[0]: hash: not that of the other fields"),
    "a day": (lambda told: told["receipts"][1].update(day="2020-01-01"), "receipts[1]: hash"),
    "one less": (lambda told: told["receipts"].pop(0), "receipts[0]"),
    "the last": (lambda told: told["receipts"].pop(), "head"),
    "the order": (lambda told: told["receipts"].reverse(), "receipts[0]"),
    "the head": (lambda told: told.update(head="0" * 64), "head"),
    "no receipts": (lambda told: told.clear(), "format"),
    "another thing": (lambda told: told["receipts"].append(7), "receipts[2]"),
}  # fmt: skip


@pytest.mark.parametrize("case", TAMPERED)
def test_exported_receipts_that_were_tampered_with_are_found_out(case, erased, done, run, tmp_path):
    change, said = TAMPERED[case]
    done(*RECEIPTS, "-o", "r.json")
    tampered(tmp_path / "r.json", change)
    result = run("receipts", "r.json", "--public-key", "key.pem.pub")
    assert result.code == 1
    assert "NOT as they were written" in result.out
    assert f"- {said}" in result.out
    found = run("receipts", "r.json", "--public-key", "key.pem.pub", "--json")
    assert (found.code, found.data["ok"]) == (1, False)
    assert any(said in problem for problem in found.data["problems"])


def test_receipts_of_which_some_are_not_signed_are_said_to_be_just_that(erased, done, run):
    done("unlearn", "m.expunge", "--id", "9", "--unsigned")
    result = run(*RECEIPTS, "--public-key", "key.pem.pub")
    assert result.code == 1
    assert "3 receipts in all, 2 of them signed: in order, but NOT ALL are signed." in flat(result.out)
    assert "- signatures: 1 of 3 receipts have none" in flat(result.out)
    assert "altered" not in result.out
    assert done(*RECEIPTS, "--json")["signed"] == 2


def test_signatures_of_another_key_and_heads_never_seen_are_found_out(erased, done, run):
    done("keygen", "other.pem")
    result = run(*RECEIPTS, "--public-key", "other.pem.pub")
    assert result.code == 1
    assert "receipts[0]: signature: not made for this receipt with the private key" in flat(result.out)
    result = run(*RECEIPTS, "--noted", "0" * 64)
    assert result.code == 1
    assert "NOT as they were written" in result.out


REFUSED = {
    "no key": (5, "no.pub: No such file or directory", (*RECEIPTS, "--public-key", "no.pub")),
    "a key that is none": (3, "people.csv: not a public key in PEM", (*RECEIPTS, "--public-key", "people.csv")),
    "an id of another type": (3, "--id x: not a 64-bit integer", (*RECEIPTS, "--id", "x")),
    "people without a column": (3, "the schema has no subject column", (*RECEIPTS, "--subject", "x")),
    "an empty file": (3, "--ids-file: empty.txt is empty", (*RECEIPTS, "--ids-file", "empty.txt")),
    "an output that is there": (3, "people.csv: this file exists already", (*RECEIPTS, "-o", "people.csv")),
    "an output that is a folder": (3, ".: a folder; give the name of a file in it", (*RECEIPTS, "-o", ".")),
    "no exported file": (5, "no.json: No such file or directory", ("receipts", "no.json")),
    "no hash": (3, "noted", (*RECEIPTS, "--noted", "abc")),
    "nobody to look for": (3, "say whom to look for with --id, --ids-file, --subject", SCAN),
    "a name of another type": (3, "--id x: not a 64-bit integer", (*SCAN, "--id", "x")),
    "no table of rows": (3, "no.csv: no such file", (*SCAN, "--rows", "no.csv")),
    "a negative tolerance": (3, "--tolerance -1.0: give a number from 0 to below 1", (*VERIFY, "--tolerance", "-1")),
    "any difference": (3, "--tolerance inf: give a number from 0", (*VERIFY, "--tolerance", "inf")),
    "no tolerance": (2, "Invalid value for '--tolerance'", (*VERIFY, "--tolerance", "x")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_checked_is_refused(case, model, refused, tmp_path):
    model()
    (tmp_path / "empty.txt").write_text("")
    code, said, arguments = REFUSED[case]
    refused(code, said, *arguments)


# --- verify -------------------------------------------------------------------------------------------


def test_a_sound_model_is_verified(model, done):
    model("ridge")
    assert "the only step agrees with the 60 records, bit for bit." in flat(done(*VERIFY))
    assert "the only step agrees with the 60 records, within 1e-09." in flat(done(*VERIFY, "--tolerance", "1e-9"))
    found = done(*VERIFY, "--json")
    assert (found["ok"], found["problems"], found["records"]) == (True, [], 60)


def test_the_noise_is_looked_at_too(model, done, tmp_path):
    model()
    done("fit", "people.csv", "--schema", "schema.toml", "--rho", 0.5, "-o", "noisy")
    assert "The noise is plausible (p = " in flat(done("verify", "noisy"))


def test_a_model_that_does_not_agree_with_its_records_is_found_out(run, tmp_path):
    """Its checksums are right: only deriving all of it again tells."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    altered = expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, X[:, 0] > 0)
    altered.transcript_.sums[0, 0] += 1.0
    altered.save(tmp_path / "m.expunge")
    result = run(*VERIFY)
    assert result.code == 1
    assert "m.expunge does NOT agree with its records; restore a backup:" in flat(result.out)
    found = run(*VERIFY, "--json")
    assert (found.code, found.data["ok"]) == (1, False)
    assert found.data["problems"]


# --- scan ---------------------------------------------------------------------------------------------


def statuses(found):
    return [one["status"] for one in found["searched"]]


def test_people_who_were_erased_have_left_no_byte(model, done, run, tmp_path):
    model(subject=True)
    found = run(*SCAN, "--subject", "S-0004", "--json")
    assert (found.code, found.data["ok"], statuses(found.data)) == (1, False, ["live"])
    done("unlearn", "m.expunge", "--subject", "S-0004")
    assert "subject number 1 of those given not in the model, and in no byte of its files" in flat(
        done(*SCAN, "--subject", "S-0004")
    )
    (tmp_path / "two.txt").write_text("S-0004\nS-0005\n")
    both = run(*SCAN, "--subjects-file", "two.txt")
    assert both.code == 1
    assert "subject number 2 of those given IN THE MODEL, and so in its files" in flat(both.out)
    write_csv(tmp_path / "rows.csv", people(10))
    found = run(*SCAN, "--rows", "rows.csv", "--json")
    assert (found.code, statuses(found.data)) == (1, ["live"] * 6 + ["gone"] * 2 + ["live"] * 2)
    assert "S-0004" not in both.out + found.out


def test_small_numbers_are_looked_for_among_all_ids(model, done, run, tmp_path):
    model()
    done("unlearn", "m.expunge", "--id", 7)
    found = run(*SCAN, "--id", 7, "--id", 8, "--json")
    assert (found.code, statuses(found.data)) == (1, ["absent", "live"])
    found = done(*SCAN, "--id", 7, "--json")
    assert (found["ok"], statuses(found)) == (True, ["absent"])
    said = flat(done(*SCAN, "--id", 7))
    assert "in no id, subject, index or waiting request; too short to search for byte by byte" in said
    (tmp_path / "m.expunge-new").write_text("perhaps with 7 in it, of a process that was killed")
    found = run(*SCAN, "--id", 7)
    assert found.code == 1
    assert "1 could not be checked in m.expunge-new. Open the model for writing once" in flat(found.out)


def test_bytes_that_were_left_behind_are_found(model, done, run, tmp_path):
    model(subject=True)
    done("unlearn", "m.expunge", "--subject", "S-0004")
    (tmp_path / "m.expunge-new").write_text("a copy with S-0004 in it, of a process that was killed")
    result = run(*SCAN, "--subject", "S-0004", "--subject", "S-0001")
    assert result.code == 1
    assert "2 were found." in result.out
    found = run(*SCAN, "--subject", "S-0004", "--json")
    assert (found.code, found.data["ok"], statuses(found.data)) == (1, False, ["left"])
    assert found.data["searched"][0]["files"] == ["m.expunge-new"]


def test_many_rows_are_summed_up(model, refused, run, tmp_path):
    model()
    lines = (tmp_path / "people.csv").read_text().splitlines()[:23]
    (tmp_path / "broken.csv").write_text("\n".join([*lines[:4], "7,8", *lines[4:]]))
    refused(3, "broken.csv: line 5 (2 fields, where the header has 8)", *SCAN, "--rows", "broken.csv")
    result = run(*SCAN, "--rows", "broken.csv", "--on-error", "skip")
    assert (result.code, "22 looked for in the files of m.expunge" in result.out) == (1, True)
    assert "... and 2 more; --json lists all." in result.out
    write_csv(tmp_path / "none.csv", [], COLUMNS)
    refused(3, "none.csv: no records", *SCAN, "--rows", "none.csv")


# --- files that are no stores -------------------------------------------------------------------------

OTHERS = "others.csv"
COMMANDS = {
    "predict": (OTHERS,), "evaluate": (OTHERS,), "unlearn": ("--id", "1"), "insert": (OTHERS,), "replace": (OTHERS,),
    "replan": (), "info": (), "receipts": (), "verify": (), "scan": ("--id", "1"), "compact": (),
    "backup": ("copy",),
}  # fmt: skip


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


def make_newer(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=7")
    connection.close()


def make_foreign(path):
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name)")
    connection.close()


def damage(path):
    raw = bytearray(path.read_bytes())
    for place in range(3000, len(raw), 500):
        raw[place] ^= 0xFF
    path.write_bytes(raw)


STORES = {
    "not there": (lambda path: path.unlink(), "no such file"),
    "a table": (lambda path: path.write_text("a,b\n1,2\n"), "is not a store"),
    "empty": (lambda path: path.write_bytes(b""), "m.expunge: "),
    "truncated": (truncate, "m.expunge: "),
    "newer": (make_newer, "Upgrade with pip install -U expunge"),
    "another database": (make_foreign, "m.expunge: "),
    "damaged": (damage, "m.expunge: "),
}


PAIRS = [
    (command, case)
    for place, command in enumerate(COMMANDS)
    for number, case in enumerate(STORES)
    if number in (0, place % len(STORES))  # each with some, so that it is quick
]


@pytest.mark.parametrize(("command", "case"), PAIRS)
def test_files_that_are_no_sound_stores_are_refused(command, case, model, refused):
    spoil, said = STORES[case]
    spoil(model())
    refused(5, said, command, "m.expunge", *COMMANDS[command])


def test_a_folder_is_no_store(model, refused):
    model()
    refused(5, "this is a folder; give the path of a file", "info", ".")
    refused(2, "Missing argument 'MODEL'", "info")


def test_a_key_that_is_lost_leaves_what_can_be_read(model, refused, done, tmp_path):
    model()
    (tmp_path / "m.expunge-key").unlink()
    refused(5, "m.expunge-key", "unlearn", "m.expunge", "--id", 1)
    assert len(done("predict", "m.expunge", "others.csv").splitlines()) == 21
