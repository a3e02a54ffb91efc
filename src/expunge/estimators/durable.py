"""What models that can forget have to do with files: saving, closing, receipts."""

from __future__ import annotations

from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.random_projection import SparseRandomProjection

from expunge.columns import csr
from expunge.errors import BadPlan, CorruptStore, StoreError
from expunge.store.codec import UNREADABLE, pack, unpack
from expunge.store.keeper import DurableKeeper
from expunge.store.maintenance import compact_kept
from expunge.store.receipts import ReceiptsCheck, check_receipts, export, find
from expunge.store.saving import as_path, save
from expunge.store.state import KNOWN, PROJECTION, Description

SEED_TELLS = (
    "which can be found by trying; from it the noise could be computed again, and so what deleted records contributed"
)
"""Why nothing in a file may come from a ``random_state``."""
_NOT_DESCRIBED = ("_keeper", "_derived", "_projection", "_given_loss", "plan_")


class Storable:
    """A model that can be saved into a file, and that may live in one."""

    _keeper: Any
    plan_: Any

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, with its records and all that is kept beside them, into a new file.

        From then on use ``expunge.open(path)``: requests to it are durable. This model stays as it is, in memory, and
        what is asked of it does not reach the file. Beside the file lies a key, in a file of its own, with which
        receipts name people; keep it, and keep it apart from exported receipts. A model that was trained with a
        ``random_state`` is refused: from that number, which can be found by trying, the noise could be computed.
        """
        self._need_fit()  # type: ignore[attr-defined]
        self._refuse_seed()
        with self._keeper.lock:
            self._keeper.catch_up(self._publish)  # type: ignore[attr-defined]  # others may have written meanwhile
            save(
                as_path(path), self._description(), self._packed_projection(),
                self._keeper.records, self._keeper.transcript, self._keeper.model(),
            )  # fmt: skip

    def _refuse_seed(self) -> None:
        if self._keeper.seeded:
            raise BadPlan(
                f"random_state: this model was trained with one, {SEED_TELLS}. It is for tests, in memory. Fit again "
                "without it, or set it to None and replan(), then save."
            )

    def _packed_projection(self) -> bytes | None:
        return _packed(self.__dict__.get("_projection"))

    def _description(self) -> Description:
        known = model_class(type(self))
        names = known._get_param_names()
        parameters = {name: getattr(self, name) for name in names if name != "random_state"}
        own = self.get_params(deep=False)  # type: ignore[attr-defined]
        passed_over = {*own, *names, *_NOT_DESCRIBED}
        attributes = {name: value for name, value in self.__dict__.items() if name not in passed_over}
        for name, value in {**parameters, **attributes}.items():
            if (strange := KNOWN.strange(value)) is not None:
                raise BadPlan(f"{name}: a file cannot hold a {strange}; take it off the model, or keep it elsewhere.")
        return Description(known.__name__, parameters, attributes, self.plan_)

    # --- a model that lives in a file ---

    @property
    def _store(self) -> DurableKeeper:
        """What keeps the file."""
        keeper = self.__dict__.get("_keeper")
        if not isinstance(keeper, DurableKeeper):
            raise StoreError("this model is in memory only; save(path) it, and use expunge.open(path).")
        return keeper

    def _refuse_stored(self, what: str) -> None:
        keeper = self.__dict__.get("_keeper")
        if isinstance(keeper, DurableKeeper):
            raise StoreError(
                f"{what}: this model lives in {keeper.path}, which keeps its records. Use insert, or replan(); to "
                "start from other records, fit a new model and save it to another path."
            )

    def close(self) -> None:
        """Close the file that the model lives in; a model in memory has nothing to close."""
        keeper = self.__dict__.get("_keeper")
        if isinstance(keeper, DurableKeeper):
            keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def compact(self) -> None:
        """Rewrite the file in canonical order, without empty pages: its layout then tells nothing of its history."""
        self._need_fit()  # type: ignore[attr-defined]
        compact_kept(self._store)

    def export_receipts(self, *, ids: Any = None, subjects: Any = None) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed; or those that name certain ids or subjects."""
        self._check_fitted()  # type: ignore[attr-defined]
        keeper = self._store
        state, receipts = keeper.receipts()
        if ids is not None or subjects is not None:
            receipts = find(receipts, keeper.key, ids=ids, subjects=subjects)
        public_key = None if keeper.signer is None else keeper.signer.public_key
        return export(receipts, store=state.store, head=state.head, version=state.version, public_key=public_key)

    def verify_receipts(self, public_key: Any = None) -> ReceiptsCheck:
        """Check that no receipt was altered, taken out or put in; with a ``public_key``, their signatures too."""
        return check_receipts(self.export_receipts(), public_key=public_key)


def model_class(kind: type) -> Any:
    """Return the class that a model is opened as: its own, or, of a user's own class, the nearest of Expunge's."""
    return next(one for one in kind.__mro__ if one.__module__.startswith("expunge.estimators."))


def _packed(projection: SparseRandomProjection | None) -> bytes | None:
    if projection is None:
        return None
    matrix = projection.components_.tocsr()
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return pack(str(matrix.shape[1]), arrays)


def unpacked(content: bytes) -> SparseRandomProjection:
    """Return a random projection that was packed."""
    text, arrays = unpack(content)
    try:
        matrix = csr(arrays["data"].astype(np.float64), arrays["indices"], arrays["indptr"], int(text))
        matrix.check_format(full_check=True)
    except UNREADABLE as error:
        raise CorruptStore(f"arrays, row {PROJECTION} is no projection ({error}); restore a backup.") from error
    projection = SparseRandomProjection(matrix.shape[0], dense_output=True)
    projection.components_ = matrix
    projection.n_components_ = matrix.shape[0]
    projection.n_features_in_ = matrix.shape[1]
    return projection
