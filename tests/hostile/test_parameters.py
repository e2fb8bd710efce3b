"""Parameters of models, splits, questions and judgements: what is allowed works, the rest "
"is said."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile import _oracle
from tests.hostile._outcomes import Answered, Refused, cases, outcome_of

from transcf import (
    create,
    draw_candidates,
    evaluate,
    k_core,
    leave_one_out,
    load,
    random_ratio,
    read_interactions,
    temporal_cut,
    use_threads,
)
from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.models.base import Recommender
from transcf.models.registry import available, model_class

EVENTS = [("ann", 1, 1), ("ann", 2, 2), ("ann", 3, 3), ("ann", 7, 3), ("bob", 1, 4), ("bob", 2, 5),
          ("bob", 4, 6), ("cid", 2, 7), ("cid", 3, 8), ("cid", 5, 9), ("cid", 1, 9), ("dee", 6, 9),
          ("eve", 7, 1), ("eve", 4, 2)]  # fmt: skip
USERS, ITEMS = ["ann", "bob", "cid", "dee", "eve"], [1, 2, 3, 4, 5, 6, 7]
#: Models that learn such a log at once, with quick settings.
QUICK: dict[str, dict[str, Any]] = {
    "popularity": {}, "inverse-popularity": {}, "random": {}, "ease": {}, "itemknn": {},
    "ials": {"dim": 2, "epochs": 1},
}  # fmt: skip
HUGE = [2**31, 2**63, -(2**63) - 1, 10**30, 10**5000, -(10**5000)]
ODD = st.sampled_from(
    [None, True, False, "", "no", "3", b"3", math.nan, math.inf, -math.inf, 1e308, 5e-324, 0.5,
     -0.0, 1j, [], [3], {}, (), {"a": 1}, Fraction(1, 3), np.int64(3), np.float32(0.5), np.array(3),
     np.arange(50), object, "x" * 5000, "a\nb", "\ud800", dt.date(2020, 1, 1), *HUGE]
)  # fmt: skip
NUMBERS = st.integers(-3, 30) | st.floats(0, 1) | st.sampled_from(HUGE)
HOSTILE = ODD | NUMBERS


@cache
def log() -> Interactions:
    frame = pl.DataFrame(EVENTS, schema=["user", "item", "time"], orient="row")
    return read_interactions(frame)


@cache
def split() -> Split:
    return draw_candidates(leave_one_out(log(), "time"), n=2)


@cache
def fitted(name: str) -> Recommender[Any]:
    return create(name, **QUICK[name]).fit(log())


@cache
def scores(name: str) -> dict[str, dict[int, float]]:
    """What the model thinks of every pair, one call a pair."""
    model = fitted(name)
    return {user: {item: model.score([(user, item)])["score"][0] for item in ITEMS}
            for user in USERS}  # fmt: skip


def seen(user: str) -> set[int]:
    return {item for owner, item, _ in EVENTS if owner == user}


def is_allowed(rule: Any, value: Any) -> bool:
    """What a rule says in words, written down again."""
    words = str(rule)
    if words == "True or False":
        return isinstance(value, bool)
    if words.startswith("one of"):
        return isinstance(value, str) and repr(value) in words.removeprefix("one of ").split(", ")
    if words.startswith("models joined by"):
        return False  # nothing here names two models
    if value is None:
        return words.endswith("or None")
    kinds = (int, np.integer) if "whole" in words else (int, float, np.number)
    if isinstance(value, bool | np.ndarray) or not isinstance(value, kinds):
        return False
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return False
    if isinstance(value, int) and abs(value) >= 2**63:
        return False
    above = value > rule.low if rule.above else value >= rule.low
    return bool(above and value <= rule.high)


@cases("parameters", 0.04)
@given(name=st.sampled_from(available()), data=st.data())
def test_settings_are_checked(round_: int, name: str, data: st.DataObject) -> None:
    rules = model_class(name)._rules()
    key = data.draw(st.sampled_from([*rules, "nonsense"]))
    value = data.draw(HOSTILE)
    found = outcome_of("parameters", lambda: create(name).set_params(**{key: value}))
    right = key in rules and is_allowed(rules[key], value)
    assert isinstance(found, Answered) == right, (found, rules.get(key))


@cases("parameters", 0.03)
@given(name=st.sampled_from(sorted(QUICK)), data=st.data())
def test_whatever_is_allowed_fits(round_: int, name: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(create(name)._rules()) or ["none"]))
    value = data.draw(HOSTILE)
    if key in ("epochs", "dim") and isinstance(value, int) and value > 4:
        value = 3  # what is large takes long, which is no defect
    changed = QUICK[name] | {key: value}
    found = outcome_of("parameters", lambda: create(name, **changed).fit(log()).recommend(k=3))
    if isinstance(found, Answered):
        assert is_allowed(create(name)._rules()[key], value)
        table = found.value
        assert not {*zip(table["user_id"], table["item_id"], strict=True)} & {
            (user, item) for user, item, _ in EVENTS
        }


#: Ids of items in a filter; the last ones are unknown.
SOME = st.lists(st.sampled_from([*ITEMS, 99, -1, "1", "tea", 2**70]), max_size=4)
LISTS = st.none() | SOME | st.dictionaries(st.sampled_from(USERS), SOME, max_size=3)
QUESTION = st.fixed_dictionaries(
    {},
    optional={
        "k": st.integers(0, 9),
        "exclude_seen": st.booleans(),
        "items": LISTS,
        "exclude": LISTS,
        "on_unknown": st.sampled_from(["raise", "skip"]),
    },
)
NAMES = st.lists(st.sampled_from([*USERS, *USERS, "zoe"]), max_size=4) | st.sampled_from(USERS)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """Whom to recommend to and how; half of the time one thing of it is odd."""
    users, how = draw(st.none() | NAMES), draw(QUESTION)
    odd = draw(st.sampled_from([""] * 5 + ["users", "k", "exclude_seen", "items", "exclude",
                                           "on_unknown"]))  # fmt: skip
    if odd == "users":
        users = draw(HOSTILE)
    elif odd:
        how[odd] = draw(HOSTILE)
    return users, how


@cases("parameters", 0.06)
@given(name=st.sampled_from(sorted(QUICK)), question=questions())
def test_recommend(round_: int, name: str, question: tuple[Any, dict[str, Any]]) -> None:
    users, how = question
    if users is None or isinstance(users, str):
        wanted = USERS if users is None else [users]
    else:
        wanted = list(dict.fromkeys(users)) if isinstance(users, list) else []
    found = outcome_of("parameters", lambda: fitted(name).recommend(users, **how))
    plain = all(user in USERS for user in wanted)
    if isinstance(found, Refused):
        fine = plain and (users is None or isinstance(users, list | str)) and is_sound(how)
        assert not fine, found
        return
    answer: dict[str, list[int]] = {user: [] for user in wanted}
    for row in found.value.to_dicts():
        answer.setdefault(row["user_id"], []).append(row["item_id"])
        assert row["rank"] == len(answer[row["user_id"]])
        alone = scores(name)[row["user_id"]][row["item_id"]]
        assert row["score"] == pytest.approx(alone, rel=1e-4, abs=1e-6)
    for user, items in answer.items():
        if user in USERS:
            assert items == expected_list(name, user, how), (user, how)
        else:
            assert not items


def is_sound(how: dict[str, Any]) -> bool:
    """Whether a question has to be answered; unknown ids in filters are no reason not to."""
    k, seen_out = how.get("k", 10), how.get("exclude_seen", True)
    lists = [how.get(name) for name in ("items", "exclude")]
    return (
        type(k) is int
        and k >= 0
        and type(seen_out) is bool
        and isinstance(how.get("on_unknown", "raise"), str)
        and how.get("on_unknown", "raise") in ("raise", "skip")
        and all(one is None or isinstance(one, list) for one in lists)
    )


def listed(ids: Any) -> list[Any]:
    """One id or several, as a list."""
    if isinstance(ids, np.ndarray):
        return np.atleast_1d(ids).tolist()
    several = [ids] if isinstance(ids, str | int | np.integer) else list(ids)
    return [value for value in several if not isinstance(value, bool)]  # no number is meant


def expected_list(name: str, user: str, how: dict[str, Any]) -> list[Any]:
    """What `recommend` should list for a user, by hand."""
    among, without = how.get("items"), how.get("exclude")
    if isinstance(among, dict):
        among = among.get(user, ())
    if isinstance(without, dict):
        without = without.get(user, ())
    hidden = set(listed(() if without is None else without))
    hidden |= seen(user) if how.get("exclude_seen", True) else set()
    among = None if among is None else set(listed(among))
    return _oracle.best(scores(name)[user], int(how.get("k", 10)), without=hidden, among=among)


HISTORY = st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3)
#: Batches of sessions, some with ids that cannot be or histories that are empty.
SESSIONS = st.lists(HISTORY, min_size=1, max_size=3) | st.dictionaries(
    st.sampled_from(["a", "b", "", 1, 2, None, True, 2**70]), HISTORY | HOSTILE, max_size=3
)


@cases("parameters", 0.02)
@given(
    name=st.sampled_from(sorted(QUICK)),
    sessions=st.dictionaries(st.sampled_from(["a", "b", ""]), HISTORY, max_size=3)
    | st.dictionaries(st.integers(-(2**63), 2**63 - 1), HISTORY, max_size=3),
    k=st.integers(0, 9),
    exclude=SOME,
)
def test_batches_of_sessions(
    round_: int, name: str, sessions: dict[Any, list[int]], k: int, exclude: list[Any]
) -> None:
    def ask(histories: Any) -> list[dict[str, Any]]:
        table = fitted(name).recommend_for(histories, k, exclude=exclude)
        return table.drop("score").to_dicts()

    def ask_each() -> list[dict[str, Any]]:
        return [{"session_id": who} | row for who, one in sessions.items() for row in ask(one)]

    found, expected = (outcome_of("parameters", one) for one in (lambda: ask(sessions), ask_each))
    assert isinstance(found, Answered)
    assert found == expected


@cases("parameters", 0.02)
@given(path=HOSTILE, use=st.sampled_from(["save", "load", "recommend_all"]))
def test_paths_of_models(
    tmp_path_factory: pytest.TempPathFactory, round_: int, path: Any, use: str
) -> None:
    model = fitted("popularity")
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("paths")
        patch.chdir(place)
        patch.setenv("HOME", str(place))
        found = outcome_of(
            "parameters", lambda: load(path) if use == "load" else getattr(model, use)(path)
        )
        if isinstance(found, Answered):
            assert use == "save"
            assert load(found.value).recommend().equals(model.recommend())


@cases("parameters", 0.02)
@given(data=st.data())
def test_misspelled_names_are_recognised(round_: int, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(available()))
    key = data.draw(st.sampled_from(["", *model_class(name)._rules()]))
    right = key or name
    place = data.draw(st.integers(0, len(right) - 1))
    wrong = right[:place] + data.draw(st.sampled_from(["", right[place] * 2])) + right[place + 1 :]
    if wrong in available() or wrong in model_class(name)._rules() or len(right) < 3:
        return
    params = {wrong: 1} if key else {}
    found = outcome_of("parameters", lambda: create(name if key else wrong, **params))
    assert isinstance(found, Answered) or f"'{right}'" in found.sentence.partition("Did you")[2]
    assert isinstance(found, Refused) or not key


@cases("parameters", 0.03)
@given(
    ask=st.sampled_from(["similar_items", "similar_users", "recommend_for", "score"]),
    name=st.sampled_from(sorted(QUICK)),
    first=st.lists(st.sampled_from([*ITEMS, 99]), max_size=3) | HOSTILE | SESSIONS
    | st.sampled_from([[("ann", 1)], [("ann", "x")], [(1, 1)], [("ann", 2**70)], [[]]]),
    k=HOSTILE,
)  # fmt: skip
def test_other_questions(round_: int, ask: str, name: str, first: Any, k: Any) -> None:
    model = fitted(name)
    more = {} if ask == "score" else {"k": k}
    found = outcome_of("parameters", lambda: getattr(model, ask)(first, **more))
    if isinstance(found, Answered) and ask != "score":
        table = found.value
        assert not isinstance(k, bool)
        assert int(k) >= 0
        assert (table["rank"] <= min(int(k), len(ITEMS))).all()
        assert not table["score"].is_nan().any()


AT = st.lists(st.integers(1, 40), min_size=1, max_size=3) | st.integers(1, 9) | HOSTILE


@cases("parameters", 0.03)
@given(at=AT, odd=st.sampled_from(["", "", "protocol", "subset", "ties"]), data=st.data())
def test_evaluate(round_: int, at: Any, odd: str, data: st.DataObject) -> None:
    words = {"protocol": ["leave-last-out-no-refit", "paper", "paper-as-published"],
             "subset": ["test", "validation"],
             "ties": ["pessimistic", "realistic", "optimistic"]}  # fmt: skip
    protocol, part, ties = (
        data.draw(ODD if name == odd else st.sampled_from(known)) for name, known in words.items()
    )
    model = create("popularity").fit(split().train)
    found = outcome_of(
        "parameters",
        lambda: evaluate(model, split(), protocol, subset=part, ties=ties, k=at),
    )
    if isinstance(found, Refused):
        fine = isinstance(at, list) and at and {*map(type, at)} == {int} and min(at) > 0
        assert not (fine and not odd), found
    elif f"{protocol} {ties} {part}" == "leave-last-out-no-refit pessimistic test":
        lengths = [int(n) for n in np.atleast_1d(at)]
        ranks = held_out_ranks()
        for n in lengths:
            for metric, of in (("HitRate", _oracle.hit), ("NDCG", _oracle.gain)):
                mean = sum(of(rank, n) for rank in ranks) / len(ranks)
                assert found.value.metrics[f"{metric}@{n}"].mean == pytest.approx(mean)


@cache
def held_out_ranks() -> list[int]:
    """Ranks of the newest event of each user with three or more, by training popularity."""
    train, newest, second = list(EVENTS), {}, {}
    for user in USERS:
        own = sorted((time, item) for owner, item, time in EVENTS if owner == user)
        if len(own) >= 3:
            newest[user], second[user] = own[-1][1], own[-2][1]
    train = [(u, i) for u, i, _ in EVENTS if i not in (newest.get(u), second.get(u))]
    counts = {item: sum(i == item for _, i in train) for item in {i for _, i in train}}
    ranks = []
    for user, target in newest.items():
        if target in counts:
            known = {i for u, i in train if u == user} | {second[user]}
            ranks.append(_oracle.pessimistic_rank(counts, target, known))
    return ranks


MOMENTS = st.integers(-1, 12) | st.floats(-0.5, 1.5) | HOSTILE


@cases("parameters", 0.02)
@given(at=MOMENTS, validation=MOMENTS, dated=st.booleans())
def test_temporal_cut(round_: int, at: Any, validation: Any, dated: bool) -> None:
    found = outcome_of("parameters", lambda: temporal_cut(log(), at, validation=validation))
    if isinstance(found, Answered) and isinstance(at, int):
        test = {(u, i) for u, i, time in EVENTS if time >= at}
        assert pairs(found.value.test) == test
        assert_whole(found.value)
    elif isinstance(found, Refused) and isinstance(at, int) and not isinstance(at, bool):
        assert not (2 < at <= 9 and type(validation) is int and 1 < validation < at), found


@cases("parameters", 0.03)
@given(by=st.sampled_from(["auto", "time", "position", "paper", "random"]) | ODD, seed=HOSTILE)
def test_leave_one_out(round_: int, by: Any, seed: Any) -> None:
    found = outcome_of("parameters", lambda: leave_one_out(log(), by, seed=seed))
    named = isinstance(by, str) and by in ("auto", "time", "position", "paper")
    if isinstance(found, Refused):
        assert not named, found
        return
    assert_whole(found.value)
    test = {}
    for user in ("ann", "bob", "cid"):
        own = [(time, item) for owner, item, time in EVENTS if owner == user]
        test[user] = own[-1][1] if by == "position" else max(own)[1]
        if by == "paper":
            test[user] = max(item for _, item in own)
    if named:
        assert pairs(found.value.test) == {*test.items()}
    assert len(found.value.test) == len(found.value.validation) == 3


@cases("parameters", 0.02)
@given(test=st.floats(0, 1) | HOSTILE, validation=st.floats(0, 1) | HOSTILE, seed=HOSTILE)
def test_random_ratio(round_: int, test: Any, validation: Any, seed: Any) -> None:
    found = outcome_of(
        "parameters", lambda: random_ratio(log(), test, validation=validation, seed=seed)
    )
    if isinstance(found, Answered):
        assert_whole(found.value)
        assert len(found.value.test) == round(float(test) * len(EVENTS))


@cases("parameters", 0.02)
@given(n=HOSTILE, seed=HOSTILE, users=HOSTILE, items=HOSTILE, threads=HOSTILE)
def test_filters_candidates_and_threads(
    round_: int, n: Any, seed: Any, users: Any, items: Any, threads: Any
) -> None:
    drawn = outcome_of("parameters", lambda: draw_candidates(split(), n, seed))
    if isinstance(drawn, Answered) and drawn.value.candidates is not None:
        assert len(drawn.value.candidates.of(0)) <= min(int(n), len(ITEMS))
    core = outcome_of("parameters", lambda: k_core(log(), users, items))
    if isinstance(core, Answered):
        assert core.value.by_user.counts.min() >= int(users)
        assert core.value.by_item.counts.min() >= int(items)

    def use() -> None:
        with use_threads(threads):
            fitted("popularity").recommend("ann")

    if not (isinstance(threads, int) and threads > 64):
        outcome_of("parameters", use)


def pairs(part: Interactions) -> set[tuple[Any, ...]]:
    return {*part.to_frame().select("user_id", "item_id").iter_rows()}


def assert_whole(made: Split) -> None:
    """Nothing is lost, nothing is twice."""
    parts = [pairs(part) for part in (made.train, made.validation, made.test)]
    assert sum(map(len, parts)) == len(EVENTS)
    assert set().union(*parts) == {(user, item) for user, item, _ in EVENTS}
