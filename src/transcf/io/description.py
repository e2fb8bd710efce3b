"""`model.json`: what a saved model is, and the checksums of its files; nothing in it is believed.

It carries a checksum of itself, which finds damage and careless edits. Whoever edits it and makes
the checksum right again still meets the checks of names and types here, and those of values by
the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypeAlias

from transcf.data.json_text import from_json, misfit
from transcf.data.readers import Reading
from transcf.errors import ModelFileError, shown
from transcf.io.open_files import OpenFolder

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
        about = from_json(file.read())
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ModelFileError(f"{path} does not describe a model of this library.")
        _check_version(opened.path, about.get("version"))
        is_as_written = about.get("sha256") == _own_checksum(about)
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON): {_REMEDY}.") from error
    if not is_as_written:
        raise ModelFileError(f"{path} was altered after it was saved: {_REMEDY}.")
    if (wrong := wrong_part(about, files)) is not None:
        raise ModelFileError(f"{path} has no valid value of {shown(wrong)}: {_REMEDY}.")
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


#: What the report of a training holds; models add facts of their own, which are only shown.
_REPORT = {
    "users": int,
    "items": int,
    "interactions": int,
    "seconds": float,
    "ending": NotRequired[str],
    "dataset": NotRequired[str | list[str]],
    "reading": NotRequired[Reading],
    "protocol": NotRequired[str],
    "split": NotRequired[str],
    "split_seed": NotRequired[int],
    "held_out": NotRequired[bool],
    "fitted_on": NotRequired[str],
    "events_after": NotRequired[int],
}
_FILE = {"bytes": int, "sha256": list[str]}
_CONTENT = {
    "library": str,
    "class": str,
    "params": dict[str, Any],
    "report": _REPORT,
    "timed": bool,
    "best_epoch": int | None,
    "additions": int,
}


def wrong_part(about: About, files: Sequence[str]) -> str | None:
    """Return the name of the first part with a wrong type or value, None if there is none.

    Args:
        about: The content of `model.json`.
        files: Names of files of which it has to give the size and the checksums.
    """
    wrong = misfit(about, _CONTENT | {"files": dict.fromkeys(files, _FILE)})
    if wrong is None and about["additions"] < 0:
        return "additions"
    if wrong is None and about["best_epoch"] is not None and about["best_epoch"] < 1:
        return "best_epoch"
    return wrong
