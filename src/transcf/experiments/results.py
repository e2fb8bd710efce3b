"""Results of studies and comparisons in their JSON form.

`--json` prints this form and `--out FILE.json` writes it. Reports and the tables of the
documentation are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transcf import __version__
from transcf.data.atomic import atomic_write
from transcf.data.json_text import to_json
from transcf.data.paths import path_of
from transcf.errors import DataError

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.study import Study

#: Version of the file format.
FORMAT = 1
#: Classes of models that are not personalized.
TRIVIAL = ("Popularity", "RecentPopularity", "InversePopularity", "Random")

_FIELDS = {"model": "name", "class": "kind", "spent_seconds": "spent", "bytes": "size"}


@dataclass(frozen=True)
class Entry:
    """The results of one model on one dataset: the JSON form of a `CandidateResult`.

    `kind` is the class of the model, `spent` are seconds of all trials, fits and evaluations,
    `published` has published values by metric, and `curve` has the validated epochs only.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, float]]
    runs: int
    users: int
    validation: float | None
    chosen: Mapping[str, Any]
    tried: int
    seconds: float
    spent: float | None = None
    full_ranking: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    curve: Sequence[Mapping[str, Any]] = ()
    trials: Sequence[Mapping[str, Any]] = ()
    catalogue: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None
    cells: int = 0
    stored: int = 0

    @classmethod
    def of(cls, content: Mapping[str, Any], published: Mapping[str, float]) -> Self:
        """Read the JSON form of a run."""
        values = {_FIELDS.get(key, key): value for key, value in content.items()}
        values["published"] = published
        values["curve"] = [one for one in values.get("curve", ()) if one["metric"] is not None]
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})

    @property
    def is_trivial(self) -> bool:
        """Whether the model is not personalized."""
        return self.kind in TRIVIAL

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric; None if it was not computed."""
        return self.metrics.get(metric, {}).get("mean")


@dataclass(frozen=True)
class Outcome:
    """The results of several models on one dataset under one protocol: a `Comparison` in JSON.

    `split` describes the held-out data, `filter` the filter of the events, such as "5-core",
    `metric` is that of the paired tests `tests`, and `warnings` say why models are missing.
    """

    dataset: str
    protocol: str
    subset: str
    ties: str
    split: str
    filter: str
    metric: str
    entries: Sequence[Entry]
    tests: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form of a comparison, with published values if there are any."""
        models, published = content["models"], content.get("published", {})
        first = models[0] if models else {}
        warnings = [f"{name} is missing: {why}" for name, why in content["failures"].items()]
        warnings += [note for model in models for note in model["notes"]]
        warnings += [content["difference"]] if content.get("difference") else []
        return cls(
            dataset=content["dataset"],
            protocol=content.get("protocol") or first.get("protocol", ""),
            subset=first.get("subset", "test"),
            ties=first.get("ties", ""),
            split=content["split"],
            filter=content.get("filter", "none"),
            metric=content["metric"],
            entries=[Entry.of(model, published.get(model["model"], {})) for model in models],
            tests=content["tests"],
            warnings=list(dict.fromkeys(warnings)),
        )

    @property
    def title(self) -> str:
        """Dataset and protocol."""
        return f"{self.dataset} ({self.protocol})" if self.protocol else self.dataset

    def entry(self, name: str) -> Entry | None:
        """Return the model of a name; None if there is none."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def best(self, metric: str) -> Entry | None:
        """Return the model with the largest mean; None if no model has the metric."""
        able = [entry for entry in self.entries if metric in entry.metrics]
        return max(able, key=lambda one: (one.metrics[metric]["mean"], one.name), default=None)

    def tests_of_best(self) -> dict[str, dict[str, float]]:
        """Return the paired test of the best model against each other model, by its name.

        `difference`, `low` and `high` are the best model minus the other one.
        """
        best, found = self.best(self.metric), {}
        for test in self.tests:
            pair = (test["model_a"], test["model_b"])
            if best is not None and best.name in pair:
                sign = 1 if pair[0] == best.name else -1
                low, high = sorted((sign * test["ci_low"], sign * test["ci_high"]))
                values = {"difference": sign * test["difference"], "low": low, "high": high}
                found[pair[sign == 1]] = values | {"p": test["p_holm"]}
        return found


@dataclass(frozen=True)
class Results:
    """The results of a study or a comparison: `content` is the JSON form."""

    title: str
    command: str
    metrics: Sequence[str]
    outcomes: Sequence[Outcome]
    version: str
    content: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        metrics: Sequence[str],
        tables: Sequence[Mapping[str, Any]],
        command: str = "",
        **more: Any,
    ) -> Self:
        """Collect tables, which `facts_of` returns, under the name of a study or "comparison".

        `more` are further values of the JSON form.
        """
        about = {"format": FORMAT, "study": name, "title": title, "command": command}
        about |= {"version": __version__, "metrics": list(metrics), **more}
        return cls.from_dict({**about, "datasets": list(tables)})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        kept = {name: content[name] for name in ("title", "command", "metrics", "version")}
        outcomes = [Outcome.of(table) for table in content["datasets"]]
        return cls(**kept, outcomes=outcomes, content=content)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file that `write` wrote.

        Raises:
            DataError: The file has another content or another format version.
        """
        try:
            content = json.loads(path_of(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']} instead of {FORMAT}")
            return cls.from_dict(content)
        except (KeyError, TypeError, ValueError) as problem:
            raise DataError(
                f"{path} holds no results of a study ({type(problem).__name__}: {problem}): write "
                "the file again with `transcf study NAME --out FILE.json`."
            ) from problem

    def write(self, path: Path | str) -> None:
        """Write the JSON form."""
        with atomic_write(path_of(path)) as unfinished:
            unfinished.write_text(to_json(self.content) + "\n", encoding="utf-8")


def facts_of(comparison: Comparison, plan: Study | None = None) -> dict[str, Any]:
    """Return the JSON form of a comparison with its protocol, and published values of a study."""
    protocol = comparison.config.protocol
    facts = comparison.to_dict() | {"protocol": protocol}
    if plan is None:
        return facts
    dataset = comparison.dataset
    return facts | {
        "filter": plan.filter(dataset),
        "published": plan.published(dataset, protocol),
        "difference": plan.difference(dataset),
    }
