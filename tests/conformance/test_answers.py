"""What every registered model answers: filters, guests, neighbours, and lists by brute force."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.test_every_model import EVERY_MODEL, FLOOR, make

from transcf.data.interactions import Interactions
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, ParameterError, UnknownIdError, UnsupportedError
from transcf.models.base import Recommender
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.registry import available, model_class

USERS, ITEMS = 30, 20
FITTED: dict[str, Recommender] = {}


def few_epochs(name: str, number: int) -> dict[str, int]:
    """Enough where answers are looked at, not accuracy."""
    return {"epochs": number} if model_class(name)._has_epochs() else {}


def fitted(name: str) -> Recommender:
    if name not in FITTED:
        log = synthesize(users=USERS, items=ITEMS, interactions=200, seed=2)
        FITTED[name] = make(name, **few_epochs(name, 3)).fit(log)
    return FITTED[name]


def brute_force(
    model: Recommender, scores: np.ndarray, k: int, left: np.ndarray
) -> list[tuple[object, float]]:
    """The best k of the items that are left, equal scores by id."""
    ids = model.items_.series.to_list()
    order = sorted(np.flatnonzero(left), key=lambda row: (-scores[row], row))[:k]
    return [(ids[row], scores[row]) for row in order]


#: Models whose score is no inner product.
#: Models with products inside a score, whose last digits change with the people of a request.
ROUNDED_BY_BLOCK = {"blend", "transcf-mixture"}
NOT_LINEAR = FLOOR | {
    *("itemknn", "sequential-rules", "ease", "slim", "neumf", "blend", "transcf-mixture")
}


def in_float64(part: Any) -> Any:
    """The same part of a model with all its arrays in double precision."""
    if isinstance(part, np.ndarray) and part.dtype == np.float32:
        return part.astype(np.float64)
    if isinstance(part, tuple):
        return tuple(map(in_float64, part))
    if isinstance(part, dict):
        return {name: in_float64(value) for name, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, TrainingData):
        values = {entry.name: getattr(part, entry.name) for entry in dataclasses.fields(part)}
        return dataclasses.replace(part, **{k: in_float64(v) for k, v in values.items()})
    if not isinstance(part, FittedScorer):
        return part
    double = copy.copy(part)
    for name, value in vars(part).items():
        if isinstance(getattr(type(part), name, None), cached_property):
            vars(double).pop(name, None)  # worked out from the rest
        else:
            setattr(double, name, in_float64(value))
    return double


@EVERY_MODEL
def test_the_score_is_an_inner_product_or_is_not(name: str) -> None:
    assert (fitted(name).linear_form() is None) == (name in NOT_LINEAR)


@pytest.mark.parametrize("name", [name for name in available() if name not in NOT_LINEAR])
def test_lists_agree_with_the_direct_formula_in_float64(name: str) -> None:
    log = synthesize(users=120, items=90, interactions=2500, seed=5)
    model = make(name, **few_epochs(name, 4)).fit(log)
    users, items = np.indices((len(model.users_), len(model.items_)), dtype=np.int32)
    double = in_float64(model.learned_)
    assert all(array.dtype != np.float32 for array in double.arrays().values() if array.size)
    direct = double.scores(users.ravel(), items.ravel()).reshape(users.shape)
    direct[log.user_rows, log.item_rows] = -np.inf
    table = model.recommend(k=10)
    rows = model.users_.rows(table["user_id"]), model.items_.rows(table["item_id"])
    best = -np.sort(-direct, axis=1)[:, :10]
    owned = direct[rows].reshape(-1, 10)
    # The k-th listed item is as good as the k-th best: only near-ties may change places.
    np.testing.assert_allclose(owned, best, atol=2e-6 * np.abs(best).max())
    np.testing.assert_allclose(table["score"], owned.ravel(), atol=2e-6 * np.abs(best).max())


id_lists = st.lists(st.integers(0, ITEMS + 3), max_size=12)


@pytest.mark.filterwarnings("ignore:.*item ids in")
@given(
    name=st.sampled_from(available()),
    users=st.lists(st.integers(0, USERS + 2), min_size=1, max_size=6),
    k=st.sampled_from([0, 1, 5, ITEMS, 100]),
    exclude_seen=st.booleans(),
    allow=st.none() | id_lists | st.dictionaries(st.integers(0, USERS + 2), id_lists),
    deny=st.none() | id_lists | st.dictionaries(st.integers(0, USERS + 2), id_lists),
)
@settings(max_examples=150)
def test_filters_agree_with_brute_force(
    name: str, users: list, k: int, exclude_seen: bool, allow: object, deny: object
) -> None:
    model = fitted(name)
    user_ids, item_ids = model.users_.series.to_list(), model.items_.series.to_list()

    def user(number: int) -> str:
        return user_ids[number] if number < len(user_ids) else f"stranger {number}"

    def item(number: int) -> str:
        return item_ids[number] if number < len(item_ids) else f"novelty {number}"

    def named(lists: object) -> object:
        if isinstance(lists, dict):
            return {user(who): [item(n) for n in listed] for who, listed in lists.items()}
        return None if lists is None else [item(n) for n in lists]

    asked = [user(number) for number in users]
    table = model.recommend(
        asked, k, exclude_seen=exclude_seen, items=named(allow), exclude=named(deny),
        on_unknown="skip",
    )  # fmt: skip
    expected = []
    for who in dict.fromkeys(number for number in users if number < len(user_ids)):
        left = model.rankable.copy()
        if exclude_seen:
            left[model.seen_.row(who)] = False
        allowed = allow.get(who, []) if isinstance(allow, dict) else allow
        denied = deny.get(who, []) if isinstance(deny, dict) else (deny or [])
        if allowed is not None:
            left &= np.isin(np.arange(len(item_ids)), allowed)
        left &= ~np.isin(np.arange(len(item_ids)), denied)
        row = np.array([who], dtype=np.int32)
        form = model.linear_form()
        columns = np.arange(len(item_ids), dtype=np.int32)
        scores = model.scores(row)[0]
        if form is not None:
            scores = form.scores(np.repeat(row, len(columns)), columns)
        expected += [(user_ids[who], *pair) for pair in brute_force(model, scores, k, left)]
    found = table.select("user_id", "item_id", "score").rows()
    if name in ROUNDED_BY_BLOCK:
        assert [row[:2] for row in found] == [row[:2] for row in expected]
        found, expected = ([row[2] for row in rows] for rows in (found, expected))
        expected = pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found == expected
    assert table.columns == ["user_id", "item_id", "score", "rank"]


@EVERY_MODEL
def test_unknown_ids_in_filters_are_skipped_and_counted(name: str) -> None:
    model = fitted(name)
    user, item = model.users_.series[0], model.recommend(model.users_.series[0], 1)["item_id"][0]
    for known, more in (([item], ["q"]), ([], ["q", 5])):
        for parameter in ("items", "exclude"):
            for form in (list, lambda ids: {user: ids}):
                expected = model.recommend(user, **{parameter: form(known)})
                with pytest.warns(
                    UserWarning, match=f"{len(more)} of {len(known + more)} item ids"
                ):
                    found = model.recommend(user, **{parameter: form(known + more)})
                assert found.equals(expected)
    with pytest.warns(UserWarning, match="2 of 3 item ids in exclude") as caught:
        found = model.recommend_for([item], 3, exclude=["q", "r", item])
    assert caught[0].filename == __file__
    assert found.equals(model.recommend_for([item], 3))
    with pytest.raises(ParameterError, match="k=-1"):
        model.recommend(user, -1)
    with pytest.raises(ParameterError, match="list of ids"):
        model.recommend(user, items=1.5)


@EVERY_MODEL
@given(data=st.data())
@settings(max_examples=12)
def test_guests_get_sound_lists(name: str, data: st.DataObject) -> None:
    model = fitted(name)
    ids = model.items_.series.to_list()
    history = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=8))
    k = data.draw(st.sampled_from([0, 3, 100]))
    table = model.recommend_for(history, k)
    assert table.columns == ["item_id", "score", "rank"]
    assert len(table) == min(k, int(model.rankable.sum()) - len(set(history)))
    assert not set(table["item_id"]) & set(history)
    assert table["score"].is_sorted(descending=True)
    assert table["rank"].to_list() == list(range(1, len(table) + 1))
    everything = model.recommend_for(history, 100, exclude_seen=False)
    assert set(everything["item_id"]) == set(ids)
    kept = [item for item in ids if item not in history][:2]
    filtered = model.recommend_for(history, items=kept, exclude=kept[:1])
    assert filtered["item_id"].to_list() == kept[1:]
    with_strangers = model.recommend_for(["novelty", *history], k, on_unknown="skip")
    assert with_strangers.equals(table)
    with pytest.raises(UnknownIdError, match="'novelty'"):
        model.recommend_for(["novelty", *history])


@EVERY_MODEL
def test_a_batch_of_sessions_gets_the_lists_of_each(name: str) -> None:
    model = fitted(name)
    ids = model.items_.series.to_list()
    sessions = {"b": ids[:3], "a": ids[2:3], "c": [ids[4], ids[1]]}
    options = {"exclude": ids[5:6], "items": ids[:9]}
    found = model.recommend_for(sessions, 4, **options)
    assert found.columns == ["session_id", "item_id", "score", "rank"]
    parts = [model.recommend_for(history, 4, **options) for history in sessions.values()]
    whole = pl.concat(parts)
    assert found["item_id"].equals(whole["item_id"])
    assert found["score"].to_list() == pytest.approx(whole["score"].to_list(), rel=1e-5, abs=1e-6)
    owners = [who for who, part in zip(sessions, parts, strict=True) for _ in range(len(part))]
    assert found["session_id"].to_list() == owners
    numbered = model.recommend_for(list(sessions.values()), 4, **options)
    assert numbered["session_id"].unique().to_list() == [0, 1, 2]
    assert numbered.drop("session_id").equals(found.drop("session_id"))
    column = pl.Series(list(sessions.values()))
    assert model.recommend_for(column, 4, **options).equals(numbered)
    assert model.recommend_for({}, 4).is_empty()
    popular = model.recommend_for({7: ["novelty"], 8: ids[:1]}, 2, on_unknown="popular")
    assert popular.select("session_id", "source").unique(maintain_order=True).rows() == [
        (7, "popularity"), (8, "model"),
    ]  # fmt: skip
    with pytest.raises(DataError, match="session 'b' is empty"):
        model.recommend_for({"a": ids[:1], "b": []})
    with pytest.raises(ParameterError, match="all text or all integers"):
        model.recommend_for({"a": ids[:1], 1: ids[:1]})


@EVERY_MODEL
def test_a_history_without_anything_known_is_refused(name: str) -> None:
    model = fitted(name)
    for policy in ("raise", "skip"):
        with pytest.raises(DataError, match="history is empty"):
            model.recommend_for([], on_unknown=policy)
    with pytest.raises(UnknownIdError, match="None of the 2 items"):
        model.recommend_for(["novelty", "rarity"], on_unknown="skip")
    with pytest.raises(UnknownIdError, match="'novelty'"):
        model.recommend_for(["novelty", "rarity"])
    with pytest.raises(ParameterError, match="a mapping is for known users"):
        model.recommend_for(model.items_.series[0], items={"ann": ["x"]})


@EVERY_MODEL
def test_items_without_training_interactions_do_not_count_in_a_history(
    name: str, make_log: object
) -> None:
    log: Interactions = make_log([(1, 10), (1, 11), (2, 11), (2, 12), (9, 90)])
    model = make(name).fit(log.select(log.user_rows < 2))
    with pytest.raises(UnknownIdError, match="90 has no training interactions"):
        model.recommend_for([10, 90])
    skipped = model.recommend_for([10, 90], on_unknown="skip")
    assert skipped.equals(model.recommend_for([10]))
    assert 90 not in skipped["item_id"].to_list()


@EVERY_MODEL
def test_similar_things_are_found_or_refused(name: str) -> None:
    model = fitted(name)
    has_users = type(model.learned_).user_similarity is not FittedScorer.user_similarity
    for find, ids, what, has in (
        (model.similar_items, model.items_.series, "item_id", name not in FLOOR),
        (model.similar_users, model.users_.series, "user_id", has_users),
    ):
        if not has:
            with pytest.raises(UnsupportedError, match="use a model such as TransCF"):
                find(ids[0])
            continue
        table = find([ids[3], ids[0], ids[3]], k=5)
        assert table.columns == [what, "neighbor_id", "score", "rank"]
        assert table[what].unique(maintain_order=True).to_list() == [ids[3], ids[0]]
        assert (table[what] != table["neighbor_id"]).all()
        assert find(ids[0], k=0).is_empty()
        assert len(find(ids[0], k=1000)) <= len(ids) - 1
        with pytest.raises(UnknownIdError, match="'nobody'"):
            find(["nobody"])
        assert find(["nobody"], on_unknown="skip").is_empty()
