"""What an evaluation found, with its uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from transcf.data.report import counted
from transcf.errors import EvaluationError


@dataclass(frozen=True)
class Estimate:
    """A mean over users and its standard error."""

    mean: float
    se: float

    def __str__(self) -> str:
        """Mean and standard error to four digits."""
        return f"{self.mean:.4f} ± {self.se:.4f}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How a model ranked the held-out items.

    Attributes:
        model: Name of the model.
        protocol: Name of the protocol.
        ties: How equal scores were counted.
        subset: "validation" or "test".
        per_user: Table `user_id` and one column per metric.
        skipped: How many users or items were left out, by reason.
        catalogue: Figures of what is recommended, not of single users: "coverage@N" (share of
            the items that can be ranked), "popularity@N" (mean training interactions), and on
            request "gini@N" (0 if all items come up equally often).
        note: A warning that belongs to the figures, or nothing.
        split: What was held out, in words, as `Split.how` has it.
    """

    model: str
    protocol: str
    ties: str
    subset: str
    per_user: pl.DataFrame
    skipped: dict[str, int] = field(default_factory=dict)
    catalogue: dict[str, float] = field(default_factory=dict)
    note: str = ""
    split: str = "not said"

    @property
    def users(self) -> int:
        """Number of evaluated users."""
        return len(self.per_user)

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Mean and standard error of every metric."""
        found = {}
        for name in self.per_user.columns:
            if name != "user_id":
                values = self.per_user[name].to_numpy()
                found[name] = Estimate(float(values.mean()), _standard_error(values))
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON form, without the figures of single users."""
        metrics = {name: {"mean": e.mean, "se": e.se} for name, e in self.metrics.items()}
        about = {
            "model": self.model,
            "protocol": self.protocol,
            "ties": self.ties,
            "subset": self.subset,
            "split": self.split,
            "users": self.users,
            "skipped": self.skipped,
            "metrics": metrics,
            "catalogue": self.catalogue,
        }
        return about | ({"note": self.note} if self.note else {})

    def __str__(self) -> str:
        """A heading, one line per metric, and what was held out."""
        lines = [
            f"{self.model}: {self.protocol}, {self.subset}, {counted(self.users, 'user')}, "
            f"{self.ties} ties"
        ]
        width = max(map(len, [*self.metrics, *self.catalogue]), default=0)
        lines += [f"  {name:<{width}} {estimate}" for name, estimate in self.metrics.items()]
        lines += [f"  {name:<{width}} {value:.4g}" for name, value in self.catalogue.items()]
        lines += [f"  (± standard error over users; held out: {self.split})"]
        return "\n".join(lines + ([f"  ({self.note})"] if self.note else []))

    __repr__ = __str__


def summarize_seeds(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, float]]:
    """Put runs with several seeds together.

    Returns:
        For each metric `mean` (over seeds and users), `sd` (spread of the seeds' means, 0 for a
        single seed) and `se` (standard error over users of the user's mean over seeds: what
        another sample of users would change, however many seeds are run).
    """
    if not evaluations:
        raise EvaluationError("There are no evaluations to summarize.")
    check_same_users(evaluations)
    summary = {}
    for name in evaluations[0].metrics:
        values = np.stack([e.per_user[name].to_numpy() for e in evaluations])
        of_seeds = values.mean(axis=1)
        summary[name] = {
            "mean": float(of_seeds.mean()),
            "sd": float(of_seeds.std(ddof=1)) if len(evaluations) > 1 else 0.0,
            "se": _standard_error(values.mean(axis=0)),
        }
    return summary


def average_seeds(evaluations: Sequence[Evaluation], model_name: str) -> Evaluation:
    """Average runs with several seeds, user by user, into one evaluation under a name."""
    if not evaluations:
        raise EvaluationError("There are no evaluations to average.")
    check_same_users(evaluations)
    first, n = evaluations[0], len(evaluations)
    tables = [e.per_user.drop("user_id") for e in evaluations]
    per_user = (sum(tables[1:], start=tables[0]) / n).insert_column(0, first.per_user["user_id"])
    catalogue = {name: sum(e.catalogue[name] for e in evaluations) / n for name in first.catalogue}
    return replace(first, model=model_name, per_user=per_user, catalogue=catalogue)


def check_same_users(evaluations: Sequence[Evaluation]) -> None:
    """Raise unless all evaluations are of the same users, in the same order, by one protocol."""
    first = evaluations[0]
    for other in evaluations[1:]:
        alike = (first.protocol, first.subset, first.ties) == (
            other.protocol,
            other.subset,
            other.ties,
        )
        if not alike or not first.per_user["user_id"].equals(other.per_user["user_id"]):
            raise EvaluationError(
                f"{first.model} and {other.model} were not evaluated on the same users by the same "
                "protocol: evaluate both on one split before putting them together."
            )


def number_repeats(names: Iterable[str]) -> list[str]:
    """Tell models of the same name apart by numbers.

    Example:
        >>> number_repeats(["ease", "bpr", "ease"])
        ['ease (1)', 'bpr', 'ease (2)']
    """
    listed = list(names)
    total, so_far = Counter(listed), Counter[str]()
    labels = []
    for name in listed:
        so_far[name] += 1
        labels.append(f"{name} ({so_far[name]})" if total[name] > 1 else name)
    return labels


def _standard_error(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
