"""`transcf evaluate` and `transcf compare`: evaluate one model, or several on one split."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import transcf
from transcf.cli import options, output
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.experiments.experiment import Candidate

#: Options that a saved model leaves open; all others were set when it was fitted.
_ALLOWED_WITH_MODEL = {"data", "protocol", "subset", "lengths", "beyond", "as_json"}


def evaluate(
    context: typer.Context,
    data: options.Data,
    model: options.ModelOptions,
    evaluation: options.EvalOptions,
    reading: options.ReadingOptions,
    seeds: options.Seeds = 1,
    seed: options.Seed = 0,
    *,
    answer: output.Answer,
) -> None:
    """Fit a model on DATA and evaluate it; or evaluate a saved model.

    A saved model (DATA is its folder) is evaluated on the events that `fit --hold-out` left out.

    Example: transcf evaluate events.csv --model ease --seeds 3
    """
    from transcf.data.files import path_of

    folder = path_of(data)
    if (folder / "model.json").is_file():
        given = options.given_options(context)
        refused = [option for name, option in given.items() if name not in _ALLOWED_WITH_MODEL]
        if refused:
            raise ParameterError(f"{data} is a fitted model: leave out {', '.join(refused)}.")
        from transcf.experiments.results import CandidateResult
        from transcf.experiments.run import evaluate_held_out

        saved = options.open_model(data)
        dataset, run = evaluate_held_out(saved, evaluation.config(), data)
        result = CandidateResult.of(saved.name, [run])
    else:
        from transcf.experiments.experiment import Candidate
        from transcf.experiments.results import CandidateResult
        from transcf.experiments.run import fit_and_evaluate
        from transcf.experiments.store import wait_for_others

        if model.model is None and not model.config and folder.is_dir():
            raise ParameterError(
                f"{data} is not a saved model: it has no model.json. To fit a model on data in it, "
                "name one with --model."
            )
        name, params, values = model.read(data)
        candidate = Candidate(name, name, params | values)
        # The validation metric is not printed; without it, models without epochs are fitted once.
        config = replace(evaluation.config(), with_validation=False)
        split = transcf.open_split(data, config.protocol, seed=seed, **reading.keywords())
        output.note_reading(split.train)
        dataset, store, results = data, options.open_store(), []
        for number in range(seed, seed + seeds) if candidate.takes_seed else [seed]:
            made = candidate.make(number)
            run_one = partial(fit_and_evaluate, made, split, config, store, dataset=data)
            results.append(wait_for_others(run_one))
            if (error := results[-1].error) is not None:
                raise error
        result = CandidateResult.of(name, results)
    answer.show({"dataset": dataset, **result.to_dict()}, result.table(dataset))


def compare(
    context: typer.Context,
    data: options.Data,
    models: str = "itemknn,ease",
    settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    config: list[Path] | None = None,
    budget: str = "small",
    metric: str | None = None,
    *,
    evaluation: options.EvalOptions,
    reading: options.ReadingOptions,
    seeds: options.Seeds = 1,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    out: list[Path] = [Path("comparison")],  # noqa: B006
    answer: output.Answer,
) -> None:
    """Compare several models on the same split.

    Differences are tested by paired tests. With --workers, the processes need access to the folder
    of `transcf --store`. Exits with 1 if a model could not be fitted.

    Options:
        models: Names separated by commas, or 'all'; trivial baselines are added.
        settings (MODEL.NAME=VALUE): A parameter of one model; repeatable.
        config (FILE): A model with its parameters from a TOML file of `transcf tune --out FILE`;
            --set wins; repeatable.
        budget: Settings of each model to try on validation data: none (the defaults), small (3),
            medium (10), large (40) or a number.
        metric: Metric of the paired tests; NDCG at 10, or at the first of other -k.
        out (PATH|none): Folder for comparison.html, .md and .json, or one file of these;
            repeatable.

    Example: transcf compare events.csv --models ease,bpr,transcf-mixture
    """
    from transcf.data.report import listed
    from transcf.experiments.experiment import Experiment, compare_models, suited_to
    from transcf.experiments.report import results_of, table_of

    paths = [path for path in out if str(path) != "none"]
    output.check_outputs(paths)
    eval_config = evaluation.config()
    metric = eval_config.usual_metric if metric is None else metric
    eval_config.check_metric(metric)
    candidates = _candidates(models, settings, config or [])
    for candidate in candidates:
        candidate.within(budget).checked()
    split = transcf.open_split(data, eval_config.protocol, seed=seed, **reading.keywords())
    output.note_reading(split.train)
    if "budget" not in options.given_options(context):
        output.note(
            "note: tries 3 settings of each model on validation data; --budget none tries none."
        )
    candidates = suited_to(split, candidates, budget)
    numbers, store = range(seed, seed + seeds), options.open_store()
    with output.Steps(len(candidates), "models") as steps:
        experiment = Experiment(
            split, eval_config, numbers, steps.report, store=store, dataset=data
        )
        found = compare_models(
            data, candidates, experiment, metric,
            on_result=lambda name, tables: steps.finish(name),
            cluster=options.parse_workers(workers),
        )  # fmt: skip
    answer.show(found.to_dict(), table_of(found))
    if found.is_interrupted:
        output.end_interrupted(": models without a row were not finished.")
    output.write_outputs(results_of(found, options.command_line(context)), paths, "comparison")
    if found.failures:
        missing = listed(list(found.failures))
        output.note(f"{missing} could not be fitted: the notes say why.")
        raise typer.Exit(1)


def _candidates(models: str, settings: list[str] | None, config: list[Path]) -> list[Candidate]:
    """Return the candidates of the options; settings of --set replace those of --config."""
    from transcf.experiments.experiment import TRIVIAL_BASELINES, candidates_of
    from transcf.experiments.results import TIMED_BASELINE
    from transcf.experiments.search import Config
    from transcf.models.registry import canonical_name, distinct

    asked = distinct() if models == "all" else map(canonical_name, models.split(","))
    stored = {read.model: dict(read.params) for read in map(Config.read, config)}
    if len(stored) < len(config):
        raise ParameterError("Two --config files are about the same model: give one for each.")
    given: dict[str, list[str]] = {}  # NAME=VALUE by model
    for setting in settings or ():
        model, point, own = setting.partition(".")
        given.setdefault(canonical_name(model) if point else setting, []).append(own)
    # The baseline of data with times is added later, unless it has settings of its own.
    timed = {TIMED_BASELINE} & given.keys()
    names = list(dict.fromkeys((*TRIVIAL_BASELINES, *timed, *asked, *stored)))
    for model in given:
        if model not in names:
            raise ParameterError(
                f"--set {model} names none of the models: write MODEL.NAME=VALUE, with one of "
                f"{', '.join(names)}."
            )
    named = dict(options.read_settings(name, given.get(name, [])) for name in names)
    return candidates_of({name: (name, stored.get(name, {}) | own) for name, own in named.items()})
