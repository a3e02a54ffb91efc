"""Every error names the field that is wrong and what to do about it; nothing has changed when one is raised."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


class ExpungeError(Exception):
    """Anything that Expunge refuses to do."""


class UnknownId(ExpungeError, KeyError):
    """A request names a record or subject that is not there."""

    __str__ = Exception.__str__


class DuplicateId(ExpungeError, ValueError):
    """An id stands twice in a request, or is already taken."""


class BadRecords(ExpungeError, ValueError):
    """Records with NaN, the wrong shape, or outside their declared range."""


class BadContribution(ExpungeError, ValueError):
    """A query returned NaN, another size than declared, or more than its bound where that must hold."""


class BadIterate(ExpungeError, ValueError):
    """A rule returned NaN or another shape than it started with."""


class BadPlan(ExpungeError, ValueError):
    """Hyper-parameters that are out of range or cannot go together."""


class SizeWarning(UserWarning):
    """The number of records has left the range that the plan was made for."""


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the line outside of Expunge that asked for it."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "expunge":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
