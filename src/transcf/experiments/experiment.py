"""Candidates of a table: for each, choose parameters on validation data and run every seed.

Several processes share the work: each computes runs that are not in the cache and not locked.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import Any, Protocol, Self, TypeAlias

from transcf.data.split import Split
from transcf.errors import MissingExtraError, ParameterError, TransCFError, shown
from transcf.evaluation import Validation
from transcf.experiments.run import EvalConfig, fit_and_evaluate, fit_and_validate
from transcf.experiments.run_result import CandidateResult, RunResult
from transcf.experiments.search import Search, Trial
from transcf.experiments.search_space import Budget, settings_to_try
from transcf.experiments.store import RunLockedError, Store
from transcf.interrupts import end
from transcf.models.base import Recommender
from transcf.models.params import flat_params
from transcf.models.registry import canonical_name, create, current, model_class, name_and_params
from transcf.models.training import Epoch, FitOptions
from transcf.parallel import thread_count, use_threads

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Recommender[Any]"
#: Called with one line of text that names the current step.
OnProgress: TypeAlias = Callable[[str], None]
#: Seconds between two looks at runs that other processes compute.
POLL_SECONDS = 0.1
#: Environment variables that limit the threads of libraries.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")

_threads = ExitStack()  # of a worker process, until it ends


@dataclass(frozen=True)
class Candidate:
    """A model with parameters to choose from.

    Attributes:
        name: Name in tables.
        model: Name in the registry.
        params: Parameters that are set.
        choices: Further parameters to choose from on validation data.
        search: Makes a search that proposes them one at a time instead.
    """

    name: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)
    search: Callable[[], Search] | None = None

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a candidate of a name, of a name with parameters, or of a model object.

        Of an object, the parameters that differ from the defaults count as set.

        Example:
            >>> Candidate.of(create("EASE", regularization=5.0)).params
            {'regularization': 5.0}
        """
        params: Mapping[str, Any] = {}
        match spec:
            case str():
                model = canonical_name(spec)
            case (str() as model, Mapping() as params):
                model, params = current(model, dict(params))
            case Recommender():
                model, params = name_and_params(spec)
            case _:
                raise ParameterError(
                    f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, "
                    "or a model."
                )
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes its result."""
        return self._has_seed and "random_state" not in self.params

    @property
    def _has_seed(self) -> bool:
        return "random_state" in model_class(self.model)._rules()

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a `random_state` among the parameters replaces the seed."""
        seeded = {"random_state": seed} if self._has_seed else {}
        return create(self.model, **{**seeded, **flat_params(self.params), **(choice or {})})

    def within(
        self, budget: Any, timed: bool = False, start: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the candidate with the settings that a budget tries; set parameters stay.

        Args:
            budget: Anything that `Budget.of` accepts.
            timed: Whether events have times.
            start: Settings that replace the defaults, and may be searched.

        Example:
            >>> len(Candidate.of("ease").within("small").choices)
            3
        """
        budget, begun = Budget.of(budget), start or {}
        params = {**begun, **self.params}
        if budget.sampler == "random":
            tried = settings_to_try(self.model, budget, self.params, timed=timed, start=params)
            return replace(self, params=params, choices=tried, search=None)
        search = partial(
            Search, self.model, budget, fixed=dict(self.params), start=begun, timed=timed
        )
        return replace(self, params=params, choices=({},), search=search)

    def check(self) -> None:
        """Raise a `ParameterError` for an unknown model or an invalid parameter."""
        for choice in self.choices:
            self.make(0, choice)._check_params()


@dataclass(frozen=True)
class Experiment:
    """Data, evaluation and seeds that all candidates of a table share.

    Attributes:
        split: The data.
        config: How to evaluate.
        seeds: At least one; a model without randomness is run with the first one only.
        on_progress: Called at every step; without it, epochs show on a terminal.
        store: Cache of finished runs; None computes everything.
        dataset: Name of the data in the cache.
    """

    split: Split
    config: EvalConfig
    seeds: Sequence[int] = (0,)
    on_progress: OnProgress | None = None
    store: Store | None = None
    dataset: str = ""

    def run(self, candidate: Candidate) -> CandidateResult:
        """Run a candidate; wait for runs that other processes compute.

        Example:
            >>> from transcf import open_split
            >>> experiment = Experiment(open_split("synthetic"), EvalConfig())
            >>> experiment.run(Candidate.of("ease")).first.model
            'EASE'
        """
        run = CandidateRun(self, candidate)
        while True:
            try:
                return run.attempt()
            except RunLockedError:
                time.sleep(POLL_SECONDS)


class CandidateRun:
    """The runs of one candidate: trials of parameters, then one run per seed."""

    def __init__(self, experiment: Experiment, candidate: Candidate) -> None:
        self._experiment, self._candidate = experiment, candidate
        self._choices = list(candidate.choices) if candidate.search is None else []
        self._trials: dict[int, RunResult] = {}
        self._results: dict[int, RunResult] = {}
        #: The best model that was fitted here, with its metric and the number of its trial.
        self._best: tuple[float, int, Recommender[Any]] | None = None

    def attempt(self) -> CandidateResult:
        """Compute all runs but those that other processes are computing.

        Raises:
            RunLockedError: There are such runs; call again later, finished runs are kept.
            TransCFError: The model cannot be trained.
        """
        self._run_trials()
        trials = [self._trials[number] for number in range(len(self._trials))]
        chosen = _best_of(trials) if trials else 0
        seeds = self._experiment.seeds if self._candidate.takes_seed else self._experiment.seeds[:1]
        for seed in seeds:
            if seed not in self._results:
                with suppress(RunLockedError):
                    self._results[seed] = self._run_seed(seed, chosen)
        if any(seed not in self._results for seed in seeds):
            raise RunLockedError
        results = [self._results[seed] for seed in seeds]
        for found in results:
            if found.error is not None:
                raise found.error
        return CandidateResult(self._candidate.name, results, self._choices[chosen], trials)

    @cached_property
    def _search(self) -> Search | None:
        return None if self._candidate.search is None else self._candidate.search()

    def _run_trials(self) -> None:
        """Run one trial for each choice, or as a search proposes them; no trial for one choice."""
        search = self._search
        if search is None:
            total = len(self._choices) if len(self._choices) > 1 else 0
            for number in range(total):
                if number not in self._trials:
                    with suppress(RunLockedError):
                        self._trials[number] = self._run_trial(number, total)
            if len(self._trials) < total:
                raise RunLockedError
            return
        while True:
            number = len(self._trials)
            if number == len(self._choices):
                if (choice := search.ask()) is None:
                    return
                self._choices.append(choice)
            self._trials[number] = self._run_trial(number, search.budget.trials)
            search.tell(Trial.of(self._choices[number], self._trials[number]))

    def _run_trial(self, number: int, total: int) -> RunResult:
        experiment = self._experiment
        model = self._candidate.make(experiment.seeds[0], self._choices[number])
        result = fit_and_validate(
            model,
            experiment.split.train,
            self._validation,
            experiment.store,
            start_fit=lambda _: self._options(f"setting {number + 1} of {total}"),
            about=self._about,
        )
        metric = result.validation
        if model.is_fitted and metric is not None and (not self._best or metric > self._best[0]):
            self._best = metric, number, model
        return result

    def _run_seed(self, seed: int, chosen: int) -> RunResult:
        experiment = self._experiment
        model, is_fitted = self._candidate.make(seed, self._choices[chosen]), False
        best, self._best = self._best, None
        if best is not None and best[1] == chosen and seed == experiment.seeds[0]:
            # A protocol that picks epochs on test needs the metrics of all epochs: fit again.
            is_fitted = not self._config.picks_epochs_on_test
            model = best[2] if is_fitted else model
        return fit_and_evaluate(
            model,
            experiment.split,
            self._config,
            experiment.store,
            is_fitted=is_fitted,
            start_fit=lambda step: self._options(
                f"seed {seed}" if step == "fit" else f"seed {seed}, {step}"
            ),
            about=self._about,
        )

    @cached_property
    def _config(self) -> EvalConfig:
        return self._experiment.config.on(self._experiment.split)

    @cached_property
    def _validation(self) -> Validation:
        return self._config.validation(self._experiment.split)

    @property
    def _about(self) -> dict[str, str]:
        model = canonical_name(self._candidate.model)
        return {"dataset": self._experiment.dataset, "model": model}

    def _options(self, step: str) -> FitOptions:
        """Report a step and its epochs; without a listener, epochs have a progress bar."""
        report = self._experiment.on_progress
        if report is None:
            return FitOptions()
        text = f"{self._candidate.name}, {step}"
        report(text)

        def on_epoch(epoch: Epoch[Any]) -> None:
            report(f"{text}, epoch {epoch.number}")

        return FitOptions(progress=False, on_epoch=on_epoch)


def _best_of(trials: Sequence[RunResult]) -> int:
    """Return the number of the best trial, the first of equal ones.

    Raises:
        TransCFError: No trial could be trained; the error of the first.
    """
    metrics = [-inf if found.validation is None else found.validation for found in trials]
    best = max(range(len(trials)), key=metrics.__getitem__)
    if (error := trials[best].error) is not None:
        raise error
    return best


class WorkerCluster(Protocol):
    """Has workers that can compute runs: `transcf.distributed.Cluster`."""

    def helping(self, work: Callable[..., object], *task: Any) -> AbstractContextManager[None]:
        """Call `work(*task)` once in each worker, inside the block."""


def shared_work(
    work: Callable[..., object],
    task: Any,
    store: Store | None,
    jobs: int = 1,
    cluster: WorkerCluster | None = None,
) -> AbstractContextManager[None]:
    """Let other processes compute runs inside the block: they call `work(task, store)`.

    Their errors and warnings are ignored: this process meets and reports the same ones. Runs of a
    killed process are unlocked.

    Args:
        work: Computes runs; finished and locked ones are skipped.
        task: Its first argument.
        store: The run cache. Machines of a cluster need a shared folder that supports file locks.
        jobs: Number of processes of this machine, including this one, which share the threads.
        cluster: Its workers are used instead.

    Raises:
        ParameterError: There is no store.
    """
    if cluster is None and jobs == 1:
        return nullcontext()
    if store is None:
        raise ParameterError(
            "Several processes meet in the store of runs: name a folder for it (store=FOLDER)."
        )
    if cluster is not None:
        return cluster.helping(_work_quietly, work, task, store.absolute())
    return _local_helpers(work, task, store.absolute(), jobs)


def _work_quietly(work: Callable[..., object], task: Any, store: Store) -> None:
    warnings.simplefilter("ignore")
    with suppress(TransCFError, KeyboardInterrupt):
        work(task, store)


@contextmanager
def _local_helpers(
    work: Callable[..., object], task: Any, store: Store, jobs: int
) -> Iterator[None]:
    threads = max(1, thread_count() // jobs)
    with process_pool(jobs - 1, threads) as pool, use_threads(threads):
        for _ in range(jobs - 1):
            pool.submit(_work_quietly, work, task, store)
        try:
            yield
        finally:
            pool.shutdown(kill_workers=True)
            store.remove_free_locks()


@contextmanager
def process_pool(workers: int, threads: int, *setup: Any) -> Iterator[Any]:
    """Yield a pool of processes with so many threads each; they are killed after the block.

    A process ends with this one, however that ends, and ignores Ctrl-C, which this one handles.

    Args:
        workers: Number of processes.
        threads: Threads of each.
        setup: A function and its arguments, called once in each process.
    """
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError as error:
        raise MissingExtraError("Running in several processes", "tune") from error

    pool = ProcessPoolExecutor(
        workers,
        initializer=_start_process,
        initargs=(os.getpid(), threads, *setup),
        env=dict.fromkeys(_LIMITS, str(threads)),
    )
    try:
        yield pool
    finally:
        pool.shutdown(kill_workers=True)


def _start_process(parent: int, threads: int, *setup: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _threads.enter_context(use_threads(threads))
    if setup:
        setup[0](*setup[1:])


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    end(1)
