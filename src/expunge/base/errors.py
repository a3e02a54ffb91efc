"""Every error names the field that is wrong and what to do about it; nothing has changed when one is raised."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any


class ExpungeError(Exception):
    """Anything that Expunge refuses to do."""

    refused = False
    """Whether a model refused a request with it: then no coin was tossed for the request, and none of it was begun."""


class UnknownId(ExpungeError, KeyError):
    """A request names a record or subject that is not in the model."""

    __str__ = Exception.__str__


class DuplicateId(ExpungeError, ValueError):
    """An id appears twice in a request, or is already in the model."""


class BadRecords(ExpungeError, ValueError):
    """Records with NaN, the wrong shape, or outside their declared range."""


class BadContribution(ExpungeError, ValueError):
    """A query returned NaN, another size than declared, or more than its bound where that must hold."""


class BadIterate(ExpungeError, ValueError):
    """A rule returned NaN or another shape than it started with."""


class BadPlan(ExpungeError, ValueError):
    """Hyper-parameters that are out of range or cannot go together."""


class UnknownParameter(ExpungeError, TypeError, ValueError):
    """A keyword that a model does not have, or a value without the name that it needs."""


class NotAvailable(ExpungeError, AttributeError):
    """A model does not have this, or it cannot be read now; Python and notebooks treat it as a missing name."""


class Unfinished(ExpungeError, RuntimeError):
    """Rounds are still to be made, and clients to be asked for them, before this can be done."""


class StoreError(ExpungeError, OSError):
    """Something is wrong with the file of a model; acknowledged requests are still in it."""

    __str__ = Exception.__str__

    def add(self, sentence: str) -> None:
        """Say more."""
        self.args = (f"{self} {sentence}",)


class NotAStore(StoreError):
    """There is no such file, or it holds something else."""


class NewerStore(StoreError):
    """The file was written by a later version of Expunge."""


class CorruptStore(StoreError):
    """Bytes of the file are not what was written."""


class BusyStore(StoreError):
    """Another process is writing."""


class LogNotEmptied(StoreError):
    """A request is done and durable, but deleted bytes are still in the log: the next request or opening empties it.

    ``outcome`` is how the request went, which it would have returned.
    """

    def __init__(self, message: str, outcome: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class FullStore(StoreError):
    """The disk is full."""


class ReadOnlyStore(StoreError):
    """The file, its folder or this model may not be written to."""


class StoreWarning(UserWarning):
    """The file of a model is in a place that may not be safe."""


class SizeWarning(UserWarning):
    """The number of records has left the range that the plan was made for."""


class SeedWarning(UserWarning):
    """A model is trained, or deletes, with a ``random_state``: from it, what is deleted can be computed."""


class PlanWarning(UserWarning):
    """A fitted model is used although parameters were set since that are not in its plan."""


class RankWarning(UserWarning):
    """Records do not determine the coefficients of a least-squares model; the solution of least norm was taken."""


class NoiseWarning(UserWarning):
    """The plan has so much noise that the model will be poor."""


class RangeWarning(UserWarning):
    """Targets fill so little of their declared range that a model may not see the differences between them."""


class ClippedWarning(UserWarning):
    """Points are outside the declared region, and count as the nearest point inside."""


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the line outside of Expunge that asked for it."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "expunge":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class RequestFailed(ExpungeError, ValueError):
    """A request of a stream failed; those before it are done, it and those after it are not.

    ``number`` is its position, from 0 (and so also how many are ``done``), ``request`` the request itself, ``waiting``
    those after it that had been read already, and ``__cause__`` what it failed with.
    """

    def __init__(self, message: str, number: int = 0, request: Any = None) -> None:
        super().__init__(message)
        self.number = self.done = number
        self.request = request
        self.waiting: list[Any] = []
