"""What was tried, in a database of Optuna (SQLite, PostgreSQL): its tools can look at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.tuning.search import Search, State, Tried
from transcf.tuning.tpe import distributions, frozen, quietly

_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
#: Where the record says what it is about.
_ABOUT = "transcf"


class Record:
    """Trials of one study, each written when it is finished and in one go.

    What is under way is not in it, so that a process that was killed leaves nothing half done.

    Args:
        storage: Name of a SQLite file, or a URL.
        name: Of the study.
        about: All that figures depend on; a study of another kind is refused.
        search: Whose space it is.

    Raises:
        ParameterError: A study of this name is about something else.
        DataError: The database does not answer.
    """

    def __init__(self, storage: str, name: str, about: Mapping[str, Any], search: Search) -> None:
        """Open the database, and the study in it."""
        self._distributions = distributions(search.space, search.usual)
        self._usual = search.usual
        with quietly():
            try:
                database = RDBStorage(_url(storage))
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

    def add(self, tried: Tried) -> None:
        """Write a finished trial down."""
        trial = frozen(tried, self._usual, self._distributions)
        trial.user_attrs = {
            "setting": dict(tried.setting),
            "seconds": tried.seconds,
            "epoch": tried.epoch,
            "reason": tried.reason,
        }
        with quietly():
            self._study.add_trial(trial)

    def trials(self) -> list[Tried]:
        """Return what was finished, in order."""
        return [_tried(trial) for trial in self._study.get_trials(deepcopy=False)]


def _tried(trial: FrozenTrial) -> Tried:
    about = trial.user_attrs
    return Tried(
        about["setting"],
        _STATES[trial.state],
        trial.value,
        about["seconds"],
        about["epoch"],
        trial.intermediate_values,
        about["reason"],
    )


def _url(storage: str) -> str:
    """Write a file as a URL, and a URL of PostgreSQL with the library that is installed for it."""
    if "://" not in storage:
        path = Path(storage).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{path}"
    scheme, rest = storage.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else storage
