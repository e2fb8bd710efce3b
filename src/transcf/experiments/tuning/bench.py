"""One trial: a model with some settings, fitted on the training part and judged on validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeAlias

from transcf.data.split import Split
from transcf.errors import MissingExtraError, ParameterError, TransCFError
from transcf.evaluation import Validation
from transcf.models.recommender import Recommender
from transcf.models.registry import create, model_class
from transcf.training.options import FitOptions
from transcf.training.trainable import Epoch
from transcf.tuning.search import Tried

#: Told the curve so far after each validated epoch; returns whether to give the trial up.
IsBehind: TypeAlias = Callable[[Mapping[int, float]], bool]


@dataclass(frozen=True)
class Task:
    """What trials have in common, but for the data.

    Attributes:
        model: Name of the model, as in the registry.
        params: Parameters that are set, whatever is tried.
        metric: What validation data is judged by.
        protocol: How; it says whether candidates are sampled.
        seed: Of the model, where a seed changes anything.
    """

    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "N@10"
    protocol: str | None = None
    seed: int = 0

    def make(self, setting: Mapping[str, Any]) -> Recommender[Any]:
        """Make the model; a seed that is set by name wins over the general one."""
        return make_model(self.model, self.seed, {**self.params, **setting})


@dataclass(frozen=True)
class Bench:
    """A task and its data; every trial of it is judged by the same people.

    Example:
        >>> from transcf import open_split
        >>> bench = Bench(Task("ease"), open_split("synthetic"))
        >>> bench.run({"regularization": 50.0}).state
        'complete'
    """

    task: Task
    split: Split

    @classmethod
    def of(cls, folder: str, task: Mapping[str, Any]) -> Self:
        """Open a saved split, and a task as `dataclasses.asdict` writes it."""
        return cls(Task(**task), Split.load(folder))

    @cached_property
    def validation(self) -> Validation:
        """How models are judged."""
        return Validation.of(self.split, self.task.protocol, metric=self.task.metric)

    def run(self, setting: Mapping[str, Any], is_behind: IsBehind | None = None) -> Tried:
        """Fit and judge.

        Args:
            setting: On top of what the task sets.
            is_behind: Whether to give it up, asked after every validated epoch of models that
                have epochs; None never does.

        Raises:
            ParameterError: The setting is none, and so would be others.
            MissingExtraError: The model cannot be fitted here at all.
            KeyboardInterrupt: Somebody ended it.
        """
        model = self.task.make(setting)
        curve: dict[int, float] = {}
        started = time.perf_counter()
        options = FitOptions(progress=False, on_epoch=_watch(model, curve, is_behind))
        try:
            model.fit(self.split.train, self.validation, options)
            if model.report_.get("ending") == "interrupted":
                raise KeyboardInterrupt
            figure = self.validation(model)
        except _Behind:
            return Tried(setting, "pruned", max(curve.values()), _since(started), curve=curve)
        except (ParameterError, MissingExtraError):
            raise
        except TransCFError as error:
            return Tried(setting, "failed", None, _since(started), curve=curve, reason=str(error))
        return Tried(setting, "complete", figure, _since(started), model.best_epoch_, curve)


def make_model(name: str, seed: int, params: Mapping[str, Any]) -> Recommender[Any]:
    """Make a model; a seed among the parameters wins over the general one.

    Example:
        >>> make_model("random", 3, {}), make_model("ease", 3, {"regularization": 5.0})
        (Random(random_state=3), EASE(regularization=5.0))
    """
    has_seed = "random_state" in model_class(name).rules()
    return create(name, **{**({"random_state": seed} if has_seed else {}), **params})


class _Behind(Exception):  # noqa: N818 - it ends a fit, and nothing is wrong
    """A trial is given up."""


def _watch(
    model: Recommender[Any], curve: dict[int, float], is_behind: IsBehind | None
) -> Callable[[Epoch[Any]], None] | None:
    """Follow the curve of a model with epochs of its own; parts of a blend have others."""
    if not model.has_epochs():
        return None

    def on_epoch(epoch: Epoch[Any]) -> None:
        if epoch.metric is None or epoch.number <= max(curve, default=0):
            return  # not validated, or a second run of a model that tries several forms
        curve[epoch.number] = epoch.metric
        if is_behind is not None and is_behind(curve):
            raise _Behind

    return on_epoch


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 4)
