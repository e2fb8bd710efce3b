"""What a table says of one model: settings chosen on validation data, figures of every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean
from typing import Any

from transcf.evaluation import Evaluation, average_seeds, summarize_seeds
from transcf.experiments.cells import Result

#: The floor that is in every table of data with times.
TIMED_BASELINE = "recent-popularity"
#: What every table of sampled figures has to say.
SAMPLED_NOTE = (
    "Sampled candidates favour models that rank rare items first: compare with inverse-popularity "
    "and with the full ranking."
)
#: What figures of the part that chose epochs or settings have to say.
CHOSEN_HERE_NOTE = (
    "Optimistic: these are figures of the validation part, which also chose epochs and settings."
)


@dataclass(frozen=True, eq=False)
class Run:
    """A model of a table, run with one or several seeds.

    Attributes:
        name: Stands for it in the table.
        results: One for each seed; a single one if the seed changes nothing.
        chosen: The settings that validation data chose.
        trials: What came of each setting that was tried on validation data; nothing if there was
            no choice.
    """

    name: str
    results: Sequence[Result]
    chosen: Mapping[str, Any] = field(default_factory=dict)
    trials: Sequence[Result] = ()

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """The figures, one for each seed."""
        return [found.evaluation for found in self.results if found.evaluation is not None]

    @property
    def first(self) -> Result:
        """What came of the first seed."""
        return self.results[0]

    @property
    def seconds(self) -> float:
        """Wall clock of one whole fit, mean over the seeds."""
        return mean(found.seconds for found in self.results)

    @property
    def parts(self) -> dict[str, float]:
        """`training_seconds` and `validation_seconds` of it, for models with epochs."""
        parts = [found.parts for found in self.results]
        return {name: mean(part[name] for part in parts) for name in parts[0]}

    @property
    def spent(self) -> float:
        """Seconds of all there was to do for it: trials, fits with every seed, and judging."""
        return sum(found.spent for found in (*self.trials, *self.results))

    @property
    def validation(self) -> float | None:
        """What chose settings and epochs, mean over the seeds; None if it was not asked for."""
        figures = [found.validation for found in self.results if found.validation is not None]
        return mean(figures) if figures else None

    @property
    def tried(self) -> int:
        """Settings that were tried and could be trained."""
        return sum(found.error is None for found in self.trials) or 1

    @property
    def untrained(self) -> list[str]:
        """Why others could not."""
        return [str(found.error) for found in self.trials if found.error is not None]

    @cached_property
    def full_ranking(self) -> Evaluation | None:
        """The same in full ranking, mean over the seeds, where a protocol samples candidates."""
        found = [entry.full_ranking for entry in self.results if entry.full_ranking is not None]
        return average_seeds(found, self.name) if found else None

    @property
    def stored(self) -> int:
        """How many of its cells were run before."""
        return sum(found.stored for found in (*self.trials, *self.results))

    @property
    def cells(self) -> int:
        """How many cells it has: trials and seeds."""
        return len(self.trials) + len(self.results)

    def notes(self) -> list[str]:
        """Warnings that belong to the figures."""
        first = self.evaluations[0]
        was_chosen = self.tried > 1 or self.first.chooses
        notes = {
            SAMPLED_NOTE: self.full_ranking is not None,
            CHOSEN_HERE_NOTE: first.part == "validation" and was_chosen,
            first.note: bool(first.note),
        }
        failed = [f"{self.name}: a setting did not train: {reason}" for reason in self.untrained]
        return [*(note for note, belongs in notes.items() if belongs), *failed]

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean`, `sd` over seeds and `se` over users of every metric."""
        return summarize_seeds(self.evaluations)

    def catalogue(self) -> dict[str, float]:
        """Figures of what is recommended, such as "coverage@10", mean over the seeds."""
        first = self.evaluations[0].catalogue
        return {name: mean(done.catalogue[name] for done in self.evaluations) for name in first}

    def averaged(self) -> Evaluation:
        """One evaluation with the figures of each user averaged over the seeds."""
        return average_seeds(self.evaluations, self.name)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        first, full = self.evaluations[0], self.full_ranking
        return {
            "model": self.name,
            "class": self.first.model,
            "parameters": dict(self.first.parameters),
            "chosen": dict(self.chosen),
            "tried": self.tried,
            "untrained": self.untrained,
            "validation": self.validation,
            "protocol": first.protocol,
            "ties": first.ties,
            "part": first.part,
            "split": first.split,
            "runs": len(self.evaluations),
            "users": first.users,
            "skipped": first.skipped,
            "metrics": self.summary(),
            "catalogue": self.catalogue(),
            "seconds": round(self.seconds, 3),
            **{part: round(seconds, 3) for part, seconds in self.parts.items()},
            "spent_seconds": round(self.spent, 3),
            "bytes": self.first.n_bytes,
            "best_epochs": [found.best_epoch for found in self.results],
            "curve": list(self.first.curve),
            "trials": _differing(self.trials),
            "cells": self.cells,
            "stored": self.stored,
            "notes": self.notes(),
            **({} if full is None else {"full_ranking": full.to_dict()["metrics"]}),
        }


def _differing(trials: Sequence[Result]) -> list[dict[str, Any]]:
    """The trials that could be trained: validation, and the settings in which they differ."""
    able = [found for found in trials if found.error is None]
    names = dict.fromkeys(name for found in able for name in found.parameters)
    free = [name for name in names if len({str(found.parameters.get(name)) for found in able}) > 1]
    return [
        {
            "parameters": {name: found.parameters.get(name) for name in free},
            "validation": found.validation,
        }
        for found in able
    ]
