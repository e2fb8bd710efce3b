"""Blend: the formula by hand, weights by brute force, files, and models that were fitted before."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import transcf
from transcf import (
    BPR,
    EASE,
    Blend,
    ItemKNN,
    TransCFMixture,
    Validation,
    evaluate,
    leave_one_out,
    synthesize,
)
from transcf.data.split import Split
from transcf.errors import (
    DataError,
    DivergenceError,
    EvaluationError,
    NotFittedError,
    ParameterError,
    UnsupportedError,
)
from transcf.experiments.run import fit_for_use
from transcf.models.base import Recommender
from transcf.models.blend import Blended, Part, read_parts
from transcf.models.registry import available, create, name_and_params
from transcf.models.training import Epoch, FitOptions
from transcf.retrieval.scorer import Scorer
from transcf.retrieval.sums import CachedScorer, search_weights

PARTS = "itemknn + bpr(dim=8, learning_rate=0.2, epochs=4, validate_every=1)"
LINEAR = "bpr(dim=8, epochs=2) + ials(dim=4, epochs=2)"


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=150, items=60, interactions=2500, seed=3))


@pytest.fixture(scope="module")
def fitted(split: Split) -> list[Recommender]:
    return [
        ItemKNN(n_neighbors=20).fit(split.train),
        BPR(dim=8, learning_rate=0.2, epochs=6).fit(split.train, split.validation),
    ]


def everybody(model: Recommender) -> np.ndarray:
    return np.arange(len(model.users_), dtype=np.int32)


def all_scores(model: Recommender) -> np.ndarray:
    return model.scores(everybody(model))


def by_hand(models: list[Recommender], weights: list[float]) -> np.ndarray:
    """The formula in float64; spreads of all users, who are fewer than a sample has."""
    total = np.zeros((len(models[0].users_), len(models[0].items_)))
    for model, weight in zip(models, weights, strict=True):
        block = all_scores(model).astype(np.float64)
        total += weight * block / block[:, model.rankable].std(axis=1).mean()
    return total


def with_weights(models: list[Recommender], weights: list[float]) -> Blend:
    """A blend with weights of somebody's own."""
    blend = Blend.of(models)
    old = blend.learned_
    assert isinstance(old, Blended)
    blend.learned_ = Blended(
        old.known, old.name, old.parts, np.array(weights), old.spreads, old.best_epochs
    )
    return blend


# -- scores and weights ------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
def test_the_score_is_the_formula(fitted: list[Recommender], weights: list[float]) -> None:
    model, expected = with_weights(fitted, weights), by_hand(fitted, weights)
    np.testing.assert_allclose(all_scores(model), expected, atol=2e-5)
    users, items = (rows.ravel().astype(np.int32) for rows in np.indices(expected.shape))
    np.testing.assert_allclose(model.scores(users, items), expected.ravel(), atol=2e-5)


@pytest.mark.parametrize("alone", [0, 1])
def test_a_part_with_all_the_weight_ranks_as_it_does_alone(
    fitted: list[Recommender], alone: int
) -> None:
    weights = [0.0, 0.0]
    weights[alone] = 1.0
    model, part = with_weights(fitted, weights), fitted[alone]
    listed = ["user_id", "item_id", "rank"]
    assert model.recommend(k=5).select(listed).equals(part.recommend(k=5).select(listed))
    history = model.items_.ids(model.histories_[3]).to_list()
    ids = part.recommend_for(history, k=5)["item_id"]
    assert model.recommend_for(history, k=5)["item_id"].equals(ids)
    item = history[0]
    assert model.similar_items(item).equals(part.similar_items(item))


def test_a_mixture_inside_keeps_what_scores_many(split: Split) -> None:
    """Whatever the other part is: inner products, or whole blocks."""
    mixture = TransCFMixture(dim=6, epochs=2).fit(split.train)
    for other in (BPR(dim=4, epochs=2), EASE()):
        model = with_weights([mixture, other.fit(split.train)], [0.6, 0.4])
        rows = everybody(model)
        assert model._block_users() is not None
        seen, allowed = model.seen_, model.rankable
        items, scores = model.top_k(rows, 8, seen=seen)
        expected = all_scores(model).copy()
        expected[:, ~allowed] = -np.inf
        expected[seen.entry_rows, seen.indices] = -np.inf
        best = -np.sort(-expected, axis=1)[:, :8]
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)
        taken = np.take_along_axis(expected, items, axis=1)
        np.testing.assert_allclose(taken, best, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("protocol", ["leave-last-out", "paper"])
def test_no_weights_of_the_grid_are_better(
    fitted: list[Recommender], split: Split, protocol: str
) -> None:
    if protocol == "paper":
        split = transcf.draw_candidates(split, n=30)
    judge = Validation.of(split, protocol)
    model = Blend.of(fitted, judge)
    figures = {}
    for step in range(21):
        trial = with_weights(fitted, [step / 20, 1 - step / 20])
        judged = evaluate(trial, split, protocol, subset="validation")
        figures[step] = judged.metrics[judge.metric].mean
    assert len(set(figures.values())) > 5
    chosen = round(float(model.weights_[0]) * 20)
    assert model.weights_[0] == pytest.approx(chosen / 20)
    assert figures[chosen] == max(figures.values())
    assert model.report_["validation"][judge.metric] == pytest.approx(figures[chosen])


def test_a_search_among_three_comes_near_to_brute_force() -> None:
    goal = np.array([0.15, 0.6, 0.25])
    asked: list[tuple[float, ...]] = []

    def figure(weights: np.ndarray) -> float:
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1)
        asked.append(tuple(weights.tolist()))
        return -float(((weights - goal) ** 2).sum())

    weights, best = search_weights(figure, 3)
    assert len(set(asked)) == len(asked), "nothing is judged twice"
    assert best == max(figure(np.array(weights)) for weights in list(asked))
    grid = [np.array([a, b, 20 - a - b]) / 20 for a, b in product(range(21), repeat=2)]
    every = max(figure(point) for point in grid if point.min() >= 0)
    assert best == pytest.approx(every, abs=0.05**2)
    np.testing.assert_allclose(weights, goal, atol=0.05)


def test_equal_figures_leave_weights_equal() -> None:
    weights, _ = search_weights(lambda weights: 1.0, 4)
    assert weights.tolist() == [0.25] * 4


def test_parts_are_scored_once_as_long_as_there_is_room(fitted: list[Recommender]) -> None:
    class Counted(Scorer):
        name, rankable, calls = "counted", np.ones(60, bool), 0

        def _score_block(self, users: np.ndarray) -> np.ndarray:
            self.calls += 1
            return fitted[0].scores(users)

    users, size = np.arange(5, dtype=np.int32), 5 * 60 * 4
    for room, calls in ((size, 1), (size - 1, 3)):
        counted = Counted()
        kept = CachedScorer(counted, room)
        for _ in range(3):
            np.testing.assert_array_equal(kept.scores(users), fitted[0].scores(users))
        assert counted.calls == calls


def test_a_blend_of_inner_products_is_one(split: Split) -> None:
    model = Blend(parts=LINEAR).fit(split.train)
    form = model.linear_form()
    assert form is not None
    assert form.item_vectors.shape[1] == sum(
        part.linear_form().item_vectors.shape[1] for part in model.parts_
    )
    parts = [create("bpr", dim=8, epochs=2), create("ials", dim=4, epochs=2)]
    expected = by_hand([part.fit(split.train) for part in parts], [0.5, 0.5])
    product_of = form.user_vectors.astype(np.float64) @ form.item_vectors.T
    product_of += form.user_constants[:, None]
    np.testing.assert_allclose(product_of, expected, atol=2e-5)
    np.testing.assert_allclose(all_scores(model), expected, atol=2e-5)
    user = model.users_.series[0]
    row = np.where(np.isin(np.arange(60), model.seen_.row(0)), -np.inf, expected[0])
    best = model.items_.ids(np.argsort(-row, kind="stable")[:5])
    assert model.recommend(user, k=5)["item_id"].to_list() == best.to_list()


def test_a_part_that_finds_all_items_equal_does_no_harm(split: Split) -> None:
    model = Blend(parts="popularity + itemknn").fit(split.train.select(split.train.user_rows < 1))
    assert model.spreads_[0] == 0
    assert np.isfinite(all_scores(model)).all()


# -- fitting -----------------------------------------------------------------------------------


def test_fit_is_fitting_the_parts_and_blending_them(split: Split) -> None:
    model = Blend(parts=PARTS).fit(split.train, split.validation)
    parts = [part.make(0).fit(split.train, split.validation) for part in read_parts(PARTS)]
    again = Blend.of(parts, split.validation)
    assert all_scores(again).tobytes() == all_scores(model).tobytes()
    weights = (list(one.report_["weights"].values()) for one in (again, model))
    assert next(weights) == next(weights)
    (epoch,) = model.report_["best_epochs"].values()
    assert epoch == parts[1].best_epoch_
    assert list(model.report_["weights"]) == [str(part) for part in read_parts(PARTS)]


def test_without_validation_all_have_the_same_to_say(split: Split) -> None:
    model = Blend(parts=f"{PARTS} + popularity").fit(split.train)
    np.testing.assert_allclose(model.weights_, 1 / 3)
    assert "validation" not in model.report_


def test_refit_keeps_weights_and_epochs(split: Split, tmp_path: Path) -> None:
    parts = PARTS.replace("itemknn", "itemknn(trend=0)").replace("dim=8", "dim=8, trend=0")
    model = Blend(parts=parts).fit(split.train, split.validation)
    weights, (epoch,) = model.weights_.copy(), model.report_["best_epochs"].values()
    loaded = transcf.load(model.save(tmp_path / "model"))
    kept: dict[int, np.ndarray] = {}
    options = FitOptions(on_epoch=lambda e: kept.update({e.number: e.snapshot.arrays()}))
    model.refit(split.before_test, options)
    assert max(kept) == epoch
    np.testing.assert_array_equal(model.weights_, weights)
    fresh = [
        part.make(0).fit(split.train, split.validation).refit(split.before_test)
        for part in read_parts(parts)
    ]
    np.testing.assert_allclose(all_scores(model), by_hand(fresh, weights.tolist()), atol=2e-5)
    assert model.report_["interactions"] == len(split.train) + len(split.validation)
    assert all_scores(loaded.refit(split.before_test)).tobytes() == all_scores(model).tobytes()
    before = all_scores(model)
    with pytest.raises(ParameterError, match=r"not those that weights were chosen for.*use fit"):
        model.set_params(parts="ease + itemknn").refit(split.before_test)
    assert all_scores(model).tobytes() == before.tobytes()


def test_a_model_for_use_has_weights_that_were_chosen(split: Split) -> None:
    model, log = Blend(parts=PARTS), split.before_test
    done = fit_for_use(model, log, split, Validation.of(split))
    assert "after weights were chosen on held-out ones" in done
    chosen = Blend(parts=PARTS).fit(split.train, Validation.of(split))
    np.testing.assert_array_equal(model.weights_, chosen.weights_)
    assert model.report_["interactions"] == len(log)


def test_a_seed_is_for_all_parts_without_one(split: Split) -> None:
    text = "bpr(dim=4, epochs=1) + bpr(dim=4, epochs=1, random_state=5)"
    model = Blend(parts=text, random_state=3).fit(split.train)
    for part, seed in zip(model.parts_, (3, 5), strict=True):
        alone = BPR(dim=4, epochs=1, random_state=seed).fit(split.train)
        assert part.arrays()["item_vectors"].tobytes() == alone.item_vectors_.tobytes()


def test_threads_do_not_show_in_weights(split: Split) -> None:
    one, three = (
        Blend(parts=LINEAR).fit(split.train, split.validation, FitOptions(threads=threads))
        for threads in (1, 3)
    )
    for name, array in one.learned_.arrays().items():
        assert array.tobytes() == three.learned_.arrays()[name].tobytes()


class KilledError(Exception):
    """Stands for whatever ends a run in the middle."""


def test_a_killed_run_resumes_with_the_same_bits(split: Split, tmp_path: Path) -> None:
    text = "bpr(dim=8, epochs=3) + ials(dim=4, epochs=4)"
    whole = Blend(parts=text).fit(split.train, split.validation)
    epochs: list[int] = []

    def die(epoch: Epoch) -> None:
        epochs.append(epoch.number)
        if len(epochs) == 5:  # the second one of the second part
            raise KilledError

    broken = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0, on_epoch=die)
    with pytest.raises(KilledError):
        Blend(parts=text).fit(split.train, split.validation, broken)
    assert {path.name for path in tmp_path.iterdir()} == {"1-bpr", "2-ials"}
    later: list[int] = []
    going_on = FitOptions(
        checkpoint=tmp_path, resume=True, on_epoch=lambda epoch: later.append(epoch.number)
    )
    resumed = Blend(parts=text).fit(split.train, split.validation, going_on)
    assert later == [2, 3, 4], "only what is missing"
    assert all_scores(resumed).tobytes() == all_scores(whole).tobytes()


def test_an_interruption_is_passed_on_and_resumed(split: Split, tmp_path: Path) -> None:
    model = Blend(parts=LINEAR)
    options = FitOptions(tmp_path, on_epoch=lambda epoch: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        model.fit(split.train, options=options)
    assert not model.is_fitted, "a part alone is no blend"
    model.fit(split.train, options=FitOptions(tmp_path, resume=True))
    assert all_scores(model).tobytes() == all_scores(Blend(parts=LINEAR).fit(split.train)).tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_part_that_diverges_leaves_the_blend_as_it_was(split: Split) -> None:
    model = Blend(parts="itemknn + popularity").fit(split.train)
    before = all_scores(model)
    model.set_params(parts="itemknn + transcf-mixture(dim=4, epochs=3, learning_rate=1e30)")
    with pytest.raises(DivergenceError, match="Part 2 of the blend: TransCF-mixture diverged"):
        model.fit(split.train)
    assert all_scores(model).tobytes() == before.tobytes()


# -- models that are fitted already ------------------------------------------------------------


def test_models_fitted_before_are_saved_and_served_as_one(
    fitted: list[Recommender], split: Split, tmp_path: Path
) -> None:
    odd = [
        *fitted,
        create("transcf-dot", dim=4, epochs=1, trend=0.5, random_state=3).fit(split.train),
        create("random", random_state=9).fit(split.train),
        EASE(regularization=np.float32(7.5)).fit(split.train),
    ]
    model = Blend.of(odd, split.validation)
    assert "transcf-dot(" in model.parts
    assert "ease(regularization=7.5)" in model.parts
    assert "random(random_state=9)" in model.parts
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, Blend)
    assert all_scores(loaded).tobytes() == all_scores(model).tobytes()
    assert loaded.recommend(k=5).equals(model.recommend(k=5))
    assert loaded.report_ == model.report_
    history = model.items_.series[:4]
    assert loaded.recommend_for(history).equals(model.recommend_for(history))
    blended_again = loaded.refit(split.before_test)
    np.testing.assert_array_equal(blended_again.weights_, model.weights_)


def test_set_params_of_a_model_after_its_fit_does_not_count(split: Split, tmp_path: Path) -> None:
    part = create("ials", dim=4, epochs=1).fit(split.train).set_params(dim=64)
    model = Blend.of([part, ItemKNN().fit(split.train)])
    assert "dim=4, epochs=1)" in model.parts
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert all_scores(loaded).tobytes() == all_scores(model).tobytes()


def test_what_cannot_be_blended_is_said(fitted: list[Recommender], split: Split) -> None:
    stranger = leave_one_out(synthesize(users=40, items=60, interactions=500, seed=3))
    later = ItemKNN().fit(split.before_test)
    for models, kind, message in (
        ([*fitted, ItemKNN().fit(stranger.train)], DataError, "different users or items"),
        ([fitted[1], later], DataError, "different interactions"),
        ([fitted[1], ItemKNN()], NotFittedError, "call fit first"),
        ([fitted[1], "ease"], ParameterError, "'ease' is no model"),
        (fitted[:1], ParameterError, "alone is no blend"),
        ([fitted[0], fitted[0]], ParameterError, "there twice"),
        ([fitted[0], Blend.of(fitted)], ParameterError, "cannot be part of a blend"),
        ([], ParameterError, "parts=''"),
    ):
        with pytest.raises(kind, match=message):
            Blend.of(models)
    with pytest.raises(EvaluationError, match="other users or items"):
        Blend.of(fitted, stranger.validation)


class Homemade(EASE):
    """A class of somebody's own."""


def test_classes_of_somebodys_own_cannot_be_parts(fitted: list[Recommender], split: Split) -> None:
    with pytest.raises(ParameterError, match="no registered class 'Homemade'"):
        Blend.of([fitted[0], Homemade().fit(split.train)])


# -- the text ----------------------------------------------------------------------------------


def test_every_model_with_any_parameters_is_written_and_read_again() -> None:
    for name in available():
        if name == "blend":
            continue
        seed = {"random_state": 4} if "random_state" in create(name)._rules() else {}
        for params in ({}, seed):
            part = Part(*name_and_params(create(name, **params)))
            assert part.name == name
            other = Part("popularity" if name != "popularity" else "ease", {})
            assert read_parts(f"{part} + {other}") == (part, other)
            assert part.make(0).get_params() == create(name, **params).get_params()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing follows"),
        ("ease", "ease alone is no blend"),
        ("ease +", "nothing follows"),
        ("ease ++ bpr", "from '\\+ bpr' on it is not understood"),
        ("ease + bpr)", "not understood"),
        ("ease + bpr(dim=(8))", "not understood"),
        ("ease + oracle", "no model 'oracle'"),
        ("ease + bpr(8)", "'\\(8\\)' after bpr is not understood"),
        ("ease + bpr(dim=dim)", "after bpr is not understood"),
        ("ease + bpr(dim=8, dim=9)", "after bpr is not understood"),
        ("ease + bpr(**{'dim': 8})", "after bpr is not understood"),
        ("ease + bpr(dim=0)", "BPR: dim=0 is not allowed"),
        ("ease + bpr(colour='red')", "no parameter 'colour'"),
        ("ease + EASE", "ease is there twice"),
        ("ease + blend", "cannot be part of a blend"),
        ("ease + bpr(dim=open('x'))", "not understood"),
        ("ease + bpr(" + "dim=[" * 500 + ")", "not understood"),
    ],
)
def test_bad_text_is_told_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=rf"Blend: parts=.* must be models.*\(.*{message}"):
        Blend(parts=text)._check_params()


def test_similar_things_need_a_part_that_has_some(split: Split) -> None:
    model = Blend(parts="popularity + random").fit(split.train)
    with pytest.raises(UnsupportedError, match="blend has neither vectors nor weights"):
        model.similar_items(model.items_.series[0])
    with pytest.raises(UnsupportedError, match="blend places newcomers without any training"):
        model.recommend_for([model.items_.series[0]], steps=3)


def test_steps_train_newcomers_in_the_parts_that_can(split: Split) -> None:
    model = Blend(parts="itemknn + transcf(dim=8, epochs=3)").fit(split.train)
    history = model.items_.series[:4]
    plain, trained = model.recommend_for(history), model.recommend_for(history, steps=5)
    assert plain["score"].to_list() != trained["score"].to_list()
    said = model.explain_for(history, model.items_.series[9])
    assert "What each part adds to the score: itemknn" in str(said)
    assert sum(said.details["parts"].values()) == pytest.approx(said.score, abs=1e-5)


def test_a_loaded_blend_of_default_parts_places_new_users(split: Split, tmp_path: Path) -> None:
    model = Blend(parts="ials(dim=4, epochs=1) + eals(dim=4, epochs=1)").fit(split.train)
    history = split.train.items.series[:3].to_list()
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert loaded.recommend_for(history, k=5).equals(model.recommend_for(history, k=5))
