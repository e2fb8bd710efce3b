"""Top-k against sorting everything."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcf.data.csr import Csr
from transcf.errors import EvaluationError
from transcf.parallel import use_threads
from transcf.retrieval import topk as tiles
from transcf.retrieval.scorer import BLOCK_BYTES, FormView, Scorer, StoredForm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module", params=[0, 10**9], ids=["kernels", "numpy"])
def small(request):
    """Rank by kernels and by numpy."""
    tiles.SMALL, before = request.param, tiles.SMALL
    yield
    tiles.SMALL = before


class Table(Scorer):
    """Scores from a table."""

    name = "table"

    def __init__(self, scores: np.ndarray) -> None:
        self.table = scores.astype(np.float32)
        self.rankable = np.ones(scores.shape[1], dtype=bool)
        self.block_bytes: list[int] = []

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        self.block_bytes.append(4 * len(users) * self.table.shape[1])
        block = self.table[users]
        block.flags.writeable = False  # a scorer's own array is never written to
        return block

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.table[users, items]


def product(x: np.ndarray, y: np.ndarray, constants: np.ndarray) -> FormView:
    """Scores from vectors."""
    form = StoredForm(*(a.astype(np.float32) for a in (x, y, constants)))
    return FormView("product", np.ones(len(y), dtype=bool), form)


def random_seen(rng: np.random.Generator, n_users: int, n_items: int, share: float) -> Csr:
    rows, columns = np.nonzero(rng.random((n_users, n_items)) < share)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_users))])
    return Csr(indptr.astype(np.int64), columns.astype(np.int32), n_items)


def brute_force(scores, users, k, seen, allowed):
    """Sort all items of each user by score, then by row."""
    items = np.full((len(users), k), -1)
    for place, user in enumerate(users):
        left = [i for i in np.flatnonzero(allowed) if seen is None or i not in seen.row(user)]
        best = sorted(left, key=lambda i: (-scores[user, i], i))[:k]
        items[place, : len(best)] = best
    return items


def check(scorer, scores, users, k, seen, allowed) -> None:
    items, values = scorer.top_k(users, k, seen=seen, allowed=allowed)
    assert items.dtype == np.int32
    assert values.dtype == np.float32
    assert items.shape == values.shape == (len(users), k)
    expected = brute_force(scores, users, k, seen, allowed)
    np.testing.assert_array_equal(items, expected)
    taken = np.take_along_axis(scores[users], np.maximum(expected, 0), axis=1).astype(np.float32)
    np.testing.assert_array_equal(values, np.where(expected >= 0, taken, np.nan))


sizes = st.tuples(st.integers(1, 9), st.integers(1, 400), st.sampled_from([0, 1, 3, 10, 40, 500]))


@given(st.integers(0, 10_000), sizes, st.integers(1, 30), st.floats(0, 1), st.floats(0, 1))
def test_tables_with_ties_and_masks(seed, size, levels, seen_share, allowed_share) -> None:
    n_users, n_items, k = size
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=(n_users, n_items)).astype(float)
    users = rng.integers(n_users, size=5).astype(np.int32)
    seen = random_seen(rng, n_users, n_items, seen_share)
    allowed = rng.random(n_items) <= allowed_share
    check(Table(scores), scores, users, k, seen, allowed)


@given(st.integers(0, 10_000), sizes, st.sampled_from([1, 2, 7, 16, 33]), st.floats(0, 0.9))
def test_products_equal_exact_arithmetic(seed, size, dim, seen_share) -> None:
    """Small integers multiply exactly: ties are ties, and most rows are crowded with them."""
    n_users, n_items, k = size
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-1, 2, (n_users, dim)), rng.integers(-1, 2, (n_items, dim))
    constants = rng.integers(-3, 4, n_users)
    users = rng.permutation(n_users).astype(np.int32)
    seen = random_seen(rng, n_users, n_items, seen_share)
    allowed = rng.random(n_items) < 0.8
    check(product(x, y, constants), x @ y.T + constants[:, None], users, k, seen, allowed)


@pytest.mark.parametrize("k", [10, 33, 200])
def test_products_are_ordered_as_in_float64(k) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((70, 65)).astype(np.float32)
    # Every item has near twins that a float32 product cannot tell from it.
    y = np.repeat(rng.standard_normal((250, 65)), 4, axis=0)
    y = (y * (1 + 1e-7 * rng.standard_normal(y.shape))).astype(np.float32)
    constants = rng.standard_normal(70).astype(np.float32)
    exact = x.astype(float) @ y.astype(float).T + constants[:, None]
    scores = exact.astype(np.float32)
    seen = random_seen(rng, 70, 1000, 0.1)
    users = np.arange(70, dtype=np.int32)
    check(product(x, y, constants), scores, users, k, seen, np.ones(1000, dtype=bool))


def test_a_user_gets_the_same_answer_alone_as_among_others() -> None:
    rng = np.random.default_rng(1)
    scorer = product(
        rng.standard_normal((90, 130)), rng.standard_normal((700, 130)), rng.standard_normal(90)
    )
    items, scores = scorer.top_k(np.arange(90, dtype=np.int32), 10)
    for user in (0, 41, 89):
        alone = scorer.top_k(np.array([user], dtype=np.int32), 10)
        np.testing.assert_array_equal(alone[0][0], items[user])
        np.testing.assert_array_equal(alone[1][0], scores[user])


def test_tiles_of_any_size_give_the_same_lists(monkeypatch) -> None:
    rng = np.random.default_rng(2)
    scorer = product(
        rng.standard_normal((50, 40)), rng.standard_normal((900, 40)), rng.standard_normal(50)
    )
    users, seen = np.arange(50, dtype=np.int32), random_seen(rng, 50, 900, 0.3)
    whole = scorer.top_k(users, 7, seen=seen)
    monkeypatch.setattr(tiles, "TILE_BYTES", 4 * 7 * 101)
    monkeypatch.setattr(tiles, "PRODUCT_USERS", 7)
    for mine, other in zip(whole, scorer.top_k(users, 7, seen=seen), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_no_thread_count_changes_a_bit() -> None:
    program = textwrap.dedent(
        """
        import hashlib, sys
        import numpy as np
        from tests.retrieval.test_topk import Table, product, random_seen

        rng = np.random.default_rng(5)
        vectors = product(rng.standard_normal((400, 129)), rng.standard_normal((3000, 129)),
                          rng.standard_normal(400))
        table = Table(rng.integers(50, size=(400, 3000)))
        users, seen = np.arange(400, dtype=np.int32), random_seen(rng, 400, 3000, 0.05)
        digest = hashlib.sha256()
        for scorer in (vectors, table):
            for part in scorer.top_k(users, 10, seen=seen):
                digest.update(part.tobytes())
        print(digest.hexdigest())
        """
    )
    found = set()
    for threads in ("1", "2"):
        limits = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
            threads,
        )
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | limits | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_threads_share_rows() -> None:
    rng = np.random.default_rng(3)
    scorer, users = Table(rng.integers(9, size=(300, 80))), np.arange(300, dtype=np.int32)
    one = scorer.top_k(users, 5)
    with use_threads(4):
        shared = scorer.top_k(users, 5)
    for mine, other in zip(one, shared, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_where_an_item_may_be_ranked(bad) -> None:
    scores = np.random.default_rng(0).random((4, 50))
    scores[2, 7] = bad
    users = np.arange(4, dtype=np.int32)
    with pytest.raises(EvaluationError, match="table gives NaN or infinite"):
        Table(scores).top_k(users, 3)
    allowed = np.arange(50) != 7
    check(Table(scores), scores, users, 3, None, allowed)
    y = np.ones((50, 3))
    y[7] = bad
    with pytest.raises(EvaluationError, match="product gives NaN or infinite"):
        product(np.ones((4, 3)), y, np.zeros(4)).top_k(users, 3)
    items, _ = product(np.ones((4, 3)), y, np.zeros(4)).top_k(users, 50, allowed=allowed)
    assert 7 not in items
    with pytest.raises(EvaluationError, match="product gives NaN or infinite"):
        product(np.full((4, 3), 1e30), np.full((50, 3), 1e30), np.zeros(4)).top_k(users, 3)


def test_memory_is_bounded_whatever_is_asked_for() -> None:
    n_items = 40_000
    table = Table(np.broadcast_to(np.arange(n_items, dtype=np.float32), (900, n_items)))
    items, _ = table.top_k(np.arange(900, dtype=np.int32), 2)
    assert (items == [n_items - 1, n_items - 2]).all()
    assert len(table.block_bytes) > 1
    assert max(table.block_bytes) <= BLOCK_BYTES


def test_nobody_and_nothing() -> None:
    scorer = Table(np.ones((3, 4)))
    nobody = np.empty(0, dtype=np.int32)
    assert scorer.top_k(nobody, 5)[0].shape == (0, 5)
    everyone = np.arange(3, dtype=np.int32)
    assert scorer.top_k(everyone, 0)[0].shape == (3, 0)
    items, scores = scorer.top_k(everyone, 2, allowed=np.zeros(4, dtype=bool))
    assert (items == -1).all()
    assert np.isnan(scores).all()
    full = Csr(np.array([0, 4, 4, 4]), np.arange(4, dtype=np.int32), 4)
    assert (scorer.top_k(everyone, 9, seen=full)[0][0] == -1).all()
