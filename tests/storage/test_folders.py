"""Saved models: whole or refused, never wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import transcf
from transcf.data import atomic
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import ModelFileError, ParameterError, WriteError
from transcf.io import model_dir
from transcf.models.base import Recommender
from transcf.models.baselines import Popularity
from transcf.models.ease import EASE
from transcf.models.itemknn import ItemKNN
from transcf.models.mixture import TransCFMixture
from transcf.models.params import params_of, values_of
from transcf.models.registry import create
from transcf.models.training import FitOptions


@pytest.fixture(scope="module")
def log() -> Interactions:
    rng = np.random.default_rng(4)
    users, user_rows = IdMap.encode(pl.Series([f"u{n}" for n in rng.integers(0, 30, 250)]))
    items, item_rows = IdMap.encode(pl.Series(rng.integers(0, 25, 250)))
    return Interactions.from_rows(users, items, user_rows, item_rows)


@pytest.fixture(scope="module")
def model(log: Interactions) -> ItemKNN:
    return ItemKNN(n_neighbors=5).fit(log)


@pytest.fixture
def folder(model: ItemKNN, tmp_path: Path) -> Path:
    return model.save(tmp_path / "model")


def answers(model: Recommender) -> bytes:
    return model.scores(np.arange(len(model.users_), dtype=np.int32)).tobytes()


def rewrite(folder: Path, change: Callable[[dict], object]) -> None:
    """Change model.json and make its own checksum right again, as a forger would."""
    path = folder / "model.json"
    about = json.loads(path.read_text())
    change(about)
    about["files"] = {
        name: {
            "bytes": (folder / name).stat().st_size,
            "sha256": [hashlib.sha256((folder / name).read_bytes()).hexdigest()],
        }
        for name in about["files"]
    }
    content = {key: value for key, value in about.items() if key != "sha256"}
    text = json.dumps(content, sort_keys=True)
    about["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(about))


def test_the_folder_holds_what_is_promised(folder: Path, model: ItemKNN) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md", "items.parquet", "model.json", "model.safetensors", "seen.parquet",
        "users.parquet",
    }  # fmt: skip
    about = json.loads((folder / "model.json").read_text())
    assert about["version"] == 3
    assert about["class"] == "ItemKNN"
    assert about["params"] == values_of(model.settings_)
    for name, entry in about["files"].items():
        plain = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert entry == {"bytes": (folder / name).stat().st_size, "sha256": [plain]}
    assert "# ItemKNN" in (folder / "README.md").read_text()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_ids_of_both_kinds_survive(folder: Path, model: ItemKNN) -> None:
    loaded = transcf.load(folder)
    assert loaded.users_ == model.users_
    assert loaded.items_ == model.items_
    assert loaded.recommend("u3").equals(model.recommend("u3"))


@pytest.mark.parametrize("name", ["itemknn", "transcf"])
def test_damage_is_an_error_or_changes_nothing(
    name: str, log: Interactions, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    model = create(name, **({"dim": 4, "epochs": 1} if name == "transcf" else {})).fit(log)
    folder = model.save(tmp_path / "model")
    expected, card = answers(model), model.recommend()
    files = sorted(folder.iterdir())
    intact = {path: path.read_bytes() for path in files}
    refused = unclear = 0
    for trial in range(500):
        path = files[trial % len(files)]
        content = bytearray(intact[path])
        if rng.random() < 0.7:
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        else:
            content = content[: rng.integers(len(content))]
        path.write_bytes(content)
        try:
            loaded = transcf.load(folder)
        except ModelFileError as error:
            refused += 1
            unclear += str(folder) not in str(error)
        else:
            assert answers(loaded) == expected
            assert loaded.recommend().equals(card)
            assert loaded.get_params() == params_of(model.settings_)
        path.write_bytes(intact[path])
    assert unclear == 0
    assert refused > 400  # all but the model card, and blanks in the JSON


def test_each_kind_of_damage_has_its_own_sentence(folder: Path, tmp_path: Path) -> None:
    def message(change: Callable[[Path], object]) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        change(copy)
        with pytest.raises(ModelFileError) as caught:
            transcf.load(copy)
        return str(caught.value)

    def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
        return lambda copy: (copy / name).write_bytes(change((copy / name).read_bytes()))

    tensors, about = "model.safetensors", "model.json"
    messages = [
        (message(shutil.rmtree), "There is no model folder"),
        (message(lambda copy: (copy / about).unlink()), "has no model.json"),
        (message(lambda copy: (copy / tensors).unlink()), "model.safetensors is missing"),
        (message(edit(tensors, lambda b: b[:-5])), "is cut off"),
        (message(edit(tensors, lambda b: b + b"x")), "has grown"),
        (message(edit(tensors, lambda b: b[:-1] + bytes([b[-1] ^ 1]))), "checksum differs"),
        (message(edit(about, lambda b: b[:-30])), "it is not JSON"),
        (message(edit(about, lambda b: b"[" * 100_000)), "it is not JSON"),
        (message(edit(about, lambda b: b"{}")), "does not describe a model"),
        (message(edit(about, lambda b: b.replace(b'"n_neighbors": 5', b'"n_neighbors": 6'))),
         "was altered"),
        (message(edit(about, lambda b: b.replace(b'"version": 3', b'"version": 4'))),
         "install a newer transcf"),
        (message(edit(about, lambda b: b.replace(b'"version": 3', b'"version": 1'))),
         "format 1 and this library reads 2 to 3: fit again"),
        (message(edit(about, lambda b: b.replace(b'"version": 3', b'"version": 0'))),
         "was altered"),
    ]  # fmt: skip
    for text, expected in messages:
        assert expected in text


FORGERIES = {
    "unknown class": (lambda about: about.update({"class": "os.system"}), "has no such model"),
    "unknown parameter": (lambda about: about["params"].update(shell="ls"), "no parameter"),
    "bad parameter": (lambda about: about["params"].update(n_neighbors=-1), "n_neighbors=-1"),
    "other class": (
        lambda about: about.update({"class": "BPR", "params": {}}),
        "arrays of a BPR",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_description_is_refused(folder: Path, forgery: str) -> None:
    change, expected = FORGERIES[forgery]
    rewrite(folder, change)
    with pytest.raises(ModelFileError, match=expected):
        transcf.load(folder)


def test_options_of_reading_of_earlier_versions_are_left_out(folder: Path) -> None:
    reading = {"user": "who", "ratings": "any", "links": "friends.csv"}
    rewrite(folder, lambda about: about["report"].update(reading=reading))
    assert transcf.load(folder).report_["reading"] == {"user": "who"}


def test_forged_files_are_refused(folder: Path, tmp_path: Path) -> None:
    def swap(name: str, table: pl.DataFrame, expected: str) -> None:
        original = (folder / name).read_bytes()
        table.write_parquet(folder / name)
        rewrite(folder, lambda about: None)
        with pytest.raises(ModelFileError, match=expected):
            transcf.load(folder)
        (folder / name).write_bytes(original)

    seen = pl.read_parquet(folder / "seen.parquet")
    swap("seen.parquet", seen.with_columns(item=pl.lit(10**6, pl.Int32)), "does not fit")
    swap("seen.parquet", seen.reverse(), "does not fit")
    swap("seen.parquet", seen.rename({"item": "thing"}), "other columns")
    swap("seen.parquet", seen.drop("place"), "other columns")
    swap("seen.parquet", seen.with_columns(place=pl.lit(0, pl.Int32)), "in which order")
    swap("seen.parquet", seen.with_columns(pl.col("place") + 1), "in which order")
    swap("seen.parquet", seen.with_columns(pl.col("place") - 1), "in which order")
    users = pl.read_parquet(folder / "users.parquet")
    swap("users.parquet", users.reverse(), "ascending order")
    swap("users.parquet", users.with_columns(id=pl.lit(1.5)), "other columns")
    (folder / "items.parquet").write_bytes(b"PAR1 not really PAR1")
    rewrite(folder, lambda about: None)
    with pytest.raises(ModelFileError, match="cannot be read as Parquet"):
        transcf.load(folder)


def test_forged_tensors_are_refused(log: Interactions, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = EASE().fit(log).save(tmp_path / "ease")
    for weights in (np.zeros((3, 3), np.float32), np.zeros((25, 25), np.float64)):
        save_file({"weights": weights}, folder / "model.safetensors")
        rewrite(folder, lambda about: None)
        with pytest.raises(ModelFileError, match="weights should be"):
            transcf.load(folder)
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    rewrite(folder, lambda about: None)
    with pytest.raises(ModelFileError, match="cannot be read as safetensors"):
        transcf.load(folder)
    folder = TransCFMixture(dim=4, epochs=1).fit(log).save(tmp_path / "transcf")
    arrays = load_file(folder / "model.safetensors")
    arrays["item_vectors"] = arrays["item_vectors"][:, :3].copy()
    save_file(arrays, folder / "model.safetensors")
    rewrite(folder, lambda about: None)
    with pytest.raises(ModelFileError, match="item_vectors should be"):
        transcf.load(folder)
    wild = {"indptr": np.arange(26), "indices": np.full(25, 999, np.int32),
            "weights": np.ones(25, np.float32)}  # fmt: skip
    folder = ItemKNN().fit(log).save(tmp_path / "itemknn")
    save_file(wild, folder / "model.safetensors")
    rewrite(folder, lambda about: None)
    with pytest.raises(ModelFileError, match="arrays of a ItemKNN"):
        transcf.load(folder)


def test_a_model_is_replaced_and_other_things_are_not(
    folder: Path, log: Interactions, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match="holds a model already"):
        Popularity().fit(log).save(folder)
    Popularity().fit(log).save(folder, overwrite=True)
    assert isinstance(transcf.load(folder), Popularity)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert isinstance(transcf.load(Popularity().fit(log).save(empty)), Popularity)
    (tmp_path / "file").write_text("dear diary")
    with pytest.raises(ModelFileError, match="not a folder"):
        Popularity().fit(log).save(tmp_path / "file")
    (folder / "notes.txt").write_text("dear diary")
    with pytest.raises(ModelFileError, match=r"other files \(such as notes.txt\)"):
        Popularity().fit(log).save(folder, overwrite=True)
    assert (folder / "notes.txt").exists()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_failed_save_leaves_the_old_model(
    folder: Path, log: Interactions, model: ItemKNN, can_exchange: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)

    def fail(*args: object) -> str:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(model_dir, "model_card", fail)
        with pytest.raises(OSError, match="disk full"):
            Popularity().fit(log).save(folder, overwrite=True)
    assert answers(transcf.load(folder)) == answers(model)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    Popularity().fit(log).save(folder, overwrite=True)
    assert isinstance(transcf.load(folder), Popularity)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_large_files_are_hashed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_dir, "PIECE_BYTES", 1000)
    content = np.random.default_rng(0).bytes(2500)
    big = model_dir.checksums(np.frombuffer(content, np.uint8))
    assert big == [hashlib.sha256(content[n : n + 1000]).hexdigest() for n in (0, 1000, 2000)]
    assert model_dir.checksums(np.empty(0, np.uint8)) == [hashlib.sha256(b"").hexdigest()]


def test_the_model_card_may_be_edited(folder: Path, model: ItemKNN) -> None:
    (folder / "README.md").write_text("Our shop's model; ask Ann.")
    assert answers(transcf.load(folder)) == answers(model)


def test_load_of_a_class_insists_on_it(folder: Path) -> None:
    assert isinstance(ItemKNN.load(folder), ItemKNN)
    with pytest.raises(ParameterError, match="holds a ItemKNN, not a EASE"):
        EASE.load(folder)


def test_loaded_arrays_are_views_of_the_file(
    folder: Path, log: Interactions, tmp_path: Path
) -> None:
    loaded = EASE.load(EASE().fit(log).save(tmp_path / "ease"))
    assert not loaded.weights_.flags.owndata
    assert not loaded.weights_.flags.writeable


def test_a_class_that_could_not_be_loaded_is_not_saved(log: Interactions, tmp_path: Path) -> None:
    class Homemade(Popularity):
        pass

    with pytest.raises(ParameterError, match="no registered class 'Homemade'"):
        Homemade().fit(log).save(tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_numbers_of_numpy_are_saved_as_plain_ones(log: Interactions, tmp_path: Path) -> None:
    params = {"n_neighbors": np.int64(7), "shrinkage": np.float32(0.5)}
    loaded = transcf.load(ItemKNN(**params).fit(log).save(tmp_path / "model"))
    assert {name: loaded.get_params()[name] for name in params} == {
        "n_neighbors": 7, "shrinkage": 0.5,
    }  # fmt: skip


def test_a_tilde_is_the_home_folder(
    model: ItemKNN, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert model.save("~/models/x") == tmp_path / "home" / "models" / "x"
    assert answers(transcf.load("~/models/x")) == answers(model)
    assert answers(ItemKNN.load("~/models/x")) == answers(model)
    model.recommend_all("~/lists.csv", 3)
    assert FitOptions(checkpoint=Path("~/kept")).checkpoint == tmp_path / "home" / "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with pytest.raises(ParameterError, match="cannot be used as a path"):
        model.save("~no-such-user/model")


@pytest.mark.parametrize("odd", [5, None, 1.5, b"model", ["model"]])
def test_what_is_no_path_is_refused(model: ItemKNN, odd: object) -> None:
    for use in (transcf.load, ItemKNN.load, model.save, model.recommend_all):
        with pytest.raises(ParameterError, match="is not a path"):
            use(odd)  # type: ignore[arg-type]


def test_names_that_are_too_long_are_refused(model: ItemKNN, tmp_path: Path) -> None:
    assert answers(transcf.load(model.save(tmp_path / ("x" * 250)))) == answers(model)
    for name in ("x" * 300, "x" * 5000, "x/" * 3000):
        with pytest.raises((WriteError, ModelFileError), match="too long"):
            model.save(tmp_path / name)
        with pytest.raises(ModelFileError, match="too long"):
            transcf.load(tmp_path / name)
    with pytest.raises(WriteError, match="NUL"):
        model.save(tmp_path / "a\0b")
