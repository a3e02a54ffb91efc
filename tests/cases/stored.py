"""Small models and federations in files, what is asked of them, and digests of all that is kept afterwards.

`write_stores.py` has written them with the code of its day; `tests/store/test_fixtures.py` opens them with today's.
Features and targets are small multiples of a power of two, so that sums of them are exact in any order.
"""

import hashlib
import json
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import sparse

import expunge
import expunge.federated as federated
from cases import opened
from cases.clusters import lloyd
from expunge import Delete, Insert, Replace
from expunge.tables.schema import EncodedTables, parse_schema

STORES = Path(__file__).with_name("stores")
DIGESTS = STORES / "digests.json"
SIGNING = "signing.pem"
PEOPLE, SPARE = 44, 8
"""How many records there are at first, and how many more are for requests."""


# --- models -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model to be kept in a file."""

    model: str
    options: dict
    classes: int = 2
    """How many classes targets have; 0 where they are numbers, or there are none."""
    rows: str = "dense"
    """Or "sparse"; or "dense 32" or "sparse 32", which are ingested; or "schema", encoded from a CSV file."""
    features: int = 3
    named: str = "texts"
    """What ids are: "texts", or "numbers", which the model gives."""
    subjects: bool = False
    signed: bool = False
    answers: tuple[str, ...] = field(default=("coef_", "intercept_"))

    @property
    def rounded(self):
        """Whether its parameters are the solution of a linear system, whose last digits are LAPACK's."""
        return self.model == "Ridge"

    @property
    def tolerance(self):
        """How far what is re-derived on another machine may be from what is kept."""
        return 1e-9 if self.rounded else 0.0


HALF = {"rho": 0.5, "radius": 8.0}
EXACT = {"rho": 1.0, "radius": 8.0}
DESCENT = {"solver": "gradient_descent", "steps": 5}
NUMBERS = {"target_range": (-1.0, 1.0)}
CENTERS = {"answers": ("cluster_centers_",), "classes": 0, "features": 2}
MODELS = {
    # how steps are dealt out, noise, couplings
    "scattered sqrt joint": Case("LinearSVC", {**HALF, "steps": 8}),
    "scattered tree joint": Case("LinearSVC", {**HALF, "steps": 8, "mechanism": "tree"}, named="numbers"),
    "scattered tree sequential": Case("LinearSVC", {**HALF, "steps": 8, "mechanism": "tree", "coupling": "sequential"}),
    "scattered noiseless twice": Case("LinearSVC", {**EXACT, "steps": 8, "epochs": 2}),
    "scattered sqrt twice": Case("LinearSVC", {**HALF, "steps": 6, "epochs": 2}, named="numbers"),
    "shuffled sqrt joint": Case("LinearSVC", {**HALF, "batch": 6, "schedule": "shuffled"}),
    "shuffled tree sequential": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "shuffled", "mechanism": "tree", "coupling": "sequential"}
    ),
    "shuffled noiseless": Case("LinearSVC", {**EXACT, "batch": 6, "schedule": "shuffled"}, named="numbers"),
    "arrival sqrt joint": Case("LinearSVC", {**HALF, "batch": 6, "schedule": "arrival"}, named="numbers"),
    "arrival tree sequential": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "arrival", "mechanism": "tree", "coupling": "sequential"}
    ),
    "arrival anytime joint": Case("LinearSVC", {**HALF, "batch": 6, "schedule": "arrival", "mechanism": "anytime"}),
    "arrival halving joint": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "arrival", "mechanism": "halving", "selector": "last"}
    ),
    "arrival noiseless": Case("LinearSVC", {**EXACT, "batch": 6, "schedule": "arrival"}),
    "everyone adaptive": Case("LinearSVC", {**HALF, **DESCENT}),
    "everyone sequential": Case("LinearSVC", {**HALF, **DESCENT, "coupling": "sequential"}, named="numbers"),
    "everyone half adaptive": Case("LinearSVC", {**HALF, **DESCENT, "rate": 0.5}),
    "everyone half sequential": Case("LinearSVC", {**HALF, **DESCENT, "rate": 0.5, "coupling": "sequential"}),
    "everyone noiseless": Case("LinearSVC", {**EXACT, **DESCENT}),
    "everyone half noiseless": Case("LinearSVC", {**EXACT, **DESCENT, "rate": 0.5}),
    # models, solvers, losses
    "logistic": Case("LogisticRegression", {**HALF, "steps": 8}),
    "logistic descent": Case("LogisticRegression", {**HALF, **DESCENT}),
    "multinomial": Case("LogisticRegression", {**HALF, "steps": 8}, classes=3),
    "multinomial descent": Case("LogisticRegression", {**HALF, **DESCENT, "rate": 0.5}, classes=3),
    "svc of three": Case("LinearSVC", {**HALF, "steps": 8, "selector": "average"}, classes=3),
    "svc weighted": Case(
        "LinearSVC", {**HALF, "steps": 8, "class_weight": {"no": 0.5}, "alpha": 0.125, "fit_intercept": False}
    ),
    "svc frank wolfe": Case("LinearSVC", {"rho": 0.5, "steps": 8, "solver": "frank_wolfe", "radius": 4.0}),
    "svc frank wolfe of three": Case(
        "LinearSVC", {"rho": 0.5, "steps": 8, "solver": "frank_wolfe", "radius": 4.0, "domain": "l1"}, classes=3
    ),
    "svc in a ball": Case("LinearSVC", {**HALF, "steps": 8, "domain": "l2", "step_size": "paper"}),
    "svc projected": Case("LinearSVC", {**HALF, "steps": 8, "n_components": 4}, features=9),  # by a sparse matrix
    "svc projected by signs": Case("LinearSVC", {**HALF, "steps": 8, "n_components": 2}, features=9),
    "linear regression": Case("LinearRegression", {**HALF, **NUMBERS, "steps": 8}, classes=0),
    "huber": Case("HuberRegressor", {**HALF, **NUMBERS, "steps": 8, "epsilon": 0.25}, classes=0, named="numbers"),
    "huber noiseless": Case("HuberRegressor", {**EXACT, **NUMBERS, **DESCENT, "epsilon": 0.25}, classes=0),
    "ridge": Case("Ridge", {"alpha": 0.5}, classes=0),
    "ridge sparse": Case("Ridge", {"alpha": 0.5}, classes=0, rows="sparse"),
    "kmeans adaptive": Case("KMeans", {"n_clusters": 2, "radius": 1.0, "rho": 0.5, "n_rounds": 4}, **CENTERS),
    "kmeans sequential": Case(
        "KMeans", {"n_clusters": 2, "radius": 1.0, "rho": 0.5, "n_rounds": 4, "coupling": "sequential"}, **CENTERS
    ),
    "kmeans noiseless": Case("KMeans", {"n_clusters": 2, "radius": 1.0, "rho": 1.0, "n_rounds": 4}, **CENTERS),
    # how records lie
    "sparse scattered": Case("LinearSVC", {**HALF, "steps": 8}, rows="sparse"),
    "sparse shuffled": Case("LinearSVC", {**HALF, "batch": 6, "schedule": "shuffled"}, rows="sparse"),
    "sparse everyone": Case("LinearSVC", {**HALF, **DESCENT}, rows="sparse"),
    "ingested 32 bits": Case("LinearSVC", {**HALF, "steps": 8}, rows="dense 32"),
    "ingested 32 bits shuffled": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "shuffled"}, rows="dense 32", named="numbers"
    ),
    "ingested sparse 32 bits": Case("LinearSVC", {**HALF, "steps": 8}, rows="sparse 32"),
    "ingested by a schema": Case("LinearSVC", {**HALF, "steps": 8}, rows="schema", features=0),
    "numbers ingested by a schema": Case(
        "HuberRegressor", {**HALF, **NUMBERS, "steps": 8}, rows="schema", classes=0, features=0
    ),
    "subjects scattered": Case("LinearSVC", {**HALF, "steps": 8, "records_per_subject": 3}, subjects=True),
    "subjects shuffled": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "shuffled", "records_per_subject": 3}, subjects=True
    ),
    "subjects arrival": Case(
        "LinearSVC", {**HALF, "batch": 6, "schedule": "arrival", "records_per_subject": 3}, subjects=True
    ),
    "subjects everyone": Case("LinearSVC", {**HALF, **DESCENT, "records_per_subject": 3}, subjects=True),
    "subjects ingested": Case(
        "LinearSVC", {**HALF, "steps": 8, "records_per_subject": 3}, subjects=True, rows="dense 32"
    ),
    "signed": Case("LinearSVC", {**HALF, "steps": 8}, signed=True),
}
NAMES = ("no", "yes", "maybe")
CITIES = ("Rome", "Oslo", "Lima")
SCHEMA = """format = "expunge schema 1"
confirmed = true
[columns.age]
kind = "numeric"
low = 0
high = 128
[columns.city]
kind = "categorical"
values = ["Rome", "Oslo", "Lima"]
[columns.joined]
kind = "date"
low = 2010-01-01
high = 2026-01-01
[columns.note]
kind = "text"
buckets = 4
[columns.street]
kind = "categorical"
buckets = 4
[columns.name]
kind = "id"
type = "text"
"""
TARGETS = {
    True: '[columns.sick]\nkind = "target"\nvalues = ["no", "yes"]\n[columns.bill]\nkind = "ignore"\n',
    False: '[columns.bill]\nkind = "target"\nlow = -1\nhigh = 1\n[columns.sick]\nkind = "ignore"\n',
}
"""What the target is, by whether it is a class."""


@dataclass(frozen=True)
class Table:
    """Records: those that there are at first, then those that requests bring."""

    X: object
    y: object
    ids: object
    subjects: object


def table_of(case, features):
    """All records of a case."""
    rng = np.random.default_rng([len(case.model), case.classes, features])
    count = PEOPLE + SPARE
    X = rng.integers(-4, 5, size=(count, features)) / 8.0
    X[:, max(4, features // 2) :] = 0.0  # so that no row is longer than 1
    X /= 2.0 ** (features > 3)
    known = X[:, 0] + X[:, 1] / 2 + rng.integers(-1, 2, size=count) / 4
    if case.classes:
        edges = np.quantile(known, np.arange(1, case.classes) / case.classes)
        y = np.array(NAMES)[np.searchsorted(edges, known)]
    else:
        y = np.clip(known, -1, 1)
    if case.rows.startswith("sparse"):
        X = sparse.csr_array(X)
    if case.rows.endswith("32") or case.rows == "schema":
        X = X.astype(np.float32)
    ids = np.array([f"person {number:02d}" for number in range(count)])
    subjects = np.array([f"house {number // 3:02d}" for number in range(count)]) if case.subjects else None
    return Table(X, y, ids if case.named == "texts" else np.arange(count), subjects)


def write_model(case, path):
    """Train a model and write it to a file, with one deletion in its past."""
    options = case.options
    if case.classes and (case.rows.endswith("32") or case.rows == "schema"):
        options = {**options, "classes": list(NAMES[: case.classes])}
    model = of_today(case.model, options)
    if case.rows == "schema":
        source = EncodedTables(
            parse_schema(SCHEMA + TARGETS[case.classes > 0]), _write_csv(path.with_name("people.csv"))
        )
        expunge.ingest(model, source, path).close()
        path.with_name("people.csv").unlink()
    else:
        table = table_of(case, case.features)
        X, y = table.X[:PEOPLE], table.y[:PEOPLE]
        ids = table.ids[:PEOPLE] if case.named == "texts" else None
        subjects = table.subjects[:PEOPLE] if case.subjects else None
        if case.rows.endswith("32"):
            columns = [column for column in (X, y, ids, subjects) if column is not None]
            blocks = [tuple(column[where] for column in columns) for where in (slice(20), slice(20, PEOPLE))]
            expunge.ingest(model, blocks, path).close()
        elif case.model == "KMeans":
            model.fit(X, ids=ids, subjects=subjects).save(path)
        else:
            model.fit(X, y, ids=ids, subjects=subjects).save(path)
    with open_model(case, path) as model:
        model.unlearn(table_of(case, 3).ids[[5, 40]])


def of_today(name, options):
    """The model of a case, whose options are those of the version that wrote the file."""
    return (lloyd if name == "KMeans" else getattr(expunge, name))(**options)


def _write_csv(path):
    rng = np.random.default_rng(1)
    lines = ["name,age,city,joined,note,street,sick,bill"]
    for number in range(PEOPLE):
        age, city = int(rng.integers(1, 100)), rng.choice(CITIES)
        note, street = rng.choice(["tired", "well", "cough"]), rng.choice(["High", "Low", "Mill"])
        joined, sick, bill = f"20{10 + number % 15}-03-04", NAMES[int(age > 50)], int(rng.integers(-8, 9)) / 8
        lines.append(f"person {number:02d},{age},{city},{joined},{note},{street},{sick},{bill}")
    path.write_text("\n".join(lines) + "\n")
    return path


def open_model(case, path, keys=None):
    """Open the model of a case; its signing key, if it has one, lies in the same folder, or in that of ``keys``."""
    return expunge.open(path, sign_with=(keys or path.parent) / SIGNING if case.signed else None)


def requests_of(case, features):
    """What is asked of a model, by name."""
    table = table_of(case, features)
    here, there = np.array([3, 17, 18]), slice(PEOPLE, PEOPLE + 4)

    def columns(where):
        return (table.X[where],) if case.model == "KMeans" else (table.X[where], table.y[where])

    subjects = None if table.subjects is None else table.subjects[there]
    found = {
        "delete": Delete(table.ids[[3, 17, 18, 33]]),
        "insert": Insert(columns(there), table.ids[there] if case.named == "texts" else None, subjects),
        "replace": Replace(columns(np.array([PEOPLE + 5, PEOPLE + 6, PEOPLE + 7])), table.ids[here]),
    }
    if case.subjects:
        found["delete by subject"] = Delete(subjects=table.subjects[[6, 24]])
    return found


def answers_of(case, model):
    """What a model shows, as digests.

    Rows to predict have one number each, a power of two: of what is computed of them, nothing is rounded but the sum
    with the intercept.
    """
    features = model.n_features_in_
    rows = np.concatenate([np.eye(features) / 2, -np.eye(features) / 4, np.zeros((1, features))])
    found = {name: _of_numbers(case, getattr(model, name)) for name in case.answers}
    predicted = model.predict(rows)
    found["predict"] = _of_numbers(case, predicted) if predicted.dtype.kind == "f" else short(str(predicted.tolist()))
    if hasattr(model, "decision_function"):
        found["decision_function"] = _of_numbers(case, model.decision_function(rows))
    found["n_records_"] = model.n_records_
    found["ids_"] = short(str(sorted(model.ids_.tolist())))
    return found


def _of_numbers(case, numbers):
    numbers = np.atleast_1d(np.asarray(numbers, dtype=float)).ravel() + 0.0  # there is one zero
    if case.rounded:
        return [f"{number:.9e}" for number in numbers.tolist()]
    return short(numbers.astype("<f8").tobytes())


# --- federations --------------------------------------------------------------------------------------

MEMBERS = [f"client {letter}" for letter in "abcdef"]
NEWCOMERS = ["client x", "client y"]
LEAVING = ["client b", "client e"]
FEDERATIONS = {
    "federation": {"rho": 0.7},
    "federation half": {"rho": 0.7, "rate": 0.5, "selector": "average"},
    "federation noiseless": {"rho": 1.0},
}
ASKED = {"delete": "idle", "insert": "joining", "withdraw": "joining", "round": "answered"}
"""What is asked of a federation, and in which of its states."""


def update_of(task):
    """By how much a client would change a model."""
    own = np.frombuffer(hashlib.sha256(task.client.encode()).digest()[: task.model.size], np.uint8)
    return (own // 16 - 8.0) / 16.0 - task.model / 4.0


def answer(federation, tasks):
    """Let clients answer."""
    federation.receive([(task, update_of(task)) for task in tasks])


def make_rounds(federation):
    """Make all rounds."""
    while not federation.finished:
        answer(federation, federation.tasks())
        federation.advance()


def write_federation(options, path):
    """Write a federation in three states: all rounds made; with two who join; with all answers for a round."""
    arrays = [federated.ArrayType("weights", (2,), "<f4"), federated.ArrayType("bias", (1,), "<f8")]
    plan = federated.plan_federation(arrays, clients=6, rounds=4, clip=1.0, finish=None, **options)
    federated.create(path, plan, np.array([0.25, -0.5, 0.125]), [*MEMBERS, "client z"])
    with federated.open(path) as federation:
        for _ in range(2):
            answer(federation, federation.tasks())
            federation.advance()
        federation.forget("client z")
        while federation.made < 2:
            answer(federation, federation.tasks())
            federation.advance()
        answer(federation, federation.tasks())
    opened.copy_store(path, path.with_name("answered"))
    with federated.open(path) as federation:
        make_rounds(federation)
    opened.copy_store(path, path.with_name("joining"))
    with federated.open(path.with_name("joining")) as federation:
        federation.invite(NEWCOMERS)
        answer(federation, federation.tasks_of_candidates())


def ask_federation(federation, name):
    """Ask a federation for what `ASKED` has under this name."""
    match name:
        case "delete":
            return federation.forget(LEAVING)
        case "insert":
            return federation.admit(NEWCOMERS)
        case "withdraw":
            return federation.forget(NEWCOMERS)
        case _:
            return federation.advance()


def answers_of_federation(federation):
    """What a federation shows, as digests; and, for it is the last, once it was gone on with."""
    found = {
        "made": federation.made,
        "newest": short(federation.newest.astype("<f8").tobytes()),
        "members": federation.members,
        "candidates": federation.candidates,
    }
    with opened.drawing(hashlib.sha256(b"rounds to come").digest()):
        make_rounds(federation)
    found["arrays at last"] = {name: short(array.tobytes()) for name, array in federation.arrays().items()}
    return found


# --- files and digests --------------------------------------------------------------------------------


def short(content):
    """A digest that is long enough to tell."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def archive_of(name):
    """Where the files of a case lie."""
    return STORES / f"{name.replace(' ', '_')}.tar.xz"


def unpack(name, folder):
    """Copy all files of a case into a folder."""
    with tarfile.open(archive_of(name), "r:xz") as archive:
        archive.extractall(folder, filter="data")
    for file in folder.iterdir():
        file.chmod(0o600)
    return folder


def pack(name, folder):
    """Write the files of a folder as those of a case."""

    def nobody(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive_of(name), "w:xz", preset=9) as archive:
        for file in sorted(folder.iterdir()):
            if not file.name.endswith(("-shm", "-lock")):
                archive.add(file, file.name, filter=nobody)


def rows_of(path):
    """All rows of all tables, as they lie in a file that nobody has open."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
        return {
            name: {row[0]: row[1:] for row in connection.execute(f"SELECT * FROM {name} ORDER BY number")}
            for name in names
        }


def tables_of(path, *, rounded=False, nameless=False):
    """Digests of all tables of a file that nobody has open, each with those of its rows.

    Where parameters are ``rounded``, LAPACK's last digits are in the tables of iterates and of the model, and those are
    left out. Where receipts are ``nameless`` (a federation's: the number of a request is drawn when it is done, and is
    not recorded with it), the number and the hash of the last one are left out, also where the state has it as head.
    """
    tables = rows_of(path)
    if rounded:
        del tables["iterates"], tables["arrays"]
    if nameless and tables["receipts"]:
        last = json.loads(tables["receipts"][max(tables["receipts"])][0])
        for name in ("receipts", "about"):
            tables[name] = {
                number: (row[0].replace(last["request"], "…").replace(last["hash"], "…"),)
                for number, row in tables[name].items()
            }
    found = {}
    for name, rows in tables.items():
        of_rows = {str(number): hashlib.sha256(_bytes(row)).hexdigest() for number, row in rows.items()}
        whole = hashlib.sha256(json.dumps(of_rows).encode()).hexdigest()
        found[name] = {"all": whole, "rows": {number: digest[:8] for number, digest in of_rows.items()}}
    return found


def _bytes(row):
    return b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in row)
