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
    boosting = "boosting"
    kmeans = "kmeans"


class Solver(StrEnum):
    """How a linear model is fitted."""

    auto = "auto"
    newton = "newton"
    dual_averaging = "dual_averaging"


KINDS = "|".join(Kind)
MANY_CLASSES = 1_000
"""With so many, or more, the solver is the same."""
SOLVERS = "|".join(Solver)
_LINEAR = {
    Kind.logistic: "LogisticRegression", Kind.svm: "LinearSVC", Kind.huber: "HuberRegressor",
    Kind.poisson: "PoissonRegressor", Kind.linear: "LinearRegression",
}  # fmt: skip
OF_THEIR_OWN = (Kind.ridge, Kind.boosting, Kind.kmeans)
"""Models with a solver of their own."""
CLASSIFIERS, REGRESSORS = (Kind.logistic, Kind.svm), (Kind.huber, Kind.poisson, Kind.linear, Kind.ridge)


def new_model(
    kind: Kind,
    schema: Schema | None = None,
    *,
    rho: Any = "auto",
    clusters: int | None = None,
    alpha: float | None = None,
    solver: Solver = Solver.auto,
    C: float | None = None,
    records_per_subject: int = 1,
    expected_records: int | None = None,
    features: int = 1,
    classes: int = 2,
) -> Any:
    """Return an unfitted model of a kind, with what the schema declares; without one for ``features`` and ``classes``.

    Parameters of solvers go into an object: ``alpha`` is dual averaging's.
    """
    import expunge
    from expunge.solvers import DualAveraging

    target: Any = None if schema is None else schema.target
    if schema is not None:
        _check_target(kind, target)
    if solver is not Solver.auto and kind in OF_THEIR_OWN:
        raise BadPlan(f"--solver {solver}: {kind} has a solver of its own; leave it out.")
    if C is not None and kind in OF_THEIR_OWN:
        raise BadPlan(f"--C: it goes with --solver newton, and {kind} has a solver of its own; leave it out.")
    if clusters is not None and kind is not Kind.kmeans:
        raise BadPlan(f"--clusters: {kind} has no clusters; leave it out, or give --model kmeans.")
    if kind is Kind.ridge:
        if rho != "auto":
            raise BadPlan("--rho: ridge has no noise and never replays; leave it out.")
        return expunge.Ridge(**_given(alpha=alpha), **_ridge_bounds(schema))
    from expunge.base.checking import check_positive

    check_positive("records_per_subject", records_per_subject, whole=True)
    common: dict[str, Any] = {"rho": rho, "expected_records": expected_records}
    if kind is Kind.kmeans:
        if alpha is not None:
            raise BadPlan("--alpha: k-means has no penalty; leave it out.")
        return expunge.KMeans(8 if clusters is None else clusters, **common)
    if kind is Kind.boosting:
        return _boosting(target, alpha, common)
    model = getattr(expunge, _LINEAR[kind])(**common, **_given(C=C))
    inner = {**_given(alpha=alpha), "records_per_subject": records_per_subject}
    if kind in CLASSIFIERS and target is not None:
        model.classes = list(target.values)
    elif target is not None and target.low is not None:
        inner["target_range"] = (target.low, target.high)
    width, sparse = (features, False) if schema is None else (schema.width, schema.sparse)
    told = range(min(max(classes, 2), MANY_CLASSES))  # a number that cannot be is refused by what makes use of it
    made = _with_solver(model, kind, solver, C, inner, width, sparse, told)
    if schema is not None and made.solver == DualAveraging(**inner):
        _need_ranges(schema, "dual averaging")
    return made


def _boosting(target: Any, alpha: float | None, common: dict[str, Any]) -> Any:
    """Return boosted trees for the schema's target; without a schema, for classes."""
    import expunge
    from expunge.tables.schema import Amount

    if alpha is not None:
        raise BadPlan("--alpha: boosting has no penalty; leave it out.")
    if isinstance(target, Amount):
        return expunge.GradientBoostingRegressor(**common)
    return expunge.GradientBoostingClassifier(classes=None if target is None else list(target.values), **common)


def _ridge_bounds(schema: Schema | None) -> dict[str, Any]:
    """Return the bounds of the numbers that a schema gives ranges."""
    bounds: dict[str, Any] = {} if schema is not None and schema.without_range else {"feature_bound": 1.0}
    target: Any = None if schema is None else schema.target
    if target is not None and target.low is not None:
        bounds["target_bound"] = max(abs(target.low), abs(target.high))
    return bounds


def _need_ranges(schema: Schema, why: str) -> None:
    """Raise if numbers have no range where one is needed."""
    from expunge.tables.schema import Amount

    lacking = [*schema.without_range]
    if isinstance(schema.target, Amount) and schema.target.low is None:
        lacking.append(schema.target.name)
    if lacking:
        named = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
        raise BadPlan(
            f"columns without a range: {named}. {why} needs low and high for every number and date. Declare them in "
            "the schema (`expunge schema --ranges` drafts them), or use --solver newton where it can be used."
        )


def _with_solver(
    model: Any, kind: Kind, solver: Solver, C: float | None, inner: dict[str, Any], features: int, sparse: bool,
    classes: range,
) -> Any:  # fmt: skip
    """Give a linear model its solver: the one that was asked for, or that suits its shape."""
    from expunge.solvers import DualAveraging, Newton

    if "alpha" in inner and (solver is Solver.newton or kind is Kind.poisson):
        raise BadPlan("--alpha: Newton's method has --C instead, which is 1/(n·alpha) for n records.")
    model.solver = str(Solver.dual_averaging if "alpha" in inner else solver)
    known = getattr(model, "classes", None)
    if not isinstance(model.solver_for(features, sparse=sparse, classes=classes if known is None else None), Newton):
        if C is not None:
            raise BadPlan(
                "--C: it goes with --solver newton, and this is dual averaging; use --alpha, which is 1/(n·C) for n "
                "records."
            )
        model.solver = DualAveraging(**inner)
    return model


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
            f"--model {kind}: the target {target.name!r} is a number, and {kind} predicts classes. Use "
            "huber, poisson, linear or ridge, or give its values = [...] in the schema."
        )
    if kind in REGRESSORS and not isinstance(target, Amount):
        raise BadPlan(
            f"--model {kind}: the target {target.name!r} has values = [...], and {kind} predicts numbers. Use logistic "
            "or svm, or take out its values in the schema."
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
