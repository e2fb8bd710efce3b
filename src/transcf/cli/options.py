"""How functions become commands, and options that several commands share.

A command of a `CommandGroup` is a function. Its parameters are options, unless their annotation
says `Argument`; a bool is a flag. Their help is in the section "Options:" of the docstring,
whose entries are `name (METAVAR): help`. A parameter whose class is a dataclass stands for a group
of options. `~` in paths is expanded.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin

import typer

from transcf.cli import output
from transcf.errors import ParameterError, check_word
from transcf.protocols import help_on_protocols

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.distributed import Cluster
    from transcf.evaluation.evaluator import Subset
    from transcf.experiments.run import EvalConfig
    from transcf.experiments.store import Store
    from transcf.models.base import Recommender

T = TypeVar("T")

#: Folder of `transcf --store`.
STORE: ContextVar[str | None] = ContextVar("store", default=None)

Data: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file, a pattern in quotes ('logs/*.csv'), a folder of Parquet, a prepared folder, "
        "a saved split, a catalog name, or 'synthetic'.",
        show_default=False,
    ),
]
ModelDir: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A saved model; if `transcf refresh` has added versions, the current one is used.",
        show_default=False,
    ),
]
Argument: TypeAlias = Annotated[T, typer.Argument(show_default=False)]
Count: TypeAlias = Annotated[int, typer.Option(min=1)]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of the model and of the split.")]
Seeds: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Number of runs, with seeds counted up from --seed.")
]
Protocol: TypeAlias = Annotated[
    str | None, typer.Option(help=help_on_protocols(), show_default=False)
]
Resume: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--resume/--fresh",
        help="Continue an interrupted run, or replace its checkpoint.",
        show_default=False,
    ),
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace the model in the folder, in one step.")
]
Workers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="N|N@ADDRESS",
        help="Number of worker processes on this machine, or on the Ray cluster at ADDRESS (auto: "
        "the running one). Results are the same.",
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """How a log is read and filtered.

    Options:
        min_rating: Lowest rating of events that count. By default ratings of 0 and below are left
            out; -inf keeps all.
        filter_name (none|paper|N-core): 5-core keeps users and items with at least 5 events,
            repeatedly; paper is the one-pass filter of the TransCF paper.
        read (NAME=VALUE): Columns by name or number from 1: user=, item=, rating=, timestamp=,
            category=; format of a file: header=no, separator='|' (or tab), encoding=latin-1;
            categories of items: categories=FILE (item_id, category); repeatable.
    """

    min_rating: float | None = None
    filter_name: Annotated[str, typer.Option("--filter")] = "none"
    read: list[str] | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of `open_data`."""
        from transcf.data.files import path_of
        from transcf.data.validate import ROLES

        names = (*ROLES, "header", "separator", "encoding", "categories")
        reading: dict[str, Any] = _values_by_name("--read", self.read)
        for name in reading:
            check_word("--read", name, names)
        if "header" in reading:
            check_word("--read header", reading["header"], ("yes", "no"))
            reading["header"] = reading["header"] == "yes"
        if reading.get("separator") in ("tab", "\\t"):
            reading["separator"] = "\t"
        if "categories" in reading:  # absolute, as a model stores how its data was read
            reading["categories"] = str(path_of(reading["categories"]).resolve())
        if self.min_rating is not None:
            reading["min_rating"] = self.min_rating
        if self.filter_name != "none":
            reading["filter"] = self.filter_name
        return reading


@dataclass(frozen=True)
class ModelOptions:
    """A model and its parameters.

    Options:
        model: Name of the model; `transcf models` lists them.
        settings (NAME=VALUE): A parameter; repeatable.
        config (NAME|FILE): Parameters from a preset of the model (such as paper) or from a TOML
            file of `transcf tune --out FILE`; --set wins; repeatable.
    """

    model: str | None = None
    settings: Annotated[list[str] | None, typer.Option("--set")] = None
    config: list[str] | None = None

    def read(self, data: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return the model's name, its parameters of `--config`, and those of `--set`."""
        from transcf.experiments.search import Config
        from transcf.models.registry import preset_of

        name, presets, params = self.model, list[str](), dict[str, Any]()
        for config in self.config or ():
            if not Path(config).suffix:
                presets.append(config)
                continue
            stored = Config.read(config, name)
            name = stored.model
            params |= stored.params
        if name is None:
            raise ParameterError(
                "--model is missing: `transcf models` lists the names; --config FILE has one, too."
            )
        from transcf.data.datasets import names

        name, values = read_settings(name, self.settings)
        dataset = Path(data).name if Path(data).name in names() else data
        for preset in reversed(presets):
            params = preset_of(name, preset, dataset) | params
        return name, params, values


def read_settings(name: str, settings: Sequence[str] | None) -> tuple[str, dict[str, Any]]:
    """Read `--set NAME=VALUE`; return the model's current name and the values."""
    from transcf.models.params import parse
    from transcf.models.registry import current, model_class

    texts = {key: text.strip() for key, text in _values_by_name("--set", settings).items()}
    name, texts = current(name, texts)
    kind = model_class(name)
    rules = kind._rules()
    return name, {key: parse(kind.__name__, key, text, rules) for key, text in texts.items()}


def _values_by_name(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Read the NAME=VALUE of a repeated option."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(f"{option} {text} is not understood: write NAME=VALUE.")
        values[name.strip()] = value
    return values


@dataclass(frozen=True)
class EvalOptions:
    """How models are evaluated.

    Options:
        subset: test or validation.
        lengths (K,K): Lengths of the evaluated lists.
        beyond: Add AUC, novelty, diversity (ILD) and Gini.
    """

    protocol: Protocol = None
    subset: str = "test"
    lengths: Annotated[str, typer.Option("-k")] = "10,20"
    beyond: bool = False

    def config(self) -> EvalConfig:
        """Check the options before anything is fitted."""
        from transcf.experiments.run import EvalConfig

        lengths = [length.strip() for length in self.lengths.split(",")]
        if not all(length.isdecimal() and int(length) for length in lengths):
            raise ParameterError(f"-k {self.lengths} is not understood: write numbers as in 10,20.")
        return EvalConfig(
            protocol=self.protocol,
            subset=cast("Subset", self.subset),
            k=tuple(map(int, lengths)),
            beyond=self.beyond,
        )


def open_store() -> Store | None:
    """Return the run cache of `transcf --store`, or the usual one; None with `--store none`."""
    from transcf.data.files import path_of
    from transcf.experiments.store import Store, default_folder

    folder = STORE.get()
    if folder == "none":
        return None
    return Store(default_folder() if folder is None else path_of(folder))


def jobs_and_cluster(workers: str | None) -> tuple[int, Cluster | None]:
    """Return the number of local processes, or the cluster at `--workers N@ADDRESS`."""
    cluster = parse_workers(workers)
    if cluster is None or "@" in str(workers):
        return 1, cluster
    return cluster.workers, None


def parse_workers(text: str | None) -> Cluster | None:
    """Read `--workers`; None works in this process, and N@local starts a Ray cluster here."""
    if text is None:
        return None
    from transcf.distributed import Cluster

    return Cluster.parse(text)


def _command_of(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function as typer reads it: with all options one by one, and their help."""
    own, options = inspect.signature(function, eval_str=True).parameters, _options_of(function)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)
    }

    @wraps(function)
    def run(**values: Any) -> None:
        with output.plain_messages():
            given = {name: _expanded(value) for name, value in values.items()}
            for name, group in groups.items():
                given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
            function(**given)

    run.__doc__, _ = _split_docstring(function)
    setattr(run, "__signature__", inspect.Signature(options))  # noqa: B010
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _options_of(documented: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a command or a group as options with their help, passed by name."""
    _, texts = _split_docstring(documented)
    found = list[inspect.Parameter]()
    for name, each in inspect.signature(documented, eval_str=True).parameters.items():
        kind, info = each.annotation, None
        if is_dataclass(kind):
            found += _options_of(cast("type[Any]", kind))
            continue
        if get_origin(kind) is Annotated:
            kind, info = get_args(kind)
        elif kind is not typer.Context:
            info = typer.Option(*[f"--{name.replace('_', '-')}"] if kind is bool else [])
        if info is not None:
            info = copy(info)
            vars(info).update(texts.get(name, {}))
            kind = Annotated[kind, info]
        found.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
    return found


def _split_docstring(documented: object) -> tuple[str, dict[str, dict[str, str | None]]]:
    """Return a docstring without its options, and metavar and help of these by name."""
    page, _, rest = (inspect.getdoc(documented) or "").partition("\n\nOptions:\n")
    section, _, after = rest.partition("\n\n")
    entries = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.+(?:\n     .+)*)", section, re.MULTILINE)
    texts: dict[str, dict[str, str | None]] = {
        name: {"metavar": metavar or None, "help": " ".join(text.split())}
        for name, metavar, text in entries
    }
    return f"{page}\n\n{after}", texts


def _expanded(value: Any) -> Any:
    from transcf.data.files import path_of

    if isinstance(value, list | tuple):
        return type(value)(map(_expanded, value))
    return path_of(value) if isinstance(value, Path) else value


class CommandGroup(typer.Typer):
    """Commands that may take groups of options."""

    def __init__(self, *, no_args_is_help: bool = True, help: str | None = None) -> None:
        super().__init__(
            add_completion=False,
            rich_markup_mode=None,
            no_args_is_help=no_args_is_help,
            help=help,
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a function as a command."""
        add = super().command(name, **options)
        return lambda function: add(_command_of(function))


def given_options(context: typer.Context) -> dict[str, str]:
    """Return the options on the command line: names of parameters, and spellings."""
    return {
        str(each.name): each.opts[0]
        for each in context.command.params
        if getattr(context.get_parameter_source(str(each.name)), "name", "") == "COMMANDLINE"
    }


def command_line(context: typer.Context) -> str:
    """Write the command that is being run, without options that do not change the results."""
    given = given_options(context).keys() - {"out", "workers", "as_json"}
    words = ["transcf", str(context.info_name)]
    for param in context.command.params:
        value = context.params.get(str(param.name))
        if param.name not in given:
            continue
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
    from transcf.data.files import path_of
    from transcf.io.model_dir import Versions
    from transcf.models.registry import load_version

    versions = Versions(path_of(folder))
    current = versions.current()
    model = load_version(versions.folder(current))
    if len(known := versions.all()) > 1:
        listed = ", ".join(map(str, known))
        typer.echo(f"transcf: note: using version {current} of {folder} (of {listed}).", err=True)
    return model


def open_data_of(model: Recommender[Any], folder: Path, data: str | None) -> Interactions:
    """Open DATA, or else the data that a saved model was fitted on."""
    from transcf.data.readers import open_data

    if data is not None:
        return open_data(data)
    origin = model.report_
    if "dataset" not in origin:
        raise ParameterError(
            f"{folder} does not say what it was fitted on: name it with --data DATA."
        )
    return open_data(origin["dataset"], **origin.get("reading", {}))


def split_names(names: str | None) -> list[str] | None:
    """Split names at commas."""
    return None if names is None else [name.strip() for name in names.split(",")]
