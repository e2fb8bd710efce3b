"""TransCF: collaborative translational metric learning, and its ablations."""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar, cast

import polars as pl

from transcf.data.readers import as_interactions
from transcf.io.tensors import Arrays
from transcf.models import tables
from transcf.models.base import Recommender, init_from_params
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.training import TrainingRun
from transcf.models.transcf.fitted import Translated
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.transcf.solver import TransCFSettings, TransCFSolver

S = TypeVar("S")


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
