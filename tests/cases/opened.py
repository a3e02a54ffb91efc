"""What the fixtures of stores need of the library's inside: when its modules move, this is the one file to adjust."""

import json
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from expunge.engine import randomness
from expunge.federated import federation, stored
from expunge.store import failpoints, owner
from expunge.store.file import StoreFile
from expunge.store.state import Pending

RECORDED = "request: recorded"
FEDERATION_RECORDED = "federation: recorded"
ROUND_RECORDED = "federation: round recorded"
_DRAWS, _DAYS = (randomness, "fresh_key"), ((owner, "today"), (federation, "today"))
FILES = ("", "-wal", "-key", "-seal")
"""What the names of files end in that are copied with a store. (SQLite makes the index of the log anew.)"""


class Died(BaseException):
    """The process is no more."""


class Recorded(NamedTuple):
    """What of a request that waits is random, or depends on when it was asked."""

    key: bytes
    number: str | None
    day: str | None


def copy_store(path, to):
    """Copy the files of a store, as they lie there; return its new path."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for ending in FILES:
        there, new = Path(f"{path}{ending}"), Path(f"{to}{ending}")
        if there.exists():
            shutil.copyfile(there, new)
            new.chmod(0o600)
    return to


@contextmanager
def dying(path, point, to):
    """Let whoever works on a store die where it passes a point; ``to`` gets the files as they are then."""

    def die(name):
        if name == point:
            copy_store(path, to)
            raise Died

    failpoints.hook = die
    try:
        yield
        raise RuntimeError(f"{point} was never reached")
    except Died:
        pass
    finally:
        failpoints.hook = None


@contextmanager
def drawing(key, number=None, day=None):
    """Let every key that is drawn be this one; and a request have this number, and be of this day."""
    patches = [mock.patch.object(*_DRAWS, return_value=key)]
    if number is not None:
        patches.append(mock.patch.object(uuid, "uuid4", return_value=uuid.UUID(hex=number)))
    if day is not None:
        patches += [mock.patch.object(*where, return_value=day) for where in _DAYS]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


@contextmanager
def _file(path):
    file = StoreFile(path)
    try:
        yield file
    finally:
        file.close()


def recorded(path):
    """What waits in the file of a model, or of a federation (a request, or a round); None if nothing does."""
    with _file(path) as file:
        request, begun = file.get("pending", 0), file.get("pending", stored.ROUND)
        if begun:
            return Recorded(bytes(begun), None, None)
        if not request:
            return None
        if bytes(request).startswith(b"{"):  # a federation's
            said = json.loads(bytes(request))
            return Recorded(bytes.fromhex(said["key"]), None, said["day"])
        pending = Pending.from_bytes(bytes(request))
        return Recorded(pending.key, pending.number, pending.day)


def change_key(path, key):
    """Put another key into the record of a model's request that waits; all else stays."""
    with _file(path) as file, file.transaction():
        pending = Pending.from_bytes(bytes(file.need("pending", 0)))
        file.put("pending", 0, replace(pending, key=key).to_bytes())


@contextmanager
def wasting_one(stream):
    """Let the first number of a stream ("layout", "coins", "noise") be drawn in vain: all that follow are others."""
    make = "_generator" if stream == "layout" else "_secret"
    made_by = getattr(randomness.Randomness, make)

    def waste(drawn, label):
        made = made_by(drawn, label)
        if label == stream:
            made.random()
        return made

    with mock.patch.object(randomness.Randomness, make, waste):
        yield
