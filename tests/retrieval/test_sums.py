"""Exports of scores that are logarithms of sums, against brute force in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf import BPR, Interactions, TransCFMixture, synthesize
from transcf.errors import ParameterError
from transcf.models.base import Recommender
from transcf.retrieval.export import export_index, export_lancedb, export_parquet, export_pgvector
from transcf.retrieval.sums import SumForm


def true_scores(form: SumForm, user: int) -> np.ndarray:
    queries = form.of_users(np.array([user]))
    products = queries.vectors.astype(float) @ form.item_vectors.T.astype(float)
    return np.logaddexp.reduce(products + queries.constants[:, None].astype(float), axis=0)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=80, interactions=900, seed=5)


@pytest.fixture(scope="module", params=["mixture", "trend"])
def model(request: pytest.FixtureRequest, log: Interactions) -> TransCFMixture:
    more = {} if request.param == "mixture" else {"trend": 1.0}
    return TransCFMixture(dim=10, epochs=3, **more).fit(log)


def ours(model: Recommender, user: Any) -> list[Any]:
    return model.recommend(user, 10, exclude_seen=False)["item_id"].to_list()


def test_the_form_scores_as_the_model(model: TransCFMixture) -> None:
    form = model.learned_.sum_form()
    assert form is not None
    for user in (0, 9, 33):
        expected = model.scores(np.array([user], np.int32))[0]
        np.testing.assert_allclose(true_scores(form, user), expected, rtol=1e-5, atol=1e-5)


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


def test_an_index_takes_one_vector_per_user(model: TransCFMixture, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="Parquet"):
        export_index(model, tmp_path / "items.index")
