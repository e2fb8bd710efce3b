"""Model folders that were damaged, altered or forged: the same answers, or one sentence."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile._outcomes import Answered, cases, outcome_of
from tests.hostile.test_parameters import QUICK, fitted

from transcf import load

NAMES = ["popularity", "ease", "itemknn", "ials", "random"]
FILES = ["model.json", "model.safetensors", "users.parquet", "items.parquet", "seen.parquet"]
Contents = dict[str, bytes]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contents]:
    """The files of a model of each kind."""
    place = tmp_path_factory.mktemp("saved")
    folders = {name: fitted(name).save(place / name) for name in NAMES}
    return {name: {file: (folder / file).read_bytes() for file in FILES}
            for name, folder in folders.items()}  # fmt: skip


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folder")


def put(folder: Path, contents: Contents) -> None:
    for file in FILES:
        path = folder / file
        if file in contents:
            path.write_bytes(contents[file])
        else:
            path.unlink(missing_ok=True)


def answers(folder: Path) -> list[Any]:
    """What the model in a folder answers, all of it."""
    model = load(folder)
    return [model.recommend(k=9).rows(), model.recommend("ann", 3, exclude_seen=False).rows(),
            model.recommend_for([1, 2], k=3).rows()]  # fmt: skip


def expected(name: str) -> list[Any]:
    model = fitted(name)
    return [model.recommend(k=9).rows(), model.recommend("ann", 3, exclude_seen=False).rows(),
            model.recommend_for([1, 2], k=3).rows()]  # fmt: skip


@cases("folders", 0.03)
@given(name=st.sampled_from(NAMES), file=st.sampled_from(FILES), data=st.data())
def test_damage(
    saved: dict[str, Contents], folder: Path, round_: int, name: str, file: str, data: st.DataObject
) -> None:
    contents = dict(saved[name])
    raw = contents[file]
    place = data.draw(st.integers(0, len(raw) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "grow", "gone", "empty", "other", "none"]))
    if how == "gone":
        del contents[file]
    else:
        contents[file] = {
            "cut": raw[:place],
            "flip": raw[:place] + bytes([raw[place] ^ data.draw(st.integers(1, 255))])
            + raw[place + 1 :],
            "grow": raw + b"\0" * (place + 1),
            "empty": b"",
            "other": saved[data.draw(st.sampled_from(NAMES))][file],
            "none": raw,
        }[how]  # fmt: skip
    put(folder, contents)
    found = outcome_of("folders", lambda: answers(folder))
    # Blanks at the end of JSON are as good as none; of another model some files may be the same.
    if isinstance(found, Answered):
        assert found.value == expected(name)
    else:
        assert contents != saved[name], "nothing was wrong"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from([2**70, -1, 0, "EASE", "Popularity", "IALS", math.nan]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a JSON value, by their keys."""
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        return [path, *(p for key in keys for p in places(value[key], (*path, key)))]
    return [path]


def signed(about: Any, contents: Contents) -> bytes:
    """Write a description with all checksums made right, as a forger would."""
    if isinstance(about, dict):
        about = {key: value for key, value in about.items() if key != "sha256"}
        text = json.dumps(about, sort_keys=True)
        about["sha256"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps(about).encode()


@cases("folders", 0.03)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_altered_cards(
    saved: dict[str, Contents], folder: Path, round_: int, name: str, data: st.DataObject
) -> None:
    about = copy.deepcopy(json.loads(saved[name]["model.json"]))
    *way, last = data.draw(st.sampled_from(places(about)[1:]))
    inside = about
    for key in way:
        inside = inside[key]
    if data.draw(st.booleans()) or isinstance(inside, list):
        inside[last] = data.draw(ANYTHING)
    else:
        del inside[last]
    put(folder, saved[name] | {"model.json": signed(about, saved[name])})
    found = outcome_of("folders", lambda: answers(folder))
    if isinstance(found, Answered) and way[:1] != ["params"] and last not in ("class", "params"):
        assert found.value == expected(name)


@cases("folders", 0.03)
@given(name=st.sampled_from(NAMES), file=st.sampled_from(FILES[1:]), data=st.data())
def test_forged_files(
    saved: dict[str, Contents], folder: Path, round_: int, name: str, file: str, data: st.DataObject
) -> None:
    contents = dict(saved[name])
    raw = contents[file]
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.integers(0, 3)):
        odd = bytes([raw[place] ^ data.draw(st.integers(1, 255))])
        contents[file] = raw[:place] + odd + raw[place + 1 :]
    else:
        contents[file] = saved[data.draw(st.sampled_from(NAMES))][file][: place + 1]
    about = json.loads(contents["model.json"])
    digests = [hashlib.sha256(contents[file]).hexdigest()]
    about["files"][file] = {"bytes": len(contents[file]), "sha256": digests}
    contents["model.json"] = signed(about, contents)
    put(folder, contents)

    def ask() -> list[Any]:
        model = load(folder)
        lists = model.recommend(k=9, exclude_seen=True)
        known = {(u, i) for u in range(len(model.users_)) for i in model.seen_.indices[
            model.seen_.indptr[u] : model.seen_.indptr[u + 1]]}  # fmt: skip
        rows = zip(model.users_.rows(lists["user_id"]), model.items_.rows(lists["item_id"]),
                   strict=True)  # fmt: skip
        assert not known & {(int(u), int(i)) for u, i in rows}, "somebody gets what they have"
        return lists["score"].to_list()

    found = outcome_of("folders", ask)
    # A forger may change numbers, but not make them none.
    assert not isinstance(found, Answered) or all(map(math.isfinite, found.value))
    assert name in QUICK
