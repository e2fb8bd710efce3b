"""Routines of scipy's LAPACK that release the interpreter lock.

`scipy.linalg.lapack` keeps the lock, so that no other thread runs while a large matrix is inverted:
neither a progress bar nor the thread that waits for Ctrl-C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np
from scipy.linalg import cython_lapack

from . import Array


def invert_lower(matrix: Array) -> bool:
    """Replace the lower triangle of a positive definite matrix by that of its inverse, in place.

    Args:
        matrix: (n, n), float32 or float64, in column order; its upper triangle is not read.

    Returns:
        Whether it has an inverse in this precision.
    """
    assert matrix.flags.f_contiguous
    kind = "d" if matrix.dtype == np.float64 else "s"
    size, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    for routine in ("potrf", "potri"):
        call = _routine(f"{kind}{routine}")
        length = ctypes.byref(size)
        call(b"L", length, ctypes.c_void_p(matrix.ctypes.data), length, ctypes.byref(info))
        if info.value:
            return False
    return True


def _routine(name: str) -> Callable[..., None]:
    capsules: Mapping[str, object] = cython_lapack.__pyx_capi__
    capsule = capsules[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer_of.restype = ctypes.c_void_p
    arguments = [ctypes.c_char_p, *[ctypes.c_void_p] * 4]
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *arguments)(address)
