"""Small models whose process dies when it likes the outcome of a request least; compared with fresh fits.

Here a death is an exception that nothing catches: it leaves the file as a kill would, and is quick enough for thousands
of them. `killing.py` has real kills.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

import expunge
from cases.in_solver import in_solver
from cases.keys import keys_from
from cases.learners import ALIGNED
from cases.patching import patched_method
from expunge import Delete, Insert, Replace
from expunge.base.errors import NoiseWarning, SizeWarning
from expunge.base.intake import Request
from expunge.base.types import AnyArray, Array
from expunge.engine.changing import Change, decide_on
from expunge.engine.checks import Exactness, _state, _state_names, compare
from expunge.engine.randomness import KEY_BYTES
from expunge.solvers import Lloyd, Newton
from expunge.store import failpoints, owner
from expunge.store.file import StoreFile
from expunge.store.records import StoredRecords
from expunge.store.state import Pending

X = np.concatenate([ALIGNED / 2.0, [[0.6, 0.0], [-0.5, 0.1]]])
Y = np.array([1, 1, 1, 1, 0, 0, 1, 0])
FIRST = 6
MEMORY = Path("/dev/shm")
USUAL = 60
"""How many fresh fits say what is usual."""


# --- when a process dies ------------------------------------------------------------------------------


class Died(BaseException):
    """The process is no more."""


@dataclass
class Fate:
    """What a process knows of the request that it works on, and how often it died of it."""

    dies: Dies
    most: int
    usual: float = 0.0
    """The median of the last iterate's first number, in fresh fits."""
    deaths: int = 0
    evaluations: int = 0
    """How many sums were computed since it was taken up."""
    decided: Change | None = None

    def reach(self, point: str) -> None:
        """Die or go on."""
        if self.deaths < self.most and self.dies(point, self):
            self.deaths += 1
            raise Died


Dies = Callable[[str, Fate], bool]
EVALUATING = "evaluating"


def when_it_replays(point: str, fate: Fate) -> bool:
    return point == "request: decided" and fate.decided is not None and not fate.decided.outcome.kept


def when_it_keeps(point: str, fate: Fate) -> bool:
    return point == "request: written" and fate.decided is not None and fate.decided.outcome.kept


def in_the_replay(point: str, fate: Fate) -> bool:
    """The deletion of one record needs one sum, and more only if it replays."""
    return point == EVALUATING and fate.evaluations > 1


def when_displeased(point: str, fate: Fate) -> bool:
    """Die if the last iterate turns out larger than half of all fresh ones."""
    if point != "request: decided" or fate.decided is None:
        return False
    staged, kept = fate.decided.staged, fate.decided.transcript.iterates
    return bool((kept[-1] if staged is None or not len(staged.iterates) else staged.iterates[-1])[0] > fate.usual)


def when_not_first(point: str, fate: Fate) -> bool:
    """Die unless everybody who comes or leaves is at the first place."""
    return point == "request: decided" and fate.decided is not None and bool(fate.decided.edit.places().any())


def when_recording(point: str, fate: Fate) -> bool:
    return point == "request: recording"


def when_replayed_and_committed(point: str, fate: Fate) -> bool:
    return point == "request: committed" and fate.decided is not None and not fate.decided.outcome.kept


@contextmanager
def mortal(fate: Fate) -> Iterator[None]:
    """Let the store's work come to its end as fate has it."""
    total = StoredRecords.total

    def deciding(*given: Any, **more: Any) -> Change:
        fate.evaluations, fate.decided = 0, None
        fate.decided = decide_on(*given, **more)
        return fate.decided

    def evaluating(records: StoredRecords, *given: Any) -> Any:
        fate.evaluations += 1
        fate.reach(EVALUATING)
        return total(records, *given)

    with (
        mock.patch.object(failpoints, "hook", fate.reach),
        mock.patch.object(owner, "decide_on", deciding),
        mock.patch.object(StoredRecords, "total", evaluating),
    ):
        yield


@contextmanager
def undurable() -> Iterator[Path]:
    """Give a folder, in memory if there is one, where nothing waits for a disk."""
    greet = StoreFile._greet

    def hasty(file: StoreFile) -> None:
        greet(file)
        file._run("PRAGMA synchronous=OFF")

    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder,
        mock.patch.object(StoreFile, "_greet", hasty),
        warnings.catch_warnings(),
    ):
        for kind in (SizeWarning, NoiseWarning):
            warnings.simplefilter("ignore", kind)
        yield Path(folder)


# --- problems -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A request: a deletion, or an insertion or correction with the numbers of certain rows."""

    what: Literal["delete", "insert", "replace"]
    ids: tuple[int, ...]
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """A small model, requests to it, and when its process dies."""

    name: str
    asked: tuple[Ask, ...]
    dies: Dies
    model: Callable[..., Any] = expunge.LogisticRegression
    given: dict[str, Any] = field(default_factory=dict)
    most: int = 2
    """How often it dies of one request."""
    reopens: bool = True
    """Whether the store is closed and opened again, or the next call to the same model finishes the request."""
    in_tests: bool = False

    def make(self) -> Any:
        """Return a model that is not fitted yet."""
        common: dict[str, Any] = {"expected_records": 8, "rho": 0.9}
        if self.model is expunge.LogisticRegression:
            steps = {} if "solver" in self.given else {"steps": 3, "radius": 2.0}
            return self.model(**in_solver(**{**common, "classes": [0, 1], **steps, **self.given}))
        return self.model(**{**common, **self.given})

    def columns(self, rows: Sequence[int]) -> tuple[AnyArray, ...]:
        """Return records by number."""
        numbers = list(rows)
        return (X[numbers],) if self.model is expunge.KMeans else (X[numbers], Y[numbers])

    def check(self, runs: int, seed: int = 0, level: float = 0.01, refits: bool = False) -> Exactness:
        """Compare a model whose process died with one that never had what was deleted, ``runs`` times each.

        With ``refits`` it is fitted anew after a death, which is a mistake.
        """
        rows = self._rows_left()
        first, second, third = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3))
        with undurable() as folder:
            with self.lived(folder, third) as model:
                ids = model._records.all_ids() if self.given.get("schedule") == "arrival" else np.array(sorted(rows))
            columns = self.columns([rows[one] for one in ids.tolist()])

            def fresh(rng: np.random.Generator) -> Any:
                with keys_from(rng):
                    return self.make().fit(*columns, ids=ids)

            usual = float(np.median([fresh(third).transcript_.iterates[-1][0] for _ in range(USUAL)]))
            after = []
            for _ in range(runs):
                with self.lived(folder, first, usual, refits) as model:
                    after.append(whole_state(model, ids))
            other = [whole_state(fresh(second), ids) for _ in range(runs)]
            model = fresh(third)
        names = _state_names(model.plan_.learner, model._records, model.transcript_, ids)
        names += [f"published[{number}]" for number in range(len(other[0]) - len(names))]
        return compare(np.array(after), np.array(other), names, level)

    def _rows_left(self) -> dict[int, int]:
        """Return who is left, and whose numbers they have."""
        rows = {one: one for one in range(FIRST)}
        for ask in self.asked:
            if ask.what == "delete":
                rows = {one: row for one, row in rows.items() if one not in ask.ids}
            else:
                rows |= dict(zip(ask.ids, ask.rows, strict=True))
        return rows

    def lived(self, folder: Path, rng: np.random.Generator, usual: float = 0.0, refits: bool = False) -> Any:
        """Fit, save, open, and serve the requests through all deaths; return the model."""
        path = folder / "model"
        for file in folder.iterdir():
            file.unlink()
        with keys_from(rng):  # coins from the system would make every sample another
            self.make().fit(*self.columns(range(FIRST)), ids=np.arange(FIRST)).save(path)
            model = expunge.open(path)
            for ask in self.asked:
                fate = Fate(self.dies, self.most, usual)
                model = self._served(model, path, self._request(ask), fate)
                if refits and fate.deaths:
                    model.replan(expected_records=8)
        return model

    def _request(self, ask: Ask) -> Request:
        ids = np.array(ask.ids)
        if ask.what == "delete":
            return Delete(ids)
        return (Insert if ask.what == "insert" else Replace)(self.columns(ask.rows), ids)

    def _served(self, model: Any, path: Path, request: Request, fate: Fate) -> Any:
        """Serve a request, through as many deaths as fate has for it; return the model to go on with."""
        before = model._owner.state.receipts
        with mortal(fate):
            while True:
                try:
                    if fate.deaths and self.reopens:
                        model.close()
                        model = expunge.open(path)
                    model._owner.catch_up(model._publish)
                    if model._owner.state.receipts == before:  # asked for the first time, or never recorded
                        model.serve_request(model.prepare_request(request))
                    break
                except Died:
                    continue
        return model


def whole_state(model: Any, ids: AnyArray) -> Array:
    """Return all that is kept and all that is published, as one row of numbers."""
    state = _state(model.plan_.learner, model._records, model.transcript_, ids)
    return np.concatenate([state, *(np.ravel(part) for part in model._published)], dtype=float)


# --- mistakes -----------------------------------------------------------------------------------------


@contextmanager
def redrawn(seed: int = 0) -> Iterator[None]:
    """Make a mistake for a while: a request that was interrupted is finished with new coins."""
    rng, read = np.random.default_rng(seed), Pending.from_bytes

    def with_new_coins(content: bytes) -> Pending:
        return replace(read(content), key=rng.bytes(KEY_BYTES))

    with patched_method(Pending, "from_bytes", with_new_coins):
        yield


# --- what is tried ------------------------------------------------------------------------------------

ONE, BULK = (Ask("delete", (0,)),), (Ask("delete", (0, 2, 3)),)
ENTER, NEW = (Ask("insert", (6,), (6,)),), (Ask("insert", (6, 7), (6, 7)),)
CORRECTED = (Ask("replace", (0, 4), (7, 6)),)
STREAM = (Ask("delete", (1,)), *NEW, Ask("delete", (0, 7)), Ask("insert", (0,), (3,)))
EVERYONE = {"solver": "gradient_descent", "rate": 0.6}


def cases() -> list[Case]:
    """Return all problems that must show no bias."""
    return [
        Case("one deletion, dies when it replays", ONE, when_it_replays),
        Case("one deletion, dies when it keeps", ONE, when_it_keeps),
        Case("one deletion, dies in the replay", ONE, in_the_replay, in_tests=True),
        Case("one deletion, dies before it is recorded", ONE, when_recording),
        Case("one deletion, dies when a replay is committed", ONE, when_replayed_and_committed),
        Case("bulk, dies when it replays", BULK, when_it_replays),
        Case("bulk, dies when displeased", BULK, when_displeased, most=4, in_tests=True),
        Case("bulk, interrupted when it replays, not closed", BULK, when_it_replays, reopens=False),
        Case("insertion, dies when it replays", NEW, when_it_replays),
        Case("insertion, dies when displeased", NEW, when_displeased, most=4),
        Case("insertion, dies when it does not come first", ENTER, when_not_first, most=4),
        Case("correction, dies when displeased", CORRECTED, when_displeased, most=4),
        Case("stream, dies when it replays", STREAM, when_it_replays),
        Case("stream, dies when displeased", STREAM, when_displeased, most=3),
        Case("two epochs, bulk, dies when it replays", BULK, when_it_replays, given={"steps": 2, "epochs": 2}),
        Case("tree, row by row, bulk, dies when it replays", BULK, when_it_replays, given=dict(_ROW_BY_ROW)),
        Case("shuffled, bulk, dies when displeased", BULK, when_displeased, given=dict(_SHUFFLED), most=4),
        Case("arrival, bulk, dies when it replays", BULK, when_it_replays, given=dict(_ARRIVAL)),
        Case("sampled rounds, bulk, dies when it replays", BULK, when_it_replays, given=EVERYONE, in_tests=True),
        Case("draws, bulk, dies when it replays", BULK, when_it_replays, given=_DRAWS),
        Case("draws, insertion, dies when it keeps", NEW, when_it_keeps, given=_DRAWS),
        Case("noisy k-means, bulk, dies when it replays", BULK, when_it_replays, expunge.KMeans, dict(_CLUSTERS)),
        Case("k-means, bulk, dies when it fits anew", BULK, when_it_replays, expunge.KMeans, {"n_clusters": 2}),
    ]


_DRAWS = {"solver": Newton(rounds=2)}
_ROW_BY_ROW = {"mechanism": "tree", "coupling": "sequential"}
_SHUFFLED = {"schedule": "shuffled", "steps": None, "batch": 2}
_ARRIVAL = {"schedule": "arrival", "steps": None, "batch": 2}
_CLUSTERS = {"n_clusters": 2, "solver": Lloyd(radius=1.0, n_rounds=2, n_seeds=3)}

_STARK = {"steps": 1, "fit_intercept": False, "rho": 0.97}
CONTROLS = {
    "new coins after a replay that died": Case("", ONE, when_it_replays, given=_STARK, most=6),
    "a new place after a death for not coming first": Case("", ENTER, when_not_first, given={"steps": 2}, most=4),
    "a fresh fit after a replay that died": Case("", ONE, when_it_replays, given=_STARK, most=1),
}
"""Mistakes, and the problems on which they are made: one step and a deletion that replays every other time, mostly."""


def check_control(name: str, runs: int, seed: int = 0) -> Exactness:
    """Make a mistake, and compare."""
    if name.startswith("a fresh fit"):
        return CONTROLS[name].check(runs, seed, refits=True)
    with redrawn(seed):
        return CONTROLS[name].check(runs, seed)
