"""Names for the arrays that travel between the parts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]
Column = Any
"""One column of some records: an array with a row for each, or, if sparse, a `scipy.sparse.csr_array`."""
Batch = tuple[Column, ...]
"""The columns of some records, equally long. (``column.shape[0]`` says how long; sparse ones have no ``len``.)"""


class Uniforms(Protocol):
    """A source of numbers between 0 and 1, such as NumPy's generators."""

    def random(self, size: Any = None) -> Any:
        """Return this many of them."""


class Draws(Uniforms, Protocol):
    """A source of noise and coins."""

    def standard_normal(self, size: Any = None) -> Any:
        """Return this many normal numbers."""

    def standard_exponential(self, size: Any = None) -> Any:
        """Return this many exponential numbers."""
