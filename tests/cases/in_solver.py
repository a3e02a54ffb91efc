"""Parameters of an estimator from a flat list of choices, as tests and benchmarks combine them."""

from __future__ import annotations

import copy
from typing import Any

from expunge.solvers.objects import BY_NAME, FLAT, Parameters, solver_of


def in_solver(**given: Any) -> dict[str, Any]:
    """Return an estimator's parameters: what is its solver's is in an object, of dual averaging if none is named."""
    inner = {name: value for name, value in given.items() if name in FLAT}
    outer = {name: value for name, value in given.items() if name not in FLAT}
    said = outer.get("solver", "dual_averaging")
    known = said in BY_NAME if isinstance(said, str) else isinstance(said, Parameters)
    return {**outer, "solver": copy.copy(solver_of(said)).set_params(**inner)} if known else outer
