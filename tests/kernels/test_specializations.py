"""Kernels are compiled once for each kind of argument, whatever path arrays take to them."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from transcf import FitOptions, Interactions, Validation, available, create, evaluate, kernels
from transcf.data.sources import as_split
from transcf.data.synthetic import synthesize
from transcf.errors import TransCFError
from transcf.models.trainable import Epoch

#: Not made of kernels.
TORCH = {"cdae", "neumf", "lightgcn"}
#: Slow, and on the kernels of other models.
SKIPPED = {"transcf-attention", "transcf-map", "transcf-friends", "transcf-categories", "blend"}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=120, items=60, interactions=2000, seed=1)


def without_flags(signature: object) -> str:
    """Text of a signature without layout, alignment and whether arrays are read-only."""
    text = str(signature).replace("readonly ", "").replace("nonaligned ", "")
    text = re.sub(r"Array\((\w+), (\d), '\w', \w+, aligned=\w+\)", r"Array(\1, \2)", text)
    text = re.sub(r"array\((\w+), (\d)d, \w\)", r"array(\1, \2)", text)
    return re.sub(r"Literal\[int\]\(-?\d+\)", "int64", text)


def specializations() -> dict[str, int]:
    """How often each kernel was compiled or loaded for the same kinds of arguments, if often."""
    found: dict[str, int] = {}
    for kernel in kernels._keeper._kept:
        function, counts = kernel.py_func, Counter(map(without_flags, kernel.signatures))
        if counts and function.__name__ not in ("stream", "make_room"):  # only kernels call these
            found[f"{function.__module__}.{function.__name__}"] = max(counts.values())
    return {name: count for name, count in found.items() if count > 1}


def interrupt_second(epoch: Epoch[Any]) -> None:
    if epoch.number == 2:
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*available()} - TORCH - SKIPPED))
def test_kernels_have_one_specialization(name: str, log: Interactions, tmp_path: Path) -> None:
    split, known = as_split(log), create(name).get_params()
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
    assert specializations() == {}
