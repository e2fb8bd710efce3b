"""Loss and gradients of the mixture against its formula and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.mixture_oracle import Oracle

from transcf.data.csr import Histories
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.mixture import CHUNK, MixtureParams
from transcf.kernels.mixture_batches import SHARDS
from transcf.kernels.mixture_context import REACH
from transcf.kernels.mixture_epochs import MixtureEpoch, StepConfig, run_batches
from transcf.kernels.rows import FIRST, AdamState, padded, padded_width
from transcf.models.mixture import MixtureSettings
from transcf.models.mixture.training import BatchSampler, Buffers, Events, Shards, score_config
from transcf.parallel import use_threads

WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "in time": {"rho": 1.5, "future": 0.5},
    "tied": {"tied": True, "rho": 0.7, "future": 0.2},
    "drawn": {"negatives": np.arange(0, 12, 2), "log_counts": 2.0},
    "weighted": {"weights": np.linspace(0.2, 2.0, 17)},
    "no translation": {"tau": 0.0},
    "no home": {"beta": 0.0},
    "context": {"rho": 1.5, "future": 0.5, "context": REACH},
    "context, tied": {"tied": True, "rho": 0.7, "future": 0.2, "context": REACH},
    "context, drawn": {
        "negatives": np.arange(0, 12, 2),
        "log_counts": 2.0,
        "rho": 1.0,
        "context": REACH,
    },
}
HISTORIES = [[3, 1, 7, 2], [0, 5], [4], [9, 8, 1, 0, 6], [2, 3, 10, 5, 7]]


def world(dim: int = 5, **changes: Any) -> Oracle:
    rng = np.random.default_rng(0)
    return (
        Oracle(
            users=0.4 * rng.standard_normal((5, dim)),
            items=0.4 * rng.standard_normal((12, dim)),
            history=0.4 * rng.standard_normal((12, dim)),
            bias=0.4 * rng.standard_normal(12),
            histories=HISTORIES,
            negatives=np.arange(12),
            **changes,
        )
        if "negatives" not in changes
        else replace(world(dim), **changes)
    )


def dealer_of(histories: Histories, weights: Array, n_drawn: int, power: float) -> BatchSampler:
    """Deals everybody into one batch."""
    counts = np.bincount(histories.items, minlength=histories.n_items)
    events = Events(histories, weights.astype(np.float32), counts, timed=True)
    return BatchSampler(events, Shards.of(events, 10_000), n_drawn, power)


def step_on(
    oracle: Oracle, lay_out: Callable[[Buffers], Buffers] | None = None
) -> tuple[Oracle, float, dict[str, Array]]:
    """A step of no length on one batch of everybody.

    Adam's running means, nothing before it, are then a tenth of the gradients. `lay_out` puts the
    memory elsewhere.

    Returns:
        The world with the negatives that were drawn, the loss and the gradients by name.
    """
    n_items, dim = oracle.items.shape
    lists = [np.array(history, np.int32) for history in oracle.histories]
    histories = Histories.of(lists, n_items)
    weights = np.ones(len(histories.items)) if oracle.weights is None else oracle.weights
    n_drawn, losses = len(oracle.negatives), np.zeros((1, SHARDS))
    sampler = dealer_of(histories, weights, n_drawn, power=0.0)
    settings = MixtureSettings(
        dim=dim, tau=oracle.tau, beta=oracle.beta, history_decay=oracle.rho,
        future_weight=oracle.future,
    )  # fmt: skip
    config = score_config(settings, timed=True, longest=int(histories.counts.max()))
    items, bias = moving(oracle.items), oracle.bias.astype(np.float32)
    history = items if oracle.tied else moving(oracle.history)
    params = MixtureParams(
        moving(oracle.users), items, history, AdamState(bias, 0 * bias, 0 * bias)
    )
    log_counts = np.full(n_items, np.log(oracle.log_counts), np.float32)
    log = sampler.log._replace(log_counts=log_counts)
    has_users = oracle.context is None
    sizes = (len(histories.items), n_drawn, n_items, padded_width(dim))
    memory = Buffers.of(*sizes, has_users=has_users)
    memory = lay_out(memory) if lay_out else memory
    step_config = StepConfig(n_drawn, oracle.tied, power=1, user_rate=1.0, has_users=has_users)
    everything = np.arange(n_items, dtype=np.int32)  # also what is in no history
    reach = np.arange(1, n_items + 1) * (n_drawn / n_items)
    plan = sampler.deal(seed=0, epoch=1)._replace(candidates=everything, reach=reach)
    epoch = MixtureEpoch(config, step_config, log, plan, np.zeros(1), params)
    run_batches(epoch, *memory, losses, 0, 1)
    found = {
        name: getattr(params, name).means[..., : getattr(oracle, name).shape[-1]] / (1 - FIRST)
        for name in ("users", "items", "bias", "history")
        if (has_users or name != "users") and not (oracle.tied and name == "history")
    }
    drawn = memory.batch.touched[:n_drawn]
    assert len(set(drawn.tolist())) == n_drawn
    return replace(oracle, negatives=drawn.copy()), float(losses.sum()), found


def moving(vectors: Array) -> AdamState:
    rows = padded(vectors.astype(np.float32)).reshape(len(vectors), -1)
    return AdamState(rows, 0 * rows, 0 * rows)


@pytest.mark.parametrize("name", WORLDS)
def test_loss_is_that_of_the_formula(name: str) -> None:
    oracle, loss, _ = step_on(world(**WORLDS[name]))
    assert loss == pytest.approx(oracle.loss(), rel=1e-5)


@pytest.mark.parametrize("name", WORLDS)
def test_every_gradient_is_that_of_finite_differences(name: str) -> None:
    oracle, _, found = step_on(world(**WORLDS[name]))
    compare(oracle, found)


def compare(oracle: Oracle, found: dict[str, Array]) -> None:
    """Compare gradients with finite differences."""
    for part, gradient in found.items():
        expected = np.zeros_like(gradient)
        for place in np.ndindex(*gradient.shape):
            direction = np.zeros_like(gradient)
            direction[place] = 1
            expected[place] = oracle.along({part: direction})
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=2e-5, err_msg=part)


@pytest.mark.parametrize("context", [None, REACH])
def test_a_history_longer_than_a_chunk(context: int | None) -> None:
    rng = np.random.default_rng(1)
    n_items = CHUNK + 90
    oracle = replace(
        world(),
        items=0.4 * rng.standard_normal((n_items, 5)),
        history=0.4 * rng.standard_normal((n_items, 5)),
        bias=0.1 * rng.standard_normal(n_items),
        histories=[rng.permutation(n_items)[: CHUNK + 30].tolist(), [1, 2], [3], [4, 9], [5]],
        negatives=np.arange(0, n_items, 60),
        rho=0.5,
        future=0.5,
        context=context,
    )
    oracle, _, found = step_on(oracle)
    for part, gradient in found.items():
        direction = rng.standard_normal(gradient.shape)
        change = oracle.along({part: direction})
        assert (gradient * direction).sum() == pytest.approx(change, rel=2e-3), part


def one_after_the_other(memory: Buffers) -> Buffers:
    """Put pairs right behind item_offsets, on the next cache line."""
    item_offsets, pairs = memory.work.item_offsets, memory.work.pairs
    line = -(-item_offsets.size // 16) * 16
    room = aligned_zeros((line + pairs.size,), np.float32)
    work = memory.work._replace(item_offsets=room[: item_offsets.size], pairs=room[line:])
    return memory._replace(work=work)


@pytest.mark.parametrize("context", [None, REACH])
def test_where_memory_lies_changes_no_bit(context: int | None) -> None:
    rng, lengths = np.random.default_rng(2), (72, 30, 41, 90, 55)
    oracle = replace(
        world(),
        items=0.4 * rng.standard_normal((100, 5)),
        history=0.4 * rng.standard_normal((100, 5)),
        bias=0.1 * rng.standard_normal(100),
        histories=[rng.permutation(100)[:length].tolist() for length in lengths],
        negatives=np.arange(0, 100, 10),
        context=context,
    )
    (_, loss, found), (_, other_loss, other) = (
        step_on(oracle),
        step_on(oracle, one_after_the_other),
    )
    assert loss == other_loss
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, other[name], err_msg=name)


@pytest.mark.parametrize("context", [None, REACH])
def test_threads_change_no_bit(context: int | None) -> None:
    oracle, found = world(rho=1.0, context=context), []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(step_on(oracle)[2])
    for name, gradient in found[0].items():
        np.testing.assert_array_equal(gradient, found[1][name])


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_items_are_drawn_by_their_chances(power: float) -> None:
    """Then a sum over what is drawn, each as often as it stands for, is that over all items."""
    rng, n_items, n_drawn, draws = np.random.default_rng(0), 30, 8, 4000
    lists = [np.unique(rng.zipf(1.6, 12) % n_items).astype(np.int32) for _ in range(40)]
    histories = Histories.of(lists, n_items)
    sampler = dealer_of(histories, np.ones(len(histories.items)), n_drawn, power)
    active, counts = sampler.log.active, np.bincount(histories.items, minlength=n_items)
    expected = np.exp(-sampler.log.log_counts[active].astype(np.float64))
    assert expected.sum() == pytest.approx(n_drawn)
    below = expected < 1 - 1e-6
    likely = counts[active] ** power
    np.testing.assert_allclose(
        expected[below] / likely[below], (expected / likely)[below][0], rtol=1e-5
    )
    config = score_config(MixtureSettings(dim=4), timed=False, longest=int(histories.counts.max()))
    memory = Buffers.of(len(histories.items), n_drawn, n_items, padded_width(4))
    none = np.zeros((40, 4))
    params = MixtureParams(
        moving(none), moving(none[:30]), moving(none[:30]), AdamState(*np.zeros((3, 30)))
    )
    params = params._replace(bias=AdamState(*(part.astype(np.float32) for part in params.bias)))
    step_config = StepConfig(n_drawn, tied=False, power=0, user_rate=1.0)
    found = np.zeros(n_items)
    parts = config, step_config, sampler.log
    for epoch in range(draws):
        plan, losses = sampler.deal(seed=0, epoch=epoch), np.zeros((1, SHARDS))
        run_batches(MixtureEpoch(*parts, plan, np.zeros(1), params), *memory, losses, 0, 1)
        drawn = memory.batch.touched[:n_drawn]
        assert len(set(drawn.tolist())) == n_drawn
        found[drawn] += 1 / draws
    assert found.sum() == pytest.approx(n_drawn)
    spread = np.sqrt(np.maximum(expected * (1 - expected), 1e-4) / draws)
    assert (np.abs(found[active] - expected) < 4.5 * spread).all()
