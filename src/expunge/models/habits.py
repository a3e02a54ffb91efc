"""Habits from scikit-learn: parameters that these models do not have, and what to use instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from expunge.base.errors import UnknownParameter

Method = TypeVar("Method", bound=Callable[..., Any])

SCALING = "Scale columns first, by public ranges: expunge.models.preprocessing.BoundedScaler"
PENALTY = "Use alpha, the weight of an L2 penalty (0: none); solver='frank_wolfe' with domain='l1' gives sparse models"
FIXED = "Leave it out: the length of training is fixed before the records are read"

ANYWHERE = {
    "copy_X": "Leave it out: records are always copied",
    "copy_x": "Leave it out: records are always copied",
    "early_stopping": FIXED,
    "n_iter_no_change": FIXED,
    "n_jobs": "Leave it out: OMP_NUM_THREADS sets the number of threads for linear algebra",
    "normalize": SCALING,
    "positive": "Leave it out: the signs of coefficients cannot be constrained",
    "sample_weight": "Records have no weights: each counts once",
    "tol": FIXED,
    "validation_fraction": FIXED,
    "verbose": "Leave it out: nothing is printed",
    "warm_start": "Use insert() or partial_fit(): they continue with the current records",
}
"""What to use instead, by the name that a user may know."""

LINEAR = {
    **ANYWHERE,
    "average": "Use selector='average'; the default, 'tail', is the mean of the last half of the iterates",
    "batch_size": "Use batch",
    "class_weight": "Give it to the constructor of a classifier",
    "classes": "Give it to the classifier's constructor, or to the first partial_fit",
    "coef_init": "Leave it out: training begins at 0",
    "dual": "Leave it out: there is only one solver",
    "eta0": "Use step_size",
    "gamma": "Models are linear; sklearn.kernel_approximation.RBFSampler(gamma=...) before them makes a kernel",
    "intercept_init": "Leave it out: training begins at 0",
    "intercept_scaling": "Leave it out: the intercept's column is 0.2·feature_norm",
    "kernel": "Models are linear; sklearn.kernel_approximation.RBFSampler(gamma=...) before them makes a kernel",
    "l1_ratio": PENALTY,
    "lambda_": PENALTY,
    "learning_rate": "Use step_size",
    "loss": (
        "Each model has its own loss; for another, derive a class: docs/estimators.md#your-own-convex-loss-in-ten-lines"
    ),
    "max_iter": "Use steps (of one epoch, or rounds of gradient descent) and epochs",
    "multi_class": "Leave it out: more than two classes have one loss for all",
    "n_epochs": "Use epochs",
    "n_iter": "Use steps (of one epoch, or rounds of gradient descent) and epochs",
    "penalty": PENALTY,
    "probability": "Leave it out: LogisticRegression has predict_proba",
    "shuffle": "Use schedule: 'scattered' (the default), 'shuffled' or 'arrival'",
    "target_bound": "Use target_range",
}

CLASSIFIER = {
    **LINEAR,
    "sample_weight": "Records have no weights; classes can have them, by class_weight={class: weight}",
}

OF_LLOYD = "Noisy sums in a declared region are a solver: solver=expunge.solvers.Lloyd({}=...)"

CLUSTERS = {
    **ANYWHERE,
    "algorithm": "Use solver: 'keyed_sample', or expunge.solvers.Lloyd(radius=...)",
    "batch_size": "Leave it out: every record counts in the sums",
    "epochs": "Leave it out: k-means of the cells' means runs until it has settled",
    "feature_norm": "Leave it out: no region is declared",
    "init": "Leave it out: starts are the sample's, never all records'",
    "max_iter": "Leave it out: k-means of the cells' means runs until it has settled",
    "n_init": "Leave it out: ten starts are tried on the cells' means, and the sample's own centres",
    "steps": "Leave it out: k-means of the cells' means runs until it has settled",
    **{
        name: OF_LLOYD.format(name)
        for name in ("radius", "low", "high", "n_rounds", "n_seeds", "coupling", "records_per_subject")
    },
}

RIDGE = {
    **ANYWHERE,
    "C": "Use alpha = 1/C",
    "feature_norm": "Use feature_bound, the largest absolute value of a feature",
    "max_iter": "Leave it out: it is solved at once",
    "random_state": "Leave it out: nothing in it is random",
    "rho": "Leave it out: there is no noise, and no deletion replays",
    "solver": "Leave it out: it is solved by a Cholesky factor of exact sums",
    "target_range": "Use target_bound, the largest absolute value of a target",
    "tol": "Leave it out: it is solved at once",
}


def unknown(model: Any, of: str, name: str, known: list[str]) -> UnknownParameter:
    """Return the error for a name that a model, or one of its methods, does not have."""
    instead = model.INSTEAD.get(name)
    if instead is None:
        near = get_close_matches(name, known, 1)
        instead = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
    else:
        instead = f"{instead}."
    return UnknownParameter(f"{name}: {of} has no such parameter. {instead}")


def guided(method: Method) -> Method:
    """Let a method say what to use instead of a keyword that it does not have, and which parameters need a name."""
    parameters = [one for name, one in inspect.signature(method).parameters.items() if name != "self"]
    known = [one.name for one in parameters]
    placed = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]

    @wraps(method)
    def asked(self: Any, *args: Any, **given: Any) -> Any:
        kind = type(self).__name__
        of = kind if method.__name__ == "__init__" else f"{kind}.{method.__name__}"
        for name in given:
            if name not in known:
                raise unknown(self, of, name, known)
        if len(args) > len(placed):
            without = f"only {', '.join(placed)} without a name" if placed else "no parameter without its name"
            others = [f"{name}=..." for name in known if name not in placed]
            remedy = f" Give by name: {', '.join(others)}." if others else ""
            raise UnknownParameter(f"{of} takes {without}.{remedy}")
        return method(self, *args, **given)

    return cast(Method, asked)
