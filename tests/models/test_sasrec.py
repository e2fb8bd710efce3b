"""SASRec against its formulas, written out, and against torch's own functions."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from torch.nn import functional

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.data.splitters import split_log
from transcf.errors import ParameterError
from transcf.evaluation import evaluate
from transcf.models.baselines import Popularity
from transcf.models.event_weights import EVEN, EventWeights
from transcf.models.torch.networks import AdamTraining, SASRecNetwork, sequences
from transcf.models.torch.sasrec import SASRec, SASRecSettings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=80, items=50, interactions=900, seed=1)


def made(**changes: object) -> SASRecSettings:
    plain = {
        "dim": 6, "heads": 2, "layers": 2, "max_length": 7, "learning_rate": 0.02, "dropout": 0.2,
        "negatives": 9, "batch_size": 40, "init_scale": 0.3,
    }  # fmt: skip
    return SASRecSettings(**(plain | changes))


def network(log: Interactions, settings: SASRecSettings, epochs: int = 1) -> SASRecNetwork:
    training = AdamTraining(SASRecNetwork, log.histories, EVEN, settings, CPU)
    for epoch in range(1, epochs + 1):
        training.run_epoch(epoch)
    return training.network


def normalized(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * gain + bias


def outputs(arrays: dict[str, np.ndarray], items: list[int], heads: int) -> list[np.ndarray]:
    """The outputs for all items of a sequence, one number after the other."""
    w = {name: array.astype(float) for name, array in arrays.items()}
    dim, length = w["item_vectors"].shape[1], len(items)
    x = [
        np.sqrt(dim) * w["item_vectors"][item] + w["position_vectors"][length - 1 - place]
        for place, item in enumerate(items)
    ]
    wide = dim // heads
    for layer in range(len(w["attention"])):
        query, key, value = w["attention"][layer]
        q = [normalized(row, *w["norms"][2 * layer]) for row in x]
        following = []
        for place in range(length):
            mean = np.zeros(dim)
            for head in range(heads):
                own = slice(head * wide, (head + 1) * wide)
                logits = [
                    (q[place] @ query)[own] @ (x[past] @ key)[own] / np.sqrt(wide)
                    for past in range(place + 1)
                ]
                shares = np.exp(logits) / np.exp(logits).sum()
                mean[own] = sum(s * (x[past] @ value)[own] for past, s in enumerate(shares))
            z = normalized(q[place] + mean, *w["norms"][2 * layer + 1])
            inner, outer = w["feed_forward"][layer]
            bias, outer_bias = w["feed_forward_bias"][layer]
            following.append(z + np.maximum(z @ inner + bias, 0) @ outer + outer_bias)
        x = following
    return [normalized(row, *w["norms"][-1]) for row in x]


def test_scores_are_those_of_the_transformer(log: Interactions) -> None:
    settings = made()
    values = {name: getattr(settings, name) for name in ("dim", "heads", "layers", "max_length")}
    model = SASRec(**values, epochs=3, learning_rate=0.02, init_scale=0.3, negatives=9).fit(log)
    arrays = model.learned_.arrays()
    users = np.arange(log.n_users, dtype=np.int32)
    scores = model.scores(users)
    for user in users.tolist():
        last = log.histories[user][-7:].tolist()
        expected = arrays["item_vectors"].astype(float) @ outputs(arrays, last, 2)[-1]
        np.testing.assert_allclose(scores[user], expected, atol=2e-4)


def test_the_network_computes_what_serving_computes(log: Interactions) -> None:
    net = network(log, made(), epochs=2).eval()
    arrays = {name: getattr(net, name).detach().numpy() for name in made().shapes()}
    arrays["item_vectors"] = net.items.weight.detach().numpy()
    batch = next(net.batches(5))
    items, lengths = torch.from_numpy(batch[0].astype(np.int64)), torch.from_numpy(batch[1])
    found = net.outputs(items, lengths).detach().numpy()
    for row, length in enumerate(batch[1].tolist()):
        expected = outputs(arrays, batch[0][row, :length].tolist(), 2)
        np.testing.assert_allclose(found[row, :length], expected, atol=2e-4)


def test_later_items_and_padding_change_no_earlier_output(log: Interactions) -> None:
    net = network(log, made()).eval()
    items = torch.tensor([[3, 8, 1, 9, 4]])
    before = net.outputs(items, torch.tensor([5]))
    for place in range(1, 5):
        changed = items.clone()
        changed[0, place:] = torch.randint(10, 40, (5 - place,))
        after = net.outputs(changed, torch.tensor([5]))
        torch.testing.assert_close(after[0, :place], before[0, :place], rtol=0, atol=1e-6)
        assert not torch.allclose(after[0, place], before[0, place], atol=1e-3)
    short = net.outputs(items[:, :3], torch.tensor([3]))
    padded = net.outputs(torch.tensor([[3, 8, 1, 0, 0]]), torch.tensor([3]))
    torch.testing.assert_close(padded[0, :3], short[0])


@pytest.mark.parametrize("loss", ["softmax", "gbce"])
def test_losses_are_those_of_torch(log: Interactions, loss: str) -> None:
    settings = made(loss=loss, calibration=0.6, regularization=0.01)
    net = network(log, settings).eval()
    weights = np.random.default_rng(0).random(len(log)).astype(np.float32)
    net.weights = weights
    batch = [torch.from_numpy(np.asarray(part)) for part in next(net.batches(3))]
    items, lengths, targets, drawn, chosen = (
        part.long() if part.dtype == torch.int32 else part for part in batch
    )
    assert (targets[:, None] == drawn).any(), "a drawn item is a target"
    found, penalty = net(items, lengths, targets, drawn, chosen)
    valid = torch.arange(items.shape[1]) < lengths[:, None]
    logits = net.outputs(items, lengths)[valid] @ net.items.weight.T
    expected = 0.0
    for event, target in enumerate(targets.tolist()):
        others = [item for item in drawn.tolist() if item != target]
        if loss == "softmax":
            own = logits[event, [target, *others]][None]
            one = functional.cross_entropy(own, torch.tensor([0]))
        else:
            beta = 1 - 0.6 * (1 - 9 / 49)
            scores = logits[event, [target, *others]]
            truth = torch.tensor([1.0] + [0.0] * len(others))
            parts = functional.binary_cross_entropy_with_logits(scores, truth, reduction="none")
            one = beta * parts[0] + parts[1:].sum()
        expected += float(one.detach()) * float(chosen[event])
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)
    squares = net.items.weight[targets].square().sum() + net.items.weight[drawn].square().sum()
    assert float(penalty.detach()) == pytest.approx(0.01 * float(squares.detach()), rel=1e-5)


def test_beta_is_that_of_the_publication() -> None:
    """With a drawn share a, beta = a (t (1 - 1 / a) + 1 / a)."""
    for a in (0.02, 0.3, 1.0):
        for t in (0.0, 0.5, 1.0):
            assert 1 - t * (1 - a) == pytest.approx(a * (t * (1 - 1 / a) + 1 / a))


def test_gradients_are_finite_differences(log: Interactions) -> None:
    net = network(log, made()).eval().double()
    batch = [torch.from_numpy(np.asarray(part)) for part in next(net.batches(1))]
    batch = [part.double() if part.is_floating_point() else part.long() for part in batch]
    net.zero_grad()
    net(*batch)[0].backward()
    for name, values in net.named_parameters():
        place = int(values.grad.abs().argmax())
        flat, step = values.data.view(-1), 1e-5
        ends = []
        for sign in (1, -1):
            flat[place] += sign * step
            ends.append(float(net(*batch)[0].detach()))
            flat[place] -= sign * step
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(values.grad.view(-1)[place]) == pytest.approx(slope, rel=1e-4), name


def test_every_event_but_the_first_is_predicted_once(log: Interactions) -> None:
    net = network(log, made(), epochs=0)
    net.weights = np.arange(len(log), dtype=np.float32)  # names events
    histories, seen = log.histories, []
    for items, lengths, targets, drawn, events in net.batches(4):
        assert len(drawn) == 9
        assert lengths.max() <= 7
        places = events.astype(int)
        np.testing.assert_array_equal(histories.items[places], targets)
        inputs = items[np.arange(items.shape[1]) < lengths[:, None]]
        np.testing.assert_array_equal(histories.items[places - 1], inputs)
        seen += places.tolist()
    first = set(histories.indptr[:-1].tolist())
    assert sorted(seen) == [event for event in range(len(log)) if event not in first]


def test_long_histories_are_cut_from_their_ends() -> None:
    items = np.arange(12, dtype=np.int32)
    firsts, lengths = sequences(Histories.of([items, items[:1], items[:3]], 12), 4)
    found = sorted(zip(firsts.tolist(), lengths.tolist(), strict=True))
    assert found == [(0, 3), (3, 4), (7, 4), (13, 2)]


def test_order_counts_and_new_users_are_users(log: Interactions) -> None:
    model = SASRec(dim=8, epochs=4, learning_rate=0.01).fit(log)
    ids = model.items_.series.to_list()
    forward = model.recommend_for([ids[3], ids[8], ids[1]])
    assert not forward.equals(model.recommend_for([ids[1], ids[8], ids[3]]))
    user = log.users.series[4]
    history = [ids[row] for row in log.histories[4]]
    own = model.recommend(user, k=5).select("item_id", "score")
    assert model.recommend_for(history, k=5).select("item_id", "score").equals(own)
    together = model.recommend_for([history, [ids[0]], history[:4]], k=5)
    alone = together.filter(session_id=0).select("item_id", "score")
    assert alone.equals(own)


@pytest.mark.parametrize("loss", ["softmax", "gbce"])
def test_it_learns_sequences(loss: str) -> None:
    """Item i is followed by i + 1: known to a model that looks at the last item alone."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(150):
        start = rng.integers(0, 40)
        rows += [(user, int((start + step) % 40), step) for step in range(6)]
    table = pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row")
    split = split_log(table, "sequential")
    model = SASRec(
        dim=16, epochs=60, learning_rate=0.02, loss=loss, negatives=10, batch_size=64, dropout=0.1,
        event_weights=EventWeights(trend=0),
    )  # fmt: skip
    found = evaluate(model.fit(split.train), split, "sequential").metrics["HitRate@10"].mean
    floor = evaluate(Popularity().fit(split.train), split, "sequential").metrics["HitRate@10"].mean
    assert found > 0.7 > 2 * floor


def test_heads_divide_the_vectors(log: Interactions) -> None:
    with pytest.raises(ParameterError, match=r"dim=6 is not a multiple of heads=4"):
        SASRec(dim=6, heads=4).fit(log)
