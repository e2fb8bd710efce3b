"""Descriptions that were edited and signed again: the same model, or one sentence."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transcf import load
from transcf.data.interactions import Interactions
from transcf.errors import ModelFileError, UnsupportedError
from transcf.models.base import Recommender

About = dict[str, Any]


@pytest.fixture(scope="module")
def folder(
    fitted: Callable[[str], Recommender[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return fitted("eals").save(tmp_path_factory.mktemp("cards") / "model")


@pytest.fixture
def intact(folder: Path) -> About:
    """Return the description, and put it back at the end."""
    text = (folder / "model.json").read_text()
    yield json.loads(text)
    (folder / "model.json").write_text(text)


def sign(folder: Path, about: Any) -> None:
    """Write a description with its own checksum made right, as a forger would."""
    if isinstance(about, dict):
        content = {key: value for key, value in about.items() if key != "sha256"}
        text = json.dumps(content, sort_keys=True)
        about = content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    (folder / "model.json").write_text(json.dumps(about))


def sentence(folder: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        load(folder)
    text = str(caught.value)
    assert text.count("\n") == 0
    assert str(folder) in text
    return text


@pytest.mark.parametrize("name", ["class", "params", "report", "timed", "files"])
@pytest.mark.parametrize("value", [None, "gone", 3, [], [[]], 1.5])
def test_fields_that_are_missing_or_of_other_types(
    folder: Path, intact: About, name: str, value: Any
) -> None:
    if value == "gone" and name == "class":
        value = {}
    changed = {key: other for key, other in intact.items() if key != name}
    sign(folder, changed if value is None else changed | {name: value})
    assert f"no valid value of {name!r}" in sentence(folder)


@pytest.mark.parametrize(
    "entry", [None, 3, {}, {"bytes": 3}, {"bytes": "3", "sha256": []}, {"bytes": 3, "sha256": [3]},
              {"bytes": True, "sha256": []}, {"bytes": 3, "sha256": "abc"}],
)  # fmt: skip
def test_files_without_size_or_checksums(folder: Path, intact: About, entry: Any) -> None:
    intact["files"]["seen.parquet"] = entry
    sign(folder, intact)
    assert "no valid value of 'files.seen.parquet" in sentence(folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda about: about["params"].update(dim="four"), "dim='four' is not allowed"),
        (lambda about: about["params"].update(dim=[4]), r"dim=[4] is not allowed"),
        (lambda about: about["params"].update(dim=10**30), "is not allowed"),
        (lambda about: about["params"].update({"\ud800": 1}), "it is not JSON"),
        (lambda about: about["params"].pop("dim"), "user_vectors"),
        (lambda about: about.update(additions="many"), "no valid value of 'additions'"),
        (lambda about: about.update({"class": "os.system"}), "no such model"),
        (lambda about: about.update({"class": "EASE"}), "this version of transcf cannot make"),
        (lambda about: about.update(version=True), "was altered"),
        (lambda about: about.update(version="2"), "was altered"),
        (lambda about: about.update(version=99), "install a newer transcf"),
        (lambda about: about.update(format=[]), "does not describe a model"),
    ],
)
def test_values_that_make_no_model(
    folder: Path, intact: About, change: Callable[[About], Any], expected: str
) -> None:
    change(intact)
    sign(folder, intact)
    text = sentence(folder)
    assert any(part in text for part in expected.split("|"))


@pytest.mark.parametrize("depth", [500, 900, 2_000, 100_000])
def test_deep_json(folder: Path, intact: About, depth: int) -> None:
    text = (folder / "model.json").read_text()
    deep = "[" * depth + "]" * depth
    (folder / "model.json").write_text(text.replace('"report": {', f'"report": {{"deep": {deep},'))
    told = sentence(folder)
    assert "altered" in told or "damaged" in told
    (folder / "model.json").write_text("[" * depth)
    assert "damaged" in sentence(folder)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a JSON value, by their keys."""
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        return [path, *(p for key in keys for p in places(value[key], (*path, key)))]
    return [path]


@settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_any_change_is_the_same_model_or_one_sentence(
    folder: Path, intact: About, log: Interactions, data: st.DataObject
) -> None:
    about = copy.deepcopy(intact)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(places(about)[1:] or [("format",)]))
        inside: Any = about
        for key in way:
            inside = inside[key]
        if data.draw(st.booleans()) or isinstance(inside, list):
            inside[last] = data.draw(ANYTHING)
        else:
            del inside[last]
    sign(folder, about)
    try:
        model = load(folder)
    except ModelFileError:
        sentence(folder)
        return
    assert model.recommend(model.users_.series[0], k=3).height == 3
    assert model.save(folder.with_name("again"), overwrite=True)
    if model.settings_.event_weights.trend_by_hand:  # says so, and would have to age
        with pytest.raises(UnsupportedError):
            model.partial_fit(log)
    else:
        model.partial_fit(log)
    shutil.rmtree(folder.with_name("again"))
