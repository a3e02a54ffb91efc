"""Models that can be saved: what a file says of them."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

from expunge.base.errors import BadPlan
from expunge.models.projecting import packed
from expunge.models.stored import Stored
from expunge.store.saving import as_path, save
from expunge.store.state import KNOWN, Description

SEED_TELLS = (
    "which can be found by trying; from it the noise could be computed again, and so what deleted records contributed"
)
"""Why nothing in a file may come from a ``random_state``."""
NOT_DESCRIBED = ("_owner", "_derived", "_projection", "_given_loss", "_chosen", "plan_", "_metadata_request")
"""Attributes that are elsewhere in a file, or not in it: what a pipeline passes to `fit` is not part of a model."""


class Storable(Stored):
    """An estimator that can be saved into a file."""

    HANDED_IN: ClassVar[tuple[str, ...]] = ()
    """Parameters that are objects of others: a file holds their class's name, and they are given when it is opened."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, its records and its transcript into a new file.

        From then on use ``expunge.open(path)``: requests to it are durable. This model stays in memory, and later
        requests to it do not reach the file. Beside the file is a separate key file, for the digests that name people
        in receipts; keep it, and keep it apart from exported receipts. A model that was trained with a ``random_state``
        is refused: from that number, which can be found by trying, the noise could be computed.
        """
        self._need_fit()
        self._refuse_seed()
        self._warn_of_late()
        with self._owner.lock:
            self._owner.catch_up(self._publish)  # others may have written meanwhile
            save(
                as_path(path), self._description(), self._packed_projection(),
                self._owner.records, self._owner.transcript,
            )  # fmt: skip

    def _refuse_seed(self) -> None:
        if self._owner.seeded:
            raise BadPlan(
                f"random_state: this model was trained with one, {SEED_TELLS}. It is for tests, in memory. Fit again "
                "without it, or set it to None and replan(), then save."
            )

    def _packed_projection(self) -> bytes | None:
        return packed(self.__dict__.get("_projection"))

    def _description(self) -> Description:
        known = model_class(type(self))
        names = known._get_param_names()
        parameters = {name: getattr(self, name) for name in names if name not in ("random_state", *self.HANDED_IN)}
        own = self.get_params(deep=False)  # type: ignore[attr-defined]
        passed_over = {*own, *names, *NOT_DESCRIBED}
        attributes = {name: value for name, value in self.__dict__.items() if name not in passed_over}
        for name, value in {**parameters, **attributes}.items():
            if (strange := KNOWN.strange(value)) is not None:
                raise BadPlan(
                    f"{name}: a file cannot hold a {strange}; remove it from the model, or keep it elsewhere."
                )
        return Description(known.__name__, parameters, attributes, self.plan_)


def model_class(kind: type) -> Any:
    """Return the class that a model is opened as: its own, or, of a user's own class, the nearest of Expunge's."""
    return next(one for one in kind.__mro__ if one.__module__.startswith("expunge.models."))
