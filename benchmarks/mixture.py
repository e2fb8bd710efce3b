"""TransCF's mixture: epochs against their arithmetic and on two threads, lists against plain ones.

`epoch`: an epoch against the three matrix products (events by negatives and back, twice) and the
exponentials of its shapes, one after the other on one thread; processor seconds. What an epoch does
besides (dealing, gathering, pairs within histories, Adam) is what the ratio is about: at most 1.6.
`threads`: an epoch on one thread against one on two, which asks for two quiet cores: at least 1.75.
`recommend`: the ten best items of everybody against the same with inner products of as many
numbers, random vectors of Ciao's shape (22 past items each), one thread: at most 3.
`evaluate`: ranks and the twenty best of everybody on the test part of a dataset after an epoch,
against the same with inner products, on all threads; wall clock: at most 90 s on Gowalla with two.

Sides take turns; medians.

Run: python benchmarks/mixture.py [--what epoch|threads|recommend|evaluate] [--data NAME] [--dim 64]
    [--negatives 1000] [--repeats 5] [--json]
DATA is beauty, or gowalla for `evaluate`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from _turns import in_turn, use_one_thread
from transcf import TransCFMixture, leave_one_out, open_data, open_split, read_interactions
from transcf.data.interactions import Interactions
from transcf.evaluation.ranks import rank, ranking_task
from transcf.kernels import Array
from transcf.kernels.decorators import compiled
from transcf.kernels.lanes import LANES, exp_lanes, load, store
from transcf.kernels.rows import padded_width
from transcf.models.fitted import TrainingData
from transcf.models.mixture import MixtureSettings
from transcf.models.mixture.fitted import Mixture
from transcf.models.mixture.training import Events, MixtureTraining
from transcf.parallel import use_threads
from transcf.retrieval.scorer import FormView, Scorer, nearness_form, vector_form

USERS, ITEMS, HISTORY = 6760, 11166, 22
Sides = dict[str, Callable[[], object]]


@compiled
def exponentials(tile: Array) -> None:
    """Replace numbers by their exponentials; the length is a multiple of sixteen."""
    for at in range(0, len(tile), LANES):
        store(tile, at, exp_lanes(load(tile, at)))


def arithmetic(events: int, settings: MixtureSettings) -> Callable[[], None]:
    """Products and exponentials of an epoch with so many events."""
    rng, size = np.random.default_rng(0), settings.batch_events or 1024
    drawn = padded_width(settings.shared_negatives)
    moved = rng.standard_normal((size, settings.dim)).astype(np.float32) / 10
    negatives = rng.standard_normal((drawn, settings.dim)).astype(np.float32) / 10
    tile, back = np.empty((size, drawn), np.float32), np.empty_like(moved)
    forth = np.empty_like(negatives)

    def run() -> None:
        for _ in range(-(-events // size)):
            np.dot(moved, negatives.T, tile)
            exponentials(tile.reshape(-1))
            np.dot(tile, negatives, back)
            np.dot(tile.T, moved, forth)

    return run


def epochs(log: Interactions, settings: MixtureSettings, threads: int) -> Callable[[], None]:
    """One epoch after the other."""
    training, number = MixtureTraining(Events.of(log, settings), settings), iter(range(1, 1000))

    def run() -> None:
        with use_threads(threads):
            training.run_epoch(next(number))

    return run


def lists(dim: int) -> Sides:
    """The ten best of everybody, by the mixture and by nearness alone."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(ITEMS, HISTORY, replace=False) for _ in range(USERS)]
    everything = np.concatenate([*drawn, np.arange(ITEMS)])
    owners = np.concatenate([np.repeat(np.arange(USERS), HISTORY), np.arange(ITEMS) % USERS])
    log = read_interactions(pl.DataFrame({"user": owners, "item": everything}))

    def vectors(n: int) -> Array:
        return rng.standard_normal((n, dim), dtype=np.float32) / np.float32(np.sqrt(dim))

    items = vectors(ITEMS)
    mixture = Mixture(
        TrainingData.of(log), TransCFMixture(dim=dim).settings, users=vectors(USERS), items=items,
        history=vectors(ITEMS), bias=np.zeros(ITEMS, np.float32),
    )  # fmt: skip
    form = nearness_form(items).for_users(*nearness_form(vectors(USERS)).of_users(np.arange(USERS)))
    plain = FormView("nearness", np.ones(ITEMS, dtype=bool), form)
    everybody = np.arange(USERS, dtype=np.int32)
    return {
        "mixture": partial(mixture.top_k, everybody, 10, seen=log.by_user),
        "inner products": partial(plain.top_k, everybody, 10, seen=log.by_user),
    }


def rankings(data: str, dim: int) -> Sides:
    """Ranking all held-out items, by the mixture and by nearness to the users' own points."""
    split = open_split(data, "leave-last-out")
    known = split.before_test
    model = TransCFMixture(dim=dim, epochs=1).fit(known)
    form = vector_form("distance", model.user_vectors_, model.item_vectors_)
    plain = FormView("nearness", model.rankable, form)

    def ranked(scorer: Scorer) -> Callable[[], object]:
        rankable, trained = scorer.rankable, known.user_counts > 0
        task = ranking_task(split.test.by_user, known.by_user, rankable, trained)
        return partial(rank, scorer, task, "pessimistic", 20)

    return {"mixture": ranked(model), "inner products": ranked(plain)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = ["epoch", "threads", "recommend", "evaluate"]
    parser.add_argument("--what", choices=what, default="epoch")
    parser.add_argument("--data")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--negatives", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    clock = time.process_time
    if options.what in ("threads", "evaluate"):
        clock = time.perf_counter
    else:
        use_one_thread()
    if options.what == "recommend":
        sides = lists(options.dim)
    elif options.what == "evaluate":
        sides = rankings(options.data or "gowalla", options.dim)
    else:
        log = leave_one_out(open_data(options.data or "beauty")).train
        settings = MixtureSettings(
            dim=options.dim, shared_negatives=options.negatives, epochs=1000,
            learning_rate=0.01, init_scale=0.03, batch_events=1024,
        )  # fmt: skip
        sides = {"one thread": epochs(log, settings, 1)}
        if options.what == "threads":
            sides["two threads"] = epochs(log, settings, 2)
        else:
            sides["arithmetic"] = arithmetic(len(log), settings)
    seconds = in_turn(sides, options.repeats, clock)
    first, second = seconds.values()
    found = {"what": options.what, **seconds, "ratio": first / second}
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<20}{value:>12.3f}" if isinstance(value, float) else f"{name:<20}{value:>12}")


if __name__ == "__main__":
    main()
