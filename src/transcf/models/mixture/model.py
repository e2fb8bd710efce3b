"""TransCFMixture: the model class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import polars as pl

from transcf.data.partitioned import PartitionedLog
from transcf.data.readers import as_interactions
from transcf.io.tensors import Arrays
from transcf.models import tables
from transcf.models.base import Recommender, init_from_params
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.mixture.batches import Events
from transcf.models.mixture.exact import ExactMixtureTraining
from transcf.models.mixture.fitted import Mixture
from transcf.models.mixture.settings import MixtureSettings
from transcf.models.mixture.training import MixtureTraining, popularity
from transcf.models.mixture.transitions import with_transitions
from transcf.models.training import TrainingRun


class TransCFMixture(Recommender[MixtureSettings]):
    """Mixture of translations: one for each item of the history, of which the nearest counts.

    With user vectors a_u, item vectors b_i and history vectors p_k the score is

        s(u, i) = c_i + log sum_k w_k exp(-tau |p_k - b_i|^2 - beta |a_u - b_i|^2)

    over the items k of the user's history, with w_k = d^-history_decay for the item d places ago,
    where events have times. It is trained with Adam on a softmax over
    each event and `shared_negatives` drawn items. New users are folded in from their item history.
    Without learned user vectors (`user_vectors`), a_u is the mean of the vectors b of the last
    items of the history, weighted by the inverse of their distance.
    With `popularity_correction` the softmax is over s(u, i) + popularity_correction log n_i for an
    item of n_i events, and scores leave the second term out.

    After training, `transitions` adds counts of items that follow each other: exp(c_i - tau
    |p_k - b_i|^2) becomes exp(c_i - tau |p_k - b_i|^2) + transitions Z_k T_ki, where T_ki is the
    share of item i among the items that follow item k within ten places (see `SequentialRules`)
    and Z_k the sum of the first term over all items. See docs/concepts/translations.md.

    Items without training interactions are never drawn, scored or recommended; users without any
    count as unknown.

    Attributes (after `fit`):
        user_vectors_: a, (n_users, dim) float32, learned or means of contexts.
        item_vectors_: b, (n_items, dim) float32.
        history_vectors_: p, (n_items, dim) float32, unless `tie_item_vectors`.
        item_bias_: c, (n_items,) float32.

    References:
        It extends the translations of Park, Kim, Xie, Yu: Collaborative Translational Metric
        Learning. ICDM 2018.

    Example:
        >>> from transcf import TransCFMixture, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = TransCFMixture(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "TransCF-mixture"
    #: Means of contexts in place of user vectors.
    _revision: ClassVar[int] = 3
    _divergence_hint: ClassVar[str] = "learning_rate (or tau, beta)"
    # The decay of the learning rate depends on the number of epochs.
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience",)
    __init__ = init_from_params(MixtureSettings)

    @property
    def _supports_distributed(self) -> bool:
        """Whether training can be distributed: with the fast solver."""
        return self.settings.solver == "fast"

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings = self._resolved(run)
        if isinstance(run.log, PartitionedLog):
            from transcf.models.partitioned import PartitionedEvents

            events: Events = PartitionedEvents.of_log(run.log, settings)
        else:
            events = Events.of(run.log, settings)
        added = popularity(events, settings)

        def restore(arrays: Arrays, known: TrainingData, settings: MixtureSettings) -> FittedScorer:
            bias = arrays["item_bias"] - added
            return self._restore(arrays | {"item_bias": bias}, known, settings)

        kind = MixtureTraining if settings.solver == "fast" else ExactMixtureTraining
        learned = run.run(run.solver(kind, events, settings), settings, restore)
        return with_transitions(learned, run)

    def _resolved(self, run: TrainingRun) -> MixtureSettings:
        """Choose between vectors of users and means of contexts; a refit keeps the choice."""
        log, before, settings = run.log, run.before, self.settings
        timed = log.timed if isinstance(log, PartitionedLog) else log.timestamps is not None
        if settings.user_vectors == "auto" and isinstance(before, Mixture):
            kept = before.is_context and timed
            settings = replace(settings, user_vectors="context" if kept else "learned")
        settings = settings.resolved(timed, log.user_counts)
        run.report["user_vectors"] = settings.user_vectors
        return settings

    def _restore(self, arrays: Arrays, known: TrainingData, settings: MixtureSettings) -> Mixture:
        return Mixture.from_arrays(arrays, known, settings)

    def _mixture(self) -> Mixture:
        learned = self._own()
        assert isinstance(learned, Mixture), "TransCFMixture learns nothing else"
        return learned

    def partial_fit(self, log: Any) -> Self:
        """Add interactions without training again.

        New users are placed as in `recommend_for`. New items are placed toward the mean of a_u
        over their first users, with the length and the bias that trained items of their popularity
        have. Trained vectors and biases stay as they are under their ids. Rows are in the order of
        ids, so row numbers, and the order of `user_vectors_` and its like, do change. Nothing is
        trained here: new items rank too low on some data and too high on others
        (`benchmarks/fold_in.py`), so fit again soon.

        Args:
            log: New interactions, with old or new ids, in any form that `fit` takes.

        Raises:
            DataError: A user shares no item with the training data, not even through others.

        Example:
            >>> import polars as pl
            >>> from transcf import TransCFMixture, read_interactions, synthesize
            >>> model = TransCFMixture(dim=8, epochs=1).fit(synthesize())
            >>> today = read_interactions(pl.DataFrame({"user": ["new"], "item": ["i001"]}))
            >>> model.partial_fit(today).recommend("new", k=3).shape
            (3, 4)
        """
        self._check_growing()
        log = as_interactions(log)
        return self._add(self._mixture().grown(log), log)

    def translation(self, pairs: Any) -> pl.DataFrame:
        """Return the translation vector of each pair.

        Args:
            pairs: Table with user and item columns, in any form that `read_interactions` takes.

        Returns:
            Table `user_id, item_id, translation` (a list of `dim` numbers), in the given order.
        """
        learned = self._mixture()
        return tables.translation_table(learned, pairs, learned.translations)
