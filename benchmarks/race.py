"""How long TransCFMixture takes to be as good as EASE, against how long EASE takes.

EASE is fitted with each of some regularizations on the training part of leave-one-out, and judged
on the validation part; the best one counts, and the seconds are those of a single fit (its median).
TransCFMixture is then trained with its defaults, as many epochs at a time, and the time of
training, all of it and none of the validation, is taken when validation reaches EASE's figure.
Wall clock, all threads.

Run: python benchmarks/race.py [--data beauty] [--epochs 20] [--seeds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from transcf import EASE, TransCFMixture, leave_one_out, open_data
from transcf.data.split import Split
from transcf.evaluation.validation import as_validation

REGULARIZATIONS = (50.0, 200.0, 1000.0)


def ease(split: Split) -> tuple[float, float]:
    """Return the best figure on validation data, and the seconds of a fit."""
    judge, figures, seconds = as_validation(split.train, split.validation), [], []
    for regularization in REGULARIZATIONS:
        started = time.perf_counter()
        model = EASE(regularization=regularization).fit(split.train)
        seconds.append(time.perf_counter() - started)
        figures.append(judge(model))
    return max(figures), float(np.median(seconds))


def transcf(split: Split, epochs: int, seed: int, wanted: float) -> tuple[float, float, int]:
    """Return the best figure, the seconds until the wanted one is reached, and its epoch."""
    model = TransCFMixture(
        epochs=epochs, random_state=seed, validate_every=1, validation_users=None
    )
    model.fit(split.train, split.validation)
    figures, spent = model.history_["metric"].to_numpy(), model.history_["seconds"].cum_sum()
    reached = np.flatnonzero(figures >= wanted)
    if not len(reached):
        return float(figures.max()), float("nan"), 0
    return float(figures.max()), float(spent[int(reached[0])]), int(reached[0]) + 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="beauty")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    split = leave_one_out(open_data(options.data))
    transcf(split, 1, 0, 0.0)  # compile
    wanted, slow = ease(split)
    races = [transcf(split, options.epochs, seed, wanted) for seed in range(options.seeds)]
    best, fast, epoch = (float(np.median(column)) for column in zip(*races, strict=True))
    found = {
        "EASE NDCG@10": wanted,
        "EASE seconds": slow,
        "TransCFMixture NDCG@10": best,
        "reached at epoch": epoch,
        "TransCFMixture seconds": fast,
        "share of EASE's time": fast / slow,
    }
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<24}{value:>10.4f}")


if __name__ == "__main__":
    main()
