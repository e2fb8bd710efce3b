"""`model.json`: what a saved model is, and the checksums of its files; nothing in it is believed.

It carries a checksum of itself, which finds damage and careless edits. Whoever edits it and makes
the checksum right again still meets the checks of names and types here, and those of values by
the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from transcf.errors import ModelFileError
from transcf.storage.opened import OpenFolder

About: TypeAlias = dict[str, Any]

NAME = "model.json"
FORMAT = "transcf-model"
VERSION = 3
#: The oldest format that is read; models of it may have other names, see `models.aliases`.
OLDEST = 2

#: More than any model has to say; hostile files are not read to their end.
_LARGEST = 64 * 2**20
_REMEDY = "restore the folder from a copy or fit again"


def signed(about: About) -> About:
    """Return it with the checksum of itself."""
    return {**about, "sha256": _own_checksum(about)}


def read_about(opened: OpenFolder, files: Sequence[str]) -> About:
    """Read and check `model.json`.

    Args:
        opened: The folder.
        files: Names of files of which it has to give the size and the checksums.

    Raises:
        ModelFileError: It is missing, damaged, altered, too old or too new.
    """
    path = opened.path / NAME
    file = opened.file(NAME)
    if file is None:
        raise ModelFileError(f"{opened.path} is not a saved model: it has no {NAME}.")
    try:
        if file.size > _LARGEST:
            raise ValueError("too large")
        about = json.loads(file.read(), parse_constant=_refuse)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ModelFileError(f"{path} does not describe a model of this library.")
        _check_version(opened.path, about.get("version"))
        is_as_written = about.get("sha256") == _own_checksum(about)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON): {_REMEDY}.") from error
    if not is_as_written:
        raise ModelFileError(f"{path} was altered after it was saved: {_REMEDY}.")
    _check_content(path, about, files)
    return about


def _check_version(folder: Path, version: object) -> None:
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{folder / NAME} was altered after it was saved: {_REMEDY}.")
    if version > VERSION:
        raise ModelFileError(
            f"{folder} was written in format {version} and this library reads up to {VERSION}: "
            "install a newer transcf."
        )
    if version < OLDEST:
        raise ModelFileError(
            f"{folder} was written in format {version} by an older transcf and this one reads "
            f"format {OLDEST} and later: fit again."
        )


def _own_checksum(about: About) -> str:
    content = {key: value for key, value in about.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON, though many read it")


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


#: What each field holds: how to tell, and in words.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "class": (lambda value: isinstance(value, str), "the name of a model"),
    "params": (_is_object, "an object with the hyper-parameters"),
    "report": (_is_object, "an object with facts about the training"),
    "best_epoch": (
        lambda value: value is None or (type(value) is int and value > 0),
        "the number of the kept epoch, or null,",
    ),
    "additions": (
        lambda value: type(value) is int and value >= 0,
        "how often interactions were added",
    ),
    "timed": (lambda value: isinstance(value, bool), "true or false"),
    "files": (_is_object, "an object with sizes and checksums"),
}


def _check_content(path: Path, about: About, files: Sequence[str]) -> None:
    for name, (is_right, words) in _FIELDS.items():
        if name not in about or not is_right(about[name]):
            raise ModelFileError(f"{path} should hold {words} as {name!r} and does not: {_REMEDY}.")
    for name in files:
        entry = about["files"].get(name)
        if not (
            isinstance(entry, dict)
            and type(entry.get("bytes")) is int
            and isinstance(entry.get("sha256"), list)
            and all(isinstance(digest, str) for digest in entry["sha256"])
        ):
            raise ModelFileError(f"{path} has no size and checksums of {name}: {_REMEDY}.")
