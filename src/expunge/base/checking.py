"""Checks of single parameters, which name the parameter and what it may be."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from expunge.base.errors import BadPlan


def check_one_of(name: str, value: object, allowed: Any) -> None:
    """Raise unless a choice is one of a `Literal`'s words."""
    names = get_args(allowed)
    if value not in names:
        raise BadPlan(f"{name}={value!r}: use one of {', '.join(map(repr, names))}.")


def is_number(value: Any) -> bool:
    """Say whether a value is a number, and no bool."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_positive(name: str, value: Any, *, whole: bool = False, zero: bool = False) -> None:
    """Raise unless a choice is a number above 0 (or 0, if that is allowed)."""
    good = is_number(value) and math.isfinite(value) and (not whole or isinstance(value, (int, np.integer)))
    if not (good and (value >= 0 if zero else value > 0)):
        what = "a whole number" if whole else "a finite number"
        raise BadPlan(f"{name}={value!r}: give {what} {'of at least' if zero else 'above'} 0.")


def check_rho(rho: Any) -> None:
    """Raise unless a choice is a probability, or 'auto'."""
    if not (isinstance(rho, str) and rho == "auto") and not (is_number(rho) and 0.0 < rho <= 1.0):
        raise BadPlan(f"rho={rho!r}: give a probability above 0 and at most 1 (1 means no noise), or 'auto'.")
