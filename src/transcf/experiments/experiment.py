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
from functools import partial
from math import inf
from typing import Any, Protocol, Self, TypeAlias

from transcf.data.split import Split
from transcf.errors import MissingExtraError, ParameterError, TransCFError, shown
from transcf.experiments.results import CandidateResult
from transcf.experiments.run import EvalConfig, fit_and_evaluate, fit_and_validate
from transcf.experiments.run_result import RunResult
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

    def run(self, candidate: Candidate, *, wait: bool = True) -> CandidateResult:
        """Choose the parameters of a candidate on validation data, then run every seed.

        Runs that other processes are computing come last.

        Args:
            candidate: What to run.
            wait: Whether to wait for these runs.

        Raises:
            RunLockedError: There are such runs, and `wait` is false; all others are in the cache.
            TransCFError: The model cannot be trained.

        Example:
            >>> from transcf import open_split
            >>> experiment = Experiment(open_split("synthetic"), EvalConfig())
            >>> experiment.run(Candidate.of("ease")).first.model
            'EASE'
        """
        if wait:
            with suppress(RunLockedError):
                return self._run(candidate, wait=False)
        return self._run(candidate, wait=wait)

    def _run(self, candidate: Candidate, *, wait: bool) -> CandidateResult:
        config = self.config.on(self.split)
        choices, trials, fitted = self._run_trials(candidate, config, wait)
        chosen = choices[_best_of(trials) if trials else 0]

        def run_seed(seed: int) -> RunResult:
            # A protocol that picks epochs on test needs the metrics of all epochs: fit again.
            is_fitted = seed == self.seeds[0] and fitted is not None
            is_fitted = is_fitted and not config.picks_epochs_on_test
            model = fitted if is_fitted and fitted else candidate.make(seed, chosen)
            return fit_and_evaluate(
                model,
                self.split,
                config,
                self.store,
                is_fitted=is_fitted,
                start_fit=lambda step: self._options(
                    candidate, f"seed {seed}" if step == "fit" else f"seed {seed}, {step}"
                ),
                about=self._about(candidate),
                wait=wait,
            )

        seeds = self.seeds if candidate.takes_seed else self.seeds[:1]
        results = _unlocked(run_seed, seeds)
        for found in results:
            if found.error is not None:
                raise found.error
        return CandidateResult.of(candidate.name, results, chosen, trials)

    def _run_trials(
        self, candidate: Candidate, config: EvalConfig, wait: bool
    ) -> tuple[list[Mapping[str, Any]], list[RunResult], Recommender[Any] | None]:
        """Run one trial for each choice, or as a search proposes them; no trial for one choice.

        Returns:
            The choices, their results, and the model of the best one if it was fitted here.
        """
        search = None if candidate.search is None else candidate.search()
        choices = list(candidate.choices) if search is None else []
        if search is None and len(choices) == 1:
            return choices, [], None
        total = len(choices) if search is None else search.budget.trials
        validation = config.validation(self.split)
        best: tuple[float, Recommender[Any] | None] = (-inf, None)

        def run_trial(number: int) -> RunResult:
            nonlocal best
            model = candidate.make(self.seeds[0], choices[number])
            result = fit_and_validate(
                model,
                self.split.train,
                validation,
                self.store,
                start_fit=lambda _: self._options(candidate, f"setting {number + 1} of {total}"),
                about=self._about(candidate),
                wait=wait,
            )
            if result.validation is not None and result.validation > best[0]:
                best = result.validation, model if model.is_fitted else None
            return result

        if search is None:
            return choices, _unlocked(run_trial, range(total)), best[1]
        trials: list[RunResult] = []
        while (choice := search.ask()) is not None:
            choices.append(choice)
            trials.append(run_trial(len(trials)))
            search.tell(Trial.of(choice, trials[-1]))
        return choices, trials, best[1]

    def _about(self, candidate: Candidate) -> dict[str, str]:
        return {"dataset": self.dataset, "model": canonical_name(candidate.model)}

    def _options(self, candidate: Candidate, step: str) -> FitOptions:
        """Report a step and its epochs; without a listener, epochs have a progress bar."""
        report = self.on_progress
        if report is None:
            return FitOptions()
        text = f"{candidate.name}, {step}"
        report(text)

        def on_epoch(epoch: Epoch[Any]) -> None:
            report(f"{text}, epoch {epoch.number}")

        return FitOptions(progress=False, on_epoch=on_epoch)


def _unlocked(run: Callable[[int], RunResult], numbers: Sequence[int]) -> list[RunResult]:
    """Call `run` with each number; after all others, raise a `RunLockedError` if one is locked."""
    results = []
    for number in numbers:
        with suppress(RunLockedError):
            results.append(run(number))
    if len(results) < len(numbers):
        raise RunLockedError
    return results


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
