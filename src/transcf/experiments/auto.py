"""`auto`: find a good model for a log within a time limit, and make it ready for use.

Models and settings are compared on the validation part. The defaults of all models come first,
cheap models before expensive ones; then settings of the best models by successive halving; then
blends of the best models. The winner is tested once on the test part, which no choice has seen,
and fitted again on all events.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from transcf import __version__
from transcf.data.datasets import is_name
from transcf.data.files import path_of
from transcf.data.interactions import Interactions
from transcf.data.readers import as_interactions, read_interactions
from transcf.data.splitters import open_log_and_split, split_log
from transcf.errors import EvaluationError, ParameterError, shown
from transcf.experiments.auto_report import AutoResult, report_of, stored_result, write_report
from transcf.experiments.auto_search import DENSE, AutoSearch, AutoTrial
from transcf.experiments.results import RunResult
from transcf.experiments.run import EvalConfig
from transcf.experiments.search import grid_of, space_of
from transcf.experiments.store import Store
from transcf.interrupts import stop_on_interrupt
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.models.registry import canonical_name, create
from transcf.models.training import FitOptions
from transcf.protocols import protocol_named

#: Models in the order in which their defaults are tried; models with torch only if named.
MODELS = (
    "popularity", "recent-popularity", "sequential-rules", "itemknn", "ease", "transcf-mixture",
    "ials", "slim", "bpr", "transcf", "cml",
)  # fmt: skip
#: Items up to which dense models are cheap, and up to which they are tried by default.
_CHEAP_ITEMS, _DENSE_ITEMS = 5_000, 20_000
#: Share of the default epochs in the first step of successive halving.
_SMALL = 0.25
#: Shares with which defaults are tried: the first for which there is time.
_SHARES = (1.0, 0.5, _SMALL)
#: New settings of the best, second and third model in each round.
_PROPOSALS = (4, 3, 2)
#: Models that are compared on so many users: within both limits, but on the least number.
_USERS, _SCORES, _LEAST_USERS = 10_000, 200_000_000, 1_000
#: Most users of the test against those.
_MORE_TESTS = 3
#: Most rounds of settings, and rounds that leave the best three models as they are before the end.
_ROUNDS, _PATIENCE = 20, 3
#: Probability that a parameter of the best setting of a model is replaced.
_CHANGE = 0.4
#: Parameters that models choose by themselves.
_CHOSEN = ("trend", "trend_half_life")
#: Share of the time limit for all but writing the model.
_FOR_SEARCH = 0.97
#: Models that the best one is blended with.
_PARTNERS = 3


def auto(
    data: Any,
    minutes: float = 10.0,
    out: str | PathLike[str] | None = None,
    *,
    models: Sequence[str] | None = None,
    metric: str = "NDCG@10",
    protocol: str | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    overwrite: bool = False,
    on_progress: Callable[[float, str], None] | None = None,
    on_read: Callable[[Interactions], None] | None = None,
    **reading: Any,
) -> AutoResult:
    """Find a good model for a log within a time limit, and fit it on all events.

    Events are held out as `evaluate` does it: the newest tenth for test and the tenth before it for
    validation where there are times, else one event of each user at random for each. Models and
    settings are chosen on the validation part. A setting that is not the default, or a blend, wins
    only if its paired gain over the best default exceeds one standard error, and more with few
    users. Ctrl-C ends the search and keeps the best model so far; a second Ctrl-C ends at once.

    Args:
        data: A log, a table, or anything that `open_data` accepts.
        minutes: Time limit for everything, including the final fit.
        out: Folder for the model. `OUT.report.json` and `OUT.report.md` are written next to it. A
            model of an earlier call on the same data is returned if it had as much time, and
            replaced if it had less or was interrupted.
        models: Names of models to try; popularity is added. By default models that suit the size
            of the data; models that need torch only if they are named here.
        metric: What is compared, such as "NDCG@10" or "Recall@20".
        protocol: A protocol of full ranking, as for `evaluate`.
        seed: Seed of the models, the split and the settings that are tried.
        store: Folder of the run cache: stored runs are taken from it and count with the time that
            they took, so that an interrupted search continues.
        overwrite: Whether another model in `out` is replaced.
        on_progress: Called with the elapsed seconds and one line of text.
        on_read: Called with the log when it has been read.
        reading: Options of `read_interactions`, for a path or a name.

    Example:
        >>> from transcf import auto, synthesize
        >>> found = auto(synthesize(users=200, items=60, interactions=3000), minutes=0.02)
        >>> found.model.is_fitted, found.report["metric"]
        (True, 'NDCG@10')
    """
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not 0 < minutes < math.inf:
        raise ParameterError(f"minutes={shown(minutes)} is not allowed; it must be above 0.")
    if protocol is not None and protocol_named(protocol).sampled:
        raise ParameterError(f"protocol={shown(protocol)} is not allowed: use one of full ranking.")
    EvalConfig(protocol).check_metric(metric)
    named = _names(models)
    started, about = perf_counter(), {}
    if isinstance(data, str | PathLike):
        log, split = open_log_and_split(data, protocol, seed=seed, **reading)
        if all(isinstance(value, str | int | float) for value in reading.values()):
            place = str(data) if is_name(data) else str(path_of(data).resolve())
            about = {"dataset": place, "split_seed": seed}
            about |= {"reading": reading} if reading else {}
    else:
        log = read_interactions(data, **reading) if reading else as_interactions(data)
        split = split_log(log, protocol, seed=seed)
    if on_read is not None:
        on_read(log)
    config = EvalConfig(protocol, subset="validation", with_validation=False).on(split)
    names = list(named) if models is not None else _suited(named, log)
    question = {
        "data": split.digest,
        "models": names,
        "metric": metric,
        "protocol": config.protocol,
        "seed": seed,
        "version": __version__,
    }
    target = None if out is None else path_of(out).absolute()  # "." is another folder once replaced
    if target is not None:
        stored, is_own = stored_result(target, question, minutes, overwrite=overwrite)
        if stored is not None:
            return stored
        overwrite = overwrite or is_own
    most = max(_LEAST_USERS, min(_USERS, _SCORES // split.train.n_items))
    part = replace(split, validation=_with_fewer_users(split.validation, most, seed))
    tested = replace(split, test=_with_fewer_users(split.test, _MORE_TESTS * most, seed))
    kept = None if store is None else Store(store)
    with stop_on_interrupt(grace=math.inf) as request:
        search = AutoSearch(
            log, part, tested, metric, config, kept, seed, _FOR_SEARCH * 60 * minutes, request,
            started, on_progress,
        )  # fmt: skip
        is_interrupted = False
        try:
            _run(search, names)
            winner = search.winner()
            results = _test(search, winner)
        except KeyboardInterrupt:
            if not search.trials:
                raise
            is_interrupted, winner, results = True, search.winner(), []
            search.untested = "the search was interrupted."
        search.report(f"fitting {winner.name} on all events")
        model = _fit_on_all(search, winner)
    report = report_of(search, winner, results, model, minutes, question, is_interrupted)
    model.report_ |= {"fitted_on": report["fitted_on"], "held_out": False, **about, "auto": report}
    if rivals := [one for one in report["tests"] if one["model"] == "popularity"]:
        test = report["test"]
        means = {"model": test["mean"], "popularity": rivals[0]["mean"]}
        model.report_["held_out_metric"] = {"metric": metric, **means, "users": test["users"]}
    result = AutoResult(model, report)
    if target is not None:
        model.save(target, overwrite=overwrite)
        write_report(result, target)
    return result


def _with_fewer_users(events: Interactions, most: int, seed: int) -> Interactions:
    users = np.unique(events.user_rows)
    if len(users) <= most:
        return events
    taken = np.zeros(events.n_users, dtype=bool)
    taken[np.random.default_rng(seed).choice(users, most, replace=False)] = True
    return events.select(taken[events.user_rows])


# -- what is tried -----------------------------------------------------------------------------


def _names(models: Sequence[str] | None) -> tuple[str, ...]:
    if models is None:
        return MODELS
    if isinstance(models, str) or not models:
        raise ParameterError(f"models={shown(models)} is not allowed: give a list of names.")
    named = dict.fromkeys(("popularity", *map(canonical_name, models)))
    if "blend" in named:
        raise ParameterError("blend is no model to try: the best models are blended in any case.")
    return tuple(named)


def _suited(names: Sequence[str], log: Interactions) -> list[str]:
    """Leave out models that do not suit the data; expensive ones come last."""
    left_out = set() if log.timestamps is not None else {"recent-popularity", "sequential-rules"}
    left_out |= set(DENSE) if log.n_items > _DENSE_ITEMS else set()
    late = set(DENSE) if log.n_items > _CHEAP_ITEMS else set()
    suited = [name for name in names if name not in left_out]
    return sorted(suited, key=late.__contains__)


def _run(search: AutoSearch, names: Sequence[str]) -> None:
    """Try the defaults, blends of the best, settings by successive halving, and blends again."""
    for name in names:
        for share in _SHARES if search.default_epochs(name) else (1.0,):
            if search.try_setting(name, {}, share) is not None:
                break
    started, waited = search.elapsed, 0
    search.tests_second = True
    _run_blends(search)
    search.reserved = search.elapsed - started
    for number in range(_ROUNDS):
        before, best = len(search.trials), search.ranked()[:3]
        _run_round(search, number)
        waited = 0 if search.ranked()[:3] != best else waited + 1
        if len(search.trials) == before or waited == _PATIENCE:
            break
    search.reserved = 0.0
    _run_blends(search)


def _run_round(search: AutoSearch, number: int) -> None:
    """Try new settings of the best models; those with epochs with few of them first.

    Of the latter the best third is tried with all epochs. The best setting so far is tried with
    few epochs as well, so that others are compared with it.
    """
    small: list[AutoTrial | None] = []
    for best, count in zip(list(search.ranked()), _PROPOSALS, strict=False):
        has_epochs = bool(search.default_epochs(best.name))
        settings = list(islice(_proposals(search, best, number), count))
        if has_epochs and settings:
            small.append(search.try_setting(best.name, best.setting, _SMALL))
        for setting in settings:
            found = search.try_setting(best.name, setting, _SMALL if has_epochs else 1.0)
            small += [found] if has_epochs else []
    done = [trial for trial in small if trial is not None and trial.result.error is None]
    done.sort(key=search.value, reverse=True)
    for trial in done[: math.ceil(len(done) / 3)]:
        search.try_setting(trial.name, trial.setting, 1.0)


def _proposals(search: AutoSearch, best: AutoTrial, number: int) -> Iterator[dict[str, Any]]:
    """Yield new settings of a model: its best one with some parameters changed at random."""
    space = space_of(best.name, timed=search.log.timestamps is not None)
    space = {name: values for name, values in space.items() if name not in _CHOSEN}
    rng = np.random.default_rng([search.seed, number, zlib.crc32(best.name.encode())])
    usual = values_of(create(best.name).settings)
    known = [trial.setting for trial in search.trials if trial.name == best.name]
    for point in grid_of(space, [search.seed, number]):
        changed = {name: value for name, value in point.items() if rng.random() < _CHANGE}
        setting = {**best.setting, **changed, "age_in": "events"}
        if setting.get("half_life") is None:  # nothing has a unit
            del setting["age_in"]
        setting = {name: value for name, value in setting.items() if value != usual[name]}
        if setting not in known:
            known.append(setting)
            yield setting


# -- blends and the end ------------------------------------------------------------------------


def _run_blends(search: AutoSearch) -> None:
    """Blend the best model with each of the next ones; then with the two that help most."""
    best, *others = search.ranked()[: 1 + _PARTNERS]
    found = [(search.try_blend([best, other]), other) for other in others]
    helpful = [(one, other) for one, other in found if one is not None and search.gains(one, best)]
    helpful.sort(key=lambda pair: search.value(pair[0]), reverse=True)
    if helpful and len(others) > 1:
        partners = [other for _, other in helpful] + others
        search.try_blend([best, *list(dict.fromkeys(partners))[:2]])


def _test(search: AutoSearch, winner: AutoTrial) -> list[tuple[AutoTrial, RunResult]]:
    """Evaluate the winner, the runner-up and popularity on the test part.

    The runner-up is the best trial of another model that can be refitted in the time that is left.
    """
    left = search.limit - search.elapsed - winner.fit_seconds - 2 * winner.refit_seconds
    left -= search.test_users * winner.evaluation_seconds
    others = [trial for trial in search.ranked() if trial.name != winner.name]
    second = [trial for trial in others if trial.fit_seconds + trial.refit_seconds <= left][:1]
    found = []
    for trial in dict.fromkeys([winner, *second, search.trials[0]]):
        search.check_interrupt()
        search.report(f"testing {trial.name}")
        model = trial.model
        if model is None or not search.is_stored(model, test=True):
            model = search.fitted(trial)
        try:
            result = search.evaluate(model, test=True)
        except EvaluationError as error:  # as where all users have all items
            search.untested = str(error)
            return []
        if result.evaluation is not None:
            found.append((trial, result))
    return found


def _fit_on_all(search: AutoSearch, winner: AutoTrial) -> Recommender[Any]:
    """Fit the winner on all events, with its epoch, trend and weights.

    The first Ctrl-C ends the search, and so the final fit is repeated if it is interrupted.
    """
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            model = search.fitted(winner).refit(search.log, FitOptions(progress=False))
            if model.report_.get("ending") != "interrupted":
                return model
            winner.model = None
    raise KeyboardInterrupt
