"""Compiled arithmetic: arrays in, arrays out, no Python objects and no policy."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from ._cache import Keeper, Source, sources_in

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reassociated and multiply-adds fused, but NaN and infinity keep their meaning:
# divergence has to stay visible.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
_keeper = Keeper(lambda: sources_in(Path(__file__).parent, __name__))
#: For functions that make no arrays: those they are given outlive them, so that counting references
#: (an atomic step for every array of every call) is left out.
BORROWING: dict[str, Any] = {"_nrt": False}
#: For the pieces of a hot loop: a call would cost as much as the work.
INLINED: dict[str, Any] = {"forceinline": True, **BORROWING, **_OPTIONS}


def compiled(function: Function) -> Function:
    """Compile a function to machine code on first use and keep the result on disk."""
    return cast(Function, _keeper.keep(numba.njit(nogil=True, **_OPTIONS)(function)))


def compiled_strictly(function: Function) -> Function:
    """Like `compiled`, but nothing about the arithmetic is relaxed."""
    return cast(Function, _keeper.keep(numba.njit(nogil=True, error_model="numpy")(function)))


def inlined(function: Function) -> Function:
    """Like `compiled`, for the pieces of a hot loop; they make no arrays."""
    return cast(Function, _keeper.keep(numba.njit(**INLINED)(function)))


def part_of_kernels(function: Function) -> Function:
    """Like `inlined`, for a function of another room that kernels call.

    It is not kept on disk by itself, but kernels that have it in them are, until its module
    changes.
    """
    watch_source(function.__module__)
    return cast(Function, numba.njit(**INLINED)(function))


def watch_source(module: str) -> None:
    """Compile kernels anew when this module, which they refer to, has changed."""
    path = sys.modules[module].__file__
    if path is not None:
        _keeper.watch(Source(module, Path(path)))


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array of zeros that starts on a cache line, so that vector loads never straddle two."""
    line, size = 64, int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(dtype).reshape(shape)
