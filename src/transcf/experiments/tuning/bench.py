"""One trial: a model with some settings, fitted on the training part and judged on validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from transcf.data.split import Split
from transcf.evaluation import Validation
from transcf.experiments.contenders import Contender
from transcf.experiments.course import as_tried, trial
from transcf.experiments.store import Store
from transcf.experiments.work import finish
from transcf.models.recommender import Recommender
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
        return Contender(self.model, self.model, self.params).make(self.seed, setting)


@dataclass(frozen=True)
class Bench:
    """A task and its data; every trial of it is judged by the same people.

    Attributes:
        task: What trials have in common.
        split: Where; its test part is not looked at.
        store: Where finished trials are kept and taken from, or None.
        dataset: Name of the data, for who looks at the store.

    Example:
        >>> from transcf import open_split
        >>> bench = Bench(Task("ease"), open_split("synthetic"))
        >>> bench.run({"regularization": 50.0}).state
        'complete'
    """

    task: Task
    split: Split
    store: Store | None = None
    dataset: str = ""

    @cached_property
    def validation(self) -> Validation:
        """How models are judged."""
        return Validation.of(self.split, self.task.protocol, metric=self.task.metric)

    def run(self, setting: Mapping[str, Any], is_behind: IsBehind | None = None) -> Tried:
        """Fit and judge, unless the store has it.

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
        options = FitOptions(progress=False, on_epoch=_watch(model, curve, is_behind))
        about = {"dataset": self.dataset, "model": self.task.model}
        started = time.perf_counter()
        job = trial(
            model,
            self.split.train,
            self.validation,
            options=lambda: options,
            store=self.store,
            about=about,
        )
        try:
            return as_tried(setting, finish(job))
        except _Behind:
            seconds = round(time.perf_counter() - started, 3)
            return Tried(setting, "pruned", max(curve.values()), seconds, curve=curve)


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
