"""Classifiers from which records can be deleted exactly."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import sklearn.linear_model
import sklearn.svm

from expunge.base.checking import check_positive
from expunge.base.errors import BadPlan
from expunge.base.guiding import guided
from expunge.base.types import Array
from expunge.models.habits import CLASSIFIER
from expunge.models.labels import Classifier, WithProbabilities, listed
from expunge.models.linear import Finish, LinearModel, RandomState
from expunge.solvers.losses import (
    ClassLoss,
    Hinge,
    Logistic,
    Loss,
    MulticlassHinge,
    Multinomial,
    SmoothedHinge,
    SquaredHinge,
    Weighted,
)
from expunge.solvers.objects import DualAveraging, FrankWolfe, Newton, Said

CLIP_OF_SEVERAL_CLASSES = 0.5
"""Slopes reach √2 only where the model is sure and wrong; less noise is worth more than those."""


class LinearClassifier(Classifier, LinearModel):
    """A classifier by linear scores. Subclasses say which loss it has, in `class_loss`."""

    @guided
    def __init__(
        self,
        *,
        rho: float | Literal["auto"] = "auto",
        C: float = 1.0,
        standardize: bool = True,
        class_weight: dict[Any, float] | None = None,
        fit_intercept: bool = True,
        classes: Any = None,
        expected_records: int | None = None,
        solver: Said = "auto",
        finish: Finish = "auto",
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            rho=rho, C=C, standardize=standardize, fit_intercept=fit_intercept, expected_records=expected_records,
            solver=solver, finish=finish, random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight
        self.classes = classes

    INSTEAD = CLASSIFIER
    SCORES: ClassVar = {"dual_averaging": 40.0, "frank_wolfe": 20.0, "gradient_descent": 20.0}

    def class_loss(self, classes: int) -> ClassLoss:
        """Return the loss for a number of classes."""
        raise NotImplementedError(
            f"{type(self).__name__}: override class_loss() and return a loss, see expunge.solvers.losses."
        )

    def make_loss(self) -> Loss:
        """Return the loss, weighted by class if ``class_weight`` is given."""
        loss = self.class_loss(len(self.classes_))
        if self.class_weight is None:
            return loss
        if not isinstance(self.class_weight, dict):
            raise BadPlan(
                f"class_weight={self.class_weight!r}: give a dict from class to weight. 'balanced' would depend on the "
                "records, and deletions could not undo that."
            )
        strange = [name for name in self.class_weight if name not in self.classes_]
        if strange:
            raise BadPlan(f"class_weight: {strange[0]!r} is not one of the classes {listed(self.classes_)}.")
        weights = [self.class_weight.get(name, 1.0) for name in self.classes_.tolist()]
        for name, weight in zip(self.classes_.tolist(), weights, strict=True):
            check_positive(f"class_weight[{name!r}]", weight)
        return Weighted(loss, tuple(map(float, weights)))

    def _default_clip(self, loss: Loss) -> float | None:
        return None if loss.outputs == 1 else CLIP_OF_SEVERAL_CLASSES * loss.lipschitz / 2**0.5

    def _plain(self) -> Any:
        return sklearn.svm.LinearSVC()

    def decision_function(self, X: Any) -> Array:
        """Return the scores: of the second class if there are two, else one for each class."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores


class LogisticRegression(WithProbabilities, LinearClassifier):
    """Logistic regression from which records can be deleted exactly; multinomial for more than two classes.

    Every parameter, with what it costs: docs/estimators.md. Those that matter most are ``rho`` (the planned share of
    deletions that replay; less means more noise), ``C`` as in scikit-learn, ``solver``, and what is declared so that it
    need not be read from the records: ``classes``, ``expected_records``. The parameters of training are those of
    solvers (`expunge.solvers`).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> model = LogisticRegression().fit(X, y, ids=np.arange(300))
    >>> outcome = model.unlearn([17, 42])
    >>> outcome.removed, model.n_records_, model.verify().ok, model.score(X, y) > 0.9
    (2, 298, True, True)
    """

    def class_loss(self, classes: int) -> ClassLoss:
        """Return the logistic loss, or the multinomial one."""
        return Logistic() if classes == 2 else Multinomial(classes)

    def _largest_scores(self, features: int) -> float:
        """Return more for many features: they distinguish more records, and the loss rewards it."""
        grown = max(1.0, (features / 64) ** 0.25) if isinstance(self._chosen, DualAveraging) else 1.0
        return super()._largest_scores(features) * grown

    def _plain(self) -> Any:
        return sklearn.linear_model.LogisticRegression()


class LinearSVC(LinearClassifier):
    """A linear support vector machine from which records can be deleted exactly.

    With Newton's method, the default for two classes, the loss is the squared hinge, as scikit-learn's is. With other
    solvers it is the hinge itself, and with more than two classes that of Crammer and Singer. Frank-Wolfe needs a
    smooth loss: there the kink is rounded off over ``SMOOTHING`` of the margin. Parameters are those of
    `LogisticRegression`.

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.9, 0.1]])
    >>> LinearSVC().fit(X, [0, 1, 0, 1]).predict(X).tolist()
    [0, 1, 0, 1]
    """

    SMOOTHING = 0.5

    def class_loss(self, classes: int) -> ClassLoss:
        """Return the hinge loss, smoothed if the solver needs it."""
        smooth = isinstance(self._chosen, FrankWolfe)
        if isinstance(self._chosen, Newton) and classes == 2:
            return SquaredHinge()
        if classes == 2:
            return SmoothedHinge(self.SMOOTHING) if smooth else Hinge()
        return MulticlassHinge(classes, self.SMOOTHING if smooth else 0.0)
