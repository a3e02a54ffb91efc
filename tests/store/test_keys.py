"""Keys and their files."""

import os
import stat

import pytest

from cases.patching import patched_everywhere
from expunge.base.errors import BadPlan, StoreError
from expunge.store import keys as module
from expunge.store.chain import check_receipts
from expunge.store.keys import Signer, load_key, load_public_key, make_key, make_signing_key

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
SIGNER = Signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)))
posix_only = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX")


# --- keys -----------------------------------------------------------------------------------------------


def test_a_key_comes_back_from_its_file(tmp_path):
    path = tmp_path / "key"
    key = make_key(path)
    assert len(key) == 32
    assert load_key(path) == load_key(str(path)) == key
    assert path.read_text() == f"{key.hex()}\n"
    assert make_key(tmp_path / "another") != key


@posix_only
def test_only_the_owner_can_read_keys(tmp_path):
    make_key(tmp_path / "key")
    make_signing_key(tmp_path / "pem")
    for name in ("key", "pem"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@posix_only
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o777], ids=oct)
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(StoreError, match=r"key: other users can .* chmod 600"):
        load_key(path)
    make_signing_key(tmp_path / "pem")
    Signer(tmp_path / "pem")
    (tmp_path / "pem").chmod(mode)
    with pytest.raises(StoreError, match=r"pem: other users can .* chmod 600"):
        Signer(tmp_path / "pem")


@pytest.mark.parametrize("make", [make_key, make_signing_key])
def test_a_file_is_never_written_over(tmp_path, make):
    path = tmp_path / "key"
    path.write_text("precious")
    with pytest.raises(StoreError, match="key: exists already; give another path"):
        make(path)
    assert path.read_text() == "precious"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("make", [make_key, make_signing_key])
def test_a_key_needs_a_folder(tmp_path, make):
    with pytest.raises(StoreError, match=r"nowhere/key: .*folder"):
        make(tmp_path / "nowhere" / "key")


@pytest.mark.parametrize("make", [make_key, make_signing_key])
@pytest.mark.parametrize("step", ["fsync", "sync_folder"])
def test_no_half_a_key_is_left_behind(tmp_path, monkeypatch, make, step):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else module, step, full)
    with pytest.raises(StoreError, match="key: No space"):
        make(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@posix_only
def test_a_key_and_its_name_are_on_the_disk_before_it_is_used(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file)))
    make_key(tmp_path / "key")
    assert [(each.st_ino, each.st_size) for each in synced[:1]] == [((tmp_path / "key").stat().st_ino, 65)]
    assert [each.st_ino for each in synced[1:]] == [tmp_path.stat().st_ino]


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"ab" * 31, b"ab" * 33, b"AB" * 32, b"ab " * 32, b"\xff" * 64, bytes(32)], ids=repr
)
def test_a_file_that_holds_no_key_is_refused(tmp_path, content):
    path = tmp_path / "key"
    make_key(path)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"key: expected a key of 64 hexadecimal digits .* backup"):
        load_key(path)


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"absent: No such file.*; take it from a backup"):
        load_key(tmp_path / "absent")
    with pytest.raises(StoreError, match="take it from a backup"):
        load_key(tmp_path)
    with pytest.raises(StoreError, match="take it from a backup"):
        load_key("\0")


# --- signatures -----------------------------------------------------------------------------------------


def test_only_hashes_are_signed():
    with pytest.raises(BadPlan, match="hash"):
        SIGNER.sign("something else")


def test_a_signer_does_not_show_its_key():
    assert bytes(32).hex() not in repr(SIGNER) + str(SIGNER)


def test_keys_that_cannot_sign_are_named(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, x25519

    path = tmp_path / "pem"
    path.touch(0o600)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    for key in (ec.generate_private_key(ec.SECP256R1()), x25519.X25519PrivateKey.generate()):
        path.write_bytes(key.private_bytes(*form, serialization.NoEncryption()))
        for given_key in (path, key):
            with pytest.raises(BadPlan, match=r"signer: expected an Ed25519 private key, got .*make_signing_key"):
                Signer(given_key)
    locked = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*form, locked))
    with pytest.raises(BadPlan, match="pem: this key is encrypted; load it with its password"):
        Signer(path)
    for wrong in (None, 5, b"bytes", bytes(32)):
        with pytest.raises(BadPlan, match="signer: expected"):
            Signer(wrong)


def test_files_that_hold_no_signing_key_are_named(tmp_path):
    make_signing_key(tmp_path / "pem")
    (tmp_path / "text").write_text("hello")
    for name in ("text", "pem.pub"):
        with pytest.raises(BadPlan, match=f"{name}: not a private key in PEM"):
            Signer(tmp_path / name)
    with pytest.raises(StoreError, match=r"absent: No such file.*make_signing_key"):
        Signer(tmp_path / "absent")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_neither_key_nor_receipts_and_nothing_hangs(kind, tmp_path):
    path = tmp_path / kind
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path)}[kind](path)
    for read in (Signer, load_public_key, load_key, check_receipts):
        with pytest.raises(StoreError, match=f"{kind}: this is not a file, but a folder, a pipe or a device"):
            read(path)


def test_a_file_that_is_far_too_large_is_no_key_nor_receipts(tmp_path):
    path = tmp_path / "large"
    path.touch(0o600)
    os.truncate(path, 2**40)  # without any blocks on the disk
    with pytest.raises(BadPlan, match="large: not a private key in PEM"):
        Signer(path)
    with pytest.raises(BadPlan, match="large: not a public key in PEM"):
        load_public_key(path)
    more = pytest.raises(StoreError, match="large: has more than 1 MB; give what was exported")
    with patched_everywhere("expunge.store.keys.LARGEST", 2**20), more:
        check_receipts(path)


def test_a_public_key_already_there_is_kept_and_no_private_one_is_left(tmp_path):
    (tmp_path / "pem.pub").write_text("precious")
    with pytest.raises(StoreError, match=r"pem\.pub: exists already"):
        make_signing_key(tmp_path / "pem")
    assert [each.name for each in tmp_path.iterdir()] == ["pem.pub"]
