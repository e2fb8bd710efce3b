"""`Tuning`: what came of the settings that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import polars as pl

from transcf.errors import TransCFError
from transcf.pages.tables import Table
from transcf.tuning.config import Config
from transcf.tuning.search import State, Tried
from transcf.tuning.spaces import Space


@dataclass(frozen=True)
class Tuning:
    """Trials of one model.

    Attributes:
        model: Its name in the registry.
        params: What was set in all of them.
        metric: What they were judged by, on validation data.
        trials: What was tried, in the order in which it was finished.
        space: What could be chosen.
        usual: What its parameters are in the trial that chooses none.
        sampler: Who proposed settings.
        study: Name under which trials are on record; nothing if they are not.
        storage: Where; nothing if they are not.
        is_interrupted: Whether somebody ended it.
    """

    model: str
    params: Mapping[str, Any]
    metric: str
    trials: Sequence[Tried]
    space: Space
    usual: Mapping[str, Any]
    sampler: str = "tpe"
    study: str = ""
    storage: str = ""
    is_interrupted: bool = False

    @property
    def best(self) -> Tried:
        """The first of the trials with the best figure.

        Raises:
            TransCFError: There is none; the reason of the first that failed.
        """
        done = [tried for tried in self.trials if tried.figure is not None]
        done = [tried for tried in done if tried.state == "complete"]
        if not done:
            failed = [tried.reason for tried in self.trials if tried.state == "failed"]
            raise TransCFError(failed[0] if failed else "No trial was finished: allow for more.")
        return max(done, key=lambda tried: tried.figure or 0.0)

    @property
    def best_params(self) -> dict[str, Any]:
        """All parameters that are set in the best trial."""
        return {**self.params, **self.best.setting}

    @property
    def seconds(self) -> float:
        """Wall clock of all trials, one after the other."""
        return sum(tried.seconds for tried in self.trials)

    def count(self, state: State) -> int:
        """How many trials ended so."""
        return sum(tried.state == state for tried in self.trials)

    def config(self) -> Config:
        """The best settings as a file holds them, with how they were found."""
        found = {
            "metric": self.metric,
            "figure": self.best.figure,
            "trials": len(self.trials),
            "sampler": self.sampler,
            "minutes": round(self.seconds / 60, 2),
        }
        return Config(self.model, self.best_params, found)

    def table(self) -> pl.DataFrame:
        """One row for each trial: number, state, figure, epoch, seconds, its settings, reason."""
        rows = [
            {
                "number": number,
                "state": tried.state,
                self.metric: tried.figure,
                "epoch": tried.epoch,
                "seconds": tried.seconds,
                **{**self.usual, **tried.setting},
                "reason": tried.reason,
            }
            for number, tried in enumerate(self.trials, start=1)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Show the trials in notebooks, the best first."""
        trials = self.table().sort(self.metric, descending=True, nulls_last=True)
        title = f"{self.model}: {len(self.trials)} trials, by {self.metric} on validation data"
        return Table.of(trials, title)._repr_html_()

    def curve(self) -> list[float | None]:
        """The best figure after each trial; None as long as there is none."""
        figures = [tried.figure if tried.state == "complete" else None for tried in self.trials]
        return list(accumulate(figures, _larger))

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
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


def _larger(one: float | None, other: float | None) -> float | None:
    return max((figure for figure in (one, other) if figure is not None), default=None)
