"""The paper's tables: what is run, what stands beside it, and what is said of it."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.errors import ParameterError
from transcf.experiments.report import published_table
from transcf.experiments.results import Comparison, Results
from transcf.experiments.search import Budget
from transcf.experiments.store import Store
from transcf.experiments.study import Study, run_study
from transcf.experiments.workers import shared_work
from transcf.models.registry import model_class
from transcf.paper.reproduction import TABLES, compare_shape, load_table

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper"
#: The paper's names of its methods, and ours.
METHODS = {
    "BPR": "bpr", "FISM": "fism", "AoBPR": "aobpr", "eALS": "eals", "CDAE": "cdae",
    "NeuMF": "neumf", "CML": "cml", "TransCF-dot": "transcf-dot", "TransCF-alt": "transcf-alt",
    "TransCF": "transcf",
}  # fmt: skip
COPIES = {"tradesy", "pinterest", "flixster"}


@pytest.mark.parametrize("name", TABLES)
def test_every_model_has_the_same_budget(name: str) -> None:
    for budget, trials, seeds in (("preset", 1, 2), ("quick", 4, 2), ("full", 30, 5)):
        study = load_table(name, budget)
        assert study.seeds == seeds
        for data, protocol, fits, _ in study.expected():
            plans = study.under(protocol, next(d for d in study.datasets if d.name == data))
            assert len(plans) <= fits <= len(plans) * (trials + 2 * 3 + seeds)
        budgets = [Budget.of(plan.budget or study.budget or "none") for plan in study.models]
        searched = [one for one in budgets if one.trials > 1]
        wanted = (trials, "tpe", 0 if budget == "quick" else 3)
        assert {(one.trials, one.sampler, one.finalists) for one in searched} <= {wanted}
    if name == "performance":
        fixed = [p for p, b in zip(study.models, budgets, strict=True) if b.trials == 1]
        assert [plan.title for plan in fixed] == [
            "popularity", "inverse-popularity", "transcf by hand",
        ]  # fmt: skip
        assert {*METHODS.values(), "ease", "slim", "ials", "itemknn", "lightgcn"} <= {
            plan.name for plan in study.models
        }


#: Names of the metrics in the paper's tables and ours.
NAMES = {
    f"{short}@{n}": f"{name}@{n}"
    for short, name in (("H", "HitRate"), ("N", "NDCG"))
    for n in (10, 20)
}


def test_printed_figures_are_the_papers_and_never_beside_copies() -> None:
    if not PAPER.is_dir():
        pytest.skip("the paper's tables are not here")
    with (PAPER / "table_performance.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for name in ("performance", "ablations"):
        study = load_table(name)
        for dataset in study.datasets:
            if dataset.name in COPIES:
                assert study.published(dataset.name) == {}
                assert (
                    "is not the published data"
                    in study.about(dataset, study.protocol)["difference"]
                )
                continue
            printed = dataset.published
            assert printed
            assert study.published(dataset.name, "paper-as-published") != {}
            assert study.published(dataset.name, "leave-last-out") == {}, "ranks among all items"
            for model, figures in printed.items():
                (method,) = (paper for paper, own in METHODS.items() if own == model)
                own = {
                    NAMES[r["metric"]]: float(r[method])
                    for r in rows
                    if r["dataset"] == dataset.name
                }
                assert figures == own
    with (PAPER / "table_regularizers.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    study = load_table("regularizers")
    assert len(study.models) * len(study.datasets) == len(cells) == 32
    for cell in cells:
        (plan,) = (
            plan
            for plan in study.models
            if all(plan.params[n] == float(cell[n]) for n in ("reg_distance", "reg_neighborhood"))
        )
        assert study.published(cell["dataset"])[plan.title] == {"HitRate@10": float(cell["value"])}


def test_a_copy_cannot_stand_beside_published_figures() -> None:
    plan = load_table("performance").datasets[0]
    with pytest.raises(ParameterError, match="published figures for delicious, which is a copy"):
        replace(plan, copy="smaller")
    with pytest.raises(ParameterError, match=r"table='accuracy' .* one of 'performance'"):
        load_table("accuracy")
    with pytest.raises(ParameterError, match=r"budget='huge' .* one of 'preset', 'quick'"):
        load_table("performance", "huge")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Four cells of two parameters of BPR, with figures as if they had been printed."""
    split = leave_one_out(synthesize(users=80, items=40, interactions=1200, seed=1))
    folder = str(split.save(tmp_path_factory.mktemp("data") / "split"))
    printed = {
        f"a learning_rate={rate} regularization={reg}": {"HitRate@10": 0.1 + rate + reg}
        for rate in (0.0001, 0.2)
        for reg in (0.0, 0.1)
    }
    return Study.from_dict(
        {
            "title": "small",
            "protocol": "leave-last-out",
            "seeds": 2,
            "metrics": ["HitRate@10", "NDCG@10"],
            "datasets": [{"name": folder, "published": printed}],
            "models": [
                {
                    "name": "bpr",
                    "label": "a",
                    "params": {"dim": 4, "epochs": 3},
                    "sweep": {"learning_rate": [0.0001, 0.2], "regularization": [0.0, 0.1]},
                },
                {"name": "popularity"},
            ],
        }
    )


@pytest.fixture(scope="module")
def found(small: Study) -> Comparison:
    (found,) = run_study(small)
    return found


def test_a_sweep_has_a_line_for_every_combination(small: Study, found: Comparison) -> None:
    assert [done.name for done in found.runs] == [
        "a learning_rate=0.0001 regularization=0.0", "a learning_rate=0.0001 regularization=0.1",
        "a learning_rate=0.2 regularization=0.0", "a learning_rate=0.2 regularization=0.1",
        "popularity",
    ]  # fmt: skip
    assert [done.first.parameters["learning_rate"] for done in found.runs[:4]] == [
        0.0001, 0.0001, 0.2, 0.2,
    ]  # fmt: skip
    content = {"title": "bad", "protocol": "paper", "seeds": 1, "metrics": ["NDCG@10"]}
    models = [{"name": "bpr", "sweep": {"dim": 3}}]
    with pytest.raises(ParameterError, match="give lists of values"):
        Study.from_dict({**content, "datasets": [{"name": "ciao"}], "models": models})


def test_published_figures_are_compared_with_ours(small: Study, found: Comparison) -> None:
    table = published_table(Results("small", small.title, small.metrics, [found]))
    assert table is not None
    assert len(table.rows) == 4
    ours = found.summaries[found.runs[0].name]["HitRate@10"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["published"] == "0.1001"
    assert row["ours"] == f"{ours['mean']:.4f}"
    assert row["difference"] == f"{ours['mean'] - 0.1001:+.4f}"


def test_the_shape_of_a_sweep_is_compared(small: Study, found: Comparison) -> None:
    plan = small.only(None, [done.name for done in found.runs[:4]])
    cells = plan.published(plan.datasets[0].name)
    ours = [found.summaries[name]["HitRate@10"]["mean"] for name in cells]
    own = dict(zip(cells, ({"HitRate@10": figure} for figure in ours), strict=True))
    same = replace(plan, datasets=(replace(plan.datasets[0], published=own),))
    shape = compare_shape(same, found)
    assert shape is not None
    assert shape["rank correlation"] == 1.0
    assert shape["best cell, printed"] == shape["best cell, ours"]
    reg = (ours[1] + ours[3] - ours[0] - ours[2]) / 2
    for kind in ("printed", "ours"):
        assert shape[f"effect of regularization, {kind}"] == pytest.approx(reg, abs=1e-4)
    other = {name: {"HitRate@10": -entry["HitRate@10"]} for name, entry in own.items()}
    turned = replace(plan, datasets=(replace(plan.datasets[0], published=other),))
    assert compare_shape(turned, found)["rank correlation"] == -1.0
    three = [done.name for done in found.runs[:3]]
    assert compare_shape(plan.only(None, three), found) is None, "one cell is missing"


def test_helpers_fill_the_store_and_end_with_their_owner(small: Study, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    with shared_work(partial(run_study, small, store=store), store, 2):
        (found,) = run_study(small, store=store)
    (alone,) = run_study(small)
    assert found.summaries == alone.summaries
    assert len(store.all_keys()) == 9


def test_a_cluster_fills_the_store(small: Study, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra cluster")
    from transcf.distributed import Cluster

    store = Store(tmp_path / "runs")
    cluster = Cluster(workers=2, threads=1)
    with shared_work(partial(run_study, small, store=store), store, cluster=cluster):
        deadline = time.monotonic() + 100
        while len(store.all_keys()) < 9 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert len(store.all_keys()) == 9, "the workers ran all cells, and this process none"
    (found,) = run_study(small, store=store)
    (alone,) = run_study(small)
    assert found.summaries == alone.summaries


def test_models_of_the_studies_keep_to_what_the_paper_fixes() -> None:
    study = load_table("performance")
    for plan in study.models:
        if "samples_per_user" in model_class(plan.name)._rules() and plan.preset is None:
            assert plan.params["samples_per_user"] == 100
            assert not plan.params.get("item_bias", False)
