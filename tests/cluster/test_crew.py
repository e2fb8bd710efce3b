"""Workers that pass blocks on learn the same bits as one process; here they are threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from transcf import Interactions, create, synthesize
from transcf.cluster.crew import ClusterCrew
from transcf.cluster.driver import share_out
from transcf.cluster.post import Mailbox, Post, Tag
from transcf.errors import ParameterError, UnsupportedError
from transcf.kernels import Array
from transcf.learning.triples import Outline, Problem
from transcf.models.aobpr import AdaptiveSolver
from transcf.models.bpr import LogisticSolver
from transcf.models.cml import HingeSolver
from transcf.models.transcf.fast import FastSolver
from transcf.threads import use_threads
from transcf.training import FitOptions

SOLVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "transcf-translation": (FastSolver, {"recency": 2.0}),
    "transcf-dot": (FastSolver, {}),
    "bpr": (LogisticSolver, {"samples_per_user": 7}),
    "aobpr": (AdaptiveSolver, {}),
    "cml": (HingeSolver, {"recency": 2.0, "samples_per_user": 7}),
}


class Neighbour:
    """A worker in a thread of the same process."""

    def __init__(self, box: Mailbox) -> None:
        self._box = box

    def send(self, tag: Tag, array: Array) -> None:
        self._box.put(tag, array.copy())


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=400, items=1100, interactions=8000, seed=3)


def few_in_a_block(solver: Any, problem: Problem, settings: Any, width: int) -> Outline:
    """Blocks of about fifty items: there are more of them than groups."""
    outline: Outline = solver.outline(problem, settings, 50 * width * 4)
    assert outline.n_blocks > outline.n_groups
    return outline


def train(name: str, log: Interactions, workers: int) -> dict[str, Array]:
    """Train three epochs with workers in threads."""
    solver, params = SOLVERS[name]
    settings = create(name, dim=16, **params).settings
    problem = Problem.of(log, settings)
    outline = few_in_a_block(solver, problem, settings, 48 if solver is FastSolver else 16)
    first = solver(problem, settings, outline=outline).tensors()
    shares = share_out(np.diff(problem.user_indptr), outline.groups, workers)
    cuts = [int(outline.groups[g]) for g in shares]
    boxes = [Mailbox() for _ in range(workers)]

    def work(w: int) -> dict[str, Array]:
        users = slice(cuts[w], cuts[w + 1])
        own = solver(
            problem.part(users.start, users.stop),
            settings,
            outline=outline.part(shares[w], shares[w + 1]),
            crew=ClusterCrew(Post(w, boxes[w], [Neighbour(box) for box in boxes]), shares),
        )
        own.load_tensors(first | {"user_vectors": first["user_vectors"][users]})
        stats = [own.run_epoch(number) for number in (1, 2, 3)]
        return own.tensors() | {"losses": np.array([one.loss for one in stats])}

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(work, range(workers)))
    users = np.concatenate([part["user_vectors"] for part in found])
    for part in found[1:]:
        assert all(np.array_equal(part[n], found[0][n]) for n in part if n != "user_vectors")
    return found[0] | {"user_vectors": users}


@pytest.mark.parametrize("name", SOLVERS)
def test_the_bits_do_not_depend_on_who_has_which_users(name: str, log: Interactions) -> None:
    solver, params = SOLVERS[name]
    settings = create(name, dim=16, **params).settings
    problem = Problem.of(log, settings)
    outline = few_in_a_block(solver, problem, settings, 48 if solver is FastSolver else 16)
    alone = solver(problem, settings, outline=outline)
    losses = [alone.run_epoch(number).loss for number in (1, 2, 3)]
    expected = alone.tensors() | {"losses": np.array(losses)}
    with use_threads(1):
        for workers in (1, 2, 3):
            found = train(name, log, workers)
            for what, array in expected.items():
                assert np.array_equal(array, found[what]), (what, workers)


def test_shares_have_a_group_each_and_as_many_events_as_can_be() -> None:
    assert share_out([1] * 12, range(13), 3) == [0, 4, 8, 12]
    assert share_out([100, 1, 1, 1], range(5), 3) == [0, 1, 2, 4]
    assert share_out([1, 1, 1, 100], range(5), 4) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["transcf", "ease", "transcf-friends", "itemknn"])
def test_what_does_not_train_in_rounds_says_so(name: str, log: Interactions) -> None:
    from transcf.cluster import Cluster

    with pytest.raises(UnsupportedError, match="cannot be trained on a cluster"):
        create(name).fit(log, options=FitOptions(cluster=Cluster()))


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1.5}, {"threads": -1}])
def test_a_cluster_has_workers(wrong: dict[str, Any]) -> None:
    from transcf.cluster import Cluster

    with pytest.raises(ParameterError, match="give a number from 1 on"):
        Cluster(**wrong)
