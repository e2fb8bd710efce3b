"""Workers that pass blocks on learn the same bits as one process; here they are threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf import Interactions, create, read_interactions, synthesize
from transcf.distributed.communicator import RayCommunicator, import_gloo, join_group
from transcf.distributed.training import is_of_users, shard_of, share_out
from transcf.errors import ParameterError, UnsupportedError
from transcf.kernels import Array
from transcf.models import eals, ials
from transcf.models.alternation import ALSProblem
from transcf.models.bpr import AdaptiveSolver, LogisticSolver
from transcf.models.cml import HingeSolver
from transcf.models.eals import EALSTraining
from transcf.models.event_weights import InteractionWeights
from transcf.models.families import LogSizes
from transcf.models.ials import IALSSettings, IALSTraining
from transcf.models.mixture.training import Events, MixtureTraining
from transcf.models.training import FitOptions
from transcf.models.transcf.model import TransCFSolver
from transcf.models.triples import Problem, StratumLayout
from transcf.parallel import use_threads

SOLVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "transcf": (TransCFSolver, {"recency": 2.0}),
    "transcf-dot": (TransCFSolver, {}),
    "bpr": (LogisticSolver, {"samples_per_user": 7}),
    "aobpr": (AdaptiveSolver, {}),
    "cml": (HingeSolver, {"recency": 2.0, "samples_per_user": 7}),
    "transcf-mixture": (
        MixtureTraining,
        {"recency": 2.0, "shared_negatives": 100, "batch_events": 500},
    ),
    "ials": (IALSTraining, {"recency": 2.0}),
    "eals": (EALSTraining, {}),
}
EPOCHS = range(1, 6)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=400, items=1100, interactions=8000, seed=3)


def few_in_a_block(solver: Any, problem: Problem, settings: Any) -> StratumLayout:
    """Blocks of about fifty items: there are more of them than groups."""
    width = 48 if solver is TransCFSolver else 16
    layout: StratumLayout = solver.layout(problem, settings, 50 * width * 4)
    assert layout.n_blocks > layout.n_groups
    return layout


def pairs_of(log: Interactions, settings: Any) -> ALSProblem:
    """All pairs; events weigh alike or not, as settings say."""
    events = InteractionWeights.of(log, settings.event_weights)
    if isinstance(settings, IALSSettings):
        goal = ials.objective(settings, events.sums_of_items, events.sums_of_users)
    else:
        weights = eals.weights_of_items(settings, log.by_item.counts)
        goal = eals.objective(settings, weights, log.by_user.counts)
    return ALSProblem(log.by_user, log.by_item, goal, (events.overall, events.of_item_entries))


def task_of(name: str, log: Interactions) -> tuple[Any, Any, Any, Any]:
    """Solver, problem, settings and layout of a model."""
    solver, params = SOLVERS[name]
    settings = create(name, dim=16, **params).settings
    if hasattr(settings, "for_log"):
        settings = settings.for_log(LogSizes.of(log))
    if solver in (MixtureTraining, IALSTraining, EALSTraining):
        problem = Events.of(log, settings) if solver is MixtureTraining else pairs_of(log, settings)
        return solver, problem, settings, solver.layout(problem, settings)
    problem = Problem.of(log, settings.event_weights)
    return solver, problem, settings, few_in_a_block(solver, problem, settings)


def train(name: str, log: Interactions, workers: int) -> dict[str, Array]:
    """Train with workers in threads."""
    solver, problem, settings, layout = task_of(name, log)
    first = solver(problem, settings, layout=layout).tensors()
    shares = share_out(np.diff(problem.user_indptr), layout.groups, workers)
    store = import_gloo().HashStore()

    def work(w: int) -> dict[str, Array]:
        part, groups = shard_of(problem, layout, shares, w)
        comm = RayCommunicator(join_group(store, w, workers, "127.0.0.1"), shares)
        own = solver(part, settings, layout=groups, comm=comm)
        users = slice(int(layout.groups[shares[w]]), int(layout.groups[shares[w + 1]]))
        own.load_tensors({n: t[users] if is_of_users(n) else t for n, t in first.items()})
        stats = [own.run_epoch(number) for number in EPOCHS]
        return own.tensors() | {"losses": np.array([one.loss for one in stats])}

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(work, range(workers)))
    users = {n: np.concatenate([part[n] for part in found]) for n in found[0] if is_of_users(n)}
    for part in found[1:]:
        assert all(np.array_equal(part[n], found[0][n]) for n in part if not is_of_users(n))
    return found[0] | users


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("timed", [True, False])
def test_the_bits_do_not_depend_on_who_has_which_users(
    name: str, timed: bool, log: Interactions
) -> None:
    if not timed:
        log = replace(log, timestamps=None)
    check_same_bits(name, log, (1, 2, 3, 4))


def check_same_bits(name: str, log: Interactions, numbers: Sequence[int]) -> None:
    """Compare what these numbers of workers learn with what one process does."""
    solver, problem, settings, layout = task_of(name, log)
    alone = solver(problem, settings, layout=layout)
    losses = [alone.run_epoch(number).loss for number in EPOCHS]
    expected = alone.tensors() | {"losses": np.array(losses)}
    with use_threads(1):
        for workers in numbers:
            found = train(name, log, workers)
            for what, array in expected.items():
                assert np.array_equal(array, found[what]), (what, workers)


def test_a_worker_for_every_group_learns_the_same(log: Interactions) -> None:
    *_, layout = task_of("bpr", log)
    check_same_bits("bpr", log, [layout.n_groups])


def test_a_worker_may_have_nobody() -> None:
    users = ["long"] * 60 + ["short"] * 2
    rows = {"user": users, "item": [*range(60), 3, 5], "timestamp": range(62)}
    log = read_interactions(pl.DataFrame(rows))
    *_, layout = task_of("transcf-mixture", log)
    assert (np.diff(layout.groups) == 0).any()
    check_same_bits("transcf-mixture", log, [4])


def test_the_mixture_without_user_vectors_learns_the_same(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver, params = SOLVERS["transcf-mixture"]
    changed = params | {"user_vectors": "context"}
    monkeypatch.setitem(SOLVERS, "transcf-mixture", (solver, changed))
    check_same_bits("transcf-mixture", log, [1, 3])


def test_shares_have_a_group_each_and_as_many_events_as_can_be() -> None:
    assert share_out([1] * 12, range(13), 3) == [0, 4, 8, 12]
    assert share_out([100, 1, 1, 1], range(5), 3) == [0, 1, 2, 4]
    assert share_out([1, 1, 1, 100], range(5), 4) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["ease", "itemknn"])
def test_what_cannot_be_spread_says_so(name: str, log: Interactions) -> None:
    from transcf.distributed import Cluster

    with pytest.raises(UnsupportedError, match=r"cannot be trained on a cluster .* bpr,.* transcf"):
        create(name).fit(log, options=FitOptions(cluster=Cluster()))


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1.5}, {"threads": -1}])
def test_a_cluster_has_workers(wrong: dict[str, Any]) -> None:
    from transcf.distributed import Cluster

    with pytest.raises(ParameterError, match="give a number from 1 on"):
        Cluster(**wrong)
