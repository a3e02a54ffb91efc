"""Models by the names that they have at the prompt, made from a schema; and models that are opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.base.errors import BadPlan, BadRecords

if TYPE_CHECKING:
    from expunge.models.file import ModelFile
    from expunge.tables.schema import Amount, Classes, Schema


class Kind(StrEnum):
    """What can be fitted."""

    logistic = "logistic"
    svm = "svm"
    huber = "huber"
    poisson = "poisson"
    linear = "linear"
    ridge = "ridge"
    kmeans = "kmeans"


class Solver(StrEnum):
    """How a linear model is fitted."""

    newton = "newton"
    dual_averaging = "dual_averaging"


KINDS = "|".join(Kind)
SOLVERS = "|".join(Solver)
CLASSIFIERS, REGRESSORS = (Kind.logistic, Kind.svm), (Kind.huber, Kind.poisson, Kind.linear, Kind.ridge)


def new_model(
    kind: Kind,
    schema: Schema | None = None,
    *,
    rho: Any = "auto",
    clusters: int | None = None,
    alpha: float | None = None,
    solver: Solver | None = None,
    C: float | None = None,
    records_per_subject: int = 1,
    expected_records: int | None = None,
) -> Any:
    """Return an unfitted model of a kind, with what the schema declares."""
    import expunge

    target: Any = None if schema is None else schema.target
    if schema is not None:
        _check_target(kind, target)
    common: dict[str, Any] = {"records_per_subject": records_per_subject, "expected_records": expected_records}
    newton = solver is Solver.newton or kind is Kind.poisson
    if newton and kind in (Kind.ridge, Kind.kmeans):
        raise BadPlan(f"--solver newton: {kind} has a solver of its own; leave it out.")
    if C is not None and not newton:
        raise BadPlan("--C: it goes with --solver newton; else use --alpha, which is 1/(n·C) for n records.")
    if alpha is not None and newton:
        raise BadPlan("--alpha: Newton's method has --C instead, which is 1/(n·alpha) for n records.")
    if clusters is not None and kind is not Kind.kmeans:
        raise BadPlan(f"--clusters: {kind} has no clusters; leave it out, or give --model kmeans.")
    if kind is Kind.ridge:
        if rho != "auto":
            raise BadPlan("--rho: ridge has no noise and never replays; leave it out.")
        bounds = {} if target is None else {"target_bound": max(abs(target.low), abs(target.high))}
        return expunge.Ridge(**_given(alpha=alpha), feature_bound=1.0, **bounds)
    if kind is Kind.kmeans:
        if alpha is not None:
            raise BadPlan("--alpha: k-means has no penalty; leave it out.")
        return expunge.KMeans(8 if clusters is None else clusters, rho=rho, expected_records=expected_records)
    common |= {"rho": rho, **_given(alpha=alpha, C=C)}
    if newton:
        del common["records_per_subject"]  # nothing depends on it: a subject may have any number
    if kind is Kind.poisson:
        return expunge.PoissonRegressor(**common)
    common |= {"solver": "newton"} if newton else {}
    if kind in CLASSIFIERS:
        made = expunge.LogisticRegression if kind is Kind.logistic else expunge.LinearSVC
        return made(classes=None if target is None else list(target.values), **common)
    regressor = expunge.HuberRegressor if kind is Kind.huber else expunge.LinearRegression
    return regressor(target_range=None if target is None or newton else (target.low, target.high), **common)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _check_target(kind: Kind, target: Classes | Amount | None) -> None:
    """Raise if a model cannot predict the schema's target."""
    from expunge.tables.schema import Amount, Classes

    if kind is Kind.kmeans:
        return
    if target is None:
        raise BadPlan(f'--model {kind}: the schema has no target; declare a column with kind = "target".')
    if kind in CLASSIFIERS and not isinstance(target, Classes):
        raise BadPlan(
            f"--model {kind}: the target {target.name!r} is a number (low, high), and {kind} predicts classes. Use "
            "huber, poisson, linear or ridge, or give its values = [...] in the schema."
        )
    if kind in REGRESSORS and not isinstance(target, Amount):
        raise BadPlan(
            f"--model {kind}: the target {target.name!r} has values = [...], and {kind} predicts numbers. Use logistic "
            "or svm, or give its low and high in the schema."
        )


@contextmanager
def opened(path: Path, **how: Any) -> Iterator[Any]:
    """Open the file of a model for the time being, and make the estimator: to predict, or to insert."""
    import expunge

    with expunge.open(path, **how) as model:
        yield model


@contextmanager
def held(path: Path, **how: Any) -> Iterator[ModelFile]:
    """Open the file of a model for the time being, without the estimator, which takes longer than most commands."""
    from expunge.models.file import open_file

    with open_file(path, **how) as model:
        yield model


def schema_of(model: Any, path: Path) -> Schema:
    """Return the schema that is kept with a model."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        raise BadRecords(
            f"{path}: this model was made in Python, without a schema, so tables cannot be encoded for it here. Use it "
            "in Python, or fit it with `expunge fit --schema`."
        )
    found: Schema = schema
    return found


def has_target(model: Any) -> bool:
    """Say whether a model predicts a target."""
    return "y" in model.COLUMNS
