"""Ranks against a brute-force reading of their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.scorers import ProductScorer, TableScorer, held_out_ranks, random_split

from transcf.data.split import Candidates
from transcf.errors import EvaluationError, ParameterError
from transcf.evaluation import evaluate
from transcf.parallel import use_threads
from transcf.retrieval import topk as tiles
from transcf.retrieval.scorer import StoredForm

TIES = ["pessimistic", "realistic", "optimistic"]
WEIGHTS = {"pessimistic": 1.0, "realistic": 0.5, "optimistic": 0.0}


@pytest.fixture(autouse=True, scope="module", params=[0, 10**9], ids=["kernels", "numpy"])
def small(request):
    """Rank by kernels and by numpy."""
    tiles.SMALL, before = request.param, tiles.SMALL
    yield
    tiles.SMALL = before


def brute_force(table, rankable, split, ties, pools=None):
    """Rank by the definition, user by user, in plain Python."""
    ranks = {}
    for user in range(split.train.n_users):
        known = set(split.train.by_user.row(user)) | set(split.validation.by_user.row(user))
        if not len(split.train.by_user.row(user)):
            continue
        held = [int(i) for i in split.test.by_user.row(user) if rankable[i]]
        if pools is None:
            rivals = [i for i in range(len(rankable)) if i not in known]
        else:
            rivals = set(pools[user])
        rivals = [i for i in rivals if rankable[i] and i not in split.test.by_user.row(user)]
        if not held or not rivals:
            continue
        found = []
        for j, target in enumerate(sorted(held, key=lambda i: -table[user, i])):
            above = sum(table[user, i] > table[user, target] for i in rivals)
            level = sum(table[user, i] == table[user, target] for i in rivals)
            found.append(1 + j + above + WEIGHTS[ties] * level)
        ranks[user] = found
    return ranks


def as_dict(ranks):
    cuts = zip(ranks.indptr[:-1], ranks.indptr[1:], strict=True)
    return {
        int(user): ranks.ranks[a:b].tolist() for user, (a, b) in zip(ranks.users, cuts, strict=True)
    }


@given(st.integers(0, 10_000), st.sampled_from(TIES), st.integers(1, 6))
def test_full_ranks_equal_brute_force_with_many_ties(seed, ties, levels) -> None:
    split = random_split(seed)
    rng = np.random.default_rng(seed)
    table = rng.integers(levels, size=(12, 30)).astype(np.float32)
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    scorer = TableScorer(table, rankable)
    found = held_out_ranks(
        scorer, split.test, split.known_items("test"), ties, trained=split.train.by_user.counts > 0
    )
    assert as_dict(found) == brute_force(table, rankable, split, ties)


@given(st.integers(0, 10_000), st.sampled_from(TIES))
def test_linear_forms_rank_like_exact_arithmetic(seed, ties) -> None:
    """Small integers multiply exactly, so that ties are ties in any precision."""
    split = random_split(seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, size=(12, 9)).astype(np.float32)
    y = rng.integers(-2, 3, size=(30, 9)).astype(np.float32)
    constants = rng.integers(-3, 4, size=12).astype(np.float32)
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    scorer = ProductScorer(StoredForm(x, y, constants), rankable)
    found = held_out_ranks(
        scorer, split.test, split.known_items("test"), ties, trained=split.train.by_user.counts > 0
    )
    assert as_dict(found) == brute_force(x @ y.T, rankable, split, ties)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ties", TIES)
def test_linear_forms_rank_as_in_float64(ties, threads) -> None:
    """Items come with near twins that a float32 product cannot tell apart."""
    split = random_split(4, n_users=120, n_items=200, density=0.2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 70)).astype(np.float32)
    y = np.repeat(rng.standard_normal((50, 70)), 4, axis=0)
    y = (y * (1 + 1e-7 * rng.standard_normal(y.shape))).astype(np.float32)
    constants = rng.standard_normal(120).astype(np.float32)
    table = (x.astype(float) @ y.astype(float).T + constants[:, None]).astype(np.float32)
    rankable = np.bincount(split.train.item_rows, minlength=200) > 0
    scorer = ProductScorer(StoredForm(x, y, constants), rankable)
    trained = split.train.by_user.counts > 0
    known = split.known_items("test")
    with use_threads(threads):
        found = held_out_ranks(scorer, split.test, known, ties, trained=trained)
    assert as_dict(found) == brute_force(table, rankable, split, ties)


@given(st.integers(0, 10_000), st.sampled_from(TIES))
def test_candidate_ranks_equal_brute_force(seed, ties) -> None:
    split = random_split(seed)
    rng = np.random.default_rng(seed)
    pools = [rng.integers(30, size=rng.integers(0, 9)).astype(np.int32) for _ in range(12)]
    indptr = np.concatenate([[0], np.cumsum([len(p) for p in pools])]).astype(np.int64)
    candidates = Candidates(indptr, np.concatenate(pools).astype(np.int32), "test")
    table = rng.integers(4, size=(12, 30)).astype(np.float32)
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    known = split.known_items("test")
    expected = brute_force(table, rankable, split, ties, pools)
    scorer, trained = TableScorer(table, rankable), split.train.by_user.counts > 0
    if not expected:
        with pytest.raises(EvaluationError, match="no user left"):
            held_out_ranks(scorer, split.test, known, ties, candidates=candidates, trained=trained)
        return
    found = held_out_ranks(scorer, split.test, known, ties, candidates=candidates, trained=trained)
    assert as_dict(found) == expected


def test_lists_are_what_the_model_would_recommend() -> None:
    split = random_split(3)
    table = np.random.default_rng(0).random((12, 30))
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    known = split.known_items("test")
    ranking = held_out_ranks(
        TableScorer(table, rankable), split.test, known, "pessimistic", list_length=5
    )
    for user, shown in zip(ranking.users, ranking.lists, strict=True):
        allowed = [i for i in range(30) if rankable[i] and i not in known.row(user)]
        assert shown.tolist() == sorted(allowed, key=lambda i: -table[user, i])[:5]


def test_validation_items_are_seen_at_test_time() -> None:
    split = random_split(5)
    table = np.zeros((12, 30))
    table[split.validation.user_rows, split.validation.item_rows] = 9.0
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    ranking = held_out_ranks(
        TableScorer(table, rankable), split.test, split.known_items("test"), "optimistic"
    )
    assert ranking.ranks[ranking.indptr[:-1]].max() == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("protocol", ["leave-last-out", "paper"])
def test_nan_and_infinity_are_errors_never_ranks(bad, protocol) -> None:
    from transcf.data.split import draw_candidates

    split = draw_candidates(random_split(1), n=5)
    table = np.full((12, 30), bad)
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    with pytest.raises(EvaluationError, match="NaN or infinite"):
        evaluate(TableScorer(table, rankable), split, protocol)


def test_clear_errors() -> None:
    split = random_split(1)
    scorer = TableScorer(np.zeros((12, 30)), np.ones(30, bool))
    with pytest.raises(ParameterError, match="'lenient'"):
        evaluate(scorer, split, "lenient")
    with pytest.raises(ParameterError, match="ties='fair'"):
        evaluate(scorer, split, ties="fair")
    with pytest.raises(ParameterError, match=r"k=\(0,\)"):
        evaluate(scorer, split, k=(0,))
    with pytest.raises(EvaluationError, match="stored candidates"):
        evaluate(scorer, split, "paper")
    with pytest.raises(EvaluationError, match="the split that it was fitted on"):
        evaluate(TableScorer(np.zeros((12, 7)), np.ones(7, bool)), split)
    with pytest.raises(EvaluationError, match="no user left"):
        evaluate(TableScorer(np.zeros((12, 30)), np.zeros(30, bool)), split)


def test_memory_is_bounded_by_blocks_of_scores(monkeypatch) -> None:
    length = tiles.block_length
    monkeypatch.setattr(tiles, "block_length", lambda n_items: length(n_items, 60 * 4 * 50))
    split = random_split(2, n_users=400, n_items=60)
    wide = TableScorer(np.random.default_rng(0).random((400, 60)), np.ones(60, bool))
    found = held_out_ranks(wide, split.test, split.known_items("test"), "pessimistic")
    assert sum(wide.block_sizes) == len(found.users)
    assert len(wide.block_sizes) >= 8
    assert max(wide.block_sizes) <= 50


def test_candidates_are_scored_in_bounded_pieces(monkeypatch) -> None:
    from transcf.data.split import draw_candidates

    split = draw_candidates(random_split(2), n=5)
    table = np.random.default_rng(0).random((12, 30))
    asked = []

    class Noting(TableScorer):
        def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
            asked.append(len(users))
            return super()._score_pairs(users, items)

    scorer = Noting(table, np.bincount(split.train.item_rows, minlength=30) > 0)
    whole = evaluate(scorer, split, "paper")
    monkeypatch.setattr("transcf.evaluation.ranks.BLOCK_BYTES", 12 * 32)
    pieces = evaluate(scorer, split, "paper")
    assert len(asked) > 4
    assert sum(asked[1:]) == asked[0]
    assert pieces.per_user.equals(whole.per_user)
