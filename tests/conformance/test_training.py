"""What training may look at, and what survives an interruption; for every registered model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance.test_every_model import EVERY_MODEL, FLOOR, all_scores, hit_rate, make

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.evaluation import Validation
from transcf.experiments.judging import Judging
from transcf.experiments.runs import Contender, run
from transcf.models.base import Held, Recommender
from transcf.models.ease import EASE
from transcf.models.iterative import IterativeRecommender
from transcf.models.registry import available, model_class
from transcf.training.options import FitOptions

ITERATIVE = [name for name in available() if issubclass(model_class(name), IterativeRecommender)]


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))


def digest(model: Recommender) -> str:
    return hashlib.sha256(all_scores(model).tobytes()).hexdigest()


def trail(model: Recommender, train: Interactions, validation: Held) -> list[str]:
    """What a model is after each epoch and at the end of training without choosing an epoch."""
    seen: list[str] = []
    options = FitOptions(on_epoch=lambda number: seen.append(digest(model)))
    model.fit(train, validation, options)
    return seen or [digest(model)]


def others(split: Split) -> Interactions:
    """As many held-out pairs as the validation part has, with other items."""
    held = split.validation
    items = (held.item_rows + 7) % held.n_items
    return Interactions.from_rows(held.users, held.items, held.user_rows, items.astype(np.int32))


def few_epochs(name: str) -> dict[str, int]:
    return {"epochs": 4} if name in ITERATIVE else {}


def learns_from_training_alone(model: Recommender, split: Split) -> bool:
    twin = type(model)(**model.get_params())
    first = trail(model, split.train, split.validation)
    return first == trail(twin, split.train, others(split))


@EVERY_MODEL
def test_held_out_pairs_change_nothing_that_is_learned(name: str, split: Split) -> None:
    assert learns_from_training_alone(make(name, **few_epochs(name)), split)


class Cheat(EASE):
    """Learns from the validation part, too."""

    def _learn(self, train: Interactions, validation: Held, options: FitOptions) -> None:
        assert isinstance(validation, Interactions)
        users = np.concatenate([train.user_rows, validation.user_rows])
        items = np.concatenate([train.item_rows, validation.item_rows])
        both = Interactions.from_rows(train.users, train.items, users, items)
        super()._learn(both, validation, options)


def test_a_cheat_would_be_noticed(split: Split) -> None:
    assert not learns_from_training_alone(Cheat(), split)


@EVERY_MODEL
def test_the_test_part_is_not_there_while_settings_are_chosen(name: str, split: Split) -> None:
    """With nothing in the test part, what is fitted and chosen is the same."""
    choices: list[dict[str, Any]] = [{}, {"random_state": 1}] if name in ITERATIVE else [{}]
    contender = Contender(name, name, {**make(name).get_params(), **few_epochs(name)}, choices)
    judging = Judging("strict", part="validation")
    whole = run(contender, split, judging, [0])
    nothing = split.test.select(np.zeros(len(split.test), dtype=bool))
    blind = run(contender, replace(split, test=nothing), judging, [0])
    assert blind.chosen == whole.chosen
    assert digest(blind.model) == digest(whole.model)


class KilledError(Exception):
    """Stands for whatever ends a run in the middle."""


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_killed_run_resumes_with_the_same_bits(name: str, split: Split, tmp_path: Path) -> None:
    whole = make(name, **few_epochs(name)).fit(split.train, Validation.of(split))

    def die(number: int) -> None:
        if number == 3:
            raise KilledError

    broken = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0, on_epoch=die)
    with pytest.raises(KilledError):
        make(name, **few_epochs(name)).fit(split.train, Validation.of(split), broken)
    going_on = FitOptions(checkpoint=tmp_path, resume=True)
    resumed = make(name, **few_epochs(name)).fit(split.train, Validation.of(split), going_on)
    assert digest(resumed) == digest(whole)
    assert resumed.history_.drop("seconds").equals(whole.history_.drop("seconds"))
    assert resumed.best_epoch_ == whole.best_epoch_


class _AsGuests:
    """A model that knows its users by their histories alone."""

    def __init__(self, model: Recommender) -> None:
        self.users_ = model.users_
        histories = [model.seen_.row(row) for row in range(len(model.users_))]
        self._guests = model._guests(histories)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return np.array(self._guests.score_block(users))


@pytest.mark.parametrize("name", [name for name in available() if name not in FLOOR])
def test_people_who_were_not_in_training_get_good_lists(name: str, tastes: tuple) -> None:
    log, held = tastes
    model = make(name).fit(log)
    floor = max(hit_rate(make(other).fit(log), log, held) for other in FLOOR)
    assert hit_rate(_AsGuests(model), log, held) > floor + 0.08
