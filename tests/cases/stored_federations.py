"""Small federations in files, for tests: clients whose answers are a function of their name and the model."""

import shutil
from hashlib import blake2b
from itertools import count

import numpy as np

import expunge.federated as federated
from expunge.engine import randomness
from expunge.federated import ArrayType, plan_federation, sealing
from expunge.store.surroundings import beside

NUMBERS = 3
NAMES = ANN, BOB, CECIL, DORA = ("ann of north", "bob of south", "cecil of east", "dora of west")
EVE, FINN = "eve of the hill", "finn of the lake"


def planned(**given):
    arrays = [ArrayType("weights", (NUMBERS - 1,), "<f4"), ArrayType("bias", (1,), "<f8")]
    return plan_federation(arrays, **{"clients": 4, "rounds": 4, "clip": 1.0, "rho": 0.7, "finish": None, **given})


def new(path, names=NAMES, *, seal=None, **given):
    """A federation in a new file, opened."""
    federated.create(path, planned(**given), np.array([0.1, -0.2, 0.3]), names, seal=seal)
    return federated.open(path, seal=seal)


def update_of(name, model):
    """By how much a client would change a model."""
    own = np.frombuffer(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8 * NUMBERS).digest(), "<u8")
    return (own / 2.0**64 - 0.5) - 0.3 * model


def answer(federation, tasks):
    """Let clients answer what they are asked."""
    return federation.receive([(task, update_of(task.client, task.model)) for task in tasks])


def make_rounds(federation, upto=None):
    while federation.made < (federation.plan.rounds if upto is None else upto):
        answer(federation, federation.tasks())
        federation.advance()


def let_in(federation, names):
    federation.invite(names)
    answer(federation, federation.tasks_of_candidates())
    federation.admit(names)


def whole(federation):
    """All that is kept, to the last bit, but random numbers of receipts."""
    clients, transcript = federation.clients, federation.transcript
    everyone = {**clients.members, **clients.candidates}
    steps = range(federation.plan.rounds)
    return {
        "plan": federation.plan,
        "members": sorted(clients.members.values()),
        "candidates": sorted(clients.candidates.values()),
        "start": transcript.start.tobytes(),
        "sums": transcript.sums[:].tobytes(),
        "answers": transcript.answers[:].tobytes(),
        "iterates": transcript.iterates[:].tobytes(),
        "held": {
            (client.name, step): clients.held.history(client.slot, [step]).tobytes()
            for client in everyone.values()
            for step in steps
            if clients.held.has(client.slot, step)
        },
        "begun": federation._round_key,
        "pending": federation._pending,
        "requests": (federation._state.version, federation._state.receipts) if hasattr(federation, "_state") else None,
    }


def copied(path, folder):
    """A copy of a federation that nobody has open, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    for ending in ("", "-wal", "-shm", "-key", "-seal"):
        beside(folder / path.name, ending).unlink(missing_ok=True)
        if beside(path, ending).exists():
            shutil.copy(beside(path, ending), beside(folder / path.name, ending))
    return folder / path.name


def key_of(number):
    """A key that does not lie in a file by chance."""
    return blake2b(str(number).encode(), digest_size=32).digest()


def draw(monkeypatch, first):
    """Let keys be drawn one after the other, those of the numbers from one on."""
    keys = map(key_of, count(first))
    monkeypatch.setattr(randomness, "fresh_key", lambda: next(keys))


def sealed_of(federation):
    """The bytes of all that is sealed, as they lie in the file, by client and round."""
    everyone = {**federation.clients.members, **federation.clients.candidates}.values()
    file = federation._file
    return {
        (client.name, step): bytes(file.need("blocks", client.slot << sealing.ROUND_BITS | step))
        for client in everyone
        for step in range(federation.plan.rounds)
        if federation.clients.held.has(client.slot, step)
    }


def all_bytes(path):
    """All that lies in the folder of a federation that nobody has open, but the keys."""
    files = [file for file in path.parent.iterdir() if not file.name.endswith(("-key", "-seal"))]
    return b"\n".join(file.read_bytes() for file in sorted(files))
