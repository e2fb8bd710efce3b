"""The approximate index against brute force in float64."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from transcf.data.csr import Csr
from transcf.errors import EvaluationError, ModelFileError, ParameterError
from transcf.retrieval import index as module
from transcf.retrieval.index import ItemIndex
from transcf.retrieval.scorer import LinearForm, StoredForm

pytest.importorskip("faiss", reason="faiss is not installed")

N_USERS, N_ITEMS, WIDTH = 200, 12_000, 21


def clustered(n_users: int, n_items: int, seed: int = 0) -> LinearForm:
    """Items around 150 centres with a bias, users near one of them."""
    random = np.random.default_rng(seed)

    def noise(n: int) -> Any:
        return random.standard_normal((n, WIDTH), dtype=np.float32)

    centres = noise(150)
    items = centres[random.integers(0, 150, n_items)] + 0.5 * noise(n_items)
    users = centres[random.integers(0, 150, n_users)] + 0.5 * noise(n_users)
    items[:, 0], users[:, 0] = 2 * random.standard_normal(n_items), 1.0
    return StoredForm(users, items, random.standard_normal(n_users).astype(np.float32))


def csr(rows: list[Any], n_items: int) -> Csr:
    columns = [np.unique(row).astype(np.int32) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
    return Csr(indptr, np.concatenate([*columns, np.empty(0, np.int32)]), n_items)


def brute_force(form: LinearForm, k: int, seen: Csr | None = None, allowed: Any = None) -> Any:
    scores = form.user_vectors.astype(np.float64) @ form.item_vectors.T.astype(np.float64)
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    if seen is not None:
        scores[seen.entry_rows, seen.indices] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def recall(found: Any, truth: Any) -> float:
    return (
        float(np.mean([len(np.intersect1d(*pair)) for pair in zip(found, truth, strict=True)]))
        / (truth.shape[1])
    )


@pytest.fixture(scope="module")
def form() -> LinearForm:
    return clustered(N_USERS, N_ITEMS)


@pytest.fixture(scope="module")
def built(form: LinearForm) -> ItemIndex:
    return ItemIndex.build(form)


def ask(index: ItemIndex, form: LinearForm, k: int, seen: Csr | None = None) -> Any:
    return index.search(form.user_vectors, k, constants=form.user_constants, seen=seen)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_finds_most_of_the_best_items(form: LinearForm, built: ItemIndex, k: int) -> None:
    assert built.lists is not None
    assert max(built.probes) < built.lists.nlist
    found = ask(built, form, k)
    assert found.exact == 0
    assert recall(found.items, brute_force(form, k)) >= 0.93


def test_users_who_took_no_part_in_the_building_are_served_as_well(form: LinearForm) -> None:
    half = N_USERS // 2
    first, second = (
        StoredForm(form.user_vectors[part], form.item_vectors, form.user_constants[part])
        for part in (slice(half), slice(half, None))
    )
    found = ask(ItemIndex.build(first), second, 10)
    assert recall(found.items, brute_force(second, 10)) >= 0.93


def test_scores_and_order_are_those_of_the_exact_engine(form: LinearForm, built: ItemIndex) -> None:
    found = ask(built, form, 20)
    users = np.repeat(np.arange(N_USERS, dtype=np.int32), 20)
    true_scores = form.scores(users, found.items.ravel()).reshape(N_USERS, 20)
    np.testing.assert_array_equal(found.scores, true_scores)
    order = np.lexsort((found.items, -true_scores), axis=-1)
    np.testing.assert_array_equal(order, np.broadcast_to(np.arange(20), order.shape))


def test_without_constants_scores_are_inner_products(form: LinearForm, built: ItemIndex) -> None:
    found = built.search(form.user_vectors[:5], 3)
    product = form.user_vectors[:5] @ form.item_vectors.T
    np.testing.assert_allclose(found.scores, np.take_along_axis(product, found.items, 1), rtol=1e-5)


def test_equal_items_come_in_the_order_of_rows() -> None:
    form = clustered(50, N_ITEMS // 2)
    twice = np.repeat(form.item_vectors, 2, axis=0)
    form = StoredForm(form.user_vectors, twice, form.user_constants)
    found = ask(ItemIndex.build(form), form, 20).items
    np.testing.assert_array_equal(found[:, 0::2] + 1, found[:, 1::2])
    assert (found[:, 0::2] % 2 == 0).all()


def test_seen_items_are_left_out_and_lists_stay_full(form: LinearForm, built: ItemIndex) -> None:
    best = brute_force(form, 600)
    seen = csr([best[n, : 3 * n] for n in range(N_USERS)], N_ITEMS)
    found = ask(built, form, 10, seen)
    for user in range(N_USERS):
        assert not np.isin(found.items[user], seen.row(user)).any()
    assert (found.items >= 0).all()
    assert recall(found.items, brute_force(form, 10, seen)) >= 0.9


@pytest.mark.parametrize("left", [0, 1, 9, 10, 40])
def test_users_who_have_seen_nearly_everything(
    form: LinearForm, built: ItemIndex, left: int
) -> None:
    random = np.random.default_rng(left)
    rows = [random.permutation(N_ITEMS)[left:] for _ in range(5)]
    seen = csr(rows, N_ITEMS)
    some = StoredForm(form.user_vectors[:5], form.item_vectors, form.user_constants[:5])
    found = ask(built, some, 10, seen)
    truth = brute_force(some, min(10, left), seen)
    np.testing.assert_array_equal(found.items[:, : truth.shape[1]], truth)
    assert (found.items[:, truth.shape[1] :] == -1).all()
    assert np.isnan(found.scores[:, truth.shape[1] :]).all()


def test_the_exact_engine_steps_in_and_is_counted(form: LinearForm, built: ItemIndex) -> None:
    hasty = replace(built, probes=(1, 1, 1))
    # The last user has only the five worst items left, far from all lists that are looked at.
    worst = brute_force(form, N_ITEMS)[-1, -5:]
    rows = [np.empty(0, int)] * (N_USERS - 1) + [np.setdiff1d(np.arange(N_ITEMS), worst)]
    seen = csr(rows, N_ITEMS)
    found = ask(hasty, form, 10, seen)
    assert found.exact == 1
    assert found.items[-1].tolist() == [*worst, *[-1] * 5]


def test_only_allowed_items_are_found(form: LinearForm) -> None:
    allowed = np.random.default_rng(2).random(N_ITEMS) < 0.9
    index = ItemIndex.build(form, allowed)
    assert index.lists is not None
    found = ask(index, form, 10).items
    assert allowed[found].all()
    assert recall(found, brute_force(form, 10, allowed=allowed)) >= 0.93


def test_small_catalogues_are_answered_exactly() -> None:
    form = clustered(40, 300)
    seen = csr([np.arange(n) for n in range(40)], 300)
    allowed = np.arange(300) % 3 > 0
    found = ask(ItemIndex.build(form, allowed), form, 10, seen)
    assert found.exact == 40
    np.testing.assert_array_equal(found.items, brute_force(form, 10, seen, allowed))


@given(seed=st.integers(0, 10**6), k=st.integers(0, 400), share=st.floats(0, 1))
@settings(max_examples=25)
def test_never_a_seen_or_invented_item_and_never_too_few(seed: int, k: int, share: float) -> None:
    form, random = clustered(6, 300, seed % 7), np.random.default_rng(seed)
    allowed = random.random(300) < 0.8
    seen = csr([np.flatnonzero(random.random(300) < share) for _ in range(6)], 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALLEST", 50)
        found = ask(ItemIndex.build(form, allowed), form, k, seen)
    for user in range(6):
        choice = np.setdiff1d(np.flatnonzero(allowed), seen.row(user))
        listed = found.items[user][found.items[user] >= 0]
        assert len(listed) == len(np.unique(listed)) == min(k, len(choice))
        assert np.isin(listed, choice).all()
        assert (found.items[user, len(listed) :] == -1).all()


def test_empty_requests(form: LinearForm, built: ItemIndex) -> None:
    assert built.search(form.user_vectors[:0], 10).items.shape == (0, 10)
    assert built.search(form.user_vectors[:3], 0).items.shape == (3, 0)
    nothing = ItemIndex.build(form, np.zeros(N_ITEMS, dtype=bool))
    assert (nothing.search(form.user_vectors[:3], 2).items == -1).all()


def test_what_cannot_be_built_or_asked(form: LinearForm, built: ItemIndex) -> None:
    with pytest.raises(ParameterError, match=r"recall=0 is not allowed"):
        ItemIndex.build(form, recall=0)
    spoiled = form.item_vectors.copy()
    spoiled[4, 1] = np.inf
    with pytest.raises(EvaluationError, match="NaN or infinite"):
        ItemIndex.build(StoredForm(form.user_vectors, spoiled, form.user_constants))
    with pytest.raises(ParameterError, match=r"seen has 1 row for 3 users"):
        built.search(form.user_vectors[:3], 2, seen=csr([[1]], N_ITEMS))
    with pytest.raises(ParameterError, match=r"20 wide"):
        built.search(form.user_vectors[:3, 1:], 2)
    with pytest.raises(EvaluationError, match="NaN or infinite"):
        built.search(np.full((1, WIDTH), np.nan, dtype=np.float32), 2)


# -- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(built: ItemIndex, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built.save(tmp_path_factory.mktemp("index") / "deep" / "items.index")


def test_a_loaded_index_answers_the_same(form: LinearForm, built: ItemIndex, saved: Path) -> None:
    again = ItemIndex.load(saved)
    assert (again.recall, again.probes) == (built.recall, built.probes)
    one, other = ask(built, form, 10), ask(again, form, 10)
    np.testing.assert_array_equal(one.items, other.items)
    np.testing.assert_array_equal(one.scores, other.scores)
    assert [path.name for path in saved.parent.iterdir()] == ["items.index"]


def test_small_indexes_are_saved_too(tmp_path: Path) -> None:
    form = clustered(10, 60)
    path = ItemIndex.build(form).save(tmp_path / "small")
    np.testing.assert_array_equal(ask(ItemIndex.load(path), form, 5).items, brute_force(form, 5))


def test_damage_never_becomes_an_answer(saved: Path, tmp_path: Path) -> None:
    content, random = saved.read_bytes(), np.random.default_rng(0)
    damaged = tmp_path / "damaged"
    places = [*range(0, 400, 7), *random.integers(0, len(content), 60)]
    for place in places:
        spoiled = bytearray(content)
        spoiled[place] ^= 1 << random.integers(8)
        damaged.write_bytes(spoiled)
        with pytest.raises(ModelFileError, match=r"damaged|of version"):
            ItemIndex.load(damaged)
    for length in (0, 5, 300, len(content) // 2, len(content) - 1):
        damaged.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="is damaged"):
            ItemIndex.load(damaged)


def test_files_of_others(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="There is no index file"):
        ItemIndex.load(tmp_path / "none")
    with pytest.raises(ModelFileError, match="There is no index file"):
        ItemIndex.load(tmp_path)
    save_file({"x": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(ModelFileError, match="not an index"):
        ItemIndex.load(tmp_path / "foreign")
    with safe_open(saved, framework="numpy") as stored:
        about = json.loads(stored.metadata()["about"])
    about["version"] = 3
    save_file(load_file(saved), tmp_path / "new", metadata={"about": json.dumps(about)})
    with pytest.raises(ModelFileError, match="of version 3"):
        ItemIndex.load(tmp_path / "new")


def test_a_failed_write_leaves_the_old_file(
    built: ItemIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "items"
    path.write_text("old")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr("transcf.io.tensors.save_file", broken)
    with pytest.raises(OSError, match="no room"):
        built.save(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["items"]
