"""The order of events is kept: by every registered model, in files, and for newcomers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.conformance.conftest import with_side
from tests.conformance.test_every_model import EVERY_MODEL, make

import transcf
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.models.base import Recommender
from transcf.models.fitted import FittedScorer
from transcf.models.registry import available, model_class
from transcf.retrieval.scorer import BlockView, Scorer

GROWING = [name for name in available() if hasattr(model_class(name), "partial_fit")]


def events(seed: int = 0, n: int = 260) -> pl.DataFrame:
    """Events in any order, some at the same time, none twice."""
    rng = np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "user": [f"u{number:02}" for number in rng.integers(0, 25, n)],
            "item": [f"i{number:02}" for number in rng.integers(0, 20, n)],
            "timestamp": rng.integers(1000, 1060, n),
        }
    )
    return table.unique(["user", "item"], keep="first", maintain_order=True)


def in_order(table: pl.DataFrame) -> dict[str, list[str]]:
    """What each user took, oldest first, worked out without the library."""
    if "timestamp" in table.columns:
        table = table.sort("timestamp", "item", maintain_order=True)
    grouped = table.group_by("user", maintain_order=True).agg("item")
    return dict(grouped.iter_rows())


def told_by(model: Recommender) -> dict[str, list[str]]:
    users, items = model.users_.series.to_list(), model.items_.series.to_list()
    return {
        user: [items[row] for row in model.histories_[place]]
        for place, user in enumerate(users)
        if len(model.histories_[place])
    }


def quick(name: str) -> Recommender:
    return make(name, **({"epochs": 1} if model_class(name)._has_epochs() else {}))


@pytest.fixture(params=["with times", "without times"])
def table(request: pytest.FixtureRequest) -> pl.DataFrame:
    return events() if request.param == "with times" else events().drop("timestamp")


@EVERY_MODEL
def test_histories_are_in_order_and_survive_a_file(
    name: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    model = quick(name).fit(with_side(read_interactions(table)))
    expected = in_order(table)
    assert told_by(model) == expected
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert told_by(loaded) == expected
    for one in (model, loaded):
        known = one.learned_.known
        assert known.timed == ("timestamp" in table.columns)
        np.testing.assert_array_equal(known.histories.matrix.indices, known.seen.indices)
        np.testing.assert_array_equal(known.histories.indptr, known.seen.indptr)
        assert one.histories_.items.dtype == np.int32
    np.testing.assert_array_equal(loaded.histories_.items, model.histories_.items)
    assert told_by(transcf.load(loaded.save(tmp_path / "again"))) == expected


@pytest.mark.parametrize("name", GROWING)
def test_what_is_added_comes_last_in_a_history(
    name: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    first, later = table.head(150), table.tail(len(table) - 150)
    known = set(first["item"])
    later = later.filter(pl.col("item").is_in(list(known)))
    newcomer = pl.DataFrame({"user": ["a new one"] * 3, "item": ["i07", "i03", "i05"]})
    if "timestamp" in table.columns:
        newcomer = newcomer.with_columns(timestamp=pl.Series([9, 8, 7]))
    repeated = first.head(20)  # known already: they keep their places
    added = pl.concat([later, newcomer, repeated])
    model = quick(name).fit(with_side(read_interactions(first)))
    model.partial_fit(read_interactions(added))
    expected = in_order(first)
    for user, items in in_order(added).items():
        before = expected.get(user, [])
        expected[user] = before + [item for item in items if item not in before]
    assert told_by(model) == expected
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert told_by(loaded) == expected
    twice = loaded.partial_fit(read_interactions(added))
    assert told_by(twice) == expected, "nothing was new"


class Recorder:
    """Replaces `fold_in` of a fitted scorer and records the histories that it is given."""

    def __init__(self, learned: FittedScorer) -> None:
        self._fold_in, self.given = learned.fold_in, list[list[int]]()

    def __call__(self, histories: Histories, *rest: Any) -> Scorer:
        self.given += [histories[row].tolist() for row in range(len(histories))]
        assert histories.n_items == 20
        return self._fold_in(histories, *rest)


@EVERY_MODEL
def test_recommend_for_passes_its_order_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick(name).fit(with_side(read_interactions(events())))
    recorder = Recorder(model.learned_)
    monkeypatch.setattr(model.learned_, "fold_in", recorder)
    ids = model.items_.series.to_list()
    model.recommend_for([ids[5], ids[2], ids[9]])
    model.recommend_for([ids[9], ids[5], ids[2]])
    model.recommend_for(pl.Series([ids[5], ids[2], ids[5], ids[2], ids[1]]))
    model.recommend_for(["novelty", ids[8], "rarity", ids[3]], on_unknown="skip")
    model.recommend_for(iter([ids[4], ids[0]]))
    assert recorder.given == [[5, 2, 9], [9, 5, 2], [5, 2, 1], [8, 3], [4, 0]]


class NextAfter(FittedScorer):
    """Recommends what comes after the last item of a history, by number."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        return self._after([self.known.histories[row] for row in users])

    def fold_in(self, histories: Histories) -> Scorer:
        rows = [histories[row] for row in range(len(histories))]
        return BlockView(
            self.name, self.rankable, lambda users: self._after([rows[user] for user in users])
        )

    def _after(self, histories: list[np.ndarray]) -> np.ndarray:
        n_items = len(self.known.items)
        ahead = [
            (np.arange(n_items) - (history[-1] if len(history) else 0) - 1) % n_items
            for history in histories
        ]
        return -np.array(ahead, np.float32)


def test_a_model_that_looks_at_order_gets_it() -> None:
    log = read_interactions(events())
    model = transcf.Popularity().fit(log)
    model.learned_ = NextAfter(model.learned_.known, "next")
    ids = model.items_.series.to_list()
    for history in ([3, 7, 11], [11, 7, 3], [7, 3, 7, 11, 3]):
        listed = model.recommend_for([ids[row] for row in history], 1, exclude_seen=False)
        assert listed["item_id"].item() == ids[history[-1] + 1]
    newest = {user: items[-1] for user, items in in_order(events()).items()}
    for user, item in newest.items():
        found = model.recommend(user, 1, exclude_seen=False)["item_id"].item()
        assert found == ids[(ids.index(item) + 1) % len(ids)]


@pytest.mark.parametrize("is_timed", [True, False])
def test_order_counts_for_transcf_where_it_learned_from_times(
    is_timed: bool, tmp_path: Path
) -> None:
    table = events() if is_timed else events().drop("timestamp")
    model = transcf.TransCF(dim=8, epochs=2, event_weights=transcf.EventWeights(recency=2.0))
    model.fit(read_interactions(table))
    loaded = transcf.load(model.save(tmp_path / "model"))
    history = ["i01", "i05", "i09", "i13"]
    for one in (model, loaded):
        forward, backward = one.recommend_for(history), one.recommend_for(history[::-1])
        assert forward.equals(backward) != is_timed
        assert forward.equals(model.recommend_for(history))


def test_nothing_about_order_hides_in_the_report() -> None:
    with_times: Interactions = read_interactions(events())
    model = quick("transcf-mixture").fit(with_times)
    assert not {"timed", "recency", "order"} & set(model.report_)
