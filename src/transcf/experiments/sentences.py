"""What a table says, in plain sentences; made of its figures by rules, and honest about gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from transcf.data.report import counted, listed
from transcf.evaluation.significance import LEVEL
from transcf.experiments.results import Entry, Outcome, Results

#: How a figure of ours stands to a published one.
Verdict: TypeAlias = Literal["reached", "within two standard errors", "below"]
#: Figures that a sentence names one by one.
_FEW = 4


@dataclass(frozen=True)
class Beside:
    """A published figure and ours.

    Attributes:
        outcome: Title of the table.
        model: As the table calls it.
        metric: Which figure.
        published: What others printed.
        ours: The mean over seeds and users.
        error: The standard error of ours over users.
    """

    outcome: str
    model: str
    metric: str
    published: float
    ours: float
    error: float

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.published

    @property
    def verdict(self) -> Verdict:
        """Whether it is reached; a shortfall below two standard errors cannot be told from luck."""
        if self.difference >= 0:
            return "reached"
        return "within two standard errors" if -self.difference < 2 * self.error else "below"


def reproduced(results: Results) -> list[Beside]:
    """Every figure that others published and we have."""
    return [
        Beside(
            outcome.title,
            entry.name,
            metric,
            entry.published[metric],
            entry.metrics[metric]["mean"],
            entry.metrics[metric]["se"],
        )
        for outcome in results.outcomes
        for entry in outcome.entries
        for metric in results.metrics
        if metric in entry.published and metric in entry.metrics
    ]


def summary(results: Results) -> list[str]:
    """What to take away, a sentence or two each."""
    said = [sentence for outcome in results.outcomes for sentence in about(outcome)]
    return [*said, *about_published(results), about_budget(results)]


def about(outcome: Outcome) -> list[str]:
    """Who is best, what the floor says, who is missing, and what else there is to say."""
    said = [about_best(outcome), about_floor(outcome)] if outcome.entries else []
    if outcome.failures:
        names = listed(list(outcome.failures))
        said.append(f"{outcome.title}: missing from the table: {names}; its notes say why.")
    return [*said, *(f"{outcome.title}: {remark}" for remark in outcome.remarks)]


def about_best(outcome: Outcome) -> str:
    """Who is best by the tested metric, and who cannot be told apart from it."""
    metric, best = outcome.metric, outcome.best(outcome.metric)
    if best is None:
        return f"{outcome.title}: no model has {metric}."
    figure = best.metrics[metric]
    begin = (
        f"{outcome.title}: {best.name} has the highest {metric}, {figure['mean']:.4f} ± "
        f"{figure['se']:.4f} (standard error over users)"
    )
    against = outcome.against_best()
    if len(outcome.entries) < 2:
        return f"{begin}; it is alone in the table."
    if not against:
        return f"{begin}; differences were not tested."
    alike = [name for name, p in against.items() if p >= LEVEL]
    if not alike:
        return f"{begin}; every other model is behind it by the paired test."
    apart = [
        name
        for test in outcome.tests
        for name in alike
        if {name, best.name} == {test["model_a"], test["model_b"]}
        and test["ci_low"] * test["ci_high"] > 0
    ]
    though = f", though the interval of the difference to {listed(apart)} leaves out 0"
    return (
        f"{begin}; the paired test does not tell it apart from {listed(alike)}"
        f"{though if apart else ''}."
    )


def about_floor(outcome: Outcome) -> str:
    """What models that know nobody's taste reach, and who stays below them."""
    metric = outcome.metric
    found = {entry.name: entry.mean(metric) for entry in outcome.entries if entry.is_trivial}
    floor = {name: mean for name, mean in found.items() if mean is not None}
    if not floor:
        return (
            f"{outcome.title}: no trivial baseline is in the table, so that it does not show what "
            "a figure is worth."
        )
    highest = max(floor, key=lambda name: floor[name])
    listing = ", ".join(f"{name} {mean:.4f}" for name, mean in floor.items())
    said = f"{outcome.title}: the floor by {metric} is {listing}."
    means = {entry.name: entry.mean(metric) for entry in outcome.entries if not entry.is_trivial}
    below = [name for name, mean in means.items() if mean is not None and mean <= floor[highest]]
    if below:
        said += f" Not above {highest}: {listed(below)}."
    elif means:
        said += f" Every other model is above {highest}."
    return said + _about_rare(outcome)


def _about_rare(outcome: Outcome) -> str:
    """Say so where ranking the rarest first beats ranking the most popular first."""
    by_kind = {entry.kind: entry.mean(outcome.metric) for entry in outcome.entries}
    rare, popular = by_kind.get("InversePopularity"), by_kind.get("Popularity")
    if rare is None or popular is None or rare <= popular:
        return ""
    return (
        " The rarest items first do better than the most popular first: what is held out is rare "
        "among the candidates, and a model gains by preferring rare items, whatever it knows."
    )


def about_published(results: Results) -> list[str]:
    """How many of the published figures are reached, and which are not."""
    beside = reproduced(results)
    if not beside:
        return ["No published figures stand beside these."] if results.is_study else []
    reached = [one for one in beside if one.verdict == "reached"]
    said = [
        f"Published figures: {len(reached)} of {len(beside)} are reached or passed"
        + ("." if len(reached) == len(beside) else f", {_shortfalls(beside)}.")
    ]
    missing = _without_ours(results)
    if missing:
        said.append(f"Published, but not in these tables: {listed(missing)}.")
    return said


def _shortfalls(beside: Sequence[Beside]) -> str:
    near = [one for one in beside if one.verdict == "within two standard errors"]
    below = [one for one in beside if one.verdict == "below"]
    parts = []
    if near:
        parts.append(f"{len(near)} short by less than two standard errors ({_named(near)})")
    if below:
        parts.append(f"{len(below)} short by more ({_named(below)})")
    return " and ".join(parts)


def _named(beside: Sequence[Beside]) -> str:
    """Name a few figures one by one, more of them by their models; a table has them all."""
    if len(beside) > _FEW:
        return "of " + listed(list(dict.fromkeys(one.model for one in beside)))
    return "; ".join(
        f"{one.model}, {one.metric} on {one.outcome}: {one.ours:.4f} against {one.published:.4f}"
        for one in beside
    )


def _without_ours(results: Results) -> list[str]:
    """Published models that failed here."""
    return [
        f"{name} on {outcome.title}"
        for outcome in results.outcomes
        for name in outcome.published
        if outcome.entry(name) is None
    ]


def about_budget(results: Results) -> str:
    """Whether all models had the same number of settings to choose from."""
    tried = {
        f"{entry.name} on {outcome.title}": entry.tried
        for outcome in results.outcomes
        for entry in outcome.entries
        if not entry.is_trivial
    }
    if not tried:
        return "Budget: there is no model that settings could be chosen for."
    least, most = (pick(tried, key=lambda name: tried[name]) for pick in (min, max))
    if tried[least] == tried[most]:
        if tried[most] == 1:
            return "Budget: every model was run with one setting, chosen beforehand."
        return f"Budget: {counted(tried[most], 'setting')} of each model were tried."
    return (
        f"Budget: not the same for all, from {counted(tried[least], 'setting')} ({least}) to "
        f"{counted(tried[most], 'setting')} ({most})."
    )


def about_seeds(entries: Sequence[Entry]) -> str:
    """How many seeds are behind the figures."""
    runs = max((entry.runs for entry in entries), default=1)
    if runs == 1:
        return "One seed: how much chance moves these figures is not known."
    return f"Means of {counted(runs, 'seed')}; models without chance were run once."
