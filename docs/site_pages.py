"""mkdocs hook: pages that are generated from the code when the site is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import griffe
import typer
from diagrams import architecture_page
from mkdocs.structure.files import File, Files

import transcf
from transcf.cli.app import app
from transcf.models.params import flat_fields, values_of

DOCS = Path(__file__).parent
MODELS = tomllib.loads((DOCS / "models.toml").read_text(encoding="utf-8"))


class Sections(griffe.Extension):
    """Give sections of docstrings the titles that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the sections in the docstring of an object."""
        if obj.docstring is not None:
            text = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)
            obj.docstring.value = re.sub(r"(?m)^( *)Attributes \(.*\):$", r"\1Attributes:", text)


def on_config(config: Any) -> Any:
    """List the generated pages of models in the navigation."""
    pages = ["models/index.md", *(f"models/{name.lower()}.md" for name in MODELS)]
    config.nav = [
        {"Models": pages} if entry == {"Models": "models/"} else entry for entry in config.nav
    ]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of models, the API and the commands."""
    pages = {f"models/{name.lower()}.md": model_page(name) for name in MODELS}
    pages["models/index.md"] = models_index()
    pages["reference/api.md"] = api_page()
    pages["reference/commands.md"] = commands_page()
    pages["project/architecture.md"] = architecture_page()
    pages["project/contributing.md"] = (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8")
    pages["project/changelog.md"] = (DOCS.parent / "CHANGELOG.md").read_text("utf-8")
    pages["project/security.md"] = (DOCS.parent / "SECURITY.md").read_text("utf-8")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def home(name: str) -> str:
    """Return the full path of a public object, which lives in a module of its own."""
    found = getattr(transcf, name)
    return f"{found.__module__}.{found.__qualname__}"


def models_index() -> str:
    """List the models with the reason to use each."""
    rows = [f"| [{name}]({name.lower()}.md) | {entry['when']} |" for name, entry in MODELS.items()]
    return "\n".join(["# Models", "", "| Model | When to use it |", "|---|---|", *rows, ""])


def model_page(name: str) -> str:
    """Write the page of one model: its docstring, then its parameters."""
    entry = MODELS[name]
    source = [f"*{entry['reference']}*", ""] if "reference" in entry else []
    options = ["    options:", "      members: false", "      show_root_heading: false"]
    head = [f"# {name}", "", entry["when"], "", *source, f"::: {home(name)}", *options, ""]
    return "\n".join([*head, "## Parameters", "", *parameters(getattr(transcf, name)), ""])


def parameters(kind: Any) -> list[str]:
    """Return a table of the parameters of a model class."""
    rows = ["| Parameter | Meaning | Default | Allowed |", "|---|---|---|---|"]
    for field in flat_fields(kind._settings_class):
        default = values_of(kind().settings)[field.name]
        allowed, meaning = str(field.metadata["rule"]), field.metadata["meaning"]
        cells = [f"`{field.name}`", meaning, f"`{default!r}`", allowed]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def api_page() -> str:
    """List everything in `transcf.__all__` that is not a model."""
    names = [name for name in transcf.__all__ if name not in MODELS and name != "datasets"]
    blocks = [f"::: {home(name)}\n" for name in names]
    return "\n".join(
        ["# Python API", "", "Models have [pages of their own](../models/index.md).", "", *blocks]
    )


def commands_page() -> str:
    """Write the help of every command."""
    parts = ["# Command line", ""]
    root = typer.main.get_command(app)
    for words, command in _commands(root, ["transcf"]):
        context = click.Context(command, info_name=" ".join(words), max_content_width=100)
        parts += [f"## {' '.join(words)}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _commands(group: Any, words: list[str]) -> list[tuple[list[str], Any]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if command is None or command.hidden:
            continue
        inner = hasattr(command, "list_commands")
        found += _commands(command, [*words, name]) if inner else [([*words, name], command)]
    return found
