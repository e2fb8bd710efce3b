"""FISM's epochs: every user visits once, in a new order each time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transcf.data.interactions import Interactions
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.fism_places import choose_places
from transcf.kernels.fism_visits import People, Scratch, Vectors, VisitRates, Visits, run_visits
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.kernels.sampling import deal_items
from transcf.models.event_weights import InteractionWeights
from transcf.models.fism.settings import FISMSettings
from transcf.models.training import EpochStats
from transcf.models.vectors import first_vectors

#: Most users at once: enough for several threads, few enough for their rows to stay in a cache.
MOST_AT_ONCE = 256


class Training:
    """The vectors of items, and what an epoch does to them.

    Args:
        train: What to learn from.
        settings: The model's.
        at_once: Users that visit at once; None chooses by the data.
    """

    def __init__(
        self, train: Interactions, settings: FISMSettings, at_once: int | None = None
    ) -> None:
        """Draw the first vectors."""
        self._settings = settings
        self._at_once = visitors_at_once(train, settings) if at_once is None else at_once
        self._by_user, self._chances = train.by_user, Chances.of(train, settings)
        active = np.flatnonzero(train.by_item.counts).astype(np.int32)
        self._people = People(train.by_user.indptr, train.by_user.indices, active)
        counts = train.by_user.counts
        # Whoever has nothing, or everything, cannot be asked to tell one from the other.
        can_visit = (counts > 0) & (counts < len(active))
        self._visitors = np.flatnonzero(can_visit).astype(np.int32)
        self._row = padded_width(settings.dim)
        self._scratch: Scratch | None = None
        generator = np.random.default_rng(settings.random_state)
        sizes = (train.n_items, train.n_items)
        history, items = first_vectors(sizes, settings.dim, settings.init_scale, generator)
        self.load_tensors(
            {
                "history_vectors": history,
                "item_vectors": items,
                "item_bias": np.zeros(train.n_items, np.float32),
            }
        )

    def run_epoch(self, number: int) -> EpochStats:
        """Let every user visit, most of them once."""
        vectors, settings = self._vectors, self._settings
        dtype = vectors.bias.dtype
        visits = self._visits(number)
        longest = int(self._by_user.counts.max())
        scales = np.zeros(longest + 1, dtype)
        scales[1:] = np.arange(1.0, longest + 1) ** -settings.alpha
        losses = np.zeros(len(visits.users))
        run_visits(
            self._rates(dtype), vectors, self._row, self._people, scales, visits,
            self._room_for(visits), settings.random_state, number, losses,
        )  # fmt: skip
        samples = int(visits.drawn[-1])
        if settings.loss == "rmse":
            samples += samples // settings.negatives
        return EpochStats(float(losses.sum()) / max(1, samples), samples)

    def _visits(self, number: int) -> Visits:
        """Say who visits and when.

        Negatives move after a visit, by the sum of what each of their draws asked for. Whoever
        lacks few items would draw each many times: they come several times instead.
        """
        settings, chances = self._settings, self._chances
        users = deal_items(self._visitors, settings.random_state, number)
        own = self._by_user.counts[users]
        each = settings.samples_per_user
        positives = own if each is None else np.full_like(own, each)
        rng = np.random.default_rng((settings.random_state, number))
        if chances is not None:
            positives = chances.positives(users, positives, rng)
        most = np.maximum(1, (len(self._people.active) - own) // settings.negatives)
        times = -(-positives // most)
        who = np.repeat(np.arange(len(users)), times)
        turn = np.arange(len(who)) - _offsets(times)[who]
        # All first visits before all second ones: those of a user are seldom side by side.
        order = np.argsort(turn, kind="stable")
        who, turn = who[order], turn[order]
        skipped = turn * most[who]
        taken = np.minimum(most[who], positives[who] - skipped)
        places = np.empty(0, np.int32)
        if chances is not None:
            places, starts = np.empty(taken.sum(), np.int32), rng.random(len(users))
            choose_places(
                self._people.indptr, chances.weights, users[who], positives[who], starts[who],
                skipped, taken, places,
            )  # fmt: skip
        offsets = _offsets(own[who]), _offsets(settings.negatives * taken)
        return Visits(users[who], skipped, *offsets, self._at_once, places)

    def _rates(self, dtype: np.dtype[Any]) -> VisitRates:
        settings, number = self._settings, dtype.type
        rate, negatives = settings.learning_rate, settings.negatives
        shrink = rate * settings.regularization
        pairwise = settings.loss == "auc"
        return VisitRates(
            learning_rate=number(rate),
            shrink=number(shrink),
            keep=number(1 - shrink),
            keep_history=number(1 - shrink * (negatives if pairwise else 1)),
            bias_shrink=number(rate * settings.bias_regularization),
            offset=number(1 / (1 + negatives)),
            negatives=negatives,
            pairwise=pairwise,
        )

    def _room_for(self, visits: Visits) -> Scratch:
        """Memory for the largest batch."""
        begins = np.arange(0, len(visits.users), self._at_once)
        ends = np.minimum(begins + self._at_once, len(visits.users))
        own, drawn = (
            int((offsets[ends] - offsets[begins]).max(initial=0))
            for offsets in (visits.own, visits.drawn)
        )
        row, dtype, kept = self._row, self._vectors.bias.dtype, self._scratch
        if kept is not None and kept.own_bias.dtype == dtype:
            own, drawn = max(own, len(kept.own_rows)), max(drawn, len(kept.drawn_rows))
            if (own, drawn) == (len(kept.own_rows), len(kept.drawn_rows)):
                return kept
        self._scratch = Scratch(
            own_rows=np.zeros(own, np.int32),
            own_history=aligned_zeros((own * row,), dtype),
            own_items=aligned_zeros((own * row,), dtype),
            own_bias=np.zeros(own, dtype),
            drawn_rows=np.zeros(drawn, np.int32),
            drawn_items=aligned_zeros((drawn * row,), dtype),
            drawn_bias=np.zeros(drawn, dtype),
            working=aligned_zeros((self._at_once, 4 * row), dtype),
        )
        return self._scratch

    def tensors(self) -> Arrays:
        """Return p, q and the biases, without the columns that fill up the rows."""
        dim, row = self._settings.dim, self._row
        return {
            "history_vectors": unpadded(self._vectors.history, row, dim),
            "item_vectors": unpadded(self._vectors.items, row, dim),
            "item_bias": self._vectors.bias.copy(),
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Put p, q and the biases back."""
        self._vectors = Vectors(
            history=padded(tensors["history_vectors"]),
            items=padded(tensors["item_vectors"]),
            bias=tensors["item_bias"].copy(),
        )


class Chances(NamedTuple):
    """How often events are taken as positives, where they weigh more or less.

    Attributes:
        weights: Of each event among those of its user, (n_events,) float32.
        of_users: How much users count, 1 on average over the events, (n_users,).
    """

    weights: Array
    of_users: Array

    @classmethod
    def of(cls, train: Interactions, settings: FISMSettings) -> Chances | None:
        """Weigh the events of a log; None where all weigh the same."""
        events = InteractionWeights.of(train, settings.event_weights)
        return None if events.is_even else cls(events.within_users, events.of_users)

    def positives(self, users: Array, usual: Array, rng: np.random.Generator) -> Array:
        """How many positives users have in an epoch: the usual number times how much they count.

        What is left of a whole number is the chance of one more.
        """
        whole: Array = np.floor(usual * self.of_users[users] + rng.random(len(users)))
        return whole.astype(np.int64)


def visitors_at_once(train: Interactions, settings: FISMSettings) -> int:
    """Choose how many users visit at once, which is part of what is computed.

    They all start from the same vectors, and what several of them do to one item adds up: too many
    would overshoot. So on average no item belongs to more than one of them or is drawn by more than
    one, as far as a single visit allows.
    """
    counts = train.by_item.counts
    positives = settings.samples_per_user or len(train) / np.count_nonzero(train.by_user.counts)
    before_drawn_again = np.count_nonzero(counts) / (positives * settings.negatives)
    return int(np.clip(min(train.n_users / counts.max(), before_drawn_again), 1, MOST_AT_ONCE))


def _offsets(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
