"""Seeds that callers give."""

from __future__ import annotations

from transcf.errors import ParameterError, shown


def check_seed(seed: int) -> int:
    """Return the seed if it is a whole number that fits the generator."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ParameterError(f"seed={shown(seed)} is not allowed; it must be an integer >= 0.")
    return seed
