"""Transition counts in the mixture: metrics with the chosen strength and without counts.

A model with default settings is fitted, and refitted where the protocol says so. It is evaluated as
it is and, with the same vectors and trend, without its counts. `seconds` is processor time: of the
fit, and of the choice of the strength in it. Runs are added to a file, one for each dataset,
protocol and seed; those that it has are replaced.

Run: python benchmarks/transitions.py DATA PROTOCOL [--core 5] [--seed 0] [--model transcf-mixture]
    [--out docs/results/transitions.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from transcf import Recommender, create, evaluate, k_core, open_data
from transcf.data.splitters import split_log
from transcf.models.mixture import model as mixture
from transcf.models.mixture.fitted import Mixture
from transcf.models.trend import WithItemOffsets
from transcf.protocols import protocol_named

METRICS = ("HitRate@10", "NDCG@10")


@contextmanager
def timed_choice(spent: list[float]) -> Iterator[None]:
    """Note the processor time of the choice of the strength."""
    choose = mixture.with_transitions

    def timed(*given: Any) -> Any:
        started = time.process_time()
        learned = choose(*given)
        spent.append(time.process_time() - started)
        return learned

    with patch.object(mixture, "with_transitions", timed):
        yield


def without_counts(model: Recommender[Any]) -> None:
    """Remove the transition counts of a fitted model."""
    learned = model.learned_
    own = learned.inner if isinstance(learned, WithItemOffsets) else learned
    assert isinstance(own, Mixture), "a mixture"
    bare = own.changed(transitions=None)
    is_shifted = isinstance(learned, WithItemOffsets)
    model.learned_ = WithItemOffsets(bare, learned.offset, learned.trend) if is_shifted else bare


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Fit and evaluate once."""
    log, spent = open_data(options.data), list[float]()
    split = split_log(
        k_core(log, options.core, options.core) if options.core else log, options.protocol
    )
    started = time.process_time()
    model = create(options.model)
    if "random_state" in model.get_params():
        model.set_params(random_state=options.seed)
    with timed_choice(spent):
        model.fit(split.train, split.validation)
        seconds = time.process_time() - started
        chosen = {name: model.report_.get(name) for name in ("transitions", "trend")}
        if protocol_named(options.protocol).refit:
            model.refit(split.before_test)

    def metrics() -> dict[str, float]:
        found = evaluate(model, split, options.protocol, k=(10,)).metrics
        return {name: found[name].mean for name in METRICS}

    result: dict[str, Any] = {"with": metrics()}
    if spent:
        without_counts(model)
        result["without"] = metrics()
        result["seconds"] = {"fit": round(seconds, 1), "choice": round(spent[0], 1)}
    keys = {name: getattr(options, name) for name in ("data", "protocol", "core", "seed", "model")}
    command = f"python benchmarks/transitions.py {' '.join(sys.argv[1:])}"
    return keys | {"command": command, "chosen": chosen} | result


def main() -> None:
    """Run and store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("protocol")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="transcf-mixture")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options)
    print(json.dumps(found, indent=1))
    if options.out is not None:
        keys = ("data", "protocol", "core", "seed", "model")
        stored = json.loads(options.out.read_text()) if options.out.exists() else []
        runs = {tuple(entry[key] for key in keys): entry for entry in [*stored, found]}
        text = json.dumps([runs[key] for key in sorted(runs)], indent=1)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
