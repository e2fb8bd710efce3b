"""Is the difference more than luck? Paired tests over users."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import EvaluationError, ParameterError, shown
from transcf.evaluation.results import Evaluation, check_same_users, number_repeats

Floats: TypeAlias = npt.NDArray[np.float64]

#: Below this, a difference is called one.
LEVEL = 0.05
#: Numbers that bootstrap draws may take up at once.
_DRAWS_AT_ONCE = 4_000_000
#: Drawing how often a line comes up costs as much as drawing so many users.
_COST_OF_A_KIND = 10
#: What means of equal figures may differ by.
_SLACK = 1e-12


def paired_tests(
    results: Sequence[Evaluation],
    metric: str = "NDCG@10",
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    random_state: int = 0,
) -> pl.DataFrame:
    """Test the differences of models, pair by pair, on the same users.

    Args:
        results: Evaluations under the same rules on the same users.
        metric: A metric that each user has a value of.
        resamples: Bootstrap samples of users, the same for all pairs.
        confidence: Level of the interval.
        random_state: Seed of the bootstrap.

    Returns:
        A line for each pair: `model_a, model_b, metric, users, mean_a, mean_b, difference` (a
        minus b), `ci_low, ci_high` (percentile bootstrap), `p_bootstrap` and `p_wilcoxon` (both
        two-sided), and `p_bootstrap_holm, p_holm`, these two corrected for the number of pairs by
        Holm's method (`p_holm` is the Wilcoxon test's).

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
    _check(results, metric, resamples, confidence)
    columns = [result.per_user[metric].to_numpy().astype(np.float64) for result in results]
    values = np.stack(columns, axis=1)
    names = number_repeats(result.model for result in results)
    means = values.mean(axis=0)
    drawn = resampled_means(values, resamples, random_state)
    lines = []
    for a, b in combinations(range(len(results)), 2):
        differences = columns[a] - columns[b]
        difference = float(differences.mean())
        low, high, p_bootstrap = bootstrap(drawn[:, a] - drawn[:, b], difference, confidence)
        lines.append(
            {
                "model_a": names[a],
                "model_b": names[b],
                "metric": metric,
                "users": len(differences),
                "mean_a": float(means[a]),
                "mean_b": float(means[b]),
                "difference": difference,
                "ci_low": low,
                "ci_high": high,
                "p_bootstrap": p_bootstrap,
                "p_wilcoxon": _wilcoxon(differences),
            }
        )
    table = pl.DataFrame(lines)
    return table.with_columns(
        pl.Series("p_bootstrap_holm", holm(table["p_bootstrap"].to_numpy())),
        pl.Series("p_holm", holm(table["p_wilcoxon"].to_numpy())),
    )


def holm(p_values: npt.ArrayLike) -> Floats:
    """Correct p-values for their number by Holm's step-down method.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
        [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def bootstrap(drawn: Floats, mean: float, confidence: float = 0.95) -> tuple[float, float, float]:
    """Interval of a mean difference and a two-sided p-value, of samples of users drawn anew.

    The p-value is the share of samples whose mean, moved to be centred at zero, is at least as
    far from it as the mean that was found (the found one counts as a sample, so it is never 0).

    Args:
        drawn: (resamples,) differences of means in the samples.
        mean: The difference that was found.
        confidence: Level of the interval.
    """
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    # A hair of slack: equal sums may differ in their last bits.
    far = np.abs(drawn - mean) >= abs(mean) - _SLACK
    return float(low), float(high), float((1 + far.sum()) / (1 + len(drawn)))


def resampled_means(values: Floats, resamples: int, seed: int = 0) -> Floats:
    """Means of samples of users drawn with replacement, the same users for all models.

    Users with the same values are interchangeable, so that it is enough to draw how often each
    distinct line comes up; of a few models at N there are few of them.

    Args:
        values: (users, models).
        resamples: How many samples.
        seed: Of the draws.

    Returns:
        (resamples, models).
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
    from scipy.stats import wilcoxon

    apart = differences[differences != 0]
    return float(wilcoxon(apart).pvalue) if len(apart) else 1.0


def _check(results: Sequence[Evaluation], metric: str, resamples: int, confidence: float) -> None:
    if len(results) < 2:
        raise EvaluationError(f"Paired tests need at least two results, not {len(results)}.")
    check_same_users(results)
    known = [name for name in results[0].metrics if all(name in r.metrics for r in results)]
    if metric not in known:
        raise EvaluationError(
            f"The results have no metric {metric!r} for each user; they have: {', '.join(known)}."
        )
    if resamples < 1:
        raise ParameterError(f"resamples={shown(resamples)} is not allowed; it must be at least 1.")
    if not 0 < confidence < 1:
        raise ParameterError(
            f"confidence={shown(confidence)} is not allowed; it must be between 0 and 1."
        )
