"""`tune`: search for the best settings of one model with Optuna; `Tuning`, its result."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.data.splitters import split_log, usual_protocol
from transcf.errors import MissingExtraError, ParameterError, TransCFError, check_integer, shown
from transcf.evaluation import Validation
from transcf.evaluation.validation import validation_metric
from transcf.experiments.experiment import Candidate
from transcf.experiments.results import RunResult
from transcf.experiments.run import fit_and_validate
from transcf.experiments.search import Budget, Config, Search, Space, State, Trial, check_optuna
from transcf.experiments.store import POLL_SECONDS, Store, wait_for_others
from transcf.experiments.workers import WorkerCluster, Workers, process_workers
from transcf.interrupts import StopRequest, stop_request
from transcf.models.registry import current
from transcf.models.training import Epoch, FitOptions
from transcf.parallel import thread_count
from transcf.tables import Table

if TYPE_CHECKING:
    from transcf.experiments.trials import TrialStudy

#: Called with the trials so far, before the first trial and after each.
OnTrial: TypeAlias = "Callable[[Tuning], None]"
#: Completed trials to prune by, or None.
Completed: TypeAlias = Collection[Trial] | None

#: Completed trials and validated epochs that are needed before a trial is pruned.
_MIN_TRIALS, _MIN_EPOCHS = 5, 3


@dataclass(frozen=True)
class Tuning:
    """Trials of one model.

    Attributes:
        model: Name in the registry.
        params: Parameters of all trials.
        metric: Metric on validation data.
        trials: Trials in the order in which they finished.
        space: Search space.
        usual: Values of its parameters in the trial with the defaults.
        sampler: "tpe", "random" or "grid".
        study: Name of the study in the database; empty without a database.
        storage: The database.
        is_interrupted: Whether the search was interrupted.
    """

    model: str
    params: Mapping[str, Any]
    metric: str
    trials: Sequence[Trial]
    space: Space
    usual: Mapping[str, Any]
    sampler: str = "tpe"
    study: str = ""
    storage: str = ""
    is_interrupted: bool = False

    @property
    def best(self) -> Trial:
        """The first trial with the best metric; a `TransCFError` says that none is complete."""
        done = [trial for trial in self.trials if trial.state == "complete"]
        if not done:
            failed = [trial.reason for trial in self.trials if trial.state == "failed"]
            raise TransCFError(failed[0] if failed else "No trial was finished: allow for more.")
        return max(done, key=lambda trial: trial.figure or 0.0)

    @property
    def best_params(self) -> dict[str, Any]:
        """All parameters that are set in the best trial."""
        return {**self.params, **self.best.setting}

    @property
    def seconds(self) -> float:
        """Sum of the wall-clock times of all trials."""
        return sum(trial.seconds for trial in self.trials)

    def count(self, state: State) -> int:
        """Count the trials with a state."""
        return sum(trial.state == state for trial in self.trials)

    def __str__(self) -> str:
        """Return the best metric and its setting in one line, if a trial is complete."""
        if not self.count("complete"):
            return "no trial is complete"
        setting = ", ".join(f"{name}={value}" for name, value in self.best.setting.items())
        return f"best {self.metric} {self.best.figure:.4f} ({setting or 'the defaults'})"

    def facts(self) -> dict[str, Any]:
        """Return the best settings, and how they were found, by labels."""
        ended = {state: self.count(state) for state in ("complete", "pruned", "failed")}
        reasons = sorted({trial.reason for trial in self.trials if trial.reason})
        return {
            **self.best_params,
            self.metric: self.best.figure,
            "the defaults have": next((o.figure for o in self.trials if not o.setting), None),
            "epoch": self.best.epoch,
            "trials": ", ".join(f"{count} {state}" for state, count in ended.items() if count),
            "minutes of trials": round(self.seconds / 60, 2),
            "database": f"{self.storage} ({self.study})",
            **{f"failed ({number})": reason for number, reason in enumerate(reasons, start=1)},
        }

    def config(self) -> Config:
        """Return the best settings, with how they were found, for a TOML file."""
        found = {
            "metric": self.metric,
            "figure": self.best.figure,
            "trials": len(self.trials),
            "sampler": self.sampler,
            "minutes": round(self.seconds / 60, 2),
        }
        return Config(self.model, self.best_params, found)

    def table(self) -> pl.DataFrame:
        """Return a row per trial: number, state, metric, epoch, seconds, settings, reason."""
        rows = [
            {
                "number": number,
                "state": trial.state,
                self.metric: trial.figure,
                "epoch": trial.epoch,
                "seconds": trial.seconds,
                **{**self.usual, **trial.setting},
                "reason": trial.reason,
            }
            for number, trial in enumerate(self.trials, start=1)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Show the trials in notebooks, the best first."""
        trials = self.table().sort(self.metric, descending=True, nulls_last=True)
        title = f"{self.model}: {len(self.trials)} trials, by {self.metric} on validation data"
        return Table.of(trials, title)._repr_html_()

    def curve(self) -> list[float | None]:
        """Return the best metric after each trial; None until one is complete."""
        figures = [
            one.figure or 0.0 if one.state == "complete" else -math.inf for one in self.trials
        ]
        return [None if best == -math.inf else best for best in accumulate(figures, max)]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.model,
            "metric": self.metric,
            "figure": self.best.figure,
            "best": self.best_params,
            "epoch": self.best.epoch,
            "sampler": self.sampler,
            "trials": len(self.trials),
            **{state: self.count(state) for state in ("complete", "pruned", "failed")},
            "minutes": round(self.seconds / 60, 3),
            "study": self.study,
            "storage": self.storage,
            "interrupted": self.is_interrupted,
            "table": self.table().to_dicts(),
        }

    def write_plots(self, folder: Path) -> list[Path]:
        """Write Optuna's plots as SVG files: the history, and the importance of parameters.

        The importance (fANOVA) is left out unless two complete trials differ in their metric.
        """
        check_plots(folder)
        from transcf.experiments.trials import write_plots

        return write_plots(self.trials, self.space, self.usual, folder)


def check_plots(folder: Path) -> None:
    """Check that plots can be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is not a folder: name another one for plots.")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("Plots of a search", "plots")


@dataclass(frozen=True)
class Objective:
    """The validation metric of a model for one setting."""

    candidate: Candidate  # with the parameters of all trials
    train: Interactions
    validation: Validation
    seed: int
    store: Store | None
    dataset: str  # name of the data in the cache

    def run(self, setting: Mapping[str, Any], completed: Completed = None) -> Trial | TransCFError:
        """Fit and evaluate a setting, or take the result from the cache.

        A model with epochs is pruned if its best metric is below the median of `completed` trials
        at the same epoch; None disables pruning. An invalid parameter or a missing extra, which
        ends the search, is returned.
        """
        curve: dict[int, float] = {}

        def on_epoch(epoch: Epoch[Any]) -> None:
            if epoch.metric is None or epoch.number <= max(curve, default=0):
                return  # not validated, or reported before
            curve[epoch.number] = epoch.metric
            if _is_below_median(curve, completed or ()):
                raise _PrunedError

        def fit() -> RunResult:
            model = self.candidate.make(self.seed, setting)
            options = FitOptions(progress=False, on_epoch=on_epoch if model._has_epochs() else None)
            return fit_and_validate(
                model, self.train, self.validation, self.store,
                start_fit=lambda _: options, dataset=self.dataset,
            )  # fmt: skip

        started = time.perf_counter()
        try:
            return Trial.of(setting, wait_for_others(fit))
        except _PrunedError:
            seconds = round(time.perf_counter() - started, 3)
            return Trial(setting, "pruned", max(curve.values()), seconds, curve=curve)
        except (ParameterError, MissingExtraError) as error:
            return error


class _PrunedError(Exception):
    """A trial was stopped early."""


def _is_below_median(curve: Mapping[int, float], completed: Collection[Trial]) -> bool:
    """Apply the rule of Optuna's `MedianPruner`, which works with its own trials alone."""
    last = max(curve)
    others = [trial.curve[last] for trial in completed if last in trial.curve]
    is_known = len(others) >= _MIN_TRIALS and len(curve) >= _MIN_EPOCHS
    return is_known and max(curve.values()) < median(others)


@contextmanager
def _open_workers(
    objective: Objective, jobs: int, cluster: WorkerCluster | None
) -> Iterator[Workers]:
    """Yield the workers of a search; without any, trials run in this process."""

    def run_here(*trial: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(objective.run(*trial))
        return future

    if cluster is None and jobs == 1:
        yield Workers(1, run_here)
        return
    with (
        process_workers(jobs, max(1, thread_count() // jobs), Objective.run, objective)
        if cluster is None
        else cluster.open_workers(Objective.run, objective)
    ) as workers:
        yield workers if workers.size else Workers(1, run_here)


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
    cluster: WorkerCluster | None = None,
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
        metric: Validation metric, such as "NDCG@10"; by default that of the protocol.
        protocol: As for `evaluate`.
        sampler: "tpe" (learns from earlier trials), "random" or "grid".
        space: Search space: "default", or "paper" for the grid of TransCF's paper.
        params: Parameters of all trials; they are not searched.
        start: Parameters that replace the defaults, and are searched.
        seed: Seed of the models, the sampler and the split.
        jobs: Trials to run at the same time, in processes that share the threads. The result of a
            trial does not depend on it, but TPE and pruning know fewer trials.
        cluster: Run trials on a cluster instead, such as `transcf.distributed.Cluster(workers=4)`.
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
    check_optuna("Tuning")
    from transcf.experiments.trials import TrialStudy

    check_integer("jobs", jobs, 1)
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and minutes > 0):
        raise ParameterError(f"minutes={shown(minutes)} is not allowed; it must be above 0.")
    if cluster is not None and jobs > 1:
        raise ParameterError(f"jobs={jobs} and cluster contradict each other: give one of them.")
    budget = Budget(trials, sampler, space)
    model, start = current(model, _plain(start or {}))
    model, params = current(model, _plain(params or {}))
    fixed, metric = {**start, **params}, metric or validation_metric(protocol)
    split = split_log(data, protocol, seed=seed)
    candidate = Candidate(model, model, fixed).checked()
    protocol = protocol or usual_protocol(split)
    kept = None if store is None else Store(store)
    name = dataset or (str(data) if isinstance(data, str | Path) else "data")
    validation = Validation.of(split, protocol, metric=metric)
    objective = Objective(candidate, split.train, validation, seed, kept, name)
    timed = split.train.timestamps is not None
    search = Search(model, budget, fixed=params, start=start, seed=seed, timed=timed)
    # All that results depend on, but the number of trials and the sampler.
    about = {
        "model": model,
        "parameters": json.loads(json.dumps(fixed, sort_keys=True)),
        "metric": metric,
        "protocol": protocol,
        "seed": seed,
        "space": space,
        "data": split.digest,
        "version": __version__,
        "format": 2,
    }
    if storage is not None and study is None:
        text = json.dumps(about, sort_keys=True)
        study = f"{model}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    recorded = TrialStudy(search, about, None if storage is None else str(storage), study)
    known = Tuning(
        model, fixed, metric, recorded.history, search.space, search.usual, sampler, study or "",
        str(storage or ""),
    )  # fmt: skip
    report = partial(on_trial or (lambda known: None), known)
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    is_pruned = prune and candidate.make(seed)._has_epochs()
    interrupted = False
    try:
        with (
            stop_request() as stop,
            recorded.running(),
            _open_workers(objective, jobs, cluster) as workers,
        ):
            _run(recorded, workers, report, is_pruned, end, stop)
    except KeyboardInterrupt:
        interrupted = True
    return replace(known, trials=tuple(recorded.history), is_interrupted=interrupted)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without numbers of NumPy, which JSON cannot hold."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in params.items()
    }


def _run(
    study: TrialStudy,
    workers: Workers,
    report: Callable[[], None],
    prune: bool,
    end: float,
    stop: StopRequest,
) -> None:
    """Keep the workers busy until no trial is left or the time is over."""
    running: dict[Future[Any], tuple[int, dict[str, Any]]] = {}
    reported, has_more = -1, True
    while not stop.asked:
        if len(study.history) > reported:
            reported = len(study.history)
            report()
        if has_more and len(running) < workers.size and time.monotonic() < end:
            if (started := study.start()) is None:
                has_more = False
                continue
            complete = [trial for trial in study.history if trial.state == "complete"]
            running[workers.submit(started[1], complete if prune else None)] = started
            continue
        if not running:
            return
        # A wait without a timeout can miss Ctrl-C.
        for future in wait(running, POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            has_more = True
            number, setting = running.pop(future)
            try:
                result = future.result()
            except workers.lost:
                reason = "its process was killed: it may have run out of memory."
                result = Trial(setting, "failed", reason=reason)
            if isinstance(result, TransCFError):
                raise result
            study.finish(number, result)
    raise KeyboardInterrupt
