"""What validation costs in a default fit, and whether a sample of users chooses as well as all do.

For each dataset TransCF is fitted with its defaults, once for each seed. Every epoch is kept and
judged by everybody; then the epoch that the defaults choose (a sample of users, about ten times a
fit) is compared on the test part with the one that everybody would choose from all epochs.

Run: python benchmarks/validation.py [--datasets NAMES] [--model NAME] [--seeds N] [--json]
"""

from __future__ import annotations

import argparse
import json
from statistics import mean, stdev
from typing import Any

from transcf.data.filters import k_core
from transcf.data.readers import open_data
from transcf.data.split import Split
from transcf.data.splitters import leave_one_out
from transcf.evaluation import Validation, evaluate
from transcf.models.registry import create
from transcf.models.training import Epoch, FitOptions

BAR = 1 / 3


def split_of(dataset: str) -> Split:
    log = open_data(dataset)
    if log.timestamps is None:
        return leave_one_out(log, "random")
    return leave_one_out(k_core(log, 5, 5), "time")


def shares(model: str, split: Split) -> tuple[float, float]:
    """Wall clock of a default fit, and the share of validation in it; the second of two fits."""
    for _ in range(2):
        report = create(model).fit(split.train, split.validation).report_
    return report["seconds"], report["validation_seconds"] / report["seconds"]


def chosen(model: str, split: Split, seed: int) -> tuple[float, float]:
    """Test NDCG@10 of the epoch that everybody would choose, and of the default's choice."""
    everybody = Validation.of(split)
    plain = create(model, random_state=seed)
    sample = everybody.sampled(plain.settings.validation_users)
    kept: dict[int, tuple[float, Any]] = {}

    def keep(epoch: Epoch[Any]) -> None:
        kept[epoch.number] = everybody(epoch.snapshot), epoch.snapshot

    fitted = plain.fit(split.train, sample, FitOptions(on_epoch=keep, progress=False))
    best = max(kept, key=lambda number: (kept[number][0], -number))
    figures = (
        evaluate(scorer, split).metrics["NDCG@10"].mean for scorer in (kept[best][1], fitted)
    )
    return next(figures), next(figures)


def measure(dataset: str, model: str, seeds: int) -> dict[str, Any]:
    split = split_of(dataset)
    seconds, share = shares(model, split)
    pairs = [chosen(model, split, seed) for seed in range(seeds)]
    gaps = [ours - full for full, ours in pairs]
    return {
        "dataset": dataset,
        "fit seconds": round(seconds, 2),
        "validation share": round(share, 3),
        "ratio": round(BAR / share, 2),
        "NDCG@10 by all": round(mean(full for full, _ in pairs), 4),
        "NDCG@10 by sample": round(mean(ours for _, ours in pairs), 4),
        "difference": round(mean(gaps), 5),
        "its error": round(stdev(gaps) / len(gaps) ** 0.5, 5) if len(gaps) > 1 else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", default="ml-latest-small,movietweetings,ciao")
    parser.add_argument("--model", default="transcf-mixture")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = []
    for dataset in options.datasets.split(","):
        cases.append(measure(dataset, options.model, options.seeds))
        if not options.json:
            print("  ".join(f"{name} {value}" for name, value in cases[-1].items()), flush=True)
    if options.json:
        print(json.dumps(cases, indent=2))
    else:
        print("ratio: 1/3 against the share of validation, above 1 is better")


if __name__ == "__main__":
    main()
