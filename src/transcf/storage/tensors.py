"""Arrays in safetensors files: the one way that models and checkpoints write and read them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transcf.errors import ModelFileError

_ABOUT = "about"

#: Arrays by name.
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

_KINDS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
}  # fmt: skip


def write(path: Path, arrays: Arrays, about: str = "") -> None:
    """Write arrays by name, and a text about them."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(whole, path, metadata={_ABOUT: about} if about else None)


def read_about(path: Path) -> str:
    """Return the text that was written with the arrays."""
    with _opened(path) as header:
        return str((header.metadata() or {}).get(_ABOUT, ""))


def read(path: Path) -> Arrays:
    """Return the arrays, read-only views of the file: nothing is read before it is used.

    The library checks the header (names, shapes, and that the arrays fill the file without gaps,
    in the order of `offset_keys`); it would copy the arrays, hence the mapping here.
    """
    arrays: Arrays = {}
    with _opened(path) as header, path.open("rb") as file:
        offset = 8 + int.from_bytes(file.read(8), "little")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for name in header.offset_keys():
            entry = header.get_slice(name)
            kind, shape = np.dtype(_KINDS[entry.get_dtype()]), entry.get_shape()
            count = math.prod(shape)
            flat: npt.NDArray[Any] = np.frombuffer(content, kind, count, offset)
            arrays[name] = flat.reshape(shape)
            offset += count * kind.itemsize
    return arrays


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as header:
            yield header
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read as safetensors: {error}.") from error


def stored(
    arrays: Arrays, name: str, kind: npt.DTypeLike, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return one array, read-only, after checking its type and shape."""
    array = checked(arrays, name, kind, shape)
    array.flags.writeable = False
    return array


def checked(
    arrays: Arrays, name: str, kind: npt.DTypeLike, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return one array after checking its type and shape.

    Raises:
        ValueError: It is missing or not what the model needs.
    """
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.shape != shape:
        found = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise ValueError(f"{name} should be {np.dtype(kind)} {shape} and is {found}")
    return array
