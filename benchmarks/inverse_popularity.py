"""Why ranking the rarest items first does well by the paper's protocol: HitRate@10 of counts alone.

Among the paper's candidates, the held-out item is ranked by how rarely it was taken: as counted in
the training part, as counted in the whole log, and the other way round (popularity). Then once more
on the same log with a random event of each user held out in place of the authors' choice. Equal
counts are broken at random, in expectation. The column "events held out" is the share of a held-out
item's events that the split took out of training, mean over users. The last columns have how many
training events the item of an event has, median, in each part of the split, and the share of events
whose item has at most one.

Run: python benchmarks/inverse_popularity.py [--datasets NAME ...] [--json]
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from transcf import leave_one_out, open_split
from transcf.data.interactions import Interactions
from transcf.data.split import Split, draw_candidates
from transcf.kernels import Array

AT = 10


def hit_rate(scores: Array, split: Split) -> float:
    """Expected HitRate@10 of the test part when candidates are ranked by a score of their items."""
    drawn, warm = split.candidates, split.train.by_item.counts > 0
    assert drawn is not None, "by the paper's protocol"
    hits = []
    for user, item in zip(split.test.user_rows, split.test.item_rows, strict=True):
        others = np.unique(drawn.items[drawn.indptr[user] : drawn.indptr[user + 1]])
        others = others[warm[others] & (others != item)]
        if not warm[item] or not len(others):
            continue
        above = int((scores[others] > scores[item]).sum())
        equal = int((scores[others] == scores[item]).sum())
        hits.append(np.clip((AT - above) / (equal + 1), 0, 1))
    return float(np.mean(hits))


def measure(name: str) -> dict[str, float]:
    """HitRate@10 of counts on one dataset, and what the split took."""
    split = open_split(name, "paper")
    log = Interactions.joined(split.train, split.validation, split.test)
    train, whole = (part.by_item.counts.astype(float) for part in (split.train, log))
    random = draw_candidates(leave_one_out(log, "random"))
    counts = random.train.by_item.counts.astype(float)
    held = split.test.item_rows
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    events = {name: train[part.item_rows] for name, part in parts.items()}
    return {
        "rarest in train": hit_rate(-train, split),
        "rarest in all": hit_rate(-whole, split),
        "popularity": hit_rate(train, split),
        "random: rarest": hit_rate(-counts, random),
        "random: popularity": hit_rate(counts, random),
        "events held out": float(np.mean(1 - train[held] / whole[held])),
        **{f"median, {name}": float(np.median(found)) for name, found in events.items()},
        **{f"rare, {name}": float(np.mean(found <= 1)) for name, found in events.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    every = ["delicious", "ciao", "bookcrossing", "amazon"]
    parser.add_argument("--datasets", nargs="+", default=every, metavar="NAME")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    for name in options.datasets:
        figures = found[name] = measure(name)
        if options.json:
            continue
        if len(found) == 1:
            print(f"{'HitRate@10':14}" + "".join(f"{column:>20}" for column in figures))
        print(f"{name:14}" + "".join(f"{value:20.4f}" for value in figures.values()), flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
