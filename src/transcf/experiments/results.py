"""Results of studies and comparisons as they are kept: read and written as JSON, reported from.

What `--json` prints is what a file holds; reports and the tables of the documentation are made of
it, whether it was run just now or long ago.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transcf import __version__
from transcf.data.atomic import whole_file
from transcf.data.json_text import to_json
from transcf.data.paths import path_of
from transcf.errors import DataError

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.study import Study

#: Raised when what a file holds means something else than before.
FORMAT = 1
#: What stands in the place of a study's name.
COMPARISON = "comparison"
#: Classes of the models that make up the floor.
TRIVIAL = ("Popularity", "RecentPopularity", "InversePopularity", "Random")


@dataclass(frozen=True)
class Entry:
    """One model of a table.

    Attributes:
        name: Stands for it in the table.
        kind: Class of the model.
        parameters: All of its settings.
        metrics: `mean`, `sd` over seeds and `se` over users of every figure.
        full_ranking: The same in full ranking, where candidates are sampled; else nothing.
        published: What others printed of it, by metric.
        runs: Seeds.
        users: Who was judged.
        validation: What chose its settings; None if it was not kept.
        chosen: The settings that were chosen, of `tried` ones.
        tried: Settings that were tried and could be trained.
        seconds: Of one fit.
        spent: Seconds of all there was to do for it; None if they were not kept.
        curve: `epoch` and `metric` of the epochs that chose; empty if there are none, or if they
            were not kept.
        trials: `parameters` and `validation` of each setting that was tried, if that was kept.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, float]]
    full_ranking: Mapping[str, Mapping[str, float]]
    published: Mapping[str, float]
    runs: int
    users: int
    validation: float | None
    chosen: Mapping[str, Any]
    tried: int
    seconds: float
    spent: float | None
    curve: Sequence[Mapping[str, Any]]
    trials: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, content: Mapping[str, Any], published: Mapping[str, float]) -> Self:
        """Read what `Run.to_dict` gave."""
        return cls(
            name=content["model"],
            kind=content["class"],
            parameters=content["parameters"],
            metrics=content["metrics"],
            full_ranking=content.get("full_ranking", {}),
            published=published,
            runs=content["runs"],
            users=content["users"],
            validation=content["validation"],
            chosen=content["chosen"],
            tried=content["tried"],
            seconds=content["seconds"],
            spent=content.get("spent_seconds"),
            curve=[step for step in content.get("curve", ()) if step["metric"] is not None],
            trials=content.get("trials", ()),
        )

    @property
    def is_trivial(self) -> bool:
        """Whether it knows nobody's taste: what a figure is worth shows only next to such."""
        return self.kind in TRIVIAL

    def mean(self, metric: str) -> float | None:
        """The mean of a metric; None where there is none."""
        return self.metrics[metric]["mean"] if metric in self.metrics else None


@dataclass(frozen=True)
class Outcome:
    """One table: models on one dataset by one protocol.

    Attributes:
        dataset: Name of the data.
        protocol: By which models were judged.
        part: "test" or "validation".
        split: What was held out, in words.
        metric: What the paired tests look at.
        entries: The models.
        tests: Paired tests, a line for each pair.
        failures: Why a model is not among them, by name.
        notes: What belongs to the figures.
        published: What others printed, by model and metric.
        remarks: What else is to be said of the table, such as how its data differs.
    """

    dataset: str
    protocol: str
    part: str
    split: str
    metric: str
    entries: Sequence[Entry]
    tests: Sequence[Mapping[str, Any]] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read what `Comparison.to_dict` gave, with `published` beside it if there is any."""
        models, published = content["models"], content.get("published", {})
        first = models[0] if models else {}
        return cls(
            dataset=content["dataset"],
            protocol=content.get("protocol") or first.get("protocol", ""),
            part=first.get("part", "test"),
            split=content["split"],
            metric=content["metric"],
            entries=[Entry.of(model, published.get(model["model"], {})) for model in models],
            tests=content["tests"],
            failures=content["failures"],
            notes=list(dict.fromkeys(note for model in models for note in model["notes"])),
            published=published,
            remarks=[content[name] for name in ("difference", "shape") if content.get(name)],
        )

    @property
    def title(self) -> str:
        """Dataset and protocol."""
        return f"{self.dataset} ({self.protocol})" if self.protocol else self.dataset

    def entry(self, name: str) -> Entry | None:
        """The model of that name, if it is there."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def best(self, metric: str) -> Entry | None:
        """The model with the largest mean; None where no model has the metric."""
        able = [entry for entry in self.entries if metric in entry.metrics]
        return max(
            able, key=lambda entry: (entry.metrics[metric]["mean"], entry.name), default=None
        )

    def against_best(self) -> dict[str, float]:
        """Each other model against the best by the tested metric: p, corrected for all pairs."""
        best = self.best(self.metric)
        found = {}
        for test in self.tests:
            pair = (test["model_a"], test["model_b"])
            if best is not None and best.name in pair:
                found[pair[pair[0] == best.name]] = test["p_holm"]
        return found


@dataclass(frozen=True)
class Results:
    """What came of a study or a comparison.

    Attributes:
        name: Of the study, or "comparison".
        title: In words.
        command: What runs it again.
        metrics: What its tables show.
        outcomes: The tables.
        version: Of the library that ran it.
        content: All of it as JSON has it.
    """

    name: str
    title: str
    command: str
    metrics: Sequence[str]
    outcomes: Sequence[Outcome]
    version: str
    content: Mapping[str, Any]

    @property
    def is_study(self) -> bool:
        """Whether it is a study, which may stand beside published figures."""
        return self.name != COMPARISON

    @classmethod
    def of_study(
        cls,
        name: str,
        plan: Study,
        tables: Sequence[Mapping[str, Any]],
        command: str = "",
        **more: Any,
    ) -> Self:
        """Put the tables of a study together.

        Args:
            name: Of the study.
            plan: What was asked for.
            tables: What came of it, from `facts_of`.
            command: What runs it again.
            more: What else is kept of it.
        """
        about = _about(name, plan.title, command, plan.metrics)
        return cls.from_dict({**about, **more, "datasets": list(tables)})

    @classmethod
    def of_comparison(cls, found: Comparison, metrics: Sequence[str], command: str = "") -> Self:
        """Take a comparison as the only table.

        Args:
            found: What came of it.
            metrics: What its table shows.
            command: What runs it again.
        """
        table = found.to_dict() | {"protocol": found.judging.protocol}
        about = _about(COMPARISON, f"Models on {found.dataset}", command, metrics)
        return cls.from_dict(about | {"datasets": [table]})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        return cls(
            name=content["study"],
            title=content["title"],
            command=content["command"],
            metrics=content["metrics"],
            outcomes=[Outcome.of(table) for table in content["datasets"]],
            version=content["version"],
            content=content,
        )

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file that `write` wrote.

        Raises:
            DataError: It holds something else.
        """
        try:
            content = json.loads(path_of(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise DataError(
                    f"{path} has results in the form {content['format']}, and {FORMAT} is read "
                    "here: run its command again."
                )
            return cls.from_dict(content)
        except (KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, DataError):
                raise
            raise DataError(
                f"{path} does not hold the results of a study: write it anew by "
                "`transcf study NAME --results FILE`."
            ) from problem

    def write(self, path: Path | str) -> None:
        """Write it as JSON; what is the same gives the same bytes, apart from seconds."""
        with whole_file(path_of(path)) as unfinished:
            unfinished.write_text(to_json(self.content) + "\n", encoding="utf-8")


def facts_of(plan: Study, comparison: Comparison) -> dict[str, Any]:
    """JSON form of a table of a study: with its protocol, and what others published beside it."""
    protocol = comparison.judging.protocol
    return comparison.to_dict() | {
        "protocol": protocol,
        "published": plan.published(comparison.dataset, protocol),
        "difference": plan.difference(comparison.dataset),
    }


def _about(name: str, title: str, command: str, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "study": name,
        "title": title,
        "command": command,
        "version": __version__,
        "metrics": list(metrics),
    }
