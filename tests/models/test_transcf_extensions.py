"""TransCF's extensions: scores against the formula, losses against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf import Interactions, create, synthesize
from transcf.errors import DataError
from transcf.models.transcf.extensions import NeighborMeans, TransCFExtended

torch = pytest.importorskip("torch")

from transcf.models.transcf import extension_training as training  # noqa: E402

EXTENSIONS = ["attention", "map", "friends", "categories", "swapped"]
SMALL: dict[str, Any] = {"dim": 5, "epochs": 2, "batch_size": 64, "init_scale": 0.4}
EVERY = pytest.mark.parametrize("extension", EXTENSIONS)


@pytest.fixture(scope="module")
def log() -> Interactions:
    log = synthesize(users=40, items=25, interactions=400, seed=3)
    ids, rng = log.users.series, np.random.default_rng(1)
    ends = [ids.gather(rng.integers(5, len(ids), 60)) for _ in range(2)]  # five have no friends
    links = pl.DataFrame({"user_id": ends[0], "friend_id": ends[1]})
    links = links.filter(pl.col("user_id") != pl.col("friend_id"))
    back = links.select(user_id="friend_id", friend_id="user_id")
    return log.with_links(pl.concat([links, back]).unique(maintain_order=True))


def fitted(log: Interactions, extension: str) -> TransCFExtended:
    return TransCFExtended(extension=extension, **SMALL).fit(log)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@EVERY
def test_scores_are_the_formula(log: Interactions, extension: str) -> None:
    model = fitted(log, extension)
    arrays = {k: v.astype(float) for k, v in model.learned_.arrays().items()}
    a, b = arrays["user_vectors"], arrays["item_vectors"]
    by_user, by_item = log.by_user, log.by_item
    for user, item in ((0, 3), (7, 11), (20, 24)):
        q, n = arrays["user_neighborhoods"][user], arrays["item_neighborhoods"][item]
        if extension == "attention":
            own, owners = b[by_user.row(user)], a[by_item.row(item)]
            t = np.exp(arrays["temperatures"])
            q = softmax(own @ (arrays["item_attention"] * t[0] * b[item])) @ own
            n = softmax(owners @ (arrays["user_attention"] * t[1] * a[user])) @ owners
        r = q * n
        if extension == "map":
            hidden = np.tanh(q @ arrays["map_q"] + n @ arrays["map_n"] + arrays["map_bias"])
            r = r + hidden @ arrays["map_out"]
        moved = b[item] + r - a[user] if extension == "swapped" else a[user] + r - b[item]
        expected = arrays["item_bias"][item] - (moved**2).sum()
        rows = np.array([user], np.int32), np.array([item], np.int32)
        np.testing.assert_allclose(model.scores(*rows), [expected], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extension", ["friends", "categories"])
def test_neighbourhoods_contain_side_data(log: Interactions, extension: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((log.n_users, 3)), rng.standard_normal((log.n_items, 3))
    friends = log.friends.to_scipy() if extension == "friends" else None
    categories = log.item_categories.to_scipy() if extension == "categories" else None
    plain_q, plain_n = NeighborMeans(log.by_user.to_scipy()).all(a, b)
    q, n = NeighborMeans(log.by_user.to_scipy(), friends, categories, 0.3).all(a, b)
    for user in range(log.n_users if extension == "friends" else 0):
        linked = log.friends.row(user)
        expected = plain_q[user]
        if len(linked):
            expected = 0.7 * expected + 0.3 * a[linked].mean(axis=0)
        np.testing.assert_allclose(q[user], expected, rtol=1e-5, atol=1e-6)
    of_items = log.item_categories
    has = np.zeros((log.n_items, of_items.n_columns), bool)
    has[of_items.entry_rows, of_items.indices] = True
    for item in range(log.n_items if extension == "categories" else 0):
        means = []
        for category in np.flatnonzero(has[item]):
            others = np.setdiff1d(np.flatnonzero(has[:, category]), [item])
            means += [b[others].mean(axis=0)] if len(others) else []
        expected = plain_n[item]
        if means:
            expected = 0.7 * expected + 0.3 * np.mean(means, axis=0)
        np.testing.assert_allclose(n[item], expected, rtol=1e-5, atol=1e-6)


@EVERY
def test_gradients_agree_with_finite_differences(log: Interactions, extension: str) -> None:
    model = TransCFExtended(extension=extension, dim=3, hidden=2)
    settings, rng = model.settings, np.random.default_rng(2)

    def drawn(*shape: int) -> Any:
        return torch.tensor(0.5 * rng.standard_normal(shape), requires_grad=True)

    names = list(settings.weight_shapes())
    values = [drawn(log.n_users, 3), drawn(log.n_items, 3), drawn(log.n_items)]
    values += [drawn(*shape) for shape in settings.weight_shapes().values()]
    users, items = np.array([0, 4, 9]), np.array([[1, 2], [3, 3], [7, 1]])
    rows, columns = torch.tensor(users), torch.tensor(items)
    friends = log.friends.to_scipy() if extension == "friends" else None
    categories = log.item_categories.to_scipy() if extension == "categories" else None
    means = NeighborMeans(log.by_user.to_scipy(), friends, categories, 0.3)
    by_user, by_item = log.by_user, log.by_item
    history = training.SampledNeighbors(by_user.indptr, by_user.indices, 4, rng).of(users)
    owners = training.SampledNeighbors(by_item.indptr, by_item.indices, 4, rng).of(items.ravel())
    owners = tuple(part.view(3, 2, 4) for part in owners)
    weights = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)

    def loss(a: Any, b: Any, bias: Any, *others: Any) -> Any:
        own = training.TorchParameters(a, b, bias, dict(zip(names, others, strict=True)))
        if extension == "attention":
            near = training.attended_neighborhoods(own, rows, columns, history, owners)
        else:
            near = training.mean_neighborhoods(means, own, users, items)
        # The neighbourhood term treats means as constants, which differences would not.
        plain = settings.__class__(**{**model.get_params(), "reg_neighborhood": 0.0})
        return training.triple_losses(plain, own, near, rows, columns, weights).sum()

    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-6)


def test_the_neighbourhood_term_pulls_vectors_alone(log: Interactions) -> None:
    vectors = torch.tensor([[1.0, 2.0], [3.0, 1.0]], requires_grad=True)
    means = torch.tensor([[0.5, 0.0], [0.0, 0.0]], requires_grad=True)
    found = training._spread(vectors, means)
    assert found.tolist() == [4.25, 0.0], "without neighbours there is no pull"
    found.sum().backward()
    assert means.grad is None
    assert vectors.grad.tolist() == [[1.0, 4.0], [0.0, 0.0]]


@pytest.mark.parametrize(("name", "word"), [("friends", "links"), ("categories", "categories")])
def test_missing_side_data_is_named(name: str, word: str) -> None:
    log = synthesize(users=30, items=20, interactions=200)
    bare = Interactions.from_rows(log.users, log.items, log.user_rows, log.item_rows)
    with pytest.raises(DataError, match=rf"needs {word}.*{word}=") as caught:
        create(f"transcf-{name}", dim=4, epochs=1).fit(bare)
    assert f"TransCF-{name}" in str(caught.value)
