"""Runs a study: on every dataset, settings chosen on validation data, then judged over seeds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from transcf.data.datasets import load_split
from transcf.data.datasets.catalog import CATALOG
from transcf.data.readers import open_data
from transcf.data.split import Split
from transcf.data.splitters import open_split, split_log
from transcf.experiments.candidate import Candidate
from transcf.experiments.comparison import Comparison, TableRun, Track, run_tables
from transcf.experiments.eval_config import EvalConfig
from transcf.experiments.experiment import Experiment, OnProgress
from transcf.experiments.store import Store
from transcf.experiments.study import DatasetPlan, ModelPlan, Study
from transcf.models.params import Number, Rule
from transcf.models.registry import current, model_class, preset_of
from transcf.protocols import protocol_named
from transcf.tuning.config import Config


def run_study(
    study: Study,
    on_progress: OnProgress = lambda text: None,
    track: Track = iter,
    store: Store | None = None,
) -> Iterator[Comparison]:
    """Run a study, dataset by dataset and protocol by protocol.

    A model that fails is noted and does not stop the others. After an interruption nothing more
    is run: what there is comes out.

    Args:
        study: What to compare.
        on_progress: Called with one line of text at every step.
        track: Passes the models of a dataset on, one by one.
        store: Where results are kept and taken from: with one, several processes may run the same
            study at a time; None runs everything and keeps nothing.

    Raises:
        ParameterError: A model, a preset or a parameter does not exist or is not allowed; before
            anything is run.
    """
    metric = study.paired_tests or study.metrics[0]
    tables = [
        TableRun(
            dataset.name,
            _candidates(study, dataset, protocol),
            partial(_experiment, study, dataset, protocol, on_progress, store),
            metric,
        )
        for dataset in study.datasets
        for protocol in study.by(dataset)
        if study.under(protocol, dataset)
    ]
    return run_tables(tables, track)


def _experiment(
    study: Study,
    dataset: DatasetPlan,
    protocol: str,
    on_progress: OnProgress,
    store: Store | None,
) -> Experiment:
    """Open the data of a table."""
    config = EvalConfig(protocol, part=study.part, at=study.lengths(), beyond=study.beyond)
    report = partial(_report_step, f"{dataset.name} ({protocol})", on_progress)
    filtered = "" if dataset.core is None else f", {dataset.core}-core"
    return Experiment(
        _split(dataset, protocol),
        config,
        range(study.seeds),
        report,
        store=store,
        dataset=dataset.name + filtered,
    )


def _report_step(dataset: str, on_progress: OnProgress, step: str) -> None:
    on_progress(f"{dataset}: {step}")


def _candidates(study: Study, dataset: DatasetPlan, protocol: str) -> list[Candidate]:
    candidates = [
        _candidate(plan, dataset, study.budget) for plan in study.under(protocol, dataset)
    ]
    for candidate in candidates:
        candidate.check()
    return candidates


def _candidate(plan: ModelPlan, dataset: DatasetPlan, budget: Any) -> Candidate:
    model, params = current(plan.name, dict(plan.params))
    named = {} if plan.preset is None else preset_of(model, plan.preset, dataset.name)
    named |= {} if plan.config is None else Config.read(plan.config, model).params
    rules = model_class(model)._rules()
    budget = budget if plan.budget is None else plan.budget
    if budget is not None and not plan.grid:
        # Some models use times unless told otherwise.
        untimed = {"recency": 0.0} if "recency" in rules and not plan.times else {}
        candidate = Candidate(plan.title, model, untimed | params)
        return candidate.within(budget, plan.times, named)
    choices = [
        {name: _value(value, rules.get(name)) for name, value in choice.items()}
        for choice in plan.choices()
    ]
    return Candidate(plan.title, model, named | params, choices)


def _value(value: Any, rule: Rule | None) -> Any:
    """Read "none" as None where a number is asked for: TOML has no word for it."""
    return None if value == "none" and isinstance(rule, Number) else value


def _split(dataset: DatasetPlan, protocol: str) -> Split:
    if dataset.core is not None:
        log = open_data(dataset.name, filter=f"{dataset.core}-core")
        return split_log(log, protocol)
    known = None if dataset.copy else CATALOG.get(dataset.name)
    if protocol_named(protocol).sampled and known is not None and not known.split_by_rule:
        # Beside published figures only the authors' own split will do, not one drawn here.
        return split_log(load_split(dataset.name), protocol)
    return open_split(dataset.name, protocol)
