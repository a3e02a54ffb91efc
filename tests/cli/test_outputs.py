"""Outputs: also with --force they take the place of no model, nothing of a model, no key, and nothing that is read."""

import os

import pytest

from cli.tables import people, write_csv

MODEL = "this is a model, or another database, and is never overwritten; give another name."
BELONGS = "this is the name of a file that belongs to m.expunge, and is never overwritten; give another name."
SECRET = "this is a secret key, and is never overwritten; give another name."
READ = "this file is also read; write to another file."
RECEIPTS, AUDIT, PREDICT = ("receipts", "m.expunge"), ("audit", "m.expunge"), ("predict", "m.expunge", "others.csv")
SCHEMA = ("schema", "people.csv", "--target", "sick")
REFUSED = {
    "receipts over their model": ("m.expunge", READ, RECEIPTS),
    "receipts over a link to it": ("link.expunge", READ, RECEIPTS),
    "receipts over the model's key": ("m.expunge-key", BELONGS, RECEIPTS),
    "receipts over a link to that key": ("link-key.json", BELONGS, RECEIPTS),
    "receipts where the log would be": ("m.expunge-wal", BELONGS, RECEIPTS),
    "receipts over the key that signs them": ("op.pem", READ, (*RECEIPTS, "--sign-with", "op.pem")),
    "receipts over the key that checks them": ("op.pem.pub", READ, (*RECEIPTS, "--public-key", "op.pem.pub")),
    "receipts over the names": ("names.txt", READ, (*RECEIPTS, "--ids-file", "names.txt")),
    "predictions over another model": ("other.expunge", MODEL, PREDICT),
    "predictions over a key": ("op.pem", SECRET, PREDICT),
    "predictions over a key of a model that is lost": ("lost-key", SECRET, PREDICT),
    "predictions over the data": ("others.csv", READ, PREDICT),
    "predictions over a table in a folder": ("tables/a.csv", READ, ("predict", "m.expunge", "tables")),
    "a schema over a model": ("m.expunge", MODEL, SCHEMA),
    "a schema over the data": ("people.csv", READ, SCHEMA),
    "a report over its model": ("m.expunge", READ, AUDIT),
    "a report over the test data": ("others.csv", READ, (*AUDIT, "--test", "others.csv")),
    "a report over the names": ("names.txt", READ, (*AUDIT, "--subjects-file", "names.txt")),
    "a report over a key": ("op.pem", SECRET, AUDIT),
}


@pytest.mark.parametrize("case", REFUSED)
def test_force_overwrites_nothing_that_cannot_be_made_again(case, model, done, refused, tmp_path):
    output, said, asked = REFUSED[case]
    model()
    (tmp_path / "tables").mkdir()
    write_csv(tmp_path / "tables" / "a.csv", people(3))
    done("keygen", "op.pem")
    done("backup", "m.expunge", "other.expunge")
    (tmp_path / "names.txt").write_text("7\n")
    (tmp_path / "lost-key").write_text("0123456789abcdef" * 4 + "\n")
    os.symlink("m.expunge", tmp_path / "link.expunge")
    os.symlink("m.expunge-key", tmp_path / "link-key.json")
    refused(3, f"{output}: {said}", *asked, "-o", output, "--force")


def test_force_overwrites_what_was_written_before(model, done, tmp_path):
    model()
    (tmp_path / "tables").mkdir()
    write_csv(tmp_path / "tables" / "a.csv", people(40))
    for asked in (
        (*RECEIPTS, "-o", "receipts.json"),
        (*PREDICT, "-o", "predictions.csv"),
        ("schema", "tables", "--target", "sick", "-o", "tables/schema.toml"),
    ):
        done(*asked)
        done(*asked, "--force")
