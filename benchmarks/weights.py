"""What weights of events cost: training with them over training without, for every model.

Each model is fitted for a few epochs on the training part of a dataset (5-core, the newest event of
each user held out), plain and with both `recency` and `half_life`, in turn, on one thread. Seconds
are those of the processor, which does not count what else the machine does; medians of all turns.
The bar is 1.10. EASE cannot reach it on few items: its targets are not its inputs any more, so that
two sparse products come on top of the inverse.

Run: python benchmarks/weights.py [--data movietweetings] [--models NAME ...] [--epochs 10]
    [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from _turns import in_turn, use_one_thread
from transcf import available, create, k_core, leave_one_out, open_data
from transcf.data.interactions import Interactions
from transcf.models.registry import model_class

OFF: dict[str, Any] = {"recency": 0.0, "half_life": None}
#: Half-lives are days where times are dates, else a share of the events.
RECENCY, DAYS, SHARE = 2.0, 365.0, 0.25


def contestants(name: str, log: Interactions, epochs: int) -> dict[str, Callable[[], object]]:
    """Fits without and with weights."""
    short = {"epochs": epochs} if model_class(name)._has_epochs() else {}
    weights = {"recency": RECENCY, "half_life": DAYS if log.times_are_dates else SHARE}

    def fit(settings: dict[str, Any]) -> None:
        create(name, **short, **settings).fit(log)

    return {"plain": partial(fit, OFF), "weighted": partial(fit, weights)}


def main() -> None:
    weighing = [name for name in available() if "recency" in model_class(name)._rules()]
    # Variants of a model share its solver.
    weighing = [name for name in weighing if name == next(iter(model_class(name)._variants))]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="movietweetings")
    parser.add_argument("--models", nargs="+", default=weighing, metavar="NAME")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    log = leave_one_out(k_core(open_data(options.data), 5, 5)).train
    if not options.json:
        print(f"{options.data}: {log.n_users} users, {log.n_items} items, {len(log)} events")
        print(f"{'model':<12}{'plain, s':>12}{'weighted, s':>14}{'ratio':>8}")
    found = {}
    for name in options.models:
        sides = contestants(name, log, options.epochs)
        seconds = in_turn(sides, options.repeats, clock=time.process_time)
        found[name] = seconds | {"ratio": seconds["weighted"] / seconds["plain"]}
        if not options.json:
            plain, weighted, ratio = found[name].values()
            print(f"{name:<12}{plain:>12.3f}{weighted:>14.3f}{ratio:>8.2f}", flush=True)
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    use_one_thread()
    main()
