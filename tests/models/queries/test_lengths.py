"""Lengths of lists: any whole number, and no more memory than there are things to list."""

from __future__ import annotations

import numpy as np
import pytest

from transcf import EASE, Popularity, evaluate, leave_one_out, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import NotFittedError, ParameterError
from transcf.models.registry import create

HUGE = 10**30


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=40, items=30, interactions=400, seed=1)


def test_a_list_is_never_longer_than_the_catalogue(log: Interactions) -> None:
    model, user = EASE().fit(log), log.users.series[0]
    everything = model.recommend(user, k=30)
    assert model.recommend(user, k=HUGE).equals(everything)
    item = log.items.series[0]
    assert model.recommend_for([item], k=HUGE).equals(model.recommend_for([item], k=30))
    assert model.similar_items(item, k=HUGE).equals(model.similar_items(item, k=30))


def test_figures_at_any_length_are_those_of_the_whole_ranking(log: Interactions) -> None:
    split = leave_one_out(log)
    found = evaluate(Popularity().fit(split.train), split, k=(30, 10**9)).metrics
    for kind in ("HitRate", "NDCG", "Recall", "MRR", "MAP"):
        assert found[f"{kind}@{10**9}"] == found[f"{kind}@30"]
    assert next(iter(evaluate(Popularity().fit(split.train), split, k=5).metrics)) == "HitRate@5"


@pytest.mark.parametrize(
    "at", [None, 2.0, (5.5,), "10", 2**63, 10**5000, np.array(3), [True]], ids=range(8)
)
def test_lengths_that_are_none(log: Interactions, at: object) -> None:
    split = leave_one_out(log)
    with pytest.raises(ParameterError, match="one or more whole numbers of at least 1"):
        evaluate(Popularity().fit(split.train), split, k=at)


def test_ids_in_arrays_of_any_shape(log: Interactions) -> None:
    model, users = Popularity().fit(log), log.users.series
    assert model.recommend(np.array(users[0])).equals(model.recommend(users[0]))
    some = model.recommend(users[:2].to_list())
    assert model.recommend(np.array(users[:2].to_list())).equals(some)


def test_what_is_no_answer_is_refused(log: Interactions) -> None:
    model = Popularity().fit(log)
    for wrong in ("no", 1, None):
        with pytest.raises(ParameterError, match=r"exclude_seen=.*True or False"):
            model.recommend(exclude_seen=wrong)
    assert len(model.recommend(exclude_seen=np.bool_(False), k=1)) == 40
    with pytest.raises(ParameterError, match="None is no name of a model"):
        create(None)
    with pytest.raises(NotFittedError, match="call fit first"):
        evaluate(Popularity(), leave_one_out(log))
