"""TransCFMixture on the public split of Gowalla that graph recommenders are compared on.

The settings were chosen on a tenth of each user's training part (tau, beta, how many negatives and
how they are drawn, steps of users; `--validate` judges there) and are fixed here: a model for each
seed is fitted on all of the training part, without any look at a figure, and everybody is judged
once.
Published by others, recall@20 / NDCG@20: LightGCN .1830 / .1554, SimpleX .1872 / .1557, UltraGCN
.1862 / .1580, BSPM .1920 / .1597.

Run: python benchmarks/gowalla.py [--dim 64] [--negatives 2000] [--epochs 20] [--tau 4] [--beta 2]
    [--negative-power .5] [--set NAME=VALUE ...] [--seeds 3] [--validate] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Literal

import numpy as np

from transcf import Split, TransCFMixture, evaluate, open_split

METRICS = ("Recall@20", "NDCG@20")


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--negatives", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tau", type=float, default=4.0)
    parser.add_argument("--beta", type=float, default=2.0)
    parser.add_argument("--negative-power", type=float, default=0.5)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--validate", action="store_true", help="judge on a tenth of train instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    split, rows = open_split("gowalla", "leave-last-out"), []
    part: Literal["validation", "test"] = "validation" if options.validate else "test"
    if options.validate:
        split = with_a_tenth_of_everybody(split)
    train = split.train if options.validate else split.before_test
    TransCFMixture(dim=options.dim, epochs=1).fit(split.validation)  # compile
    others = {name: json.loads(value) for name, value in (word.split("=") for word in options.set)}
    for seed in range(options.seeds):
        model = TransCFMixture(
            dim=options.dim, shared_negatives=options.negatives, epochs=options.epochs,
            tau=options.tau, beta=options.beta, negative_power=options.negative_power,
            random_state=seed, **others,
        )  # fmt: skip
        started = time.perf_counter()
        model.fit(train)
        trained = time.perf_counter()
        found = evaluate(model, split, protocol="leave-last-out", subset=part, k=(20,)).metrics
        seconds = trained - started, time.perf_counter() - trained
        rows.append([*(found[name].mean for name in METRICS), *seconds])
        print(_line(f"seed {seed}", rows[-1]), file=sys.stderr, flush=True)
    means, spreads = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=min(1, len(rows) - 1))
    if options.json:
        names = [*METRICS, "fit seconds", "judge seconds"]
        told = {
            "settings": vars(options),
            "seeds": [dict(zip(names, row, strict=True)) for row in rows],
            "mean": dict(zip(names, means.tolist(), strict=True)),
            "spread": dict(zip(names, spreads.tolist(), strict=True)),
        }
        print(json.dumps(told, indent=1))
        return
    print(_line("mean", means))
    print(_line("spread", spreads))


def with_a_tenth_of_everybody(split: Split) -> Split:
    """Return the split with a tenth of each user's training events for validation, drawn at random.

    So everybody counts, as in the test part; a tenth of all events has mostly people who have many.
    """
    log = split.before_test
    counts = np.bincount(log.user_rows, minlength=log.n_users)
    order = np.lexsort((np.random.default_rng(5).random(len(log)), log.user_rows))
    places = np.empty(len(log), np.int64)
    places[order] = np.arange(len(log)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = places < np.ceil(0.1 * counts)[log.user_rows]
    return replace(split, train=log.select(~held_out), validation=log.select(held_out))


def _line(name: str, row: list[float]) -> str:
    recall, gain, training, judging = row
    return (
        f"{name:<8} Recall@20 {recall:.4f}  NDCG@20 {gain:.4f}  fit {training:.0f} s  "
        f"evaluate {judging:.0f} s"
    )


if __name__ == "__main__":
    main()
