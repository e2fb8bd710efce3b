"""BPR against its paper's algorithm and another implementation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from transcf.data import leave_one_out, synthesize
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.models.baselines import Popularity
from transcf.models.bpr import BPR, AoBPR


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=900, items=400, interactions=25_000, seed=8))


def hit_rate(scores: np.ndarray, split: Split) -> float:
    """Share of test items among the ten best that are not in training; by brute force."""
    scores = scores.astype(np.float64)
    scores[split.train.user_rows, split.train.item_rows] = -np.inf
    scores[:, split.train.by_item.counts == 0] = -np.inf
    users, items = split.test.user_rows, split.test.item_rows
    known = split.train.by_item.counts[items] > 0
    users, items = users[known], items[known]
    better = (scores[users] > scores[users, items][:, None]).sum(axis=1)
    return float(np.mean(better < 10))


def scores_of(model: BPR | Popularity) -> np.ndarray:
    return model.scores(np.arange(len(model.users_), dtype=np.int32))


def plain_bpr(train: Interactions, dim: int, epochs: int, rate: float, reg: float) -> np.ndarray:
    """All scores after BPR as its paper writes it: one triple after the other, any negative."""
    generator = np.random.default_rng(1)
    x, y = (0.1 * generator.standard_normal((n, dim)) for n in (train.n_users, train.n_items))
    c = np.zeros(train.n_items)
    owned = [set(train.by_user.row(user).tolist()) for user in range(train.n_users)]
    for place in generator.integers(0, len(train), epochs * len(train)):
        u, i = train.user_rows[place], train.item_rows[place]
        j = generator.integers(train.n_items)
        if j in owned[u]:
            continue
        doubt = 1 / (1 + np.exp(x[u] @ (y[i] - y[j]) + c[i] - c[j]))
        old = x[u].copy()
        x[u] += rate * (doubt * (y[i] - y[j]) - reg * x[u])
        y[i] += rate * (doubt * old - reg * y[i])
        y[j] += rate * (-doubt * old - reg * y[j])
        c[i] += rate * (doubt - reg * c[i])
        c[j] += rate * (-doubt - reg * c[j])
    return x @ y.T + c


def three_errors(rate: float, users: int) -> float:
    """Three standard errors of a difference between two hit rates."""
    return float(3 * np.sqrt(2 * rate * (1 - rate) / users))


def test_as_accurate_as_the_algorithm_of_the_paper(split: Split) -> None:
    settings = {"learning_rate": 0.05, "regularization": 0.01, "bias_regularization": 0.01}
    model = BPR(dim=16, epochs=10, decay="none", **settings).fit(split.train)
    ours, theirs = scores_of(model), plain_bpr(split.train, 16, 10, 0.05, 0.01)
    rates = [hit_rate(scores, split) for scores in (ours, theirs)]
    assert hit_rate(scores_of(Popularity().fit(split.train)), split) < min(rates) - 0.02
    assert abs(rates[0] - rates[1]) < three_errors(rates[1], split.train.n_users)
    assert np.corrcoef(model.item_bias_, theirs.mean(axis=0))[0, 1] > 0.95


def test_as_accurate_as_the_implementation_of_implicit() -> None:
    """Where all items are alike popular: `implicit` draws negatives by popularity, BPR does not."""
    peer_module = pytest.importorskip("implicit.bpr")
    generator = np.random.default_rng(2)
    pull = np.where(np.arange(200) // 20 == np.arange(600)[:, None] % 10, 8.0, 0.5)
    pull /= pull.sum(axis=1, keepdims=True)
    taken = np.stack([generator.choice(200, 16, replace=False, p=row) for row in pull])
    users = np.arange(600)
    train = Interactions.from_rows(
        *(IdMap.encode(pl.Series(range(n)))[0] for n in (600, 200)),
        np.repeat(users, 15).astype(np.int32),
        taken[:, :15].ravel().astype(np.int32),
    )
    settings = {"learning_rate": 0.05, "regularization": 0.01}
    peer = peer_module.BayesianPersonalizedRanking(
        factors=32, iterations=80, random_state=0, num_threads=1, **settings
    )
    peer.fit(sp.csr_matrix(train.by_user.to_scipy().astype(np.float32)), show_progress=False)
    model = BPR(dim=32, epochs=80, bias_regularization=0.01, **settings).fit(train)
    rates = []
    for scores in (scores_of(model), peer.user_factors @ peer.item_factors.T):
        scores[train.user_rows, train.item_rows] = -np.inf
        target = scores[users, taken[:, 15]]
        rates.append(float(np.mean((scores > target[:, None]).sum(axis=1) < 10)))
    assert rates[1] > 0.2, "there are tastes to learn"
    assert abs(rates[0] - rates[1]) < three_errors(rates[1], 600), rates


def test_the_loss_falls_and_is_that_of_chance_at_first(split: Split) -> None:
    for kind in (BPR, AoBPR):
        model = kind(dim=16, learning_rate=1e-6, init_scale=1e-4, epochs=1).fit(split.train)
        assert model.history_["loss"][0] == pytest.approx(np.log(2), rel=1e-4)
        losses = kind(dim=16, epochs=8).fit(split.train).history_["loss"]
        assert losses[-1] < losses[0] < np.log(2) * 1.05


def test_every_interaction_is_one_sample_unless_told_otherwise(split: Split) -> None:
    per_epoch = BPR(dim=8, epochs=1).fit(split.train).history_["samples"][0]
    assert abs(per_epoch - len(split.train)) < 0.02 * len(split.train)
    fixed = BPR(dim=8, epochs=1, samples_per_user=50).fit(split.train).history_["samples"][0]
    users = np.count_nonzero(split.train.by_user.counts)
    assert abs(fixed - 50 * users) < 0.02 * 50 * users
