"""How models are judged: one set of rules for all models of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transcf.data.split import Split
from transcf.evaluation import EpochRecorder, Evaluation, Validation, evaluate
from transcf.evaluation.protocols import Part, Protocol
from transcf.evaluation.ranks import Ties
from transcf.models.base import Recommender
from transcf.models.iterative import IterativeRecommender
from transcf.training.options import FitOptions


@dataclass(frozen=True)
class Judging:
    """Protocol, ties, part and lengths.

    Attributes:
        protocol: Name of the protocol.
        ties: How equal scores count.
        part: "validation" or "test".
        at: Lengths of the lists.
    """

    protocol: Protocol
    ties: Ties = "pessimistic"
    part: Part = "test"
    at: tuple[int, ...] = (10, 20)

    def judge(self, model: Recommender, split: Split) -> Evaluation:
        """Evaluate a fitted model."""
        return evaluate(model, split, self.protocol, ties=self.ties, part=self.part, at=self.at)

    def beside(self, model: Recommender, split: Split) -> Evaluation | None:
        """Return the figures in full ranking that stand beside sampled ones."""
        if self.protocol == "strict":
            return None
        return replace(self, protocol="strict").judge(model, split)

    def fit_and_judge(
        self, model: Recommender, split: Split, validation: Validation, options: FitOptions
    ) -> Evaluation:
        """Fit on the training part, with the epoch chosen as the protocol says, and evaluate."""
        if not (self.picks_epochs_on_test and isinstance(model, IterativeRecommender)):
            return self.judge(model.fit(split.train, validation, options), split)
        recorder = EpochRecorder(model, split, ties=self.ties, at=self.at)

        def on_epoch(number: int) -> None:
            recorder(number)
            if options.on_epoch is not None:
                options.on_epoch(number)

        model.fit(split.train, validation, replace(options, on_epoch=on_epoch))
        return recorder.result()

    @property
    def picks_epochs_on_test(self) -> bool:
        """Whether the figures are the best of all epochs, as in the published tables."""
        return self.protocol == "paper-as-published" and self.part == "test"
