"""Optuna's study of a search: its database, the queue of settings and the results.

A trial is RUNNING in the database while it runs. One whose process was killed has no heartbeat any
more: Optuna fails it after a grace period and queues its setting again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
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
from transcf.tuning.search import Search, Trial
from transcf.tuning.tpe import STATES, distributions, freeze, quiet_optuna

#: Seconds between heartbeats, and without one until a trial counts as lost.
HEARTBEAT, GRACE = 5, 30
#: Times that the setting of a lost trial is tried again: it may be what kills the process.
_MAX_RETRIES = 2
#: Attributes of the study and of its trials.
_ABOUT, _SETTING, _RESULT = "transcf", "setting", "result"


class TrialStudy:
    """Trials of one search, shared by all processes that open the same database.

    Args:
        storage: SQLite file or database URL; None keeps trials in memory.
        name: Name of the study.
        about: Everything that results depend on.
        search: Its space and defaults.

    Raises:
        ParameterError: The database has a study of that name about something else.
        DataError: The database cannot be opened.
    """

    def __init__(
        self, storage: str | None, name: str, about: Mapping[str, Any], search: Search
    ) -> None:
        self._usual = search.usual
        self._distributions = distributions(search.space, search.usual)
        self._running: dict[int, optuna.Trial] = {}
        with quiet_optuna():
            try:
                self._database = None if storage is None else _open_database(storage)
                self._study = optuna.create_study(
                    storage=self._database,
                    study_name=name or None,
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
                "study (--study), or another database."
            )

    def finished(self) -> list[tuple[int, Trial]]:
        """Return the numbers and results of finished trials, in the order of their ends."""
        done = [one for one in self._study.get_trials(deepcopy=False) if _RESULT in one.user_attrs]
        done = [one for one in done if one.state.is_finished()]
        done.sort(key=lambda one: (one.datetime_complete, one.number))
        return [(one.number, _parse(one.user_attrs[_RESULT])) for one in done]

    def start(self, search: Search) -> tuple[int, dict[str, Any]] | None:
        """Start a trial with a queued setting, or else with a new one.

        Args:
            search: Proposes settings; it has to know the finished trials.

        Returns:
            Number and setting of the trial; None if there is nothing left to try.
        """
        with quiet_optuna():
            while True:
                fail_stale_trials(self._study)
                unfinished = self._unfinished()
                if not any(one.state == TrialState.WAITING for one in unfinished):
                    setting = search.ask([one.user_attrs[_SETTING] for one in unfinished])
                    if setting is None:
                        return None
                    self._enqueue(setting)
                trial = self._study.ask()
                setting = trial.user_attrs.get(_SETTING)
                if setting is not None and not self._is_taken(setting, trial.number, search):
                    self._running[trial.number] = trial
                    self._beat()
                    return trial.number, setting
                self._study.tell(trial, state=TrialState.FAIL)

    def finish(self, number: int, result: Trial) -> None:
        """Store the result of a trial."""
        trial = self._running.pop(number)
        written = {**asdict(result), "curve": list(result.curve.items())}
        value = result.figure if result.state == "complete" else None
        with quiet_optuna(), suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(_RESULT, written)
            self._study.tell(trial, value, STATES[result.state])

    def release(self) -> None:
        """Queue the settings of the running trials of this process again."""
        running, self._running = self._running, {}
        for trial in running.values():
            setting = trial.user_attrs[_SETTING]
            self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            self._enqueue(setting)

    def is_busy_elsewhere(self) -> bool:
        """Whether another process runs trials of this study."""
        running = [one for one in self._unfinished() if one.state == TrialState.RUNNING]
        return any(one.number not in self._running for one in running)

    @contextmanager
    def heartbeats(self) -> Iterator[None]:
        """Record heartbeats of the running trials of this process inside the block."""
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

    def _unfinished(self) -> list[FrozenTrial]:
        states = (TrialState.WAITING, TrialState.RUNNING)
        found = self._study.get_trials(deepcopy=False, states=states)
        return [one for one in found if _SETTING in one.user_attrs]

    def _beat(self) -> None:
        for trial in list(self._running.values()) if self._database is not None else ():
            assert self._database is not None
            self._database.record_heartbeat(trial._trial_id)

    def _enqueue(self, setting: Mapping[str, Any]) -> None:
        params = {**self._usual, **setting}
        attributes = {_SETTING: dict(setting)}
        self._study.add_trial(
            freeze(params, self._distributions, state=TrialState.WAITING, user_attrs=attributes)
        )

    def _is_taken(self, setting: Mapping[str, Any], number: int, search: Search) -> bool:
        """Whether an earlier trial has the setting: two processes may ask at the same time."""
        taken = [
            one.user_attrs[_SETTING]
            for one in self._study.get_trials(deepcopy=False)
            if one.number < number
            and _SETTING in one.user_attrs
            and (one.state == TrialState.RUNNING or _RESULT in one.user_attrs)
        ]
        return search.key(setting) in map(search.key, taken)


def _parse(result: Mapping[str, Any]) -> Trial:
    return Trial(**{**result, "curve": dict(result["curve"])})


def _open_database(storage: str) -> RDBStorage:
    """Open a database and create its tables; retry once if another process creates them too."""
    options: dict[str, Any] = {
        "heartbeat_interval": HEARTBEAT,
        "grace_period": GRACE,
        "heartbeat_stale_trial_callback": RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRIES),
    }
    url = _url(storage)
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
    """Speed SQLite up: a trial takes 60 ms of writing instead of 300, and survives kills too."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _url(storage: str) -> str:
    """Return the URL of a SQLite file, or a PostgreSQL URL with the driver that is installed."""
    if "://" not in storage:
        path = Path(storage).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{path}"
    scheme, rest = storage.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else storage
