"""Models on the public splits of Gowalla and Yelp2018 that graph recommenders are compared on.

Settings were chosen on a tenth of each user's training events of Gowalla (`--validate` evaluates
there) and are fixed here, for both datasets. A model is fitted on all of the public training part
without a look at any figure, and evaluated once. Many published figures come from papers that
chose epochs or settings on the test part.

Every finished run is added to the file of `--out` at once, and runs that it has are skipped, so
that the script can be stopped and continued.

Run: python benchmarks/public_splits.py [--data gowalla,yelp2018] [--models mixture-64,mixture-128,
    itemknn,ials,ease,slim,lightgcn] [--seeds 3] [--set NAME=VALUE ...] [--validate] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np

from transcf import Split, create, evaluate, open_split
from transcf.data.atomic import atomic_write

METRICS = ("Recall@20", "NDCG@20")
OUT = Path(__file__).parents[1] / "docs" / "results" / "public-splits.json"
#: Name in the results: name of the model and its settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture-64": ("transcf-mixture", {"dim": 64, "shared_negatives": 2000, "epochs": 20}),
    "mixture-128": ("transcf-mixture", {"dim": 128, "shared_negatives": 2000, "epochs": 25}),
    "itemknn": ("itemknn", {}),
    "ials": ("ials", {"dim": 256}),
    "ease": ("ease", {}),
    "slim": ("slim", {}),
    "lightgcn": ("lightgcn", {}),
}
WITHOUT_SEED = ("itemknn", "ease", "slim")


def main() -> None:
    """Run what is missing, and print all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="gowalla,yelp2018")
    parser.add_argument("--models", default="mixture-64")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    parser.add_argument("--validate", action="store_true", help="use a tenth of the training part")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    others = {name: json.loads(value) for name, value in (word.split("=") for word in options.set)}
    runs = json.loads(options.out.read_text())["runs"] if options.out.exists() else []
    for data in options.data.split(","):
        split = None
        for name in options.models.split(","):
            for seed in range(1 if name in WITHOUT_SEED else options.seeds):
                key = {"data": data, "model": name, "seed": seed, "set": others,
                       "part": "validation" if options.validate else "test"}  # fmt: skip
                if any(key.items() <= run.items() for run in runs):
                    continue
                split = split or _open(data, options.validate)
                runs.append(key | _run(split, key))
                print(_line(f"{data} {name} seed {seed}", [runs[-1]]), flush=True)
                content = {"command": "python benchmarks/public_splits.py", "runs": runs}
                content["means"] = _means(runs)
                with atomic_write(options.out) as path:
                    path.write_text(json.dumps(content, indent=1) + "\n")
    for data, models in _means(runs).items():
        for name, found in models.items():
            print(data, name, json.dumps(found))


def _open(data: str, validate: bool) -> Split:
    split = open_split(data, "leave-last-out")
    return _with_a_tenth_of_each_user(split) if validate else split


def _run(split: Split, key: dict[str, Any]) -> dict[str, Any]:
    """Fit and evaluate once."""
    part: Literal["validation", "test"] = key["part"]
    name, settings = MODELS[key["model"]]
    seeded = {} if key["model"] in WITHOUT_SEED else {"random_state": key["seed"]}
    model = create(name, **{**settings, **key["set"], **seeded})
    started = time.perf_counter()
    model.fit(split.train if part == "validation" else split.before_test)
    trained = time.perf_counter()
    found = evaluate(model, split, protocol="leave-last-out", subset=part, k=(20,)).metrics
    seconds = {"fit seconds": trained - started, "evaluate seconds": time.perf_counter() - trained}
    return {"settings": settings, **{name: found[name].mean for name in METRICS}, **seconds}


def _means(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Average the test runs without further settings over seeds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for data, name in dict.fromkeys((run["data"], run["model"]) for run in runs):
        own = [
            run
            for run in runs
            if (run["data"], run["model"], run["part"], run["set"]) == (data, name, "test", {})
        ]
        if own:
            spread = {
                f"sd {metric}": stdev(run[metric] for run in own) if len(own) > 1 else 0.0
                for metric in METRICS
            }
            means = {what: mean(run[what] for run in own) for what in (*METRICS, "fit seconds")}
            found.setdefault(data, {})[name] = {**means, **spread, "seeds": len(own)}
    return found


def _with_a_tenth_of_each_user(split: Split) -> Split:
    """Return the split with a tenth of each user's training events, at random, for validation.

    A tenth of all events would mostly be events of users with many.
    """
    log = split.before_test
    counts = np.bincount(log.user_rows, minlength=log.n_users)
    order = np.lexsort((np.random.default_rng(5).random(len(log)), log.user_rows))
    places = np.empty(len(log), np.int64)
    places[order] = np.arange(len(log)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = places < np.ceil(0.1 * counts)[log.user_rows]
    return replace(split, train=log.select(~held_out), validation=log.select(held_out))


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    return "  ".join([f"{name:<28}", *(f"{m} {mean(r[m] for r in rows):.4f}" for m in METRICS),
                      f"fit {mean(r['fit seconds'] for r in rows):.0f} s"])  # fmt: skip


if __name__ == "__main__":
    main()
