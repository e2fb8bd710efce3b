"""What an evaluation found, with its uncertainty, and paired tests of differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.report import counted
from transcf.errors import EvaluationError
from transcf.evaluation.metrics import Floats


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
        columns = {each.name: each.to_numpy() for each in self.per_user.drop("user_id")}
        return {
            name: Estimate(float(values.mean()), _standard_error(values))
            for name, values in columns.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON form, without the figures of single users."""
        names = ("model", "protocol", "ties", "subset", "split", "users", "skipped")
        about = {name: getattr(self, name) for name in names}
        about["metrics"] = {name: asdict(estimate) for name, estimate in self.metrics.items()}
        about["catalogue"] = self.catalogue
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
    check_same_users(evaluations)
    first, n = evaluations[0], len(evaluations)
    tables = [e.per_user.drop("user_id") for e in evaluations]
    per_user = (sum(tables[1:], start=tables[0]) / n).insert_column(0, first.per_user["user_id"])
    catalogue = {name: sum(e.catalogue[name] for e in evaluations) / n for name in first.catalogue}
    return replace(first, model=model_name, per_user=per_user, catalogue=catalogue)


def check_same_users(evaluations: Sequence[Evaluation]) -> None:
    """Raise unless all evaluations are of the same users, in the same order, by one protocol."""
    if not evaluations:
        raise EvaluationError("There are no evaluations to summarize.")
    first, rules = evaluations[0], attrgetter("protocol", "subset", "ties")
    for other in evaluations[1:]:
        same_users = first.per_user["user_id"].equals(other.per_user["user_id"])
        if not same_users or rules(first) != rules(other):
            raise EvaluationError(
                f"{first.model} and {other.model} were not evaluated on the same users by the same "
                "protocol: evaluate both on one split before putting them together."
            )


def number_repeats(names: Iterable[str]) -> list[str]:
    """Tell models of the same name apart by numbers."""
    listed = list(names)
    return [
        f"{name} ({listed[: place + 1].count(name)})" if listed.count(name) > 1 else name
        for place, name in enumerate(listed)
    ]


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


# -- paired tests over users -----------------------------------------------------------------


#: Below this, a difference is called one.
LEVEL = 0.05
#: Samples of a bootstrap, and the percentage beyond each end of its interval.
_RESAMPLES, _TAIL = 10_000, 100 * (1 - 0.95) / 2
#: Numbers that bootstrap draws may take up at once.
_DRAWS_AT_ONCE = 4_000_000
#: Drawing how often a line comes up costs as much as drawing so many users.
_COST_OF_A_KIND = 10
#: What means of equal figures may differ by.
_SLACK = 1e-12
_TEST_COLUMNS = (
    "model_a", "model_b", "metric", "users", "mean_a", "mean_b", "difference", "ci_low", "ci_high",
    "p_bootstrap", "p_wilcoxon",
)  # fmt: skip


def paired_tests(
    results: Sequence[Evaluation], metric: str = "NDCG@10", *, random_state: int = 0
) -> pl.DataFrame:
    """Test the differences of models, pair by pair, on the same users.

    Args:
        results: Evaluations under the same rules on the same users.
        metric: A metric that each user has a value of.
        random_state: Seed of the bootstrap, of 10,000 samples of users, the same for all pairs.

    Returns:
        A line for each pair: `model_a, model_b, metric, users, mean_a, mean_b, difference` (a
        minus b), `ci_low, ci_high` (95 %, percentile bootstrap), `p_bootstrap` and `p_wilcoxon`
        (both two-sided), and `p_bootstrap_holm, p_holm`, these two corrected for the number of
        pairs by Holm's method (`p_holm` is the Wilcoxon test's).

    Raises:
        EvaluationError: Results do not pair: other rules, metrics or users.

    Example:
        >>> from transcf import EASE, Popularity, evaluate, open_split
        >>> split = open_split("synthetic")
        >>> models = [EASE().fit(split.train), Popularity().fit(split.train)]
        >>> tests = paired_tests([evaluate(model, split) for model in models], "NDCG@10")
        >>> tests.select("model_a", "model_b", pl.col("p_holm") < 0.05).row(0)
        ('ease', 'popularity', True)
    """
    _check(results, metric)
    columns = [result.per_user[metric].to_numpy().astype(np.float64) for result in results]
    values = np.stack(columns, axis=1)
    names = number_repeats(result.model for result in results)
    means = values.mean(axis=0)
    drawn = resampled_means(values, _RESAMPLES, random_state)
    lines = []
    for a, b in combinations(range(len(results)), 2):
        differences = columns[a] - columns[b]
        mean = float(differences.mean())
        interval_and_p = bootstrap(drawn[:, a] - drawn[:, b], mean)
        about = (names[a], names[b], metric, len(differences), float(means[a]), float(means[b]))
        lines.append((*about, mean, *interval_and_p, _wilcoxon(differences)))
    table = pl.DataFrame(lines, _TEST_COLUMNS, orient="row")
    return table.with_columns(
        pl.Series("p_bootstrap_holm", holm(table["p_bootstrap"].to_numpy())),
        pl.Series("p_holm", holm(table["p_wilcoxon"].to_numpy())),
    )


def holm(p_values: npt.ArrayLike) -> Floats:
    """Correct p-values for their number by Holm's step-down method."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def bootstrap(drawn: Floats, mean: float) -> tuple[float, float, float]:
    """Bootstrap interval (95 %) of a mean difference and two-sided p-value, by resampling users.

    `drawn` are the differences in the samples, `mean` is the one that was found. The p-value is the
    share of samples whose mean, moved to be centred at zero, is at least as far from it as `mean`
    (which counts as a sample, so it is never 0).
    """
    low, high = np.percentile(drawn, [_TAIL, 100 - _TAIL])
    # A hair of slack: equal sums may differ in their last bits.
    far = np.abs(drawn - mean) >= abs(mean) - _SLACK
    return float(low), float(high), float((1 + far.sum()) / (1 + len(drawn)))


def resampled_means(values: Floats, resamples: int, seed: int = 0) -> Floats:
    """Return means (resamples, models) of samples of users, the same ones for all models.

    Users with the same values are interchangeable, so that it is enough to draw how often each
    distinct line comes up; of a few models at N there are few of them.
    """
    distinct, kind, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    rng, n, kinds = np.random.default_rng(seed), len(values), len(distinct)
    means = np.empty((resamples, values.shape[1]))
    step = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if kinds * _COST_OF_A_KIND < n:
            times = rng.multinomial(n, counts / n, size)
        else:
            users = kind.ravel()[rng.integers(n, size=(size, n))] + kinds * np.arange(size)[:, None]
            times = np.bincount(users.ravel(), minlength=size * kinds).reshape(size, kinds)
        means[start : start + size] = times @ distinct / n
    return means


def _wilcoxon(differences: Floats) -> float:
    """Two-sided signed-rank test; users without a difference do not take part."""
    from scipy.stats import wilcoxon  # imported here: it takes most of a second

    apart = differences[differences != 0]
    return float(wilcoxon(apart).pvalue) if len(apart) else 1.0


def _check(results: Sequence[Evaluation], metric: str) -> None:
    if len(results) < 2:
        raise EvaluationError(f"Paired tests need at least two results, not {len(results)}.")
    check_same_users(results)
    known = [name for name in results[0].metrics if all(name in r.metrics for r in results)]
    if metric not in known:
        raise EvaluationError(
            f"The results have no metric {metric!r} for each user; they have: {', '.join(known)}."
        )
