"""Lists by several queries for each user, against brute force in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcf import BPR, Interactions, TransCFMixture, synthesize
from transcf.data.csr import Csr
from transcf.models.base import Recommender
from transcf.retrieval.export import export_index, export_lancedb, export_parquet, export_pgvector
from transcf.retrieval.scorer import FormView, StoredForm
from transcf.retrieval.sums import Queries, SumForm, best_of_sums


def random_form(
    seed: int, n_users: int, n_items: int, longest: int, *, whole: bool = False
) -> SumForm:
    """Random histories; with small whole numbers for vectors, many scores are equal."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, longest + 1, n_users)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def vectors(n: int) -> np.ndarray:
        drawn = rng.integers(-1, 2, (n, 6)) if whole else rng.standard_normal((n, 6))
        return drawn.astype(np.float32)

    items, every = vectors(n_items), vectors(int(starts[-1]))
    constants = rng.standard_normal(len(every)).astype(np.float32) * (not whole)

    def of_users(users: np.ndarray) -> Queries:
        places = [np.arange(starts[user], starts[user + 1]) for user in users]
        own = np.concatenate([*places, np.empty(0, int)]).astype(int)
        begin = np.concatenate([[0], np.cumsum([len(some) for some in places])]).astype(np.int64)
        return Queries(begin, own.astype(np.int32), every[own], constants[own])

    return SumForm(items, of_users, n_users)


def true_scores(form: SumForm, user: int) -> np.ndarray:
    queries = form.of_users(np.array([user]))
    products = queries.vectors.astype(float) @ form.item_vectors.T.astype(float)
    return np.logaddexp.reduce(products + queries.constants[:, None].astype(float), axis=0)


def exact_lists(
    form: SumForm, users: np.ndarray, k: int, seen: Csr, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lists by an exact search for every query."""

    def search(vectors: Any, constants: Any, length: int, hidden: Any) -> Any:
        queries = StoredForm(vectors, form.item_vectors, constants)
        rows = np.arange(len(vectors), dtype=np.int32)
        return FormView("queries", allowed, queries).top_k(rows, length, seen=hidden)

    return best_of_sums(search, form.of_users(users), form.item_vectors, k, seen.take(users))


def csr(rows: list[Any], n_items: int) -> Csr:
    columns = [np.unique(row).astype(np.int32) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
    return Csr(indptr, np.concatenate([*columns, np.empty(0, np.int32)]), n_items)


@given(
    st.integers(0, 10**6), st.integers(1, 300), st.sampled_from([1, 3, 40, 200]),
    st.sampled_from([0, 1, 10, 400]), st.booleans(), st.floats(0, 1),
)  # fmt: skip
def test_candidates_give_the_very_best(
    seed: int, n_items: int, longest: int, k: int, whole: bool, share: float
) -> None:
    form, rng = random_form(seed, 4, n_items, longest, whole=whole), np.random.default_rng(seed)
    allowed = rng.random(n_items) < 0.9
    seen = csr([np.flatnonzero(rng.random(n_items) < share) for _ in range(4)], n_items)
    users = np.array([3, 0, 1], np.int32)
    items, scores = exact_lists(form, users, k, seen, allowed)
    for place, user in enumerate(users):
        expected = true_scores(form, user).astype(np.float32)
        left = np.setdiff1d(np.flatnonzero(allowed), seen.row(user))
        count = min(k, len(left))
        found = items[place, :count]
        assert (items[place, count:] == -1).all()
        assert np.isnan(scores[place, count:]).all()
        assert len(np.unique(found)) == count
        assert np.isin(found, left).all()
        best = np.sort(expected[left])[::-1][:count]
        np.testing.assert_allclose(expected[found], best, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scores[place, :count], best, rtol=1e-6, atol=1e-6)
        ties = np.diff(scores[place, :count]) == 0
        assert (np.diff(found)[ties] > 0).all(), "equal scores come by row"


def test_queries_look_further_until_nothing_can_be_missing() -> None:
    """Every query has 40 favourites of its own; the best of all comes behind them for each."""
    n_queries, favourites = 50, 40
    items = np.repeat(np.eye(n_queries, dtype=np.float32), favourites, axis=0)
    items = np.vstack([items, np.full((1, n_queries), 0.9, np.float32)])
    queries = Queries(
        np.array([0, n_queries]),
        np.arange(n_queries, dtype=np.int32),
        8 * np.eye(n_queries, dtype=np.float32),
        np.zeros(n_queries, np.float32),
    )
    lengths: list[int] = []

    def search(vectors: Any, constants: Any, length: int, hidden: Any) -> Any:
        lengths.append(length)
        products = vectors @ items.T
        order = np.argsort(-products, axis=1, kind="stable")[:, :length]
        return order.astype(np.int32), np.take_along_axis(products, order, axis=1)

    found, _ = best_of_sums(search, queries, items, 1, None)
    assert found[0, 0] == len(items) - 1
    assert lengths[0] <= favourites < lengths[-1] < len(items)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=80, interactions=900, seed=5)


@pytest.fixture(scope="module", params=["mixture", "trend without a bias"])
def model(request: pytest.FixtureRequest, log: Interactions) -> TransCFMixture:
    more = {} if request.param == "mixture" else {"trend": 1.0, "item_bias": False}
    return TransCFMixture(dim=10, epochs=3, **more).fit(log)


def ours(model: Recommender, user: Any) -> list[Any]:
    return model.recommend(user, 10, exclude_seen=False)["item_id"].to_list()


def test_the_form_scores_as_the_model(model: TransCFMixture) -> None:
    form = model.learned_.sum_form()
    assert form is not None
    for user in (0, 9, 33):
        expected = model.scores(np.array([user], np.int32))[0]
        np.testing.assert_allclose(true_scores(form, user), expected, rtol=1e-5, atol=1e-5)
    rows = np.arange(len(model.users_), dtype=np.int32)
    items, _ = exact_lists(form, rows, 10, model.seen_, model.rankable)
    table = model.recommend(k=10)
    assert model.items_.ids(items.ravel()).to_list() == table["item_id"].to_list()


def test_models_with_another_score_have_no_such_form(log: Interactions) -> None:
    assert BPR(dim=4, epochs=1).fit(log).learned_.sum_form() is None


def merged(users: pl.DataFrame, items: pl.DataFrame, user: Any) -> list[Any]:
    """The recipe: the sum over a user's rows."""
    own = users.filter(pl.col("user_id") == user)
    products = own["vector"].to_numpy() @ items["vector"].to_numpy().T
    scores = np.logaddexp.reduce(products + own["constant"].to_numpy()[:, None], axis=0)
    return items["item_id"].gather(np.argsort(-scores)[:10]).to_list()


def test_parquet_files_rank_as_the_model(model: TransCFMixture, tmp_path: Path) -> None:
    done = export_parquet(model, tmp_path / "out")
    users, items = (pl.read_parquet(tmp_path / "out" / f"{side}.parquet") for side in SIDES)
    assert users.columns == ["user_id", "past_item_id", "vector", "constant"]
    assert (len(users), len(items)) == (model.seen_.counts.sum(), done.items)
    assert "log of the sum" in (tmp_path / "out" / "vectors.json").read_text()
    for user in model.users_.series[:20]:
        history = model.histories_[int(model.users_.rows(pl.Series([user]))[0])]
        past = users.filter(pl.col("user_id") == user)["past_item_id"].to_list()
        assert past == model.items_.ids(history).to_list()
        assert merged(users, items, user) == ours(model, user)


SIDES = ("users", "items")


def test_lancedb_ranks_as_the_model(model: TransCFMixture, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")
    export_lancedb(model, tmp_path / "store")
    store = lancedb.connect(str(tmp_path / "store"))
    users, items = (pl.from_arrow(store.open_table(side).to_arrow()) for side in SIDES)
    assert merged(users, items, model.users_.series[3]) == ours(model, model.users_.series[3])


def test_postgres_ranks_as_the_model(model: TransCFMixture, database: str) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("pgvector", reason="pgvector is not installed")
    export_pgvector(model, database)
    question = (
        "SELECT item_id FROM transcf_items AS i, transcf_users AS u WHERE user_id = %s "
        "GROUP BY item_id ORDER BY sum(exp(u.constant - (u.vector <#> i.vector))) DESC LIMIT 10"
    )
    with psycopg.connect(database) as connection:
        for user in model.users_.series[:5]:
            rows = connection.execute(question, [user]).fetchall()
            assert [item for (item,) in rows] == ours(model, user)


def test_index_file_answers_as_the_model(model: TransCFMixture, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    from transcf.retrieval.index import ItemIndex

    export_index(model, tmp_path / "items.index")
    index, form = ItemIndex.load(tmp_path / "items.index"), model.learned_.sum_form()
    assert form is not None
    rows = np.arange(0, len(model.users_), 3, dtype=np.int32)
    found = index.search_sums(form.of_users(rows), 10)
    assert found.exact == len(rows)
    for user, items in zip(model.users_.ids(rows), found.items, strict=True):
        assert model.items_.ids(items).to_list() == ours(model, user)


def test_large_indexes_find_most_of_the_best() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    from transcf.retrieval.index import ItemIndex

    form = random_form(3, 40, 12_000, 12)
    index = ItemIndex.build(form.sample())
    assert index.lists is not None
    users = np.arange(40, dtype=np.int32)
    best = np.array([np.argsort(-true_scores(form, user))[:20] for user in users])
    seen = csr(list(best[:, :10]), 12_000)
    found = index.search_sums(form.of_users(users), 10, seen=seen).items
    hits = [np.isin(row, some).mean() for row, some in zip(best[:, 10:], found, strict=True)]
    assert np.mean(hits) >= 0.93
