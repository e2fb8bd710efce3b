"""Runs a study: settings chosen on validation data, then judged, once for every seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import polars as pl

from transcf.data.filters import k_core
from transcf.data.sources import open_data, open_split
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.evaluation import Evaluation, average_seeds, compare
from transcf.evaluation.protocols import Protocol
from transcf.experiments.judging import Judging
from transcf.experiments.runs import Contender, Say, run
from transcf.experiments.study import DatasetPlan, ModelPlan, Study
from transcf.models.presets import preset


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
        full_ranking: Metrics of the first seed in full ranking, where a protocol samples.
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
    full_ranking: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: value for name, value in vars(self).items() if name != "evaluations"}


def run_study(study: Study, say: Say = lambda text: None) -> Iterator[Row]:
    """Run a study, row by row.

    Args:
        study: What to compare.
        say: Told about every step.
    """
    for dataset in study.datasets:
        split = _split(dataset, study.protocol)
        for plan in study.models:
            yield _row(study, dataset, plan, split, say)


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


def _row(study: Study, dataset: DatasetPlan, plan: ModelPlan, split: Split, say: Say) -> Row:
    named = {} if plan.preset is None else preset(plan.name, plan.preset, dataset.name)
    contender = Contender(plan.label or plan.name, plan.name, named | plan.params, plan.choices())
    judging = Judging(cast(Protocol, study.protocol), part=study.part, at=study.lengths())
    seeds = range(study.seeds)
    done = run(contender, split, judging, seeds, lambda step: say(f"{dataset.name}: {step}"))
    assert done.validation is not None, "it was fitted here"
    summary = done.summary()
    return Row(
        dataset=dataset.name,
        model=done.name,
        users=done.evaluations[0].users,
        runs=len(done.evaluations),
        metrics={name: summary[name] for name in study.metrics},
        validation=done.validation,
        published=dataset.published.get(plan.name, {}),
        chosen=dict(done.chosen),
        seconds=round(done.seconds, 2),
        evaluations=tuple(done.evaluations),
        full_ranking={} if done.full is None else _means(done.full, study.metrics),
    )


def _means(evaluation: Evaluation, metrics: Sequence[str]) -> dict[str, float]:
    return {name: evaluation.metrics[name].mean for name in metrics}
