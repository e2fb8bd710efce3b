"""The vectors that the authors published for Delicious give the figures that the paper prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transcf.data.datasets.parsers import read_prepared_split
from transcf.data.split import Split
from transcf.evaluation import evaluate
from transcf.models.fitted import TrainingData
from transcf.models.transcf.fitted import Translated
from transcf.models.transcf.model import TransCFSettings
from transcf.paper.pairs import closer
from transcf.paper.spaces import Pairs, Space


@pytest.fixture(scope="module")
def split(real_data: Callable[[str], Path]) -> Split:
    return read_prepared_split(real_data("delicious"))


@pytest.fixture(scope="module")
def authors(split: Split, real_data: Callable[[str], Path]) -> Translated:
    """TransCF with the authors' vectors; its neighbourhoods are means over the training pairs."""
    file = real_data("delicious").parents[1] / "paper" / "authors_delicious_vectors.npz"
    if not file.exists():
        pytest.skip(f"the authors' vectors are not here: put {file.name} into {file.parent}")
    vectors = np.load(file)
    known, train = TrainingData.of(split.train), split.train
    users = vectors["transcf_users"][train.users.series.to_numpy()]
    items = vectors["transcf_items"][train.items.series.to_numpy()]
    settings = TransCFSettings(dim=users.shape[1], variant="translation", item_bias=False)
    bias = np.zeros(len(items), np.float32)
    return Translated(known, settings, users, items, bias)


@pytest.fixture(scope="module")
def space(authors: Translated) -> Space:
    return Space("authors", authors.known, authors.users, authors.items, authors.translations)


def test_closer_after_translation(space: Space, split: Split) -> None:
    found = closer(space, Pairs.of(space, split.train))
    row = found.frame.row(0, named=True)
    assert row["number"] == 5598
    assert round(row["closer_percent"] * 5598 / 100) == 3618
    assert round(row["closer_percent"], 2) == 64.63  # as printed in the paper
    assert found.facts["median_ratio"] == pytest.approx(0.107, abs=5e-4)


def test_norms_and_distances(space: Space, split: Split) -> None:
    pairs = Pairs.of(space, split.train)
    assert np.linalg.norm(space.users, axis=1).mean() == pytest.approx(1.00, abs=5e-3)
    assert np.linalg.norm(space.items, axis=1).mean() == pytest.approx(0.93, abs=5e-3)
    observed = np.linalg.norm(space.differences(pairs.users, pairs.items), axis=1)
    drawn = pairs.unobserved(space, np.random.default_rng(0))
    unobserved = np.linalg.norm(space.differences(*drawn), axis=1)
    assert observed.mean() == pytest.approx(0.68, abs=5e-3)
    assert unobserved.mean() == pytest.approx(1.42, abs=1e-2)


def test_hit_rate_in_the_protocol_of_the_paper(authors: Translated, split: Split) -> None:
    found = evaluate(authors, split, "paper")
    assert round(found.metrics["HitRate@10"].mean, 4) == 0.2454
