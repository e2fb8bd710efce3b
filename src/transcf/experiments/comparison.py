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
        failures: Why a model is not among them, by name; the last one may be an interruption.
    """

    dataset: str
    judging: Judging
    metric: str
    runs: Sequence[Run]
    failures: Mapping[str, BaseException] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody ended it before all models were run."""
        return any(isinstance(error, KeyboardInterrupt) for error in self.failures.values())

    @cached_property
    def summaries(self) -> dict[str, dict[str, dict[str, float]]]:
        """`mean`, `sd` and `se` of every metric of every model."""
        return {done.name: done.summary() for done in self.runs}

    @cached_property
    def tests(self) -> pl.DataFrame:
        """Paired tests of all pairs, on the figures of single users averaged over seeds."""
        if len(self.runs) < 2:
            return pl.DataFrame()
        return compare([done.averaged() for done in self.runs], self.metric)

    def best(self, metric: str) -> str:
        """Return the model with the largest mean."""
        return max((found[metric]["mean"], name) for name, found in self.summaries.items())[1]

    @cached_property
    def p_values(self) -> dict[str, float]:
        """Each other model against the best: Wilcoxon, corrected for the number of these tests."""
        if self.tests.is_empty():
            return {}
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
            "best": self.best(self.metric) if self.runs else None,
            "ties": self.ties,
            "models": [done.to_dict() for done in self.runs],
            "failures": {name: str(error) for name, error in self.failures.items()},
            "tests": self.tests.to_dicts(),
        }


def run_all(
    contenders: Iterable[Contender],
    split: Split,
    judging: Judging,
    seeds: Sequence[int],
    say: Say | None = None,
) -> tuple[list[Run], dict[str, BaseException]]:
    """Run contenders; one that fails does not stop the others, an interruption does.

    Returns:
        The runs, and why others are missing, by name.
    """
    runs: list[Run] = []
    failures: dict[str, BaseException] = {}
    for contender in contenders:
        try:
            runs.append(run(contender, split, judging, seeds, say))
        except TransCFError as error:
            failures[contender.name] = error
        except KeyboardInterrupt:
            words = "interrupted here, and nothing after it was run."
            failures[contender.name] = KeyboardInterrupt(words)
            break
    return runs, failures


def compare_models(
    dataset: str,
    contenders: Iterable[Contender],
    split: Split,
    judging: Judging,
    metric: str,
    seeds: Sequence[int] = (0,),
    say: Say | None = None,
) -> Comparison:
    """Run all contenders; what failed or was interrupted is noted beside what is there.

    Args:
        dataset: Name of the data, for the report.
        contenders: At least one.
        split: Where they are fitted and judged.
        judging: How.
        metric: What the paired tests look at.
        seeds: Runs of every model that a seed changes.
        say: Told about every step.

    Raises:
        TransCFError: None could be run; the reason of the first failure.

    Example:
        >>> contenders = [Contender(name, name) for name in ("ease", "bpr")]  # doctest: +SKIP
        >>> compare_models("mine", contenders, split, Judging("strict"), "N@10")  # doctest: +SKIP
    """
    runs, failures = run_all(contenders, split, judging, seeds, say)
    if failures and not runs:
        raise next(iter(failures.values()))
    return Comparison(dataset, judging, metric, runs, failures)
