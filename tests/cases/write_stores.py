"""Write the fixtures of stores, by the library as it is: ``PYTHONPATH=src:tests python tests/cases/write_stores.py``.

Do not do so because a test of theirs fails: they are what earlier versions have written, and how these would have
finished it. New cases may be added: give their names, and the others stay as they are.

Each archive has a store when nothing waits ("idle"), and for each request a copy as a process leaves it that dies right
after it was recorded, log and all. Keys are tried until one keeps the model and one replays, where both can be: then
there are two such copies of each request.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

import expunge.federated as federated
import expunge.store
from cases import opened, stored

TRIES = 60


def key_of(number):
    """A key for a request."""
    return hashlib.sha256(f"try {number}".encode()).digest()


def outcomes(base, serve):
    """By outcome (None where there is none to tell), the first key that leads to it."""
    found = {}
    for number in range(TRIES):
        with tempfile.TemporaryDirectory() as folder, opened.drawing(key_of(number)):
            outcome = serve(opened.copy_store(base, Path(folder) / "tried"))
        found.setdefault(getattr(outcome, "kept", None), key_of(number))
        if len(found) == 2 or None in found:
            break
    return found


def waiting_name(request, kept):
    """What a copy is called in which a request waits."""
    return request if kept is None else f"{request}, {'kept' if kept else 'replayed'}"


def write_waiting(base, request, serve, point):
    """Write copies of a store in which a request waits; return their names, with the outcomes."""
    named = {}
    for kept, key in outcomes(base, serve).items():
        to = base.with_name(waiting_name(request, kept))
        with tempfile.TemporaryDirectory() as folder, opened.drawing(key):
            path = opened.copy_store(base, Path(folder) / "dying")
            with opened.dying(path, point, to):
                serve(path)
        named[to.name] = {"kept": kept, "asked": request, "from": base.name}
    return named


def write_model(name, folder):
    """Write the files of a model; return what they are, and what comes of them."""
    case, idle = stored.MODELS[name], folder / "idle"
    if case.signed:
        expunge.store.make_signing_key(folder / stored.SIGNING)
    stored.write_model(case, idle)
    with stored.open_model(case, idle) as model:
        features, answers = model.n_features_in_, stored.answers_of(case, model)
    said = {"features": features, "idle": {"answers": answers}, "waiting": {}}
    for asked, request in stored.requests_of(case, features).items():

        def serve(path, request=request):
            with stored.open_model(case, path, folder) as model:
                return model.serve_request(model.prepare_request(request))

        said["waiting"] |= write_waiting(idle, asked, serve, opened.RECORDED)
    stored.pack(name, folder)
    for waiting, told in said["waiting"].items():
        with stored.open_model(case, folder / waiting) as model:
            assert model.verify(tolerance=case.tolerance).ok
            told["answers"] = stored.answers_of(case, model)
        told["tables"] = stored.tables_of(folder / waiting, rounded=case.rounded)
    return said


def write_federation(name, folder):
    """Write the files of a federation; return what they are, and what comes of them."""
    stored.write_federation(stored.FEDERATIONS[name], folder / "idle")
    said = {"waiting": {}}
    for asked, base in stored.ASKED.items():

        def serve(path, asked=asked):
            with federated.open(path) as federation:
                return stored.ask_federation(federation, asked)

        point = opened.ROUND_RECORDED if asked == "round" else opened.FEDERATION_RECORDED
        said["waiting"] |= write_waiting(folder / base, asked, serve, point)
    stored.pack(name, folder)
    for waiting, told in said["waiting"].items():
        federated.open(folder / waiting).close()
        told["tables"] = stored.tables_of(folder / waiting, nameless=True)
        with federated.open(folder / waiting) as federation:
            assert federation.verify().ok
            told["answers"] = stored.answers_of_federation(federation)
    return said


def main(names):
    """Write the cases of these names, or all."""
    warnings.simplefilter("ignore")
    stored.STORES.mkdir(exist_ok=True)
    digests = json.loads(stored.DIGESTS.read_text()) if stored.DIGESTS.exists() else {}
    for name in names or [*stored.MODELS, *stored.FEDERATIONS]:
        with tempfile.TemporaryDirectory() as folder:
            write = write_model if name in stored.MODELS else write_federation
            digests[name] = write(name, Path(folder))
        size = stored.archive_of(name).stat().st_size
        print(f"{name}: {size:,} bytes; {', '.join(digests[name]['waiting'])}", flush=True)
    stored.DIGESTS.write_text(json.dumps(digests, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
