"""Other stores, asked in their own way, rank as the model does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import (
    DataError,
    EvaluationError,
    MissingExtraError,
    NotFittedError,
    ParameterError,
)
from transcf.io.tensors import Arrays
from transcf.models.base import Recommender, init_from_params
from transcf.models.baselines import Popularity
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.retrieval import export as vectors
from transcf.retrieval.export import (
    export_index,
    export_lancedb,
    export_parquet,
    export_pgvector,
)
from transcf.retrieval.scorer import LinearForm, StoredForm


class Vectors(FittedScorer):
    """Random vectors: all that matters here is that the score is an inner product."""

    def __init__(self, known: TrainingData, width: int) -> None:
        super().__init__(known, "factors")
        random = np.random.default_rng(5)
        sizes = (len(known.users), len(known.items))
        users, items = (random.standard_normal((n, width), dtype=np.float32) for n in sizes)
        self._form = StoredForm(users, items, random.standard_normal(sizes[0], dtype=np.float32))

    def arrays(self) -> Arrays:
        return {}

    def linear_form(self) -> LinearForm:
        return self._form


@settings()
class FactorsSettings:
    """How wide they are."""

    width: int = setting(9, "Length of the vectors.", low=1)


class Factors(Recommender[FactorsSettings]):
    """A model that learns nothing."""

    name = "factors"
    __init__ = init_from_params(FactorsSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        return self._restore({}, run.known, self.settings)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: object) -> FittedScorer:
        return Vectors(known, self.settings.width)


def log(text_ids: bool) -> Interactions:
    """40 users and 60 items; the last user and the last item have no training interactions."""
    random = np.random.default_rng(3)
    users, items = random.integers(0, 40, 500), random.integers(0, 60, 500)
    users[:60], items[:60] = np.arange(60) % 40, np.arange(60)
    user_column, item_column = pl.Series(users), pl.Series(items)
    if text_ids:
        # Quotes and blanks are what a store may stumble over.
        user_column = pl.Series([f"o'{n:02} \"é" for n in users])
        item_column = pl.Series([f"item;{n:02}" for n in items])
    user_ids, user_rows = IdMap.encode(user_column)
    item_ids, item_rows = IdMap.encode(item_column)
    everything = Interactions.from_rows(user_ids, item_ids, user_rows, item_rows)
    return everything.select((everything.user_rows < 39) & (everything.item_rows < 59))


def _transcf() -> Recommender:
    reason = "TransCF cannot be imported"
    module = pytest.importorskip("transcf.models.transcf", reason=reason, exc_type=ImportError)
    return module.TransCF(dim=8, epochs=3, samples_per_user=10)


@pytest.fixture(scope="module", params=["factors, text", "factors, integers", "TransCF"])
def model(request: pytest.FixtureRequest) -> Recommender:
    made = _transcf() if request.param == "TransCF" else Factors()
    return made.fit(log(text_ids=request.param != "factors, integers"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "PIECE", 7)


def ours(model: Recommender, user: Any) -> list[Any]:
    return model.recommend(user, 10, exclude_seen=False)["item_id"].to_list()


def known_users(model: Recommender) -> list[Any]:
    return model.users_.ids(np.flatnonzero(model.seen_.counts)).to_list()


@pytest.mark.usefixtures("small_pieces")
def test_parquet_files_rank_as_the_model(model: Recommender, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    done = export_parquet(model, tmp_path / "vectors")
    users = parquet.read_table(tmp_path / "vectors" / "users.parquet")
    items = parquet.read_table(tmp_path / "vectors" / "items.parquet")
    assert users.column_names == ["user_id", "vector", "constant"]
    assert items.column_names == ["item_id", "vector"]
    assert (users.num_rows, items.num_rows) == (done.users, done.items) == (39, 59)
    assert items.schema.field("vector").type.list_size == done.width
    matrix = np.array(items["vector"].to_pylist())
    ids = items["item_id"].to_pylist()
    for user in users.to_pylist():
        scores = matrix @ np.array(user["vector"]) + user["constant"]
        best = np.argsort(-scores)[:10]
        assert [ids[n] for n in best] == ours(model, user["user_id"])
        stated = model.recommend(user["user_id"], 10, exclude_seen=False)["score"]
        np.testing.assert_allclose(scores[best], stated, atol=1e-5)


@pytest.mark.usefixtures("small_pieces")
def test_lancedb_ranks_as_the_model(model: Recommender, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")
    done = export_lancedb(model, tmp_path / "store")
    store = lancedb.connect(str(tmp_path / "store"))
    items, users = store.open_table("items"), store.open_table("users")
    assert (users.count_rows(), items.count_rows()) == (done.users, done.items) == (39, 59)
    for user in users.to_arrow().to_pylist():
        search = items.search(user["vector"]).distance_type("dot").limit(10)
        assert [hit["item_id"] for hit in search.to_list()] == ours(model, user["user_id"])


@pytest.mark.usefixtures("small_pieces")
def test_postgres_ranks_as_the_model(model: Recommender, database: str) -> None:
    import psycopg

    done = export_pgvector(model, database)
    assert (done.users, done.items) == (39, 59)
    question = (
        "SELECT item_id FROM transcf_items ORDER BY vector <#> (SELECT vector FROM transcf_users "
        "WHERE user_id = %s) LIMIT 10"
    )
    with psycopg.connect(database) as connection:
        for user in known_users(model):
            rows = connection.execute(question, [user]).fetchall()
            assert [item for (item,) in rows] == ours(model, user)


def test_postgres_keeps_old_tables_when_an_export_fails(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    export_pgvector(Factors(width=3).fit(log(False)), database)
    good = vectors.Vectors.item_tables

    def broken(self: vectors.Vectors) -> Iterator[pl.DataFrame]:
        yield from good(self)
        yield from good(self)  # the same keys again

    monkeypatch.setattr(vectors.Vectors, "item_tables", broken)
    with pytest.raises(DataError, match="PostgreSQL does not take the vectors: duplicate key"):
        export_pgvector(Factors(width=5).fit(log(False)), database)
    with psycopg.connect(database) as connection:
        for side in ("users", "items"):
            (width,) = connection.execute(
                f"SELECT max(vector_dims(vector)) FROM transcf_{side}"
            ).fetchone()
            assert width == 3
            (left,) = connection.execute(
                "SELECT to_regclass(%s)", [f"transcf_{side}_new"]
            ).fetchone()
            assert left is None


def test_vectors_too_long_for_postgres(database: str) -> None:
    with pytest.raises(DataError, match=r"PostgreSQL does not take the vectors: .*16000"):
        export_pgvector(Factors(width=16_001).fit(log(True)), database)


def test_postgres_that_is_not_there() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("pgvector", reason="pgvector is not installed")
    url = "postgresql://ann:secret@127.0.0.1:1/x"
    with pytest.raises(DataError, match="PostgreSQL does not take") as caught:
        export_pgvector(Factors().fit(log(True)), url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ParameterError, match="url is not understood") as refused:
        export_pgvector(Factors().fit(log(True)), "postgres//ann:secret@127.0.0.1/x")
    assert "secret" not in str(refused.value)


WRITERS = {"parquet": export_parquet, "lancedb": export_lancedb}


@pytest.mark.parametrize("store", WRITERS)
def test_folders_are_replaced_whole_or_left_alone(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store == "lancedb":
        pytest.importorskip("lancedb", reason="lancedb is not installed")
    write, target = WRITERS[store], tmp_path / "out"
    write(Factors(width=3).fit(log(True)), target)
    write(Factors(width=4).fit(log(True)), target)
    about = json.loads((target / "vectors.json").read_text())
    assert (about["format"], about["width"]) == (f"transcf-vectors-{store}", 4)

    def broken(self: vectors.Vectors) -> Iterator[pl.DataFrame]:
        raise OSError("no room")

    monkeypatch.setattr(vectors.Vectors, "item_tables", broken)
    with pytest.raises(OSError, match="no room"):
        write(Factors(width=5).fit(log(True)), target)
    assert json.loads((target / "vectors.json").read_text())["width"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is not an export"):
        write(Factors().fit(log(True)), mine)
    assert (mine / "letter.txt").read_text() == "dear"


def test_index_file_answers_as_the_model(model: Recommender, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    from transcf.retrieval.index import ItemIndex

    done = export_index(model, tmp_path / "items.index")
    index, form = ItemIndex.load(tmp_path / "items.index"), model.linear_form()
    assert (len(index.rows), done.items) == (59, 59)
    rows = np.flatnonzero(model.seen_.counts)
    found = index.search(form.user_vectors[rows], 10, constants=form.user_constants[rows])
    for user, items in zip(known_users(model), found.items, strict=True):
        assert model.items_.ids(items).to_list() == ours(model, user)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from transcf.cli.options import CommandGroup
    from transcf.cli.serve import export

    app = CommandGroup()
    app.command()(export)
    monkeypatch.setattr("transcf.cli.options.open_model", lambda _: Factors().fit(log(True)))
    target = str(tmp_path / "out")
    ask = ["folder", "--to", "parquet", "--out", target]
    done = CliRunner().invoke(app, [*ask, "--json"])
    facts = {"target": target, "users": 39, "items": 59, "width": 9}
    assert json.loads(done.stdout) == {"model": "folder", "to": "parquet", **facts}
    assert pl.read_parquet(tmp_path / "out" / "items.parquet").height == 59
    assert "Exported folder" in CliRunner().invoke(app, ask).stdout
    refused = {
        "--to='stone' is not allowed": ["folder", "--to", "stone", "--out", target],
        "pgvector needs postgresql://": ["folder", "--to", "pgvector", "--out", target],
        "--to index does not go with": ["folder", "--to", "index", "--out", "postgresql://x"],
    }
    for words, arguments in refused.items():
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert words in done.stderr


@pytest.mark.parametrize("export", [export_parquet, export_index])
def test_models_that_cannot_be_exported(export: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="Factors is not fitted"):
        export(Factors(), tmp_path / "x")
    with pytest.raises(ParameterError, match="popularity has no vectors to export"):
        export(Popularity().fit(log(True)), tmp_path / "x")
    spoiled = Factors().fit(log(True))
    spoiled.linear_form().item_vectors[2, 3] = np.nan
    with pytest.raises(EvaluationError, match="NaN or infinite"):
        export(spoiled, tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "extra", "export"),
    [
        ("lancedb", "lancedb", export_lancedb),
        ("psycopg", "pgvector", export_pgvector),
        ("pgvector.psycopg", "pgvector", export_pgvector),
        ("faiss", "index", export_index),
    ],
)
def test_missing_libraries_name_their_extra(
    module: str, extra: str, export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"transcf\[{extra}\]"):
        export(Factors().fit(log(True)), str(tmp_path / "x"))
