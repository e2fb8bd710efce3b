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

#: Matrices of this many bytes are inverted by halves: OpenBLAS crashes on larger ones if it uses
#: several threads (seen with scipy 1.17 and 16,384 rows of float64).
LARGE_BYTES = 2**31


def invert_lower(matrix: Array) -> bool:
    """Replace the lower triangle of a positive definite matrix by that of its inverse, in place.

    Args:
        matrix: (n, n), float32 or float64, in column order; its upper triangle is not read.

    Returns:
        Whether it has an inverse in this precision.
    """
    assert matrix.flags.f_contiguous
    return _invert(matrix) if matrix.nbytes < LARGE_BYTES else _invert_halves(matrix)


def _invert(matrix: Array) -> bool:
    kind = "d" if matrix.dtype == np.float64 else "s"
    size, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    for routine in ("potrf", "potri"):
        call = _routine(f"{kind}{routine}")
        length = ctypes.byref(size)
        call(b"L", length, ctypes.c_void_p(matrix.ctypes.data), length, ctypes.byref(info))
        if info.value:
            return False
    return True


def _invert_halves(matrix: Array) -> bool:
    """Invert [[P, Q'], [Q, R]] by P and its Schur complement R - Q P^-1 Q'."""
    half = len(matrix) // 2
    lower = matrix[half:, :half]
    first = np.asfortranarray(matrix[:half, :half])
    if not invert_lower(first):
        return False
    first = _symmetric(first)
    product = lower @ first
    rest = np.asfortranarray(matrix[half:, half:] - product @ lower.T)
    if not invert_lower(rest):
        return False
    matrix[half:, half:] = rest
    lower[:] = -(_symmetric(rest) @ product)
    matrix[:half, :half] = first - product.T @ lower
    return True


def _symmetric(lower: Array) -> Array:
    """Return a symmetric matrix, given its lower triangle."""
    whole: Array = np.tril(lower)
    whole += np.tril(lower, -1).T
    return whole


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
