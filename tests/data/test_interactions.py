"""`Interactions` against plain dictionaries and sets."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcf.data import read_interactions
from transcf.data.csr import order_by_user

EVENTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 5), st.integers(0, 9)),
    min_size=1,
    max_size=60,
)


def table(events):
    columns = ["user", "item", "rating", "time"]
    return pl.DataFrame(events, schema=columns, orient="row")


@given(EVENTS)
@settings(deadline=None)
def test_repeats_are_merged_by_time_then_rating(events):
    best = {}
    for user, item, rating, time in events:
        best[user, item] = max(best.get((user, item), (-1, -1)), (time, rating))
    log = read_interactions(table(events))
    found = {(u, i): (t, r) for u, i, r, t in log.to_frame().iter_rows()}
    assert found == best
    assert log.report.count("merge repeats", "repeats") == len(events) - len(best)
    assert log.report.count("read", "rows") == len(events)


@given(EVENTS, st.randoms())
@settings(deadline=None)
def test_the_order_of_the_log_changes_nothing(events, random):
    shuffled = random.sample(events, len(events))
    one, other = read_interactions(table(events)), read_interactions(table(shuffled))
    assert one.to_frame().equals(other.to_frame())
    assert one.users == other.users
    assert one.items == other.items


@given(EVENTS)
@settings(deadline=None)
def test_both_compressed_forms_hold_the_same_pairs(events):
    log = read_interactions(table(events))
    by_user = {(u, i) for u in range(log.n_users) for i in log.by_user.row(u).tolist()}
    by_item = {(u, i) for i in range(log.n_items) for u in log.by_item.row(i).tolist()}
    assert by_user == by_item
    assert len(by_user) == len(log)
    assert all(np.all(np.diff(log.by_item.row(i)) > 0) for i in range(log.n_items))


@given(EVENTS, st.data())
@settings(deadline=None)
def test_select_keeps_what_the_mask_says(events, data):
    log = read_interactions(table(events))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(log), max_size=len(log))))
    expected = log.to_frame().filter(pl.Series(mask, dtype=pl.Boolean))
    for drop_ids in (False, True):
        part = log.select(mask, drop_ids=drop_ids)
        assert part.to_frame().equals(expected)
    assert part.n_users == expected["user_id"].n_unique()
    assert part.n_items == expected["item_id"].n_unique()


def test_nan_ratings_lose_against_any_other():
    events = [(1, 1, float("nan"), 5), (1, 1, 2.0, 5), (1, 1, float("nan"), 5)]
    assert read_interactions(table(events)).ratings.tolist() == [2.0]


def test_arrays_are_frozen():
    log = read_interactions(table([(1, 1, 1, 1)]))
    for values in (log.positions, log.ratings, log.timestamps, log.by_user.indices):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 9


def test_repr_tells_counts_and_density():
    log = read_interactions(table([(1, 1, 1, 1), (2, 2, 1, 1)]))
    shown = "Interactions(2 users, 2 items, 2 interactions, density 50 %, with ratings, timestamps)"
    assert repr(log) == shown


@pytest.mark.parametrize("left_out", [[], ["time"], ["rating"], ["time", "rating"]])
@pytest.mark.parametrize("n_items", [30, 1 << 55])
def test_one_event_of_each_pair_is_kept(left_out, n_items):
    random = np.random.default_rng(0)
    columns = {"user": 40, "item": 30, "rating": 5, "time": 9}
    frame = pl.DataFrame({name: random.integers(0, top, 3000) for name, top in columns.items()})
    rated = pl.when(pl.col("rating") > 0).then(pl.col("rating").cast(pl.Float32)).fill_null(np.nan)
    frame = frame.with_columns(rated, position=pl.int_range(3000))
    users, items = (frame[name].cast(pl.Int32).to_numpy() for name in ("user", "item"))
    values = {n: None if n in left_out else frame[n].to_numpy() for n in ("rating", "time")}
    found = order_by_user(users, items, n_items, values["rating"], values["time"])
    order = [*(n for n in ("time", "rating") if n not in left_out), "position"]
    known = frame.with_columns(pl.col("rating").fill_nan(-np.inf)).sort(order)
    expected = known.unique(["user", "item"], keep="last").sort("user", "item")
    assert found.tolist() == expected["position"].to_list()
    single = frame.with_columns(user=pl.lit(1))
    assert len(read_interactions(single)) == 30
