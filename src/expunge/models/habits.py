"""Habits from scikit-learn: parameters that these models do not have, and what to use instead."""

from __future__ import annotations

from typing import Any

from expunge.solvers.objects import SOLVERS, flat_instead

SCALING = "Scale columns first, by public ranges: expunge.models.preprocessing.BoundedScaler"
PENALTY = (
    "Use C, the weight of the loss beside an L2 penalty, or alpha of other solvers than Newton; "
    "solver=expunge.solvers.FrankWolfe(domain='l1') gives sparse models"
)
OF_SOLVERS = {name: flat_instead for kind in SOLVERS for name in kind.parameters()}
"""What is a parameter of a solver, and was one of the estimator once."""
STEPS = (
    "Leave it out: Newton's method needs none. Of other solvers use steps (of one epoch, or rounds of gradient "
    "descent) and epochs: solver=expunge.solvers.DualAveraging(...)"
)
FIXED = "Leave it out: the length of training is fixed before the records are read"

ANYWHERE: dict[str, Any] = {
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
    **OF_SOLVERS,
    "average": "Use solver=expunge.solvers.DualAveraging(selector='average'); 'tail' is the mean of the last half",
    "batch_size": "Use solver=expunge.solvers.DualAveraging(batch=...)",
    "class_weight": "Give it to the constructor of a classifier",
    "classes": "Give it to the classifier's constructor, or to the first partial_fit",
    "coef_init": "Leave it out: training begins at 0",
    "dual": "Leave it out: solver says how to fit",
    "eta0": "Use solver=expunge.solvers.DualAveraging(step_size=...)",
    "gamma": "Models are linear; sklearn.kernel_approximation.RBFSampler(gamma=...) before them makes a kernel",
    "intercept_init": "Leave it out: training begins at 0",
    "intercept_scaling": "Leave it out: the intercept is not penalised",
    "kernel": "Models are linear; sklearn.kernel_approximation.RBFSampler(gamma=...) before them makes a kernel",
    "l1_ratio": PENALTY,
    "lambda_": PENALTY,
    "learning_rate": "Use solver=expunge.solvers.DualAveraging(step_size=...)",
    "loss": (
        "Each model has its own loss; for another, derive a class: docs/estimators.md#your-own-convex-loss-in-ten-lines"
    ),
    "max_iter": STEPS,
    "multi_class": "Leave it out: more than two classes have one loss for all",
    "n_epochs": "Use solver=expunge.solvers.DualAveraging(epochs=...)",
    "n_iter": STEPS,
    "penalty": PENALTY,
    "probability": "Leave it out: LogisticRegression has predict_proba",
    "shuffle": "Use solver=expunge.solvers.DualAveraging(schedule=...): 'scattered', 'shuffled' or 'arrival'",
    "target_bound": "Use solver=expunge.solvers.DualAveraging(target_range=...); Newton needs none",
}

CLASSIFIER = {
    **LINEAR,
    "sample_weight": "Records have no weights; classes can have them, by class_weight={class: weight}",
}

HUBER = {
    **LINEAR,
    "alpha": "Use C = 1/alpha",
}

COUNTS = {
    **LINEAR,
    "alpha": "Use C = 1/(n·alpha) for n records",
    "target_range": "Leave it out: counts are taken as they are",
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

OF_ALL_TREES = "The sample is public in size alone: use rho, the share of the records that trees are found in"
BOOSTING = {
    **ANYWHERE,
    "class_weight": "Leave it out: each record counts once",
    "l2_regularization": "Use smoothing: as how many records the values that the sample gives count",
    "loss": "Leave it out: classes have the log-loss, amounts the squared one",
    "max_depth": "Use max_leaf_nodes",
    "n_estimators": "Use max_iter",
    "num_leaves": "Use max_leaf_nodes",
    "subsample": OF_ALL_TREES,
}

SAMPLED = {
    **ANYWHERE,
    "alpha": "Use C = 1/alpha, the weight of the loss beside an L2 penalty",
    "class_weight": "Leave it out: each record counts once",
    "estimator": "Give the transformer as structure, and say by head what is made of its features",
    "n_components": "Give it to the structure: structure=PCA(n_components=...), and columns= if it is not their number",
    "subsample": "Use rho, the share of the records that the structure is fitted on",
    "transformer": "Give it as structure",
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
