"""Forecasting a model: its plan, what follows from it, and how long things will take on this machine."""

from __future__ import annotations

import math
import tempfile
import warnings
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import erf, ndtri
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from expunge.audit.forecast.advising import advise
from expunge.audit.forecast.calibration import Calibration, Costs, calibrate
from expunge.audit.forecast.facts import Forecast, Paper, Times
from expunge.audit.forecast.problems import Kind
from expunge.base.checking import check_positive, check_rho
from expunge.base.errors import BadPlan
from expunge.base.progress import progress_bars
from expunge.engine.accounting import Expected, paper_sigma
from expunge.engine.records.pools import PAGE
from expunge.models import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HuberRegressor,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from expunge.models.linear import LinearModel
from expunge.solvers.plans.protocol import ModelPlan

KNOWN = (
    GradientBoostingClassifier, GradientBoostingRegressor, HuberRegressor, KMeans, LinearRegression, LinearSVC,
    LogisticRegression, PoissonRegressor, Ridge,
)  # fmt: skip
MOST_RECORDS = 2**50
MOST_FEATURES = 2**20
MOST_CLASSES = 2**12
MOST_STEPS = 2**20
FILE_SHARE, FILE_ROW = 1.04, 32
"""The size of a record in a file: a factor on its bytes, and additional bytes for the index of ids."""


def forecast(
    model: Any,
    records: int,
    features: int,
    *,
    classes: int = 2,
    seconds: float = 1.0,
    bits: Literal[32, 64] = 64,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Forecast:
    """Estimate what fitting ``model`` to a table of this shape will be like; it need not be fitted.

    Nothing of that size is made. The plan is the one that a fit would make; a classifier without declared classes gets
    ``classes`` many, a regression without a ``target_range`` that from 0 to 1. Times are estimated from small problems
    of the same kind, with random dense rows, measured for about ``seconds``, on one idle core. ``bits`` are those of a
    feature in a file; ``folder`` is where the file would be, since disks differ (by default the folder of temporary
    files).

    >>> from expunge import LogisticRegression
    >>> found = forecast(LogisticRegression(rho=0.05, solver="dual_averaging"), 2_000_000, 120, seconds=0.05)
    >>> found.plan.records, found.plan.steps, round(found.sigma, 1), round(found.worst_case, 6)
    (2097152, 2048, 15.2, 0.05)
    """
    if not any(type(model) is known for known in KNOWN):
        names = ", ".join(known.__name__ for known in KNOWN)
        raise BadPlan(f"model: expected one of {names}, got {type(model).__name__}.")
    records = _whole("records", records, MOST_RECORDS)
    features = _whole("features", features, MOST_FEATURES)
    check_positive("seconds", seconds)
    if bits not in (32, 64):
        raise BadPlan(f"bits={bits!r}: give 32 or 64.")
    model = _declared(model, features, classes)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        plan = _planned(model, records, features)
        silent = automatic = plan
        if plan.rho > 0.0:
            silent = _planned(clone(model).set_params(rho=1.0), records, features)
            automatic = _planned(clone(model).set_params(rho="auto"), records, features)
        kind = Kind(model, plan, plan.size_for(records), features)
        measured = _calibrated(kind, seconds, folder, bits, progress)
    return _found(kind, silent, automatic, measured, bits)


# --- what is asked ------------------------------------------------------------------------------------


def _whole(name: str, value: Any, most: int, least: int = 1) -> int:
    """Return a whole number, also if it is written like 2e6."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value != int(value) or value < least:
        raise BadPlan(f"{name}={value!r}: give a whole number of at least {least}.")
    if value > most:
        raise BadPlan(f"{name}={value!r}: more than {most:,} cannot be forecast; give fewer.")
    return int(value)


def _declared(model: Any, features: int, classes: Any) -> Any:
    """Return a model that has declared its solver, and what a fit would read from the targets."""
    model = clone(model)
    if getattr(model, "classes", ()) is None:
        if getattr(model, "class_weight", None) is not None:
            raise BadPlan("class_weight: declare classes= as well, so that it is known which they are.")
        model.classes = np.arange(_whole("classes", classes, MOST_CLASSES, least=2))
    if isinstance(model, LinearModel):
        model.solver = model.solver_for(features)
        if getattr(model.solver, "target_range", ()) is None:
            model.set_params(solver__target_range=(0.0, 1.0))
    steps = 1.0
    for name in ("steps", "epochs", "n_rounds"):
        given = getattr(model, name, getattr(getattr(model, "solver", None), name, None))
        steps *= given if isinstance(given, (int, float)) else 1
        if steps > MOST_STEPS:
            raise BadPlan(f"{name}={given!r}: more than {MOST_STEPS:,} steps cannot be forecast; give fewer.")
    return model


def _planned(model: Any, records: int, features: int) -> ModelPlan:
    """Return the plan that a fit would make, or say why there would be none."""
    if not isinstance(model, Ridge):
        check_rho(model.rho)
    if isinstance(model, KMeans):
        check_positive("n_clusters", model.n_clusters, whole=True)
        if max(records, model.expected_records or 0) < model.n_clusters:
            raise BadPlan(f"records={records} is below n_clusters={model.n_clusters}: ask for fewer clusters.")
    model = clone(model)
    model._plan_fit(records, features, getattr(model, "classes", None))
    plan: ModelPlan = model.plan_
    most = plan.exact_to
    if most is not None and records > most:
        raise BadPlan(
            f"records={records}: this model can sum up to {most:,} exactly. Give fewer, or use another model."
        )
    return plan


def _calibrated(kind: Kind, seconds: float, folder: Any, bits: int, progress: bool | None) -> Calibration:
    try:
        with progress_bars(progress) as show, tempfile.TemporaryDirectory(prefix="expunge-", dir=folder) as made:
            return calibrate(kind, seconds, Path(made), bits, lambda done: show("measuring", done, None))
    except OSError as error:
        raise BadPlan(f"folder={folder!r}: cannot be written to ({error}); give another folder.") from error


# --- what follows -------------------------------------------------------------------------------------


def _found(kind: Kind, silent: ModelPlan, automatic: ModelPlan, measured: Calibration, bits: int) -> Forecast:
    plan, records = kind.plan, kind.wanted.records
    worst = plan.worst_case()
    typical, quiet = _typical(plan, worst, measured), _typical(silent, silent.worst_case(), measured)
    beside = plan.transcript_bytes(kind.features, records)
    file_bytes = _file_bytes(plan, kind, bits) + beside

    def times(plan: ModelPlan, typical: Expected) -> tuple[Times, Times]:
        size, repeats = plan.size_for(records), _repeats(plan, kind)
        in_file = measured.in_file(size, repeats, plan.transcript_bytes(kind.features, records), file_bytes)
        return _times(measured.in_memory(size, repeats), typical), _times(in_file, typical)

    found = Forecast(
        type(kind.model).__name__, records, kind.features, plan, plan.rho, automatic.rho, plan.sigma, worst, typical,
        _memory_bytes(plan, kind.features, records) + beside, file_bytes, beside, *times(plan, typical),
        *times(silent, quiet), _paper(plan, records), (), max(point.size.records for point in measured.memory),
    )  # fmt: skip
    return replace(found, advice=advise(found))


def _typical(plan: ModelPlan, worst: float, measured: Calibration) -> Expected:
    """Return how many deletions replay, and how much, if contributions are like those that were measured.

    Each moves the noise by a share of what the least favourable does; the probability follows from the distance. Where
    ρ is the planned share of deletions that replay, it is that share; all of the training is then done again.
    """
    if plan.plans_share:
        share = 0.0 if plan.never_replays else plan.rho
        return Expected(share, share)
    moves, replayed = measured.typical
    farthest = ndtri((1.0 + worst) / 2.0) / math.sqrt(2.0)
    chances = worst * (moves > 0.0) if plan.sigma == 0.0 else erf(moves * farthest)
    passed = (1.0 - replayed) / _repeats(plan, measured.kind)
    return Expected(float(chances.mean()), float((chances * (1.0 - passed)).mean()))


def _repeats(plan: ModelPlan, kind: Kind) -> float:
    """Return how many times the epochs, or rounds, of small problems a plan has."""
    if kind.everyone:
        return plan.size_for(1).steps / kind.rounds
    return plan.epochs / kind.epochs


def _times(costs: Costs, typical: Expected) -> Times:
    """Return what deletions cost if this share replays."""
    probability, fraction = typical
    share = fraction / probability if probability else 0.0
    return Times(costs.fit, costs.kept, costs.kept + share * costs.replay, costs.kept + fraction * costs.replay)


PLACE_BYTES = 56
"""How much a place takes in each column, in addition to its records: half a boundary, and its position."""


def _memory_bytes(plan: ModelPlan, features: int, records: int) -> int:
    index, rows = 16 * 2 ** (2 * records).bit_length(), records * plan.row_bytes(features, 64)
    if plan.everyone:
        return rows + index
    places, columns = plan.size_for(records).steps, 3
    to_spare = places * columns * PLACE_BYTES + min(rows // 4, columns * PAGE // 2)  # the last pages are half empty
    return rows + index + to_spare


def _file_bytes(plan: ModelPlan, kind: Kind, bits: int) -> int:
    return round(kind.wanted.records * (FILE_SHARE * plan.row_bytes(kind.features, bits) + FILE_ROW))


def _paper(plan: ModelPlan, records: int) -> Paper | None:
    """Return the paper's figures; there a deleted record is replaced by another, so that it counts twice."""
    if plan.never_replays or plan.plans_share:  # the paper has no draws
        return None
    bound = 2.0 * plan.bound * plan.records_per_subject
    if plan.everyone:
        sigma, replays = 8.0 * bound / plan.rho, plan.rho * math.sqrt(plan.size_for(records).steps)
        source = (
            "linear queries (its appendix B): σ = 8B/ρ for a sum, which leaves out that there are T rounds; relative "
            "unlearning complexity O(ρ√T), taken as ρ√T"
        )
    else:
        sigma, replays = paper_sigma(plan.rho, max(2, records), bound), plan.rho * math.log2(max(2, records))
        source = (
            "prefix-sum queries: σ = 8B·ln(n)/ρ, as its proofs have it; the probability of retraining is at most "
            "ρ·log n, the height of its tree, log₂ n"
        )
    ratio = sigma / plan.sigma if plan.sigma else None
    return Paper(sigma, ratio, min(1.0, replays), source)
