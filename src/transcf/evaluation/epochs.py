"""Figures of every epoch, for the protocol that picks the best of them on the test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transcf.data.split import Split
from transcf.errors import EvaluationError
from transcf.evaluation.protocols import evaluate
from transcf.evaluation.ranks import Ties
from transcf.evaluation.results import Evaluation
from transcf.retrieval.scorer import Scorer

#: What these figures are, wherever they are shown.
OPTIMISTIC_NOTE = "Optimistic: for each metric the best test value over all epochs."


class EpochRecorder:
    """Judge every epoch on the test part and keep the best value of each metric.

    Training never sees these figures: it is called at the end of an epoch and returns nothing.

    Args:
        split: Needs candidates.
        ties: How to count equal scores.
        at: Lengths N of the lists.
        beyond: Whether to record the AUC, too.

    Example:
        >>> from transcf import BPR, open_split
        >>> from transcf.models.training import FitOptions
        >>> model, split = BPR(dim=8, epochs=2), open_split("synthetic", "paper")
        >>> recorder = EpochRecorder(split)
        >>> options = FitOptions(on_epoch=lambda epoch: recorder(epoch.snapshot))
        >>> _ = model.fit(split.train, split.validation, options)
        >>> print(recorder.result().note)
        Optimistic: for each metric the best test value over all epochs.
    """

    def __init__(
        self,
        split: Split,
        *,
        ties: Ties = "pessimistic",
        at: Sequence[int] = (10, 20),
        beyond: bool = False,
    ) -> None:
        """Start without any epoch."""
        self._split = split
        self._ties, self._at, self._beyond = ties, tuple(at), beyond
        self._best: Evaluation | None = None

    def __call__(self, snapshot: Scorer) -> None:
        """Judge what is learned after an epoch."""
        now = evaluate(
            snapshot,
            self._split,
            "paper-as-published",
            ties=self._ties,
            at=self._at,
            beyond=self._beyond,
        )
        self._best = now if self._best is None else _best_of(self._best, now)

    def result(self) -> Evaluation:
        """Return the best value of each metric, labelled as optimistic.

        The figures of single users are those of the metric's own best epoch.
        """
        if self._best is None:
            raise EvaluationError("No epoch was recorded: fit the model with this recorder first.")
        return replace(self._best, note=OPTIMISTIC_NOTE)


def _best_of(old: Evaluation, new: Evaluation) -> Evaluation:
    """Take each metric from the evaluation that is better in it; the earlier one wins ties."""
    before, after = old.metrics, new.metrics
    better = [name for name in after if after[name].mean > before[name].mean]
    return replace(old, per_user=old.per_user.with_columns(new.per_user.select(better)))
