"""One run: fit a model and evaluate it, or take the result from the run cache.

`fit_and_evaluate` fits a model with one seed as a protocol requires, and evaluates it for a table.
`fit_and_validate` is a trial of a search: fitted on the training part and evaluated on the
validation part, to choose parameters. `fit_for_use` fits a model on all events for production.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any, Literal, Self, TypeAlias, Unpack, get_args

import numpy as np

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.data.partitioned import PartitionedLog
from transcf.data.readers import Reading, as_partitioned
from transcf.data.split import Split
from transcf.data.splitters import (
    check_split,
    open_log_and_split,
    open_split,
    split_log,
    usual_protocol,
)
from transcf.errors import (
    DataError,
    DivergenceError,
    EvaluationError,
    FitWarning,
    MissingExtraError,
    ParameterError,
    TransCFError,
    check_word,
    is_word,
    shown,
)
from transcf.evaluation import EpochRecorder, Evaluation, Validation, evaluate
from transcf.evaluation.evaluator import Subset
from transcf.evaluation.metrics import check_lengths, metric_names
from transcf.evaluation.ranks import Ties
from transcf.experiments.results import RunResult
from transcf.experiments.store import Store
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.models.registry import canonical_name
from transcf.models.training import Epoch, FitOptions
from transcf.protocols import full_ranking, protocol_named

#: Called when a fit starts, with "fit" or "refit"; returns its options.
StartFit: TypeAlias = Callable[[str], FitOptions]


@dataclass(frozen=True)
class EvalConfig:
    """How models are evaluated: the same for all models of a table."""

    protocol: str | None = None  # None until the split is known (`on`)
    ties: Ties = "pessimistic"
    subset: Subset = "test"
    k: tuple[int, ...] = (10, 20)
    beyond: bool = False  # whether to compute metrics beyond accuracy
    with_validation: bool = True  # models without epochs need another fit for its metric
    max_seconds: float | None = None  # `FitOptions.max_seconds` of every fit
    check: Callable[[], None] | None = None  # `Validation.check`

    def __post_init__(self) -> None:
        if self.protocol is not None:  # by its present name
            object.__setattr__(self, "protocol", protocol_named(self.protocol).name)
        check_word("ties", self.ties, get_args(Ties))
        check_word("subset", self.subset, get_args(Subset))
        check_lengths(self.k)

    def on(self, split: Split) -> Self:
        """Return the configuration with the default protocol of a split, unless one is named."""
        if self.protocol is None:
            return replace(self, protocol=usual_protocol(split))
        check_split(split, self.protocol)
        return self

    def check_metric(self, metric: str) -> None:
        """Raise a `ParameterError` unless the metric is computed."""
        computed = metric_names(self.k, beyond=self.beyond, protocol=self.protocol)
        if not is_word(metric, computed):
            more = "" if self.beyond else ", or go beyond accuracy (beyond=True, --beyond)"
            if self.is_sampled:
                more = ", or a protocol of full ranking"
            raise ParameterError(
                f"metric={shown(metric)} is not computed: choose one of {', '.join(computed)}, or "
                f"other lengths of lists{more}."
            )

    @property
    def is_sampled(self) -> bool:
        """Whether the protocol ranks sampled candidates."""
        return self.protocol is not None and protocol_named(self.protocol).sampled

    @property
    def usual_metric(self) -> str:
        """The default metric of paired tests: NDCG@10, or NDCG at the first length."""
        return f"NDCG@{10 if 10 in self.k else self.k[0]}"

    def validation(self, split: Split) -> Validation:
        """Return the validation that chooses epochs and parameters."""
        found = Validation.of(split, self.protocol, self.ties, self.k)
        found.check = self.check
        return found

    def evaluate(self, model: Recommender[Any], split: Split) -> Evaluation:
        """Evaluate a fitted model."""
        options: dict[str, Any] = {"ties": self.ties, "subset": self.subset, "k": self.k}
        return evaluate(model, split, self.protocol, **options, beyond=self.beyond)

    def full_ranking(self, model: Recommender[Any], split: Split) -> Evaluation | None:
        """Evaluate in full ranking if the protocol samples candidates, for comparison."""
        return replace(self, protocol=None).evaluate(model, split) if self.is_sampled else None

    @property
    def refits(self) -> bool:
        """Whether a model is refitted on train and validation before it is evaluated."""
        return self.subset == "test" and protocol_named(str(self.protocol)).refit

    @property
    def picks_epochs_on_test(self) -> bool:
        """Whether the metrics are those of the best epoch on test, as in the published tables."""
        return self.subset == "test" and protocol_named(str(self.protocol)).best_on_test


@dataclass(frozen=True)
class RunKey:
    """Everything that a result depends on; names of data and models are not part of it."""

    #: "trial": chooses parameters on the validation part; "judged": evaluated by a protocol.
    kind: Literal["trial", "judged"]
    data: str  # digest of the training part of a trial, else of the whole split
    rules: Mapping[str, Any]  # metric, or protocol and options of `EvalConfig`
    model: str  # class
    settings: Mapping[str, Any]  # all parameters, including the seed
    version: str = __version__
    generation: int = 1  # raised by changes of a model that change results

    @classmethod
    def trial(
        cls,
        model: Recommender[Any],
        train: Interactions,
        validation: Validation,
        max_seconds: float | None = None,
    ) -> Self:
        """Return the key of a trial; it does not depend on the test part."""
        rules: dict[str, Any] = {"metric": validation.metric, "validation": validation.fingerprint}
        rules |= {} if max_seconds is None else {"max_seconds": max_seconds}
        return cls("trial", train.digest, rules, *_model_fields(model))

    @classmethod
    def evaluated(cls, model: Recommender[Any], split: Split, config: EvalConfig) -> Self:
        """Return the key of an evaluation by a protocol; `config` names the protocol."""
        names = ("protocol", "ties", "subset", "k", "beyond")
        rules = {name: getattr(config, name) for name in names}
        rules |= {"split": split.how, "validated": config.with_validation}
        rules |= {} if config.max_seconds is None else {"max_seconds": config.max_seconds}
        return cls("judged", split.digest, rules, *_model_fields(model))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON form; the same for equal numbers, such as 50 and 50.0."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}


def _model_fields(model: Recommender[Any]) -> tuple[str, dict[str, Any], str, int]:
    """Return `model`, `settings`, `version` and `generation` of a key."""
    return type(model).__name__, values_of(model.settings), __version__, model._revision


def _plain(value: Any) -> Any:
    """Convert to JSON types, the same for equal numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return int(value) if value.is_integer() else value if np.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


def fit_and_evaluate(
    model: Recommender[Any],
    split: Split,
    config: EvalConfig,
    cache: Store | None = None,
    *,
    start_fit: StartFit = lambda step: FitOptions(),
    dataset: str = "",
) -> RunResult:
    """Fit a model on the training part, refit it if the protocol says so, and evaluate it once.

    A model that is fitted is not fitted on the training part again. `start_fit` returns the options
    of each fit; `dataset` is the name of the data in `transcf runs list`.

    Returns:
        The result; with an error if the training diverges.

    Raises:
        RunLockedError: Another process is computing this run.
        KeyboardInterrupt: A fit was interrupted.

    Example:
        >>> from transcf import EASE, open_split
        >>> result = fit_and_evaluate(EASE(), open_split("synthetic"), EvalConfig())
        >>> round(result.evaluation.metrics["NDCG@10"].mean, 1)
        0.2
    """
    config = config.on(split)
    if cache is not None and not config.with_validation:
        # A stored run that has the validation metric, too, is as good.
        complete = RunKey.evaluated(model, split, replace(config, with_validation=True))
        if (found := cache.find(complete)) is not None:
            return found

    def compute() -> RunResult:
        validation, recorder = config.validation(split), None
        # A first fit is needed for what is chosen on validation data, for the validation metric,
        # and where no refit follows. Else the refit is the only fit.
        chooses = model._chooses(split.train.timestamps is not None)
        if not model.is_fitted and (config.with_validation or chooses or not config.refits):
            options = replace(start_fit("fit"), max_seconds=config.max_seconds)
            if config.picks_epochs_on_test and model._has_epochs():
                recorder = EpochRecorder(split, ties=config.ties, k=config.k, beyond=config.beyond)
                options = replace(options, on_epoch=partial(_record, recorder, options.on_epoch))
            model.fit(split.train, validation, options)
            _check_finished(model)
        metric = validation(model) if config.with_validation else None
        reports, curve = [], _curve(model) if model.is_fitted else []
        if config.refits:
            # A fit for the validation metric alone is not counted as training time.
            reports += [dict(model.report_)] if chooses else []
            options = start_fit("refit")
            if model.is_fitted:  # up to the chosen epoch, if there is one
                model.refit(split.before_test, options)
            else:
                model.fit(split.before_test, None, options)
            _check_finished(model)
        return RunResult.of(
            model,
            **_fit_seconds([*reports, model.report_]),
            validation=metric,
            curve=curve,
            evaluation=config.evaluate(model, split) if recorder is None else recorder.result(),
            full_ranking=config.full_ranking(model, split),
        )

    run = partial(_timed, model, compute, DivergenceError)
    if cache is None:
        return run()
    about = {"dataset": dataset, "model": canonical_name(model.name)}
    return cache.get(RunKey.evaluated(model, split, config), run, about)


def fit_and_validate(
    model: Recommender[Any],
    train: Interactions,
    validation: Validation,
    cache: Store | None = None,
    *,
    start_fit: StartFit = lambda step: FitOptions(),
    dataset: str = "",
    max_seconds: float | None = None,
) -> RunResult:
    """Fit a model on the training part, and evaluate it on the whole validation part.

    This is a trial of a search; arguments are those of `fit_and_evaluate`. The result has an error
    if the model cannot be trained; invalid parameters and missing extras raise.
    """

    def compute() -> RunResult:
        with warnings.catch_warnings():
            # A search tries poor settings, too; the metric says how poor they are.
            warnings.simplefilter("ignore", FitWarning)
            model.fit(train, validation, replace(start_fit("fit"), max_seconds=max_seconds))
        metric = validation(model)
        _check_finished(model)
        seconds = _fit_seconds([model.report_])
        return RunResult.of(model, **seconds, validation=metric, curve=_curve(model))

    run = partial(_timed, model, compute, TransCFError)
    if cache is None:
        return run()
    about = {"dataset": dataset, "model": canonical_name(model.name)}
    return cache.get(RunKey.trial(model, train, validation, max_seconds), run, about)


def open_for_use(
    data: str,
    protocol: str | None = None,
    seed: int = 0,
    *,
    partitioned: bool = False,
    **reading: Unpack[Reading],
) -> tuple[Interactions | PartitionedLog, Split | PartitionedLog, Validation | PartitionedLog, str]:
    """Return the first arguments of `fit_for_use` after the model, and the name of the protocol.

    With `partitioned`, a partitioned log stays on disk, for workers of a cluster.
    """
    log = as_partitioned(data) if partitioned else None
    if log is None:
        events, split = open_log_and_split(data, protocol, seed=seed, **reading)
        protocol = protocol or usual_protocol(split)
        return events, split, Validation.of(split, protocol), protocol
    if reading:
        raise ParameterError(
            f"{data} is split already: how to read it ({', '.join(reading)}) can only be said when "
            "it is prepared."
        )
    usual = full_ranking(cut=False, refit=True).name
    named = protocol_named(protocol or usual)
    if named.sampled or named.cut or named.longer_history:
        raise ParameterError(
            f"--protocol {named.name} does not go with a partitioned log on a cluster: use {usual},"
            " or fit without --workers."
        )
    return log, log, log.validation, named.name


def fit_for_use(
    model: Recommender[Any],
    log: Interactions | PartitionedLog,
    split: Split | PartitionedLog,
    validation: Validation | PartitionedLog,
    options: FitOptions | None = None,
) -> str:
    """Fit for production: choose epoch (or weights) and trend on held-out events, then fit on all.

    Models without epochs have nothing to choose where events have no times. A log that is too small
    to hold anything out is fitted without validation. After an interruption while the epoch is
    being chosen, the model has the best epoch so far, without the held-out events.

    `split` is `log` with events held out, and `validation` evaluates on these; each fit has a
    folder of checkpoints inside that of `options`. Returns a description of the fit.
    """
    whole = options or FitOptions()
    folder = whole.checkpoint
    first, final = (
        replace(whole, checkpoint=None if folder is None else folder / name)
        for name in ("choice", "all")
    )
    events = f"all {len(log):,} events"
    timed = log.timestamps is not None if isinstance(log, Interactions) else log.timed
    if not model._chooses(timed):
        model.fit(log, None, whole)
        return f"{events}; there was no epoch to choose"
    try:
        model.fit(split.train, validation, first)
    except EvaluationError as error:
        model.fit(log, None, final)
        return f"{events}, without choosing an epoch: {error}"
    if model.report_.get("ending") == "interrupted":
        return f"a part of the events, interrupted while the epoch was chosen ({split.how})"
    epoch = model.best_epoch_
    chosen = f"epoch {epoch} was"
    if epoch is None:
        chosen = "the trend was" if "trend" in model.report_ else "weights were"
    compared = model.report_.get("held_out_metric")
    model.refit(log, final)
    if compared is not None:
        model.report_["held_out_metric"] = compared
    return f"{events}, after {chosen} chosen on held-out ones ({split.how})"


def evaluate_held_out(
    model: Recommender[Any], config: EvalConfig, folder: str
) -> tuple[str, RunResult]:
    """Evaluate a saved model on the events that `transcf fit --hold-out` left out.

    Without a protocol in `config`, sampled and sequential models are evaluated by the protocol that
    they were fitted for; for others the protocol follows from the split. Errors name the folder.

    Returns:
        Name of the data, and the result.
    """
    origin = model.report_
    if origin.get("held_out") is False:
        raise DataError(
            f"{folder} was fitted on all events, so that none is left to evaluate it: evaluate "
            "the data with --model, or fit with --hold-out."
        )
    if not {"dataset", "protocol", "split_seed"} <= origin.keys():
        raise DataError(
            f"{folder} does not say what it was fitted on: only `transcf fit` notes that down."
        )
    dataset, seed = origin["dataset"], origin["split_seed"]
    fitted_for = protocol_named(origin["protocol"])
    if config.protocol is None and (fitted_for.sampled or fitted_for.longer_history):
        config = replace(config, protocol=fitted_for.name)
    split = open_split(dataset, fitted_for.name, seed=seed, **origin.get("reading", {}))
    if not any(_is_fitted_on(model, part) for part in (split.before_test, split.train)):
        raise DataError(f"{dataset} has changed since {folder} was fitted on it: fit again.")
    split = split_log(split, config.protocol, seed=seed)
    return dataset, RunResult.of(
        model,
        seconds=float(origin["seconds"]),
        evaluation=config.evaluate(model, split),
        full_ranking=config.full_ranking(model, split),
    )


def _is_fitted_on(model: Recommender[Any], train: Interactions) -> bool:
    return (
        train.users == model.users_
        and train.items == model.items_
        and np.array_equal(train.by_user.indptr, model.seen_.indptr)
        and np.array_equal(train.by_user.indices, model.seen_.indices)
    )


def _record(
    recorder: EpochRecorder, on_epoch: Callable[[Epoch[Any]], None] | None, epoch: Epoch[Any]
) -> None:
    recorder(epoch.snapshot)
    if on_epoch is not None:
        on_epoch(epoch)


def _check_finished(model: Recommender[Any]) -> None:
    """Raise `KeyboardInterrupt` if a fit was interrupted: it returns its best epoch instead."""
    if model.report_.get("ending") == "interrupted":
        raise KeyboardInterrupt


def _curve(model: Recommender[Any]) -> list[dict[str, Any]]:
    """Return `epoch`, `loss` and `metric` of the epochs of the last fit; none without epochs."""
    if model.best_epoch_ is None:
        return []
    return model.history_.select("epoch", "loss", "metric").to_dicts()


def _timed(
    model: Recommender[Any], compute: Callable[[], RunResult], error: type[TransCFError]
) -> RunResult:
    """Compute a result and add its time; it may be an error of that class, but for wrong usage."""
    started = perf_counter()
    try:
        result = compute()
    except (ParameterError, MissingExtraError):
        raise
    except error as problem:
        result = RunResult.failed(model, problem)
    return replace(result, spent=round(perf_counter() - started, 3))


def _fit_seconds(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `seconds` and `parts` of a result: sums over the reports of all fits."""
    parts = {
        name: sum(report.get(name, 0.0) for report in reports)
        for name in ("training_seconds", "validation_seconds")
        if name in reports[-1]
    }
    return {"seconds": sum(report.get("seconds", 0.0) for report in reports), "parts": parts}
