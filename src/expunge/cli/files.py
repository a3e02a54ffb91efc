"""`expunge compact`, `backup`, `restore` and `keygen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expunge.base.errors import NotAStore
from expunge.base.wording import counted, size
from expunge.cli.models import held
from expunge.cli.options import Json, Noted, PublicKey, SignWith, Store, Unsigned, Wait, check_output, signing
from expunge.cli.output import reporting


def compact(model: Store, wait: Wait = 10.0, json: Json = False) -> None:
    """Rewrite the file in canonical order, without empty pages.

    Its layout then reveals nothing about its history. It needs disk space for
    two copies.
    """
    with reporting(json) as report:
        with held(model, wait=wait) as found:
            before = model.stat().st_size
            found.compact()
        after = model.stat().st_size
        report.data = {"bytes_before": before, "bytes": after}
        report.say(f"{model} was rewritten: {size(before)} before, {size(after)} now.")


def backup(
    model: Store,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The copy's new file.")],
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Copy the file, even while others use it.

    People deleted later are still in the copy, so delete it in time. `expunge
    restore` deletes them again before anyone can use it.
    """
    with reporting(json) as report:
        import expunge.store

        check_output(to)
        expunge.store.backup(model, to, wait=wait)
        report.data = {"backup": str(to), "bytes": to.stat().st_size}
        report.say(f"{to} is a copy of {model}. People deleted later are still in it: delete it in time.")


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A file that `expunge backup` made.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model's file; it may be lost or damaged.")],
    receipts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Receipts exported last, if the model's file is lost."),
    ] = None,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    public_key: PublicKey = None,
    noted: Noted = None,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Restore a backup, and delete again those who were deleted since.

    They are looked up in the receipts of the file that is replaced, or in the receipts that you exported. If receipts
    are signed, the last one must be signed by --public-key or by a key known from the backup. Restore only because a
    file was lost, never because of how a request turned out.
    """
    with reporting(json) as report:
        from dataclasses import asdict

        import expunge.store

        key = signing(sign_with, unsigned)
        if not backup.exists():
            raise NotAStore(f"{backup}: no such file; give one that `expunge backup` made.")
        found = expunge.store.restore(
            backup, model, receipts=receipts, wait=wait, sign_with=key, public_key=public_key, noted=noted
        )
        report.data = asdict(found)
        report.facts(
            f"{model} is restored from {backup}",
            {
                "deleted again": counted(found.erased, "record"),
                "corrected since the backup: replace again": counted(found.replaced, "record"),
                "inserted since the backup: insert again": counted(found.inserted, "record"),
            },
        )
        if found.unfinished is not None:
            report.say(
                f"Among these is a recorded, unfinished request to {found.unfinished}. It was dropped: make it again."
            )


def keygen(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="Where to write the private key (PEM).")],
    json: Json = False,
) -> None:
    """Make an Ed25519 key to sign receipts with.

    Give it as --sign-with to fit, unlearn, insert, replace and restore. Keep
    it secret, and publish the public key (KEY.pub): with it anyone can check
    receipts (`expunge receipts --public-key`).
    """
    with reporting(json) as report:
        import expunge.store

        check_output(key)
        expunge.store.make_signing_key(key)
        public = f"{key}.pub"
        report.data = {"key": str(key), "public_key": public}
        report.facts("", {"private key": key, "public key": public})
