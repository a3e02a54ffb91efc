"""How k-means is solved: small objects that users pass as ``solver``, which take part in grid search as parameters."""

from __future__ import annotations

from typing import Any

from expunge.solvers.keyed_sample import BOUND, GROUPS
from expunge.solvers.objects import Parameters, solver


@solver("keyed_sample")
class KeyedSample(Parameters):
    """k-means from a keyed sample, and exact sums over cells: no noise, no declared region.

    Numbers are at most ``bound``, and exact to 2⁻⁸⁰ of it. There are at most ``seeds`` seeds, up to 256: the more, the
    finer the cells. (docs/clustering.md)

    >>> KeyedSample(seeds=64).get_params()
    {'bound': 1099511627776.0, 'seeds': 64}
    """

    bound: float = BOUND
    seeds: int = GROUPS


@solver("lloyd")
class Lloyd(Parameters):
    """Lloyd's algorithm with noisy sums and counts, in a declared region: a kept deletion leaves the centres alone.

    Declare the region of the points, from public knowledge: ``radius`` (around 0), or ``low`` and ``high``, a number or
    one for each column. Points outside count as the nearest point inside, with a warning. The smaller the region, the
    less noise. First ``n_seeds`` centres, spread without looking at the points, explore the region; they are merged to
    as many as there are clusters, which the last of ``n_rounds`` refine.

    >>> Lloyd(radius=2.0).set_params(n_rounds=4)
    Lloyd(radius=2.0, n_rounds=4)
    """

    radius: Any = None
    low: Any = None
    high: Any = None
    n_rounds: int | None = None
    n_seeds: int | None = None
    coupling: str = "adaptive"
    records_per_subject: int = 1


CHOICES: tuple[type, ...] = (KeyedSample, Lloyd)
"""All that a file may name."""
