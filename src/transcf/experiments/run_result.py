"""The result of a run, its form in files, and the results of a candidate over all seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import nan
from statistics import mean
from typing import Any, Self, TypedDict, get_type_hints

import polars as pl

from transcf.data.parquet_check import damage_of
from transcf.errors import DivergenceError, TransCFError
from transcf.evaluation import Evaluation, average_seeds, summarize_seeds
from transcf.models.base import Recommender
from transcf.models.event_weights import WeightSettings
from transcf.models.params import values_of

#: The baseline that is added to tables of data with times.
TIMED_BASELINE = "recent-popularity"
SAMPLED_NOTE = (
    "Sampled candidates favour models that rank rare items first: compare with inverse-popularity "
    "and with the full ranking."
)
CHOSEN_HERE_NOTE = (
    "Optimistic: these are figures of the validation part, which also chose epochs and settings."
)


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run; it has all that tables need, so that the model can be deleted.

    Attributes:
        model: Class of the model.
        parameters: Parameters of the fitted model.
        seconds: Wall clock of fitting; the sum if a model is fitted twice.
        parts: `training_seconds` and `validation_seconds` of it, for models with epochs.
        spent: Wall clock of the whole run, including evaluation.
        validation: Metric on the validation part; None if it was not computed.
        best_epoch: The epoch that was kept; None for models without epochs.
        curve: `epoch`, `loss` and `metric` (None if an epoch was not validated) of each epoch.
        n_bytes: Size of the fitted model.
        chooses: Whether the model chose something on validation data by itself.
        times: Whether it uses times of events; None if it cannot.
        evaluation: Metrics of every user; None for a trial.
        full_ranking: The same in full ranking, if the protocol samples candidates.
        error: Why there are no results.
        stored: Whether the result is from the cache.
    """

    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    spent: float = 0.0
    validation: float | None = None
    best_epoch: int | None = None
    curve: Sequence[Mapping[str, Any]] = ()
    n_bytes: int = 0
    chooses: bool = False
    times: bool | None = None
    evaluation: Evaluation | None = None
    full_ranking: Evaluation | None = None
    error: TransCFError | None = None
    stored: bool = False

    @classmethod
    def of(cls, model: Recommender[Any], **found: Any) -> Self:
        """Add the properties of a fitted model to what was measured."""
        settings = model.settings_
        can_use_times = isinstance(settings, WeightSettings) and model.learned_.known.timed
        about = {
            "parameters": values_of(settings),
            "best_epoch": model.best_epoch_,
            "n_bytes": sum(array.nbytes for array in model.learned_.arrays().values()),
            "chooses": model._chooses(model.learned_.known.timed),
            "times": settings.uses_times if can_use_times else None,
        }
        return cls(type(model).__name__, **{**about, **found})


class _Step(TypedDict):
    epoch: int
    loss: float | None
    metric: float | None


class _Figures(TypedDict):
    """An evaluation without the metrics of users."""

    model: str
    protocol: str
    ties: str
    subset: str
    skipped: dict[str, int]
    catalogue: dict[str, float | None]
    note: str
    split: str


#: Files with the metrics of users, by the part of a result that has them.
FILES = {"evaluation": "users.parquet", "full_ranking": "full.parquet"}
#: Types of the JSON form of a result.
RESULT_TYPES = {
    **{name: kind for name, kind in get_type_hints(RunResult).items() if name != "stored"},
    **dict.fromkeys(FILES, _Figures | None),
    "curve": list[_Step],
    "error": str | None,
}


def to_dict(result: RunResult) -> dict[str, Any]:
    """Return the JSON form, without the metrics of users."""
    content = {one.name: getattr(result, one.name) for one in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in FILES:
        if (found := content[name]) is not None:
            content[name] = {key: getattr(found, key) for key in _Figures.__annotations__}
    return content


def from_parts(content: Mapping[str, Any], files: Mapping[str, bytes]) -> RunResult:
    """Read a result from its JSON form and its files.

    Raises:
        ValueError: A file is damaged.
        KeyError: A file is missing.
    """
    read = {**content, "stored": True}
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in FILES.items():
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            table = _parse_table(files[file], file)
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": table})
    return RunResult(**read)


def _parse_table(content: bytes, name: str) -> pl.DataFrame:
    if (damage := damage_of(content)) is not None:
        raise ValueError(f"{name} is damaged: {damage}")
    table = pl.read_parquet(content)
    figures = table.drop("user_id")
    if not all(kind.is_float() for kind in figures.dtypes) or not figures.width * figures.height:
        raise ValueError(f"{name} has no figures of users")
    if figures.null_count().sum_horizontal().item():
        raise ValueError(f"{name} has missing figures")
    return table


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """Results of a candidate: one line of a table.

    Attributes:
        name: Name of the candidate in tables.
        results: One for each seed; a single one if the seed has no effect.
        chosen: The parameters that were chosen on validation data.
        trials: Results of all parameters that were tried; empty if there was no choice.
    """

    name: str
    results: Sequence[RunResult]
    chosen: Mapping[str, Any] = field(default_factory=dict)
    trials: Sequence[RunResult] = ()

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations, one for each seed."""
        return [found.evaluation for found in self.results if found.evaluation is not None]

    @property
    def first(self) -> RunResult:
        """The result of the first seed."""
        return self.results[0]

    @property
    def seconds(self) -> float:
        """Wall clock of one whole fit, mean over the seeds."""
        return mean(found.seconds for found in self.results)

    @property
    def spent(self) -> float:
        """Seconds of all runs: trials, and fits and evaluations with every seed."""
        return sum(found.spent for found in (*self.trials, *self.results))

    @property
    def minutes(self) -> float:
        """Minutes of all trials, or of all runs if there were no trials."""
        return sum(found.spent for found in self.trials or self.results) / 60

    @property
    def validation(self) -> float | None:
        """Metric on the validation part, mean over the seeds; None if it was not computed."""
        figures = [found.validation for found in self.results if found.validation is not None]
        return mean(figures) if figures else None

    @property
    def tried(self) -> int:
        """Number of trials that could be trained."""
        return sum(found.error is None for found in self.trials) or 1

    @property
    def untrained(self) -> list[str]:
        """Errors of the other trials."""
        return [str(found.error) for found in self.trials if found.error is not None]

    @cached_property
    def full_ranking(self) -> Evaluation | None:
        """The same in full ranking, mean over the seeds, if the protocol samples candidates."""
        found = [entry.full_ranking for entry in self.results if entry.full_ranking is not None]
        return average_seeds(found, self.name) if found else None

    @property
    def stored(self) -> int:
        """Number of runs that were in the cache."""
        return sum(found.stored for found in (*self.trials, *self.results))

    @property
    def cells(self) -> int:
        """Number of runs: trials and seeds."""
        return len(self.trials) + len(self.results)

    def notes(self) -> list[str]:
        """Warnings that belong to the figures."""
        first = self.evaluations[0]
        was_chosen = self.tried > 1 or self.first.chooses
        notes = {
            SAMPLED_NOTE: self.full_ranking is not None,
            CHOSEN_HERE_NOTE: first.subset == "validation" and was_chosen,
            first.note: bool(first.note),
        }
        failed = [f"{self.name}: a setting did not train: {reason}" for reason in self.untrained]
        return [*(note for note, belongs in notes.items() if belongs), *failed]

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean`, `sd` over seeds and `se` over users of every metric."""
        return summarize_seeds(self.evaluations)

    def averaged(self) -> Evaluation:
        """One evaluation with the metrics of each user averaged over the seeds."""
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
            "minutes": round(self.minutes, 3),
            "untrained": self.untrained,
            "validation": self.validation,
            "protocol": first.protocol,
            "ties": first.ties,
            "subset": first.subset,
            "split": first.split,
            "runs": len(self.evaluations),
            "users": first.users,
            "skipped": first.skipped,
            "metrics": self.summary(),
            "catalogue": {
                name: mean(done.catalogue[name] for done in self.evaluations)
                for name in first.catalogue
            },
            "seconds": round(self.seconds, 3),
            **{
                part: round(mean(found.parts[part] for found in self.results), 3)
                for part in self.first.parts
            },
            "spent_seconds": round(self.spent, 3),
            "bytes": self.first.n_bytes,
            "trials": _trials(self.trials),
            "best_epochs": [found.best_epoch for found in self.results],
            "curve": list(self.first.curve),
            "cells": self.cells,
            "stored": self.stored,
            "notes": self.notes(),
            **({} if full is None else {"full_ranking": full.to_dict()["metrics"]}),
        }


def _trials(trials: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Return the results of trials, with the parameters in which they differ."""
    names = dict.fromkeys(name for found in trials for name in found.parameters)
    free = [n for n in names if len({str(found.parameters.get(n)) for found in trials}) > 1]
    return [
        {
            "parameters": {name: found.parameters.get(name) for name in free},
            "validation": found.validation,
            "seconds": found.spent,
            "error": None if found.error is None else str(found.error),
        }
        for found in trials
    ]
