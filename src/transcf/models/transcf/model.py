"""TransCF: collaborative translational metric learning, and its ablations.

`TransCFSolver` trains in cache-sized strata with stochastic neighbour gradients, O(dim) per triple.
An epoch is a function of (parameters, seed, epoch number) and does not depend on the number of
threads. The expected step equals the exact gradient with one exception: the step of a user's mean
goes to an item in the block of the sample, so with several blocks it meets the sample's own items
too often. Tests bound the error of the mean step of items by a tenth of its length; steps of users
have none.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import polars as pl

from transcf.data.readers import as_interactions
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import ItemPlacement, average_items, push_to_users
from transcf.kernels.translation import TransCFRates, TranslationExtra
from transcf.models import tables
from transcf.models.base import Recommender, init_from_params
from transcf.models.communicator import Communicator
from transcf.models.event_weights import EventWeights
from transcf.models.factors import NORM_POWERS, NormConstraint, constrain_norms
from transcf.models.families import TripleSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import Choice, setting, settings
from transcf.models.training import TrainingRun
from transcf.models.transcf.fitted import Translated
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import PairwiseSolver, Problem, StratumLayout, rank_weights

S = TypeVar("S")

#: Weight of the squared biases of a triple in the loss, if items have biases.
BIAS_DECAY = 0.01
#: Step size of biases, relative to the learning rate: a bias moves in every triple of its item.
BIAS_RATE = 0.2


@settings()
class ObjectiveSettings:
    """Hyper-parameters of the published loss."""

    margin: float = setting(1.0, "Margin of the hinge loss.", low=0)
    reg_distance: float = setting(
        0.05, "Weight of the distance between users and their items in the loss.", low=0
    )
    reg_neighborhood: float = setting(
        0.2, "Weight of the distance between vectors and their neighbourhoods in the loss.", low=0
    )


@settings(init_scale=0.01, event_weights=EventWeights(recency=4.0))
class TransCFSettings(TripleSettings, ObjectiveSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    variant: str = setting(
        "translation",
        "The score: "
        + " ".join(f'"{name}": {kind.__doc__}' for name, kind in SCORE_FUNCTIONS.items()),
        rule=Choice(tuple(SCORE_FUNCTIONS)),
    )
    tie_neighbors: bool = setting(
        False, "Whether the neighbourhood term also moves the neighbours, as in the paper."
    )
    negatives: int = setting(
        20, "Negative items drawn per triple, of which the hardest is used.", low=1, high=1000
    )
    rank_weighting: bool = setting(
        True, "Whether triples with more violating negatives have a larger weight."
    )
    item_bias: bool = setting(True, "Whether items have a bias.")
    neighborhood_updates: int = setting(
        4,
        "Updates of the neighbourhood means per epoch; fewer where they would take longer than "
        "the training between them.",
        low=1,
    )
    norm_constraint: NormConstraint = setting(
        "norm",
        "Vectors are projected into the unit ball after each epoch, those of users after each "
        "visit, and within an epoch any vector that is ten times as long. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not constrain them.',
    )

    @property
    def title(self) -> str:
        """Name of the model in tables."""
        return SCORE_FUNCTIONS[self.variant].title

    @property
    def bias_decay(self) -> float:
        """Weight of squared biases in the loss."""
        return BIAS_DECAY

    def rank_weights(self, n_items: int) -> Array:
        """Return the weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)


class TransCFSolver(PairwiseSolver[TransCFSettings]):
    """Trains TransCF and its ablations; the rows are [a | q] of users and [b | n | m] of items."""

    _user_vectors, _item_vectors = 2, 3

    def __init__(
        self, problem: Problem, settings: TransCFSettings,
        dtype: type[np.floating[Any]] = np.float32, layout: StratumLayout | None = None,
        comm: Communicator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(problem, settings, dtype, layout, comm)
        self._user_share, self._item_share = (
            (1 / np.maximum(1, counts)).astype(dtype)
            for counts in (problem.by_user.counts, problem.item_counts)
        )
        # Nearly that of the base class: rounded like the shares, on which stored results depend.
        self._samples_per_item = (self._layout.samples * self._user_share).astype(np.float32)
        weights = settings.rank_weights(len(problem.active_items)).astype(dtype)
        self._extra = TranslationExtra(
            pending=aligned_zeros((self._layout.n_groups, self._dim), dtype), rank_weights=weights
        )

    def _rates(self, rate: float) -> TransCFRates:
        settings, number = self._settings, self._dtype
        tie = 2 * rate * settings.reg_neighborhood
        return SCORE_FUNCTIONS[settings.variant].rates(
            learning_rate=number(rate),
            margin=number(settings.margin),
            reg_distance=number(settings.reg_distance),
            reg_neighborhood=number(settings.reg_neighborhood),
            tie=number(tie),
            tie_back=number(tie if settings.tie_neighbors else 0),
            bias_rate=number(BIAS_RATE * rate),
            bias_decay=number(settings.bias_decay),
            negatives=settings.negatives,
            item_bias=settings.item_bias,
            bound=NORM_POWERS[settings.norm_constraint],
        )

    def _cuts(self) -> list[int]:
        # An update costs about as much as reading two candidates per interaction, and should not
        # take longer than the training between two updates.
        layout, settings = self._layout, self._settings
        affordable = layout.triples * (1 + settings.negatives) / (2 * max(1, layout.interactions))
        return layout.cuts(min(settings.neighborhood_updates, max(1, int(affordable))))

    def _pack(self, order: Array) -> None:
        super()._pack(order)
        places = np.zeros(self._problem.n_items, np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        by_user = self._problem.by_user
        self._placement = ItemPlacement(by_user.indptr, by_user.indices, places)
        self._placed_share = self._item_share[order]

    def _prepare(self) -> TranslationExtra:
        """Set q to the mean of each user's items, and n to the mean of each item's users."""
        rows, dim = self._rows, self._dim
        average_items(rows.users, rows.items, dim, self._placement, self._user_share)
        self._comm.average_users(rows, dim, self._builder.strata, self._placed_share)
        return self._extra

    def _settle(self, rates: TransCFRates) -> None:
        """Move users by the steps that the neighbourhoods of their items collected."""
        rows, placement, share = self._rows, self._placement, self._placed_share
        push_to_users(rows.users, rows.items, self._dim, placement, share, rates.bound)

    def _finish(self, users: Array, items: Array, triples: int, rate: float) -> bool:
        how = self._settings.norm_constraint
        return constrain_norms(users, how) and constrain_norms(items, how)


class TranslatingModel(Recommender[S]):
    """Base of the models that translate users toward items."""

    def partial_fit(self, log: Any) -> Self:
        """Add interactions without training again.

        New users are placed by their items, as in `recommend_for`. New items are placed toward the
        mean of the (translated) vectors of their first users, with the length and the bias that
        trained items of their popularity have. Trained vectors and biases stay as they are under
        their ids, while means over neighbourhoods and histories are renewed. Rows are in the order
        of ids, so row numbers, and the order of `user_vectors_` and its like, do change. Nothing is
        trained here, and it shows (`benchmarks/fold_in.py`): new items come out too low on some
        data and too high on other, so fit again soon.

        Args:
            log: New interactions, with old or new ids, in any form that `fit` takes.

        Raises:
            DataError: A user shares no item with the training data, not even through others.

        Example:
            >>> import polars as pl
            >>> from transcf import TransCF, read_interactions, synthesize
            >>> model = TransCF(dim=8, epochs=1).fit(synthesize())
            >>> today = read_interactions(pl.DataFrame({"user": ["new"], "item": ["i001"]}))
            >>> model.partial_fit(today).recommend("new", k=3).shape
            (3, 4)
        """
        self._check_growing()
        log, learned = as_interactions(log), cast(Any, self._without_trend())
        return self._add(learned.grown(log), log)

    def translation(self, pairs: Any) -> pl.DataFrame:
        """Return the translation vector of each pair.

        Args:
            pairs: Table with user and item columns, in any form that `read_interactions` takes.

        Returns:
            Table `user_id, item_id, translation` (a list of `dim` numbers), in the given order.
        """
        learned = cast(Any, self._without_trend())
        return tables.translation_table(learned, pairs, learned.translations)


class TransCF(TranslatingModel[TransCFSettings]):
    """Collaborative translational metric learning, as published.

    A user is translated toward an item by the product of two neighbourhoods: q_u is the mean of b
    over the user's items, n_i the mean of a over the item's users, and

        s(u, i) = -|a_u + q_u * n_i - b_i|^2 + c_i

    with user vectors a_u, item vectors b_i and item biases c_i (only with `item_bias`). `variant`
    selects this score or one of the paper's ablations. The model is trained on triples of a user u,
    an item i of the user and another item j, by stochastic gradient descent on

        w max(0, margin - s(u, i) + s(u, j)) + reg_distance |a_u + q_u * n_i - b_i|^2
            + reg_neighborhood (|a_u - q_u|^2 + |b_i - n_i|^2) + 0.01 (c_i^2 + c_j^2)

    where j is the hardest of `negatives` drawn items, and w grows with the estimated rank of i if
    `rank_weighting` is set (w = 1 otherwise). Defaults were chosen on validation data;
    `TransCF.paper` has the training of the paper.

    New users are folded in from their item history: q is the mean of their items' vectors, and a
    the mean of b_i - q * n_i, where later items have larger weights if the model was trained on
    events with times. `recommend_for(history, steps=10)` adds gradient steps on the training loss.
    Items without training interactions are never drawn, scored or recommended; users without any
    count as unknown.

    Attributes (after `fit`):
        user_vectors_: a, (n_users, dim) float32.
        item_vectors_: b, (n_items, dim) float32.
        user_neighborhoods_: q, (n_users, dim) float32.
        item_neighborhoods_: n, (n_items, dim) float32.
        item_bias_: c, (n_items,) float32.

    References:
        Park, Kim, Xie, Yu: Collaborative Translational Metric Learning. ICDM 2018.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = TransCF(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    _divergence_hint: ClassVar[str] = "learning_rate (or margin, reg_distance, reg_neighborhood)"
    #: Registry names, and the parameters of each.
    _variants: ClassVar[dict[str, dict[str, Any]]] = {
        kind.title.lower(): {"variant": name} if name != "translation" else {}
        for name, kind in SCORE_FUNCTIONS.items()
    }
    _not_in_all: ClassVar[dict[str, str]] = {"transcf-emb": "it ranks as transcf does"}
    _supports_distributed: ClassVar[bool] = True
    __init__ = init_from_params(TransCFSettings)

    @property
    def name(self) -> str:
        """Name in tables: that of the variant."""
        settings = self.settings_ if self.is_fitted else self.settings
        return settings.title

    def _learn(self, run: TrainingRun) -> FittedScorer:
        return run.run(run.solver(TransCFSolver, run.problem()), self._restore)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: TransCFSettings
    ) -> Translated:
        return Translated.from_arrays(arrays, known, settings)
