"""Counter-based random numbers: the n-th draw of a stream is a function of its name and n.

A stream is named by integers (seed, epoch, purpose, index), so what a stratum draws depends neither
on the thread that runs it nor on what ran before. A state is a counter that `advance` moves on;
`mix` turns it into the draw. The mixing function is the finaliser of SplitMix64, a bijection of
64-bit words.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .decorators import inlined

Words: TypeAlias = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_UNIT = 2.0**-53


@inlined
def mix(word: np.uint64) -> np.uint64:
    """Scramble a 64-bit word; different words give different results."""
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@inlined
def advance(state: np.uint64) -> np.uint64:
    """The state of the next draw."""
    return state + STEP


@inlined
def below(word: np.uint64, bound: int) -> Any:
    """An integer in [0, bound) from the upper half of a random word, bound < 2**31."""
    return np.int64(((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@inlined
def below_low(word: np.uint64, bound: int) -> Any:
    """The same from the lower half, so that one word serves two draws."""
    return np.int64(((word & _LOW) * np.uint64(bound)) >> np.uint64(32))


@inlined
def upper_half(word: np.uint64) -> float:
    """Turn the upper half of a random word into a float in [0, 1)."""
    return float(word >> np.uint64(32)) * 2.0**-32


@inlined
def uniform(word: np.uint64) -> float:
    """A float in [0, 1) from a random word."""
    return float(word >> np.uint64(11)) * _UNIT


@inlined
def stream(seed: int, epoch: int, purpose: int, index: int) -> np.uint64:
    """The first state of the stream with this name."""
    state = mix(np.uint64(seed) + STEP)
    state = mix(state ^ (np.uint64(epoch) + STEP))
    state = mix(state ^ (np.uint64(purpose) + STEP))
    return mix(state ^ (np.uint64(index) + STEP))


#: `mix` of arrays of words, outside of kernels.
mix_words = cast(Callable[[Words], Words], cast(Any, mix).py_func)


def streams(seed: int, epoch: int, purpose: int, indices: Words) -> Words:
    """The first states of the streams with these names, outside of kernels: (n,)."""
    state = mix_words(np.array([seed], np.uint64) + STEP)
    for name in (np.uint64(epoch), np.uint64(purpose), indices):
        state = mix_words(state ^ (np.atleast_1d(name) + STEP))
    return state
