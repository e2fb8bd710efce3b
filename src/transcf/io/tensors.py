"""Arrays in safetensors files, for models and checkpoints.

Parsed here rather than by safetensors, whose numpy functions copy every array: large models are
mapped.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from transcf.errors import ModelFileError

#: Arrays by name.
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
#: The content of a file.
Bytes: TypeAlias = npt.NDArray[np.uint8]

_ABOUT = "about"
#: A file begins with the length of its header.
_LENGTH_BYTES = 8
#: Errors that a header of any other content leads to.
_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_KINDS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
}  # fmt: skip


def write(path: Path, arrays: Arrays, about: str = "") -> None:
    """Write arrays by name, and a text that is stored with them."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(whole, path, metadata={_ABOUT: about} if about else None)


def read_with_about(path: Path) -> tuple[str, Arrays]:
    """Return the text that is stored with the arrays, and the arrays, read-only, in a copy."""
    return parse(path, np.fromfile(path, np.uint8))


def parse(path: Path, content: Bytes) -> tuple[str, Arrays]:
    """Return the text and the arrays, read-only views of the content of a file.

    Raises:
        ModelFileError: It is not the content of a safetensors file.
    """
    try:
        return _parse(content)
    except _MALFORMED as error:
        raise ModelFileError(
            f"{path} cannot be read as safetensors ({error}): restore it from a copy."
        ) from error


def _parse(content: Bytes) -> tuple[str, Arrays]:
    """Validate the header, and return views of the bytes after it."""
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES].tobytes(), "little")
    if len(content) < _LENGTH_BYTES or start > len(content):
        raise ValueError("it is cut off")
    header = json.loads(content[_LENGTH_BYTES:start].tobytes())
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    about = header.pop("__metadata__", {}).get(_ABOUT, "")
    if not isinstance(about, str):
        raise ValueError("its text is not one")
    arrays: Arrays = {}
    end = start
    # In the order of the file, where arrays follow each other without gaps.
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape = np.dtype(_KINDS[entry["dtype"]]), tuple(entry["shape"])
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"{name!r} has no proper shape")
        first, end = end, end + math.prod(shape) * kind.itemsize
        if entry["data_offsets"] != [first - start, end - start] or end > len(content):
            raise ValueError(f"{name!r} is not where it should be")
        if first % kind.itemsize:  # not aligned, as other libraries may write it
            array = np.frombuffer(content[first:end].tobytes(), kind)
        else:
            array = content[first:end].view(kind)
        arrays[name] = array.reshape(shape)
        arrays[name].flags.writeable = False
    if end != len(content):
        raise ValueError("it has grown")
    return about, arrays


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
