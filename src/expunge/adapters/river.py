"""Models for River from which records can be deleted: they learn, predict and unlearn one record (a dict) at a time.

Use them at the end of a River pipeline. Earlier steps must not learn from records, or must be able to delete as well: a
scaler that keeps running means still knows records that the model has deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import AnyArray, Array
from expunge.models import LinearClassifier, LinearRegression, LinearRegressor, LogisticRegression
from expunge.models.linear import LinearModel

try:
    from river import base
except ImportError as error:
    raise ImportError("expunge.adapters.river needs River; install it with pip install 'expunge[river]'.") from error

Record = dict[Any, Any]


class _Adapter(base.Estimator):
    """What both kinds have in common."""

    KIND: ClassVar[type] = LinearModel

    def __init__(self, model: Any, features: Sequence[Any], *, id: Any = None, subject: Any = None) -> None:
        if not isinstance(model, self.KIND):
            raise BadPlan(f"model: {type(self).__name__} takes a {self.KIND.__name__}, got {type(model).__name__}.")
        if isinstance(features, str) or not features or len(set(features)) != len(features):
            raise BadPlan(f"features={features!r}: give the names of the features, each once, in a tuple.")
        for name, key in (("id", id), ("subject", subject)):
            if key is not None and key in features:
                raise BadPlan(f"{name}={key!r} is one of the features; leave it out of them.")
        self.model: Any = model
        self.features = features
        self.id = id
        self.subject = subject

    @property
    def _fitted(self) -> bool:
        return hasattr(self.model, "plan_")

    def _row(self, x: Record) -> Array:
        try:
            return np.array([[float(x.get(name, 0.0)) for name in self.features]])
        except (TypeError, ValueError):
            strange = next(name for name in self.features if not _is_number(x.get(name, 0.0)))
            raise BadRecords(f"x[{strange!r}]={x[strange]!r}: expected a number; encode it first.") from None

    def _name(self, parameter: str, x: Record) -> AnyArray | None:
        """Return the record's id or subject, if there is a key for it."""
        key = getattr(self, parameter)
        if key is None:
            return None
        if key not in x:
            raise BadRecords(f"x: no key {key!r}, which should hold the record's {parameter} ({parameter}={key!r}).")
        return np.array([x[key]])

    def _learn(self, x: Record, y: Any) -> None:
        ids, subjects = self._name("id", x), self._name("subject", x)
        self.model.partial_fit(self._row(x), np.array([y]), ids=ids, subjects=subjects)

    def unlearn_one(self, x: Record, y: Any = None) -> None:
        """Delete the record whose id ``x`` holds (without ``id``, all of its subject); ``y`` is ignored."""
        if self.id is None and self.subject is None:
            raise BadPlan("id: no key is declared, so records cannot be told apart; declare it with id=.")
        self.model.unlearn(self._name("id", x), None if self.id is not None else self._name("subject", x))

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """Return an adapter with the same parameters, around a model that has not learned anything.

        With ``include_attributes`` it has learned the same.
        """
        given = dict(new_params or {})
        model = given.get("model", self.model)
        given["model"] = model if include_attributes else clone(model)
        return super().clone(given, include_attributes)


class RiverClassifier(_Adapter, base.Classifier):
    """A River classifier around one of `expunge.models`; the model itself is ``model``, as given.

    ``features`` are the names of the features: they are declared, because deletions do not reach a vocabulary that is
    learned from records. Those that ``x`` lacks count as 0, other keys are ignored. ``id`` is the key of ``x`` that
    holds the record's id, by which `unlearn_one` deletes it, and ``subject``, if records have subjects, the key of
    that. Let the model declare ``classes`` and ``expected_records``: it starts with the first record.

    >>> model = LogisticRegression(classes=[False, True], expected_records=1000, random_state=0)
    >>> river = RiverClassifier(model, ("height", "width"), id="name")
    >>> for number in range(50):
    ...     river.learn_one({"name": number, "height": number % 2, "width": 0.5}, number % 2 == 1)
    >>> river.predict_one({"height": 1.0, "width": 0.5})
    True
    >>> river.unlearn_one({"name": 7})
    >>> river.model.n_records_
    49
    """

    KIND = LinearClassifier

    def __init__(
        self, model: LinearClassifier, features: Sequence[Any], *, id: Any = None, subject: Any = None
    ) -> None:
        super().__init__(model, features, id=id, subject=subject)

    @property
    def _multiclass(self) -> bool:
        return len(self._classes()) > 2

    def _classes(self) -> list[Any]:
        if self._fitted:
            return self.model.classes_.tolist()
        declared = self.model.classes
        return [] if declared is None else np.unique(np.asarray(declared)).tolist()

    def learn_one(self, x: Record, y: Any) -> None:
        """Insert a record; the first one starts the model."""
        self._learn(x, y)

    def predict_one(self, x: Record, **kwargs: Any) -> Any:
        """Return the predicted class, or None before the first record."""
        return self.model.predict(self._row(x))[0].item() if self._fitted else None

    def predict_proba_one(self, x: Record, **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class: all equal before the first record.

        A model without probabilities, such as a support vector machine, gives its prediction 1 and all others 0.
        """
        classes = self._classes()
        if not self._fitted:
            return dict.fromkeys(classes, 1.0 / max(len(classes), 1))
        if not hasattr(self.model, "predict_proba"):
            predicted = self.predict_one(x)
            return {one: float(one == predicted) for one in classes}
        return dict(zip(classes, self.model.predict_proba(self._row(x))[0].tolist(), strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        model = LogisticRegression(classes=[False, True], expected_records=256, random_state=0)
        yield {"model": model, "features": ("https", "is_popular", "long_url", "popup_window")}


class RiverRegressor(_Adapter, base.Regressor):
    """A River regressor around one of `expunge.models`; see `RiverClassifier` for the parameters.

    >>> river = RiverRegressor(LinearRegression(expected_records=1000), ("height", "width"), id="name")
    >>> river.predict_one({"height": 0.3})
    0.0
    >>> river.learn_one({"name": "ann", "height": 0.3, "width": 0.5}, 4.0)
    >>> river.learn_one({"name": "bob", "height": 0.1}, 3.0)
    >>> river.unlearn_one({"name": "ann"})
    >>> river.model.n_records_
    1
    """

    KIND = LinearRegressor

    def __init__(self, model: LinearRegressor, features: Sequence[Any], *, id: Any = None, subject: Any = None) -> None:
        super().__init__(model, features, id=id, subject=subject)

    def learn_one(self, x: Record, y: Any) -> None:
        """Insert a record; the first one starts the model."""
        self._learn(x, y)

    def predict_one(self, x: Record, **kwargs: Any) -> float:
        """Return the prediction: before the first record, the middle of the range that the solver declares, or 0."""
        if self._fitted:
            return float(self.model.predict(self._row(x))[0])
        low, high = getattr(self.model.solver, "target_range", None) or (0.0, 0.0)
        return (low + high) / 2.0

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        model = LinearRegression(expected_records=256)
        yield {"model": model, "features": ("gallup", "ipsos", "rasmussen")}


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
