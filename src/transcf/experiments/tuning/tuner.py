"""`tune`: search for the best settings of one model."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from transcf import __version__
from transcf.data.splitters import split_log, usual_protocol
from transcf.errors import MissingExtraError, ParameterError, shown
from transcf.evaluation.validation import validation_metric
from transcf.experiments.store import Store
from transcf.experiments.tuning.result import Tuning
from transcf.interrupts import StopRequest, stop_request
from transcf.models.registry import current
from transcf.tuning.budgets import Budget
from transcf.tuning.search import Search, Trial

if TYPE_CHECKING:
    from transcf.experiments.tuning.objective import Objective
    from transcf.experiments.tuning.study import TrialStudy
    from transcf.experiments.tuning.workers import Cluster, Workers

#: A wait without a timeout can miss Ctrl-C.
_POLL_SECONDS = 0.1
#: Called with the trials so far, before the first trial and after each.
OnTrial: TypeAlias = Callable[[Tuning], None]


def tune(
    data: Any,
    model: str,
    *,
    trials: int = 100,
    metric: str | None = None,
    protocol: str | None = None,
    sampler: str = "tpe",
    space: str = "default",
    params: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
    seed: int = 0,
    jobs: int = 1,
    cluster: Cluster | None = None,
    minutes: float | None = None,
    prune: bool = True,
    storage: str | Path | None = None,
    study: str | None = None,
    store: str | Path | None = None,
    dataset: str | None = None,
    on_trial: OnTrial | None = None,
) -> Tuning:
    """Search for the settings of a model with the best metric on validation data.

    The test part of the data is not used. The first trial has the defaults, and no setting is tried
    twice. A setting that cannot be trained fails its trial only. Ctrl-C ends the search and keeps
    the finished trials. Needs the extra `tune` (Optuna).

    Args:
        data: A split, a log, a table, or anything that `open_data` accepts.
        model: Name of the model, as in `available()`.
        trials: Number of trials, including those in `storage`.
        metric: Validation metric, such as "N@10"; by default that of the protocol.
        protocol: As for `evaluate`; by default "forward" if the log has timestamps, else "strict".
        sampler: "tpe" (learns from earlier trials), "random" or "grid".
        space: Search space: "default", or "paper" for the grid of TransCF's paper.
        params: Parameters of all trials; they are not searched.
        start: Parameters that replace the defaults, and are searched.
        seed: Seed of the models, the sampler and the split.
        jobs: Trials to run at the same time, in processes that share the threads. The result of a
            trial does not depend on it, but TPE and pruning know fewer trials.
        cluster: Run trials on a cluster instead, such as `transcf.distributed.Cluster(workers=4)`.
            Only this process uses `storage`.
        minutes: Start no trial after this time.
        prune: Stop trials whose metric is below the median of earlier trials at the same epoch.
        storage: SQLite file or database URL for the trials; None keeps them in memory. A search
            continues with the trials that it finds, and several processes can share it.
        study: Name of Optuna's study; by default derived from everything that results depend on.
        store: Folder of the run cache; None runs every trial.
        dataset: Name of the data in the run cache.
        on_trial: Called with the trials so far, before the first trial and after each.

    Raises:
        ParameterError: An argument is not valid; raised before any fit.
        MissingExtraError: Optuna is not installed.

    Example:
        >>> from transcf import synthesize, tune
        >>> log = synthesize(users=200, items=60, interactions=3000, seed=1)
        >>> found = tune(log, "ease", trials=6, sampler="grid")
        >>> found.best_params["regularization"], found.table()["regularization"].to_list()
        (100.0, [300.0, 3.0, 10.0, 30.0, 100.0, 300.0])
    """
    try:
        from transcf.experiments.tuning.objective import Objective
        from transcf.experiments.tuning.study import TrialStudy
        from transcf.experiments.tuning.workers import open_workers
    except ImportError as error:
        raise MissingExtraError("Tuning", "tune") from error
    _check_numbers(jobs, minutes)
    if cluster is not None and jobs > 1:
        raise ParameterError(f"jobs={jobs} and cluster contradict each other: give one of them.")
    budget = Budget(trials, sampler, space)
    model, start = current(model, dict(start or {}))
    model, params = current(model, dict(params or {}))
    fixed, metric = {**start, **params}, metric or validation_metric(protocol)
    split = split_log(data, protocol, seed=seed)
    objective = Objective(
        model,
        fixed,
        split,
        metric,
        protocol or usual_protocol(split),
        seed,
        store=None if store is None else Store(store).absolute(),
        dataset=dataset or (str(data) if isinstance(data, str | Path) else "data"),
    )
    objective.make({})._check_params()
    objective.validation  # noqa: B018 - checks the metric before the first fit
    timed = split.train.timestamps is not None
    search = Search(model, budget, fixed=params, start=start, seed=seed, timed=timed)
    about = _about(objective, budget)
    if storage is not None and study is None:
        text = json.dumps(about, sort_keys=True)
        study = f"{model}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    known = Tuning(
        model, fixed, metric, search.history, search.space, search.usual, sampler, study or "",
        str(storage or ""),
    )  # fmt: skip
    report = partial(on_trial or (lambda known: None), known)
    recorded = TrialStudy(search, about, None if storage is None else str(storage), study, report)
    report()
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    is_pruned = prune and objective.make({})._has_epochs()
    interrupted = False
    try:
        with (
            stop_request() as stop,
            recorded.running(),
            open_workers(objective, jobs, cluster) as workers,
        ):
            _run(recorded, workers, search, is_pruned, end, stop)
    except KeyboardInterrupt:
        interrupted = True
    return replace(known, trials=tuple(search.history), is_interrupted=interrupted)


def _run(
    study: TrialStudy, workers: Workers, search: Search, prune: bool, end: float, stop: StopRequest
) -> None:
    """Keep the workers busy until no trial is left or the time is over."""
    running: dict[Future[Any], tuple[int, dict[str, Any]]] = {}
    has_more = True
    while True:
        if stop.asked:
            raise KeyboardInterrupt
        while has_more and len(running) < workers.size and time.monotonic() < end:
            if (started := study.start()) is None:
                has_more = False
                break
            complete = [trial for trial in search.history if trial.state == "complete"]
            running[workers.submit(started[1], complete if prune else None)] = started
        if not running:
            return
        for future in wait(running, _POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            has_more = True
            number, setting = running.pop(future)
            try:
                result = future.result()
            except workers.lost:
                reason = "its process was killed: it may have run out of memory."
                result = Trial(setting, "failed", reason=reason)
            if isinstance(result, str):
                raise ParameterError(result)
            study.finish(number, result)


def _about(objective: Objective, budget: Budget) -> dict[str, Any]:
    """Return everything that results depend on, except for the number of trials and the sampler."""
    return {
        "model": objective.model,
        "parameters": json.loads(json.dumps(dict(objective.params), sort_keys=True)),
        "metric": objective.metric,
        "protocol": objective.protocol,
        "seed": objective.seed,
        "space": budget.space,
        "data": objective.split.digest,
        "version": __version__,
        "format": 2,
    }


def _check_numbers(jobs: Any, minutes: Any) -> None:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ParameterError(f"jobs={shown(jobs)} is not allowed; it must be a number from 1 on.")
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and minutes > 0):
        raise ParameterError(f"minutes={shown(minutes)} is not allowed; it must be above 0.")
