"""Novelty, diversity, Gini and AUC against plain Python, numpy and scikit-learn."""

from __future__ import annotations

from itertools import combinations
from math import log2

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.evaluation.scorers import TableScorer, random_split

from transcf.data.split import Split, draw_candidates
from transcf.evaluation import EpochRecorder, evaluate
from transcf.evaluation import metrics as lists_module
from transcf.evaluation.metrics import diversity, gini
from transcf.evaluation.ranks import NO_CANDIDATES


def scorer_for(split: Split, seed: int = 0, levels: int = 1000) -> TableScorer:
    """Scores out of few levels have many ties."""
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    table = np.random.default_rng(seed).integers(0, levels, (12, 30)) / 7
    return TableScorer(table, rankable)


def best_items(scorer: TableScorer, split: Split, user: int, n: int) -> list[int]:
    known = split.known_items("test").row(user)
    allowed = [i for i in range(30) if scorer.rankable[i] and i not in known]
    return sorted(allowed, key=lambda i: (-scorer.table[user, i], i))[:n]


def training_matrix(split: Split) -> np.ndarray:
    return split.train.by_user.to_scipy().toarray()


@pytest.mark.parametrize("seed", range(5))
def test_figures_of_lists_equal_plain_python(seed: int) -> None:
    split = random_split(seed)
    scorer = scorer_for(split, seed)
    found = evaluate(scorer, split, "leave-last-out-no-refit", k=(1, 4, 40), beyond=True)
    matrix = training_matrix(split)
    n_users = int((matrix.sum(axis=1) > 0).sum())
    users = found.per_user["user_id"].to_list()
    for n in (1, 4, 40):
        times = dict.fromkeys(np.flatnonzero(scorer.rankable).tolist(), 0)
        for user, novelty, ild in zip(
            users, found.per_user[f"novelty@{n}"], found.per_user[f"ILD@{n}"], strict=True
        ):
            items = best_items(scorer, split, user, n)
            bits = [-log2(matrix[:, item].sum() / n_users) for item in items]
            assert novelty == pytest.approx(np.mean(bits))
            distances = [
                1 - matrix[:, i] @ matrix[:, j] / np.sqrt(matrix[:, i].sum() * matrix[:, j].sum())
                for i, j in combinations(items, 2)
            ]
            assert ild == pytest.approx(np.mean(distances) if distances else 0.0, abs=1e-6)
            for item in items:
                times[item] += 1
        values = list(times.values())
        apart = sum(abs(x - y) for x in values for y in values)
        expected = apart / (2 * len(values) * sum(values))
        assert found.catalogue[f"gini@{n}"] == pytest.approx(expected)


@pytest.mark.parametrize("levels", [1, 4, 1000])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
def test_auc_equals_that_of_scikit_learn(levels: int, ties) -> None:
    split = random_split(7)
    scorer = scorer_for(split, 1, levels)
    found = evaluate(scorer, split, ties=ties, beyond=True)
    assert len(found.per_user) > 5
    for user, auc in found.per_user.select("user_id", "AUC").iter_rows():
        known = split.known_items("test").row(user)
        items = [i for i in range(30) if scorer.rankable[i] and i not in known]
        held_out = [i in split.test.by_user.row(user) for i in items]
        assert auc == pytest.approx(roc_auc_score(held_out, scorer.table[user, items]))
    if levels == 1:
        assert found.metrics["AUC"].mean == 0.5


def test_auc_of_sampled_protocols_is_over_the_candidates() -> None:
    split = draw_candidates(random_split(3), n=8)
    scorer = scorer_for(split, 2, 6)
    found = evaluate(scorer, split, "paper", beyond=True)
    assert [name for name in found.metrics if "@" not in name] == ["AUC"]
    assert not [name for name in found.metrics if name.startswith(("novelty", "ILD"))]
    for user, auc in found.per_user.select("user_id", "AUC").iter_rows():
        targets = [i for i in split.test.by_user.row(user) if scorer.rankable[i]]
        others = {int(i) for i in split.candidates.of(user) if scorer.rankable[i]} - set(targets)
        items = [*targets, *others]
        held_out = [True] * len(targets) + [False] * len(others)
        assert auc == pytest.approx(roc_auc_score(held_out, scorer.table[user, items]))
    assert NO_CANDIDATES not in found.skipped
    recorder = EpochRecorder(split, beyond=True)
    recorder(scorer)
    assert recorder.result().metrics["AUC"].mean == found.metrics["AUC"].mean


def test_nothing_changes_where_it_is_not_asked_for() -> None:
    split = random_split(3)
    plain, more = (evaluate(scorer_for(split), split, beyond=asked) for asked in (False, True))
    assert set(plain.catalogue) == {"coverage@10", "coverage@20", "popularity@10", "popularity@20"}
    assert list(plain.metrics.items()) == list(more.metrics.items())[: len(plain.metrics)]
    assert list(more.metrics)[len(plain.metrics) :] == [
        "novelty@10", "novelty@20", "ILD@10", "ILD@20", "AUC",
    ]  # fmt: skip


def test_long_lists_and_blocks_of_lists_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items without training users included, lists of all lengths."""
    split = random_split(5)
    train = split.train.select(split.train.item_rows % 7 > 0)
    rng = np.random.default_rng(0)
    lists = np.array([rng.permutation(30)[:12] for _ in range(40)], dtype=np.int32)
    for row, length in enumerate(rng.integers(1, 13, 40)):
        lists[row, length:] = -1
    whole = diversity(lists, 12, train.by_item)
    assert whole[(lists[:, 1] == -1)].tolist() == [0.0] * int((lists[:, 1] == -1).sum())
    monkeypatch.setattr(lists_module, "BLOCK_BYTES", 1)
    np.testing.assert_allclose(diversity(lists, 12, train.by_item), whole)
    monkeypatch.setattr(lists_module, "_LONG", 2)
    np.testing.assert_allclose(diversity(lists, 12, train.by_item), whole)


def test_gini_of_lists_that_are_known() -> None:
    rankable = np.array([True, True, False, True, True])
    one = np.zeros((6, 1), dtype=np.int32)
    assert gini(one, 1, rankable) == pytest.approx(3 / 4)
    even = np.array([[0, 1], [3, 4], [1, 0], [4, 3]], dtype=np.int32)
    assert gini(even, 2, rankable) == 0
