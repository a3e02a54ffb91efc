"""Learners whose rounds are draws (Newton's method with a finish), and plausible mistakes with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases.learners import Case
from cases.mistakes import Control
from expunge import MemoryRecords, Transcript
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import Array, Batch, Draws
from expunge.engine.changing import change
from expunge.engine.couplings import likelihood as coupling
from expunge.engine.couplings.common import OldPass, Verdict
from expunge.engine.laws import Gaussian, Law, Laws, Point
from expunge.engine.learner import Learner
from expunge.engine.randomness import Randomness
from expunge.engine.transcript import Path
from expunge.solvers.count_losses import Poisson
from expunge.solvers.losses import Logistic, Multinomial, Squared, SquaredHinge, Weighted
from expunge.solvers.newton import COLUMNS, FIRST, Expansion, Newton
from expunge.solvers.newton_classes import ClassNewton
from expunge.solvers.plans.newton import make_newton_plan
from expunge.solvers.robust_losses import ScaledHuber
from expunge.solvers.scaled_newton import ScaledNewton

_rng = np.random.default_rng(4)
ROWS = _rng.normal(size=(14, 2)) * np.array([1.0, 300.0])
ROWS[-1] = [1.8, -360.0]
TARGETS = np.where(ROWS[:, 0] > 0.0, 1.0, -1.0)
TARGETS[-1] = -1.0
COUNTS = _rng.poisson(np.exp(0.5 * ROWS[:, 0])).astype(np.float64)
COUNTS[-1] = 9.0
AMOUNTS = 1e4 + 30.0 * ROWS[:, 0] + _rng.normal(size=14)
"""Targets that lie far from 0, and are centred."""
OUTLYING = AMOUNTS - 1e4
OUTLYING[-1] = -30.0  # not so far that units or the start would change, and all be made anew
TWINS = np.column_stack([ROWS[:, 0], ROWS[:, 0]])
"""Two columns that are the same."""
FAR = ROWS + np.array([0.0, 1e5])
"""A column that lies far from 0, and is centred."""
CODES = np.array([0, 1, 2, 1, 0, 2, 1, 0, 2, 0, 1, 2, 0, 1])
THREE = Multinomial(3)
LAST: tuple[Request, ...] = (Delete([13]),)
NEWCOMER = np.array([[1.0, -500.0]]), np.array([1.0])
STREAM: tuple[Request, ...] = (
    Delete([13]), Delete([2, 3]), Insert(NEWCOMER, [99]), Replace((ROWS[:1], TARGETS[1:2]), [5]), Delete([99]),
)  # fmt: skip
STREAM_OF_TEN: tuple[Request, ...] = (
    *STREAM, Delete([0]), Insert((ROWS[:2] / 2.0, TARGETS[:2]), [50, 51]), Delete([7, 8]),
    Replace((ROWS[2:3], TARGETS[2:3]), [50]), Delete([51]),
)  # fmt: skip
STREAM_OF_CLASSES: tuple[Request, ...] = (
    Delete([13]), Delete([2, 5]), Insert((NEWCOMER[0], np.array([2])), [99]), Replace((ROWS[:1], CODES[1:2]), [4]),
    Delete([99]),
)  # fmt: skip


def newton(
    rho: Any = 0.3, rounds: int | None = 2, rate: float = 1.0, loss: Any = None, features: int = 2, **more: Any
) -> Learner:
    loss = Logistic() if loss is None else loss
    return make_newton_plan(loss, features, 14, rho=rho, rounds=rounds, rate=rate, **more).learner


def careful(learner: Learner) -> Learner:
    """Return a learner whose rounds have stages, with as much noise as few records need."""
    laws: Any = learner.laws
    made = replace(laws, query=replace(laws.query, careful=True))
    return replace(learner, query=made.query, rule=made, laws=made)


def _case(
    name: str, learner: Learner, requests: tuple[Request, ...] = LAST, rows: Array = ROWS, targets: Array = TARGETS
) -> Case:
    return Case(name, learner, requests, in_tests=True, columns=(rows, targets))


def cases() -> list[Case]:
    return [
        _case("newton, one round", newton(rounds=1)),
        _case("newton, two rounds", newton()),
        _case("newton, three rounds, a part", newton(rounds=3, rate=0.7)),
        _case("newton, a centred column", newton(), rows=FAR),
        _case("newton, no intercept, bare penalty", newton(fit_intercept=False, standardize=False)),
        _case("newton, two columns the same", newton(), rows=TWINS),
        _case("newton, squared hinge", newton(loss=SquaredHinge())),
        _case("newton, squared hinge, no noise", newton(rho=1.0, rounds=29, loss=SquaredHinge()), STREAM),
        _case("newton, counts", newton(loss=Poisson()), targets=COUNTS),
        _case("newton, counts, a stream of a part", newton(loss=Poisson(), rate=0.8), STREAM, targets=COUNTS),
        _case("newton, counts, no rounds", newton(loss=Poisson(), rounds=0), targets=COUNTS),
        _case("newton, a scale, one round", newton(loss=ScaledHuber(), rounds=1), targets=OUTLYING),
        _case("newton, a scale", newton(loss=ScaledHuber()), targets=OUTLYING),
        _case("newton, a scale, centred", newton(loss=ScaledHuber()), targets=AMOUNTS),
        _case("newton, a scale, a stream of a part", newton(loss=ScaledHuber(), rate=0.8), STREAM, targets=OUTLYING),
        _case("newton, a scale, no finish", newton(loss=ScaledHuber(), finish=False), targets=OUTLYING),
        _case("newton, a scale, no rounds", newton(loss=ScaledHuber(), rounds=0), targets=OUTLYING),
        _case("least squares", newton("auto", loss=Squared(1.0), rate=0.8, C=np.inf), STREAM, targets=AMOUNTS),
        _case("newton, little noise", newton(rho=0.9)),
        _case("newton, careful, two rounds", careful(newton())),
        _case("newton, careful, a stream of a part", careful(newton(rounds=4, rate=0.8)), STREAM),
        _case("newton, careful, no noise", newton(rho=1.0, rounds=20), STREAM),
        _case("newton, no rounds", newton(rounds=0)),
        _case("newton, insertion", newton(rate=0.8), (Insert(NEWCOMER, [99]),)),
        _case("newton, several at once", newton(), (Delete([1, 5, 13]),)),
        _case("newton, a stream", newton(rate=0.8), STREAM),
        _case("newton, a stream of ten", newton(rate=0.8), STREAM_OF_TEN),
        _case("newton, no finish, two rounds", newton(finish=False)),
        _case("newton, no finish, counts of a part", newton(loss=Poisson(), rate=0.7, finish=False), targets=COUNTS),
        _case("newton, no finish, a stream", newton(rate=0.8, finish=False), STREAM),
        _case("newton, all leave but two", newton(), (Delete(list(range(1, 13))),)),
        *_of_classes(),
    ]


def _of_classes() -> list[Case]:
    weighted, one_class = Weighted(THREE, (1.0, 2.0, 0.5)), np.flatnonzero(CODES == 2).tolist()
    return [
        _case("newton, three classes", newton(loss=THREE), targets=CODES),
        _case("newton, three classes, one round", newton(loss=THREE, rounds=1), targets=CODES),
        _case(
            "newton, three classes, a stream of a part", newton(loss=THREE, rate=0.8), STREAM_OF_CLASSES, ROWS, CODES
        ),
        _case("newton, three classes, a centred column", newton(loss=weighted), rows=FAR, targets=CODES),
        _case(
            "newton, three classes, no intercept, bare penalty",
            newton(loss=THREE, fit_intercept=False, standardize=False),
            targets=CODES,
        ),
        _case("newton, three classes, one of them leaves", newton(loss=THREE), (Delete(one_class),), ROWS, CODES),
        _case("newton, three classes, no rounds", newton(loss=THREE, rounds=0), targets=CODES),
    ]


# --- mistakes ---------------------------------------------------------------------------------------


class WithoutDeterminant(Gaussian):
    def log_density(self, drawn: Array) -> Any:
        return super().log_density(drawn) - self._constant


class RoundedAtTheEnd(Gaussian):
    def draw(self, draws: Draws, number: int = 1) -> Array:
        normal = draws.standard_normal((len(self.mean), number))
        found = self.mean + self.scale * np.linalg.solve(self.factor.T, normal).T
        drawn = np.zeros((number, self.size))
        inside = slice(self.first, self.first + len(self.mean))
        drawn[:, inside] = np.floor(found / self._units + draws.random(found.shape)) * self._units
        return drawn


class WithoutAPair(ClassNewton):
    """Draws are as they should be, but the ratio forgets the curvature of the first pair of classes."""

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        law = super().law(step, path, sums)
        if step < FIRST or not isinstance(law, Gaussian):
            return law
        less = sums.copy()
        self.query.limbs(less[step])[:, : self.query.sums.products] = 0.0
        forgetful = super().law(step, path, less)
        assert isinstance(forgetful, Gaussian)
        return ComparedAs(law, forgetful)


class ComparedAs(Gaussian):
    """A law that knows another's density, by which it is compared where the mistake is made."""

    __slots__ = ("other",)

    def __init__(self, law: Gaussian, other: Gaussian) -> None:
        super().__init__(law.mean, law.factor, law.scale, law.size, law.first)
        self.other = other


def _share_by_others(one: Law, other: Law, drawn: Array) -> float:
    """Compare draws by densities that forget a pair; what is due is drawn as it should be."""
    if isinstance(one, ComparedAs) and isinstance(other, ComparedAs):
        return _kept_share(one.other, other.other, drawn)
    return _kept_share(one, other, drawn)


def _anew(one: Law, other: Law, randomness: Randomness) -> Array:
    return other.draw(randomness.noise)[0]


def _always(chance: float, randomness: Randomness) -> bool:
    return True


def _finish_stays(
    learner: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    before = transcript.sums[-1:].copy()
    kept = change(learner, records, transcript, request, rng).commit().kept
    if kept:
        transcript.sums.write(transcript.steps - 1, before)
    return records, transcript


_likelihood, _kept_share = coupling.likelihood, coupling.kept_share
COUPLING = "expunge.engine.couplings.likelihood.likelihood"


def _looks_at_the_finish(old: OldPass, laws: Laws) -> Verdict:
    """Replay also where the finish would change a lot, by the draws that it was made at."""
    verdict = _likelihood(old, laws)
    finish = old.steps - 1
    if verdict.first is None and laws.model(old.path_to(finish), old.sums[:])[-1] > 0.0:
        law = laws.law(COLUMNS, old.path_to(COLUMNS), np.stack([verdict.sums[row] for row in range(COLUMNS + 1)]))
        assert law is not None
        verdict.first, verdict.known, verdict.drawn = COLUMNS, verdict.sums[COLUMNS], law.draw(old.draws)[0]
        verdict.sums = {row: verdict.sums[row] for row in range(COLUMNS)}
    return verdict


class InFloatingPoint(Expansion):
    """Sums that are rounded: as they are, minus what leaves, they have other digits than sums that never had it."""

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        total, above = super().total(step, path, batch)
        used = self.products.size
        if step > 0:
            low, middle, high = total[:used].reshape(3, -1)
            total[:used] = np.concatenate([((high * 2.0**33 + middle) * 2.0**33 + low) / 3.0, 0 * low, 0 * low])
        return total, above

    def moved(self, step: int, path: Path, stored: Array, came: Batch, left: Batch) -> Array:
        parts = [self.total(step, path, batch)[0] if batch else 0.0 for batch in (came, left)]
        return stored + parts[0] - parts[1]

    def normal(self, sums: Array) -> Array:
        return sums


class PretendedPoint(Point):
    """An exact solution that passes for a draw which any records could have made."""

    lattice = "point"


class FromExactSums(Newton):
    """The last round does not draw: the finish is then an exact query at a point that depends on exact sums."""

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        law = super().law(step, path, sums)
        if step != FIRST + self.query.rounds - 1 or not isinstance(law, Gaussian):
            return law
        solution = self.start
        solution[law.first : law.first + len(law.mean)] = law.mean
        return PretendedPoint(solution)


class WithoutScale(Gaussian):
    """A ratio that leaves out the density of the scale."""

    def log_density(self, drawn: Array) -> Any:
        return super().log_density(drawn) + 0.5 * self.whitened(drawn)[..., 0] ** 2


class ScaleIsFree(ScaledNewton):
    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        law = super().law(step, path, sums)
        if not isinstance(law, Gaussian):
            return law
        return WithoutScale(law.mean, law.factor, law.scale, law.size, law.first)


class Downdated(Newton):
    """The model follows from the inverse of the last one, from which what has left is taken out."""

    def model(self, path: Path, sums: Array) -> Array:
        matrix = self._matrix(sums[-1])[:-1, :-1] + np.eye(self.query.features + 1) / 7.0
        known = _KEPT.get("inverse")
        if known is None:
            inverse = np.linalg.inv(matrix)
        else:
            old, inverse = known
            values, vectors = np.linalg.eigh(old - matrix)
            left = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
            moved = inverse @ left
            inverse = inverse + np.outer(moved, moved) / (1.0 - left @ moved)
        _KEPT["inverse"] = matrix, inverse
        return inverse @ self._matrix(sums[-1])[:-1, -1]

    @staticmethod
    def forget() -> None:
        _KEPT.clear()


_KEPT: dict[str, Any] = {}


def with_laws(learner: Learner, kind: type[Newton]) -> Learner:
    laws: Any = learner.laws
    given = {name: getattr(laws, name) for name in laws.__dataclass_fields__}
    made = kind(**given)
    return replace(learner, rule=made, laws=made)


def _with_query(learner: Learner, kind: type[Expansion]) -> Learner:
    laws: Any = learner.laws
    query = kind(laws.query.loss, laws.query.features, laws.query.rounds, laws.query.digits)
    made = replace(laws, query=query)
    return replace(learner, query=query, rule=made, laws=made)


def controls() -> list[Control]:
    usual, less, bare = newton(rho=0.15), newton(rho=0.3), newton(rho=0.5, finish=False)
    case, three = _case("newton", usual), newton(rho=0.6, loss=THREE)
    of_classes = _case("newton, three classes", three, targets=CODES)
    scaled = newton(rho=0.4, loss=ScaledHuber(), rounds=1)
    return [
        Control("a fresh draw instead of what is due", _case("newton", newton(rho=0.6)), {"due": _anew}, runs=4_000),
        Control("no finish, and draws that always stay", _case("newton, no finish", bare), {"keeps_draw": _always}),
        Control(
            "no finish, and a fresh draw instead of what is due", _case("newton, no finish", bare), {"due": _anew},
            runs=4_000,
        ),
        Control("a finish that stays as it was", case, serve=_finish_stays),
        Control("a finish in floating point", case, mistaken=_with_query(usual, InFloatingPoint)),
        Control("a coin that looks at the finish", case, {COUPLING: _looks_at_the_finish}),
        Control(
            "a pair of classes that the ratio forgets", of_classes, {"kept_share": _share_by_others}, runs=4_000,
            mistaken=with_laws(three, WithoutAPair),
        ),
        Control("a finish at a point made of sums", _case("newton", less), mistaken=with_laws(less, FromExactSums)),
        Control(
            "a ratio without the scale", _case("newton", scaled, targets=OUTLYING), runs=4_000,
            mistaken=with_laws(scaled, ScaleIsFree),
        ),
    ]  # fmt: skip
