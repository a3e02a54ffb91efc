"""Who was deleted? Candidates ranked by how well the digits of a state fit their having been there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.exactness.subjects import COMMON, GONE, OWN, Rankable, Seen, rows_of
from expunge.base.types import Array
from expunge.engine.bits import finest_digit, trailing_zeros

CANDIDATES = 20
UNLIKELY = 12.0
"""What digits that do not fit count for, in bits: sums of several numbers are rounded more than once."""
NONE, EACH = -0.36, 0.29
"""What the trailing zeros of noise count for, in bits: noise that is itself a sum has more of them than chance."""

Make = Callable[[Array, Array], Rankable]


def candidates(rng: np.random.Generator) -> Array:
    """Return records of which each differs from each other in one to three values; any may be the true one."""
    found = np.repeat(rows_of()[0][GONE][None], CANDIDATES, axis=0)
    places = rng.choice(COMMON + OWN, size=rng.integers(1, 4), replace=False)
    found[:, places] *= rng.uniform(0.8, 1.0, size=(CANDIDATES, len(places)))
    return found


def fit(sums: Array, answers: Array) -> Array:
    """Return, in bits, how much better the digits of answers fit these sums than by chance.

    Of all numbers that could be the noise, one must lead to the answer when it is added to the sum and rounded.
    """
    noise = answers - sums
    back = noise - answers
    missed = np.abs((answers - (noise - back)) - (sums + back))  # what the difference itself has lost by rounding
    of_answer, of_noise = finest_digit(answers), finest_digit(noise)
    room = of_noise - of_answer
    fits = np.where(missed <= np.ldexp(0.5, of_answer), room, -UNLIKELY)
    zeros = NONE + EACH * np.minimum(trailing_zeros(noise), 12)
    return np.where(room > 0, fits, 0.0) + np.where(room >= 0, zeros, 0.0)


def score(subject: Rankable, seen: Seen, row: Array, label: float, prefix: bool) -> float:
    """Return how well a state fits a record's having been there, wherever it lay."""
    shares = np.array([subject.contribution(step, seen, row, label) for step in range(len(seen.sums))])
    if not prefix:
        return float(fit(seen.sums + shares, seen.answers)[shares != 0.0].sum())
    found = []
    plain = fit(np.cumsum(seen.sums, axis=0), seen.answers)
    for step, share in enumerate(shares):
        sums = seen.sums.copy()
        sums[step] += share
        better = fit(np.cumsum(sums, axis=0), seen.answers) - plain
        found.append(better[step:, share != 0.0].sum())
    return float(np.logaddexp2.reduce(found))


def rank(make: Make, prefix: bool, rng: np.random.Generator) -> int:
    """Let one candidate be there and be deleted until that is kept; return its rank. Ties are broken by lot."""
    rows, labels = rows_of()
    guesses, true = candidates(rng), int(rng.integers(CANDIDATES))
    rows[GONE] = guesses[true]
    subject, kept = make(rows, labels), False
    while not kept:
        seen, kept = subject.deleted(rng)
    scores = np.array([score(subject, seen, row, float(labels[GONE]), prefix) for row in guesses])
    lots = rng.random(CANDIDATES)
    above = (scores > scores[true]) | ((scores == scores[true]) & (lots > lots[true]))
    return 1 + int(above.sum())
