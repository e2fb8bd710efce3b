"""The catalog of named datasets: origin, terms of use and files, read from `catalog.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcf.data.datasets import parsers
from transcf.data.interactions import Interactions


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        url: Its address.
        name: Name of the file, or of the member of a zip archive.
        sha256: Checksum of the file or member, or None if not known.
    """

    url: str
    name: str
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog.

    Attributes:
        name: Name for `load`.
        title: Full name.
        home: Home page.
        citation: Publication to cite.
        terms: Terms of use.
        parse: Reads the published files in a folder.
        marks: Files by which a folder is recognized as this dataset; one of them suffices.
        remotes: Files to download; empty if they have to be requested at `home`.
        paper_size: Users, items and interactions in the paper, where known.
        split_by_rule: Whether the authors' split follows from the published files: their filter,
            then each user's largest item number. (Tests compare it with their held-out rows.)
    """

    name: str
    title: str
    home: str
    citation: str
    terms: str
    parse: Callable[[Path], Interactions]
    marks: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()
    paper_size: tuple[int, int, int] | None = None
    split_by_rule: bool = False


def _entry(name: str, fields: dict[str, Any]) -> Dataset:
    parse = getattr(parsers, f"parse_{name.replace('-', '_')}")
    remotes = tuple(Remote(**remote) for remote in fields.pop("remotes", ()))
    lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return Dataset(name, parse=parse, remotes=remotes, **{**fields, **lists})


_TEXT = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
#: Every dataset by name.
CATALOG = {name: _entry(name, fields) for name, fields in tomllib.loads(_TEXT).items()}
