"""Loading while others save, cut off and overwrite: whole, or one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from transcf import EASE, Popularity, load
from transcf.data.interactions import Interactions
from transcf.errors import ModelFileError
from transcf.io import model_dir, tensors
from transcf.models.mixture import TransCFMixture

LOADS = 2000


def test_loading_while_another_program_saves_finds_one_model_or_the_other(
    log: Interactions, tmp_path: Path
) -> None:
    one, other = EASE(regularization=10.0).fit(log), Popularity().fit(log)
    expected = {type(model): model.recommend() for model in (one, other)}
    sources = [one.save(tmp_path / "one"), other.save(tmp_path / "other")]
    folder = Path(shutil.copytree(sources[0], tmp_path / "model"))
    program = """
        import itertools, sys
        from pathlib import Path
        from transcf import load
        from transcf.data import atomic
        atomic._flush = lambda path, mode: None  # more exchanges a second than any disk allows
        models = [load(source) for source in sys.argv[2:]]
        print("begun", flush=True)
        for model in itertools.cycle(models):
            model.save(sys.argv[1], overwrite=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder), *map(str, sources)]
    found = dict.fromkeys(expected, 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as saving:
        assert saving.stdout is not None
        assert saving.stdout.readline() == "begun\n"
        for _ in range(LOADS):
            model = load(folder)
            found[type(model)] += 1
            if sum(found.values()) % 20 == 0:
                assert model.recommend().equals(expected[type(model)])
        assert saving.poll() is None, "it saves all the time"
        saving.kill()
    assert min(found.values()) > LOADS // 20
    assert load(folder).is_fitted


def test_files_that_change_after_loading_do_not_matter(log: Interactions, tmp_path: Path) -> None:
    """A program of its own: a mapped file that is cut off would end it."""
    folder = TransCFMixture(dim=8, epochs=1).fit(log).save(tmp_path / "model")
    program = """
        import sys
        from pathlib import Path
        from transcf import load
        folder = Path(sys.argv[1])
        model, untouched = load(folder), load(folder).recommend()
        for change in (lambda size: bytes(size), lambda size: b""):
            for path in folder.iterdir():
                path.write_bytes(change(path.stat().st_size))  # in place, as `cp` writes
            assert model.recommend().equals(untouched)
        print("the same")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "the same\n", (done.returncode, done.stderr)


def test_large_arrays_are_mapped_and_survive_a_save_over_them(
    log: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = EASE().fit(log).save(tmp_path / "model")

    def is_mapped() -> bool:
        return str(folder) in Path("/proc/self/maps").read_text()

    small = load(folder)
    assert not is_mapped()
    asked_for = load(folder, mapped=True)
    assert is_mapped()
    del asked_for
    monkeypatch.setattr(model_dir, "LARGE_BYTES", 100)
    private = EASE.load(folder, mapped=False)
    assert not is_mapped()
    large = load(folder)
    assert is_mapped()
    Popularity().fit(log).save(folder, overwrite=True)
    for model in (small, private, large):
        assert model.recommend().equals(small.recommend())
        assert not model.weights_.flags.writeable


def test_a_model_is_replaced_only_on_request(log: Interactions, tmp_path: Path) -> None:
    folder = EASE().fit(log).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"holds a model already.*overwrite=True"):
        Popularity().fit(log).save(folder)
    assert isinstance(load(folder), EASE)
    Popularity().fit(log).save(folder, overwrite=True)
    assert isinstance(load(folder), Popularity)
    (folder / "model.json").write_text("damaged")
    EASE().fit(log).save(folder, overwrite=True)
    assert isinstance(load(folder), EASE)
    (folder / "model.json").unlink()
    with pytest.raises(ModelFileError, match="holds other files"):
        EASE().fit(log).save(folder, overwrite=True)


def test_what_is_not_a_plain_file_is_missing(log: Interactions, tmp_path: Path) -> None:
    folder = EASE().fit(log).save(tmp_path / "model")
    for name in ("users.parquet", "model.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)  # who opens it would wait for ever
        with pytest.raises(ModelFileError, match=r"missing|has no model\.json"):
            load(folder)
    with pytest.raises(ModelFileError, match="There is no model folder"):
        load(folder / "model.safetensors")
    with pytest.raises(ModelFileError, match="cannot be read: File name too long"):
        load("x" * 5000)
    with pytest.raises(ModelFileError, match="There is no model folder"):
        load("nul\0nul")


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "wide": rng.standard_normal((3, 4)),
        "empty": np.empty((0, 7), np.float32),
        "flags": np.array([True, False, True]),
        "bytes": np.arange(5, dtype=np.uint8),
        "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "one": np.array(3, np.int16),
    }
    tensors.write(tmp_path / "arrays", arrays, "about them")
    about, found = tensors.read_with_about(tmp_path / "arrays")
    assert about == "about them"
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        assert array.dtype == arrays[name].dtype
        np.testing.assert_array_equal(array, arrays[name])
        assert not array.flags.writeable


def test_a_broken_header_of_arrays_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    bad = [
        {"a": good | {"dtype": "F99"}}, {"a": good | {"shape": [3]}}, {"a": good | {"shape": 2}},
        {"a": good | {"shape": [-1, -2]}}, {"a": good | {"shape": [True, 2]}},
        {"a": good | {"shape": [0, 10**40], "data_offsets": [0, 0]}},
        {"a": good | {"data_offsets": [4, 12]}}, {"a": good | {"data_offsets": "no"}},
        {"a": good, "b": good}, {"a": 3}, {"a": {}}, [], 3, {"__metadata__": 3, "a": good},
        {"__metadata__": {"about": 3}, "a": good}, {},
    ]  # fmt: skip
    headers = [json.dumps(entry).encode() for entry in bad] + [b"[" * 100_000, b"", b"\xff"]
    contents = [len(header).to_bytes(8, "little") + header + bytes(8) for header in headers]
    contents += [b"", b"\x01", b"\xff" * 64]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="cannot be read as safetensors") as caught:
            tensors.read_with_about(path)
        assert "\n" not in str(caught.value)
