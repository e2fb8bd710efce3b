"""TransCF as a user meets it: bits that hold, runs that resume, ablations, divergence."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.models import transcf_exact
from tests.models.transcf_exact import ExactSolver

from transcf.data import leave_one_out, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DivergenceError, ModelFileError, ParameterError
from transcf.evaluation import evaluate
from transcf.models.event_weights import EventWeights, InteractionWeights
from transcf.models.registry import create, load, preset, presets
from transcf.models.training import Epoch, FitOptions
from transcf.models.transcf import TransCF
from transcf.models.transcf import model as transcf_model
from transcf.models.transcf.model import TransCFSolver
from transcf.models.triples import Problem

VARIANTS = ["translation", "dot", "alt", "none", "emb"]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=300, items=150, interactions=5000, seed=3)


def vectors_of(model: TransCF) -> tuple[np.ndarray, np.ndarray]:
    return model.user_vectors_, model.item_vectors_


def checksum(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("settings", [{}, {"variant": "dot"}, preset("TransCF", "paper")])
def test_the_saved_tensors_are_the_same_for_one_two_and_three_threads(
    tmp_path: Path, settings: dict
) -> None:
    log = synthesize(users=400, items=700, interactions=8000, seed=3)
    model = create("transcf", **(settings | {"dim": 24}))
    solver = TransCFSolver(Problem.of(log, EventWeights()), model.settings)
    assert solver._layout.n_groups >= 6
    sums = set()
    for threads in (1, 2, 3):
        model = create("transcf", **(settings | {"dim": 24, "epochs": 3}))
        model.fit(log, options=FitOptions(threads=threads))
        sums.add(checksum(model.save(tmp_path / str(threads))))
    assert len(sums) == 1
    other = create("transcf", **(settings | {"dim": 24, "epochs": 3, "random_state": 1}))
    assert checksum(other.fit(log).save(tmp_path / "other")) not in sums


SCRIPT = """
import sys
from pathlib import Path
from transcf.data import leave_one_out, synthesize
from transcf.models.transcf import TransCF
from transcf.models.training import FitOptions

split = leave_one_out(synthesize(users=300, items=150, interactions=5000, seed=3))
model = TransCF(dim=24, epochs=40, random_state=5)
options = FitOptions(checkpoint=Path(sys.argv[1]), resume=True, checkpoint_seconds=0.0)
model.fit(split.train, split.validation, options)
model.save(sys.argv[2])
"""


def test_a_run_killed_and_resumed_ends_with_the_same_bits(tmp_path: Path) -> None:
    split = leave_one_out(synthesize(users=300, items=150, interactions=5000, seed=3))
    whole = TransCF(dim=24, epochs=40, random_state=5).fit(split.train, split.validation)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(tmp_path / "resumed")]
    first = subprocess.Popen(command)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert checkpoint.exists()
    assert not (tmp_path / "resumed").exists()
    subprocess.run(command, check=True)
    assert checksum(tmp_path / "resumed") == checksum(whole.save(tmp_path / "whole"))


def test_resuming_with_other_settings_is_refused(log: Interactions, tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    TransCF(dim=8, epochs=2).fit(log, options=options)
    with pytest.raises(ModelFileError, match="other settings or data"):
        TransCF(dim=8, epochs=2, margin=0.5).fit(log, options=options)


def test_control_c_returns_the_best_model_so_far(log: Interactions) -> None:
    split = leave_one_out(log)

    def press(epoch: Epoch) -> None:
        if epoch.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    model = TransCF(dim=8, epochs=50)
    model.fit(split.train, split.validation, FitOptions(on_epoch=press))
    assert model.report_["ending"] == "interrupted"
    assert len(model.history_) == 3
    assert model.history_["metric"][model.best_epoch_ - 1] == model.history_["metric"].max()
    assert len(model.recommend(k=2)) > 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divergence_names_the_cure(log: Interactions) -> None:
    model = TransCF(dim=8, learning_rate=1e4, norm_constraint="none", epochs=5)
    with pytest.raises(DivergenceError, match="lower learning_rate"):
        model.fit(log)
    assert not model.is_fitted  # nothing finite was learned: no answers from random vectors


def test_later_divergence_keeps_the_finite_model_before_it(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = TransCF(dim=8, epochs=4).fit(log)
    whole_epoch = TransCFSolver.run_epoch

    def poisoned(solver: TransCFSolver, number: int) -> object:
        stats = whole_epoch(solver, number)
        if number == 3:
            solver.tensors()["item_vectors"][2, 1] = np.nan
        return stats

    monkeypatch.setattr(TransCFSolver, "run_epoch", poisoned)
    model = TransCF(dim=8, epochs=4)
    with pytest.raises(DivergenceError, match="epoch 3"):
        model.fit(log)
    assert np.isfinite(model.item_vectors_).all()
    assert len(model.recommend(k=3)) == len(sound.recommend(k=3))


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_the_formula_of_the_variant(log: Interactions, variant: str) -> None:
    model = TransCF(variant=variant, dim=12, epochs=3).fit(log)
    users, items = np.arange(0, 90, dtype=np.int32), np.arange(30, 120, dtype=np.int32)
    a, q = model.user_vectors_[users].astype(float), model.learned_.q[users].astype(float)
    b, n = model.item_vectors_[items].astype(float), model.learned_.n[items].astype(float)
    moved = {"alt": a + a * b, "none": a}.get(variant, a + q * n)
    expected = (moved * b).sum(1) if variant == "dot" else -((moved - b) ** 2).sum(1)
    expected += model.item_bias_[items]
    np.testing.assert_allclose(model.scores(users, items), expected, rtol=1e-4, atol=1e-5)
    block = model.scores(users)
    np.testing.assert_allclose(block[np.arange(90), items], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_translation_vectors_are_those_of_the_variant(log: Interactions, variant: str) -> None:
    model = TransCF(variant=variant, dim=12, epochs=2).fit(log)
    pairs = pl.DataFrame({"user_id": log.users.series[:5], "item_id": log.items.series[3:8]})
    rows = np.arange(5)
    a, b = model.user_vectors_[rows], model.item_vectors_[rows + 3]
    expected = {
        "emb": a - b,
        "alt": a * b,
        "none": np.zeros_like(a),
    }.get(variant, model.learned_.q[rows] * model.learned_.n[rows + 3])
    found = model.translation(pairs)
    np.testing.assert_array_equal(found["translation"].to_numpy(), expected)
    assert found["user_id"].to_list() == pairs["user_id"].to_list()


def test_neighbourhoods_are_the_means(log: Interactions) -> None:
    model = TransCF(dim=8, epochs=2).fit(log)
    for row in (0, 7, 100):
        mean = model.item_vectors_[log.by_user.row(row)].mean(axis=0)
        np.testing.assert_allclose(model.user_neighborhoods_[row], mean, rtol=1e-4, atol=1e-6)
        mean = model.user_vectors_[log.by_item.row(row)].mean(axis=0)
        np.testing.assert_allclose(model.item_neighborhoods_[row], mean, rtol=1e-4, atol=1e-6)


def test_items_without_training_interactions_are_never_ranked_or_scored(log: Interactions) -> None:
    split = leave_one_out(log)
    cold_row = int(split.train.item_rows[0])
    train = split.train.select(split.train.item_rows != cold_row)
    cold = train.items.series[cold_row]
    model = TransCF(dim=8, epochs=2).fit(train)
    assert cold not in model.recommend(k=len(train.items), exclude_seen=False)["item_id"]
    pair = pl.DataFrame({"user_id": [train.users.series[0]], "item_id": [cold]})
    assert model.score(pair)["score"].to_list() == [None]


BRIEFLY = {"dim": 16, "learning_rate": 0.02, "epochs": 12, "samples_per_user": 50}


def use_solver(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Train by the library's solver or by the plain one."""
    kind = {"fast": TransCFSolver, "exact": ExactSolver}[name]
    monkeypatch.setattr(transcf_model, "TransCFSolver", kind)


def test_the_exact_solver_learns_what_the_fast_one_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight seeds: the mean difference is none, and one of a sixth would show."""
    split = leave_one_out(synthesize(users=120, items=60, interactions=2500, seed=1))

    def figure(solver: str, seed: int) -> float:
        use_solver(monkeypatch, solver)
        model = TransCF.paper(random_state=seed, **BRIEFLY).fit(split.train)
        return evaluate(model, split).metrics["NDCG@10"].mean

    fast, slow = np.array([[figure(s, n) for n in range(8)] for s in ("fast", "exact")])
    chance = evaluate(create("random").fit(split.train), split).metrics["NDCG@10"].mean
    assert min(fast.mean(), slow.mean()) > 1.5 * chance
    difference = fast - slow
    four_errors = 4 * difference.std(ddof=1) / np.sqrt(len(difference))
    assert four_errors < slow.mean() / 6
    assert abs(difference.mean()) < four_errors, (fast.mean(), slow.mean(), four_errors)


def test_the_losses_of_both_solvers_fall_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small batches, since the fast solver takes a step after every triple."""
    monkeypatch.setattr(transcf_exact, "BATCH", 100)
    split = leave_one_out(synthesize(users=120, items=60, interactions=2500, seed=1))
    curves = {}
    for solver in ("fast", "exact"):
        use_solver(monkeypatch, solver)
        models = [TransCF.paper(random_state=seed, **BRIEFLY) for seed in range(2)]
        losses = [model.fit(split.train).history_["loss"].to_numpy() for model in models]
        curves[solver] = np.mean(losses, axis=0)
    assert curves["exact"][-1] < 0.6 * curves["exact"][0]
    np.testing.assert_allclose(curves["fast"], curves["exact"], rtol=0.1)


def test_bounds_keep_vectors_in_the_unit_ball(log: Interactions) -> None:
    for bound in ("norm", "squared"):
        model = TransCF(dim=8, epochs=4, norm_constraint=bound, learning_rate=0.2).fit(log)
        for vectors in vectors_of(model):
            assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("solver", ["fast", "exact"])
def test_high_rates_do_not_diverge(
    monkeypatch: pytest.MonkeyPatch, variant: str, solver: str
) -> None:
    """Long histories and many triples an epoch: vectors must not leave the ball for good."""
    use_solver(monkeypatch, solver)
    crowd = synthesize(users=150, items=300, interactions=9000, seed=3)
    model = TransCF.paper(
        variant=variant, dim=8, learning_rate=0.1, samples_per_user=300, epochs=2
    ).fit(crowd)
    assert np.isfinite(model.history_["loss"].to_numpy()).all()
    assert max(np.linalg.norm(v, axis=1).max() for v in vectors_of(model)) <= 1 + 1e-5


def test_recency_needs_times_and_prefers_the_latest(log: Interactions) -> None:
    weights = InteractionWeights.of(log, EventWeights(recency=3.0)).within_users
    row = 4
    own = slice(*log.by_user.indptr[row : row + 2])
    order = np.argsort(log.timestamps[own], kind="stable")
    sorted_weights = weights[own][order]
    assert (np.diff(sorted_weights) > 0).all()
    size = own.stop - own.start
    assert sorted_weights.sum() == pytest.approx(size)
    assert sorted_weights[0] / sorted_weights[-1] == pytest.approx(np.exp(3.0 * (1 / size - 1)))
    assert InteractionWeights.of(log, EventWeights(recency=0.0)).is_even


def test_presets_carry_settings_of_single_datasets(tmp_path: Path) -> None:
    assert list(presets()["TransCF"]) == ["paper"]
    general, own = preset("TransCF", "paper"), preset("TransCF", "paper", "delicious")
    assert general["learning_rate"] != own["learning_rate"]
    assert own["negatives"] == general["negatives"] == 1
    assert (
        TransCF.paper(dim=5).get_params()
        == create("transcf", **(general | {"dim": 5})).get_params()
    )
    with pytest.raises(ParameterError, match="no preset 'best'"):
        preset("TransCF", "best")


def test_a_saved_model_answers_the_same(log: Interactions, tmp_path: Path) -> None:
    model = TransCF(dim=8, epochs=2, variant="dot").fit(log)
    again = load(model.save(tmp_path / "model"))
    assert again.name == "TransCF-dot"
    assert again.recommend(k=5).equals(model.recommend(k=5))
