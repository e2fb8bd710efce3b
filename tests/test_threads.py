"""Threads: how many there are, who gets what, and what happens when something goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # its BLAS is one of those that are counted
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from transcf.parallel import one_blas_thread, parallel_for, thread_count, use_threads


def blas_threads() -> list[int]:
    assert np.ones((2, 2)) @ np.ones((2, 2)) is not None  # BLAS is loaded
    # Others that a process may have loaded by now (faiss brings one) are not used by kernels.
    ours = {"numpy.libs", "scipy.libs"}
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return [pool["num_threads"] for pool in pools if ours & {*Path(pool["filepath"]).parts}]


def test_a_torch_without_openmp_gets_its_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        threads = 5

        def get_num_threads(self) -> int:
            return self.threads

        def set_num_threads(self, count: int) -> None:
            self.threads = count

    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with use_threads(1):
        assert torch.threads == 1
    assert torch.threads == 5


def test_one_word_binds_kernels_and_blas_and_torch() -> None:
    torch = pytest.importorskip("torch")
    before = (thread_count(), blas_threads(), torch.get_num_threads())
    assert thread_count() == len(os.sched_getaffinity(0))
    with use_threads(1):
        assert (thread_count(), torch.get_num_threads()) == (1, 1)
        assert set(blas_threads()) == {1}
        with use_threads(2):
            assert (thread_count(), torch.get_num_threads()) == (2, 2)
            assert set(blas_threads()) == {2}
            with use_threads(None):
                assert (thread_count(), set(blas_threads())) == (2, {2})
        assert (thread_count(), set(blas_threads()), torch.get_num_threads()) == (1, {1}, 1)
    assert (thread_count(), blas_threads(), torch.get_num_threads()) == before


def test_it_ends_with_an_exception_too() -> None:
    before = (thread_count(), blas_threads())
    with pytest.raises(ValueError, match="stop"), use_threads(before[0] + 3):
        raise ValueError("stop")
    assert (thread_count(), blas_threads()) == before


def test_it_holds_for_all_threads_of_the_process() -> None:
    with use_threads(5), ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread_count).result() == 5


@given(n=st.integers(0, 200), threads=st.integers(1, 9), least=st.sampled_from([1, 2, 7, 50, 1000]))
def test_all_is_done_and_nothing_twice(n: int, threads: int, least: int) -> None:
    done, ranges = np.zeros(n, np.int64), []

    def work(first: int, end: int) -> None:
        ranges.append((first, end))
        done[first:end] += 1

    with use_threads(threads):
        parallel_for(n, work, least)
    assert (done == 1).all()
    assert len(ranges) <= max(1, min(threads, n // least))
    assert sorted(ranges)[0][0] == 0
    assert max(end for _, end in ranges) == n
    if len(ranges) > 1:
        assert min(end - first for first, end in ranges) >= least


def test_parts_run_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=30)
    seen = set()

    def work(first: int, end: int) -> None:
        meeting.wait()  # nobody gets past it alone
        seen.add(threading.get_ident())

    with use_threads(3):
        parallel_for(3, work)
    assert len(seen) == 3
    assert threading.get_ident() in seen, "the caller takes its part"


def test_threads_stay_from_call_to_call() -> None:
    seen = set()

    def work(first: int, end: int) -> None:
        seen.add(threading.get_ident())

    with use_threads(2):
        for _ in range(50):
            parallel_for(2, work)
    # The pool may be larger than it is here, from tests before.
    assert len(seen) < 25


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_all_have_finished(failing: int) -> None:
    finished = []

    def work(first: int, end: int) -> None:
        if first == failing:
            raise KeyError(f"part {first}")
        time.sleep(0.05)
        finished.append(first)

    with use_threads(3):
        with pytest.raises(KeyError, match=f"part {failing}"):
            parallel_for(3, work)
        assert sorted(finished) == [part for part in range(3) if part != failing]
        parallel_for(3, lambda first, end: finished.append(-first))  # and the pool still works
    assert len(finished) == 5


def test_errors_of_several_parts_are_one() -> None:
    def work(first: int, end: int) -> None:
        raise ValueError(str(first))

    with use_threads(4), pytest.raises(ValueError, match="0"):
        parallel_for(4, work)


def test_shared_work_that_shares_runs_on_its_own_thread() -> None:
    inner: list[tuple[int, int]] = []
    same: list[bool] = []

    def within(first: int, end: int) -> None:
        inner.append((first, end))

    def work(first: int, end: int) -> None:
        own = threading.get_ident()
        parallel_for(10, lambda *ends: (within(*ends), same.append(threading.get_ident() == own)))

    with use_threads(3):
        parallel_for(3, work)
    assert inner == [(0, 10)] * 3
    assert same == [True] * 3
    with use_threads(2):  # afterwards everything is shared again, an error in between or not
        inner.clear()
        parallel_for(2, within)
    assert sorted(inner) == [(0, 1), (1, 2)]


def test_an_error_within_does_not_keep_the_thread_from_sharing() -> None:
    def fail(first: int, end: int) -> None:
        raise ValueError("no")

    ranges: list[tuple[int, int]] = []
    with use_threads(2):
        with pytest.raises(ValueError, match="no"):
            parallel_for(2, fail)
        parallel_for(2, lambda *ends: ranges.append(ends))
    assert len(ranges) == 2


def test_many_callers_share_one_pool() -> None:
    totals = np.zeros(8, np.int64)

    def call(caller: int) -> None:
        lock = threading.Lock()

        def work(first: int, end: int) -> None:
            with lock:
                totals[caller] += end - first

        for _ in range(40):
            parallel_for(100, work)

    with use_threads(3), ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
    assert (totals == 4000).all()


FORKED = """
import os, signal, sys, time
import numpy as np
from transcf.parallel import parallel_for, use_threads

def total():
    done = np.zeros(100, np.int64)
    def work(first, end):
        time.sleep(0.1)  # long enough that nobody does two parts
        done[first:end] += 1
    parallel_for(100, work)
    return int(done.sum())

with use_threads(3):
    assert total() == 100
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # rather than wait for threads that are not there
        os._exit(0 if total() == 100 else 1)
    _, status = os.waitpid(child, 0)
    assert total() == 100
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=60, check=False)
    assert done.returncode == 0


def test_products_on_one_thread_beside_other_requests() -> None:
    before = blas_threads()
    wide, alone = use_threads(2), one_blas_thread()
    wide.__enter__()
    alone.__enter__()
    assert set(blas_threads()) == {1}
    wide.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    alone.__exit__(None, None, None)
    assert blas_threads() == before
    with one_blas_thread(), use_threads(3):
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
