"""mkdocs hook: pages that are generated from the code when the site is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import griffe
import typer
from diagrams import accuracy_chart, architecture_page
from mkdocs.structure.files import File, Files

import transcf
from transcf.cli.app import app
from transcf.models.event_weights import EventWeights
from transcf.models.families import IterationSettings
from transcf.models.params import flat_fields, values_of

DOCS = Path(__file__).parent
MODELS = tomllib.loads((DOCS / "models.toml").read_text(encoding="utf-8"))
#: Names of the package that are not models, in the order of their use.
API = {
    "Read and split a log": [
        "read_interactions", "open_data", "Interactions", "k_core", "paper_filter", "synthesize",
        "temporal_cut", "leave_one_out", "random_ratio", "draw_candidates", "open_split", "Split",
    ],
    "Fit and use a model": [
        "Recommender", "FitOptions", "EventWeights", "load", "create", "available", "use_threads",
    ],
    "Evaluate and search": [
        "auto", "evaluate", "Evaluation", "compare", "Comparison", "tune", "Tuning", "paired_tests",
        "summarize_seeds", "Validation",
    ],
    "Errors": ["TransCFError"],
}  # fmt: skip


class Sections(griffe.Extension):
    """Give sections of docstrings the titles that griffe knows, and link pages."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the sections in the docstring of an object, and link the pages that it names."""
        if obj.docstring is not None:
            text = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)
            text = re.sub(r"(?m)^( *)Attributes \(.*\):$", r"\1Attributes:", text)
            text = re.sub(r"(?m)^References:\n((?: +.*\n?)+)", _as_paragraph, text)
            obj.docstring.value = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../../\1/)", text)


def _as_paragraph(found: re.Match[str]) -> str:
    return f"Reference: {' '.join(found[1].split())}\n"


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


def command_name(name: str) -> str:
    """Return the name of a model class on the command line."""
    return next(word for word in transcf.available() if type(transcf.create(word)).__name__ == name)


def models_index() -> str:
    """List the models with the reason to use each."""
    head = "| Model | When to use it | Command line | New events | Needs |"
    rows = []
    for name, entry in MODELS.items():
        kind = getattr(transcf, name)
        cells = [
            f"[{name}]({name.lower()}.md)",
            entry["when"],
            f"`{command_name(name)}`",
            "`partial_fit`" if hasattr(kind, "partial_fit") else "`refit`",
            "torch" if ".torch." in kind.__module__ else "",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    intro = (
        "All models have the [same methods](../reference/api.md). Start with EASE or ItemKNN, "
        "or let `transcf auto` [find a good model](../tutorials/which-model.md) for your log."
    )
    return "\n".join(["# Models", "", intro, "", head, "|---|---|---|---|---|", *rows, ""])


def model_page(name: str) -> str:
    """Write the page of one model: its docstring, its accuracy, then its parameters."""
    entry, kind = MODELS[name], getattr(transcf, name)
    options = ["    options:", "      members: false", "      show_root_heading: false"]
    options += ["      show_root_toc_entry: false", "      docstring_section_style: list"]
    usage = f"`transcf.{name}()` in Python, `--model {command_name(name)}` on the command line."
    head = [f"# {name}", "", entry["when"], "", usage, "", "## How it works", ""]
    figure = [entry["figure"], ""] if "figure" in entry else []
    docstring = [f"::: {home(name)}", *options, ""]
    return "\n".join(
        [*head, *docstring, *figure, *accuracy_chart(command_name(name)), *parameters(kind), ""]
    )


def parameters(kind: Any) -> list[str]:
    """Return tables of the parameters of a model class: its own, of training, of events."""
    own = {field.name: field for field in flat_fields(kind._settings_class)}
    weights = {field.name for field in flat_fields(EventWeights)} & own.keys()
    training = {field.name for field in flat_fields(IterationSettings)} & own.keys() - weights
    values = values_of(kind().settings)
    lines = []
    for title, names in (
        ("Parameters", own.keys() - weights - training),
        ("Parameters of training", training),
        ("Weights of events", weights),
    ):
        if names:
            lines += ["", f"## {title}", ""]
            if names is weights:
                lines += ["Set them with `event_weights=transcf.EventWeights(...)`.", ""]
            lines += ["| Parameter | Meaning | Default | Allowed |", "|---|---|---|---|"]
            lines += [_row(own[name], values[name]) for name in own if name in names]
    return lines or ["", "## Parameters", "", "The model has no parameters."]


def _row(field: Any, default: Any) -> str:
    allowed, meaning = str(field.metadata["rule"]), field.metadata["meaning"]
    cells = [f"`{field.name}`", meaning, f"`{default!r}`", allowed]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def api_page() -> str:
    """List everything in `transcf.__all__` that is not a model: an overview, then each part."""
    listed = [name for names in API.values() for name in names]
    assert set(listed) == set(transcf.__all__) - MODELS.keys() - {"datasets"}, "complete API"
    overview, parts = [], []
    for title, names in API.items():
        overview += ["", f"**{title}**", "", "| Name | What it does |", "|---|---|"]
        parts += [f"## {title}", ""]
        for name in names:
            first = (getattr(transcf, name).__doc__ or "").strip().splitlines()[0]
            overview.append(f"| [`{name}`][{home(name)}] | {first} |")
            if name != "open_data":  # another name of `read_interactions`
                parts += [f"::: {home(name)}", "    options:", "      heading_level: 3", ""]
    intro = "Everything below is in the package: `import transcf`, then `transcf.NAME`."
    models = "Models have [pages of their own](../models/index.md)."
    return "\n".join(["# Python API", "", intro, models, *overview, "", *parts])


def commands_page() -> str:
    """Write an overview of the commands, then the help of each."""
    overview, parts = ["| Command | What it does |", "|---|---|"], []
    root = typer.main.get_command(app)
    for words, command in _commands(root, ["transcf"]):
        context = click.Context(command, info_name=" ".join(words), max_content_width=100)
        first = (command.help or "").strip().splitlines()[0]
        overview.append(f"| [`{' '.join(words)}`](#{'-'.join(words)}) | {first} |")
        parts += [f"## {' '.join(words)}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(["# Command line", "", *overview, "", *parts])


def _commands(group: Any, words: list[str]) -> list[tuple[list[str], Any]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if command is None or command.hidden:
            continue
        inner = hasattr(command, "list_commands")
        found += _commands(command, [*words, name]) if inner else [([*words, name], command)]
    return found
