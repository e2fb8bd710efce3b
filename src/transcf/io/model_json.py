"""`model.json`: type, parameters, report and checksums of a saved model; and the model card.

It contains a checksum of itself, which finds damage and careless edits. If it is edited and the
checksum is corrected, names and types are still checked here, and values by the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypeAlias

from transcf.data.ids import IdMap
from transcf.data.json_text import from_json, misfit
from transcf.data.readers import Reading
from transcf.errors import ModelFileError, shown

About: TypeAlias = dict[str, Any]

NAME = "model.json"
FORMAT = "transcf-model"
VERSION = 3
#: The oldest format that is read; models of it may have other names, see `models.aliases`.
OLDEST = 2
#: Larger files are not read.
_LARGEST = 64 * 2**20
_REMEDY = "restore the folder from a copy or fit again"

#: Types of the training report; models add values of their own, which are not checked.
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
_CONTENT = {
    "library": str,
    "class": str,
    "params": dict[str, Any],
    "report": _REPORT,
    "timed": bool,
    "best_epoch": int | None,
    "additions": int,
}


def signed(about: About) -> About:
    """Return the content with its own checksum."""
    return {**about, "sha256": _own_checksum(about)}


def read_about(path: Path, files: Sequence[str]) -> About:
    """Read and check `model.json`, which must contain size and checksums of some files.

    Raises:
        ModelFileError: It is missing, damaged, altered, too old or too new.
    """
    folder, altered = path.parent, f"{path} was altered after it was saved: {_REMEDY}."
    if not path.is_file():
        raise ModelFileError(f"{folder} is not a saved model: it has no {NAME}.")
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("too large")
        about = from_json(path.read_bytes())
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ModelFileError(f"{path} does not describe a model of this library.")
        version = about.get("version")
        if type(version) is not int or version < 1:
            raise ModelFileError(altered)
        if not OLDEST <= version <= VERSION:
            remedy = "install a newer transcf" if version > VERSION else "fit again"
            raise ModelFileError(
                f"{folder} was written in format {version} and this library reads {OLDEST} to "
                f"{VERSION}: {remedy}."
            )
        if about.get("sha256") != _own_checksum(about):
            raise ModelFileError(altered)
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON): {_REMEDY}.") from error
    if (wrong := wrong_part(about, files)) is not None:
        raise ModelFileError(f"{path} has no valid value of {shown(wrong)}: {_REMEDY}.")
    return about


def _own_checksum(about: About) -> str:
    content = {key: value for key, value in about.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def wrong_part(about: About, files: Sequence[str]) -> str | None:
    """Return the name of the first part with a wrong type or value, None if there is none."""
    of_files = {name: {"bytes": int, "sha256": list[str]} for name in files}
    wrong = misfit(about, _CONTENT | {"files": of_files})
    if wrong is None and about["additions"] < 0:
        return "additions"
    if wrong is None and about["best_epoch"] is not None and about["best_epoch"] < 1:
        return "best_epoch"
    return wrong


def model_card(summary: str, about: About, users: IdMap) -> str:
    """Return the model card in Markdown: what the model is, how it was fitted, how to use it."""
    size = sum(entry["bytes"] for entry in about["files"].values())
    facts = {
        key: value
        for key, value in about["report"].items()
        if not isinstance(value, list) and key != "auto"  # a long report of its own
    }
    return f"""# {about["class"]}

{summary}

A recommender saved by transcf {about["library"]}, {size / 2**20:,.1f} MiB.

## Hyper-parameters

{_table(about["params"])}

## Training

{_table(facts)}

## Use

```python
import transcf

model = transcf.load("path/to/this/folder")
model.recommend({users.series[0]!r}, k=10)
```

## What is in the folder

Learned arrays (`model.safetensors`), settings and checksums (`model.json`), the ids of
users and items, and the training interactions (`seen.parquet`, so that items that a user
already has are not recommended). The ids and interactions of the training users are
personal data if they were so in the source: treat the folder accordingly.
"""


def _table(values: dict[str, Any]) -> str:
    if not values:
        return "None."
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | `{v}` |" for k, v in values.items())])
