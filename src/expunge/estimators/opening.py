"""Opening the file that a model lives in."""

from __future__ import annotations

from os import PathLike
from typing import Any

from expunge.errors import CorruptStore, warn_caller
from expunge.estimators.base import ForgettingModel
from expunge.estimators.classifiers import LinearClassifier, LinearSVC, LogisticRegression
from expunge.estimators.durable import unpacked
from expunge.estimators.kmeans import KMeans
from expunge.estimators.regressors import HuberRegressor, LinearRegression, LinearRegressor
from expunge.estimators.ridge import Ridge
from expunge.store.file import WAIT
from expunge.store.keeper import OFF_GRID, DurableKeeper
from expunge.store.keys import as_signer
from expunge.store.saving import as_path
from expunge.store.state import PROJECTION

_MODELS: tuple[type[ForgettingModel], ...] = (
    LogisticRegression, LinearSVC, LinearRegression, HuberRegressor, KMeans, Ridge, LinearClassifier, LinearRegressor,
)  # fmt: skip
MODELS = {model.__name__: model for model in _MODELS}
"""What can be in a file, by name."""


def open(
    path: str | PathLike[str],
    *,
    loss: Any = None,
    read_only: bool = False,
    wait: float = WAIT,
    sign_with: Any = None,
) -> Any:
    """Open the file of a model that was saved, and finish what was asked of it and interrupted.

    The model is used like any other; what is asked of it is durable when the call returns. ``loss`` is the loss of a
    model that has one of its own. With ``read_only`` it predicts (always by the newest state) and changes nothing.
    Several processes may open a file; they write one after the other, and wait for ``wait`` seconds before they give
    up. ``sign_with`` is an Ed25519 key, or the path of one in PEM, to sign receipts with. Where earlier receipts
    are signed, requests need it; ``sign_with=False`` leaves their receipts unsigned all the same.

    >>> import tempfile, numpy as np, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     expunge.LogisticRegression().fit(X, X[:, 0] > 0).save(folder + "/model.expunge")
    ...     with expunge.open(folder + "/model.expunge") as model:
    ...         outcome = model.unlearn([17, 42])
    ...         print(model.n_records_, model.verify().ok, len(model.export_receipts()["receipts"]))
    298 True 1
    """
    signer = as_signer(sign_with)
    keeper = DurableKeeper(as_path(path), loss=loss, read_only=read_only, wait=wait, signer=signer)
    try:
        return _model(keeper, loss)
    except BaseException:
        keeper.close()
        raise


def _model(keeper: DurableKeeper, loss: Any) -> ForgettingModel:
    said = keeper.description
    if said.model not in MODELS:
        raise CorruptStore(f"{keeper.path}: {said.model!r} is no model of Expunge's; restore a backup.")
    kind = MODELS[said.model]
    if not set(said.parameters) <= set(kind._get_param_names()) or any(hasattr(kind, name) for name in said.attributes):
        raise CorruptStore(f"{keeper.path}: it describes no {said.model} of this version; restore a backup.")
    model = kind(**said.parameters)
    model.__dict__.update(said.attributes)
    model.plan_ = said.plan
    if hasattr(said.plan, "projected"):
        model._projection = unpacked(keeper.array(PROJECTION)) if said.plan.projected else None
    if loss is not None:
        model._given_loss = said.plan.loss
    model._keeper = keeper
    model._publish()
    if not keeper.read_only:
        keeper.catch_up(model._publish)
        if keeper.off_grid:
            warn_caller(f"{keeper.path}: {OFF_GRID}")
    return model
