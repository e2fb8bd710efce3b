"""Model folders that were damaged, altered or forged: the same answers, or one sentence."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.conftest import with_side
from tests.hostile._corruption import (
    GONE,
    KINDS,
    Contents,
    Way,
    changed,
    forged_tables,
    forged_tensors,
    places,
    signed,
    with_file,
)
from tests.hostile._outcomes import FUZZ, Answered, Refused, cases, outcome_of
from tests.hostile.test_parameters import QUICK, fitted

from transcf import create, load, synthesize
from transcf.data.json_text import to_json
from transcf.io import tensors
from transcf.models.registry import available, model_class
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion

NAMES = ["popularity", "ease", "itemknn", "ials", "random"]
FILES = ["model.json", "model.safetensors", "users.parquet", "items.parquet", "seen.parquet"]
#: A name of every class; with `make fuzz` all names, though many share a class.
EVERY = available() if FUZZ else tuple({model_class(name): name for name in available()}.values())


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


@cases("folders", 0.03)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_altered_cards(
    saved: dict[str, Contents], folder: Path, round_: int, name: str, data: st.DataObject
) -> None:
    about = json.loads(saved[name]["model.json"])
    way = data.draw(st.sampled_from(places(about)[1:]))
    new = GONE if data.draw(st.booleans()) else data.draw(ANYTHING)
    put(folder, saved[name] | {"model.json": signed(changed(about, way, new))})
    found = outcome_of("folders", lambda: answers(folder))
    if isinstance(found, Answered) and way[0] not in ("class", "params"):
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
    put(folder, with_file(contents, file, contents[file]))

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


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Contents]:
    """The files of a small model by its name."""
    place = tmp_path_factory.mktemp("every")
    log = with_side(synthesize(users=12, items=8, interactions=40, seed=1))

    @cache
    def files(name: str) -> Contents:
        small = {"epochs": 1, "dim": 2}
        params = {key: value for key, value in small.items() if key in model_class(name)._rules()}
        model = create(name, **params).fit(log)
        model.report_ |= {"dataset": "x", "protocol": "leave-last-out", "split_seed": 0,
                          "held_out": True,
                          "fitted_on": "x", "split": "x", "events_after": 3,
                          "reading": {"user": "a", "min_rating": 1.0}}  # fmt: skip
        folder = model.save(place / name)
        return {file: (folder / file).read_bytes() for file in FILES}

    return files


def use(folder: Path) -> None:
    """Load a model and use all that is read from its folder."""
    model = load(folder)
    scores = [model.recommend(k=3)["score"], model.recommend_for([model.items_.series[0]])["score"]]
    assert all(score.is_finite().all() for score in scores)
    assert repr(model)
    assert to_json(ModelVersion.load(1, folder, {}, Mock(spec=EventCache)).description)
    report = model.report_
    assert f"{report['interactions']:,} {report['seconds']:.3f} {report.get('split_seed', 0):,}"
    assert isinstance(report.get("dataset", ""), str)


def check_all(folder: Path, forged: Iterator[tuple[str, Contents]]) -> None:
    """Use each folder: an answer or one sentence."""
    for what, contents in forged:
        put(folder, contents)
        try:
            outcome_of("folders", lambda: use(folder))
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error


@pytest.mark.parametrize("name", EVERY)
def test_every_value_of_model_json(
    name: str, every: Callable[[str], Contents], folder: Path
) -> None:
    contents = every(name)
    about = json.loads(contents["model.json"])
    ways = [way for way in places(about)[1:] if FUZZ or _is_new(name, way)]
    check_all(
        folder,
        (
            (f"{way} is {kind}", contents | {"model.json": signed(changed(about, way, value))})
            for way in ways
            for kind, value in KINDS.items()
        ),
    )


def _is_new(name: str, way: Way) -> bool:
    """Whether no model before this one has the same value: apart from parameters all are alike."""
    if way[0] != "params":
        return name == "popularity"
    before = EVERY[: EVERY.index(name)]
    return not any(way[-1] in model_class(one)._rules() for one in before)


@pytest.mark.parametrize("name", EVERY)
def test_forged_tensors(name: str, every: Callable[[str], Contents], folder: Path) -> None:
    contents, file = every(name), "model.safetensors"
    arrays = tensors.parse(Path(file), np.frombuffer(contents[file], np.uint8))[1]
    forged = forged_tensors(arrays)
    check_all(folder, ((what, with_file(contents, file, made)) for what, made in forged))


@pytest.mark.parametrize("file", ["users.parquet", "items.parquet", "seen.parquet"])
@pytest.mark.parametrize("name", EVERY if FUZZ else ["popularity", "ials", "transcf"])
def test_forged_tables(
    name: str, file: str, every: Callable[[str], Contents], folder: Path
) -> None:
    contents = every(name)
    forged = forged_tables(contents[file])
    check_all(folder, ((what, with_file(contents, file, made)) for what, made in forged))


@pytest.mark.parametrize("file", FILES)
def test_pipes_do_not_block(file: str, every: Callable[[str], Contents], folder: Path) -> None:
    put(folder, {name: content for name, content in every("ease").items() if name != file})
    os.mkfifo(folder / file)
    assert isinstance(outcome_of("folders", lambda: load(folder)), Refused)
