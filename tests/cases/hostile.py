"""What an attacker does to files: descriptions altered at random, bytes flipped, receipts made up."""

from __future__ import annotations

import json
import random
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import expunge
import expunge.store
from expunge.base.errors import ExpungeError
from expunge.solvers import DualAveraging, Lloyd
from expunge.store.chain import export
from expunge.store.file import StoreFile
from expunge.store.keys import Signer
from expunge.store.receipts import Receipt, genesis
from expunge.store.state import DESCRIPTION, STATE
from expunge.store.surroundings import beside

_rng = np.random.default_rng(0)
X = _rng.normal(size=(60, 3)) / 3
Y = np.where(X[:, 0] > 0, "a", "b")
IDS = np.array([f"person {number}" for number in range(60)])


# --- descriptions altered at random ---------------------------------------------------------------------


def write_models(folder: Path) -> list[Path]:
    """Write a store of each kind."""
    models = {
        "sums": expunge.LogisticRegression(rho=0.5, solver=DualAveraging(steps=4, records_per_subject=2)).fit(
            X, Y, IDS, IDS
        ),
        "descent": expunge.LogisticRegression(rho=0.5, solver="gradient_descent").fit(X, Y),
        "projected": expunge.LogisticRegression(rho=0.5, solver=DualAveraging(n_components=2)).fit(X, Y),
        "arrival": expunge.HuberRegressor(solver=DualAveraging(schedule="arrival", target_range=(-1, 1)), rho=1.0).fit(
            X, X[:, 0]
        ),
        "sampled clusters": expunge.KMeans(2).fit(X),
        "clusters": expunge.KMeans(2, solver=Lloyd(low=[-3] * 3, high=[3] * 3)).fit(X),
        "ridge": expunge.Ridge(feature_bound=9, target_bound=9).fit(X, X[:, 0]),
    }
    for name, model in models.items():
        model.save(folder / name)
    return [folder / name for name in models]


ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 10**9, 10**18, 2**63, 10**30, -(10**9), 0.5, -0.5, 1e308, float("nan"),
    float("inf"), -float("inf"), "", "x", "auto", [], {}, [1], [[[]]], {"tuple": []}, {"tuple": [1, 2]},
    {"tuple": ["a"]}, {"dict": []}, {"dict": [["a", 1]]}, {"objects": [1, "a"]}, {"array": ["<f8", [2], [1.0, 2.0]]},
    {"array": ["<f8", [0], []]}, {"array": ["<U3", [1], ["a"]]}, {"array": ["<f8", [], [1.0]]}, {"stranger": "x"},
    {"is": "Huber", "with": {"width": 1.0}}, {"is": "Multinomial", "with": {"classes": 10**9}}, "KMeans", "Ridge",
    {"is": "Layout", "with": {}}, "LinearSVC", "everyone", "arrival", "frank_wolfe", "gradient_descent", "U", "f4", "O",
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return where something stands in JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*at, key)
        yield from places(each, (*at, key))


def altered(value: Any, draw: random.Random) -> Any:
    """Return JSON in which one or two things were taken out, put in, or are something else."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.choice([1, 1, 1, 2])):
        *way, last = draw.choice(list(places(value)))
        around = value
        for key in way:
            around = around[key]
        match draw.choice(["take out", "put in", *["change"] * 6]):
            case "take out":
                del around[last]
            case "put in" if isinstance(around, dict):
                around[draw.choice(["more", "is", "tuple"])] = draw.choice(ODD)
            case _:
                around[last] = draw.choice(ODD)
    return value


def alter(path: Path, change: Callable[[Any], Any], number: int = DESCRIPTION) -> None:
    """Alter the description or the state of a store, and its checksum."""
    file = StoreFile(path)
    said = json.loads(file.text("about", number) or "")
    with file.transaction():
        file.put_text("about", number, json.dumps(change(said)))
    file.truncate_log()
    file.close()


def tried(path: Path) -> str:
    """Open a store, and use it if it opens; return what came of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with expunge.open(path, wait=0.5):
                return "opened"
    except ExpungeError as error:
        return type(error).__name__
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"PLAIN {type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"


def fuzz(base: Path, times: int, draw: random.Random) -> Counter[str]:
    """Alter what a store says of itself, again and again; return what came of opening it."""
    found: Counter[str] = Counter()
    for _ in range(times):
        path = copied(base)
        alter(path, lambda said: altered(said, draw), draw.choice([DESCRIPTION, DESCRIPTION, STATE]))
        found[tried(path)] += 1
    return found


def copied(base: Path) -> Path:
    """Return a copy of a store, in the place of the last one."""
    path = base.with_name("copy")
    for ending in ("", "-wal", "-shm", "-lock", "-new", "-key"):
        beside(path, ending).unlink(missing_ok=True)
    for ending in ("", "-key"):
        shutil.copy(beside(base, ending), beside(path, ending))
    return path


def flip(base: Path, times: int, draw: random.Random) -> Counter[str]:
    """Flip a byte of a store, again and again; what opens and verifies must predict as before."""
    raw, found = base.read_bytes(), Counter[str]()
    with expunge.open(base, read_only=True) as model:
        predicted = model.predict(X).tobytes()
    for _ in range(times):
        path, damaged = copied(base), bytearray(raw)
        damaged[draw.randrange(len(raw))] ^= draw.randrange(1, 256)
        path.write_bytes(damaged)
        result = tried(path)
        if result == "opened":
            with expunge.open(path) as model:
                sound = model.verify().ok
                result = "opened, and found by verify" if not sound else "opened"
                if sound and model.predict(X).tobytes() != predicted:
                    result = "PLAIN other predictions"
        found[result] += 1
    return found


# --- receipts that were made up -------------------------------------------------------------------------


def forge(document: dict[str, Any], without: int, signer: Signer | None = None) -> dict[str, Any]:
    """Leave a receipt out and chain the others again, without the key or with another."""
    made, previous = [], genesis(document["store"])
    for number, one in enumerate(document["receipts"]):
        if number != without:
            said = {name: value for name, value in one.items() if name != "hash"}
            receipt = Receipt(**{**said, "previous": previous, "signature": None})
            made.append(receipt if signer is None else replace(receipt, signature=signer.sign(receipt.hash)))
            previous = receipt.hash
    return export(made, store=document["store"], head=previous, version=document["version"], signer=signer)


def forgeries(folder: Path) -> Iterator[tuple[str, str]]:
    """Make receipts up in several ways, and try to bring an erased person back with them."""
    key, other, path, backup = (folder / name for name in ("key", "other", "signed", "backup"))
    expunge.store.make_signing_key(key)
    expunge.store.make_signing_key(other)
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(path)
    expunge.store.backup(path, backup)
    with expunge.open(path, sign_with=key) as model:
        model.unlearn([5])
        model.unlearn([6])
        document = model.export_receipts()
    stripped = {**document, "signature": None, "public_key": None, "version": 2**63 - 1}
    attacks = {
        "left out, chained again without a key": forge(document, 0),
        "left out, chained again with another key": forge(document, 0, Signer(other)),
        "the version altered": {**document, "version": 99},
        "the version altered, the signature taken off": stripped,
        "cut off at the end, with a noted head": {
            **stripped, "receipts": document["receipts"][:1], "head": document["receipts"][0]["hash"],
        },
    }  # fmt: skip
    for name, made in attacks.items():
        try:
            expunge.store.restore(
                backup, path, receipts=made, sign_with=key, noted=document["head"] if "noted" in name else None
            )
            with expunge.open(path, read_only=True) as model:
                back = {5, 6} & set(model.ids_.tolist())
            yield f"receipts: {name}", f"PLAIN {back} are back" if back else "restored, and all are gone"
        except ExpungeError as error:
            yield f"receipts: {name}", type(error).__name__
