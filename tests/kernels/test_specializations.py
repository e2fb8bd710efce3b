"""Kernels are compiled once for each kind of argument, whatever path arrays take to them."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from transcf import FitOptions, Interactions, Validation, available, create, evaluate
from transcf.data.splitters import split_log
from transcf.data.synthetic import synthesize
from transcf.errors import TransCFError
from transcf.models.training import Epoch

#: Not made of kernels.
TORCH = {"cdae", "neumf", "lightgcn", "sasrec"}
#: Slow, and on the kernels of other models.
SKIPPED = {"blend"}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=120, items=60, interactions=2000, seed=1)


def without_flags(types: object) -> str:
    """Text of argument types without layout, alignment and whether arrays are read-only."""
    text = str(types).replace("readonly ", "").replace("nonaligned ", "")
    text = re.sub(r"Array\((\w+), (\d), '\w', \w+, aligned=\w+\)", r"Array(\1, \2)", text)
    return re.sub(r"array\((\w+), (\d)d, \w\)", r"array(\1, \2)", text)


@pytest.fixture
def specialized(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Return what Python's calls of kernels ask numba to compile or to load."""
    found, compile_for_args = defaultdict[str, set[str]](set), Dispatcher._compile_for_args

    def compile_and_note(kernel: Any, *args: Any, **more: Any) -> Any:
        function, types = kernel.py_func, [kernel.typeof_pyval(arg) for arg in args]
        name = f"{function.__module__}.{function.__name__}"
        found[f"{name} {without_flags(types)}"].add(str(types))
        return compile_for_args(kernel, *args, **more)

    monkeypatch.setattr(Dispatcher, "_compile_for_args", compile_and_note)
    monkeypatch.setattr("transcf.retrieval.topk.SMALL", 0)  # else numpy ranks the small log
    return found


def interrupt_second(epoch: Epoch[Any]) -> None:
    if epoch.number == 2:
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*available()} - TORCH - SKIPPED))
def test_kernels_have_one_specialization(
    name: str, log: Interactions, tmp_path: Path, specialized: dict[str, set[str]]
) -> None:
    split, known = split_log(log), create(name).get_params()
    small = {"dim": 8, "epochs": 3, "random_state": 0}
    model = create(name, **{key: value for key, value in small.items() if key in known})
    if "epochs" in known:
        run, validation = tmp_path / "run", Validation.of(split)
        until = FitOptions(checkpoint=run, checkpoint_seconds=0, on_epoch=interrupt_second)
        with suppress(KeyboardInterrupt):
            model.fit(split.train, validation, until)
        model.fit(split.train, validation, FitOptions(checkpoint=run, resume=True))
    else:
        model.fit(split.train)
    model.refit(split.before_test)
    evaluate(model, split)
    model.recommend(split.train.users.series[:20], k=5)
    model.recommend(split.train.users.series[0], k=5)
    with suppress(TransCFError):  # without fold-in
        model.recommend_for(split.train.items.series[:5].to_list(), k=5)
    assert {kernel: types for kernel, types in specialized.items() if len(types) > 1} == {}
