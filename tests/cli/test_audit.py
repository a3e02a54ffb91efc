"""`expunge audit`: all checks in one report, which names nobody."""

import re

import pytest

from cli.conftest import flat
from cli.tables import people, schema, write_csv

AUDIT = ("audit", "m.expunge", "--runs", "100")


def results(found):
    return {one["key"]: one["result"] for one in found["checks"]}


@pytest.fixture
def erased(model, done):
    """A model from which someone was erased."""
    path = model(subject=True)
    done("unlearn", "m.expunge", "--subject", "S-0004")
    return path


def test_an_audit_writes_a_report_beside_the_model(erased, done, refused, tmp_path):
    said = done(*AUDIT, "--subject", "S-0004", "--test", "others.csv")
    assert "m.expunge: no problem was found" in said
    assert "The report is m.expunge.html." in said
    page = (tmp_path / "m.expunge.html").read_text()
    assert page[:15].lower() == "<!doctype html>"
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)  # it opens offline
    for text in (said, page):
        assert "S-0004" not in text
        assert "replayed from" not in text
    refused(3, "m.expunge.html: this file exists already; give another name, or --force", *AUDIT)


def test_what_is_wrong_is_found_and_reported(erased, run, tmp_path):
    (tmp_path / "m.expunge-key").chmod(0o644)
    (tmp_path / "m.expunge-new").write_text("a copy with S-0004 in it, of a process that was killed")
    (tmp_path / "m.expunge.html").write_text("old")
    result = run(*AUDIT, "--subject", "S-0004", "--force")
    assert (result.code, result.err) == (1, "")
    assert "PROBLEMS WERE FOUND" in result.out
    for name in ("Deleted people are gone", "Nothing is left over", "Key and permissions"):
        assert f"- {name}: " in flat(result.out)
    page = (tmp_path / "m.expunge.html").read_text()
    assert page != "old"
    assert "S-0004" not in result.out + page


def test_a_file_that_is_cut_short_gets_a_report_too(model, run, tmp_path):
    path = model()
    path.write_bytes(path.read_bytes()[:5000])
    result = run(*AUDIT, "--json")
    assert (result.code, result.data["ok"]) == (1, False)
    assert "damaged; restore a backup" in (tmp_path / "m.expunge.html").read_text()


REFUSED = {
    "too few rehearsals": (3, "--runs 10: give a whole number of at least 100", ("--runs", "10")),
    "a folder": (3, ".: a folder; give the name of a file in it", ("-o", ".")),
    "a folder that is not there": (3, "no/r.html: no such folder: no", ("-o", "no/r.html")),
    "no test records": (3, "none.csv: no records", ("--test", "none.csv")),
    "no test file": (3, "no.csv: no such file", ("--test", "no.csv")),
    "an id of another type": (3, "--id x: not a 64-bit integer", ("--id", "x")),
    "an empty file": (3, "--ids-file: empty.txt is empty", ("--ids-file", "empty.txt")),
    "no key": (5, "no.pub: No such file", ("--public-key", "no.pub")),
    "a key that is none": (3, "others.csv: not a public key in PEM", ("--public-key", "others.csv")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_audited_is_refused(case, model, refused, tmp_path):
    model()
    write_csv(tmp_path / "none.csv", [])
    (tmp_path / "empty.txt").write_text("")
    code, said, options = REFUSED[case]
    refused(code, said, *AUDIT, *options)


def test_files_that_are_no_stores_are_refused(model, refused):
    model()
    refused(5, "no such file", "audit", "nothing.expunge")
    refused(5, "is not a store", "audit", "people.csv")


def test_noise_and_signatures_are_checked(done, run, tmp_path):
    write_csv(tmp_path / "people.csv", people(400))
    (tmp_path / "schema.toml").write_text(schema())
    done("keygen", "key.pem")
    done("keygen", "other.pem")
    done("fit", "people.csv", "--schema", "schema.toml", "--rho", 0.5, "-o", "m.expunge")
    done("unlearn", "m.expunge", "--id", 7, "--sign-with", "key.pem")
    result = run(*AUDIT, "--public-key", "other.pem.pub", "-o", "r.html", "--json")
    found = results(result.data)
    assert (result.code, result.data["ok"], result.data["report"], result.data["runs"]) == (1, False, "r.html", 100)
    assert found.pop("receipts") == "problem"
    assert found.items() >= dict.fromkeys(("state", "exactness", "control", "noise"), "passed").items()
    assert (tmp_path / "r.html").exists()
