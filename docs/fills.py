"""Fills figures of stored results into text: tables and sentences of the documentation.

What is filled stands in a comment, and what comes of it behind the comment:

    <!-- fill:
    | | Ciao |
    |---|--:|
    | observed, % | {analysis-ciao:analyses/analysis=closer/facts/observed_percent:.1f} |
    -->
    <!-- end -->

`{FILE:PATH:FORMAT}` is a figure of docs/results/FILE.json. Steps of a path are keys, places from
0 on, or key=value (several with & between them), which finds the only entry of a list that has
them. The format is Python's; figures below 1 lose the 0 before the point, as in all tables.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from transcf.errors import ParameterError

_BEGIN = "<!-- fill:\n"
_BLOCK = re.compile(rf"({_BEGIN}(?P<text>.*?)\n-->\n)(?:(?!{_BEGIN}).)*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\{([\w-]+):([^{}]+):([^{}:]*)\}")


def filled(page: str, folder: Path) -> str:
    """Return a page with its texts filled anew from the results in a folder."""

    def block(found: re.Match[str]) -> str:
        text = _FIGURE.sub(lambda figure: _figure(folder, *figure.groups()), found["text"])
        return f"{found[1]}{text}\n{found[3]}"

    if len(_BLOCK.findall(page)) != page.count(_BEGIN):
        raise ParameterError("A text that is filled has no --> on a line of its own, or no end.")
    return _BLOCK.sub(block, page)


def shown(value: Any, form: str) -> str:
    """Write a figure without the 0 before the point.

    Example:
        >>> shown(0.25, ".3f"), shown(-0.5, ".1f"), shown(1200, ",")
        ('.250', '-.5', '1,200')
    """
    return re.sub(r"^([-+]?)0\.", r"\1.", format(value, form))


def _figure(folder: Path, name: str, path: str, form: str) -> str:
    value = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for step in path.split("/"):
        try:
            value = _step(value, step)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ParameterError(f"{name}.json has no {step!r} of {path!r}.") from error
    return shown(value, form)


def _step(value: Any, step: str) -> Any:
    if not isinstance(value, list):
        return value[step]
    if step.isdecimal():
        return value[int(step)]
    wanted = dict(part.split("=", 1) for part in step.split("&"))
    (found,) = [each for each in value if all(str(each[k]) == v for k, v in wanted.items())]
    return found
