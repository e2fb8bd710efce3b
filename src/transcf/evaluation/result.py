"""`Evaluation`: what came out, for whom, under which rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import EvaluationError

#: What `paper-as-published` figures are, wherever they are shown.
OPTIMISTIC_NOTE = "Optimistic: for each metric the best test value over all epochs."


class Estimate(NamedTuple):
    """A mean over users with its standard error (NaN where there is none)."""

    mean: float
    se: float

    @classmethod
    def over_users(cls, values: npt.NDArray[np.float64]) -> Estimate:
        """Mean of (n_users,) values; the error is their sample deviation / sqrt(n)."""
        n = len(values)
        se = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return cls(float(values.mean()), se)

    def __str__(self) -> str:
        """Mean and standard error to four digits."""
        return f"{self.mean:.4f}" + ("" if math.isnan(self.se) else f" ± {self.se:.4f}")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The outcome of judging one model on one part of a split.

    Attributes:
        model: Name of the model.
        protocol: "strict", "paper" or "paper-as-published".
        part: "test" or "validation".
        ties: How equal scores were counted.
        users: Number of evaluated users.
        skipped: What was left out, and how many of it.
        per_user: Table `user_id` and a column for each metric that users have one by one.
        metrics: Mean and standard error of each metric; `coverage@N` has no error.
        epochs: Epochs that the figures were picked from (1 except in "paper-as-published").

    Example:
        >>> evaluate(model, split).metrics["N@10"].mean  # doctest: +SKIP
        0.0824
    """

    model: str
    protocol: str
    part: str
    ties: str
    users: int
    skipped: dict[str, int]
    per_user: pl.DataFrame
    metrics: dict[str, Estimate]
    epochs: int = 1

    @property
    def note(self) -> str | None:
        """A warning that has to stand beside the figures, if there is one."""
        return OPTIMISTIC_NOTE if self.protocol == "paper-as-published" else None

    def to_dict(self) -> dict[str, Any]:
        """JSON form, without the table of users."""
        return {
            "model": self.model,
            "protocol": self.protocol,
            "part": self.part,
            "ties": self.ties,
            "users": self.users,
            "skipped": dict(self.skipped),
            "epochs": self.epochs,
            "note": self.note,
            "metrics": {
                name: {"mean": value.mean, "se": _known(value.se)}
                for name, value in self.metrics.items()
            },
        }

    def __repr__(self) -> str:
        """One line with the first figures."""
        shown = ", ".join(f"{name} {v.mean:.4f}" for name, v in list(self.metrics.items())[:4])
        return (
            f"Evaluation({self.model}, {self.protocol}, {self.part}, {self.ties} ties, "
            f"{self.users:,} users: {shown})"
        )

    def __str__(self) -> str:
        """A small table."""
        lines = [f"{self.model}: {self.protocol} protocol, {self.part}, {self.ties} ties"]
        if self.note:
            lines.append(self.note)
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
        lines.append(f"{self.users:,} users evaluated; skipped: {left_out or 'nothing'}")
        lines += [f"  {name:<14} {value}" for name, value in self.metrics.items()]
        return "\n".join(lines)


def summarize_seeds(results: Sequence[Evaluation]) -> dict[str, dict[str, float | None]]:
    """Put evaluations of one model under several seeds together.

    Returns:
        For each metric: `mean` over seeds; `sd`, the sample deviation over seeds (None for a
        single one); `se`, the standard error over users of their seed-averaged values, which says
        how far the mean could be off for other users of the same kind (None where a metric has
        no value for each user, or there is a single user).

    Raises:
        EvaluationError: The results are not of one model under the same rules and users.
    """
    check_pairing(results)
    if len({result.model for result in results}) > 1:
        raise EvaluationError("Seeds can only be put together for one model at a time.")
    summary: dict[str, dict[str, float | None]] = {}
    for name in results[0].metrics:
        means = np.array([result.metrics[name].mean for result in results])
        sd = float(means.std(ddof=1)) if len(results) > 1 else None
        se = None
        if name in results[0].per_user.columns:
            values = np.mean([r.per_user[name].to_numpy() for r in results], axis=0)
            se = _known(Estimate.over_users(values).se)
        summary[name] = {"mean": float(means.mean()), "sd": sd, "se": se}
    return summary


def check_pairing(results: Sequence[Evaluation]) -> None:
    """Raise an `EvaluationError` unless results have the same rules, metrics and users."""
    if not results:
        raise EvaluationError("There are no results to put together.")
    first = results[0]
    for other in results[1:]:
        for rule in ("protocol", "part", "ties"):
            mine, theirs = getattr(first, rule), getattr(other, rule)
            if mine != theirs:
                raise EvaluationError(
                    f"{first.model} was evaluated with {rule} {mine!r} and {other.model} with "
                    f"{theirs!r}: evaluate both alike."
                )
        if list(first.metrics) != list(other.metrics):
            raise EvaluationError(
                f"{first.model} and {other.model} have different metrics: evaluate both at the "
                "same lengths."
            )
        if not first.per_user["user_id"].equals(other.per_user["user_id"]):
            raise EvaluationError(
                f"{first.model} and {other.model} were evaluated for different users "
                f"({first.users:,} and {other.users:,}): evaluate both on the same split."
            )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
