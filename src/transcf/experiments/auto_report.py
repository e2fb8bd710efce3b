"""The result of `auto`, and its report as JSON, as a table and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from transcf.data.atomic import atomic_write_text
from transcf.data.json_text import to_json
from transcf.evaluation import paired_tests
from transcf.experiments.results import RunResult
from transcf.io.model_dir import check_replaceable
from transcf.models.base import Recommender
from transcf.models.blend import Blend, read_parts
from transcf.models.registry import load
from transcf.tables import ERROR, Cell, Table, text_of

if TYPE_CHECKING:
    from transcf.experiments.auto_search import AutoSearch, AutoTrial

#: Trials in the table.
_ROWS = 12
#: Test users below which figures are called uncertain.
_FEW_USERS = 50
#: Lists that the time of serving is measured with.
_LISTS = 20


@dataclass(frozen=True, eq=False)
class AutoResult:
    """The model that `auto` found, and how.

    Attributes:
        model: Fitted on all events.
        report: `data`, `split`, `tried`, `skipped`, `winner`, `test`, `tests` (paired, on the test
            part), `serving_ms` and more; JSON values only.
    """

    model: Recommender[Any]
    report: dict[str, Any]

    def table(self) -> Table:
        """Return what was tried, the best first; the notes have the data and the time.

        The winner, the runner-up and popularity have a figure of the test part, and a p-value of
        the paired test against the winner. The report has all trials and intervals.
        """
        report, test = self.report, self.report["test"]
        winner = report["winner"]["name"]
        tested = {
            one["model"]: [f"{one['mean']:.4f}", f"{one['p']:.2g}"] for one in report["tests"]
        }
        if test is not None:
            tested[winner] = [f"{test['mean']:.4f} ± {test['se']:.4f}", "-"]
        rows: list[list[str | Cell]] = []
        ranked = sorted(report["tried"], key=lambda one: -(one["validation"] or 0.0))
        for place, trial in enumerate(ranked):
            name, mean = trial["name"], trial["validation"]
            if place < _ROWS or name in (winner, *tested):
                figure = "failed" if mean is None else f"{mean:.4f} ± {trial['se']:.4f}"
                cell = Cell(figure, "best" if name == winner else "")
                on_test, seconds = tested.get(name, ["", ""]), f"{trial['seconds']:.1f}"
                rows.append([_short_name(trial), cell, *on_test, seconds, _settings(trial)])
        columns = [f"{report['metric']} ({part})" for part in ("validation", "test")]
        columns = ["model", *columns, "p", "seconds", "settings"]
        title = f"Best model: {_short_name(report['winner'])}"
        return Table(title, columns, rows, [f"{k}: {v}." for k, v in self._facts().items()])

    def _facts(self) -> dict[str, str]:
        """Return what is said below the table, by labels."""
        report, test = self.report, self.report["test"]
        facts = {"Data": text_of(report["data"]), "Held out": report["split"]}
        if test is None:
            facts["Not tested"] = report["untested"].rstrip(".")
        else:
            few = ", too few for certain figures" if test["users"] < _FEW_USERS else ""
            facts["Test"] = (
                f"{test['users']:,} users{few}; {ERROR}; p = paired test against the best"
            )
        if weights := report["winner"]["weights"]:
            facts["Weights"] = text_of(weights, 2)
        if (trials := len(report["tried"])) > _ROWS:
            facts["Trials"] = f"{trials}, and the report has all of them"
        tried = {one["model"] for one in report["tried"]}
        skipped = [
            f"{name} ({report['skipped'].get(name, 'no time').rstrip('.')})"
            for name in report["question"]["models"]
            if name not in tried
        ]
        if skipped:
            facts["Not tried"] = ", ".join(skipped)
        facts["Model"] = report["fitted_on"]
        facts["Time"] = (
            f"{report['seconds']:.0f} s of {60 * report['minutes']:.0f} s; a list of the model "
            f"takes {report['serving_ms']:.2g} ms"
        )
        return facts

    def to_markdown(self) -> str:
        """Return the report in Markdown."""
        parameters = json.dumps(self.report["winner"]["parameters"], indent=2)
        lines = ["# Which model is best for these data", self.table().to_markdown()]
        lines += ["Parameters of the best model:", f"```json\n{parameters}\n```"]
        return "\n\n".join(lines) + "\n"

    def __str__(self) -> str:
        """Return the table as text."""
        return self.table().to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the table in notebooks."""
        return self.table()._repr_html_()


def _short_name(trial: Mapping[str, Any]) -> str:
    if trial["model"] != "blend":
        return str(trial["model"])
    return " + ".join(part.name for part in read_parts(trial["setting"]["parts"]))


def _settings(trial: Mapping[str, Any]) -> str:
    if trial["model"] == "blend":
        return "weights chosen on validation data"
    return ", ".join(f"{key}={value}" for key, value in trial["setting"].items()) or "default"


def report_of(
    search: AutoSearch,
    winner: AutoTrial,
    tested: Sequence[tuple[AutoTrial, RunResult]],
    model: Recommender[Any],
    minutes: float,
    question: Mapping[str, Any],
    is_interrupted: bool,
) -> dict[str, Any]:
    """Return the report: JSON values only.

    `tested` has results on the test part, the winner's first; it is empty after an interruption.
    `model` is the winner, fitted on all events; `question` is what the search depends on.
    """
    log, metric, test = search.log, search.metric, None
    if tested and (found := tested[0][1].evaluation) is not None:
        figures = {name: {"mean": e.mean, "se": e.se} for name, e in found.metrics.items()}
        test = {**figures[metric], "users": found.users, "metrics": figures}
    return {
        "question": dict(question),
        "minutes": minutes,
        "seconds": round(search.elapsed, 3),
        "interrupted": is_interrupted,
        "data": {
            "users": log.n_users,
            "items": log.n_items,
            "events": len(log),
            "times": log.timestamps is not None,
            "ratings": log.ratings is not None,
        },
        "split": search.split.how,
        "protocol": search.config.protocol,
        "metric": metric,
        "tried": [_tried(search, trial) for trial in search.trials],
        "skipped": dict(search.skipped),
        "winner": {
            **_tried(search, winner),
            "weights": model.report_["weights"] if isinstance(model, Blend) else None,
        },
        "test": test,
        "untested": search.untested,
        "tests": _paired(tested, metric),
        "fitted_on": f"fitted on all {len(log):,} events",
        "serving_ms": round(_serving_ms(model), 3),
    }


def _tried(search: AutoSearch, trial: AutoTrial) -> dict[str, Any]:
    result = trial.result
    found = None if result.evaluation is None else result.evaluation.metrics[search.metric]
    return {
        "name": trial.label,
        "model": trial.name,
        "setting": trial.params,
        "parameters": dict(result.parameters),
        "share_of_epochs": trial.share,
        "best_epoch": result.best_epoch,
        "validation": None if found is None else found.mean,
        "se": None if found is None else found.se,
        "seconds": round(result.spent, 3),
        "stored": result.stored,
        "error": None if result.error is None else str(result.error),
    }


def _paired(tested: Sequence[tuple[AutoTrial, RunResult]], metric: str) -> list[dict[str, Any]]:
    """Return paired tests of the winner against the others, corrected for their number."""
    if len(tested) < 2:
        return []
    table = paired_tests([r.evaluation for _, r in tested if r.evaluation is not None], metric)
    against = table.head(len(tested) - 1).to_dicts()  # pairs with the first come first
    return [
        {
            "model": trial.label,
            "mean": one["mean_b"],
            "p": one["p_holm"],
            **{key: one[key] for key in ("difference", "ci_low", "ci_high", "p_bootstrap")},
        }
        for (trial, _), one in zip(tested[1:], against, strict=True)
    ]


def _serving_ms(model: Recommender[Any]) -> float:
    """Return the median time of a list of 10 items for one user, in milliseconds."""
    users, times = model.users_.series, []
    asked = users[:: max(1, len(users) // _LISTS)][:_LISTS].to_list()
    for user in asked * 2:  # the first lists prepare what a saved model has
        started = perf_counter()
        model.recommend(user, k=10)
        times.append(perf_counter() - started)
    return 1000 * median(times[len(asked) :])


def stored_result(
    target: Path, question: Mapping[str, Any], minutes: float, *, overwrite: bool
) -> tuple[AutoResult | None, bool]:
    """Return the result of an earlier call, and whether the folder holds a model of such a call.

    A search that was interrupted, or had less than `minutes`, is no result. With `overwrite` there
    is none, and any model is replaced.

    Raises:
        ModelFileError: The folder holds another model, or other files.
    """
    report: Any = None
    if not overwrite and (target / "model.json").is_file():
        about = json.loads((target / "model.json").read_text(encoding="utf-8"))
        report = about.get("report", {}).get("auto")
    is_own = isinstance(report, dict) and report.get("question") == dict(question)
    check_replaceable(target.absolute(), overwrite=overwrite or is_own)
    if not is_own or report["interrupted"] or report["minutes"] < minutes:
        return None, is_own
    return AutoResult(load(target), report), True


def report_paths(target: Path) -> list[Path]:
    """Return the files of the report, next to the folder of the model."""
    return [target.with_name(f"{target.name}.report.{kind}") for kind in ("json", "md")]


def write_report(result: AutoResult, target: Path) -> None:
    """Write the report as JSON and Markdown next to the folder of the model."""
    texts = (to_json(result.report) + "\n", result.to_markdown())
    for path, text in zip(report_paths(target), texts, strict=True):
        atomic_write_text(path, text)
