"""What notebooks show of a model."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from transcf.data.report import counted
from transcf.models.settings import fields_of
from transcf.models.training_data import TrainingData


def model_html(title: str, settings: Any, known: TrainingData | None) -> str:
    """Show a model by its hyper-parameters and their meanings, and what it was fitted on."""
    note = "not fitted"
    if known is not None:
        sizes = counted(len(known.users), "user"), counted(len(known.items), "item")
        note = f"fitted on {' and '.join(sizes)}"
    return html_table(
        title,
        note,
        (
            (entry.name, getattr(settings, entry.name), entry.metadata["meaning"])
            for entry in fields_of(type(settings))
        ),
    )


def html_table(title: str, note: str, rows: Iterable[tuple[str, object, str]]) -> str:
    """Write a table of names, values and meanings in HTML; text is shown as it is.

    Example:
        >>> html_table("EASE", "not fitted", [("precision", "a<b", "Of numbers.")])[-86:]
        '<td>precision</td><td>&#x27;a&lt;b&#x27;</td><td>Of numbers.</td></tr></tbody></table>'
    """
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(repr(value))}</td><td>{escape(meaning)}</td></tr>"
        for name, value, meaning in rows
    )
    head = f"<caption><b>{escape(title)}</b>: {escape(note)}</caption>"
    return f"<table>{head}<tbody>{body}</tbody></table>"
