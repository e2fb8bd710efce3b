"""Cells of tables: what a result depends on, and what comes of it.

A *trial* is a model fitted on the training part and judged on the validation part, to choose
settings. A *judged* cell is a model with settings and seed, fitted as a protocol says and judged by
it. Both are found again by a key: a hash of all that could change their figures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.errors import TransCFError
from transcf.evaluation import Evaluation, Validation
from transcf.experiments.judging import Judging
from transcf.learning.settings import values_of
from transcf.learning.weights import WeightSettings
from transcf.models.recommender import Recommender

Kind: TypeAlias = Literal["trial", "judged"]


@dataclass(frozen=True)
class Cell:
    """What a result depends on; names of data and models are no part of it.

    Attributes:
        kind: Whether it is there to choose settings, or to be reported.
        data: Digest of what is learned from: the training part of a trial, else the whole split.
        rules: How it is judged.
        model: Class of the model.
        settings: All of its settings, the seed among them.
        version: Of the library.
        generation: `Recommender.revision` when it was run: what was stored before a change that
            moves results is not found any more.
    """

    kind: Kind
    data: str
    rules: Mapping[str, Any]
    model: str
    settings: Mapping[str, Any]
    version: str = __version__
    generation: int = 1

    @classmethod
    def trial(cls, model: Recommender[Any], train: Interactions, validation: Validation) -> Self:
        """Return the cell of a model that is tried on validation data; the test part is no part.

        Example:
            >>> from transcf import EASE, open_split
            >>> split = open_split("synthetic")
            >>> cells = [
            ...     Cell.trial(EASE(regularization=value), split.train, Validation.of(split))
            ...     for value in (50, 50.0, 60.0)
            ... ]
            >>> cells[0].key == cells[1].key, cells[0].key == cells[2].key
            (True, False)
        """
        rules = {"metric": validation.metric, "validation": validation.fingerprint}
        return cls("trial", train.digest, rules, *_told_of(model))

    @classmethod
    def judged(
        cls, model: Recommender[Any], split: Split, judging: Judging, *, validated: bool = True
    ) -> Self:
        """Return the cell of a model that is judged by a protocol.

        Args:
            model: With its settings.
            split: Where.
            judging: How; its protocol is known.
            validated: Whether the result has the validation figure, too.
        """
        rules = {
            "protocol": judging.protocol,
            "ties": judging.ties,
            "part": judging.part,
            "at": list(judging.at),
            "beyond": judging.beyond,
            "split": split.how,
            "validated": validated,
        }
        return cls("judged", split.digest, rules, *_told_of(model))

    @cached_property
    def key(self) -> str:
        """SHA-256 of all of it."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def seed(self) -> int | None:
        """The seed of the model, where it has one."""
        return self.settings.get("random_state")

    def to_dict(self) -> dict[str, Any]:
        """JSON form; the same for numbers that mean the same, such as 50 and 50.0."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _plain(value) for name, value in content.items()}


def _told_of(model: Recommender[Any]) -> tuple[str, dict[str, Any], str, int]:
    """Return what a cell says of its model and of the library."""
    return type(model).__name__, values_of(model.settings), __version__, model.revision


def _plain(value: Any) -> Any:
    """Write a value in the one way that stands for it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return int(value) if value.is_integer() else value if np.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a cell; all that tables need, so that the model itself can be let go.

    Attributes:
        model: Class of the model.
        parameters: The settings that it was learned with.
        seconds: Wall clock of fitting; of both fits where the epoch is chosen in one and the model
            of that epoch learned in another.
        parts: `training_seconds` and `validation_seconds` of it, for models with epochs.
        spent: Wall clock of all of it, judging as well.
        validation: What chose settings and epochs, of the kept model; None if it was not asked for.
        best_epoch: The epoch that was kept; None for models without epochs.
        curve: `epoch`, `loss` and `metric` (None where an epoch was not validated) of each epoch.
        n_bytes: Size of what was learned.
        chooses: Whether the model chose something on validation data by itself.
        times: Whether it uses times of events; None where it could not.
        evaluation: The figures, of every user; None of a trial.
        full_ranking: The same in full ranking, where the protocol samples candidates.
        error: Why there is nothing of the above.
        stored: Whether it was run before.
    """

    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    spent: float = 0.0
    validation: float | None = None
    best_epoch: int | None = None
    curve: Sequence[Mapping[str, Any]] = ()
    n_bytes: int = 0
    chooses: bool = False
    times: bool | None = None
    evaluation: Evaluation | None = None
    full_ranking: Evaluation | None = None
    error: TransCFError | None = None
    stored: bool = False

    @classmethod
    def of(cls, model: Recommender[Any], **found: Any) -> Self:
        """Note what a fitted model is, beside what was found about it."""
        settings = model.settings_
        can_use_times = isinstance(settings, WeightSettings) and model.learned_.known.timed
        about = {
            "parameters": values_of(settings),
            "best_epoch": model.best_epoch_,
            "n_bytes": model.nbytes,
            "chooses": model.chooses(),
            "times": settings.uses_times if can_use_times else None,
        }
        return cls(type(model).__name__, **{**about, **found})


def curve_of(model: Recommender[Any]) -> list[dict[str, Any]]:
    """Return `epoch`, `loss` and `metric` of the epochs of the last fit; none without epochs."""
    if model.best_epoch_ is None:
        return []
    return model.history_.select("epoch", "loss", "metric").to_dicts()
