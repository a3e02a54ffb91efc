"""The plan of federated averaging, and what a client contributes to a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from expunge.base.checking import check_one_of, check_positive, check_rho
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.grid import grid_unit, on_grid
from expunge.base.types import AnyArray, Array
from expunge.engine.accounting import least_rho, noise_for, rounding_error
from expunge.engine.couplings.common import replay_probability
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.parts import PartThenEveryone
from expunge.engine.schedules import Everyone
from expunge.solvers.averaging import BITS, ClientUpdate, FederatedAverage
from expunge.solvers.plans.sized import rounded_up

FederatedSelector = Literal["last", "tail", "average"]
Finish = Literal["exact"]
SAMPLED = 64
"""How many clients the rounds before an exact last one see, if the user does not say (docs/federated.md)."""
WORTH = 10.0
"""If ρ·n is this many times √parameters, noise costs hardly any accuracy (docs/federated.md)."""


class ArrayType(NamedTuple):
    """What one array of a model is like."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class FederatedPlan:
    """Everything that is fixed before the clients take part.

    ``clients`` is the number that was planned for, a power of two; ``weight`` what stands beside an update to count
    it; ``sigma`` the standard deviation of the noise; ``arrays`` what the arrays of the model are like; ``config`` what
    clients are told with every task. With ``finish`` there is no noise: a keyed sample of ``rho`` takes part in all
    rounds but the last, and everyone in that.
    """

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ()
    LATER: ClassVar[tuple[str, ...]] = ("finish",)
    """Fields that earlier versions did not have: where they are None they are not written."""

    rounds: int
    rate: float
    clip: float
    rho: float
    sigma: float
    weight: float
    bits: int
    selector: FederatedSelector
    clients: int
    arrays: tuple[tuple[str, tuple[int, ...], str], ...]
    config: tuple[tuple[str, Any], ...] = ()
    finish: Finish | None = None

    @property
    def types(self) -> list[ArrayType]:
        """What the arrays of the model are like."""
        return [ArrayType(*one) for one in self.arrays]

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return sum(one.size for one in self.types)

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.parameters + 1

    def arrays_of(self, vector: Array) -> dict[str, AnyArray]:
        """Return the numbers of a model as its arrays, by name."""
        found, first = {}, 0
        for one in self.types:
            found[one.name] = vector[first : first + one.size].reshape(one.shape).astype(one.dtype)
            first += one.size
        return found

    def vector_of(self, arrays: Mapping[str, AnyArray]) -> Array:
        """Return the arrays of a model as one vector of numbers; raise if they are not those of the plan."""
        wanted = {one.name: one.shape for one in self.types}
        given = {name: np.shape(array) for name, array in arrays.items()}
        if given != wanted:
            raise BadRecords(f"arrays: expected {_listed(wanted)}, got {_listed(given)}.")
        if not all(np.issubdtype(array.dtype, np.floating) for array in arrays.values()):
            raise BadRecords("arrays: expected floating-point numbers; do not average arrays of other types.")
        return np.concatenate([np.asarray(arrays[one.name], dtype=float).ravel() for one in self.types])

    @property
    def worth(self) -> float:
        """ρ·clients/√parameters: at 10 noise hardly costs accuracy, below 4 it costs much; infinity without noise."""
        if self.sigma == 0.0:
            return math.inf
        return self.rho * self.clients * self.rate / math.sqrt(self.parameters)

    @cached_property
    def query(self) -> ClientUpdate:
        """What a client contributes."""
        return ClientUpdate(self.parameters, self.clip, self.weight, self.bits)

    @property
    def schedule(self) -> Everyone:
        """Who takes part in which round."""
        if self.finish is None:
            return Everyone(self.rounds, self.rate, self.bits)
        return PartThenEveryone(self.rounds, self.rho, self.bits)

    @property
    def rounding_error(self) -> float:
        """By how much, at most, arithmetic changes the law of what is stored, in total variation, at a request."""
        return rounding_error(self.rounds, self.query.size) if self.sigma > 0.0 else 0.0

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""
        if self.finish is not None and (self.sigma != 0.0 or self.rate != 1.0):
            return "finish: an exact last round goes with neither noise nor a rate"
        return None

    def learner(self, start: Array) -> Learner:
        """Return what the engine runs, from a first model on."""
        rule = FederatedAverage(start, self.weight, self.clip)
        return Learner(self.schedule, self.query, rule, Identity(), self.sigma, "sequential", self.selector)

    @property
    def stability(self) -> float:
        """The total variation between all that is kept with and without a client that takes part in every round.

        No way of unlearning could replay less often. Deciding round by round replays more often, with ``rho``. Without
        noise it is 1.
        """
        if self.sigma == 0.0:
            return 1.0
        return replay_probability(math.sqrt(self.rounds) * self.query.bound / self.sigma)


def plan_federation(
    arrays: Sequence[ArrayType],
    *,
    clients: int,
    rounds: int,
    clip: float,
    rho: float | Literal["auto"] = "auto",
    rate: float = 1.0,
    selector: FederatedSelector = "last",
    finish: Finish | None = "exact",
    bits: int = BITS,
    config: Mapping[str, Any] | None = None,
) -> FederatedPlan:
    """Fix everything for a model of these arrays and about this many clients.

    ``clip`` is the largest norm that a client's update counts with. With ``finish="exact"`` a keyed sample of the
    clients, ``rho`` of them, takes part in all rounds but the last, and everyone in that; there is no noise, and others
    repeat rounds if one of the sample leaves. With ``finish=None`` all rounds have noise, so much that ``rho`` is the
    largest probability with which a client that leaves makes the others repeat rounds (1 means no noise), and ``rate``
    is the probability with which a client takes part in a round. ``config`` is what clients are told with every task:
    numbers, texts, and lists of them.

    >>> model = [ArrayType("w", (10,), "<f8")]
    >>> plan = plan_federation(model, clients=500, rounds=4, clip=1.0)
    >>> plan.clients, plan.rho, plan.sigma
    (512, 0.125, 0.0)
    >>> plan = plan_federation(model, clients=500, rounds=4, clip=1.0, rho=0.2, finish=None)
    >>> plan.clients, round(plan.sigma, 2), round(plan.stability, 3)
    (512, 8.43, 0.108)
    """
    check_positive("rounds", rounds, whole=True)
    check_positive("clip", clip)
    if not 1e-100 < clip < 1e100:
        raise BadPlan(f"clip={clip!r}: squares of such numbers overflow or vanish; measure updates in another unit.")
    check_rho(rho)
    check_one_of("selector", selector, FederatedSelector)
    check_positive("clients", clients, whole=True, zero=True)
    _check_bits(bits)
    schedule = Everyone(rounds, rate, bits)
    _check_finish(finish, rate)
    arrays = _checked(arrays)
    parameters = sum(one.size for one in arrays)
    if parameters == 0:
        raise BadPlan("arrays: the model has no numbers; give at least one array.")
    weight = clip / parameters**0.25  # where the noise of sum and count together costs least
    weight = float(on_grid(np.array(weight), grid_unit(math.hypot(clip, weight), bits)))
    if weight == 0.0:
        raise BadPlan(f"bits={bits}: too few to count clients beside {parameters} numbers; give more.")
    planned = rounded_up(clients)
    if finish is None:
        chosen, sigma = _noise(rho, schedule, planned, parameters, math.hypot(clip, weight))
    else:
        chosen, sigma = min(1.0, SAMPLED / max(planned, 1)) if rho == "auto" else float(rho), 0.0
    return FederatedPlan(
        rounds, float(rate), float(clip), chosen, sigma, weight, bits, selector, planned,
        tuple((one.name, one.shape, one.dtype) for one in arrays), as_config(config or {}), finish,
    )  # fmt: skip


def _noise(
    rho: float | Literal["auto"], schedule: Everyone, clients: int, parameters: int, bound: float
) -> tuple[float, float]:
    """Return ρ, and the standard deviation of the noise, where all rounds have some."""
    least = least_rho(schedule, Identity(), size=parameters + 1, coupling="sequential")
    chosen = min(1.0, max(least, WORTH * math.sqrt(parameters) / clients)) if rho == "auto" else float(rho)
    return chosen, noise_for(chosen, schedule, Identity(), bound=bound, coupling="sequential", size=parameters + 1)


def _check_finish(finish: Any, rate: float) -> None:
    if finish is not None:
        check_one_of("finish", finish, Finish)
        if rate != 1.0:
            raise BadPlan(
                f"rate={rate!r}: with finish='exact' rho says how many clients take part in the rounds before the "
                "last; leave rate out, or give finish=None."
            )


def as_config(config: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the clients' configuration in the form in which it is stored, or say what cannot be stored."""
    for name, value in config.items():
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(one, (bool, int, float, str)) and one == one for one in each):
            raise BadPlan(
                f"config: {name!r} is not a number, a text or a list of them, and cannot be stored in a plan."
            )
    kept = {str(name): list(value) if isinstance(value, list) else value for name, value in config.items()}
    return tuple(sorted(kept.items()))


def _checked(arrays: Sequence[ArrayType]) -> list[ArrayType]:
    """Return descriptions of arrays in the form in which they are kept, or say what is wrong with them."""
    found = []
    for given in arrays:
        try:
            name, shape, kind = given
            dtype = np.dtype(kind)
            sides = tuple([int(side) for side in shape])
        except (TypeError, ValueError) as error:
            raise BadPlan(f"arrays: {given!r} is not an ArrayType(name, shape, dtype) ({error}).") from error
        if not isinstance(name, str) or min(sides, default=0) < 0 or dtype.kind != "f" or dtype.itemsize > 8:
            raise BadPlan(f"arrays: {given!r}: expected a name, a shape and a floating-point type, such as '<f4'.")
        found.append(ArrayType(name, sides, dtype.newbyteorder("<").str))
    if len({one.name for one in found}) < len(found):
        raise BadPlan("arrays: duplicate name; give each array a different name.")
    return found


def array_types(arrays: Mapping[str, AnyArray]) -> list[ArrayType]:
    """Return what arrays are like; raise if they cannot be averaged."""
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise BadPlan(
                f"arrays: {name!r} is of type {array.dtype}; only floating-point numbers can be averaged. Remove "
                "counters and other integers."
            )
        if not np.isfinite(array).all():
            raise BadPlan(f"arrays: {name!r} has NaN or infinity; start from finite numbers.")
    return [ArrayType(name, array.shape, array.dtype.newbyteorder("<").str) for name, array in arrays.items()]


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name!r} of shape {shape}" for name, shape in list(shapes.items())[:5]) or "nothing"


def _check_bits(bits: Any) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= BITS:
        raise BadPlan(f"bits={bits!r}: give a whole number from 1 to {BITS}.")
