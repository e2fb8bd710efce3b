"""Full rank against vectors, on a log like citeulike-a: EASE, the mixture, and both together.

Libraries of 5,500 people are put together from 2,000 short reading lists that overlap at random,
half of each from one of 40 fields: many rare items whose pairs say more than a few dimensions can.
A random event of each user is held out for test, another for validation.

Run: python benchmarks/sparse.py [--users N] [--seeds N] [--json] [--write FILE.csv]
"""

from __future__ import annotations

import argparse
import json
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.data.synthetic import write_csv
from transcf.evaluation import evaluate
from transcf.models.registry import create

FIELDS, LISTS = 40, 2000
#: Events of a user on average, before those that come twice.
EVENTS = 205_000 / 5500
EASE = "ease(regularization=100.0, precision='float32')"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "EASE": ("ease", {"regularization": 100.0, "precision": "float32"}),
    "mixture": ("transcf", {}),
    "blend": ("blend", {"parts": f"{EASE} + transcf"}),
    "mixture on top of EASE": ("blend", {"parts": f"{EASE} + transcf", "beneath": 30.0}),
}


class Lists:
    """Items with appeal and a field, and the reading lists that people copy from."""

    def __init__(self, items: int, random: np.random.Generator) -> None:
        """Make them up."""
        self.random = random
        self.appeal = random.pareto(1.5, items) + 0.3
        field = random.integers(FIELDS, size=items)
        self.pools = [np.flatnonzero(field == f) for f in range(FIELDS)] + [np.arange(items)]
        fields = random.integers(FIELDS, size=LISTS)
        sizes = 6 + random.poisson(8, LISTS)
        near = random.binomial(sizes, 0.5)
        self.lists = [
            np.union1d(self.some(f, n), self.some(FIELDS, size - n))
            for f, size, n in zip(fields, sizes, near, strict=True)
        ]
        self.kin = [np.flatnonzero(fields == f) for f in range(FIELDS)]

    def some(self, pool: int, n: int) -> npt.NDArray[np.int64]:
        """Draw n different items of a pool by appeal: those with the smallest random keys."""
        items = self.pools[pool]
        keys = self.random.standard_exponential(len(items)) / self.appeal[items]
        return items if n >= len(items) else items[np.argpartition(keys, n)[:n]]

    def library(self, length: int) -> npt.NDArray[np.int64]:
        """Put together one: a fifth from field and world, the rest parts of lists."""
        random, field = self.random, int(self.random.integers(FIELDS))
        own = [self.some(field, int(0.12 * length)), self.some(FIELDS, int(0.08 * length))]
        left = length - sum(map(len, own))
        while left > 0:
            is_near = random.random() < 0.5
            chosen = random.choice(self.kin[field]) if is_near else random.integers(LISTS)
            copied = self.lists[chosen]
            copied = copied[random.random(len(copied)) < random.uniform(0.2, 0.9)][:left]
            own.append(copied)
            left -= max(1, len(copied))
        return np.unique(np.concatenate(own))


def sparse_log(users: int = 5500, items: int = 16_000, seed: int = 0) -> Interactions:
    """About 35 events a user on average, from 7 to some hundreds."""
    random = np.random.default_rng(seed)
    lists = Lists(items, random)
    activity = np.exp(random.normal(0, 0.85, users))
    lengths = np.clip(activity / activity.mean() * EVENTS, 8, 400).astype(int)
    libraries = [lists.library(int(length)) for length in lengths]
    rows = np.repeat(np.arange(users), [len(library) for library in libraries])
    return read_interactions(pl.DataFrame({"user": rows, "item": np.concatenate(libraries)}))


def measure(title: str, split: Split, seed: int) -> dict[str, float]:
    name, params = MODELS[title]
    seeded = {} if name == "ease" else {"random_state": seed}
    model = create(name, **params, **seeded).fit(split.train, split.validation)
    found = {"seconds": model.report_["seconds"]}
    for part in ("validation", "test"):
        metrics = evaluate(model, split, "strict-no-refit", part=part).metrics
        found |= {f"{part} {metric}": metrics[metric].mean for metric in ("H@10", "N@10")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=5500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", help="write the log as CSV, and do nothing else")
    args = parser.parse_args()
    log = sparse_log(args.users)
    if args.write:
        write_csv(log, args.write)
        return
    split, found = leave_one_out(log, seed=0), {}
    for title in MODELS:
        seeds = range(1 if title == "EASE" else args.seeds)
        runs = [measure(title, split, seed) for seed in seeds]
        found[title] = {key: mean(run[key] for run in runs) for key in runs[0]}
    if args.json:
        print(json.dumps(found))
        return
    print(log)
    print(f"{'':24}" + "".join(f"{key:>17}" for key in found["EASE"]))
    for title, figures in found.items():
        print(f"{title:24}" + "".join(f"{value:>17.4f}" for value in figures.values()))


if __name__ == "__main__":
    main()
