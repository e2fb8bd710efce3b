"""Compiled arithmetic: arrays in, arrays out, no Python objects and no policy.

Importing this module does not import numba: kernels do, through `decorators`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def unlocked(array: Array) -> Array:
    """Return a writable view of an array that kernels only read.

    Kernels are compiled once more for read-only arrays. The view stays writable if the array is
    made read-only later.
    """
    return array.view() if array.flags.writeable else np.asarray(_Unlocked(array))


class _Unlocked:
    """Array interface of a read-only array without the read-only flag."""

    def __init__(self, array: Array) -> None:
        self._array = array
        about = array.__array_interface__
        self.__array_interface__ = about | {"data": (about["data"][0], False)}


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array of zeros that starts on a cache line, so that vector loads never straddle two."""
    line, size = 64, int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(dtype).reshape(shape)
