"""What every model trained in epochs promises: what a run is, and what divergence leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from transcf.data import draw_candidates, leave_one_out, synthesize
from transcf.data.split import Split
from transcf.errors import DivergenceError, ModelFileError, NotFittedError
from transcf.evaluation import Validation
from transcf.models import iterative
from transcf.models.iterative import ITERATION_RULES, IterativeRecommender
from transcf.models.rules import Number, Rule
from transcf.training import EpochStats, FitOptions


class Drift:
    """Moves one weight per item a little in every epoch; one epoch may fail."""

    def __init__(self, n_items: int, fails_in: int) -> None:
        self.weights, self.fails_in = np.zeros(n_items, np.float32), fails_in

    def run_epoch(self, number: int) -> EpochStats:
        self.weights += np.arange(len(self.weights), dtype=np.float32) * (-1.0) ** number / number
        return EpochStats(np.nan if number == self.fails_in else 1.0 / number, samples=1)

    def tensors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights}

    def load_tensors(self, tensors: dict[str, np.ndarray]) -> None:
        self.weights = tensors["weights"].copy()


class Drifting(IterativeRecommender):
    """The same order of items for everybody, another one after each epoch."""

    name = "drifting"
    rules: ClassVar[Mapping[str, Rule]] = ITERATION_RULES | {"fails_in": Number(whole=True)}

    def __init__(
        self, *, epochs: int = 4, validate_every: int = 1, patience: int | None = None,
        random_state: int = 0, n_threads: int | None = None, fails_in: int = 0,
    ) -> None:  # fmt: skip
        self.epochs, self.validate_every, self.patience = epochs, validate_every, patience
        self.random_state, self.n_threads, self.fails_in = random_state, n_threads, fails_in

    def _trainable(self, train) -> Drift:
        return Drift(train.n_items, self.fails_in)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return np.tile(self.weights_, (len(users), 1))

    def _state(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights_}

    def _restore(self, state: dict[str, np.ndarray]) -> None:
        self.weights_ = state["weights"].copy()


@pytest.fixture(scope="module")
def split() -> Split:
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    return draw_candidates(leave_one_out(log), n=9)


def test_a_run_resumes_by_the_rules_that_it_began_with(split: Split, tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    Drifting(epochs=2).fit(split.train, split.validation, options)
    resumed = Drifting(epochs=4).fit(split.train, Validation.of(split), options)
    whole = Drifting(epochs=4).fit(split.train, split.validation)
    assert resumed.history_.drop("seconds").equals(whole.history_.drop("seconds"))


def test_a_run_with_another_validation_times_or_library_is_refused(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    train, held_out = split.train, split.validation
    assert train.timestamps is not None
    Drifting().fit(train, held_out, options)
    optimistic = Validation(held_out, known=train.by_user, ties="optimistic")
    for log, judge in (
        (train, None),
        (train, Validation.of(split, "paper")),
        (train, optimistic),
        (train, held_out.select(held_out.user_rows > 5)),
        (replace(train, timestamps=train.timestamps[::-1].copy()), held_out),
        (replace(train, timestamps=None), held_out),
    ):
        with pytest.raises(ModelFileError, match="other settings or data"):
            Drifting().fit(log, judge, options)
    monkeypatch.setattr(iterative, "__version__", "0.0.0")
    with pytest.raises(ModelFileError, match="other settings or data"):
        Drifting().fit(train, held_out, options)


@pytest.mark.parametrize("validated", [False, True])
def test_divergence_keeps_the_best_finished_epoch_and_its_history(
    split: Split, validated: bool
) -> None:
    held_out = split.validation if validated else None
    model = Drifting(fails_in=3)
    with pytest.raises(DivergenceError, match="epoch 3"):
        model.fit(split.train, held_out)
    whole = Drifting(epochs=2).fit(split.train, held_out)
    assert model.history_.drop("seconds").equals(whole.history_.drop("seconds"))
    assert model.best_epoch_ == whole.best_epoch_
    assert model.report_["ending"] == "diverged"
    np.testing.assert_array_equal(model.weights_, whole.weights_)
    assert model.recommend(k=3).equals(whole.recommend(k=3))


@pytest.mark.parametrize("validated", [False, True])
def test_divergence_before_any_finished_epoch_leaves_the_model_unfitted(
    split: Split, validated: bool
) -> None:
    model = Drifting(fails_in=1)
    with pytest.raises(DivergenceError, match="epoch 1"):
        model.fit(split.train, split.validation if validated else None)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.recommend(k=3)
