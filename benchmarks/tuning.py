"""What tuning adds to the trainings it is made of: proposals, records, and the store of runs.

A tuning without pruning (TPE, a SQLite record, a fresh store of runs) is run on Delicious, and
every setting that it tried is then fitted and judged by itself. Both take turns, a few trials at a
time, so that whatever else the machine does falls on both alike. What the fits inside of the tuning
took is shown beside it, which leaves the tuning's own part.

Run: python benchmarks/tuning.py [--trials N] [--dataset NAME] [--model NAME] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transcf import Validation, create, open_split, tune
from transcf.data.split import Split
from transcf.training import FitOptions

BAR = 1.2
#: Trials of a turn.
TURN = 5
SETTINGS = {"epochs": 10, "recency": 0.0}


def train_alone(split: Split, model: str, settings: list[dict[str, Any]]) -> float:
    """Seconds of fitting and judging each setting, with nothing around it."""
    judge = Validation.of(split, "paper", metric="H@10")
    start = time.perf_counter()
    for setting in settings:
        made = create(model, **{"random_state": 0, **SETTINGS, **setting})
        judge(made.fit(split.train, judge, FitOptions(progress=False)))
    return time.perf_counter() - start


def measure(dataset: str, model: str, trials: int) -> dict[str, Any]:
    split = open_split(dataset, "paper")
    train_alone(split, model, [{}])  # compiles, and loads what is loaded once
    tuning = alone = 0.0
    done = 0
    with TemporaryDirectory() as folder:
        while done < trials:
            start = time.perf_counter()
            found = tune(
                split, model, trials=min(done + TURN, trials), params=SETTINGS, protocol="paper",
                prune=False, storage=Path(folder) / "trials.sqlite", store=Path(folder) / "runs",
            )  # fmt: skip
            tuning += time.perf_counter() - start
            alone += train_alone(split, model, [dict(one.setting) for one in found.trials[done:]])
            done = len(found.trials)
    inside = found.seconds
    return {
        "dataset": dataset,
        "model": model,
        "trials": done,
        "tuning_seconds": round(tuning, 2),
        "of_which_trials": round(inside, 2),
        "alone_seconds": round(alone, 2),
        "ratio": round(tuning / alone, 3),
        "bar": BAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--dataset", default="delicious")
    parser.add_argument("--model", default="bpr")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.dataset, options.model, options.trials)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:<16} {value}")


if __name__ == "__main__":
    main()
