"""What tuning adds to the trainings it is made of: proposals, records, and the store of runs.

A tuning without pruning (TPE, a SQLite record, a fresh store of runs) is run on Delicious, and
every setting that it tried is then fitted and judged by itself. Both take turns, a few trials at a
time, so that whatever else the machine does falls on both alike; each turn opens the record anew,
which a tuning does once. Processor time says the same where the machine is busy with other things.

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
from transcf.models.training import FitOptions

BAR = 1.2
#: Trials of a turn.
TURN = 20
SETTINGS = {"recency": 0.0}


class Clock:
    """Adds up wall clock and processor time of what runs inside."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.wall = self.processor = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def __exit__(self, *problem: object) -> None:
        self.wall += time.perf_counter() - self._since[0]
        self.processor += time.process_time() - self._since[1]


def train_alone(split: Split, model: str, settings: list[dict[str, Any]]) -> None:
    """Fit and judge each setting, with nothing around it."""
    judge = Validation.of(split, "paper", metric="HitRate@10")
    for setting in settings:
        made = create(model, **{"random_state": 0, **SETTINGS, **setting})
        judge(made.fit(split.train, judge, FitOptions(progress=False)))


def measure(dataset: str, model: str, trials: int) -> dict[str, Any]:
    split = open_split(dataset, "paper")
    common = {"params": SETTINGS, "protocol": "paper", "prune": False}
    train_alone(split, model, [{}])  # compiles, and loads what is loaded once
    tuning, alone, done = Clock(), Clock(), 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        tune(split, model, trials=1, **common, storage=folder / "first.sqlite")
        places = {"storage": folder / "trials.sqlite", "store": folder / "runs"}
        while done < trials:
            with tuning:
                found = tune(split, model, trials=min(done + TURN, trials), **common, **places)
            with alone:
                train_alone(split, model, [dict(one.setting) for one in found.trials[done:]])
            done = len(found.trials)
    return {
        "dataset": dataset,
        "model": model,
        "trials": done,
        "tuning seconds": round(tuning.wall, 2),
        "of these trials": round(found.seconds, 2),
        "alone seconds": round(alone.wall, 2),
        "ratio (wall clock)": round(tuning.wall / alone.wall, 3),
        "ratio (processor)": round(tuning.processor / alone.processor, 3),
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
        print(f"{name:<20} {value}")


if __name__ == "__main__":
    main()
