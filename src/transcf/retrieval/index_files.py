"""One safetensors file for an index: arrays, the lists as bytes, and a checksum over all of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError
from transcf.io import tensors
from transcf.io.tensors import Arrays
from transcf.retrieval.index import ItemIndex
from transcf.retrieval.index_parts import Projection, faiss_library

_FORMAT, _VERSION = "transcf-index", 1
_ARRAYS = ("item_vectors", "rows", "user_map", "item_map", "item_mean", "lists")


def save(index: ItemIndex, path: Path) -> Path:
    """Write a temporary neighbour, then give it the name."""
    lists = np.empty(0, dtype=np.uint8)
    if index.lists is not None:
        lists = faiss_library().serialize_index(index.lists)
    projection = index.projection
    arrays: Arrays = {
        "item_vectors": index.item_vectors,
        "rows": index.rows,
        "user_map": projection.user_map,
        "item_map": projection.item_map,
        "item_mean": projection.item_mean,
        "lists": lists,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    about |= {"recall": index.recall, "probes": index.probes}
    about["sha256"] = _checksum(about, arrays)
    with atomic_write(path) as unfinished:
        tensors.write(unfinished, arrays, json.dumps(about))
    return path


def load(path: Path) -> ItemIndex:
    """Read an index after comparing it with its checksum.

    The checksum finds damage; it does not prove who wrote the file. Its lists are read by
    faiss, which is not made for files of strangers.
    """
    if not path.is_file():
        raise ModelFileError(f"There is no index file {path}.")
    try:
        about, arrays = _read(path)
    except (KeyError, ValueError, TypeError) as error:
        raise ModelFileError(
            f"{path} is damaged or not an index: build it again with `transcf export --to index`."
        ) from error
    faiss = faiss_library()
    lists = faiss.deserialize_index(arrays["lists"]) if len(arrays["lists"]) else None
    projection = Projection(arrays["user_map"], arrays["item_map"], arrays["item_mean"])
    return ItemIndex(
        arrays["item_vectors"],
        arrays["rows"],
        projection,
        recall=about["recall"],
        probes=tuple(about["probes"]),
        lists=lists,
    )


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        text, stored = tensors.read_with_about(path)
    except ModelFileError as error:
        raise ValueError("not a file of arrays") from error
    about = json.loads(text)
    if about["format"] != _FORMAT:
        raise ValueError("not an index")
    if about["version"] > _VERSION:
        raise ModelFileError(
            f"{path} is an index of version {about['version']} and this library reads "
            f"{_VERSION}: update the library or build the index again."
        )
    arrays = {name: stored[name].copy() for name in _ARRAYS}  # faiss wants arrays of its own
    if about.pop("sha256") != _checksum(about, arrays):
        raise ValueError("the checksum does not fit")
    return about, arrays


def _checksum(about: dict[str, Any], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
