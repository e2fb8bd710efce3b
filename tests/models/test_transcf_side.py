"""TransCF with links between users and categories of items, and items placed by category."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import transcf
from transcf import TransCF, leave_one_out, read_interactions, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError, TransCFError
from transcf.learning.forms import FORMS
from transcf.training import FitOptions

QUICK = {"dim": 8, "epochs": 2}
TRANSLATION = {"form": "translation", **QUICK}
SIDES = [{"friends": 0.5}, {"category": 0.5}, {"friends": 0.3, "category": 1.0}]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=150, items=60, interactions=1800)


def scores(model: TransCF) -> np.ndarray:
    return model.score_block(np.arange(len(model.users_), dtype=np.int32))


@pytest.mark.parametrize("weight", ["friends", "category"])
def test_a_weight_asks_for_what_it_weighs(log: Interactions, weight: str) -> None:
    bare = log.with_links(None).with_categories(None)
    with pytest.raises(DataError, match=f"{weight}=0.5 looks at .* the log has none: give"):
        TransCF(**TRANSLATION, **{weight: 0.5}).fit(bare)
    with pytest.raises(ParameterError, match=f"does not look at {weight}"):
        TransCF(form="mixture", **{weight: 0.5}).fit(log)
    plain = TransCF(**TRANSLATION).fit(bare)
    assert np.array_equal(scores(plain), scores(TransCF(**TRANSLATION, **{weight: 0.0}).fit(log)))
    empty = log.with_links(log.links[:0]).with_categories(log.categories[:0])
    nobody = TransCF(**TRANSLATION, **{weight: 0.5}).fit(empty)
    np.testing.assert_allclose(scores(nobody), scores(plain), atol=1e-5)


@pytest.mark.parametrize("side", SIDES, ids=str)
@pytest.mark.parametrize("form", ["translation", "dot", "emb"])
def test_neighbourhoods_are_as_the_formula_says(log: Interactions, form: str, side: dict) -> None:
    model = TransCF(form=form, **QUICK, **side).fit(log)
    a, b = model.user_vectors_.astype(float), model.item_vectors_.astype(float)
    friends, category = side.get("friends", 0.0), side.get("category", 0.0)
    graph, shelves = log.friends.to_scipy().toarray(), log.item_categories.to_scipy().toarray()
    has = log.by_user.to_scipy().toarray()
    for user in range(0, log.n_users, 7):
        q = b[has[user] > 0].mean(axis=0)
        if graph[user].any():
            q = (1 - friends) * q + friends * a[graph[user] > 0].mean(axis=0)
        np.testing.assert_allclose(model.user_neighborhoods_[user], q, atol=1e-6)
    for item in range(0, log.n_items, 5):
        n = a[has[:, item] > 0].mean(axis=0)
        mates = shelves[:, shelves[item].argmax()] > 0  # each item has one category
        mates[item] = False
        if mates.any():
            n = (1 - category) * n + category * b[mates].mean(axis=0)
        np.testing.assert_allclose(model.item_neighborhoods_[item], n, atol=1e-6)


@pytest.mark.parametrize("side", SIDES, ids=str)
@pytest.mark.parametrize("solver", ["fast", "exact"])
def test_files_refits_and_growth(log: Interactions, side: dict, solver: str, tmp_path) -> None:
    split = leave_one_out(log)
    model = TransCF(solver=solver, **TRANSLATION, **side).fit(split.train, split.validation)
    again = transcf.load(model.save(tmp_path / "model"))
    assert np.array_equal(scores(again), scores(model))
    assert again.name == model.name
    new = pl.DataFrame({"user": ["new", "u001"], "item": ["i01", "fresh"]})
    grown = [one.partial_fit(new) for one in (model, again)]
    assert np.array_equal(scores(grown[0]), scores(grown[1]))
    assert grown[0].recommend("new", k=3).height == 3
    assert model.refit(log).report_["interactions"] == len(log)


def test_a_checkpoint_belongs_to_its_links(log: Interactions, tmp_path) -> None:
    params = {**TRANSLATION, "friends": 0.5}
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    TransCF(**params).fit(log, options=options)
    fewer = log.with_links(log.links[:10])
    with pytest.raises(TransCFError, match="checkpoint"):
        TransCF(**params).fit(fewer, options=replace(options, resume=True))


def test_a_model_without_them_does_not_depend_on_them(log: Interactions, tmp_path) -> None:
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    before = TransCF(**QUICK).fit(log, options=options)
    bare = log.with_links(None).with_categories(None)
    resumed = TransCF(**QUICK).fit(bare, options=replace(options, resume=True))
    assert np.array_equal(scores(resumed), scores(before))


@pytest.mark.parametrize("known_before", [False, True])
def test_new_people_are_linked_to_those_of_the_model(log: Interactions, known_before: bool) -> None:
    model = TransCF(**TRANSLATION, friends=0.5).fit(log)
    events = pl.DataFrame({"user": ["new", "u005"], "item": ["i01", "i02"]})
    day = read_interactions(events, links=[("new", "u005")] if known_before else None)
    model.partial_fit(day, links=[("new", "u001"), ("u002", "new"), ("new", "nobody")])
    row = model.users_.rows(["new"])[0]
    start, end = model.friend_offsets_[row : row + 2]
    friends = model.users_.ids(model.friend_rows_[start:end]).to_list()
    assert friends == ["u001", "u002", *["u005"] * known_before]
    q = 0.5 * model.item_vectors_[model.items_.rows(["i01"])[0]]
    q = q + 0.5 * model.user_vectors_[model.users_.rows(friends)].mean(axis=0)
    np.testing.assert_allclose(model.user_neighborhoods_[row], q, atol=1e-6)


# -- items that nobody has touched ------------------------------------------------------------

FORM_NAMES = [*FORMS, "mixture"]
PARTS = [{"neighbors": "attention"}, {"mapping": "network"}]
KINDS = [
    *({"form": form} for form in FORM_NAMES),
    *({"form": "translation", **part} for part in PARTS),
]
TABLE = {"item_id": ["fresh", "odd"], "category": ["category 03", "category 05"]}


@pytest.fixture(scope="module")
def shelved() -> tuple[Interactions, Interactions]:
    """A log with one taste per user, and the same without any event of every fifth item."""
    rng = np.random.default_rng(0)
    n_users, n_items = 240, 100
    weights = np.where(np.arange(n_items) % 4 == np.arange(n_users)[:, None] % 4, 12.0, 1.0)
    chosen = np.array(
        [rng.choice(n_items, 16, replace=False, p=row / row.sum()) for row in weights]
    )
    users, items = np.repeat(np.arange(n_users), 16), chosen.ravel()
    table = pl.DataFrame({"item": np.arange(n_items), "category": np.arange(n_items) % 4})
    whole = read_interactions(
        pl.DataFrame({"user": users, "item": items}),
        categories=table.with_columns(pl.col("category").cast(pl.String)),
    )
    return whole, whole.select(~is_new(whole)[whole.item_rows])


def is_new(log: Interactions) -> np.ndarray:
    return np.arange(log.n_items) // 4 % 5 == 0


def auc_among_new(model: TransCF, whole: Interactions) -> float:
    """How often a new item that a user has is above a new one that they do not have."""
    new, has = is_new(whole), whole.by_user.to_scipy().toarray() > 0
    shares = []
    for row, own in zip(scores(model)[:, new], has[:, new], strict=True):
        if own.any() and not own.all():
            gaps = row[own][:, None] - row[~own][None, :]
            shares.append(((gaps > 0) + 0.5 * (gaps == 0)).mean())
    return float(np.mean(shares))


@pytest.mark.parametrize("side", [{}, {"category": 0.5}], ids=str)
@pytest.mark.parametrize("form", FORM_NAMES)
def test_users_of_a_category_find_its_new_items(shelved: tuple, form: str, side: dict) -> None:
    if side and form == "mixture":
        pytest.skip("the mixture has no neighbourhoods")
    whole, train = shelved
    model = TransCF(form=form, dim=16, random_state=1, **side).fit(train)
    assert not model.rankable[is_new(whole)].any()
    model.add_items(whole.categories)
    assert model.rankable.all()
    placed = auc_among_new(model, whole)
    # The best that categories can tell: every item of the user's own above all others.
    own = (np.arange(whole.n_items) % 4 == np.arange(whole.n_users)[:, None] % 4) * 1.0

    class Oracle:
        users_ = whole.users

        @staticmethod
        def score_block(users: np.ndarray) -> np.ndarray:
            return own[users]

    best = auc_among_new(Oracle(), whole)
    assert best > 0.75
    assert placed > 0.5 + 0.8 * (best - 0.5)
    # The same places dealt out at random tell nothing.
    table = whole.categories.with_columns(
        category=pl.when(pl.Series(is_new(whole)))
        .then(pl.col("category").shuffle(seed=5))
        .otherwise("category")
    )
    dealt = TransCF(form=form, dim=16, random_state=1, **side).fit(train).add_items(table)
    assert abs(auc_among_new(dealt, whole) - 0.5) < 0.5 * (placed - 0.5)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_new_item_stands_among_its_mates(log: Interactions, kind: dict, tmp_path) -> None:
    model = TransCF(**QUICK, **kind).fit(log)
    before, ids = scores(model), model.items_.series
    mates = log.items.rows(log.categories.filter(category="category 03")["item_id"])
    mean = model.item_vectors_[mates].mean(axis=0)
    model.add_items(pl.concat([log.categories, pl.DataFrame(TABLE)]))
    row = model.items_.rows(["fresh"])[0]
    vector = model.item_vectors_[row]
    cosine = vector @ mean / np.linalg.norm(vector) / np.linalg.norm(mean)
    assert cosine == pytest.approx(1, abs=1e-5)
    lengths = np.linalg.norm(model.item_vectors_, axis=1)
    assert lengths[model.item_counts_ > 0].min() - 1e-6 <= lengths[row]
    assert lengths[row] <= lengths.max() + 1e-6
    np.testing.assert_allclose(scores(model)[:, model.items_.rows(ids)], before, atol=1e-5)
    assert model.additions_ == 1
    people = np.arange(len(model.users_), dtype=np.int32)
    pairs = model.score_pairs(people, np.full_like(people, row))
    np.testing.assert_allclose(scores(model)[:, row], pairs, atol=1e-5)
    again = transcf.load(model.save(tmp_path / "model"))
    assert np.array_equal(scores(again), scores(model))
    assert again.rankable[row]
    assert again.recommend("u001", k=200)["item_id"].is_in(["fresh"]).any()
    # Interactions of others leave it where it is; its own place it anew.
    other = again.partial_fit(pl.DataFrame({"user": ["u001"], "item": ["later"]}))
    place = other.items_.rows(["fresh"])[0]
    assert other.rankable[place]
    assert np.array_equal(other.item_vectors_[place], vector)
    assert np.isfinite(scores(other)).all()
    touched = other.partial_fit(pl.DataFrame({"user": ["u002"], "item": ["fresh"]}))
    assert not np.array_equal(touched.item_vectors_[place], vector)
    # Somebody who is known by a placed item alone.
    alone = touched.partial_fit(pl.DataFrame({"user": ["new"], "item": ["odd"]}))
    assert alone.recommend("new", k=3).height == 3


def test_a_model_that_looks_at_categories_has_kept_them(log: Interactions) -> None:
    params = {**TRANSLATION, "category": 0.5}
    alone = TransCF(**params).fit(log).add_items(pl.DataFrame(TABLE))
    table = pl.concat([log.categories, pl.DataFrame(TABLE)])
    assert np.array_equal(scores(alone), scores(TransCF(**params).fit(log).add_items(table)))
    assert set(alone.category_names_) == set(log.categories["category"])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"item_id": ["x"], "category": ["nowhere"]}, "item 'x' .1 item in all. has no category"),
        ({"item_id": ["i01"], "category": ["category 03"]}, "There is nothing to add"),
        ({"item_id": [7], "category": ["category 03"]}, "item ids of the model are text"),
        ({"item_id": ["x"]}, "no category column"),
        ({"item_id": [" x"], "category": ["category 03"]}, "with blanks around it"),
        ({"item_id": [""], "category": ["category 03"]}, "is an empty id"),
    ],
)
def test_what_cannot_be_placed_gets_a_sentence(
    log: Interactions, table: dict, sentence: str
) -> None:
    model = TransCF(**TRANSLATION, category=0.5).fit(log)
    with pytest.raises(DataError, match=sentence):
        model.add_items(pl.DataFrame(table))
    assert model.additions_ == 0
