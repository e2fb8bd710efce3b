"""`transcf models`: what can be fitted, and with which settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from transcf.cli._output import JsonFlag, print_json, print_table


def models(
    name: Annotated[
        str | None, typer.Argument(help="A model, to see its parameters.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the models; or show the parameters of one, and what each means and allows."""
    from transcf.models.registry import available, canonical_name

    if name is not None:
        described = _describe(canonical_name(name))
        if as_json:
            print_json(described)
        else:
            _print_one(described)
        return
    listed = [_describe(known, whole=False) for known in available()]
    if as_json:
        print_json(listed)
        return
    rows = [(entry["name"], entry["summary"]) for entry in listed]
    note = "`transcf models NAME` shows the parameters of one; --set NAME=VALUE sets them."
    print_table("Models", ("name", "what it does"), rows, notes=[note])


def _print_one(described: dict[str, Any]) -> None:
    rows = [
        (parameter, str(about["default"]), about["allowed"], about["meaning"])
        for parameter, about in described["parameters"].items()
    ]
    title = f"{described['name']} ({described['class']}): {described['summary']}"
    print_table(title, ("parameter", "default", "allowed", "meaning"), rows)


def _describe(name: str, *, whole: bool = True) -> dict[str, Any]:
    """Describe a model; in a list, a variant has only what makes it one."""
    from transcf.models.params import flat_fields, values_of
    from transcf.models.registry import create, model_class

    kind, values = model_class(name), values_of(create(name).settings)
    own, first = kind._variants[name], next(iter(kind._variants))
    summary = (kind.__doc__ or "").strip().split("\n")[0]
    if name != first:
        changed = ", ".join(f"{key}={value}" for key, value in own.items())
        why = kind._not_in_all.get(name)
        summary = f"As {first}, with {changed}" + (f" (not part of all: {why})." if why else ".")
    return {
        "name": name,
        "class": kind.__name__,
        "summary": summary,
        "parameters": {
            field.name: {
                "default": values[field.name],
                "allowed": str(field.metadata["rule"]),
                "meaning": field.metadata["meaning"],
            }
            for field in flat_fields(kind._settings_class)
            if whole or name == first or field.name in own
        },
    }
