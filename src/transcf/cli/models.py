"""`transcf models`: what can be fitted, and with which settings."""

from __future__ import annotations

from typing import Any

from transcf.cli._output import JsonFlag, print_json, print_table


def models(as_json: JsonFlag = False) -> None:
    """List the models with their parameters and what each allows."""
    described = [_describe(name) for name in _names()]
    if as_json:
        print_json(described)
        return
    rows = []
    for entry in described:
        settings = [
            f"{name}={rule['default']}  ({rule['allowed']})"
            for name, rule in entry["parameters"].items()
        ]
        rows.append((entry["name"], entry["summary"], "\n".join(settings) or "-"))
    print_table("Models", ("name", "what it does", "parameters (--set name=value)"), rows)


def _names() -> tuple[str, ...]:
    from transcf.models.registry import available

    return available()


def _describe(name: str) -> dict[str, Any]:
    from transcf.models.registry import model_class

    kind = model_class(name)
    defaults = kind().get_params()
    return {
        "name": name,
        "class": kind.__name__,
        "summary": (kind.__doc__ or "").strip().split("\n")[0],
        "parameters": {
            parameter: {"default": defaults[parameter], "allowed": str(rule)}
            for parameter, rule in kind.rules.items()
        },
    }
