"""Rows of vectors as kernels want them: flat, each padded with zeros to whole lanes."""

from . import Array, aligned_zeros
from .lanes import LANES


def padded_width(dim: int) -> int:
    """Numbers of a padded row."""
    return -(-dim // LANES) * LANES


def padded(vectors: Array) -> Array:
    """Rows (n, dim) with zeros up to whole lanes, flat."""
    count, dim = vectors.shape
    flat = aligned_zeros((count * padded_width(dim),), vectors.dtype)
    flat.reshape(count, -1)[:, :dim] = vectors
    return flat


def unpadded(flat: Array, width: int, dim: int) -> Array:
    """The rows (n, dim) of padded ones."""
    return flat.reshape(-1, width)[:, :dim].copy()
