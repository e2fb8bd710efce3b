"""Run the snippets of a page, and keep the output that the page shows.

On every page

- ```` ```python ```` is run, all blocks of a page in one namespace,
- ```` ```sh ```` is run too: its lines that start with `transcf `; other lines are not,
- ```` ```bash ```` is not run; tests only check that its commands and options exist,
- ```` ```text ```` directly after a block that is run is the output of that block.

`python docs/outputs.py docs/start/five-minutes.md` runs pages in an empty folder and writes the
outputs into them. `tests/docs` fails when an output differs.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from typer.testing import CliRunner

from transcf.cli.app import app
from transcf.data.synthetic import synthesize

#: Time limits in the text, and those with which tests run the same lines.
_SHORTER = {"minutes=10": "minutes=0.05", "--minutes 10": "--minutes 0.05"}
#: Longest line of an output.
_WIDTH = 96
_FENCE = re.compile(r"(?ms)^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?")


@dataclass(frozen=True)
class Snippet:
    """A block of a page, with the output that the page shows or None."""

    language: str
    code: str
    shown: str | None


def snippets(text: str) -> list[Snippet]:
    """Return the blocks of a page that are run, in order."""
    return [Snippet(*found.groups()) for found in _FENCE.finditer(text)]


def write_data(folder: Path) -> None:
    """Write what pages may assume: a log, the same log in a database, and a table of items."""
    log = synthesize(users=1000, items=500, interactions=20_000, seed=0).to_frame()
    log.write_csv(folder / "events.csv")
    log.write_database("events", f"sqlite:///{folder / 'shop.db'}")
    log.select("item_id").unique().sort("item_id").with_columns(
        title=pl.format("Tea {}", "item_id"), in_stock=pl.int_range(pl.len()) % 3 > 0
    ).write_csv(folder / "items.csv")


def run(blocks: list[Snippet]) -> Iterator[str]:
    """Run blocks in the current folder, and yield what each prints."""
    names: dict[str, Any] = {}
    for block in blocks:
        code = block.code
        for slow, fast in _SHORTER.items():
            code = code.replace(slow, fast)
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            yield printed.getvalue()
        else:
            yield "".join(_command(line) for line in code.replace("\\\n", " ").splitlines())


def _command(line: str) -> str:
    if not line.startswith("transcf "):
        return ""
    result = CliRunner(env={"COLUMNS": "88"}).invoke(app, shlex.split(line, comments=True)[1:])
    if result.exit_code:
        raise RuntimeError(f"{line}\n{result.output}") from result.exception
    return result.stdout


def _wrapped(line: str) -> str:
    if len(line) <= _WIDTH:
        return line.rstrip()
    return textwrap.fill(line, _WIDTH, break_on_hyphens=False)


def main(paths: list[str]) -> None:
    """Write the outputs of pages into them."""
    os.environ["COLUMNS"] = "88"
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["TRANSCF_RUNS"] = str(Path(folder, "runs"))
            write_data(Path(folder))
            found = iter(list(run(snippets(text))))

        def with_output(block: re.Match[str], outputs: Iterator[str] = found) -> str:
            printed = "\n".join(map(_wrapped, next(outputs).rstrip().splitlines()))
            if block[3] is None:
                return block[0]
            return f"```{block[1]}\n{block[2]}```\n\n```text\n{printed}\n```\n"

        path.write_text(_FENCE.sub(with_output, text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
