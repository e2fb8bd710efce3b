"""What a study compares, read from a TOML file.

title = "..."
protocol = "paper"                # of evaluation
seeds = 5                         # runs of every model that a seed changes
metrics = ["H@10", "N@10"]        # columns of the table
compare = "N@10"                  # metric of the paired tests, optional

[[datasets]]
name = "delicious"                # as on the command line
core = 5                          # k-core filter, optional
[datasets.published.transcf]      # figures to stand beside ours, optional
"H@10" = 0.2586

[[models]]
name = "ease"
preset = "..."                    # optional
params = { ... }                  # optional
grid = { regularization = [...] } # chosen on validation data, optional
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Self

from transcf.errors import ParameterError

_FOLDER = files("transcf.experiments").joinpath("studies")


@dataclass(frozen=True)
class DatasetPlan:
    """One dataset of a study."""

    name: str
    core: int | None = None
    published: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelPlan:
    """One model of a study; `grid` lists values to choose from on validation data.

    `label` stands for it in the table, its name if there is none.
    """

    name: str
    label: str = ""
    preset: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)

    def choices(self) -> list[dict[str, Any]]:
        """Every combination of the grid; one empty combination without a grid."""
        return [
            dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())
        ]


@dataclass(frozen=True)
class Study:
    """A table to be made."""

    title: str
    protocol: str
    seeds: int
    metrics: tuple[str, ...]
    datasets: tuple[DatasetPlan, ...]
    models: tuple[ModelPlan, ...]
    compare: str | None = None

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read the parsed TOML; an unknown or missing key is an error that names it."""
        try:
            return cls(
                **{
                    **content,
                    "metrics": tuple(content["metrics"]),
                    "datasets": tuple(DatasetPlan(**entry) for entry in content["datasets"]),
                    "models": tuple(ModelPlan(**entry) for entry in content["models"]),
                }
            )
        except (KeyError, TypeError) as problem:
            raise ParameterError(f"The study is not understood: {problem}.") from problem


def available_studies() -> tuple[str, ...]:
    """Return the names of the studies that come with the library."""
    names = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_study(name: str | Path) -> Study:
    """Read a study by its name or from a TOML file.

    Example:
        >>> load_study("paper-core").seeds
        5
    """
    if str(name) in available_studies():
        text = _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise ParameterError(
            f"There is no study {str(name)!r}: name a TOML file or one of "
            f"{', '.join(available_studies())}."
        )
    return Study.from_dict(tomllib.loads(text))
