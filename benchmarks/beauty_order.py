"""Protocol `sequential` on Beauty in the usual order, and with the events of a day in random order.

Beauty has days, not times. The library orders events of equal time by item id, as the raw files do,
so that "the last event" of many users is the largest product number of their last day. Here every
model is fitted and evaluated with this order, once for each seed, and with the events of each user
and day in random order, a new one for each seed. Models choose their epoch on validation.

Run: python benchmarks/beauty_order.py [--data beauty] [--models NAME ...] [--seeds 5]
    [--orders usual shuffled] [--set NAME=VALUE ...] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from transcf import create, evaluate, open_data
from transcf.data.interactions import Interactions
from transcf.data.splitters import split_log

METRICS = ("HitRate@10", "NDCG@10")
ORDERS = ("usual", "shuffled")


def shuffled_days(log: Interactions, seed: int) -> Interactions:
    """Return a log with the events of each user and time in random order.

    Their times differ by a few units, which must be far less than the time between two events.
    """
    times = log.timestamps
    assert times is not None, "the order of a log without times is not arbitrary"
    order = np.lexsort((np.random.default_rng(seed).random(len(log)), times, log.user_rows))
    keys = np.stack([log.user_rows[order], times[order]])
    is_first = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
    starts = np.flatnonzero(is_first)
    places = np.empty(len(log), np.int64)
    places[order] = np.arange(len(log)) - starts[np.cumsum(is_first) - 1]
    steps = np.diff(np.unique(times))
    assert places.max() < steps.min(), "times are too close to each other"
    return replace(log, timestamps=times + places)


def run(name: str, params: dict[str, Any], log: Interactions) -> dict[str, Any]:
    """Fit and evaluate a model."""
    split, started = split_log(log, "sequential"), time.perf_counter()
    model = create(name, **params).fit(split.train, split.validation)
    seconds = time.perf_counter() - started
    found = evaluate(model, split, "sequential", k=(10,))
    figures = {metric: found.metrics[metric].mean for metric in METRICS}
    facts = {"epoch": model.best_epoch_, "trend": model.report_.get("trend", {}).get("strength")}
    return {**figures, "users": found.users, **facts, "fit seconds": seconds}


def main() -> None:
    """Fit, evaluate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="beauty")
    parser.add_argument("--models", nargs="+", default=["popularity", "itemknn", "transcf-mixture"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    log, found = open_data(options.data), []
    for name in options.models:
        for order in options.orders:
            takes_seed = "random_state" in type(create(name))._rules()
            runs = []
            for seed in range(options.seeds if takes_seed or order == "shuffled" else 1):
                given = {"random_state": seed} if takes_seed else {}
                data = log if order == "usual" else shuffled_days(log, seed)
                runs.append({"seed": seed, **run(name, parsed(options.set) | given, data)})
                print(f"{name}, {order}: {runs[-1]}", file=sys.stderr, flush=True)
            means = {m: float(np.mean([entry[m] for entry in runs])) for m in METRICS}
            found.append({"model": name, "order": order, "mean": means, "runs": runs})
            if not options.json:
                shown = "  ".join(f"{metric} {value:.4f}" for metric, value in means.items())
                print(f"{name:<16}{order:<10}{shown}  ({len(runs)} runs)", flush=True)
    if options.json:
        command = f"python benchmarks/beauty_order.py {' '.join(sys.argv[1:])}"
        print(json.dumps({"command": command, "results": found}, indent=1))


def parsed(settings: list[str]) -> dict[str, Any]:
    """Return settings given as NAME=VALUE; values are JSON, or text."""
    return {name: parse(value) for name, value in (word.split("=", 1) for word in settings)}


def parse(value: str) -> Any:
    """Return a JSON value, or the text itself."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


if __name__ == "__main__":
    main()
