"""A score drawn for each (user, item): what a ranking without any knowledge is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.models._tensors import stored
from transcf.models.base import Held, Recommender, State
from transcf.models.rules import SEED, Rule
from transcf.retrieval.scorer import Scores
from transcf.training.options import FitOptions

Words: TypeAlias = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Random(Recommender):
    """Scores that are uniform in [0, 1) and depend on seed, user and item alone.

    Formula: `score(u, i) = h(seed, u, i) / 2^24` with h the top 24 bits of a SplitMix64 stream
    that the seed and the user start and the item walks along. A pair therefore has the same
    score in any block, order or thread.

    Reference: Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
    (OOPSLA 2014), for the hash.

    Args:
        random_state: Seed; another one gives another ranking.

    Attributes (after `fit`):
        user_keys_: (n_users,) uint64, where the stream of each user starts.

    Example:
        >>> import polars as pl
        >>> from transcf import Random, read_interactions
        >>> log = read_interactions(pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 9]}))
        >>> table = Random(random_state=3).fit(log).recommend(1)
        >>> table["item_id"].to_list(), table["rank"].to_list()
        ([9], [1])
    """

    name = "random"
    rules: ClassVar[Mapping[str, Rule]] = {"random_state": SEED}

    user_keys_: Words

    def __init__(self, *, random_state: int = 0) -> None:
        """Keep the hyper-parameters."""
        self.random_state = random_state

    def _learn(self, train: Interactions, validation: Held, options: FitOptions) -> None:
        self._restore({"user_keys": self._keys(0, train.n_users)})

    def _keys(self, first: int, count: int) -> Words:
        """Where the streams of some users start, (count,)."""
        seed = _mix(np.array([self.random_state], dtype=np.uint64) + _STEP)
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return _mix(_mix(numbers + _STEP) ^ seed)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        items = np.arange(len(self.items_), dtype=np.int32)
        scores = np.empty((len(users), len(items)), dtype=np.float32)
        for row, key in enumerate(self.user_keys_[users]):  # one row at a time bounds memory
            scores[row] = _scores(np.full(1, key, dtype=np.uint64), items)
        return scores

    def _score_histories(self, histories: sp.csr_array) -> Scores:
        # Guests share one stream, that of the user after the last.
        items = np.arange(len(self.items_), dtype=np.int32)
        return np.tile(_scores(self._keys(len(self.users_), 1), items), (histories.shape[0], 1))

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return _scores(self.user_keys_[users], items)

    def _state(self) -> State:
        return {"user_keys": self.user_keys_}

    def _restore(self, state: State) -> None:
        self.user_keys_ = stored(state, "user_keys", np.uint64, (len(self.users_),))


def _mix(words: Words) -> Words:
    """Scramble words: the finaliser of SplitMix64, a bijection."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _scores(keys: Words, items: Rows) -> Scores:
    words = _mix(keys + (items.astype(np.uint64) + np.uint64(1)) * _STEP)
    return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
