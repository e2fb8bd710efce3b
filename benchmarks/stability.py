"""Does training stay finite? Learning rates up to .1 on every dataset that is at hand.

The published method (preset `paper`) and the defaults, for a few epochs each: the loss of the last
epoch, or "diverged". Histories of thousands of items, as in Book-Crossing, are the hard case.

Run: python benchmarks/stability.py [--datasets NAME ...] [--epochs 5]
"""

from __future__ import annotations

import argparse

from transcf import TransCF, TransCFError, leave_one_out, open_data, paper_filter
from transcf.data import datasets
from transcf.data.interactions import Interactions
from transcf.errors import DivergenceError

RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def training_part(name: str) -> Interactions:
    """The authors' training part, or what is left without each user's last two events."""
    log = open_data(name)
    if name == "bookcrossing":
        return leave_one_out(paper_filter(log), "paper").train
    return leave_one_out(log).train


def outcome(model: TransCF, log: Interactions) -> str:
    try:
        return f"{model.fit(log).history_['loss'][-1]:.4f}"
    except DivergenceError:
        return "diverged"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=datasets.names(), metavar="NAME")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    print("dataset".ljust(18) + "settings".ljust(10) + "".join(f"{rate:>10}" for rate in RATES))
    for name in options.datasets:
        try:
            log = training_part(name)
        except TransCFError as error:
            print(f"{name}: left out ({error})")
            continue
        for label, make in (("paper", TransCF.paper), ("defaults", TransCF)):
            models = [make(learning_rate=rate, epochs=options.epochs) for rate in RATES]
            found = [outcome(model, log) for model in models]
            print(f"{name:<18}{label:<10}" + "".join(f"{value:>10}" for value in found), flush=True)


if __name__ == "__main__":
    main()
