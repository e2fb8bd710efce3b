"""How models are evaluated: the same for all models of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from transcf.data.split import Split
from transcf.data.splitters import check_split, usual_protocol
from transcf.errors import ParameterError, is_word, shown
from transcf.evaluation import EpochRecorder, Evaluation, Validation, evaluate
from transcf.evaluation.metrics import check_lengths, metric_names
from transcf.evaluation.protocols import Part
from transcf.evaluation.ranks import Ties, check_ties
from transcf.models.base import Recommender
from transcf.protocols import Protocol, protocol_named


@dataclass(frozen=True)
class EvalConfig:
    """Protocol, ties, part and list lengths.

    Attributes:
        protocol: Name of the protocol; None until it is known how the data is split (`on`).
        ties: How equal scores count.
        part: "validation" or "test".
        at: Lengths of the lists.
        beyond: Whether to go beyond accuracy, as `evaluate` does.
        with_validation: Whether results have the validation metric, too; models without epochs
            need another fit for it.
    """

    protocol: str | None = None
    ties: Ties = "pessimistic"
    part: Part = "test"
    at: tuple[int, ...] = (10, 20)
    beyond: bool = False
    with_validation: bool = True

    def __post_init__(self) -> None:
        """Check the values before anything is fitted."""
        if self.protocol is not None:
            protocol_named(self.protocol)
        check_ties(self.ties)
        check_lengths(self.at)
        if not is_word(self.part, get_args(Part)):
            allowed = " or ".join(map(repr, get_args(Part)))
            raise ParameterError(f"part={shown(self.part)} is not allowed; it must be {allowed}.")

    def on(self, split: Split) -> Self:
        """Return the configuration with the default protocol of a split, unless one is named.

        Raises:
            EvaluationError: The protocol needs another kind of split.

        Example:
            >>> from transcf import open_split
            >>> EvalConfig().on(open_split("synthetic")).protocol
            'forward'
        """
        if self.protocol is None:
            return replace(self, protocol=usual_protocol(split))
        check_split(split, self.protocol)
        return self

    def check_metric(self, metric: str) -> None:
        """Raise a `ParameterError` unless the metric is evaluated."""
        judged = metric_names(self.at, beyond=self.beyond, protocol=self.protocol)
        if not is_word(metric, judged):
            more = "" if self.beyond else ", or go beyond accuracy (beyond=True, --beyond)"
            raise ParameterError(
                f"metric={shown(metric)} is not among what is judged ({', '.join(judged)}): choose "
                f"one of them, or other lengths of lists{more}."
            )

    @property
    def usual_metric(self) -> str:
        """The default metric of paired tests: N@10, or N at the first length."""
        return f"N@{10 if 10 in self.at else self.at[0]}"

    def validation(self, split: Split) -> Validation:
        """Return the validation that chooses epochs and parameters."""
        return Validation.of(split, self.protocol, self.ties, self.at)

    def evaluate(self, model: Recommender[Any], split: Split) -> Evaluation:
        """Evaluate a fitted model."""
        return evaluate(
            model,
            split,
            self.protocol,
            ties=self.ties,
            part=self.part,
            at=self.at,
            beyond=self.beyond,
        )

    def full_ranking(self, model: Recommender[Any], split: Split) -> Evaluation | None:
        """Evaluate in full ranking where the protocol samples candidates, for comparison."""
        if self._rules is None or not self._rules.sampled:
            return None
        return replace(self, protocol=None).evaluate(model, split)

    def recorder(self, model: Recommender[Any], split: Split) -> EpochRecorder | None:
        """Return a recorder of the metrics of all epochs, where the protocol picks the best."""
        if not (self.picks_epochs_on_test and model._has_epochs()):
            return None
        return EpochRecorder(split, ties=self.ties, at=self.at, beyond=self.beyond)

    @property
    def refits(self) -> bool:
        """Whether a model is refitted on train and validation before it is evaluated."""
        return self._rules is not None and self._rules.refit and self.part == "test"

    @property
    def picks_epochs_on_test(self) -> bool:
        """Whether the metrics are those of the best epoch on test, as in the published tables."""
        return self._rules is not None and self._rules.best_on_test and self.part == "test"

    @property
    def _rules(self) -> Protocol | None:
        return None if self.protocol is None else protocol_named(self.protocol)
