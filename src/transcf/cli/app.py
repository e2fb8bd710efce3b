"""The command `transcf` and its commands, each in its own module.

Nothing here or at the head of those modules imports numpy, polars or numba: `transcf --help`
answers at once.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from transcf import __version__
from transcf.cli import (
    analyze,
    compare,
    data,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    fit,
    models,
    recommend,
    refresh,
    renew,
    report,
    reproduce,
    runs,
    serve,
    similar,
    study,
    tune,
)
from transcf.errors import TransCFError, brief
from transcf.interrupts import INTERRUPTED, wait_if_ending
from transcf.legend import ERROR, help_text


class _PoliteGroup(TyperGroup):
    """Says what is wrong in one sentence, without a traceback, and so with warnings."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                _show_notes()
                return super().invoke(ctx)
        except (TransCFError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            wait_if_ending()
            typer.echo(f"transcf: {_in_options(_sentence(error))}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            typer.echo("transcf: interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from error


class _PathCommand(TyperCommand):
    """Writes out `~` in paths: shells leave it alone in `--out=~/model`."""

    def invoke(self, ctx: Any) -> Any:
        ctx.params = {name: _expanded(value) for name, value in ctx.params.items()}
        return super().invoke(ctx)


def _expanded(value: Any) -> Any:
    from transcf.data.paths import path_of

    if isinstance(value, list | tuple):
        return type(value)(map(_expanded, value))
    return path_of(value) if isinstance(value, Path) else value


#: What errors advise in Python, and how commands have it.
_OPTIONS = {
    "on_unknown='skip'": "--on-unknown skip",
    "include_seen=True": "--with-seen",
    "name a folder for it (store=FOLDER)": "leave --no-store out",
    "split by leave_one_out(log), or cut it earlier": "use --protocol leave-last-out",
}


def _in_options(sentence: str) -> str:
    """Say advice in the words of the command line."""
    for python, option in _OPTIONS.items():
        sentence = sentence.replace(python, option)
    return sentence


def _sentence(error: TransCFError | OSError) -> str:
    """Return what an error says; those of the system name the file and the reason."""
    if isinstance(error, TransCFError) or not error.filename or not error.strerror:
        return brief(str(error))
    return brief(f"{error.filename} cannot be used: {error.strerror}.")


def _show_notes() -> None:
    """Show what the library warns about as one line, once, without the place in its code."""
    show_others, shown = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning | FutureWarning):
            if str(message) not in shown:
                typer.echo(f"transcf: note: {_in_options(str(message))}", err=True)
            shown.add(str(message))
        else:
            show_others(message, category, *place, **more)

    warnings.showwarning = show


app = typer.Typer(
    name="transcf",
    help="Recommendations from an event log: data, models, honest evaluation.",
    cls=_PoliteGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rendering it with rich would double the time to answer
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")
#: What stands below the options in `--help`.
_EPILOGS = {
    evaluate.evaluate: help_text("se = standard error over users", "sd = spread of the seeds"),
    compare.compare: help_text(ERROR),
    study.study: study.EPILOG,
    reproduce.reproduce: reproduce.EPILOG,
    analyze.analyze: analyze.EPILOG,
}
for command in (
    fit.fit,
    renew.refit,
    renew.partial_fit,
    evaluate.evaluate,
    compare.compare,
    tune.tune,
    recommend.recommend,
    similar.similar,
    explain.explain,
    analyze.analyze,
    report.report,
    export.export,
    serve.serve,
    refresh.refresh,
    study.study,
    reproduce.reproduce,
    models.models,
    doctor.doctor,
    demo.demo,
):
    app.command(epilog=_EPILOGS.get(command))(command)
for group in (app, data.app, runs.app):
    for registered in group.registered_commands:
        registered.cls = _PathCommand


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"transcf {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Recommendations from an event log: data, models, honest evaluation."""
