"""`expunge compact`, `backup` and `restore`; and folders that may not be written to."""

import os
import shutil

import numpy as np
import pytest

import expunge
from cli.conftest import contents, flat
from cli.tables import people, write_csv
from expunge.store import scan
from expunge.store.state import Pending


def ids_in(path):
    with expunge.open(path, read_only=True) as found:
        return set(found.ids_.tolist())


def test_a_compact_file_has_the_same_model(model, done, refused):
    path = model()
    done("unlearn", "m.expunge", "--id", 7)
    before = done("predict", "m.expunge", "others.csv")
    assert "m.expunge was rewritten: " in done("compact", "m.expunge")
    found = done("compact", "m.expunge", "--json")
    assert found == {"bytes_before": path.stat().st_size, "bytes": path.stat().st_size}
    assert done("predict", "m.expunge", "others.csv") == before
    assert done("verify", "m.expunge", "--json")["ok"]
    refused(2, "Got unexpected extra argument(s) (other)", "compact", "m.expunge", "other")


def test_who_was_erased_stays_erased_when_a_backup_is_restored(model, done, tmp_path):
    path = model(subject=True)
    found = done("backup", "m.expunge", "monday", "--json")
    assert found == {"backup": "monday", "bytes": (tmp_path / "monday").stat().st_size}
    done("unlearn", "m.expunge", "--subject", "S-0004", "--subject", "S-0005")
    write_csv(tmp_path / "new.csv", [(501, "S-0501", *people(1)[0][2:])])
    done("insert", "m.expunge", "new.csv")
    done("replace", "m.expunge", "new.csv")
    said = flat(done("restore", "monday", "m.expunge"))
    assert "m.expunge is restored from monday" in said
    assert "deleted again 4 records" in said
    assert "replace again 1 record" in said
    assert "insert again 1 record" in said
    assert ids_in(path) == set(range(1, 61)) - {7, 8, 9, 10}
    assert scan(path, ["S-0004", "S-0005"]) == []
    assert done("verify", "m.expunge", "--json")["ok"]


def test_signed_receipts_stay_signed_unless_one_says_so(model, done, refused):
    model()
    done("keygen", "key.pem")
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7, "--sign-with", "key.pem")
    for command in (("unlearn", "m.expunge", "--id", 8), ("restore", "monday", "m.expunge")):
        said = refused(3, "--sign-with: the receipts of this store are signed; give the key, or --unsigned", *command)
        assert "sign_with" not in said
        refused(3, "--unsigned: a key to sign with is given as well", *command, "--unsigned", "--sign-with", "key.pem")
    assert done("restore", "monday", "m.expunge", "--sign-with", "key.pem", "--json")["erased"] == 1
    assert done("receipts", "m.expunge", "--public-key", "key.pem.pub", "--json")["signed"] == 2
    assert done("restore", "monday", "m.expunge", "--unsigned", "--json")["erased"] == 1
    assert done("receipts", "m.expunge", "--json")["signed"] == 2


def test_who_gives_a_key_to_fit_must_give_one_to_every_request(model, done, refused):
    model()
    done("keygen", "key.pem")
    done("fit", "people.csv", "--schema", "schema.toml", "-o", "signed.expunge", "--sign-with", "key.pem")
    unsigned = "--sign-with: the receipts of this store are signed; give the key, or --unsigned"
    for command in (("unlearn", "signed.expunge", "--id", 7), ("insert", "signed.expunge", "others.csv")):
        refused(3, unsigned, *command)
    done("compact", "signed.expunge")
    refused(3, unsigned, "unlearn", "signed.expunge", "--id", 7)
    (receipt,) = done("unlearn", "signed.expunge", "--id", 7, "--unsigned", "--json")["receipts"]
    assert receipt["signature"] is None
    refused(3, unsigned, "unlearn", "signed.expunge", "--id", 8)
    (receipt,) = done("unlearn", "signed.expunge", "--id", 8, "--sign-with", "key.pem", "--json")["receipts"]
    assert receipt["signature"]
    done("unlearn", "m.expunge", "--id", 7)


def test_with_several_models_it_is_said_which_of_them_wants_the_key(model, done, refused):
    model()
    done("keygen", "key.pem")
    done("backup", "m.expunge", "other.expunge")
    done("unlearn", "other.expunge", "--id", 7, "--sign-with", "key.pem")
    both = ("unlearn", "m.expunge", "other.expunge", "--id", 8)
    refused(3, "other.expunge: --sign-with: the receipts of this store are signed; give the key, or --unsigned", *both)


def test_a_lost_model_is_restored_with_exported_receipts(model, done, refused, tmp_path):
    path = model()
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7)
    done("receipts", "m.expunge", "-o", "r.json")
    for file in tmp_path.glob("m.expunge*"):
        file.unlink()
    refused(5, "who was deleted since the backup", "restore", "monday", "m.expunge")
    found = done("restore", "monday", "m.expunge", "--receipts", "r.json", "--json")
    assert found == {"erased": 1, "inserted": 0, "replaced": 0, "unfinished": None}
    assert 7 not in ids_in(path)


def test_a_damaged_model_is_restored_with_exported_receipts(model, done, tmp_path):
    path = model()
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7)
    done("receipts", "m.expunge", "-o", "r.json")
    path.write_bytes(path.read_bytes()[:3000])
    assert done("restore", "monday", "m.expunge", "--receipts", "r.json", "--json")["erased"] == 1
    assert ids_in(path) == set(range(1, 61)) - {7}


REFUSED = {
    "a backup over a file": (3, "people.csv: this file exists already", ("backup", "m.expunge", "people.csv")),
    "a backup over the model": (
        3,
        "m.expunge: this is a model, or another database",
        ("backup", "m.expunge", "m.expunge"),
    ),
    "a backup over a folder": (3, ".: a folder; give the name of a file", ("backup", "m.expunge", ".")),
    "a backup into nowhere": (3, "no/copy: no such folder: no", ("backup", "m.expunge", "no/copy")),
    "a backup without a name": (2, "Missing argument 'TO'", ("backup", "m.expunge")),
    "no backup": (
        5,
        "nothing: no such file; give one that `expunge backup` made",
        ("restore", "nothing", "m.expunge"),
    ),
    "a table as backup": (5, "is not a store", ("restore", "people.csv", "m.expunge")),
    "a backup over a table": (5, "cannot read from", ("restore", "monday", "people.csv")),
    "no receipts": (5, "no.json: No such file", ("restore", "monday", "m.expunge", "--receipts", "no.json")),
    "receipts that are none": (
        5,
        "schema.toml: not JSON",
        ("restore", "monday", "m.expunge", "--receipts", "schema.toml"),
    ),
    "a wait below 0": (3, "--wait -1.0: give a number", ("compact", "m.expunge", "--wait", "-1")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_or_restored_is_refused(case, model, done, refused):
    model()
    code, said, arguments = REFUSED[case]
    if "monday" in arguments:
        done("backup", "m.expunge", "monday")
    refused(code, said, *arguments)


def test_a_full_disk_is_named_and_nothing_is_lost(model, run, done, tmp_path):
    room = model().stat().st_size // 2
    before = contents(tmp_path)
    for command in (("backup", "m.expunge", "copy"), ("compact", "m.expunge")):
        result = run(*command, limit=room)
        assert (result.code, result.out) == (5, ""), result
        assert "space" in flat(result.err)
        assert done("verify", "m.expunge", "--json")["records"] == 60
        assert contents(tmp_path).keys() == before.keys()


def test_a_request_that_a_full_disk_stops_is_not_to_be_repeated(model, run, done):
    path = model()
    result = run("insert", "m.expunge", "others.csv", limit=path.stat().st_size // 2)
    assert result.code == 5
    assert "finishes it. Do not repeat it" in flat(result.err)
    assert done("verify", "m.expunge", "--json")["records"] == 80
    assert ids_in(path) == {*range(1, 61), *range(101, 121)}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="an administrator may write everywhere")
def test_a_folder_that_may_not_be_written_to(fitted, run, tmp_path):
    folder = tmp_path / "fixed"
    shutil.copytree(fitted(), folder)
    folder.chmod(0o500)
    try:
        before = contents(folder)
        for command in (("unlearn", "m.expunge", "--id", "1"), ("compact", "m.expunge"), ("keygen", "key")):
            result = run(*command, cwd=folder)
            assert (result.code, result.out) == (5, "")
        result = run("predict", "m.expunge", "others.csv", "-o", "p.csv", cwd=folder)
        assert (result.code, result.out) == (3, "")
        assert contents(folder) == before
    finally:
        folder.chmod(0o700)


def test_receipts_that_were_made_up_are_refused(model, done, refused, tmp_path):
    model()
    done("keygen", "key.pem")
    done("keygen", "other.pem")
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7, "--sign-with", "other.pem")
    done("receipts", "m.expunge", "-o", "r.json", "--sign-with", "other.pem")
    restoring = ("restore", "monday", "m.expunge", "--receipts", "r.json", "--sign-with", "key.pem")
    said = refused(5, "if the key was changed since, give --public-key", *restoring)
    assert "Give as --receipts what `expunge receipts -o` wrote last" in said
    refused(5, "noted: no receipt has this hash", *restoring, "--noted", "0" * 64)
    assert done(*restoring, "--public-key", "other.pem.pub", "--json")["erased"] == 1


def test_a_request_that_is_dropped_is_named(model, done, tmp_path):
    path = model()
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7)
    with expunge.open(path) as opened:
        owner, width = opened._owner, opened.n_features_in_
        request = opened.prepare_request(expunge.Insert((np.zeros((1, width)), opened.classes_[:1]), [9999]))
        with owner.lock:
            owner._record(Pending(request, "0" * 32, owner.state.version, bytes(32), "2020-02-29"))
    said = done("restore", "monday", "m.expunge")
    assert "Among these is a recorded, unfinished request to insert" in " ".join(said.split())


def test_an_export_is_signed_as_a_whole_if_the_key_is_given(model, done, run):
    model()
    done("keygen", "key.pem")
    done("unlearn", "m.expunge", "--id", 7, "--sign-with", "key.pem")
    done("receipts", "m.expunge", "-o", "plain.json")
    done("receipts", "m.expunge", "-o", "signed.json", "--sign-with", "key.pem")
    assert "Its version is not signed" in done("receipts", "plain.json", "--public-key", "key.pem.pub")
    assert "not signed" not in done("receipts", "signed.json", "--public-key", "key.pem.pub")
