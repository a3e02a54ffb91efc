"""A model's file, opened for requests and checks alone: no estimator is made, and no scikit-learn imported."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from expunge.base.errors import CorruptStore, warn_caller
from expunge.base.types import AnyArray, Array
from expunge.engine.verifying import Verification
from expunge.models.stored import Stored
from expunge.store.codec import strangers_of
from expunge.store.hints import fits
from expunge.store.keys import as_signer
from expunge.store.owner import StoredOwner
from expunge.store.saving import as_path
from expunge.store.sqlite import WAIT
from expunge.store.state import OFF_GRID, sound
from expunge.tables.schema.columns import Schema

Opened = TypeVar("Opened", bound=Stored)

MODELS = (
    "LogisticRegression", "LinearSVC", "LinearRegression", "HuberRegressor", "KMeans", "Ridge", "LinearClassifier",
    "LinearRegressor", "PoissonRegressor", "GradientBoostingClassifier", "GradientBoostingRegressor",
    "Sampled",
)  # fmt: skip
"""What can be in a file: the names of estimators."""
ATTRIBUTES: dict[str, Any] = {
    "n_features_in_": int, "_n_features_out": int, "_seed": int, "_sparse": bool, "classes_": np.ndarray,
    "feature_names_in_": np.ndarray, "target_range_": tuple[float, float], "schema_": Schema,
}  # fmt: skip
"""What the attributes are that a model may have learned at its first fit."""


class ModelFile(Stored):
    """A model that can delete and be checked; to predict or to insert needs an estimator.

    >>> import tempfile, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     expunge.LogisticRegression().fit(X, X[:, 0] > 0).save(folder + "/model.expunge")
    ...     with open_file(folder + "/model.expunge") as model:
    ...         outcome = model.unlearn([17, 42])
    ...         print(model.kind, model.n_records_, model.verify().ok)
    LogisticRegression 298 True
    """

    PUBLISHED = ("model", "rank")
    n_features_in_: int
    classes_: AnyArray
    schema_: Schema

    def __init__(self, owner: StoredOwner) -> None:
        check_described(owner)
        self._owner = owner
        self.kind = owner.description.model
        """The name of the estimator."""
        for name in ("n_features_in_", "classes_", "schema_"):
            if name in owner.description.attributes:
                setattr(self, name, owner.description.attributes[name])
        self._publish()

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Re-derive the whole state from the live records; if something does not agree, let the estimator name it."""
        found = super().verify(tolerance=tolerance)
        if found.ok:
            return found
        from expunge.models.opening import estimator_of

        with sound(self._owner.file):
            model = estimator_of(self._owner)
        return model.verify(tolerance=tolerance)

    def _derive(self, model: Array) -> tuple[Array, int | None]:
        return model, self.plan_.rank_of(model)

    def _rank(self) -> int | None:
        if self._owner.solves_late:
            return None  # it is not solved for this
        rank: int | None = self._shown(1)
        return rank


def open_file(
    path: str | PathLike[str], *, read_only: bool = False, wait: float = WAIT, sign_with: Any = None
) -> ModelFile:
    """Open the file of a model as `expunge.open` does, but make no estimator of it."""
    return opened(path, ModelFile, read_only=read_only, wait=wait, sign_with=sign_with)


def opened(
    path: str | PathLike[str],
    make: Callable[[StoredOwner], Opened],
    *,
    loss: Any = None,
    structure: Any = None,
    read_only: bool = False,
    wait: float = WAIT,
    sign_with: Any = None,
) -> Opened:
    """Open a file, ``make`` a model of it, and finish what was asked of it and interrupted."""
    signer = as_signer(sign_with)
    strangers = strangers_of(loss, structure)
    owner = StoredOwner(as_path(path), strangers=strangers, read_only=read_only, wait=wait, signer=signer)
    try:
        with sound(owner.file):
            model = make(owner)
            if not read_only:
                with owner.lock:
                    pass  # whoever gets it has read the rest
        if not owner.read_only:
            owner.catch_up(model._publish)
            if owner.off_grid:
                warn_caller(f"{owner.path}: {OFF_GRID}")
        return model
    except BaseException:
        owner.close()
        raise


def check_described(owner: StoredOwner) -> None:
    """Raise if a file describes no model, or an attribute is not what models have, naming it."""
    kind, said = owner.description.model, owner.description.attributes
    if kind not in MODELS:
        raise CorruptStore(f"{owner.path}: {kind!r} is not a model of Expunge; restore a backup.")
    for name, value in said.items():
        array = isinstance(value, np.ndarray)
        if not fits(value, ATTRIBUTES.get(name, Any)) or (array and name in ATTRIBUTES and value.ndim != 1):
            raise CorruptStore(f"{owner.path}: {name} is not valid for this model; restore a backup.")
    loss = getattr(owner.description.plan, "loss", None)
    if "classes_" in said and len(said["classes_"]) != getattr(loss, "classes", len(said["classes_"])):
        raise CorruptStore(f"{owner.path}: classes_: their number differs from the plan; restore a backup.")
