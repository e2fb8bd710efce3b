"""The tables of TransCF's paper, run again: which studies they are, and how ours compare.

What is compared stands in `studies/reproduce-*.toml`; here is how much of it a budget runs, and
what is said beside the printed figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import mean
from typing import Any, Self

from transcf.errors import ParameterError, is_word, shown
from transcf.evaluation.significance import LEVEL
from transcf.experiments.comparison import Comparison
from transcf.experiments.report import stored_note
from transcf.experiments.results import Outcome, facts_of
from transcf.experiments.run_result import CandidateResult
from transcf.experiments.study import Study, load_study
from transcf.legend import ERROR, legend
from transcf.pages import Table

#: The tables that can be run.
TABLES = ("performance", "regularizers", "ablations")
#: Trials of every model that has something to choose, and seeds, by the name of the budget.
BUDGETS = {"quick": (4, 2), "full": (20, 5)}
#: How many standard errors tell a printed figure from ours.
_FAR = 1.96


def load_table(
    name: str,
    budget: str = "full",
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    seeds: int | None = None,
) -> Study:
    """Return the study behind a table of the paper.

    Args:
        name: One of `TABLES`.
        budget: One of `BUDGETS`.
        datasets: Which of its datasets; all unless given.
        models: Which of its models, by the names in its table; all unless given.
        protocols: By which protocols; those of the study unless given.
        seeds: How many, where not as many as the budget says.

    Example:
        >>> study = load_table("performance", "quick", datasets=["delicious"])
        >>> study.seeds, len(study.models)
        (2, 19)
    """
    for what, word, words in (("table", name, TABLES), ("budget", budget, BUDGETS)):
        if not is_word(word, words):
            raise ParameterError(f"There is no {what} {shown(word)}: use {', '.join(words)}.")
    study = load_study(f"reproduce-{name}").only(datasets, models)
    trials, usual_seeds = BUDGETS[budget]
    return replace(
        study,
        seeds=seeds or usual_seeds,
        budget=_of_trials(study.budget, trials),
        models=tuple(replace(m, budget=_of_trials(m.budget, trials)) for m in study.models),
        datasets=tuple(
            replace(d, protocols=list(d.protocols if protocols is None else protocols))
            for d in study.datasets
        ),
    )


def _of_trials(budget: Any, trials: int) -> Any:
    """Set the number of trials where a budget says how to search; else it is left as it is."""
    return {**budget, "trials": trials} if isinstance(budget, Mapping) else budget


def table_beside(study: Study, comparison: Comparison) -> Table:
    """One line for each model with its figures, and one below it with the printed ones."""
    printed = study.published(comparison.dataset, comparison.config.protocol)
    full = [f"{study.metrics[0]} in full ranking"]
    has_full = bool(comparison.runs) and comparison.runs[0].full_ranking is not None
    columns = ["model", "tried", "minutes", "seeds", *study.metrics, *(full if has_full else [])]
    columns.append(f"beats ({comparison.metric})")
    rows: list[list[str]] = []
    for done in comparison.runs:
        rows.append(_own_line(study, comparison, done))
        if known := printed.get(done.name):
            rows.append(_printed_line(study, comparison, done, known, len(columns)))
    title = f"{study.title}: {comparison.dataset} ({comparison.config.protocol})"
    return Table(title, columns, rows, _notes(study, comparison, bool(printed)))


def _own_line(study: Study, comparison: Comparison, done: CandidateResult) -> list[str]:
    summary = comparison.summaries[done.name]
    cells = [done.name, str(done.tried), f"{done.spent / 60:.1f}", str(len(done.results))]
    for metric in study.metrics:
        mark = "*" if comparison.best(metric) == done.name else ""
        cells.append(f"{summary[metric]['mean']:.4f}{mark} ± {summary[metric]['se']:.4f}")
    if done.full_ranking is not None:
        cells.append(f"{done.full_ranking.metrics[study.metrics[0]].mean:.4f}")
    return [*cells, f"{beaten_by(comparison, done.name)} of {len(comparison.runs) - 1}"]


def _printed_line(
    study: Study,
    comparison: Comparison,
    done: CandidateResult,
    known: Mapping[str, float],
    width: int,
) -> list[str]:
    cells = ["  printed (ours - printed)", "", "", ""]
    for metric in study.metrics:
        if metric not in known:
            cells.append("")
            continue
        ours = comparison.summaries[done.name][metric]
        difference = ours["mean"] - known[metric]
        mark = " !" if abs(difference) > _FAR * ours["se"] else ""
        cells.append(f"{known[metric]:.4f} ({difference:+.4f}{mark})")
    return cells + [""] * (width - len(cells))


def beaten_by(comparison: Comparison, name: str) -> int:
    """Count the models that one is ahead of, by tests of all pairs with Holm's correction."""
    count = 0
    for test in comparison.tests.to_dicts():
        ahead = test["model_a"] if test["difference"] > 0 else test["model_b"]
        is_in = name in (test["model_a"], test["model_b"])
        count += is_in and ahead == name and test["p_holm"] < LEVEL
    return count


def _notes(study: Study, comparison: Comparison, is_printed: bool) -> list[str]:
    trials = max((done.tried for done in comparison.runs), default=1)
    said = [
        f"Held out: {comparison.split}.",
        f"Tried: settings of each model, at most {trials}, by the same sampler on validation data; "
        "1 is a line without choice. Minutes: trials, fits with all seeds, and config.",
        legend(study.metrics, ERROR),
        f"Best: *; beats: models that it is ahead of ({comparison.metric}, Wilcoxon signed-rank, "
        f"Holm's correction for all pairs, {LEVEL}).",
    ]
    if is_printed:
        said.append(
            "Printed: the paper's figure, the best epoch on test by its authors; !: further from "
            f"ours than {_FAR} standard errors over users."
        )
    outcome = Outcome.of(facts_of(comparison, study))
    return list(filter(None, [*said, stored_note(outcome), *outcome.warnings]))


@dataclass(frozen=True)
class Shape:
    """How a table of two regularizers compares with the printed one.

    Attributes:
        correlation: Of the ranks of the cells, printed and ours (Spearman).
        printed_best: The best cell that was printed.
        our_best: Ours.
        printed_gain: How far it is above the cell with the smallest values.
        our_gain: The same of ours.
        effects: Mean at the largest value less mean at the smallest, by parameter: printed, ours.
        error: Standard error over users of a single cell of ours.
    """

    correlation: float
    printed_best: str
    our_best: str
    printed_gain: float
    our_gain: float
    effects: Mapping[str, tuple[float, float]]
    error: float

    @classmethod
    def of(cls, study: Study, comparison: Comparison, metric: str = "H@10") -> Self | None:
        """Compare the cells of a sweep; None unless all of them are there and were printed."""
        from scipy.stats import spearmanr

        printed = study.published(comparison.dataset, comparison.config.protocol)
        known = {name: entry[metric] for name, entry in printed.items()}
        ours = {name: entry[metric]["mean"] for name, entry in comparison.summaries.items()}
        cells = {plan.title: plan.params for plan in study.models if plan.title in known}
        axes = _axes(list(cells.values()))
        if not axes or not cells.keys() <= ours.keys():
            return None
        least = {name: min(values) for name, values in axes.items()}
        off = next(title for title, params in cells.items() if least.items() <= params.items())

        def effect(figures: Mapping[str, float], name: str) -> float:
            ends = (max(axes[name]), least[name])
            most, none = ([figures[t] for t, p in cells.items() if p[name] == end] for end in ends)
            return mean(most) - mean(none)

        best = [max(cells, key=figures.__getitem__) for figures in (known, ours)]
        return cls(
            correlation=float(spearmanr([known[t] for t in cells], [ours[t] for t in cells])[0]),
            printed_best=best[0],
            our_best=best[1],
            printed_gain=known[best[0]] - known[off],
            our_gain=ours[best[1]] - ours[off],
            effects={name: (effect(known, name), effect(ours, name)) for name in axes},
            error=mean(comparison.summaries[title][metric]["se"] for title in cells),
        )

    @property
    def agrees(self) -> bool:
        """Whether ranks go together, and every regularizer helps or hurts in both tables."""
        same = all(printed * ours > 0 for printed, ours in self.effects.values())
        return same and self.correlation > 0.5

    def __str__(self) -> str:
        """Say it in a sentence or two."""
        effects = "; ".join(
            f"{name} from its smallest to its largest: printed {printed:+.4f}, ours {ours:+.4f}"
            for name, (printed, ours) in self.effects.items()
        )
        verdict = "agrees with" if self.agrees else "differs from"
        return (
            f"The shape {verdict} the printed table: rank correlation {self.correlation:.2f}; "
            f"{effects}; best cell printed: {self.printed_best} ({self.printed_gain:+.4f} over the "
            f"smallest), ours: {self.our_best} ({self.our_gain:+.4f}); a cell of ours has a "
            f"standard error of {self.error:.4f}."
        )


def _axes(cells: Sequence[Mapping[str, Any]]) -> dict[str, set[Any]]:
    """Return the values of what is swept; nothing unless every combination is there, once."""
    if len({frozenset(params) for params in cells}) != 1:
        return {}
    values = {name: {params[name] for params in cells} for name in cells[0]}
    swept = {name: found for name, found in values.items() if len(found) > 1}
    return swept if prod(map(len, swept.values())) == len(cells) else {}
