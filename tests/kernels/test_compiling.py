"""Whoever wants to know is told that compiling is under way."""

from __future__ import annotations

import logging
from time import perf_counter, sleep

import numba
import pytest

from transcf import Interactions, Popularity
from transcf.kernels.compiling import clock, on_compile
from transcf.kernels.decorators import _LinkedLibrary, inner


def test_compiling_is_told_once_and_only_inside_the_block() -> None:
    told: list[bool] = []

    @numba.njit
    def inside(x: float) -> float:
        return x + 1

    @numba.njit
    def outer(x: float) -> float:
        return 2 * inside(x)

    with on_compile(told.append):
        assert outer(1.0) == 4
        assert told == [True, False]  # the inner function is part of it
        outer(2.0)
        assert told == [True, False]
    outer(1)
    assert told == [True, False]


def test_functions_from_disk_do_not_count(tmp_path, monkeypatch) -> None:
    (tmp_path / "kept_on_disk.py").write_text(
        "import numba\n\n\n@numba.njit(cache=True)\ndef double(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    import kept_on_disk

    told: list[bool] = []
    with on_compile(told.append):
        kept_on_disk.double(1.0)
        assert told == [True, False]
        importlib.reload(kept_on_disk).double(1.0)
        assert told == [True, False]


def test_the_clock_of_fits_stands_still_while_kernels_are_compiled() -> None:
    @numba.njit
    def double(x: float) -> float:
        return 2 * x

    started, before = perf_counter(), clock()
    with on_compile(lambda is_compiling: sleep(0.2)):
        double(1.0)
    assert perf_counter() - started > 0.4
    assert clock() - before < perf_counter() - started - 0.2
    before = clock()
    sleep(0.05)
    assert clock() - before >= 0.05


def test_compiling_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @numba.njit
    def double(x: float) -> float:
        return 2 * x

    monkeypatch.setattr(clock.__self__, "_is_logged", False)
    with caplog.at_level(logging.INFO, logger="transcf.kernels"):
        double(1.0)
        double(1)
    assert len(caplog.messages) == 1
    assert "compiling" in caplog.messages[0]


def test_the_seconds_of_a_fit_are_without_compilation(
    random_log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Popularity._learn

    def compile_and_learn(self: Popularity, fit: object) -> object:
        double = numba.njit(lambda x: 2 * x)
        with on_compile(lambda is_compiling: sleep(1.0)):
            double(1.0)
        return learn(self, fit)

    Popularity().fit(random_log)  # loads what a fit needs
    monkeypatch.setattr(Popularity, "_learn", compile_and_learn)
    started = perf_counter()
    seconds = Popularity().fit(random_log).report_["seconds"]
    assert seconds < perf_counter() - started - 1.0


def test_functions_that_only_kernels_call_have_no_machine_code_of_their_own() -> None:
    @inner
    def add_one(x: float) -> float:
        return x + 1

    @numba.njit
    def double(x: float) -> float:
        return 2 * add_one(x)

    assert double(1.0) == 4
    (result,) = add_one.overloads.values()
    assert isinstance(result.library, _LinkedLibrary)
