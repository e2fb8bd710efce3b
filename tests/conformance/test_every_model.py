"""What every registered model must do, whatever it learns."""

from __future__ import annotations

import copy
import doctest
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import transcf
from transcf.data import synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DataError, NotFittedError, ParameterError, UnknownIdError
from transcf.models.base import Recommender
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import Choice, Flag, Number, Rule, Text, values_of
from transcf.models.registry import available, create, model_class
from transcf.models.training import FitOptions
from transcf.parallel import use_threads

#: Settings under which a model learns in a moment; a registered model must have an entry.
QUICK: dict[str, dict[str, object]] = {
    "popularity": {},
    "recent-popularity": {},
    "inverse-popularity": {},
    "random": {},
    "itemknn": {},
    "sequential-rules": {},
    "ease": {"regularization": 20.0},
    "ials": {"dim": 16},
    "eals": {"dim": 16, "unobserved_weight": 16.0, "regularization": 0.5},
    "slim": {},
    "fism": {"dim": 32, "negatives": 5},
    "bpr": {"dim": 32, "learning_rate": 0.2, "epochs": 15},
    "aobpr": {"dim": 32, "learning_rate": 0.2, "epochs": 15},
    "cml": {"dim": 32, "margin": 1.0, "negatives": 3, "learning_rate": 0.1, "epochs": 10},
    "cdae": {"dim": 16, "learning_rate": 0.03, "batch_size": 64, "epochs": 8},
    "neumf": {"dim": 8, "learning_rate": 0.02, "epochs": 6},
    "lightgcn": {"dim": 16, "learning_rate": 0.02, "epochs": 15},
    "sasrec": {"dim": 16, "learning_rate": 0.01, "batch_size": 256, "dropout": 0.3, "epochs": 8},
    "transcf-mixture": {"dim": 16, "epochs": 8},
    "transcf": {"dim": 32},
    "transcf-dot": {"dim": 32},
    "transcf-alt": {"dim": 32},
    "transcf-none": {"dim": 32},
    "transcf-emb": {"dim": 32},
    "blend": {"parts": "itemknn + bpr(dim=16, learning_rate=0.2, epochs=5)"},
}

#: Models that learn nothing about single users, and are not expected to.
FLOOR = {"popularity", "recent-popularity", "inverse-popularity", "random"}


def has(name: str, parameter: str) -> bool:
    return parameter in model_class(name)._rules()


EVERY_MODEL = pytest.mark.parametrize("name", available())


def make(name: str, **params: object) -> Recommender:
    return create(name, **{**QUICK.get(name, {}), **params})


def all_scores(model: Recommender) -> np.ndarray:
    return model.scores(np.arange(len(model.users_), dtype=np.int32))


def pairs_of(log: Interactions) -> set[tuple[object, object]]:
    return set(log.to_frame().select("user_id", "item_id").iter_rows())


@EVERY_MODEL
def test_the_model_is_covered_and_well_made(name: str) -> None:
    assert name in QUICK, f"give {name!r} an entry in QUICK, so that this suite covers it"
    kind = model_class(name)
    assert create(name).name.lower() == name
    assert set(kind._rules()) == set(values_of(kind().settings)), "every hyper-parameter has a rule"
    for parameter in inspect.signature(kind).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is not parameter.empty


def wrong_with_scores(learned: FittedScorer) -> str:
    """What keeps the scores of a learned part from ranking anything, or nothing."""
    kind = type(learned)
    own = {
        method
        for method in ("linear_form", "_score_block", "_delegate")
        if getattr(kind, method) is not getattr(FittedScorer, method)
    }
    if not own:
        return "neither linear_form nor _score_block"
    if own == {"linear_form"} and learned.linear_form() is None:
        return "no linear form after all"
    users = np.flatnonzero(learned.known.active).astype(np.int32)
    block = learned.scores(users)[:, learned.rankable]
    if not np.isfinite(block).all():
        return "not finite"
    return "all items are equal" if (block == block[:, :1]).all() else ""


@EVERY_MODEL
def test_it_has_scores(name: str, tastes: tuple) -> None:
    assert wrong_with_scores(make(name).fit(tastes[0]).learned_) == ""


class Mute(FittedScorer):
    """Says nothing about scores."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {}


class Empty(Mute):
    """Promises a linear form."""

    def linear_form(self) -> None:
        return None


class Flat(Mute):
    """Finds everything equally good."""

    value = 0.0

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        return np.full((len(users), len(self.known.items)), self.value, np.float32)


class Wild(Flat):
    """Finds nothing good or bad."""

    value = np.nan


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Mute, "neither linear_form nor _score_block"),
        (Empty, "no linear form after all"),
        (Flat, "all items are equal"),
        (Wild, "not finite"),
    ],
)
def test_a_model_without_scores_would_be_noticed(
    kind: type[FittedScorer], expected: str, tastes: tuple
) -> None:
    assert wrong_with_scores(kind(TrainingData.of(tastes[0]), "broken")) == expected


@EVERY_MODEL
def test_the_example_in_the_documentation_runs(name: str) -> None:
    kind = model_class(name)
    text = inspect.cleandoc(kind.__doc__ or "")
    for heading in ("Reference", "Example"):
        assert heading in text
    example = doctest.DocTestParser().get_doctest(text, {}, kind.__name__, None, 0)
    assert example.examples
    report: list[str] = []
    assert doctest.DocTestRunner().run(example, out=report.append).failed == 0, "".join(report)


@EVERY_MODEL
def test_recommendations_from_small_logs_are_sound(name: str, small_log: Interactions) -> None:
    model = make(name).fit(small_log)
    table = model.recommend(k=5)
    assert table.columns == ["user_id", "item_id", "score", "rank"]
    assert table["score"].is_finite().all()
    assert not pairs_of(small_log) & set(table.select("user_id", "item_id").iter_rows())
    trained = set(small_log.to_frame()["item_id"])
    assert set(table["item_id"]) <= trained
    for (user,), rows in table.group_by("user_id", maintain_order=True):
        assert rows["rank"].to_list() == list(range(1, len(rows) + 1))
        assert rows["score"].is_sorted(descending=True)
        own = sum(pair[0] == user for pair in pairs_of(small_log))
        assert len(rows) == min(5, len(trained) - own)


@EVERY_MODEL
def test_seen_items_come_back_when_asked_for(name: str, tastes: tuple) -> None:
    log, _ = tastes
    model = make(name).fit(log)
    with_seen = model.recommend(0, k=200, exclude_seen=False)
    without = model.recommend(0, k=200)
    assert set(with_seen["item_id"]) - set(without["item_id"]) == {
        item for user, item in pairs_of(log) if user == 0
    }


@EVERY_MODEL
def test_unknown_ids_are_named_or_skipped(name: str, make_log: Callable) -> None:
    model = make(name).fit(make_log([("ann", "x"), ("ann", "y"), ("bob", "y"), ("bob", "z")]))
    with pytest.raises(UnknownIdError, match="'zoe'"):
        model.recommend(["ann", "zoe"])
    with pytest.warns(UserWarning, match="1 "):
        assert model.recommend("ann", items=["z", "q"])["item_id"].to_list() == ["z"]
    with pytest.warns(UserWarning, match="1 "):
        skipped = model.recommend(["zoe", "ann", "ann"], items=["z", "q"], on_unknown="skip")
    assert skipped.select("user_id", "item_id").rows() == [("ann", "z")]
    pairs = pl.DataFrame({"user_id": ["bob", "zoe"], "item_id": ["x", "x"]})
    with pytest.raises(UnknownIdError, match="'zoe'"):
        model.score(pairs)
    assert model.score(pairs, on_unknown="skip")["user_id"].to_list() == ["bob"]


@EVERY_MODEL
def test_ids_without_training_interactions_have_no_scores(name: str, make_log: Callable) -> None:
    log = make_log([(1, 10), (1, 11), (2, 11), (2, 12), (9, 90)])
    model = make(name).fit(log.select(log.user_rows < 2))
    with pytest.raises(UnknownIdError, match="9 has no training interactions"):
        model.recommend([1, 9])
    assert model.recommend([9], on_unknown="skip").is_empty()
    assert 90 not in model.recommend(k=99)["item_id"].to_list()
    asked = pl.DataFrame({"user_id": [1, 1, 9], "item_id": [12, 90, 10]})
    assert model.score(asked)["score"].is_null().to_list() == [False, True, True]


@EVERY_MODEL
def test_scores_of_pairs_and_blocks_agree(name: str, tastes: tuple) -> None:
    model = make(name).fit(tastes[0])
    block = all_scores(model)
    assert block.shape == (len(model.users_), len(model.items_))
    assert block.dtype == np.float32
    rng = np.random.default_rng(1)
    users = rng.integers(0, len(model.users_), 500).astype(np.int32)
    items = rng.integers(0, len(model.items_), 500).astype(np.int32)
    expected = block[users, items]
    tolerance = 1e-5 * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(model.scores(users, items), expected, atol=tolerance)
    some = np.array([7, 3, 7], dtype=np.int32)
    np.testing.assert_allclose(model.scores(some), block[some], atol=tolerance)


@EVERY_MODEL
def test_a_loaded_model_answers_the_same(name: str, tastes: tuple, tmp_path: Path) -> None:
    model = make(name).fit(tastes[0])
    model.save(tmp_path / "model")
    loaded = transcf.load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.settings_ == model.settings_
    assert loaded.report_ == model.report_
    assert loaded.recommend().equals(model.recommend())
    assert all_scores(loaded).tobytes() == all_scores(model).tobytes()


@EVERY_MODEL
def test_what_a_model_shows_cannot_be_changed_by_accident(name: str, tastes: tuple) -> None:
    model = make(name).fit(tastes[0])
    shown = [getattr(model, f"{key}_") for key in model.learned_.attributes()]
    for value in shown:
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0


@EVERY_MODEL
def test_the_same_seed_gives_the_same_bits(name: str, tastes: tuple) -> None:
    log, _ = tastes
    first = all_scores(make(name).fit(log))
    assert all_scores(make(name).fit(log)).tobytes() == first.tobytes()
    if has(name, "random_state"):
        assert all_scores(make(name, random_state=1).fit(log)).tobytes() != first.tobytes()


@EVERY_MODEL
def test_any_number_of_threads_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    """On items enough that there is work for three: a block of items is one thread's."""
    log = synthesize(users=200, items=700, interactions=4000, seed=3)
    short = {"epochs": 2} if has(name, "epochs") else {}
    first, *others = (
        make(name, **short).fit(log, options=FitOptions(threads=threads)) for threads in (1, 2, 3)
    )
    for number, other in enumerate(others):
        for array, expected in zip(arrays_of(other), arrays_of(first), strict=True):
            assert array.tobytes() == expected.tobytes()
        # Nothing is said of threads, and what took so long is all that differs.
        same = described(first, tmp_path / f"first {number}")
        assert described(other, tmp_path / str(number)) == same
    assert "thread" not in (tmp_path / "0" / "model.json").read_text()
    assert "thread" not in (tmp_path / "0" / "README.md").read_text()
    with use_threads(2):
        assert all_scores(others[1]).tobytes() == all_scores(first).tobytes()


def arrays_of(model: Recommender) -> list[np.ndarray]:
    return [array for _, array in sorted(model.learned_.arrays().items())]


def described(model: Recommender, folder: Path) -> dict[str, Any]:
    """What a folder says of a model, apart from what a clock said."""
    about = json.loads((model.save(folder) / "model.json").read_text())
    del about["sha256"]  # of the seconds, too
    about["report"] = {k: v for k, v in about["report"].items() if not k.endswith("seconds")}
    return about


@EVERY_MODEL
def test_fit_touches_neither_parameters_nor_data(name: str, tastes: tuple) -> None:
    log, _ = tastes
    model = make(name)
    params, before = copy.deepcopy(model.get_params()), log.to_frame()
    assert model.fit(log) is model
    assert model.get_params() == params
    assert log.to_frame().equals(before)


@EVERY_MODEL
def test_a_second_fit_forgets_the_first(name: str, tastes: tuple, make_log: Callable) -> None:
    log, _ = tastes
    other = make_log([(user, item) for user in range(9) for item in range(user, user + 3)])
    again = make(name).fit(other).fit(log)
    fresh = make(name).fit(log)
    assert all_scores(again).tobytes() == all_scores(fresh).tobytes()
    assert again.recommend().equals(fresh.recommend())


def not_allowed(rule: Rule) -> list[object]:
    match rule:
        case Number():
            values: list[object] = ["many", float("nan"), float("inf"), True]
            values += [rule.low - 1] if rule.low > -np.inf else []
            values += [rule.low] if rule.above else []
            values += [rule.low + 0.5] if rule.whole else []
            return values + ([] if rule.optional else [None])
        case Choice():
            return ["nonsense", 1, None]
        case Flag():
            return ["yes", 1, None]
        case Text():
            return ["nonsense", "", 1, None]


@EVERY_MODEL
def test_bad_parameters_are_named(name: str, make_log: Callable) -> None:
    log = make_log([(1, 1), (2, 1), (2, 2)])
    for parameter, rule in model_class(name)._rules().items():
        for value in not_allowed(rule):
            model = make(name, **{parameter: value})
            with pytest.raises(ParameterError, match=rf"{parameter}=.*must be"):
                model.fit(log)
            assert not model.is_fitted
    with pytest.raises(ParameterError, match="has no parameter 'colour'"):
        make(name).set_params(colour="red")


@EVERY_MODEL
def test_numbers_of_numpy_are_numbers(name: str, make_log: Callable, tmp_path: Path) -> None:
    log = make_log([(user, item) for user in range(12) for item in range(user, user + 4)])
    short = {"epochs": 2} if has(name, "epochs") else {}
    plain = values_of(make(name, **short).settings)
    typed = dict(plain)
    for parameter, rule in model_class(name)._rules().items():
        if isinstance(rule, Number) and isinstance(plain[parameter], int | float):
            typed[parameter] = (np.int64 if rule.whole else np.float32)(plain[parameter])
            plain[parameter] = typed[parameter].item()  # what a float32 can hold
    with_numpy = create(name, **typed).fit(log)
    expected = all_scores(create(name, **plain).fit(log))
    np.testing.assert_array_equal(all_scores(with_numpy), expected)
    loaded = values_of(transcf.load(with_numpy.save(tmp_path / "model")).settings)
    given = {key: value for key, value in plain.items() if value is not None}
    assert {key: loaded[key] for key in given} == given, "others may depend on the data"


@EVERY_MODEL
def test_nothing_is_answered_before_fit(name: str, make_log: Callable, tmp_path: Path) -> None:
    model = make(name)
    pairs = pl.DataFrame({"user_id": [1], "item_id": [1]})
    calls = (model.recommend, lambda: model.score(pairs), lambda: model.save(tmp_path / "m"))
    for call in calls:
        with pytest.raises(NotFittedError, match="call fit first"):
            call()
    empty = make_log([(1, 1)])
    with pytest.raises(DataError, match="no interactions"):
        model.fit(empty.select(np.zeros(1, dtype=bool)))


@EVERY_MODEL
def test_parameters_survive_get_and_set(name: str) -> None:
    model = make(name)
    params = model.get_params()
    assert type(model)(**params).get_params() == params
    assert all(f"{key}={value!r}" in repr(model) for key, value in params.items())


def hit_rate(model: Recommender, log: Interactions, held: np.ndarray) -> float:
    """Share of users whose held-out item is among the ten best unseen; by brute force."""
    scores = all_scores(model)[: len(held)]
    scores[
        log.user_rows[log.user_rows < len(held)], log.item_rows[log.user_rows < len(held)]
    ] = -np.inf
    target = scores[np.arange(len(held)), held]
    return float(np.mean((scores >= target[:, None]).sum(axis=1) <= 10))


@pytest.mark.parametrize("name", [name for name in available() if name not in FLOOR])
def test_models_that_learn_beat_the_floor_clearly(name: str, tastes: tuple) -> None:
    log, held = tastes
    floor = max(hit_rate(make(other).fit(log), log, held) for other in FLOOR)
    # Three standard errors of a difference between two hit rates of 300 users.
    assert hit_rate(make(name).fit(log), log, held) > floor + 0.1
