"""Optuna's study of a search: its database, the queue of settings and the results.

A trial is RUNNING in the database while it runs. If its process is killed, its heartbeats stop:
Optuna fails the trial after a grace period and queues its setting again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.experiments.search import (
    STATES,
    Search,
    Trial,
    distributions,
    freeze,
    quiet_optuna,
)

#: Seconds between heartbeats, and without one until a trial counts as lost.
HEARTBEAT, GRACE = 5, 30
#: How often the setting of a lost trial is tried again: it may be what kills the process.
_MAX_RETRIES = 2
#: Seconds between looks at the trials of other processes.
_POLL_SECONDS = 0.5
#: Attributes of the study and of trials.
_ABOUT, _SETTING, _RESULT = "transcf", "setting", "result"


class TrialStudy:
    """Trials of one search, shared by all processes that open the same database.

    `search` proposes settings and receives every finished trial; `about` is everything that results
    depend on; without `storage` trials are kept in memory; `on_trial` is called after each trial.
    """

    def __init__(
        self,
        search: Search,
        about: Mapping[str, Any],
        storage: str | None,
        name: str | None,
        on_trial: Callable[[], None],
    ) -> None:
        self._search = search
        self._distributions = distributions(search.space, search.usual)
        self._running: dict[int, optuna.Trial] = {}
        self._seen = set[int]()
        try:
            with quiet_optuna():
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
        except ImportError as error:
            raise MissingExtraError(f"The database {storage}", "tune") from error
        except (SQLAlchemyError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"The database {storage} does not answer: {reason}.") from error
        if known is not None and known != about:
            other = [key for key in about if known.get(key) != about[key]]
            raise ParameterError(
                f"{storage} has a study {name!r} with another {' and '.join(other)}: name another "
                "study, or another database."
            )
        self._on_trial: Callable[[], None] = lambda: None
        self._update()
        self._on_trial = on_trial

    def start(self) -> tuple[int, dict[str, Any]] | None:
        """Start a trial with a queued setting, or else with a new one.

        Returns its number and setting; None if no further trial can be started now.
        """
        with quiet_optuna():
            while True:
                fail_stale_trials(self._study)
                unfinished = self._update()
                if len(self._seen) + len(self._running) >= self._search.budget.trials:
                    return None
                if not any(one.state == TrialState.WAITING for one in unfinished):
                    setting = self._search.ask([one.user_attrs[_SETTING] for one in unfinished])
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
        with quiet_optuna(), suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(_RESULT, written)
            self._study.tell(trial, value, TrialState[STATES[result.state]])
            self._tell(number, result)
        del self._running[number]

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
        """Tell the search about trials of other processes; return the unfinished ones."""
        trials = self._trials()
        done = [one for one in trials if one.state.is_finished() and _RESULT in one.user_attrs]
        for one in sorted(done, key=lambda one: (one.datetime_complete, one.number)):
            if one.number not in self._seen:
                result = one.user_attrs[_RESULT]
                self._tell(one.number, Trial(**{**result, "curve": dict(result["curve"])}))
        return [one for one in trials if not one.state.is_finished()]

    def _tell(self, number: int, result: Trial) -> None:
        self._seen.add(number)
        self._search.tell(result)
        self._on_trial()

    def _trials(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        return [one for one in trials if _SETTING in one.user_attrs]

    def _beat(self) -> None:
        for trial in list(self._running.values()):
            if self._database is not None:
                self._database.record_heartbeat(trial._trial_id)

    def _queue(self, setting: Mapping[str, Any]) -> None:
        params, about = {**self._search.usual, **setting}, {_SETTING: dict(setting)}
        queued = freeze(params, self._distributions, "WAITING", user_attrs=about)
        self._study.add_trial(queued)

    def _is_taken(self, number: int, setting: Mapping[str, Any]) -> bool:
        """Whether an earlier trial has the setting: two processes may ask at the same time."""
        taken = [
            self._search.key(one.user_attrs[_SETTING])
            for one in self._trials()
            if one.number < number
            and (one.state == TrialState.RUNNING or _RESULT in one.user_attrs)
        ]
        return self._search.key(setting) in taken


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
