"""Figures of every epoch, for the protocol that picks the best of them on the test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transcf.data.split import Split
from transcf.errors import EvaluationError
from transcf.evaluation.protocols import evaluate, stored_candidates
from transcf.evaluation.ranks import Ties
from transcf.evaluation.result import Evaluation
from transcf.evaluation.validation import Validation
from transcf.retrieval.scorer import Scorer


class EpochRecorder(Validation):
    """Judge every epoch on validation, and on the side keep what it does on the test part.

    It is given to `fit` in place of the validation data, so any training loop that validates
    after an epoch feeds it. Training itself sees the validation figure only.

    Args:
        split: Needs candidates.
        ties: How to count equal scores.
        at: Lengths N of the lists.

    Example:
        >>> recorder = EpochRecorder(split)  # doctest: +SKIP
        >>> model.fit(split.train, recorder)  # doctest: +SKIP
        >>> recorder.result().metrics["H@10"].mean  # doctest: +SKIP
        0.2641
    """

    def __init__(
        self, split: Split, *, ties: Ties = "pessimistic", at: Sequence[int] = (10, 20)
    ) -> None:
        """Prepare the paper's validation and an empty record."""
        super().__init__(
            split.validation,
            known=split.train.by_user,
            candidates=stored_candidates(split, "paper-as-published"),
            metric="H@10",
            ties=ties,
        )
        self._split = split
        self._at = tuple(at)
        self._best: Evaluation | None = None

    def __call__(self, scorer: Scorer) -> float:
        """Record the test figures of this epoch; return the validation figure."""
        now = evaluate(scorer, self._split, "paper-as-published", ties=self.ties, at=self._at)
        self._best = now if self._best is None else _best_of(self._best, now)
        return super().__call__(scorer)

    def result(self) -> Evaluation:
        """Return the best value of each metric over the recorded epochs, labelled as optimistic.

        A metric's figures of single users and its error are those of its own best epoch.
        """
        if self._best is None:
            raise EvaluationError("No epoch was recorded: fit a model with this recorder first.")
        return self._best


def _best_of(old: Evaluation, new: Evaluation) -> Evaluation:
    """Take each metric from the evaluation that is better in it; the earlier one wins ties."""
    better = [name for name in old.metrics if new.metrics[name].mean > old.metrics[name].mean]
    return replace(
        old,
        per_user=old.per_user.with_columns(new.per_user.select(better)),
        metrics=old.metrics | {name: new.metrics[name] for name in better},
        epochs=old.epochs + 1,
    )
