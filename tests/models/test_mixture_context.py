"""The mixture with means of contexts in place of user vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf import FitOptions, Interactions, TransCFMixture, read_interactions, synthesize
from transcf.errors import UnsupportedError
from transcf.kernels.mixture_context import REACH
from transcf.models.mixture.fitted import Mixture
from transcf.parallel import use_threads

SMALL: dict[str, Any] = {"dim": 8, "epochs": 3, "batch_events": 300}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=200, items=60, interactions=1200, seed=4)


def vectors_of(model: TransCFMixture) -> list[np.ndarray]:
    return [model.item_vectors_, model.history_vectors_, model.item_bias_, model.user_vectors_]


def test_short_histories_choose_it_and_long_ones_do_not(log: Interactions) -> None:
    long = synthesize(users=40, items=120, interactions=2400, seed=4)
    chosen = [TransCFMixture(**SMALL).fit(some).report_["user_vectors"] for some in (log, long)]
    assert chosen == ["context", "learned"]


def test_a_log_without_times_is_refused_or_learned(log: Interactions) -> None:
    table = log.to_frame().select("user_id", "item_id")
    with pytest.raises(UnsupportedError, match="no times"):
        TransCFMixture(**SMALL, user_vectors="context").fit(table)
    assert TransCFMixture(**SMALL).fit(table).report_["user_vectors"] == "learned"


def test_users_are_at_the_mean_of_their_last_items() -> None:
    log = synthesize(users=30, items=100, interactions=1500, seed=1)
    model = TransCFMixture(**SMALL, user_vectors="context").fit(log)
    longest = int(np.argmax(model.seen_.counts))
    history = log.histories[longest][-REACH:]
    assert len(log.histories[longest]) > REACH
    weights = 1 / np.arange(len(history), 0, -1)
    expected = np.average(model.item_vectors_[history], axis=0, weights=weights)
    np.testing.assert_allclose(model.user_vectors_[longest], expected, rtol=1e-5)


def test_threads_and_resuming_change_no_bit(log: Interactions, tmp_path: Path) -> None:
    found = []
    for threads in (1, 2):
        with use_threads(threads):
            found.append(vectors_of(TransCFMixture(**SMALL).fit(log)))
    saved = {"checkpoint": tmp_path / "state", "checkpoint_seconds": 0.0}

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TransCFMixture(**SMALL).fit(log, options=FitOptions(**saved, on_epoch=stop))
    resumed = TransCFMixture(**SMALL).fit(log, options=FitOptions(**saved, resume=True))
    found.append(vectors_of(resumed))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_saved_model_has_no_user_vectors_and_answers_the_same(
    log: Interactions, tmp_path: Path
) -> None:
    model = TransCFMixture(**SMALL).fit(log)
    model.save(tmp_path / "model")
    loaded = TransCFMixture.load(tmp_path / "model")
    learned = loaded.learned_
    assert isinstance(learned, Mixture)
    assert learned.is_context
    assert "user_vectors" not in learned.stored_arrays()
    assert loaded.recommend(k=5).equals(model.recommend(k=5))
    np.testing.assert_array_equal(loaded.user_vectors_, model.user_vectors_)


def test_known_users_new_users_and_additions_are_treated_alike(log: Interactions) -> None:
    model = TransCFMixture(**SMALL).fit(log)
    user = log.users.series[7]
    items = log.items.series[log.histories[7].tolist()].to_list()
    known = model.recommend(user, k=5, exclude_seen=False)
    new = model.recommend_for(items, k=5, exclude_seen=False)
    assert known["item_id"].to_list() == new["item_id"].to_list()
    added = read_interactions(pl.DataFrame({"user": ["new"] * len(items), "item": items}))
    grown = model.partial_fit(added).recommend("new", k=5, exclude_seen=False)
    assert grown["item_id"].to_list() == known["item_id"].to_list()
