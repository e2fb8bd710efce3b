"""What was tried, in a database of Optuna (SQLite, PostgreSQL): its tools can look at it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.experiments.tuning.seats import seat
from transcf.tuning.search import Search, Tried
from transcf.tuning.tpe import distributions, frozen, quietly

#: Where the record says what a study is about, and all about a trial.
_ABOUT = "transcf"
#: Seconds in which somebody else has made the tables of a database.
_PAUSE = 1.0
#: How many trials a study has.
_COUNT = text(
    "SELECT COUNT(*) FROM trials JOIN studies USING (study_id) WHERE studies.study_name = :name"
)


class Record:
    """Trials of one study, each written when it is finished and in one go.

    What is under way is not in it, so that a process that was killed leaves nothing half done.

    Args:
        storage: Name of a SQLite file, or a URL.
        name: Of the study.
        about: All that figures depend on; a study of another kind is refused.

    Raises:
        ParameterError: A study of this name is about something else.
        DataError: The database does not answer.
    """

    def __init__(self, storage: str, name: str, about: Mapping[str, Any]) -> None:
        """Open the database, and the study in it."""
        self._read, self._own = 0, list[Tried]()
        with quietly():
            try:
                database = _opened(_url(storage))
                self._engine = database.engine
                self._study = optuna.create_study(
                    storage=database, study_name=name, direction="maximize", load_if_exists=True
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

    @contextmanager
    def seat(self) -> Iterator[int]:
        """Give the number of this process among those at the study, for the length of the block."""
        with seat(self._engine, self._study.study_name) as place:
            yield place

    def add(self, tried: Tried, search: Search) -> None:
        """Write a finished trial of a search down."""
        whole = distributions(search.space, search.usual)
        # One attribute: Optuna writes several, and figures of epochs, by some queries for each.
        trial = frozen(replace(tried, curve={}), search.usual, whole)
        trial.user_attrs = {_ABOUT: {**asdict(tried), "curve": list(tried.curve.items())}}
        self._own.append(tried)
        with quietly():
            self._study.add_trial(trial)

    def news(self) -> list[Tried]:
        """Return what others finished since the last time, in order; first, all that is there."""
        # Optuna asks six times where one question will mostly do.
        with self._engine.connect() as link:
            count = link.execute(_COUNT, {"name": self._study.study_name}).scalar()
        if count == self._read + len(self._own):
            return []
        trials = self._study.get_trials(deepcopy=False)
        fresh = [_tried(trial) for trial in trials[self._read :]]
        self._read = len(trials)
        found = [tried for tried in fresh if tried not in self._own]
        self._own = [tried for tried in self._own if tried not in fresh]
        return found


def _opened(url: str) -> RDBStorage:
    """Open a database, which makes its tables; where others do so at the same time, once more."""
    try:
        database = RDBStorage(url)
    except (IntegrityError, OperationalError):
        time.sleep(_PAUSE)
        database = RDBStorage(url)
    if database.engine.dialect.name == "sqlite":
        event.listen(database.engine, "connect", _write_ahead)
        database.engine.dispose()  # connections of before
    return database


def _write_ahead(link: Any, _: object) -> None:
    """Let SQLite write what is new to a log: several times as fast, and as safe from kills."""
    link.execute("PRAGMA journal_mode=WAL")
    link.execute("PRAGMA synchronous=NORMAL")


def _tried(trial: FrozenTrial) -> Tried:
    about = trial.user_attrs[_ABOUT]
    return Tried(**{**about, "curve": dict(about["curve"])})


def _url(storage: str) -> str:
    """Write a file as a URL, and a URL of PostgreSQL with the library that is installed for it."""
    if "://" not in storage:
        path = Path(storage).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{path}"
    scheme, rest = storage.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else storage
