"""Estimators with the interface of scikit-learn, from which records can be deleted exactly."""

from expunge.estimators.classifiers import LinearClassifier, LinearSVC, LogisticRegression
from expunge.estimators.ingest import ingest
from expunge.estimators.kmeans import KMeans
from expunge.estimators.opening import open
from expunge.estimators.regressors import HuberRegressor, LinearRegression, LinearRegressor
from expunge.estimators.ridge import Ridge

__all__ = [
    "HuberRegressor", "KMeans", "LinearClassifier", "LinearRegression", "LinearRegressor", "LinearSVC",
    "LogisticRegression", "Ridge", "ingest", "open",
]  # fmt: skip
