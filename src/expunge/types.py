"""Names for the arrays that travel between the parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]
Batch = tuple[AnyArray, ...]
"""The columns of some records, one array each, equally long."""
