"""Several models on one split: who is best, and who cannot be told apart from the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from transcf.data.split import Split
from transcf.errors import TransCFError
from transcf.evaluation import compare
from transcf.evaluation.significance import holm
from transcf.experiments.judging import Judging
from transcf.experiments.runs import Contender, Run, Say, run

#: Always in a table: what a figure is worth shows only beside these.
FLOOR = ("popularity", "inverse-popularity", "random")
#: Below this, a difference is called one.
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on the same split by the same rules.

    Attributes:
        dataset: Name of the data.
        judging: The rules.
        metric: What the paired tests look at.
        runs: One for each model, in the order they were asked for.
        failures: Why a model is not among them, by name.
    """

    dataset: str
    judging: Judging
    metric: str
    runs: Sequence[Run]
    failures: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def summaries(self) -> dict[str, dict[str, dict[str, float]]]:
        """`mean`, `sd` and `se` of every metric of every model."""
        return {done.name: done.summary() for done in self.runs}

    @cached_property
    def tests(self) -> pl.DataFrame:
        """Paired tests of all pairs, on the figures of single users averaged over seeds."""
        return compare([done.averaged() for done in self.runs], self.metric)

    def best(self, metric: str) -> str:
        """Return the model with the largest mean."""
        return max((found[metric]["mean"], name) for name, found in self.summaries.items())[1]

    @cached_property
    def p_values(self) -> dict[str, float]:
        """Each other model against the best: Wilcoxon, corrected for the number of these tests."""
        winner = self.best(self.metric)
        is_a, is_b = pl.col("model_a") == winner, pl.col("model_b") == winner
        tests = self.tests.filter(is_a | is_b)
        rivals = tests.select(pl.when(is_a).then("model_b").otherwise("model_a")).to_series()
        return dict(zip(rivals, holm(tests["p_wilcoxon"].to_numpy()).tolist(), strict=True))

    @property
    def ties(self) -> list[str]:
        """Models that the paired test cannot tell apart from the best one."""
        return [name for name, p in self.p_values.items() if p >= LEVEL]

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dataset": self.dataset,
            "metric": self.metric,
            "best": self.best(self.metric),
            "ties": self.ties,
            "models": [done.to_dict() for done in self.runs],
            "failures": dict(self.failures),
            "tests": self.tests.to_dicts(),
        }


def compare_models(
    dataset: str,
    contenders: Iterable[Contender],
    split: Split,
    judging: Judging,
    metric: str,
    seeds: Sequence[int] = (0,),
    say: Say | None = None,
) -> Comparison:
    """Run all contenders; one that fails is noted down and does not stop the others.

    An interruption ends it with what is there.

    Args:
        dataset: Name of the data, for the report.
        contenders: At least two.
        split: Where they are fitted and judged.
        judging: How.
        metric: What the paired tests look at.
        seeds: Runs of every model that a seed changes.
        say: Told about every step.

    Raises:
        TransCFError: Fewer than two could be run; the reason of the first failure.

    Example:
        >>> contenders = [Contender(name, name) for name in ("ease", "bpr")]  # doctest: +SKIP
        >>> compare_models("mine", contenders, split, Judging("strict"), "N@10")  # doctest: +SKIP
    """
    runs: list[Run] = []
    failures: dict[str, str] = {}
    first_failure: BaseException | None = None
    for contender in contenders:
        try:
            runs.append(run(contender, split, judging, seeds, say))
        except TransCFError as error:
            failures[contender.name] = str(error)
            first_failure = first_failure or error
        except KeyboardInterrupt as error:
            failures[contender.name] = "interrupted here, and nothing after it was run."
            first_failure = first_failure or error
            break
    if first_failure is not None and len(runs) < 2:
        raise first_failure
    return Comparison(dataset, judging, metric, runs, failures)
