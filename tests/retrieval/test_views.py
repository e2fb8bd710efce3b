"""Scorers made from parts: the lazy form, guests, neighbours."""

from __future__ import annotations

import numpy as np

from transcf.retrieval.scorer import BlockView, FormView, LinearForm, StoredForm, nearest


def random_form(seed: int) -> LinearForm:
    rng = np.random.default_rng(seed)
    return StoredForm(
        rng.standard_normal((20, 6), dtype=np.float32),
        rng.standard_normal((30, 6), dtype=np.float32),
        rng.standard_normal(20, dtype=np.float32),
    )


def test_a_lazy_form_is_the_same_form() -> None:
    form = random_form(0)
    made = []

    def make(users: object) -> tuple[np.ndarray, np.ndarray]:
        made.append(users)
        return form.user_vectors[users], form.user_constants[users]

    lazy = LinearForm(form.item_vectors, make)
    some = np.array([7, 3, 7], dtype=np.int32)
    everything = np.ones(30, dtype=bool)
    views = [FormView("form", everything, one) for one in (form, lazy)]
    lists = [view.top_k(some, 5) for view in views]
    assert all((one == other).all() for one, other in zip(*lists, strict=True))
    assert [len(users) for users in made] == [3], "only those who are asked for"
    items = np.array([1, 2, 1], dtype=np.int32)
    assert (lazy.scores(some, items) == form.scores(some, items)).all()
    assert (lazy.scores(some) == form.scores(some)).all()
    assert (lazy.user_vectors == form.user_vectors).all()
    assert (lazy.user_constants == form.user_constants).all()


def test_other_users_of_the_same_items() -> None:
    form, other = random_form(0), random_form(1)
    guests = form.for_users(other.user_vectors, other.user_constants)
    rows = np.arange(20, dtype=np.int32)
    expected = other.user_vectors @ form.item_vectors.T + other.user_constants[:, None]
    np.testing.assert_allclose(guests.scores(rows), expected, rtol=1e-5, atol=1e-5)
    assert guests.item_norms is form.item_norms


def test_nothing_is_its_own_neighbour_nor_a_neighbour_without_relation() -> None:
    weights = np.array([[9, 0, 2], [1, 9, 3], [0, 0, 9]], dtype=np.float32)
    everything, rows = np.ones(3, dtype=bool), np.arange(3, dtype=np.int32)
    sparse = BlockView("weights", everything, lambda some: weights[some], sparse=True)
    assert nearest(sparse, rows, 3)[0].tolist() == [[2, -1, -1], [2, 0, -1], [-1, -1, -1]]
    dense = BlockView("weights", everything, lambda some: weights[some])
    assert nearest(dense, rows, 2)[0].tolist() == [[2, 1], [2, 0], [0, 1]]
    assert dense.scores(rows, rows[::-1]).tolist() == [2.0, 9.0, 0.0]
