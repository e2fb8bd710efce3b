"""Optuna: proposals of its sampler, and the study of a search in memory or in a database.

A trial is RUNNING in the database while it runs. If its process is killed, its heartbeats stop:
Optuna fails the trial after a grace period and queues its setting again.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
from optuna import distributions as kinds
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from transcf.data.atomic import atomic_write
from transcf.errors import DataError, ParameterError, needs_extra
from transcf.experiments.search import Range, Search, Space, Trial

#: Seconds between heartbeats, and without one until a trial counts as lost.
HEARTBEAT, GRACE = 5, 30
#: How often the setting of a lost trial is tried again: it may be what kills the process.
_MAX_RETRIES = 2
#: Seconds between looks at the trials of other processes.
_POLL_SECONDS = 0.5
#: Attributes of the study and of trials.
_ABOUT, _SETTING, _RESULT = "transcf", "setting", "result"
#: States of trials in Optuna.
_STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def propose(
    search: Search,
    history: Sequence[Trial],
    running: Collection[Mapping[str, Any]],
    random_state: int,
) -> dict[str, Any]:
    """Return values of all searched parameters, drawn by Optuna's `TPESampler` and rounded.

    Its study is made for each proposal, which takes a few hundredths of a second for a hundred
    trials, so that proposals can be replayed from the trials.
    """
    whole = _distributions(search.space)
    trials = [_finished(trial, search.usual, whole) for trial in history]
    # RUNNING trials count as bad ones (constant liar), which keeps parallel proposals apart.
    trials += [_freeze({**search.usual, **one}, whole, TrialState.RUNNING) for one in running]
    # A trial that lacks a parameter would exclude that parameter from the joint estimate.
    trials = [trial for trial in trials if len(trial.params) == len(whole)]
    study = _memory_study(trials, sampler=optuna.samplers.TPESampler(seed=random_state))
    drawn = study.ask(whole).params
    return {
        name: values.round(drawn[name]) if isinstance(values, Range) else drawn[name]
        for name, values in search.space.items()
    }


def _memory_study(trials: Iterable[FrozenTrial], **options: Any) -> optuna.Study:
    with _quiet():
        study = optuna.create_study(direction="maximize", **options)
    study.add_trials(trials)
    return study


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Optuna's log messages about studies, and its warnings about experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _finished(
    trial: Trial, usual: Mapping[str, Any], whole: Mapping[str, kinds.BaseDistribution]
) -> FrozenTrial:
    figure = None if trial.state == "failed" else trial.figure
    params, state = {**usual, **trial.setting}, _STATES[trial.state]
    return _freeze(params, whole, state, value=figure, intermediate_values=dict(trial.curve))


def _freeze(
    params: Mapping[str, Any],
    whole: Mapping[str, kinds.BaseDistribution],
    state: TrialState,
    **result: Any,
) -> FrozenTrial:
    """Create a trial of Optuna; values outside of their distribution are left out."""
    used = {name: one for name, one in whole.items() if _holds(one, params[name])}
    held = {name: params[name] for name in used}
    return create_trial(params=held, distributions=used, state=state, **result)


def _holds(distribution: Any, value: Any) -> bool:
    if isinstance(distribution, kinds.CategoricalDistribution):
        return value in distribution.choices
    is_number = isinstance(value, int | float)
    return is_number and bool(distribution.low <= value <= distribution.high)


def _distributions(
    space: Space, usual: Mapping[str, Any] | None = None
) -> dict[str, kinds.BaseDistribution]:
    """Convert a space to Optuna's distributions, optionally widened to hold the usual values."""
    found: dict[str, kinds.BaseDistribution] = {}
    for name, values in space.items():
        value = (usual or {}).get(name)
        if not isinstance(values, Range):
            more = [value] if usual and value not in values else []
            found[name] = kinds.CategoricalDistribution([*values, *more])
            continue
        low, high = values.low, values.high
        if value is not None and (value > 0 or not values.log):
            low, high = min(low, value), max(high, value)
        if values.is_integer:
            found[name] = kinds.IntDistribution(int(low), int(high), log=values.log)
        else:
            found[name] = kinds.FloatDistribution(low, high, log=values.log)
    return found


def write_plots(
    trials: Sequence[Trial], space: Space, usual: Mapping[str, Any], folder: Path
) -> list[Path]:
    """Write plots of finished trials as SVG files; see `Tuning.write_plots`."""
    import matplotlib.pyplot as plt
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import matplotlib as plots

    whole = _distributions(space, usual)
    study = _memory_study([_finished(trial, usual, whole) for trial in trials])
    written = []
    with _quiet(), plt.rc_context({"svg.fonttype": "none"}):
        axes = {"history": plots.plot_optimization_history(study)}
        if space and len({trial.figure for trial in trials if trial.state == "complete"}) > 1:
            evaluator = FanovaImportanceEvaluator(seed=0)
            axes["importance"] = plots.plot_param_importances(study, evaluator=evaluator)
        for name, drawn in axes.items():
            written.append(folder / f"{name}.svg")
            with atomic_write(written[-1]) as path:
                plt.figure(drawn.figure)
                plt.savefig(path, format="svg", bbox_inches="tight")
                plt.close()
    return written


class TrialStudy:
    """Trials of one search, shared by all processes that open the same database.

    `search` proposes settings; `about` is everything that results depend on; without `storage`
    trials are kept in memory.

    Attributes:
        history: Finished trials of all processes.
    """

    def __init__(
        self, search: Search, about: Mapping[str, Any], storage: str | None, name: str | None
    ) -> None:
        self.history: list[Trial] = []
        self._search = search
        self._running: dict[int, optuna.Trial] = {}
        try:
            with _quiet(), needs_extra(f"The database {storage}", "tune"):
                self._database = None if storage is None else _open_database(storage)
                self._study = optuna.create_study(
                    storage=self._database,
                    study_name=name,
                    direction="maximize",
                    sampler=optuna.samplers.RandomSampler(),  # settings come from the queue
                    load_if_exists=True,
                )
                known = self._study.user_attrs.get(_ABOUT)
                if known is None:
                    self._study.set_user_attr(_ABOUT, dict(about))
        except (SQLAlchemyError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"The database {storage} does not answer: {reason}.") from error
        if known is not None and known != about:
            other = [key for key in about if known.get(key) != about[key]]
            raise ParameterError(
                f"{storage} has a study {name!r} with another {' and '.join(other)}: name another "
                "study, or another database."
            )
        self._update()

    def start(self) -> tuple[int, dict[str, Any]] | None:
        """Start a trial with a queued setting, or else with a new one.

        Returns its number and setting; None if no further trial can be started now.
        """
        with _quiet():
            while True:
                fail_stale_trials(self._study)
                unfinished = self._update()
                if len(self.history) + len(self._running) >= self._search.budget.trials:
                    return None
                if not any(one.state == TrialState.WAITING for one in unfinished):
                    asked = [one.user_attrs[_SETTING] for one in unfinished]
                    setting = self._search.ask(self.history, asked)
                    if setting is None and (self._running or not unfinished):
                        return None
                    if setting is None:
                        time.sleep(_POLL_SECONDS)  # until other processes finish or lose trials
                        continue
                    self._queue(setting)
                trial = self._study.ask()
                setting = trial.user_attrs.get(_SETTING)  # None if another process took the last
                if setting is not None and not self._is_taken(trial.number, setting):
                    self._running[trial.number] = trial
                    self._beat()
                    return trial.number, setting
                self._study.tell(trial, state=TrialState.FAIL)

    def finish(self, number: int, result: Trial) -> None:
        """Store the result of a trial, unless another process failed it for lack of heartbeats."""
        trial = self._running[number]
        written = {**asdict(result), "curve": list(result.curve.items())}
        value = result.figure if result.state == "complete" else None
        with _quiet(), suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(_RESULT, written)
            self._study.tell(trial, value, _STATES[result.state])
        del self._running[number]
        self._update()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record heartbeats inside the block; at its end, queue unfinished settings again."""
        stopped = threading.Event()

        def beat() -> None:
            while not stopped.wait(HEARTBEAT):
                self._beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            for trial in self._running.values():
                self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
                self._queue(trial.user_attrs[_SETTING])

    def _update(self) -> list[FrozenTrial]:
        """Read the finished trials of all processes into `history`; return the unfinished ones."""
        trials = self._trials()
        done = [one for one in trials if one.state.is_finished() and _RESULT in one.user_attrs]
        if len(done) > len(self.history):
            done.sort(key=lambda one: (one.datetime_complete, one.number))
            results = [one.user_attrs[_RESULT] for one in done]
            self.history[:] = [Trial(**{**one, "curve": dict(one["curve"])}) for one in results]
        return [one for one in trials if not one.state.is_finished()]

    def _trials(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        return [one for one in trials if _SETTING in one.user_attrs]

    def _beat(self) -> None:
        for trial in list(self._running.values()):
            if self._database is not None:
                self._database.record_heartbeat(trial._trial_id)

    def _queue(self, setting: dict[str, Any]) -> None:
        usual, space = self._search.usual, self._search.space
        params, whole = {**usual, **setting}, _distributions(space, usual)
        self._study.add_trial(
            _freeze(params, whole, TrialState.WAITING, user_attrs={_SETTING: setting})
        )

    def _is_taken(self, number: int, setting: Mapping[str, Any]) -> bool:
        """Whether an earlier trial has the setting: two processes may ask at the same time."""
        return any(
            one.number < number
            and (one.state == TrialState.RUNNING or _RESULT in one.user_attrs)
            and self._search.key(one.user_attrs[_SETTING]) == self._search.key(setting)
            for one in self._trials()
        )


def _open_database(storage: str) -> RDBStorage:
    """Open a database and create its tables; retry once if another process creates them too."""
    if "://" not in storage:
        path = Path(storage).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{path}"
    else:  # PostgreSQL by the driver that is installed
        scheme, rest = storage.split("://", 1)
        is_postgres = scheme in ("postgres", "postgresql")
        url = f"postgresql+psycopg://{rest}" if is_postgres else storage
    retry = RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRIES)
    options: dict[str, Any] = {"heartbeat_interval": HEARTBEAT, "grace_period": GRACE}
    options["heartbeat_stale_trial_callback"] = retry
    try:
        database = RDBStorage(url, **options)
    except (IntegrityError, OperationalError):
        time.sleep(1.0)
        database = RDBStorage(url, **options)
    if database.engine.dialect.name == "sqlite":
        event.listen(database.engine, "connect", _use_write_ahead_log)
        database.engine.dispose()  # connections opened before
    return database


def _use_write_ahead_log(connection: Any, _: object) -> None:
    """Make SQLite's writes several times as fast; they survive kills all the same."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
