"""FISM against its written-out loss, step and score, and as a user meets it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import polars as pl
import pytest

from transcf.data import leave_one_out, synthesize
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import DivergenceError
from transcf.kernels.fism import choose_positives, draw_unseen
from transcf.kernels.sampling import TRAINING, stream
from transcf.models.fism import FISM, FISMSettings, Training
from transcf.models.params import nested_params
from transcf.models.training import FitOptions

LOSSES = ["auc", "rmse"]
NAMES = ("history_vectors", "item_vectors", "item_bias")
Tensors = dict[str, np.ndarray]


class Sample(NamedTuple):
    """One positive of a user with these items, and its negatives."""

    own: list[int]
    positive: int
    negatives: list[int]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=300, items=150, interactions=5000, seed=3)


def made(**changes: object) -> FISMSettings:
    plain = {
        "dim": 5, "learning_rate": 0.05, "regularization": 0.0, "bias_regularization": 0.0,
        "negatives": 1, "init_scale": 0.03,
    }  # fmt: skip
    return FISMSettings(**nested_params(FISMSettings, plain | changes))


def few_people() -> Interactions:
    """Users with 1, 2, 3, 5 and all 7 of seven items; the eighth item loses its only event."""
    pairs = [(user, item) for user, size in enumerate((1, 2, 3, 5, 7)) for item in range(size)]
    users, items = np.array([*pairs, (5, 7)], np.int32).T
    ids = IdMap(pl.Series(range(6))), IdMap(pl.Series(range(8)))
    times = np.random.default_rng(1).permutation(len(users))
    whole = Interactions.from_rows(*ids, users, items, timestamps=times)
    return whole.select(whole.user_rows < 5)


@numba.njit
def draw(
    rows: np.ndarray, active: np.ndarray, seed: int, epoch: int, user: int, count: int
) -> list:
    """The negatives of a user, in order."""
    state, drawn = stream(seed, epoch, TRAINING, user), []
    for _ in range(count):
        state, item = draw_unseen(rows, active, state)
        drawn.append(item)
    return drawn


def positives_of(training: Training, epoch: int) -> list[tuple[int, list[int]]]:
    """The users of an epoch in order, each with its positives as places among the user's items."""
    found = []
    for user, many, start in zip(*training.visits(epoch), strict=True):
        places = np.empty(many, np.int32)
        choose_positives(
            training._weights[slice(*training._by_user.indptr[user : user + 2])], start, places
        )
        found.append((int(user), places.tolist()))
    return found


def samples_of(training: Training, epoch: int) -> list[Sample]:
    """What an epoch draws, in order."""
    h, everything = training._settings, []
    for user, places in positives_of(training, epoch):
        rows = training._by_user.row(user)
        many = len(places) * h.negatives
        if not many:
            continue
        drawn = draw(rows, training._active, h.random_state, epoch, user, many)
        lists = np.reshape(drawn, (-1, h.negatives)).tolist()
        own = rows.tolist()
        everything += [Sample(own, own[n], js) for n, js in zip(places, lists, strict=True)]
    return everything


def score(at: Tensors, history: list[int], item: int, alpha: float) -> float:
    """The formula, word for word."""
    if not history:
        return at["item_bias"][item]
    total = sum(at["history_vectors"][j] for j in history)
    return at["item_bias"][item] + len(history) ** -alpha * total @ at["item_vectors"][item]


def written_loss(at: Tensors, samples: list[Sample], h: FISMSettings) -> float:
    """The losses of samples, summed up."""

    def penalty(*items: int) -> float:
        squares = sum(at["item_vectors"][i] @ at["item_vectors"][i] for i in items)
        biases = sum(at["item_bias"][i] ** 2 for i in items)
        return h.regularization / 2 * squares + h.bias_regularization / 2 * biases

    total = 0.0
    for own, i, negatives in samples:
        others = [k for k in own if k != i]
        of_history = h.regularization / 2 * at["history_vectors"][i] @ at["history_vectors"][i]
        if h.loss == "auc":
            for j in negatives:
                apart = score(at, others, i, h.alpha) - score(at, others, j, h.alpha)
                total += (1 - apart) ** 2 / 2 + penalty(i, j) + of_history
        else:
            mean = 1 / (1 + len(negatives))
            total += (1 - mean - score(at, others, i, h.alpha)) ** 2 / 2 + penalty(i) + of_history
            for j in negatives:
                total += (0 - mean - score(at, own, j, h.alpha)) ** 2 / 2 + penalty(j)
    return total


def trained(settings: FISMSettings) -> tuple[Training, Tensors, Tensors, float]:
    """One epoch in float64: the training, the tensors before and after, the loss."""
    training = Training(few_people(), settings)
    generator = np.random.default_rng(0)
    before = {
        name: 0.5 * generator.standard_normal(tensor.shape)
        for name, tensor in training.tensors().items()
    }
    training.load_tensors(before)
    stats = training.run_epoch(1)
    return training, before, training.tensors(), stats.loss * stats.samples


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize(("alpha", "recency"), [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.5, 3.0)])
def test_a_small_step_follows_the_gradient_of_the_written_loss(
    loss: str, negatives: int, alpha: float, recency: float
) -> None:
    rate = 1e-9
    settings = made(
        loss=loss, alpha=alpha, learning_rate=rate, regularization=0.3, bias_regularization=0.2,
        negatives=negatives, random_state=4, recency=recency,
    )  # fmt: skip
    training, at, after, reported = trained(settings)
    samples = samples_of(training, 1)
    positives = Counter(len(sample.own) for sample in samples)
    assert positives == {1: 1, 2: 2, 3: 3, 5: 5}, "whoever has all is left out"
    for own, positive, drawn in samples:
        assert positive in own
        assert not set(own) & set(drawn)
        assert 7 not in drawn, "nobody has it in training"
    errors = written_loss(at, samples, made(loss=loss, alpha=alpha))
    assert reported == pytest.approx(errors, rel=1e-6)
    for name in NAMES:
        numeric = np.zeros_like(at[name])
        for index in np.ndindex(numeric.shape):
            kept, sides = at[name][index], []
            for width in (1e-5, -1e-5):
                at[name][index] = kept + width
                sides.append(written_loss(at, samples, settings))
            at[name][index] = kept
            numeric[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose((at[name] - after[name]) / rate, numeric, rtol=1e-4, atol=1e-5)


def naive_epoch(start: Tensors, samples: list[Sample], h: FISMSettings) -> Tensors:
    """Every step over the whole history, one after the other."""
    at = {name: tensor.copy() for name, tensor in start.items()}
    p, q, b = (at[name] for name in NAMES)
    rate, shrink, bias_shrink = (
        h.learning_rate * by for by in (1.0, h.regularization, h.bias_regularization)
    )

    def step(history: list[int], scale: float, target: float, item: int) -> None:
        x = scale * p[history].sum(axis=0)
        move(history, scale, target - b[item] - x @ q[item], item)

    def move(history: list[int], scale: float, error: float, item: int) -> None:
        x = scale * p[history].sum(axis=0)
        p[history] += rate * error * scale * q[item]
        q[item] += rate * error * x - shrink * q[item]
        b[item] += rate * error - bias_shrink * b[item]

    for own, i, negatives in samples:
        others = [k for k in own if k != i]
        scale = len(others) ** -h.alpha if others else 0.0
        mean = 1 / (1 + len(negatives))
        if h.loss == "rmse":
            step(others, scale, 1 - mean, i)
            p[i] -= shrink * p[i]
            for j in negatives:
                step(own, len(own) ** -h.alpha, -mean, j)
            continue
        for j in negatives:
            x = scale * p[others].sum(axis=0)
            error = 1 - (b[i] - b[j] + x @ (q[i] - q[j]))
            move(others, scale, error, i)
            move(others, scale, -error, j)
        p[i] *= 1 - shrink * len(negatives)
    return at


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("samples_per_user", [None, 1, 40])
def test_long_steps_equal_those_over_whole_histories(
    loss: str, samples_per_user: int | None
) -> None:
    settings = made(
        loss=loss, dim=20, learning_rate=0.05, regularization=0.1, bias_regularization=0.2,
        samples_per_user=samples_per_user, negatives=2, random_state=1,
    )  # fmt: skip
    training, start, after, _ = trained(settings)
    expected = naive_epoch(start, samples_of(training, 1), settings)
    for name in NAMES:
        np.testing.assert_allclose(after[name], expected[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_are_the_formula_and_newcomers_are_ranked_as_users(
    log: Interactions, loss: str
) -> None:
    model = FISM(loss=loss, dim=8, epochs=3, alpha=0.7).fit(log)
    at = {name: getattr(model, f"{name}_").astype(np.float64) for name in NAMES}
    users = np.array([0, 7, 299], np.int32)
    block = model.scores(users)
    for row, user in enumerate(users):
        history = log.by_user.row(user).tolist()
        expected = [score(at, history, item, 0.7) for item in range(log.n_items)]
        np.testing.assert_allclose(block[row], expected, rtol=1e-5, atol=1e-6)
        ids = log.items.series.gather(history).to_list()
        own = model.recommend(log.users.series[int(user)], k=150)
        new = model.recommend_for(reversed(ids), k=150)
        np.testing.assert_allclose(new["score"], own["score"], rtol=1e-5, atol=1e-6)
        by_item = own.join(new, on="item_id")
        np.testing.assert_allclose(by_item["score"], by_item["score_right"], rtol=1e-5, atol=1e-6)


def test_similar_items_are_those_that_an_item_speaks_for(log: Interactions) -> None:
    model = FISM(dim=8, epochs=3).fit(log)
    similarity = model.history_vectors_[4] @ model.item_vectors_.T
    similarity[4] = -np.inf
    found = model.similar_items(log.items.series[4], k=5)["neighbor_id"]
    assert found.to_list() == log.items.series.gather(np.argsort(-similarity)[:5]).to_list()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bits_are_the_same_for_any_threads_and_for_a_loaded_model(
    tmp_path: Path, loss: str
) -> None:
    pairs = np.random.default_rng(2).integers(0, 4000, (2, 12000)).astype(np.int32)
    ids = IdMap(pl.Series(range(4000)))
    log = Interactions.from_rows(ids, ids, *pairs)
    settings = {"loss": loss, "dim": 24, "epochs": 2, "samples_per_user": 10, "negatives": 2}
    models = [FISM(**settings).fit(log, options=FitOptions(threads=n)) for n in (1, 2, 3)]
    loaded = FISM.load(models[0].save(tmp_path / "model"))
    other = FISM(**settings, random_state=1).fit(log)
    for name in (*NAMES, "user_vectors"):
        bits = {getattr(model, f"{name}_").tobytes() for model in (*models, loaded)}
        assert len(bits) == 1
        assert getattr(other, f"{name}_").tobytes() not in bits


def test_a_resumed_run_ends_with_the_same_bits(log: Interactions, tmp_path: Path) -> None:
    split = leave_one_out(log)
    whole = FISM(dim=8, epochs=6).fit(split.train, split.validation)
    options = FitOptions(checkpoint=tmp_path, resume=True)
    FISM(dim=8, epochs=2).fit(split.train, split.validation, options)
    resumed = FISM(dim=8, epochs=6).fit(split.train, split.validation, options)
    assert resumed.best_epoch_ == whole.best_epoch_
    for name in NAMES:
        assert np.array_equal(getattr(resumed, f"{name}_"), getattr(whole, f"{name}_"))


def test_too_long_steps_are_reported(log: Interactions) -> None:
    with pytest.raises(DivergenceError, match="lower learning_rate"):
        FISM(dim=8, learning_rate=100.0).fit(log)


def test_users_who_lack_few_items_are_learned_from() -> None:
    generator = np.random.default_rng(0)
    sizes = generator.integers(12, 19, 100)
    pairs = [(u, i) for u, n in enumerate(sizes) for i in generator.choice(20, n, replace=False)]
    users, items = np.array(pairs, np.int32).T
    ids = IdMap(pl.Series(range(100))), IdMap(pl.Series(range(20)))
    losses = FISM(epochs=20).fit(Interactions.from_rows(*ids, users, items)).history_["loss"]
    assert losses[-1] < losses[0]


def times_taken(log: Interactions, settings: FISMSettings, epochs: int) -> np.ndarray:
    """How often each event is a positive in each epoch, (epochs, n_events)."""
    training = Training(log, settings)
    counts = np.zeros((epochs, len(log)))
    for epoch in range(epochs):
        for user, places in positives_of(training, epoch):
            np.add.at(counts[epoch], log.by_user.indptr[user] + np.array(places, np.int64), 1)
    return counts


@pytest.mark.parametrize("samples", [None, 7])
def test_later_events_are_taken_more_often(log: Interactions, samples: int | None) -> None:
    counts = times_taken(log, made(recency=2.0, samples_per_user=samples), 300)
    expected = np.empty(len(log))
    for user in range(log.n_users):
        mine = np.flatnonzero(log.user_rows == user)
        order = np.lexsort((log.item_rows[mine], log.timestamps[mine]))
        weights = np.exp(2.0 * (np.arange(1, len(mine) + 1) / len(mine) - 1))
        expected[mine[order]] = weights / weights.sum() * (samples or len(mine))
    # In every epoch as often as the weights say, to the next whole number.
    assert (counts >= np.floor(expected - 1e-6)).all()
    assert (counts <= np.ceil(expected + 1e-6)).all()
    share = expected - np.floor(expected)
    error = np.sqrt(np.maximum(share * (1 - share), 1e-4) / len(counts))
    assert (np.abs(counts.mean(axis=0) - expected) < 6 * error).all()


def test_users_with_recent_events_have_more_samples(log: Interactions) -> None:
    counts = times_taken(log, made(half_life=0.2), 400)
    ages = 1 - np.searchsorted(np.sort(log.timestamps), log.timestamps, side="right") / len(log)
    weights = 0.5 ** (ages / 0.2)
    expected = weights / weights.mean()
    of_users = np.bincount(log.user_rows, expected)
    found = np.bincount(log.user_rows, counts.mean(axis=0))
    assert of_users.max() > 1.3 * log.by_user.counts[of_users.argmax()]
    np.testing.assert_allclose(found, of_users, atol=0.2)
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=6 * 0.5 / 20)


def test_events_that_weigh_the_same_are_all_taken_once(log: Interactions) -> None:
    assert (times_taken(log, made(), 3) == 1).all()
    rated = Interactions.from_rows(
        log.users, log.items, log.user_rows, log.item_rows,
        ratings=np.full(len(log), 3.0, np.float32),
    )  # fmt: skip
    assert (times_taken(rated, made(confidence="ratings", recency=1.0), 3) == 1).all()


@pytest.mark.parametrize("alpha", [0, 1])
def test_whole_numbers_are_allowed_for_alpha(alpha: int) -> None:
    log = synthesize(users=30, items=20, interactions=200, seed=0)
    fits = [FISM(dim=4, epochs=2, alpha=value).fit(log) for value in (alpha, float(alpha))]
    np.testing.assert_array_equal(*(model.item_vectors_ for model in fits))
