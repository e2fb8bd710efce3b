"""The same small search around the defaults of every cheap model, on the same validation parts.

    python benchmarks/default_search.py [--models NAME ...] [--datasets NAME ...] [--settings N]
                                        [--show]

Each setting changes one parameter of a model to another value of its search space. Models are
fitted on the training part and evaluated on the validation part by the usual protocol of the log;
test events are not used. Figures are stored as they are known (`docs/results/default-search.json`)
and a second run computes what is missing. `--show` prints, for each model, the settings with the
gain over its defaults on each dataset, the best mean first: a default is worth changing if one
setting gains on all datasets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from transcf import Validation, create
from transcf.data.atomic import atomic_write
from transcf.data.splitters import open_split
from transcf.experiments.run import fit_and_validate
from transcf.experiments.search import grid_of, space_of
from transcf.models.params import values_of

FILE = Path(__file__).parents[1] / "docs" / "results" / "default-search.json"
#: Datasets, and how their logs are read; small ones first.
DATASETS: dict[str, dict[str, Any]] = {
    "delicious": {},
    "movietweetings": {"filter": "5-core"},
    "ml-latest-small": {},
    "beauty": {},
    "ciao": {},
    "amazon": {},
}
MODELS = ("recent-popularity", "sequential-rules", "itemknn", "slim", "ials", "ease")
METRIC = "NDCG@10"


def settings_of(model: str, most: int) -> list[dict[str, Any]]:
    """Return the defaults, and changes of one parameter each, in turns of the parameters."""
    usual = values_of(create(model).settings)
    changes = [
        [value for value in (one[name] for one in grid_of({name: values})) if value != usual[name]]
        for name, values in space_of(model).items()
    ]
    names, found = list(space_of(model)), []
    for turn in range(max(map(len, changes), default=0)):
        for name, values in zip(names, changes, strict=True):
            found += [{name: values[turn]}] if turn < len(values) else []
    return [{}, *found[:most]]


def write(found: dict[str, Any]) -> None:
    """Store the figures."""
    with atomic_write(FILE) as path:
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def run(found: dict[str, Any], datasets: list[str], models: list[str], most: int) -> None:
    """Compute what is missing."""
    for name in datasets:
        split = open_split(name, **DATASETS[name])
        validation = Validation.of(split, metric=METRIC)
        timed = split.train.timestamps is not None
        for model in models:
            if model in ("recent-popularity", "sequential-rules") and not timed:
                continue
            cells = found.setdefault(model, {}).setdefault(name, {})
            for setting in settings_of(model, most):
                key = ", ".join(f"{one}={value}" for one, value in setting.items()) or "default"
                if key in cells:
                    continue
                result = fit_and_validate(create(model, **setting), split.train, validation)
                cells[key] = None if result.validation is None else round(result.validation, 5)
                write(found)
                print(name, model, key, cells[key], f"{result.spent:.1f} s", flush=True)


def show(found: dict[str, Any]) -> None:
    """Print a table for each model."""
    for model, cells in found.items():
        names = list(cells)
        gains = {
            key: [
                None if cells[name].get(key) is None else cells[name][key] / cells[name][_DEFAULT]
                for name in names
            ]
            for key in dict.fromkeys(key for name in names for key in cells[name])
        }
        print(f"\n| {model} | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
        for key, ratios in sorted(gains.items(), key=lambda one: -sum(r or 0.0 for r in one[1])):
            shown = ["" if ratio is None else f"{100 * (ratio - 1):+.1f} %" for ratio in ratios]
            if key == _DEFAULT:
                shown = [f"{cells[name][key]:.4f}" for name in names]
            print(f"| {key} | {' | '.join(shown)} |")


_DEFAULT = "default"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--settings", type=int, default=6)
    parser.add_argument("--show", action="store_true", help="print what is stored")
    options = parser.parse_args()
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if not options.show:
        run(found, options.datasets, options.models, options.settings)
    show(found)


if __name__ == "__main__":
    main()
