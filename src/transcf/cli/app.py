"""The command `transcf`.

A command is imported when it is called. Nothing here imports numpy, polars, numba or rich, so that
`transcf --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from transcf import __version__

#: Groups of the help page: commands with the first sentence of their help; a test compares both.
GROUPS = {
    "Data": {"data": "Inspect, prepare, download and generate event logs."},
    "Train": {
        "auto": "Find the best model for DATA within a time limit, and save it.",
        "fit": "Fit a model on DATA and save it.",
        "refit": "Fit a saved model again on all events of DATA.",
        "partial-fit": "Add events to a saved model without a new training.",
        "tune": "Search for the best settings of a model on validation data.",
    },
    "Evaluate": {
        "evaluate": "Fit a model on DATA and evaluate it; or evaluate a saved model.",
        "compare": "Compare several models on the same split.",
        "study": "Run a study of several datasets, models and seeds.",
        "reproduce": "Compute the tables of the TransCF paper.",
        "runs": "List, show and remove stored runs.",
    },
    "Use a saved model": {
        "recommend": "Recommend items with a saved model.",
        "similar": "List items similar to an item, or users similar to a user.",
        "explain": "Explain a recommendation by the user's past items.",
        "analyze": "Analyse the vectors of a saved model: tables, figures, JSON.",
        "report": "Write a report of a saved model.",
    },
    "Deploy": {
        "serve": "Serve a saved model over HTTP.",
        "refresh": "Retrain a saved model with the collected events.",
        "events": "List and delete the events that a service has stored.",
        "export": "Export the vectors of a saved model.",
    },
    "Help": {
        "demo": "Take a tour: data, models, recommendations, explanations.",
        "models": "List the models, or the parameters of one.",
        "doctor": "Show versions, threads, extras and the data folder.",
    },
}
#: Modules of commands that are not in a module of the same name.
_MODULES = {
    **dict.fromkeys(("refit", "partial-fit"), "fit"),
    **dict.fromkeys(("similar", "explain"), "recommend"),
    **dict.fromkeys(("refresh", "events", "export"), "serve"),
    **dict.fromkeys(("demo", "models", "doctor"), "about"),
    "report": "analyze",
    "auto": "tune",
    "compare": "evaluate",
    "reproduce": "study",
}
_FIRST_STEPS = """\
transcf demo                  take a tour on synthetic data, in seconds
transcf auto events.csv --out my-model    find the best model for your events, and save it
transcf --help                list all commands; transcf COMMAND --help explains one"""


class _Group(TyperGroup):
    """The commands of `GROUPS`, imported when called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for commands in GROUPS.values() for name in commands]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.list_commands(ctx):
            for name in self.list_commands(ctx):  # to suggest one of them
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", text) for name, text in commands.items()])


def _load(name: str) -> Any:
    from transcf.cli.options import CommandGroup

    module = import_module(f"transcf.cli.{_MODULES.get(name, name)}")
    group = getattr(module, name.replace("-", "_"))
    if not isinstance(group, CommandGroup):
        function, group = group, CommandGroup(no_args_is_help=False)
        group.command(name)(function)
    loaded = get_command(group)
    loaded.help = loaded.help or next(each[name] for each in GROUPS.values() if name in each)
    return loaded


app = typer.Typer(
    name="transcf",
    cls=_Group,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rendering it with rich would double the time to answer
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"transcf {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="TRANSCF_THREADS",
            help="Threads of the command; by default all cores. Results do not depend on it.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|none",
            help="Run cache: stored runs are reused, new ones are kept. Default: $TRANSCF_RUNS, "
            "else ~/.cache/transcf/runs.",
        ),
    ] = None,
) -> None:
    """Recommendations from an event log: data, models, evaluation, serving."""
    if context.invoked_subcommand is None:
        typer.echo(_FIRST_STEPS)
        return
    if threads is not None:
        from transcf.parallel import use_threads

        context.with_resource(use_threads(threads))
    from transcf.cli.options import STORE

    STORE.set(store)
