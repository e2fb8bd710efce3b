"""Splits against brute force, and what must hold for all of them."""

from datetime import date
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcf.data import (
    draw_candidates,
    k_core,
    leave_one_out,
    paper_filter,
    random_ratio,
    read_interactions,
    synthesize,
    temporal_cut,
)
from transcf.data.splitters import open_log_and_split, split_log
from transcf.errors import DataError, ParameterError

EVENTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 11), st.integers(0, 4)), min_size=3, max_size=60
)
RULES = {
    "time": lambda log, seed: leave_one_out(log, "time"),
    "position": lambda log, seed: leave_one_out(log, "position"),
    "paper": lambda log, seed: leave_one_out(log, "paper"),
    "random": lambda log, seed: leave_one_out(log, "random", seed=seed),
    "cut": lambda log, seed: temporal_cut(log, 0.2, validation=0.2),
    "ratio": lambda log, seed: random_ratio(log, 0.2, validation=0.2, seed=seed),
}


def log_of(events):
    return read_interactions(pl.DataFrame(events, schema=["user", "item", "time"], orient="row"))


def attempt(rule, log, seed):
    """Split, or None where too little would be left to train on."""
    try:
        return RULES[rule](log, seed)
    except DataError:
        return None


def pairs_of(part):
    return set(part.to_frame().select("user_id", "item_id").rows())


def parts_of(split):
    return [part.to_frame() for part in (split.train, split.validation, split.test)]


@pytest.mark.parametrize("rule", RULES)
@given(EVENTS, st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_parts_are_disjoint_and_whole(rule, events, seed):
    log = log_of(events)
    split = attempt(rule, log, seed)
    if split is None:
        return
    parts = [pairs_of(part) for part in (split.train, split.validation, split.test)]
    assert sum(map(len, parts)) == len(log)
    assert set.union(*parts) == pairs_of(log)
    assert split.train.users == split.test.users == log.users


@pytest.mark.parametrize("rule", ["time", "paper", "random", "cut", "ratio"])
@given(EVENTS, st.randoms(), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_the_order_of_the_log_changes_nothing(rule, events, random, seed):
    orders = (events, random.sample(events, len(events)))
    splits = [attempt(rule, log_of(rows), seed) for rows in orders]
    if None in splits:
        assert splits == [None, None]
        return
    one, other = splits
    assert all(a.equals(b) for a, b in zip(parts_of(one), parts_of(other), strict=True))
    one, other = draw_candidates(one, 3, seed=seed), draw_candidates(other, 3, seed=seed)
    assert one.candidates.items.tolist() == other.candidates.items.tolist()


@given(EVENTS)
@settings(deadline=None)
def test_time_order_with_ties_by_item_id(events):
    newest = {}
    for user, item, time in events:
        newest.setdefault(user, {})[item] = max(time, newest.get(user, {}).get(item, -1))
    expected = [set(), set()]
    for user, items in newest.items():
        ordered = sorted(items, key=lambda item: (items[item], item))
        if len(ordered) >= 3:
            expected[0].add((user, ordered[-1]))
            expected[1].add((user, ordered[-2]))
    split = leave_one_out(log_of(events), "time")
    assert [pairs_of(split.test), pairs_of(split.validation)] == expected
    short = sum(len(items) < 3 for items in newest.values())
    assert split.report.count("split", "users_kept_whole") == short
    assert split.report.count("split", "users_held_out") == len(newest) - short


def test_position_is_the_place_in_the_source():
    log = log_of([(1, 9, 0), (1, 5, 0), (1, 7, 0), (1, 2, 0)])
    split = leave_one_out(log, "position")
    assert (pairs_of(split.test), pairs_of(split.validation)) == ({(1, 2)}, {(1, 7)})


def test_paper_rule_takes_largest_numbers_and_first_appearance_of_text():
    numbers = read_interactions(pl.DataFrame({"user": [1] * 4, "item": [10, 9, 2, 1]}))
    split = leave_one_out(numbers, "paper")
    assert (pairs_of(split.test), pairs_of(split.validation)) == ({(1, 10)}, {(1, 9)})
    texts = pl.DataFrame({"user": [2, 1, 1, 1], "item": ["m", "z", "m", "a"]})
    split = leave_one_out(read_interactions(texts), "paper")
    assert (pairs_of(split.test), pairs_of(split.validation)) == ({(1, "a")}, {(1, "z")})


def test_random_order_is_fair_and_seeded():
    log = log_of([(user, item, 0) for user in range(3000) for item in range(4)])
    split = leave_one_out(log, "random", seed=1)
    again = leave_one_out(log, "random", seed=1)
    other = leave_one_out(log, "random", seed=2)
    assert pairs_of(split.test) == pairs_of(again.test) != pairs_of(other.test)
    counts = np.bincount(split.test.item_rows)
    # Four items, 750 expected of each; six standard deviations are 142.
    assert len(counts) == 4
    assert np.abs(counts - 750).max() < 142


def test_temporal_cut_by_moment():
    log = log_of([(1, 1, 10), (1, 2, 20), (2, 1, 20), (2, 3, 30)])
    split = temporal_cut(log, 30, validation=20)
    assert pairs_of(split.test) == {(2, 3)}
    assert pairs_of(split.validation) == {(1, 2), (2, 1)}
    assert split.report.count("split", "users_without_training") == 1


@pytest.mark.parametrize("at", [date(2020, 1, 3), "2020-01-03", "2020-01-02T12:00"])
def test_temporal_cut_by_date(at):
    days = ["2020-01-01", "2020-01-02", "2020-01-03"]
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "date": days})
    split = temporal_cut(read_interactions(frame), at, validation="2020-01-02")
    assert pairs_of(split.test) == {(1, 3)}
    assert pairs_of(split.validation) == {(1, 2)}


def test_shares_keep_equal_times_together():
    log = log_of([(1, item, item // 5) for item in range(10)] + [(2, 50, 9), (2, 51, -1)])
    split = temporal_cut(log, 0.3, validation=0.1)
    assert pairs_of(split.train) == {(2, 51)}
    assert pairs_of(split.test) == {(2, 50)} | {(1, item) for item in range(5, 10)}
    with pytest.raises(DataError, match="leaves nothing"):
        temporal_cut(log, 0.3, validation=0.99)


def test_ratio_holds_exact_numbers():
    log = log_of([(user, item, 0) for user in range(10) for item in range(10)])
    split = random_ratio(log, 0.25, validation=0.1)
    assert (len(split.train), len(split.validation), len(split.test)) == (65, 10, 25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: leave_one_out(log, "newest"), "by='newest' is not allowed"),
        (lambda log: leave_one_out(log, "random", seed=-1), "seed=-1"),
        (lambda log: temporal_cut(log, 1.5), "at=1.5"),
        (lambda log: temporal_cut(log, "2020-01-01"), "is a date but the log has integer"),
        (lambda log: random_ratio(log, 0.5, validation=0.5), "leave nothing to train on"),
        (lambda log: draw_candidates(leave_one_out(log), n=0), "n=0"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call(log_of([(1, item, item) for item in range(5)]))


def test_no_times_no_time_order():
    log = read_interactions(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3]}))
    for split in (partial(leave_one_out, by="time"), temporal_cut):
        with pytest.raises(DataError, match="no timestamps"):
            split(log)


def test_every_split_says_how_it_was_made():
    log = log_of([(user, item, item) for user in range(4) for item in range(5)])
    bare = read_interactions(log.to_frame().drop("timestamp"))
    newest = "the newest event of each user for test, the one before it for validation"
    chance = "one event of each user at random for test, another for validation, seed "
    assert leave_one_out(log).how == leave_one_out(log, "time").how == newest
    assert leave_one_out(bare, seed=3).how == f"{chance}3 (the log has no timestamps)"
    assert leave_one_out(bare, "random").how == f"{chance}0"
    assert split_log(bare, seed=3).recipe == leave_one_out(bare, seed=3).recipe
    assert pairs_of(split_log(bare).test) == pairs_of(leave_one_out(bare).test)
    assert leave_one_out(log, "position").how.startswith("the last event of each user in the log")
    assert random_ratio(log, 0.25).how == (
        "25 % of the events at random for test, 10 % for validation, seed 0"
    )
    assert temporal_cut(log, 4, validation=0.2).how == (
        "events from 4 on for test, the newest 20 % of the events before them for validation"
    )


@pytest.mark.parametrize(
    ("at", "validation", "message"),
    [
        (99, 0.1, r"at=99 is after the last event \(4\): choose an earlier moment"),
        (4, 4, r"validation=4 is after the last event before the cut \(3\)"),
        (0, 0.1, "at=0 leaves nothing before the cut"),
    ],
)
def test_a_cut_that_holds_nothing_out_is_refused(at, validation, message):
    log = log_of([(user, item, item) for user in range(4) for item in range(5)])
    with pytest.raises(DataError, match=message):
        temporal_cut(log, at, validation=validation)


def test_a_cut_after_the_last_date_is_refused():
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "date": ["2020-01-01", "2020-01-02"]})
    with pytest.raises(DataError, match=r"after the last event \(2020-01-02 00:00:00\)"):
        temporal_cut(frame, "2031-01-01")


@pytest.mark.parametrize("call", [leave_one_out, random_ratio, temporal_cut, k_core, paper_filter])
def test_splits_and_filters_take_tables(call):
    events = [(user, item, item) for user in range(6) for item in range(6)]
    frame = pl.DataFrame(events, schema=["user", "item", "time"], orient="row")
    assert repr(call(frame)) == repr(call(frame.to_pandas())) == repr(call(log_of(events)))


@given(EVENTS, st.integers(1, 12), st.integers(0, 9))
@settings(deadline=None)
def test_candidates_are_new_to_the_user_and_known_to_training(events, n, seed):
    split = draw_candidates(leave_one_out(log_of(events), "random"), n, seed=seed)
    touched = split.touched_items()
    trained = set(split.train.item_rows.tolist())
    short = 0
    for user in range(split.train.n_users):
        drawn = split.candidates.of(user).tolist()
        free = trained - set(touched.row(user).tolist())
        expected = min(n, len(free)) if len(split.test.by_user.row(user)) else 0
        assert len(drawn) == len(set(drawn)) == expected
        assert set(drawn) <= free
        short += bool(len(split.test.by_user.row(user))) and expected < n
    assert split.report.count("draw candidates", "users_with_fewer") == short


def test_candidates_are_drawn_evenly():
    events = [(user, item, item) for user in range(2000) for item in (0, 1, 2)]
    events += [(9999, item, 0) for item in range(3, 13)]
    split = draw_candidates(leave_one_out(log_of(events), "time"), 3, seed=5)
    # The last user alone brings ten items, of which two are held out: eight to draw from.
    drawn = np.bincount(split.candidates.items[: 3 * 2000])[3:11]
    assert drawn.sum() == 3 * 2000
    # 2000 users x 3 of 8: 750 each; six standard deviations are 130.
    assert np.abs(drawn - 750).max() < 130


def test_parameters_of_other_kinds_are_refused():
    log = read_interactions(pl.DataFrame({"user": [1] * 4, "item": [1, 2, 3, 4], "ts": range(4)}))
    for by in (np.arange(3), None, 5, ["time"]):
        with pytest.raises(ParameterError, match="must be one of 'auto', 'time'"):
            leave_one_out(log, by)
    for share in (None, "0.1", True, np.arange(2), 2**70):
        with pytest.raises(ParameterError, match="a share is between 0 and 1"):
            random_ratio(log, share)
    for moment in (2**63, -(10**5000)):
        with pytest.raises(ParameterError, match="times fit into 64 bits"):
            temporal_cut(log, 2, validation=moment)
    with pytest.raises(ParameterError, match="whole number of at least 1"):
        draw_candidates(leave_one_out(log), 2**63)


def test_shares_of_any_kind_of_number():
    log = synthesize(users=20, items=20, interactions=100)
    split = random_ratio(log, Fraction(1, 5), validation=np.float32(0.25))
    assert (len(split.test), len(split.validation)) == (20, 25)
    assert split.recipe["test"] == 0.2


def test_options_of_reading_hold_for_the_log_and_its_published_split(tmp_path):
    lines = [
        f'"{user}";"{item}";"{(user + item) % 11}"' for user in range(30) for item in range(20)
    ]
    rows = ['"User-ID";"ISBN";"Book-Rating"', *lines]
    (tmp_path / "BX-Book-Ratings.csv").write_text("\n".join(rows))
    log, split = open_log_and_split(tmp_path, "paper", min_rating=5)
    assert log.ratings.min() == split.train.ratings.min() == 5
    everything, _ = open_log_and_split(tmp_path, "paper")
    assert len(everything) == len(lines) > len(log)
