"""Opening the file of a model."""

from __future__ import annotations

from os import PathLike
from typing import Any

from sklearn.base import clone

from expunge import models
from expunge.base.errors import CorruptStore
from expunge.models.file import check_described, opened
from expunge.models.forgetting import ForgettingModel
from expunge.models.linear import LinearModel
from expunge.models.projecting import unpacked
from expunge.models.saving import NOT_DESCRIBED
from expunge.solvers.cluster_choices import Lloyd
from expunge.solvers.objects import FLAT, DualAveraging, of_flat
from expunge.solvers.transforming import check_transformer
from expunge.store.owner import StoredOwner
from expunge.store.sqlite import WAIT
from expunge.store.state import PROJECTION, Description


def open(
    path: str | PathLike[str],
    *,
    loss: Any = None,
    structure: Any = None,
    read_only: bool = False,
    wait: float = WAIT,
    sign_with: Any = None,
) -> Any:
    """Open the file of a saved model, and finish a request that was interrupted.

    The model is used like any other; a request is on disk when the call returns. ``loss`` is the loss of a model with a
    custom loss, ``structure`` that of a `Sampled`, not fitted: it is fitted to its sample again when it is first
    needed. With ``read_only`` the model predicts (always from the newest state) and changes nothing. Several processes
    may open a file; they write one after the other, and wait for ``wait`` seconds before they give up. ``sign_with`` is
    an Ed25519 key, or the path of one in PEM, to sign receipts with. If earlier receipts are signed, requests need it;
    ``sign_with=False`` leaves their receipts unsigned deliberately.

    >>> import tempfile, numpy as np, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     expunge.LogisticRegression().fit(X, X[:, 0] > 0).save(folder + "/model.expunge")
    ...     with expunge.open(folder + "/model.expunge") as model:
    ...         outcome = model.unlearn([17, 42])
    ...         print(model.n_records_, model.verify().ok, len(model.export_receipts()["receipts"]))
    298 True 1
    """
    return opened(
        path, lambda owner: estimator_of(owner, loss, structure), loss=loss, structure=_own_copy(structure),
        read_only=read_only, wait=wait, sign_with=sign_with,
    )  # fmt: skip


def _own_copy(structure: Any) -> Any:
    """Return a transformer that nobody else can change, and which is not fitted."""
    if structure is None:
        return None
    check_transformer(structure)
    return clone(structure)


def estimator_of(owner: StoredOwner, loss: Any = None, structure: Any = None) -> ForgettingModel:
    """Return the estimator that a file describes; ``loss`` and ``structure`` are those of the user's own."""
    check_described(owner)
    said = owner.description
    kind: type[ForgettingModel] = getattr(models, said.model)
    strange = any(hasattr(kind, name) or name in NOT_DESCRIBED for name in said.attributes)
    parameters = _as_of_today(said, kind)
    if strange or not set(parameters) <= set(kind._get_param_names()):
        raise CorruptStore(f"{owner.path}: it does not describe a {said.model} of this version; restore a backup.")
    model = kind(**parameters, **dict.fromkeys(kind.HANDED_IN, structure))
    model.__dict__.update(said.attributes)
    model.plan_ = said.plan
    if hasattr(said.plan, "projected"):
        features = said.attributes.get("n_features_in_")
        model._projection = unpacked(owner.array(PROJECTION), said.plan, features) if said.plan.projected else None
    model._recall()
    if loss is not None:
        model._given_loss = said.plan.loss
    model._owner = owner
    model._publish()
    return model


def _as_of_today(said: Description, kind: type) -> dict[str, Any]:
    """Return a model's parameters; earlier versions had those of the solver among them.

    Files from before clip='auto' say None for it, and their plan has a clip.
    """
    given = dict(said.parameters)
    if said.model == "KMeans" and "solver" not in given:
        own = {name: given.pop(name) for name in Lloyd().get_params() if name in given}
        return {**given, "solver": Lloyd(**own)}
    if not (issubclass(kind, LinearModel) and FLAT & given.keys()):
        return given
    if given.get("clip", "none") is None and said.plan.clip is not None:
        given["clip"] = "auto"
    solver = of_flat(given.pop("solver", DualAveraging.NAME), given)
    return {**{name: value for name, value in given.items() if name not in FLAT}, "solver": solver}
