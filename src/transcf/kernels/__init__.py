"""Compiled arithmetic: arrays in, arrays out, no Python objects and no policy."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import options

from ._cache import Keeper, Source, sources_in
from ._linking import linked_options

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reassociated and multiply-adds fused, but NaN and infinity keep their meaning:
# divergence has to stay visible.
_RELAXED: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
#: For functions that Python calls.
_CALLED: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
#: For functions that only kernels call: an entry point for Python takes as long to compile as many
#: a function.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_LINKED: dict[str, Any] = linked_options()
#: Without reference counts, if this version of numba can leave them out: an atomic step for every
#: array of every call.
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(options.DefaultOptions, "_nrt") else {}
#: For the pieces of a hot loop, where a call would cost as much as the work. They make no arrays,
#: and their arguments outlive them.
INLINED: dict[str, Any] = {"forceinline": True, **_UNCOUNTED, **_INNER, **_RELAXED}
_HERE = Path(__file__).resolve().parent
_SCORES = _HERE.parent / "models" / "transcf" / "score_functions.py"
#: Keeps what is compiled from these files, and from those that `watch_source` names.
_keeper = Keeper(
    [
        *sources_in("transcf.kernels", _HERE),
        Source("transcf.models.transcf.score_functions", _SCORES),
    ]
)


def compiled(function: Function) -> Function:
    """Compile a function to machine code on first use and keep the result on disk."""
    return cast(Function, _keeper.keep(numba.njit(**_CALLED, **_RELAXED)(function)))


def compiled_strictly(function: Function) -> Function:
    """Like `compiled`, but nothing about the arithmetic is relaxed."""
    return cast(Function, _keeper.keep(numba.njit(**_CALLED, error_model="numpy")(function)))


def inner(function: Function) -> Function:
    """Compile a function that only other kernels call, into these."""
    return cast(Function, numba.njit(**_INNER, **_LINKED, **_RELAXED)(function))


def pasted(function: Function) -> Function:
    """Like `inner`, for a function with one caller: it is compiled as part of its text."""
    return cast(Function, numba.njit(inline="always", **_INNER, **_RELAXED)(function))


def inlined(function: Function) -> Function:
    """Like `inner`, for the pieces of a hot loop; they make no arrays."""
    return cast(Function, numba.njit(**INLINED, **_LINKED)(function))


def part_of_kernels(function: Function) -> Function:
    """Like `inlined`, for a function of another room: kernels are kept until its module changes."""
    watch_source(function.__module__)
    return inlined(function)


def watch_source(module: str) -> None:
    """Compile kernels anew when this module, which they refer to, has changed."""
    path = sys.modules[module].__file__
    if path is not None:
        _keeper.watch(Source(module, Path(path).resolve()))


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
