"""One model of every kind, in every state that a user can have it in."""

import numpy as np

import expunge
from expunge.solvers import DualAveraging, Lloyd

X = np.random.default_rng(0).uniform(-0.4, 0.4, size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
NAMES = np.array([f"person-{number:04}" for number in range(60)])
KINDS = {
    "logistic": (expunge.LogisticRegression, {}),
    "svc": (expunge.LinearSVC, {}),
    "least squares": (expunge.LinearRegression, {}),
    "huber": (expunge.HuberRegressor, {"solver": DualAveraging(target_range=(0, 1))}),
    "ridge": (expunge.Ridge, {}),
    "kmeans": (expunge.KMeans, {"n_clusters": 2}),
    "noisy kmeans": (expunge.KMeans, {"n_clusters": 2, "solver": Lloyd(radius=1.0)}),
}
NAMED = {"numbered": {}, "ids": {"ids": NAMES}, "subjects": {"subjects": NAMES}}
STATES = ("not fitted", "in memory", "stored", "read-only", "closed")


def models(folder):
    """Yield (name, model): those that live in a file are closed when the next is asked for."""
    for kind, (make, given) in KINDS.items():
        yield f"{kind}, not fitted", make(**given)
        for named, keys in NAMED.items():
            model = make(**given).fit(X, Y, **keys)
            yield f"{kind}, {named}, in memory", model
            path = folder / f"{kind} {named}"
            model.save(path)
            for state in ("stored", "read-only", "closed"):
                with expunge.open(path, read_only=state != "stored") as stored:
                    if state == "closed":
                        stored.close()
                    yield f"{kind}, {named}, {state}", stored
