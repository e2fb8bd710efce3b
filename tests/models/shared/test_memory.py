"""What learning takes is compared with what is free, before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

from transcf import create, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import OutOfMemoryError
from transcf.models import families
from transcf.models.registry import available, model_class


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=40, items=30, interactions=400, seed=1)


def test_vectors_that_cannot_fit_are_refused_at_once(log: Interactions) -> None:
    with pytest.raises(
        OutOfMemoryError, match=r"iALS needs [\d,]+ GiB of memory for 40 users and 30 it"
    ):
        create("ials", dim=1_000_000).fit(log)
    with pytest.raises(OutOfMemoryError, match=r"more than an EiB .*: lower dim"):
        create("eals", dim=2**62).fit(log)


@pytest.mark.parametrize("name", available())
def test_every_model_with_vectors_is_asked(
    log: Interactions, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = create(name)
    if not hasattr(model.settings, "memory_estimate"):
        assert "dim" not in model_class(name)._rules()
        return
    needed = model.settings.memory_estimate(40, 30).size
    monkeypatch.setattr(families, "free_memory", lambda: needed - 1)
    with pytest.raises(OutOfMemoryError, match=f"{model.name} needs .* 40 users and 30 items"):
        model.fit(log)


def test_what_learning_takes_is_no_more_than_it_says(log: Interactions) -> None:
    """A refusal would be wrong where the arrays alone are smaller than announced."""
    model = create("ials", dim=64, epochs=1).fit(log)
    arrays = sum(array.nbytes for array in model.learned_.arrays().values())
    assert arrays <= model.settings.memory_estimate(40, 30).size
    assert create("ease").settings.memory_estimate(1, 1000).size == 12 * 1000**2


def test_free_memory_is_the_least_that_the_system_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, limit = tmp_path / "meminfo", tmp_path / "max"
    free.write_text("MemTotal: 100 kB\nMemAvailable:      64 kB\n")
    monkeypatch.setattr(families, "_MEMORY", free)
    monkeypatch.setattr(families, "_LIMITS", (limit,))
    assert families.free_memory() == 64 * 1024
    limit.write_text("max\n")
    assert families.free_memory() == 64 * 1024
    limit.write_text("1000\n")
    assert families.free_memory() == 1000


def test_an_allocation_that_fails_all_the_same_is_one_sentence(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = create("popularity")

    def fail(fit: object) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(model, "_learn", fail)
    with pytest.raises(OutOfMemoryError, match="ran out of memory on 40 users"):
        model.fit(log)
