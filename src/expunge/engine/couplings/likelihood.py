"""The likelihood coupling: rounds that are draws are kept with the ratio of their densities.

Kept mass is min(q, q'), and what is due is (q' - q)⁺, which rejection draws: so the coupling is maximal and exact for
any law, on any lattice. Proof: docs/guarantee.md#likelihood.
"""

from __future__ import annotations

import math

import numpy as np

from expunge.base.types import Array
from expunge.engine.contributions import Total
from expunge.engine.couplings.common import OldPass, Verdict
from expunge.engine.laws import Law, Laws
from expunge.engine.randomness import Randomness

MOST_TRIES = 1024
"""How many draws are tried together, at most."""


def likelihood(old: OldPass, laws: Laws) -> Verdict:
    """Keep each draw, or draw what is due to the new law; from there on all later ones are drawn anew, without coins.

    All sums along the stored path are made before the first coin. A finish is no round: it draws nothing, and its new
    sum is kept whatever the coins say. Without one, a kept request leaves the model as it is: the last draw.
    """
    verdict = Verdict()
    if not old.touched:
        return verdict
    if old.finish is not None:
        verdict.sums[old.finish] = _changed(old, old.finish).sum
    after = _rounds(old)
    if after is None:
        return verdict
    before = old.sums[: old.rounds]
    for step in range(old.rounds):
        one, other = _laws(old, laws, step, before, after)
        chance = kept_share(one, other, old.iterates[step])
        verdict.probabilities.append(1.0 - chance)
        if not keeps_draw(chance, old.randomness):
            verdict.sums = dict(enumerate(after[:step]))
            verdict.first, verdict.known, verdict.drawn = step, after[step], due(one, other, old.randomness)
            return verdict
    verdict.sums.update(enumerate(after))
    return verdict


def _changed(old: OldPass, step: int) -> Total:
    """Return the new sum of a step along the stored path."""
    return old.edited.changed(step, old.path_to(step), old.sums[step])


def _rounds(old: OldPass) -> Array | None:
    """Return the new sums of all rounds along the stored path; None if nothing in them changes.

    All rounds have the same records: where the first has none of those that change, no other has.
    """
    if old.rounds == 0 or (first := _changed(old, 0)).evaluations == 0:
        return None
    return np.stack([first.sum, *(_changed(old, step).sum for step in range(1, old.rounds))])


def _laws(old: OldPass, laws: Laws, step: int, before: Array, after: Array) -> tuple[Law, Law]:
    """Return the law of a round along the stored path, before the request and after it."""
    path = old.path_to(step)
    one, other = laws.law(step, path, before[: step + 1]), laws.law(step, path, after[: step + 1])
    assert one is not None
    assert other is not None  # only the finish has none
    return one, other


def kept_share(one: Law, other: Law, drawn: Array) -> float:
    """Return how likely a draw from one law is to be kept as a draw from another: min(1, q'/q)."""
    if one.lattice != other.lattice:
        return 0.0
    ratio = float(other.log_density(drawn) - one.log_density(drawn))
    if math.isnan(ratio):  # a coin that knows nothing would keep
        raise ArithmeticError("likelihood: the densities of a draw cannot be compared; they are not numbers.")
    return math.exp(min(0.0, ratio))


def keeps_draw(chance: float, randomness: Randomness) -> bool:
    """Toss the coin; where it could only fall one way, none is tossed."""
    return chance == 1.0 or (chance > 0.0 and randomness.coins.random() < chance)


def due(one: Law, other: Law, randomness: Randomness) -> Array:
    """Draw from what is due to a law where another has given what they have in common: (q' - q)⁺, normalised.

    Drawn from q' until a coin of chance min(1, q/q') says no. On average over all requests that takes one try each;
    there is no limit to it, since a limit would be a bias.
    """
    number = 1
    while True:
        drawn = other.draw(randomness.noise, number)
        if one.lattice != other.lattice:
            return drawn[0]
        ratio = one.log_density(drawn) - other.log_density(drawn)
        found = np.flatnonzero(-randomness.coins.standard_exponential(number) > ratio)
        if len(found):
            return drawn[found[0]]
        number = min(2 * number, MOST_TRIES)


def chance_to_replay(old: OldPass, laws: Laws) -> float:
    """Return about how likely a request is to replay, over other draws than those that are kept."""
    after = _rounds(old) if old.touched else None
    if after is None:
        return 0.0
    before = old.sums[: old.rounds]
    kept = 1.0
    for step in range(old.rounds):
        one, other = _laws(old, laws, step, before, after)
        if one.lattice != other.lattice:
            return 1.0
        drawn = one.draw(old.draws, MOST_TRIES)
        kept *= float(np.exp(np.minimum(0.0, other.log_density(drawn) - one.log_density(drawn))).mean())
    return 1.0 - kept
