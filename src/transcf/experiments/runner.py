"""Runs a study: settings chosen on validation data, then judged, once for every seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import polars as pl

from transcf.data.filters import k_core
from transcf.data.sources import open_data, open_split
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.evaluation import (
    Evaluation,
    Validation,
    average_seeds,
    compare,
    evaluate,
    summarize_seeds,
)
from transcf.evaluation.protocols import Protocol
from transcf.experiments.study import DatasetPlan, ModelPlan, Study
from transcf.models.base import Recommender
from transcf.models.presets import preset
from transcf.models.registry import create, model_class


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the table: a model on a dataset.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the model.
        users: Evaluated users.
        runs: Seeds that were run.
        metrics: `mean`, `sd`, `se` of every metric, of the part that the study judges by.
        validation: What chose epochs and settings, of the kept models: mean over the seeds.
        published: Figures that others published, where there are some.
        chosen: The values that validation data chose from the grid.
        seconds: Fitting time of one run, mean over the seeds.
        evaluations: One per seed.
    """

    dataset: str
    model: str
    users: int
    runs: int
    metrics: dict[str, dict[str, float]]
    validation: float
    published: dict[str, float]
    chosen: dict[str, Any]
    seconds: float
    evaluations: tuple[Evaluation, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: value for name, value in vars(self).items() if name != "evaluations"}


def run_study(study: Study, say: Callable[[str], None] = lambda text: None) -> Iterator[Row]:
    """Run a study, row by row.

    Args:
        study: What to compare.
        say: Told what is about to be done.
    """
    for dataset in study.datasets:
        split = _split(dataset, study.protocol)
        for plan in study.models:
            say(f"{dataset.name}: {plan.label or plan.name}")
            yield _row(study, dataset, plan, split)


def paired_tests(rows: list[Row], metric: str) -> pl.DataFrame:
    """Test every pair of models on every dataset, each user's figures averaged over the seeds.

    Returns:
        The table of `compare` with the dataset in front; empty where there are no pairs.
    """
    tables = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        of_dataset = [average_seeds(r.evaluations, r.model) for r in rows if r.dataset == dataset]
        if len(of_dataset) > 1:
            table = compare(of_dataset, metric)
            tables.append(table.insert_column(0, pl.lit(dataset).alias("dataset")))
    return pl.concat(tables) if tables else pl.DataFrame()


def _split(dataset: DatasetPlan, protocol: str) -> Split:
    if dataset.core is None:
        return open_split(dataset.name, protocol)
    log = k_core(open_data(dataset.name), dataset.core, dataset.core)
    return leave_one_out(log, "random" if log.timestamps is None else "time")


def _row(study: Study, dataset: DatasetPlan, plan: ModelPlan, split: Split) -> Row:
    protocol = cast(Protocol, study.protocol)
    validation = Validation.of(split, protocol)
    chosen = _choose(plan, dataset.name, split, validation)
    takes_seed = "random_state" in model_class(plan.name).rules
    evaluations, figures, seconds = [], [], 0.0
    for seed in range(study.seeds if takes_seed else 1):
        model = _make(plan, dataset.name, chosen, seed)
        started = time.perf_counter()
        model.fit(split.train, validation)
        seconds += time.perf_counter() - started
        figures.append(validation(model))
        evaluations.append(evaluate(model, split, protocol, part=study.part, at=study.lengths()))
    summary = summarize_seeds(evaluations)
    return Row(
        dataset=dataset.name,
        model=plan.label or plan.name,
        users=evaluations[0].users,
        runs=len(evaluations),
        metrics={name: summary[name] for name in study.metrics},
        validation=sum(figures) / len(figures),
        published=dataset.published.get(plan.name, {}),
        chosen=chosen,
        seconds=round(seconds / len(evaluations), 2),
        evaluations=tuple(evaluations),
    )


def _choose(plan: ModelPlan, dataset: str, split: Split, validation: Validation) -> dict[str, Any]:
    """Return the combination with the best validation figure (seed 0), the test part unread."""
    choices = plan.choices()
    if len(choices) == 1:
        return choices[0]

    def figure(choice: dict[str, Any]) -> float:
        return validation(_make(plan, dataset, choice, 0).fit(split.train, validation))

    return max(choices, key=figure)


def _make(plan: ModelPlan, dataset: str, chosen: dict[str, Any], seed: int) -> Recommender:
    named = {} if plan.preset is None else preset(plan.name, plan.preset, dataset)
    params = named | plan.params | chosen
    if "random_state" in model_class(plan.name).rules:
        params["random_state"] = seed
    return create(plan.name, **params)
