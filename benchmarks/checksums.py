"""Checksums of what every model learns in a short fit, to see what a change has moved.

The seed is fixed. Two datasets, one without times and one with: the authors' training part of
Delicious, and that of MovieLens latest-small (5-core, newest event of each user held out). For
each model all arrays that its files hold, the top 10 of fifty users ("top"), and that of somebody
with a history of six items ("guest"). The same on one machine for any number of threads; other
processors may round otherwise.

Run: python benchmarks/checksums.py [--models NAME ...] [--json] [--against FILE.json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from transcf import available, create, k_core, leave_one_out, open_data
from transcf.data.catalog import load_split
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.models.recommender import Recommender

SHORT = {"epochs": 2, "random_state": 7}
USERS, HISTORY, K = 50, 6, 10


def logs() -> dict[str, Interactions]:
    """What to learn from, by name."""
    films = leave_one_out(k_core(open_data("ml-latest-small"), 5, 5))
    return {"delicious": load_split("delicious").train, "ml-latest-small": films.train}


def checksum(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def learn(name: str, log: Interactions) -> Recommender:
    known = create(name).get_params()
    return create(name, **{key: SHORT[key] for key in SHORT if key in known}).fit(log)


def arrays_of(model: Recommender, log: Interactions) -> Iterator[tuple[str, Array]]:
    """Return all arrays of a model, and some of its answers as item rows."""
    yield from sorted(model.learned_.arrays().items())
    lists = model.recommend(log.users.series[:USERS], k=K)
    yield "top", log.items.rows(lists["item_id"])
    history = log.items.ids(log.by_user.row(3)[::-1]).to_list()[:HISTORY]
    yield "guest", log.items.rows(model.recommend_for(history, k=K)["item_id"])


def differences(found: dict[str, str], before: dict[str, str]) -> list[str]:
    """Name what is not as it was; models that were not asked for now do not count."""
    asked = {entry.split()[0] for entry in found}
    before = {entry: value for entry, value in before.items() if entry.split()[0] in asked}
    lines = []
    for entry in before | found:
        if entry not in found:
            lines.append(f"gone:      {entry}")
        elif entry not in before:
            lines.append(f"new:       {entry}")
        elif found[entry] != before[entry]:
            lines.append(f"different: {entry}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=available(), metavar="NAME")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, help="an earlier list, written with --json")
    options = parser.parse_args()
    found: dict[str, str] = {}
    data = logs()
    for name in options.models:
        for dataset, log in data.items():
            try:
                model = learn(name, log)
            except DataError as error:  # some look at links or categories, which these have not
                print(f"{name} is left out on {dataset}: {error}", file=sys.stderr)
                continue
            for what, array in arrays_of(model, log):
                found[f"{name} {dataset} {what}"] = checksum(array)
    if options.json:
        print(json.dumps(found, indent=1))
    elif options.against is None:
        for entry, value in found.items():
            print(f"{value}  {entry}")
    if options.against is not None:
        lines = differences(found, json.loads(options.against.read_text()))
        told = lines or [f"All {len(found)} checksums are as they were."]
        print("\n".join(told), file=sys.stderr if options.json else sys.stdout)
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
