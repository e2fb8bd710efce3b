"""Checkpoints in parts: the file names a whole set of them, or there is no new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transcf.errors import ModelFileError
from transcf.io.tensors import Arrays
from transcf.models.checkpoint import CheckpointFile, PartFile, write_part


class InParts:
    """Tensors that two writers have; the second may be killed before it has written its part."""

    def __init__(self, number: int, dies: bool = False) -> None:
        self._number, self._dies = number, dies

    def tensors(self) -> Arrays:
        rows = np.arange(12, dtype=np.float32).reshape(6, 2) + 100 * self._number
        return {"user_vectors": rows, "steps": np.array([self._number])}

    def write(self, folder: Path) -> Sequence[PartFile]:
        whole = self.tensors()
        users, steps = whole["user_vectors"], whole["steps"]
        first = write_part(folder / f"part-{self._number}-0", {"user_vectors": users[:4]})
        if self._dies:
            raise KeyboardInterrupt
        other = {"user_vectors": users[4:], "steps": steps}
        return [first, write_part(folder / f"part-{self._number}-1", other)]


def check_same(found: object, expected: Arrays) -> None:
    assert isinstance(found, dict)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_a_set_of_parts_is_whole_or_the_one_before(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path, "run", 0.0)
    first, second = InParts(1), InParts(2)
    file.write([{"epoch": 1}], first, {})
    with pytest.raises(KeyboardInterrupt):
        file.write([{"epoch": 1}, {"epoch": 2}], InParts(2, dies=True), first)
    stored = file.read()
    assert stored is not None
    history, current, best = stored
    assert (history, best) == ([{"epoch": 1}], {})
    check_same(current, first.tensors())
    file.write([], second, first)
    stored = file.read()
    assert stored is not None
    check_same(stored[1], second.tensors())
    check_same(stored[2], first.tensors())
    file.write([], second.tensors(), second)
    assert sorted(path.name for path in tmp_path.glob("part-*")) == ["part-2-0", "part-2-1"]


@pytest.mark.parametrize("harm", ["lost", "cut", "changed"])
def test_a_damaged_part_is_noticed(harm: str, tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path, "run", 0.0)
    file.write([], InParts(1), {})
    part = tmp_path / "part-1-1"
    content = part.read_bytes()
    if harm == "lost":
        part.unlink()
    else:
        part.write_bytes(content[:-1] if harm == "cut" else content[:-1] + b"\1")
    with pytest.raises(ModelFileError, match="is damaged and cannot be resumed from"):
        file.read()
