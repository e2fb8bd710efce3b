"""Fit and judge a model, once for each seed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transcf.cli._options import make_model
from transcf.cli._output import progress_note
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.data.split import Split
    from transcf.evaluation.protocols import Part, Protocol
    from transcf.evaluation.ranks import Ties
    from transcf.evaluation.results import Evaluation
    from transcf.models.base import Recommender


@dataclass(frozen=True)
class Judging:
    """How models are judged; the same for all models of a table.

    Attributes:
        protocol: Name of the protocol.
        ties: How equal scores count.
        part: "validation" or "test".
        at: Lengths of the lists.
    """

    protocol: Protocol
    ties: Ties
    part: Part
    at: tuple[int, ...]

    @classmethod
    def read(cls, protocol: str, ties: str, part: str, at: str) -> Judging:
        """Check the options of a command, before anything is fitted."""
        from transcf.evaluation.protocols import check_protocol
        from transcf.evaluation.ranks import check_ties

        check_protocol(protocol)
        check_ties(ties)
        if part not in ("test", "validation"):
            raise ParameterError(f"--part {part} is not understood: use test or validation.")
        lengths = [length.strip() for length in at.split(",")]
        if not all(length.isdigit() and int(length) for length in lengths):
            raise ParameterError(f"--at {at} is not understood: write numbers such as 10,20.")
        known: Any = (protocol, ties, part)
        return cls(*known, tuple(map(int, lengths)))

    def judge(self, model: Recommender, split: Split) -> Evaluation:
        """Evaluate a fitted model."""
        from transcf.evaluation import evaluate

        return evaluate(model, split, self.protocol, ties=self.ties, part=self.part, at=self.at)

    def fit_and_judge(self, model: Recommender, split: Split) -> Evaluation:
        """Fit on the training part, with the epoch chosen as the protocol says, and evaluate."""
        from transcf.evaluation import EpochRecorder, Validation
        from transcf.models.iterative import IterativeRecommender
        from transcf.training.options import FitOptions

        validation = Validation.of(split, self.protocol)
        on_test = self.protocol == "paper-as-published" and self.part == "test"
        if not (on_test and isinstance(model, IterativeRecommender)):
            return self.judge(model.fit(split.train, validation), split)
        recorder = EpochRecorder(model, split, ties=self.ties, at=self.at)
        model.fit(split.train, validation, FitOptions(on_epoch=recorder))
        return recorder.result()


@dataclass(frozen=True)
class Run:
    """One model of a table, fitted with one or several seeds.

    Attributes:
        name: As it was asked for.
        model: The model of the first seed.
        evaluations: One for each seed.
        seconds: Time for fitting and evaluating, of all seeds together.
    """

    name: str
    model: Recommender
    evaluations: Sequence[Evaluation]
    seconds: float

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean`, `sd` over seeds and `se` over users of every metric."""
        from transcf.evaluation import summarize_seeds

        return summarize_seeds(self.evaluations)

    def averaged(self) -> Evaluation:
        """One evaluation with the figures of each user averaged over the seeds."""
        first = self.evaluations[0]
        columns = [name for name in first.per_user.columns if name != "user_id"]
        total = first.per_user.select(columns)
        for other in self.evaluations[1:]:
            total = total + other.per_user.select(columns)
        mean = total / len(self.evaluations)
        return replace(
            first, model=self.name, per_user=mean.insert_column(0, first.per_user["user_id"])
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        first = self.evaluations[0]
        return {
            "model": self.name,
            "class": type(self.model).__name__,
            "parameters": self.model.get_params(),
            "protocol": first.protocol,
            "ties": first.ties,
            "part": first.part,
            "seeds": len(self.evaluations),
            "users": first.users,
            "skipped": first.skipped,
            "metrics": self.summary(),
            "catalogue": first.catalogue,
            "seconds": round(self.seconds, 3),
            **({"note": first.note} if first.note else {}),
        }


def run(
    name: str,
    params: Mapping[str, Any],
    split: Split,
    judging: Judging,
    seeds: Sequence[int],
    threads: int | None = None,
) -> Run:
    """Fit and judge a model with each seed; a model without randomness is run once."""
    from transcf.models.registry import model_class

    if "random_state" not in model_class(name).rules:
        seeds = seeds[:1]
    models, evaluations = [], []
    started = time.perf_counter()
    for seed in seeds:
        progress_note(f"fitting {name}, seed {seed}")
        model = make_model(name, params, seed=seed, threads=threads)
        evaluations.append(judging.fit_and_judge(model, split))
        models.append(model)
    return Run(name, models[0], evaluations, time.perf_counter() - started)
