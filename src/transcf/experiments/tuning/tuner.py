"""`tune`: settings of one model, tried one after the other or side by side."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from transcf import __version__
from transcf.data.sources import as_split, usual_protocol
from transcf.errors import MissingExtraError, ParameterError, shown
from transcf.evaluation.validation import validation_metric
from transcf.experiments.store import Store
from transcf.experiments.tuning.bench import Bench, IsBehind, Task
from transcf.experiments.tuning.partners import NoPartnerError, Partner, Partners, run_with
from transcf.experiments.tuning.processes import started
from transcf.experiments.tuning.result import Tuning
from transcf.interrupts import StopRequest, stop_request
from transcf.models.registry import canonical_name
from transcf.tuning.budgets import Budget
from transcf.tuning.pruning import is_behind
from transcf.tuning.search import Search, Tried

if TYPE_CHECKING:
    from transcf.experiments.tuning.record import Record

#: How often to look whether somebody wants it to end, while others work.
_LOOK_SECONDS = 0.1
#: Called with what is known so far, before the first trial and after each.
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
    cluster: Partners | None = None,
    minutes: float | None = None,
    prune: bool = True,
    storage: str | Path | None = None,
    study: str | None = None,
    store: str | Path | None = None,
    dataset: str | None = None,
    on_trial: OnTrial | None = None,
) -> Tuning:
    """Try settings of a model on validation data; the test part is not looked at.

    The same as `transcf tune` on the command line. The defaults are the first trial. A setting that
    cannot be trained is noted and does not stop the others; Ctrl-C ends it with what there is.

    Args:
        data: A split, a log, a table, or what `open_data` takes.
        model: Its name, as in `available()`.
        trials: How many settings to try, those on record included.
        metric: What to choose by, such as "N@10"; unless given, what the protocol chooses by.
        protocol: As for `evaluate`; "forward" where the log has times and "strict" elsewhere unless
            given.
        sampler: "tpe" learns from what was tried; "random"; "grid" tries all combinations.
        space: Where settings come from: "default", or "paper" for the grid of TransCF's paper.
        params: Parameters that are set in all trials.
        start: Parameters that stand in the place of the defaults, and may be searched.
        seed: Of the models, the sampler and the split; a trial is run with one seed.
        jobs: Trials side by side, each in a process with its share of the threads. What a trial
            finds does not depend on it; which ones are tried does, since TPE knows less by then.
        cluster: Whose workers run trials side by side instead, such as
            `transcf.cluster.Cluster(workers=4)`; the same holds there. They are given the data, and
            this process alone writes to `storage`.
        minutes: After so many no trial is started any more.
        prune: Whether to give up trials that are behind half of the others after as many epochs.
        storage: Database of what was tried: a SQLite file or a URL; None keeps no record. What is
            on record is not tried again; several processes may work on the same trials at a time,
            each with proposals of its own.
        study: Name of the trials in it; unless given, one that follows from all they depend on.
        store: Folder of stored runs: trials that were run before are taken from there, whoever ran
            them, and those that run to their end are kept there; None runs everything.
        dataset: Name of the data in the store.
        on_trial: Called with what is known so far, before the first trial and after each.

    Raises:
        ParameterError: A name or a number is none; before any fit.
        TransCFError: No setting could be trained; the reason of the first.

    Example:
        >>> from transcf import synthesize, tune
        >>> log = synthesize(users=200, items=60, interactions=3000, seed=1)
        >>> found = tune(log, "ease", trials=6, sampler="grid")
        >>> found.best_params["regularization"], found.table()["regularization"].to_list()
        (100.0, [300.0, 3.0, 10.0, 30.0, 100.0, 300.0])
    """
    _check_numbers(jobs, minutes)
    if cluster is not None and jobs > 1:
        raise ParameterError(f"jobs={jobs} and cluster contradict each other: give one of them.")
    budget = Budget(trials, sampler, space)
    fixed = {**(start or {}), **(params or {})}
    task = Task(canonical_name(model), fixed, metric or validation_metric(protocol), protocol, seed)
    task.make({}).check_params()
    split = as_split(data, protocol, seed=seed)
    task = replace(task, protocol=protocol or usual_protocol(split))
    name = dataset or (str(data) if isinstance(data, str | Path) else "data")
    bench = Bench(task, split, None if store is None else Store(store), name)
    bench.validation  # noqa: B018 - a metric that there is not is refused before the first fit
    timed = split.train.timestamps is not None
    about = _about(bench, budget)
    study = "" if storage is None else study or f"{task.model}-{_digest(about)[:10]}"
    record = None if storage is None else _record(str(storage), study, about)
    with ExitStack() as stack:
        stream = 0 if record is None else stack.enter_context(record.seat())
        search = Search(
            task.model, budget, fixed=params, start=start, seed=seed, timed=timed, stream=stream
        )
        known = Tuning(
            task.model, fixed, task.metric, search.history, search.space, search.usual, sampler,
            study, str(storage or ""),
        )  # fmt: skip
        loop = _Loop(search, record, known, prune, minutes, on_trial)
        interrupted = loop.run(bench, jobs, cluster)
    return replace(known, trials=tuple(search.history), is_interrupted=interrupted)


class _Loop:
    """Trials under way: who asks, who is told, and when it is over."""

    def __init__(
        self,
        search: Search,
        record: Record | None,
        known: Tuning,
        prune: bool,
        minutes: float | None,
        on_trial: OnTrial | None,
    ) -> None:
        self._search, self._record, self._known, self._prune = search, record, known, prune
        self._tell = on_trial or (lambda tuning: None)
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._lock, self._is_over = threading.Lock(), False
        self._request = StopRequest()

    def run(self, bench: Bench, jobs: int, cluster: Partners | None) -> bool:
        """Run trials until nothing is left to do; returns whether somebody ended it."""
        self._catch_up()
        self._tell(self._known)
        try:
            with stop_request() as self._request:
                self._run(bench, jobs, cluster)
        except KeyboardInterrupt:
            return True
        return False

    def _run(self, bench: Bench, jobs: int, cluster: Partners | None) -> None:
        if cluster is not None:
            with cluster.trying(bench) as workers:
                self._work_together(workers)
        elif jobs > 1:
            with started(bench, jobs) as processes:
                self._work_together(processes)
        self._work(bench.run)  # what others have left, if there are any

    def _work_together(self, partners: Sequence[Partner]) -> None:
        with ThreadPoolExecutor(len(partners) or 1) as pool:
            done = list[Future[None]]()
            try:
                done += [pool.submit(self._work, partial(run_with, one)) for one in partners]
                self._wait_for(done)
            finally:  # an error of one, or Ctrl-C: the others need not finish
                finished = [one for one in done if one.done() and one.exception() is None]
                if len(finished) < len(partners):
                    self._is_over = True
                    for partner in partners:
                        partner.close()
            for one in done:
                one.result()

    def _work(self, run: Callable[[Mapping[str, Any], IsBehind | None], Tried]) -> None:
        while not self._is_over and (self._end is None or time.monotonic() < self._end):
            self._check_request()
            with self._lock:
                self._catch_up()
                setting = self._search.ask()
            if setting is None:
                return
            try:
                tried = run(setting, self._is_behind if self._prune else None)
            except BaseException as problem:
                with self._lock:
                    self._search.forget(setting)
                if isinstance(problem, NoPartnerError):
                    return  # others do it
                raise
            if not self._is_over:
                self._note(tried)

    def _wait_for(self, futures: Sequence[Future[None]]) -> None:
        """Wait until all are done, or one has failed; a thread that never wakes misses Ctrl-C."""
        waiting: Iterable[Future[None]] = futures
        while waiting and not any(one.done() and one.exception() for one in futures):
            self._check_request()
            _, waiting = wait(futures, timeout=_LOOK_SECONDS, return_when=FIRST_EXCEPTION)

    def _check_request(self) -> None:
        if self._request.asked:
            raise KeyboardInterrupt

    def _note(self, tried: Tried) -> None:
        with self._lock:
            if self._record is not None:
                self._record.add(tried, self._search)
            self._search.tell(tried)
            self._tell(self._known)

    def _catch_up(self) -> None:
        """Take note of what is on record, and what other processes put there."""
        for tried in [] if self._record is None else self._record.news():
            self._search.tell(tried)

    def _is_behind(self, curve: Mapping[int, float]) -> bool:
        with self._lock:
            return is_behind(curve, self._search.history)


def _record(storage: str, study: str, about: Mapping[str, Any]) -> Record:
    try:
        from transcf.experiments.tuning.record import Record
    except ImportError as error:
        raise MissingExtraError("A record of trials", "tune") from error
    return Record(storage, study, about)


def _about(bench: Bench, budget: Budget) -> dict[str, Any]:
    """All that figures depend on, in JSON values; but for the budget's size and sampler."""
    task = bench.task
    return {
        "model": task.model,
        "parameters": json.loads(json.dumps(dict(task.params), sort_keys=True)),
        "metric": task.metric,
        "protocol": task.protocol,
        "seed": task.seed,
        "space": budget.space,
        "data": bench.split.digest,
        "version": __version__,
    }


def _digest(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _check_numbers(jobs: Any, minutes: Any) -> None:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ParameterError(f"jobs={shown(jobs)} is not allowed; it must be a number from 1 on.")
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and minutes > 0):
        raise ParameterError(f"minutes={shown(minutes)} is not allowed; it must be above 0.")
