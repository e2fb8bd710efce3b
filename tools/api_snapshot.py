"""Snapshots of the public API and of the command line's help.

`benchmarks/golden/api.txt` has public names with signatures and members, registry names, errors and
routes of the service; `benchmarks/golden/help.txt` has `--help` of every command, 100 columns wide.

Run: python tools/api_snapshot.py          write both files
     python tools/api_snapshot.py --check  print what differs from them, exit code 1 if any
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import transcf

GOLDEN = Path(__file__).resolve().parents[1] / "benchmarks" / "golden"


def signature(value: Any) -> str:
    """Return a signature without memory addresses."""
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"


def member(owner: type, name: str) -> str:
    """Describe a public member of a class in one line."""
    found = inspect.getattr_static(owner, name)
    if isinstance(found, classmethod | staticmethod):
        return f"{type(found).__name__} {name}{signature(found.__func__)}"
    if inspect.isfunction(found):
        return f"def {name}{signature(found)}"
    return f"{'property' if hasattr(found, '__get__') else 'attribute'} {name}"


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def api() -> Iterator[str]:
    """Describe the public API, one name to a line."""
    inherited = public(transcf.Recommender)
    for name in transcf.__all__:
        value = getattr(transcf, name)
        if not isinstance(value, type):
            yield f"{name}{signature(value) if callable(value) else ''}"
            continue
        yield f"class {name}{signature(value)}"
        members = public(value)
        if issubclass(value, transcf.Recommender) and value is not transcf.Recommender:
            members = {each for each in members if each not in inherited or each in vars(value)}
            members -= set(inspect.signature(value).parameters)
        yield from sorted(f"    {member(value, each)}" for each in members)
    yield from (f"model {name}" for name in transcf.available())
    for kind in transcf.TransCFError.__subclasses__():
        yield f"error {kind.__name__}({', '.join(each.__name__ for each in kind.__bases__)})"
    yield from routes()


def routes() -> Iterator[str]:
    """Name the routes of the service with their parameters."""
    from transcf.serving.app import router

    route: Any
    for route in router.routes:
        given = {each.name for each in route.dependant.query_params}
        for body in route.dependant.body_params:
            kind = body.field_info.annotation
            for schema in get_args(kind) or (kind,):
                given |= set(schema.model_fields)
        given |= {each["name"] for each in (route.openapi_extra or {}).get("parameters", ())}
        yield f"route {'/'.join(sorted(route.methods))} {route.path} {sorted(given)}"


def help_pages() -> Iterator[str]:
    """Return `--help` of every command, as on a terminal of a fixed width."""
    import click
    from typer.main import get_command

    from transcf.cli.app import app

    def walk(command: Any, parent: click.Context | None, name: str) -> Iterator[str]:
        context = click.Context(command, parent, name, terminal_width=100, max_content_width=100)
        yield f"$ {context.command_path} --help"
        yield from (line.rstrip() for line in command.get_help(context).splitlines())
        yield ""
        for below in getattr(command, "list_commands", lambda _: ())(context):
            yield from walk(command.get_command(context, below), context, below)

    yield from walk(get_command(app), None, "transcf")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print a diff and write nothing")
    options = parser.parse_args()
    differs = False
    for name, lines in (("api.txt", list(api())), ("help.txt", list(help_pages()))):
        path = GOLDEN / name
        if not options.check:
            path.write_text("\n".join([*lines, ""]), encoding="utf-8")
            continue
        before = path.read_text(encoding="utf-8").splitlines()
        diff = list(difflib.unified_diff(before, lines, str(path), "now", lineterm="", n=1))
        differs = differs or bool(diff)
        print("\n".join(diff) if diff else f"{name}: no difference")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
