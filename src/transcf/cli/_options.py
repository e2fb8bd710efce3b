"""Options that several commands share, and what they mean to the library."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast, get_args

import typer

from transcf.errors import ParameterError, did_you_mean
from transcf.protocols import PROTOCOLS, help_on_protocols

if TYPE_CHECKING:
    from transcf.distributed import Cluster
    from transcf.evaluation.evaluator import Subset
    from transcf.evaluation.ranks import Ties as EvaluationTies
    from transcf.experiments.run import EvalConfig
    from transcf.experiments.store import Store
    from transcf.models.base import Recommender

#: Keywords of `open_data`.
ReadingOptions: TypeAlias = dict[str, Any]
#: DATA of every command.
Data: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file, a pattern in quotes ('logs/*.csv'), a folder of Parquet, a prepared folder, "
        "a saved split, a catalog name, or 'synthetic'.",
        show_default=False,
    ),
]
Columns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="Which column of a file is the user, item, rating, timestamp or category, where its "
        "name does not tell; a number from 1 with --no-header; repeatable.",
    ),
]
Ratings: TypeAlias = Annotated[
    str | None,
    typer.Option(help="What ratings of a file have to be: any (default), present or nonnegative."),
]
MinRating: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="The lowest rating of events that count. Unless given, ratings of 0 and below are "
        "left out of files (and counted); -inf keeps all.",
    ),
]
FilterName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="none|paper|N-core",
        help="5-core (any number) keeps users and items with at least 5 events, repeated until it "
        "holds; paper is the one-pass filter of the TransCF paper.",
        show_default="none",
    ),
]
NoHeader: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="The first line of the file is data: columns are numbers from 1, the first is the "
        "user and the second the item unless --column says otherwise.",
    ),
]
Separator: TypeAlias = Annotated[
    str | None,
    typer.Option(help="What parts the columns of a file, such as '|', '::' or tab; else found."),
]
Encoding: TypeAlias = Annotated[
    str | None, typer.Option(help="Encoding of a file, such as latin-1; utf-8 unless given.")
]
Categories: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Categories of a file's items: item_id and category, a line for each."
    ),
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the model; repeatable."),
]
Preset: TypeAlias = Annotated[
    str | None, typer.Option(help="Settings that come with the model, before --set.")
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Settings from a TOML file, as `transcf tune --out FILE` writes it; before --set.",
    ),
]
Protocol: TypeAlias = Annotated[
    str | None, typer.Option(help=help_on_protocols(), show_default=False)
]
Part: TypeAlias = Annotated[str, typer.Option(help="test or validation.")]
Lengths: TypeAlias = Annotated[
    str, typer.Option("--at", metavar="N,N", help="Lengths N of the lists that are judged.")
]
Beyond: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--beyond", help="Go beyond accuracy: AUC, novelty, diversity (ILD) and Gini of the lists."
    ),
]
Seeds: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Runs, with seeds counted up; models without chance run once.")
]
Ties: TypeAlias = Annotated[str, typer.Option(help="pessimistic, realistic or optimistic.")]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of the model and of the split.")]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a page with tables, figures and a summary: one file that needs nothing else if "
        "it ends in .html; .md has its figures in a folder beside it.",
    ),
]

ResultsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="FILE",
        help="Keep what came of it, as --json prints it; tables of documentation are made of it.",
    ),
]

#: Where commands that fit and judge keep what came of it.
StorePath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help="Stored runs: what is there is not run again, and what is run is kept there. Unless "
        "given: $TRANSCF_RUNS, else runs in the user's cache (~/.cache/transcf).",
        show_default=False,
    ),
]
NoStore: TypeAlias = Annotated[
    bool, typer.Option("--no-store", help="Run everything, and keep nothing.")
]


def open_store(folder: Path | None) -> Store:
    """Return the store of runs that `--store` asks for."""
    from transcf.experiments.store import Store, default_folder

    return Store(folder or default_folder())


def open_store_unless(no_store: bool, folder: Path | None) -> Store | None:
    """Return the store of runs, or None with `--no-store`."""
    if folder is not None and no_store:
        raise ParameterError("--store and --no-store contradict each other: use one of them.")
    return None if no_store else open_store(folder)


def _limit_threads(context: typer.Context, threads: int | None) -> int | None:
    """Let the command use so many threads until it ends."""
    if threads is not None:
        from transcf.parallel import use_threads

        context.with_resource(use_threads(threads))
    return threads


Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        callback=_limit_threads,
        help="Threads of everything: kernels, matrix products, torch; all cores unless given. "
        "Results do not depend on it.",
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Spread the work over so many processes; not all models can be trained like that.",
    ),
]
ClusterAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|ADDRESS",
        help="Ray cluster of the workers; else one is started on this machine, and ended.",
    ),
]


def parse_cluster(workers: int | None, address: str | None) -> Cluster | None:
    """Say where to work; None works in this process."""
    if workers is None and address is None:
        return None
    from transcf.distributed import Cluster

    return Cluster(workers=workers or 2, address=address)


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of reading a log to a command, which takes them as `reading`."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(_parse_reading, eval_str=True).parameters

    @wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        command(**values, reading=_parse_reading(**given))

    parameters = [
        parameter
        for name, one in own.parameters.items()
        for parameter in (options.values() if name == "reading" else [one])
    ]
    # Everything is given by name, so that the order of kinds and defaults is of no meaning.
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    setattr(run, "__signature__", own.replace(parameters=named))  # noqa: B010
    run.__annotations__ = {one.name: one.annotation for one in named}
    return run


def _parse_reading(
    columns: Columns = None,
    ratings: Ratings = None,
    min_rating: MinRating = None,
    filter_name: FilterName = None,
    no_header: NoHeader = False,
    separator: Separator = None,
    encoding: Encoding = None,
    categories: Categories = None,
) -> ReadingOptions:
    """Turn the options of reading into the keywords of `open_data`."""
    from transcf.data.paths import path_of
    from transcf.data.validate import ROLES

    reading: ReadingOptions = {}
    for column in columns or ():
        role, equals, name = column.partition("=")
        if not equals or role not in ROLES:
            raise ParameterError(
                f"--column {column} is not understood: write ROLE=NAME, with one of the roles "
                f"{', '.join(ROLES)}."
            )
        reading[role] = name
    if no_header:
        reading["header"] = False
    given = {
        "ratings": ratings,
        "min_rating": min_rating,
        "filter": None if filter_name == "none" else filter_name,
        "separator": "\t" if separator in ("tab", "\\t") else separator,
        "encoding": encoding,
        # The same file from any folder: a fitted model stores how its data was read.
        "categories": categories and str(path_of(categories).resolve()),
    }
    return reading | {name: value for name, value in given.items() if value is not None}


def read_preset(name: str, preset_name: str | None, data: str) -> dict[str, Any]:
    """Read `--preset NAME` of a model for DATA; nothing if there is none."""
    from transcf.models.registry import preset_of

    return {} if preset_name is None else preset_of(name, preset_name, dataset_name(data))


def read_model(
    name: str | None,
    config: Path | None,
    settings: list[str] | None,
    preset_name: str | None = None,
    data: str = "",
) -> tuple[str, dict[str, Any]]:
    """Return the model of `--model` or `--config`, and its parameters: preset, file, `--set`."""
    from transcf.experiments.tune_result import Config

    stored = None if config is None else Config.read(config, name)
    if stored is not None:
        name = stored.model
    if name is None:
        raise ParameterError(
            "--model is missing: `transcf models` lists the names; --config FILE has one, too."
        )
    name, values = read_values(name, settings)
    params = read_preset(name, preset_name, data) | dict({} if stored is None else stored.params)
    return name, params | values


def read_values(name: str, settings: list[str] | None) -> tuple[str, dict[str, Any]]:
    """Read `--set NAME=VALUE`; return the model's name, old names replaced, and the values."""
    from transcf.models.params import parse
    from transcf.models.registry import current, model_class

    texts: dict[str, str] = {}
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting} is not understood: write NAME=VALUE.")
        texts[key.strip()] = text.strip()
    name, texts = current(name, texts)
    kind = model_class(name)
    rules = kind._rules()
    return name, {key: parse(kind.__name__, key, text, rules) for key, text in texts.items()}


def read_eval_config(
    protocol: str | None, ties: str, part: str, at: str, beyond: bool = False
) -> EvalConfig:
    """Check how models are to be judged, before anything is fitted."""
    from transcf.evaluation import evaluator, ranks
    from transcf.experiments.run import EvalConfig

    for option, word, allowed in (
        ("protocol", protocol, (None, *PROTOCOLS)),
        ("ties", ties, get_args(ranks.Ties)),
        ("part", part, get_args(evaluator.Subset)),
    ):
        if word not in allowed:
            raise ParameterError(
                f"--{option} {word} is not understood: use {', '.join(filter(None, allowed))}."
                f"{did_you_mean(word, filter(None, allowed))}"
            )
    lengths = [length.strip() for length in at.split(",")]
    if not all(length.isdecimal() and int(length) for length in lengths):
        raise ParameterError(f"--at {at} is not understood: write numbers such as 10,20.")
    return EvalConfig(
        protocol=protocol,
        ties=cast("EvaluationTies", ties),
        subset=cast("Subset", part),
        k=tuple(map(int, lengths)),
        beyond=beyond,
    )


def check_files(report: Path | None, results: Path | None = None) -> None:
    """Refuse files that cannot be written, before any work is done."""
    from transcf.experiments.page import check_file

    if report is not None:
        check_file(report)
    for option, path in (("--report", report), ("--results", results)):
        if path is not None and path.is_dir():
            raise ParameterError(f"{option} {path} is a folder: name a file.")


def command_line(context: typer.Context, *, leave_out: Collection[str] = ()) -> str:
    """Write the command that is being run as one would type it, apart from some options.

    Args:
        context: Of the command.
        leave_out: Names of parameters that do not change what comes of it.
    """
    given = [
        param
        for param in context.command.params
        if param.name is not None
        and param.name not in leave_out
        and getattr(context.get_parameter_source(param.name), "name", "") == "COMMANDLINE"
    ]
    words = ["transcf", str(context.info_name)]
    for param in given:
        value = context.params[str(param.name)]
        for one in value if isinstance(value, list | tuple) else [value]:
            if param.param_type_name == "argument":
                words.append(str(one))
            elif isinstance(one, bool):
                words.append((param.opts if one else param.secondary_opts)[0])
            else:
                words += [param.opts[0], str(one)]
    return shlex.join(words)


def open_model(folder: str | Path) -> Recommender[Any]:
    """Load the current version of a saved model; name it on stderr if there are several."""
    from transcf.data.paths import path_of
    from transcf.models.registry import load_version
    from transcf.serving.versions import Versions

    versions = Versions(path_of(folder))
    current = versions.current()
    model = load_version(versions.folder(current))
    if len(known := versions.all()) > 1:
        listed = ", ".join(map(str, known))
        typer.echo(f"transcf: note: using version {current} of {folder} (of {listed}).", err=True)
    return model


def dataset_name(data: str) -> str:
    """Return the catalog name of DATA if it is one or a folder called so, else DATA."""
    from transcf.data.datasets import names

    folder = Path(data).name
    return folder if folder in names() else data


def absolute_name(data: str) -> str:
    """Write DATA such that it means the same from any folder."""
    from transcf.data.datasets import is_name
    from transcf.data.paths import path_of

    return data if is_name(data) else str(path_of(data).resolve())
