"""Statistics of samples."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def quantile(samples: ArrayLike, q: float) -> float:
    """Nearest-rank quantile: the smallest sample that at least the share `q` of all samples does not exceed.

    Always one of the samples, never interpolated, so never above the maximum: a p99 that nobody measured proves
    nothing. Raises ValueError without samples or for q outside 0..1.

    >>> quantile([30, 10, 20, 40], 0.5)
    20.0
    """
    values: NDArray[Any] = np.asarray(samples).ravel()
    if values.size == 0:
        raise ValueError("a quantile needs at least one sample")
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    # As the decimal that was written: in binary 0.07 x 100 is above 7 and would give the eighth.
    rank = max(1, ceil(Fraction(str(q)) * values.size))
    return float(np.partition(values, rank - 1)[rank - 1])
