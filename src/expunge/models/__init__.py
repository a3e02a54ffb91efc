"""Estimators with the interface of scikit-learn, from which records can be deleted exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.models.boosting import GradientBoostingClassifier, GradientBoostingRegressor
    from expunge.models.classifiers import LinearClassifier, LinearSVC, LogisticRegression
    from expunge.models.kmeans import KMeans
    from expunge.models.opening import open
    from expunge.models.regressors import HuberRegressor, LinearRegression, LinearRegressor, PoissonRegressor
    from expunge.models.requests import insert, replace, unlearn
    from expunge.models.ridge import Ridge
    from expunge.models.sampled import Sampled
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "boosting": "GradientBoostingClassifier GradientBoostingRegressor",
            "classifiers": "LinearClassifier LinearSVC LogisticRegression",
            "kmeans": "KMeans",
            "opening": "open",
            "regressors": "HuberRegressor LinearRegression LinearRegressor PoissonRegressor",
            "requests": "insert replace unlearn",
            "ridge": "Ridge",
            "sampled": "Sampled",
        },
    )

__all__ = [
    "GradientBoostingClassifier", "GradientBoostingRegressor", "HuberRegressor", "KMeans", "LinearClassifier",
    "LinearRegression", "LinearRegressor", "LinearSVC", "LogisticRegression", "PoissonRegressor", "Ridge", "Sampled",
    "insert", "open", "replace", "unlearn",
]  # fmt: skip
