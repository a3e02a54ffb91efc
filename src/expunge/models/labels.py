"""Classifiers' targets: which classes there are, and how records have them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.guiding import guided
from expunge.base.types import AnyArray, Array
from expunge.models.supervised import SupervisedModel

_NUMBERS = "biuf"


class Classifier(ClassifierMixin, SupervisedModel):
    """A classifier: it has classes, declared or met at the first fit. Subclasses say which scores rows have."""

    classes: Any

    def decision_function(self, X: Any) -> Array:
        """Return the scores: of the second class if there are two, else one for each class."""
        raise NotImplementedError

    def predict(self, X: Any) -> AnyArray:
        """Return the class of each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    @guided
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, ids: Any = None, subjects: Any = None) -> Self:
        """Continue learning, like `insert`; with ``schedule="arrival"`` at a cost that does not grow with the records.

        The first call fits. What it cannot know from its few records should be declared: ``expected_records``, and all
        classes, here or as the parameter.
        """
        told = None if classes is None else _distinct(classes)
        known = self.classes_ if hasattr(self, "classes_") else self.classes
        if told is not None and known is not None and told.tolist() != _distinct(known).tolist():
            own = listed(_distinct(known))
            raise BadPlan(f"classes={classes!r}: the model's are {own}. Leave them out, or refit with all.")
        return self._partial_fit(X, y, ids, subjects, classes)

    # --- parts ---

    def _meet_classes(self, y: AnyArray, classes: Any) -> None:
        check_classification_targets(y)
        declared = self.classes if classes is None else classes
        if declared is None:
            seen = np.unique(y)
            self.classes_ = np.array(seen.tolist()) if seen.dtype.kind == "U" else seen  # no wider than needed
            if len(seen) < 2:
                raise BadRecords(
                    f"y: there is only one class, {seen.tolist()[0]!r}. Give records of at least two classes, or "
                    "declare all classes with classes=."
                )
            return
        self.classes_ = _distinct(declared)
        if len(self.classes_) < 2:
            raise BadPlan(f"classes={declared!r}: declare at least two.")

    def _kept_by_targets(self) -> list[tuple[str, Any, Any]]:
        declared = self.classes_ if self.classes is None else _distinct(self.classes)
        return [("classes", self.classes_.tolist(), declared.tolist())]

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        known = self.classes_
        if (y.dtype.kind in _NUMBERS) == (known.dtype.kind in _NUMBERS):
            codes = np.minimum(np.searchsorted(known, y), len(known) - 1)
        else:  # strings where there were numbers, or the other way round
            codes = np.zeros(len(y), dtype=np.int64)
        strange = np.flatnonzero(known[codes] != y)
        if len(strange):
            raise BadRecords(
                f"y: {y[strange[:1]].tolist()[0]!r} is not one of the model's classes {listed(known)}. "
                "Correct it, or refit with all classes declared by classes=."
            )
        return 2.0 * codes - 1.0 if len(known) == 2 else codes


class WithProbabilities(Classifier):
    """A classifier whose scores are logarithms of odds."""

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class (somewhat overconfident if slopes are clipped)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        return log_softmax(scores, axis=1)


def _distinct(classes: Any) -> AnyArray:
    """Return declared classes in order, each once."""
    try:
        labels = np.asarray(classes)
        found = np.unique(labels)
    except (TypeError, ValueError):
        labels = found = np.zeros((0, 0))
    if labels.ndim != 1:
        raise BadPlan(f"classes={classes!r}: give a list of labels, all numbers or all strings.")
    return found


def listed(classes: AnyArray) -> str:
    """Name classes: not more than ten of them."""
    names = [repr(name) for name in classes.tolist()]
    return ", ".join(names if len(names) <= 10 else [*names[:9], "…", names[-1]])
