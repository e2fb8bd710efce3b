"""`transcf auto` against the defaults of single models, on the same test events.

    python benchmarks/auto.py [NAME ...] [--minutes MINUTES] [--only-auto] [--show]

For each dataset `auto` searches within the time limit; then mixture, EASE, ItemKNN and recent
popularity are fitted with their defaults, without a limit, and evaluated as `transcf evaluate`
does. Both see the same split, and differences are paired over users. Each figure is stored when it
is known (`docs/results/auto.json`, runs in `--store`), so that a second run computes what is
missing. `--show` prints what is stored.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from transcf import auto, create
from transcf.data.atomic import atomic_write
from transcf.data.split import Split
from transcf.data.splitters import open_log_and_split
from transcf.evaluation import Evaluation
from transcf.experiments.run import EvalConfig, RunKey, fit_and_evaluate
from transcf.experiments.store import Store

FILE = Path(__file__).parents[1] / "docs" / "results" / "auto.json"
#: Datasets, and how their logs are read.
DATASETS: dict[str, dict[str, Any]] = {
    "delicious": {},
    "movietweetings": {"filter": "5-core"},
    "ml-latest-small": {},
    "beauty": {},
    "ciao": {},
}
DEFAULTS = ("recent-popularity", "itemknn", "transcf-mixture", "ease")
METRIC = "NDCG@10"
CONFIG = EvalConfig(with_validation=False)


def figure(found: Evaluation) -> dict[str, Any]:
    """Return the metric with its standard error."""
    estimate = found.metrics[METRIC]
    return {"mean": round(estimate.mean, 5), "se": round(estimate.se, 5), "users": found.users}


def search(name: str, minutes: float, store: Store) -> dict[str, Any]:
    """Run `auto` on a dataset."""
    report = auto(name, minutes, store=store.folder, **DATASETS[name]).report
    keys = ("minutes", "seconds", "split", "data", "serving_ms", "tests", "skipped")
    about = {key: report[key] for key in keys}
    winner = {key: report["winner"][key] for key in ("name", "setting", "weights", "validation")}
    figures = {key: report["test"][key] for key in ("mean", "se", "users")}
    tried = [(one["name"], one["validation"], one["seconds"]) for one in report["tried"]]
    kind = report["winner"]["model"]
    return {**about, "winner": {**winner, "model": kind}, "test": figures, "tried": tried}


def winner_of(found: dict[str, Any], split: Split, store: Store) -> Evaluation:
    """Return the evaluation of the winner for each user, from the run cache."""
    model = create(found["winner"]["model"], **found["winner"]["setting"])
    result = store.find(RunKey.evaluated(model, split, CONFIG.on(split)))
    assert result is not None, "the run cache has no test of the winner"
    assert result.evaluation is not None
    return result.evaluation


def add_defaults(
    name: str, found: dict[str, Any], store: Store, everything: dict[str, Any]
) -> None:
    """Evaluate the defaults, and store their paired differences to the winner."""
    _, split = open_log_and_split(name, **DATASETS[name])
    best = winner_of(found, split, store).per_user[METRIC].to_numpy()
    for model in DEFAULTS:
        if model in found.setdefault("defaults", {}):
            continue
        result = fit_and_evaluate(create(model), split, CONFIG, store)
        assert result.evaluation is not None
        gain = best - result.evaluation.per_user[METRIC].to_numpy()
        spread = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        paired = {"auto_minus": round(float(gain.mean()), 5), "paired_se": round(spread, 5)}
        found["defaults"][model] = figure(result.evaluation) | paired
        write(everything)


def write(everything: dict[str, Any]) -> None:
    """Store the figures."""
    with atomic_write(FILE) as path:
        path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def show(everything: dict[str, Any]) -> None:
    """Print a table in Markdown."""
    print(f"| dataset | minutes | winner | auto | {' | '.join(DEFAULTS)} |")
    print("|---|--:|---|--:|" + "--:|" * len(DEFAULTS))
    for name, found in everything["datasets"].items():
        cells = [
            f"{one['mean']:.4f} ({one['auto_minus']:+.4f} ± {one['paired_se']:.4f})" if one else ""
            for one in (found.get("defaults", {}).get(model) for model in DEFAULTS)
        ]
        test = found["test"]
        own = f"{test['mean']:.4f} ± {test['se']:.4f}"
        winner = found["winner"]["name"]
        print(f"| {name} | {found['minutes']:g} | {winner} | {own} | {' | '.join(cells)} |")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(DATASETS))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--store", default=".auto-runs")
    parser.add_argument("--only-auto", action="store_true", help="leave the defaults out")
    parser.add_argument("--show", action="store_true", help="print what is stored")
    options = parser.parse_args()
    everything = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    everything.setdefault("command", "python benchmarks/auto.py --minutes 3")
    datasets = everything.setdefault("datasets", {})
    for name in [] if options.show else options.names or DATASETS:
        store = Store(options.store)
        if name not in datasets:
            datasets[name] = search(name, options.minutes, store)
            write(everything)
        if not options.only_auto:
            add_defaults(name, datasets[name], store, everything)
    show(everything)


if __name__ == "__main__":
    main()
