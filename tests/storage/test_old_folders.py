"""Model folders that version 0.1 wrote can be loaded, and recommend what they did."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

import transcf

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "models-0.1"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    with zipfile.ZipFile(OLD / "models.zip") as archive:
        archive.extractall(place)
    return place


GONE = (
    "transcf-swapped",
    "transcf-attention",
    "transcf-map",
    "transcf-friends",
    "transcf-categories",
)


@pytest.mark.parametrize("label", GONE)
def test_an_old_folder_of_a_removed_model_says_so(label: str, folders: Path) -> None:
    with pytest.raises(transcf.TransCFError, match="not exist any more"):
        transcf.load(folders / EXPECTED["models"][label]["folder"])


@pytest.mark.parametrize("label", [name for name in EXPECTED["models"] if name not in GONE])
def test_an_old_folder_recommends_what_it_did(label: str, folders: Path) -> None:
    expected = EXPECTED["models"][label]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = transcf.load(folders / expected["folder"])
    top = model.recommend(EXPECTED["users"], k=3)
    assert top["item_id"].to_list() == expected["items"]
    assert top["score"].to_list() == pytest.approx(expected["scores"], rel=1e-4, abs=1e-5)
    new = model.recommend_for(EXPECTED["history"], k=3)
    assert new["item_id"].to_list() == expected["fold-in items"]
