"""The report of a model: its figures by brute force, and the page in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.browser import visit

from transcf import evaluate, read_interactions
from transcf.data.splitters import leave_one_out, temporal_cut
from transcf.data.synthetic import synthesize
from transcf.models.registry import create
from transcf.paper.analysis import WHAT, Subject
from transcf.paper.model_report import METRIC, evaluate_quality, page_of


@pytest.fixture(scope="module")
def parts():
    log = synthesize(users=40, items=30, interactions=400, categories=2, seed=5)
    split = leave_one_out(log)
    model = create("transcf-mixture", dim=6, epochs=3).fit(split.before_test)
    return log, model, evaluate_quality(model, split, held_out=True)


@pytest.fixture(scope="module")
def page(parts, small_forests: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log, model, quality = parts
    analyses, missing = Subject({model.name: model}, log).all(WHAT)
    assert missing == {}
    found = page_of(model, log, quality, analyses, {"weather": "nobody knows <it> & 'that'"})
    (path,) = found.write(tmp_path_factory.mktemp("page") / "report.html")
    return path


def test_accuracy_by_group_is_the_mean_over_its_users(parts) -> None:
    _, _, quality = parts
    per_user = quality.model.per_user
    rows = quality.split.train.users.rows(per_user["user_id"])
    counts = quality.split.before_test.by_user.counts[rows]
    values = per_user[METRIC].to_numpy()
    found = quality.by_activity()
    assert found["users"].sum() == len(per_user)
    for row in found.to_dicts():
        low, high = (int(word) for word in row["group"].split() if word.isdecimal())
        members = (counts >= low) & (counts <= high)
        assert row["users"] == members.sum()
        assert row["model"] == pytest.approx(values[members].mean())
    weighted = (found["users"] * found["baseline"]).sum() / found["users"].sum()
    assert weighted == pytest.approx(quality.baseline.metrics[METRIC].mean)


def test_groups_by_popularity_hold_everybody(parts) -> None:
    found = parts[2].by_popularity()
    means = (found["users"] * found["model"]).sum() / found["users"].sum()
    assert means == pytest.approx(parts[2].model.metrics[METRIC].mean)


def test_the_floor_is_the_better_one_of_both_popularities() -> None:
    # Whatever is recent is taken once, and the old hit is still what most users take next.
    users = [f"u{n:02}" for n in range(30)]
    events = [(user, "hit", n) for n, user in enumerate(users[:25])]
    events += [(user, f"old{n % 7}", 40 + n) for n, user in enumerate(users)]
    events += [(user, "fad", 10**6 + n) for n, user in enumerate(users[25:])]
    events += [(user, "hit", 2 * 10**6 + n) for n, user in enumerate(users[25:])]
    columns = zip(*events, strict=True)
    frame = pl.DataFrame(dict(zip(("user", "item", "timestamp"), columns, strict=True)))
    split = temporal_cut(read_interactions(frame), at=2 * 10**6, validation=10**6)
    floors = {
        name: evaluate(create(name).fit(split.before_test), split).metrics[METRIC].mean
        for name in ("popularity", "recent-popularity")
    }
    assert floors["popularity"] > floors["recent-popularity"]
    quality = evaluate_quality(create("ease").fit(split.before_test), split, held_out=True)
    assert quality.baseline.model == "popularity"
    assert quality.baseline.metrics[METRIC].mean == max(floors.values())


def test_a_model_of_everything_is_judged_by_a_twin(parts) -> None:
    log, _, quality = parts
    model = create("transcf-mixture", dim=6, epochs=3).fit(log)
    before = model.item_vectors_.copy()
    found = evaluate_quality(model, quality.split, held_out=False)
    assert found.is_twin
    np.testing.assert_array_equal(model.item_vectors_, before)
    # The same settings on the same events, so the same figures.
    assert found.model.metrics[METRIC].mean == quality.model.metrics[METRIC].mean


def test_the_page_says_what_it_should(page: Path, parts) -> None:
    text = page.read_text(encoding="utf-8")
    for words in ("Accuracy", "Example users", "closer after the translation", "Parameters"):
        assert words in text
    assert text.count("<figure>") >= 8
    assert "nobody knows &lt;it&gt; &amp; &#x27;that&#x27;" in text
    user = parts[1].recommend(k=1)["user_id"][0]
    assert user[0] == "u"
    assert text.count("User u") == 5


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_page_opens_quietly_and_fits(browser, page: Path, width: int, dark: bool) -> None:
    with visit(browser, page.as_uri(), width=width, dark=dark) as seen:
        assert seen.overflow() == 0
        boxes = [figure.bounding_box() for figure in seen.page.locator("figure svg").all()]
        assert len(boxes) >= 8
        assert all(box["width"] <= width and box["height"] > 80 for box in boxes)
    assert (seen.errors, seen.foreign) == ([], [])
