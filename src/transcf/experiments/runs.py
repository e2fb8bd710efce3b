"""One model of a table: settings chosen on validation data, then judged, once for each seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Self, TypeAlias

from transcf.data.split import Split
from transcf.errors import MissingExtraError, ParameterError, TransCFError, shown
from transcf.evaluation import Evaluation, Validation, average_seeds, summarize_seeds
from transcf.experiments.judging import Judging
from transcf.learning.settings import values_of
from transcf.models.recommender import Recommender
from transcf.models.registry import canonical_name, create, model_class, name_and_params
from transcf.training.options import FitOptions
from transcf.training.trainable import Epoch

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Recommender[Any]"
#: Called with one line of text that tells what is being done.
OnProgress: TypeAlias = Callable[[str], None]

#: Times in the report of a fit: the whole, and parts of it.
_CLOCKS = ("seconds", "training_seconds", "validation_seconds")
#: The floor that is in every table of data with times.
TIMED_BASELINE = "recent-popularity"
#: What every table of sampled figures has to say.
SAMPLED_NOTE = (
    "Sampled candidates favour models that rank rare items first: compare with inverse-popularity "
    "and with the full ranking."
)
#: What figures of the part that chose epochs or settings have to say.
CHOSEN_HERE_NOTE = (
    "Optimistic: these are figures of the validation part, which also chose epochs and settings."
)


@dataclass(frozen=True)
class Contender:
    """A model with settings to choose from.

    Attributes:
        name: Stands for it in tables.
        model: Its name in the registry.
        params: Parameters that are set.
        choices: Further parameters to choose from on validation data.
    """

    name: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a contender of a name, of a name with parameters, or of a model object.

        Of an object it takes the class and the parameters that differ from the defaults: these
        count as set by hand, the others may be searched. The object itself is left alone.

        Args:
            spec: Which model.
            name: Stands for it in tables; its name in the registry unless given.

        Example:
            >>> Contender.of(create("EASE", regularization=5.0)).params
            {'regularization': 5.0}
        """
        model, params = _name_and_params(spec)
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes anything."""
        has_seed = "random_state" in model_class(self.model).rules()
        return has_seed and "random_state" not in self.params

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a seed that is set by name wins over the general one."""
        has_seed = "random_state" in model_class(self.model).rules()
        general = {"random_state": seed} if has_seed else {}
        return create(self.model, **{**general, **self.params, **(choice or {})})

    def check(self) -> None:
        """Raise a `ParameterError` for a model or a setting that there cannot be."""
        for choice in self.choices:
            self.make(0, choice).check_params()


@dataclass(frozen=True, eq=False)
class Run:
    """A model of a table, fitted with one or several seeds.

    Attributes:
        name: Stands for it in the table.
        model: The fitted model of the first seed.
        evaluations: One for each seed; a single one if the seed changes nothing.
        seconds: Wall clock of one whole fit, mean over the seeds; of both where the epoch is chosen
            in one and the model of that epoch learned in another.
        parts: `training_seconds` and `validation_seconds` of it, for models with epochs.
        validation: What chose settings and epochs, of the kept models, mean over the seeds; None
            for a model that was fitted elsewhere.
        chosen: The settings that validation data chose, of `tried` ones.
        tried: Settings that were tried and could be trained.
        untrained: Why others could not.
        full_ranking: The model of the first seed in full ranking, where a protocol samples
            candidates.
    """

    name: str
    model: Recommender[Any]
    evaluations: Sequence[Evaluation]
    seconds: float
    validation: float | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    tried: int = 1
    untrained: Sequence[str] = ()
    full_ranking: Evaluation | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Warnings that belong to the figures."""
        first = self.evaluations[0]
        was_chosen = self.tried > 1 or self.model.chooses()
        notes = {
            SAMPLED_NOTE: self.full_ranking is not None,
            CHOSEN_HERE_NOTE: first.part == "validation" and was_chosen,
            first.note: bool(first.note),
        }
        failed = [f"{self.name}: a setting did not train: {reason}" for reason in self.untrained]
        return [*(note for note, belongs in notes.items() if belongs), *failed]

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean`, `sd` over seeds and `se` over users of every metric."""
        return summarize_seeds(self.evaluations)

    def catalogue(self) -> dict[str, float]:
        """Figures of what is recommended, such as "coverage@10", mean over the seeds."""
        first = self.evaluations[0].catalogue
        return {name: mean(done.catalogue[name] for done in self.evaluations) for name in first}

    def averaged(self) -> Evaluation:
        """One evaluation with the figures of each user averaged over the seeds."""
        return average_seeds(self.evaluations, self.name)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        first, full = self.evaluations[0], self.full_ranking
        return {
            "model": self.name,
            "class": type(self.model).__name__,
            "parameters": values_of(self.model.settings_),
            "chosen": dict(self.chosen),
            "tried": self.tried,
            "untrained": list(self.untrained),
            "validation": self.validation,
            "protocol": first.protocol,
            "ties": first.ties,
            "part": first.part,
            "split": first.split,
            "runs": len(self.evaluations),
            "users": first.users,
            "skipped": first.skipped,
            "metrics": self.summary(),
            "catalogue": self.catalogue(),
            "seconds": round(self.seconds, 3),
            **{part: round(seconds, 3) for part, seconds in self.parts.items()},
            "bytes": self.model.nbytes,
            "notes": self.notes(),
            **({} if full is None else {"full_ranking": full.to_dict()["metrics"]}),
        }


def run(
    contender: Contender,
    split: Split,
    judging: Judging,
    seeds: Sequence[int],
    on_progress: OnProgress | None = None,
    *,
    with_validation: bool = True,
) -> Run:
    """Choose settings on validation data (first seed), then fit and judge with every seed.

    Where the protocol says so, each model learns anew from train and validation, up to the epoch
    that was chosen, before it is judged.

    Args:
        contender: What to run.
        split: Where; its test part is read by the final judging alone.
        judging: How.
        seeds: At least one; a model without chance is run once.
        on_progress: Called with one line of text at every step; without it, epochs show on a
            terminal.
        with_validation: Whether to judge the kept models by all of the validation part, too, for
            tables that show it.
    """
    judging = judging.on(split)
    validation = Validation.of(split, judging.protocol, judging.ties, judging.at)
    chosen, fitted, untrained = _choose(contender, split, validation, seeds[0], on_progress)
    models: list[Recommender[Any]] = []
    evaluations, figures, reports = [], [], []
    for seed in seeds if contender.takes_seed else seeds[:1]:
        recorder, step = None, f"{contender.name}, seed {seed}"
        if fitted is not None and not models and not judging.picks_epochs_on_test:
            model = fitted
        else:
            model = contender.make(seed, chosen)
            if with_validation or model.chooses() or not judging.refits:
                options = _options(step, on_progress)
                recorder = judging.fit(model, split, validation, options)
                _check_finished(model)
        figures += [validation(model)] if with_validation else []
        report = dict(model.report_) if model.chooses() else {}
        if judging.refits:
            _refit(model, split, _options(f"{step}, refit", on_progress))
        evaluations.append(judging.judge(model, split) if recorder is None else recorder.result())
        reports.append(_added(report, model.report_) if judging.refits else model.report_)
        models = models or [model]
    return Run(
        name=contender.name,
        model=models[0],
        evaluations=evaluations,
        seconds=mean(report["seconds"] for report in reports),
        validation=mean(figures) if figures else None,
        chosen=chosen,
        tried=len(contender.choices) - len(untrained),
        untrained=untrained,
        full_ranking=judging.full_ranking(models[0], split),
        parts={
            part: mean(report[part] for report in reports)
            for part in _CLOCKS[1:]
            if part in reports[0]
        },
    )


def _name_and_params(spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    match spec:
        case str():
            return canonical_name(spec), {}
        case (str() as name, Mapping() as params):
            return canonical_name(name), dict(params)
        case Recommender():
            return name_and_params(spec)
    raise ParameterError(
        f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, or a model."
    )


def _choose(
    contender: Contender,
    split: Split,
    validation: Validation,
    seed: int,
    on_progress: OnProgress | None,
) -> tuple[Mapping[str, Any], Recommender[Any] | None, list[str]]:
    """Return the best choice on validation data, the test part unread, and its fitted model.

    Without a choice nothing is fitted. The first of equal ones wins. A setting that does not train
    is not chosen; the reasons come third. Settings that are no settings are an error.
    """
    choices = contender.choices
    if len(choices) == 1:
        return choices[0], None, []
    best: tuple[float, Mapping[str, Any], Recommender[Any]] | None = None
    failures: list[TransCFError] = []
    for number, choice in enumerate(choices, start=1):
        options = _options(f"{contender.name}, setting {number} of {len(choices)}", on_progress)
        model = contender.make(seed, choice)
        try:
            figure = validation(model.fit(split.train, validation, options))
        except (ParameterError, MissingExtraError):
            raise
        except TransCFError as error:
            failures.append(error)
            continue
        _check_finished(model)
        if best is None or figure > best[0]:
            best = figure, choice, model
    if best is None:
        raise failures[0]
    return best[1], best[2], list(map(str, failures))


def _refit(model: Recommender[Any], split: Split, options: FitOptions) -> None:
    """Learn anew from train and validation, up to the epoch that was chosen, if there is any."""
    if model.is_fitted:
        model.refit(split.before_test, options)
    else:
        model.fit(split.before_test, None, options)
    _check_finished(model)


def _added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, float]:
    """Add up the times of two fits."""
    return {part: first.get(part, 0.0) + second[part] for part in _CLOCKS if part in second}


def _check_finished(model: Recommender[Any]) -> None:
    """Pass on an interruption, which a fit answers by ending early with its best epoch."""
    if model.report_.get("ending") == "interrupted":
        raise KeyboardInterrupt


def _options(step: str, on_progress: OnProgress | None) -> FitOptions:
    """Report a step and its epochs; without a listener, epochs have a bar of their own."""
    if on_progress is None:
        return FitOptions()
    on_progress(step)

    def on_epoch(epoch: Epoch[Any]) -> None:
        on_progress(f"{step}, epoch {epoch.number}")

    return FitOptions(progress=False, on_epoch=on_epoch)
