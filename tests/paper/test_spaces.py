"""The translation of a pair, under every form that there is."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.errors import UnsupportedError
from transcf.models.ease import EASE
from transcf.models.registry import create
from transcf.paper.spaces import space_of


def some_pairs(model):
    generator = np.random.default_rng(0)
    users = generator.integers(0, len(model.users_), 60).astype(np.int32)
    return users, generator.integers(0, len(model.items_), 60).astype(np.int32)


@pytest.mark.parametrize("name", ["transcf", "transcf-alt"])
def test_scores_are_the_distance_after_the_translation(name, fitted) -> None:
    model = fitted(name)
    space, pairs = space_of(model), some_pairs(model)
    after = space.distances(space.differences(*pairs), space.translations(*pairs))[1]
    scores = model.item_bias_[pairs[1]] - model.scores(*pairs)
    np.testing.assert_allclose(after, scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(space.nearness(*pairs), after)


def test_the_inner_product_has_the_published_translation(fitted) -> None:
    model = fitted("transcf-dot")
    users, items = some_pairs(model)
    q, n = model.user_neighborhoods_, model.item_neighborhoods_
    found = space_of(model).translations(users, items)
    np.testing.assert_allclose(found, q[users] * n[items], rtol=1e-6)
    moved = model.user_vectors_[users] + found
    products = (moved * model.item_vectors_[items]).sum(axis=1) + model.item_bias_[items]
    np.testing.assert_allclose(products, model.scores(users, items), rtol=1e-4, atol=1e-5)


def test_the_mixture_is_the_mean_of_its_translations_by_their_shares(fitted) -> None:
    model = fitted("transcf-mixture")
    users, items = some_pairs(model)
    settings, own = model.settings_, model.learned_
    found = space_of(model).translations(users, items)
    for place, (u, i) in enumerate(zip(users, items, strict=True)):
        history = model.histories_[int(u)]
        ago = np.arange(len(history), 0, -1)
        weights = ago ** -float(settings.history_decay)
        away = np.square(own.history[history] - own.items[i]).sum(axis=1)
        terms = weights * np.exp(-settings.tau * away)
        gain = settings.tau / (settings.tau + settings.beta)
        moves = gain * (own.history[history] - own.users[u])
        expected = (terms / terms.sum()) @ moves
        np.testing.assert_allclose(found[place], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["transcf-none", "transcf-emb", "cml", "bpr"])
def test_without_translations_it_is_the_difference(name, fitted) -> None:
    model = fitted(name)
    space, (users, items) = space_of(model), some_pairs(model)
    assert not space.has_translations
    expected = model.user_vectors_[users] - model.item_vectors_[items]
    np.testing.assert_allclose(space.vectors(users, items), expected)
    with pytest.raises(UnsupportedError, match="has no translations"):
        space.translations(users, items)


def test_a_trend_beside_the_model_changes_nothing(log) -> None:
    plain, shifted = (create("transcf", dim=4, epochs=1, trend=trend).fit(log) for trend in (0, 1))
    pairs = some_pairs(plain)
    np.testing.assert_array_equal(
        space_of(plain).vectors(*pairs), space_of(shifted).vectors(*pairs)
    )


def test_models_without_vectors_are_refused(log) -> None:
    with pytest.raises(UnsupportedError, match="no vector for every user"):
        space_of(EASE().fit(log))
