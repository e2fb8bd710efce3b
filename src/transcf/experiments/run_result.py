"""The result of one run, and its form in files of the run cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import nan
from typing import Any, Self, TypedDict, get_type_hints

import polars as pl

from transcf.data.parquet_check import damage_of
from transcf.errors import DivergenceError, TransCFError
from transcf.evaluation import Evaluation
from transcf.models.base import Recommender
from transcf.models.event_weights import WeightSettings
from transcf.models.params import values_of


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run; it has all that tables need, so that the model can be deleted.

    Attributes:
        model: Class of the model.
        parameters: Parameters of the fitted model.
        seconds: Wall clock of fitting; the sum if a model is fitted twice.
        parts: `training_seconds` and `validation_seconds` of it, for models with epochs.
        spent: Wall clock of the whole run, including evaluation.
        validation: Metric on the validation part; None if it was not computed.
        best_epoch: The epoch that was kept; None for models without epochs.
        curve: `epoch`, `loss` and `metric` (None if an epoch was not validated) of each epoch.
        n_bytes: Size of the fitted model.
        chooses: Whether the model chose something on validation data by itself.
        times: Whether it uses times of events; None if it cannot.
        evaluation: Metrics of every user; None for a trial.
        full_ranking: The same in full ranking, if the protocol samples candidates.
        error: Why there are no results.
        stored: Whether the result is from the cache.
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
        """Add the properties of a fitted model to what was measured."""
        settings = model.settings_
        can_use_times = isinstance(settings, WeightSettings) and model.learned_.known.timed
        about = {
            "parameters": values_of(settings),
            "best_epoch": model.best_epoch_,
            "n_bytes": sum(array.nbytes for array in model.learned_.arrays().values()),
            "chooses": model._chooses(model.learned_.known.timed),
            "times": settings.uses_times if can_use_times else None,
        }
        return cls(type(model).__name__, **{**about, **found})


class _Step(TypedDict):
    epoch: int
    loss: float | None
    metric: float | None


class _Figures(TypedDict):
    """An evaluation without the metrics of users."""

    model: str
    protocol: str
    ties: str
    subset: str
    skipped: dict[str, int]
    catalogue: dict[str, float | None]
    note: str
    split: str


#: Files with the metrics of users, by the part of a result that has them.
FILES = {"evaluation": "users.parquet", "full_ranking": "full.parquet"}
#: Types of the JSON form of a result.
RESULT_TYPES = {
    **{name: kind for name, kind in get_type_hints(RunResult).items() if name != "stored"},
    **dict.fromkeys(FILES, _Figures | None),
    "curve": list[_Step],
    "error": str | None,
}


def to_dict(result: RunResult) -> dict[str, Any]:
    """Return the JSON form, without the metrics of users."""
    content = {one.name: getattr(result, one.name) for one in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in FILES:
        if (found := content[name]) is not None:
            content[name] = {key: getattr(found, key) for key in _Figures.__annotations__}
    return content


def from_parts(content: Mapping[str, Any], files: Mapping[str, bytes]) -> RunResult:
    """Read a result from its JSON form and its files.

    Raises:
        ValueError: A file is damaged.
        KeyError: A file is missing.
    """
    read = {**content, "stored": True}
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in FILES.items():
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            table = _parse_table(files[file], file)
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": table})
    return RunResult(**read)


def _parse_table(content: bytes, name: str) -> pl.DataFrame:
    if (damage := damage_of(content)) is not None:
        raise ValueError(f"{name} is damaged: {damage}")
    table = pl.read_parquet(content)
    figures = table.drop("user_id")
    if not all(kind.is_float() for kind in figures.dtypes) or not figures.width * figures.height:
        raise ValueError(f"{name} has no figures of users")
    if figures.null_count().sum_horizontal().item():
        raise ValueError(f"{name} has missing figures")
    return table
