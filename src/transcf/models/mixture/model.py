"""TransCFMixture: the model class."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from transcf.data.partitioned import PartitionedLog
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays
from transcf.kernels.ahead import is_first_use
from transcf.kernels.mixture_search import find_candidates
from transcf.models.base import init_from_params
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.mixture.fitted import Mixture
from transcf.models.mixture.scoring import compile_lists
from transcf.models.mixture.training import (
    FEW_EVENTS,
    Events,
    MixtureSettings,
    MixtureTraining,
    training_bias,
)
from transcf.models.mixture.transitions import with_transitions
from transcf.models.training import TrainingRun
from transcf.models.transcf.model import TranslatingModel


class TransCFMixture(TranslatingModel[MixtureSettings]):
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
    #: Larger strengths of transitions.
    _revision: ClassVar[int] = 4
    _divergence_hint: ClassVar[str] = "learning_rate (or tau, beta)"
    _supports_distributed: ClassVar[bool] = True
    __init__ = init_from_params(MixtureSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        run.settings = settings = self._with_user_vectors(run)
        if isinstance(run.log, PartitionedLog):
            from transcf.models.partitioned import mixture_events_of

            events = mixture_events_of(run.log, settings)
        else:
            events = Events.of(run.log, settings)
        added = training_bias(events, settings)

        def restore(arrays: Arrays, known: TrainingData, settings: MixtureSettings) -> Mixture:
            """Make the fitted mixture from tensors of the training, whose biases contain more."""
            bias = arrays["item_bias"] - added
            return self._restore(arrays | {"item_bias": bias}, known, settings)

        trainable = run.solver(MixtureTraining, events)
        if run.options.cluster is None and is_first_use(find_candidates):
            compile_lists(restore(trainable.tensors(), run.known, settings))
        learned = run.run(trainable, restore)
        return with_transitions(learned, run)

    def _with_user_vectors(self, run: TrainingRun) -> MixtureSettings:
        """Choose between vectors of users and means of contexts; a refit keeps the choice."""
        chosen, timed = self.settings.user_vectors, run.known.timed
        if chosen == "context" and not timed:
            raise UnsupportedError(
                'user_vectors="context" needs the order of events, and this log has no times: add '
                'a column of times, or set user_vectors="learned".'
            )
        if chosen == "auto":
            counts = run.log.user_counts.astype(np.float64)
            is_context = np.square(counts).sum() <= FEW_EVENTS * counts.sum()
            if isinstance(run.before, Mixture):
                is_context = run.before.is_context
            chosen = "context" if timed and is_context else "learned"
        run.report["user_vectors"] = chosen
        return replace(self.settings, user_vectors=chosen)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: MixtureSettings) -> Mixture:
        return Mixture.from_arrays(arrays, known, settings)
