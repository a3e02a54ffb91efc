"""How a model looks in a notebook: what it lists, what it shows, and what a name that it does not have raises."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from expunge.base.errors import BadRecords, ExpungeError, NotAvailable, StoreError

Model = TypeVar("Model")
Value = TypeVar("Value")


def if_available(read: Callable[[Model], Value]) -> Callable[[Model], Value]:
    """Let a property that a model does not have raise an AttributeError, with the same text: ``hasattr`` must work.

    A file that is damaged or busy is no missing name, and raises what it raises.
    """

    @wraps(read)
    def reading(model: Model) -> Value:
        try:
            return read(model)
        except (BadRecords, StoreError) as error:
            if type(error) in (BadRecords, StoreError):  # without subjects; closed
                raise NotAvailable(str(error)) from error
            raise

    return reading


class Shown:
    """A model that can be displayed, and whose names can be completed."""

    PUBLISHED: ClassVar[tuple[str, ...]]
    """What the fitted model is known by."""

    def __dir__(self) -> list[str]:
        """List names without reading properties: ids and labels may be many, and the file that has them busy.

        Constants of a class are for those who derive from it, and are left out.
        """
        fitted = "_owner" in self.__dict__
        names = []
        for name in object.__dir__(self):
            if name.isupper():
                continue
            if isinstance(getattr(type(self), name, None), property):
                there = fitted and not name.startswith("_")
            else:
                there = hasattr(self, name)  # scikit-learn hides some methods
            if there:
                names.append(name)
        return names

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Show what the model is known by, and not whose records it has: notebooks are saved and passed on."""
        from sklearn.base import BaseEstimator

        own = [name for name in self.__dict__ if name.endswith("_") and not name.startswith("_")]
        shown = SimpleNamespace()
        for name in (*own, *self.PUBLISHED, "n_records_"):
            with suppress(AttributeError, ExpungeError):
                setattr(shown, name, getattr(self, name))
        table = BaseEstimator._get_fitted_attr_html(shown, doc_link)
        table.estimator_class = type(self)
        return table
