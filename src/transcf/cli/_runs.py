"""Fit and judge a model, once for each seed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from transcf.cli._options import make_model
from transcf.cli._output import progress_note
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.data.split import Split
    from transcf.evaluation import Evaluation
    from transcf.evaluation.protocols import Part, Protocol
    from transcf.evaluation.ranks import Ties
    from transcf.models.base import Recommender

#: What every table of sampled figures has to say.
SAMPLED_NOTE = (
    "Sampled candidates favour models that rank rare items first: compare with inverse-popularity "
    "and with the full ranking."
)


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
        for option, word, allowed in (
            ("protocol", protocol, ("strict", "paper", "paper-as-published")),
            ("ties", ties, ("pessimistic", "realistic", "optimistic")),
            ("part", part, ("test", "validation")),
        ):
            if word not in allowed:
                raise ParameterError(
                    f"--{option} {word} is not understood: use {', '.join(allowed)}."
                )
        lengths = [length.strip() for length in at.split(",")]
        if not all(length.isdigit() and int(length) for length in lengths):
            raise ParameterError(f"--at {at} is not understood: write numbers such as 10,20.")
        return cls(
            protocol=cast("Protocol", protocol),
            ties=cast("Ties", ties),
            part=cast("Part", part),
            at=tuple(map(int, lengths)),
        )

    def judge(self, model: Recommender, split: Split) -> Evaluation:
        """Evaluate a fitted model."""
        from transcf.evaluation import evaluate

        return evaluate(model, split, self.protocol, ties=self.ties, part=self.part, at=self.at)

    def beside(self, model: Recommender, split: Split) -> Evaluation | None:
        """Return the figures in full ranking that stand beside sampled ones."""
        if self.protocol == "strict":
            return None
        return replace(self, protocol="strict").judge(model, split)

    def fit_and_judge(self, model: Recommender, split: Split) -> Evaluation:
        """Fit on the training part, with the epoch chosen as the protocol says, and evaluate."""
        from transcf.evaluation import EpochRecorder, Validation
        from transcf.models.iterative import IterativeRecommender
        from transcf.training.options import FitOptions

        validation = Validation.of(split, self.protocol)
        on_test = self.protocol == "paper-as-published" and self.part == "test"
        if on_test and isinstance(model, IterativeRecommender):
            recorder = EpochRecorder(model, split, ties=self.ties, at=self.at)
            model.fit(split.train, validation, FitOptions(on_epoch=recorder))
            return recorder.result()
        return self.judge(model.fit(split.train, validation), split)


@dataclass(frozen=True)
class Run:
    """One model of a table, fitted with one or several seeds.

    Attributes:
        name: As it was asked for.
        model: The model of the first seed.
        evaluations: One for each seed; a single one if the seed changes nothing.
        seconds: Time for fitting and evaluating, of all seeds together.
        full: The model of the first seed in full ranking, where a protocol samples candidates.
    """

    name: str
    model: Recommender
    evaluations: Sequence[Evaluation]
    seconds: float
    full: Evaluation | None = None

    def notes(self) -> list[str]:
        """Warnings that belong to the figures."""
        sampled = None if self.full is None else SAMPLED_NOTE
        return [note for note in (sampled, self.evaluations[0].note) if note]

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean`, `sd` over seeds and `se` over users of every metric."""
        from transcf.evaluation import summarize_seeds

        return summarize_seeds(self.evaluations)

    def averaged(self) -> Evaluation:
        """One evaluation with the figures of each user averaged over the seeds."""
        from transcf.evaluation import average_seeds

        return average_seeds(self.evaluations, self.name)

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
            "runs": len(self.evaluations),
            "users": first.users,
            "skipped": first.skipped,
            "metrics": self.summary(),
            "catalogue": first.catalogue,
            "seconds": round(self.seconds, 3),
            "notes": self.notes(),
            **({} if self.full is None else {"full_ranking": self.full.to_dict()["metrics"]}),
        }


def run(
    name: str,
    params: Mapping[str, Any],
    split: Split,
    judging: Judging,
    seeds: Sequence[int],
    threads: int | None = None,
) -> Run:
    """Fit and judge a model with each seed; a model without chance is run once."""
    models, evaluations = [], []
    started = time.perf_counter()
    for seed in seeds:
        progress_note(f"fitting {name}, seed {seed}")
        models.append(make_model(name, params, seed=seed, threads=threads))
        evaluations.append(judging.fit_and_judge(models[-1], split))
        if "random_state" not in models[-1].rules:
            break
    seconds = time.perf_counter() - started
    return Run(name, models[0], evaluations, seconds, judging.beside(models[0], split))
