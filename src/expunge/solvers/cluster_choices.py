"""How k-means is solved: small objects that users pass as ``solver``, which take part in grid search as parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from expunge.base.errors import UnknownParameter
from expunge.solvers.keyed_sample import BOUND, GROUPS


class Parameters:
    """Parameters that can be asked for, set, compared and shown, as scikit-learn does it, without scikit-learn."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name."""
        known: Any = self
        return {one.name: getattr(self, one.name) for one in fields(known)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; return the object itself."""
        known = self.get_params()
        for name in params:
            if name not in known:
                names = ", ".join(known)
                raise UnknownParameter(f"{name}: {type(self).__name__} has no such parameter. There are {names}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Show what is not as by default."""
        default = type(self)().get_params()
        said = [f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != repr(default[name])]
        return f"{type(self).__name__}({', '.join(said)})"


@dataclass(kw_only=True, repr=False, eq=False)
class KeyedSample(Parameters):
    """k-means from a keyed sample, and exact sums over cells: no noise, no declared region.

    Numbers are at most ``bound``, and exact to 2⁻⁸⁰ of it. There are at most ``seeds`` seeds, up to 256: the more, the
    finer the cells. (docs/clustering.md)

    >>> KeyedSample(seeds=64).get_params()
    {'bound': 1099511627776.0, 'seeds': 64}
    """

    bound: float = BOUND
    seeds: int = GROUPS


@dataclass(kw_only=True, repr=False, eq=False)
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
