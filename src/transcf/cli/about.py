"""`transcf models`, `transcf doctor` and `transcf demo`."""

from __future__ import annotations

import os
import platform
import time
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any

import typer

import transcf
from transcf.cli import output
from transcf.cli.recommend import lists_table
from transcf.parallel import thread_count

#: Packages that the library itself needs, and modules that each extra brings.
_PACKAGES = ("numpy", "scipy", "polars", "numba", "safetensors", "typer", "rich")
EXTRAS = {
    "cluster": ("ray", "torch"),
    "hdf5": ("h5py",),
    "index": ("faiss",),
    "lancedb": ("lancedb",),
    "neural": ("torch",),
    "pgvector": ("psycopg", "pgvector"),
    "plots": ("matplotlib", "jinja2", "sklearn"),
    "serve": ("fastapi", "uvicorn", "prometheus_client", "psycopg", "httpx"),
    "tune": ("optuna", "joblib", "psycopg", "sklearn"),
}


#: Models on torch, and models of other models.
_NOT_COMPILED = {"blend", "cdae", "lightgcn", "neumf", "sasrec"}
#: Models of the demo; the last one makes the recommendations. It is small, for a quick tour.
_DEMO_MODELS: dict[str, dict[str, Any]] = {
    "popularity": {}, "inverse-popularity": {}, "random": {}, "itemknn": {}, "ease": {},
    "transcf-mixture": {"dim": 32, "patience": 3},
}  # fmt: skip
#: As in real logs, items lose popularity and events follow others.
_LIFELIKE: dict[str, Any] = {"drift": 4.0, "sequences": 0.5}


def models(
    name: Annotated[str | None, typer.Argument(help="Name of a model.", show_default=False)] = None,
    *,
    answer: output.Answer,
) -> None:
    """List the models, or the parameters of one.

    Example: transcf models transcf-mixture
    """
    from transcf.models.registry import describe

    if name is None:
        listed = [describe(known, whole=False) for known in transcf.available()]
        note = "`transcf models NAME` shows the parameters of one; --set NAME=VALUE sets them."
        summaries = [(entry["name"], entry["summary"]) for entry in listed]
        table = output.values_table("Models", ("name", "what it does"), summaries, [note])
        answer.show(listed, table)
        return
    described = describe(name)
    rows = [
        (parameter, str(about["default"]), about["allowed"], about["meaning"])
        for parameter, about in described["parameters"].items()
    ]
    title = f"{described['name']} ({described['class']}): {described['summary']}"
    columns = ("parameter", "default", "allowed", "meaning")
    answer.show(described, output.values_table(title, columns, rows))


def doctor(warm_up: bool = False, *, answer: output.Answer) -> None:
    """Show versions, threads, extras and the data folder.

    Options:
        warm_up: Compile all kernels first, for container images.

    Example: transcf doctor
    """
    if warm_up:
        _compile_kernels()
    found = _examine()
    versions = {"transcf": found["transcf"], "python": found["python"], **found["packages"]}
    extras = {
        name: "present" if here else "not installed" for name, here in found["extras"].items()
    }
    tables = {"Versions": versions, "Machine": found["machine"], "Extras": extras}
    answer.show(found, *(output.facts_table(*each) for each in tables.items()))


def _compile_kernels() -> None:
    """Fit, evaluate and query every model without torch on a small log, to fill the cache."""
    from transcf.data.splitters import split_log

    log = transcf.synthesize(users=200, items=100, interactions=3000, **_LIFELIKE)
    split = split_log(log)
    history = split.train.items.series[:5].to_list()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs on a small log teach little
        for name in (name for name in transcf.available() if name not in _NOT_COMPILED):
            model, validation = transcf.create(name), None
            if "epochs" in model.get_params():
                model = transcf.create(name, epochs=2)
                validation = transcf.Validation.of(split)
            model.fit(split.train, validation)
            transcf.evaluate(model.refit(split.before_test), split)
            model.recommend(split.train.users.series[:20], k=5)
            with suppress(transcf.TransCFError):  # without fold-in
                model.recommend_for(history, k=5)


def _examine() -> dict[str, Any]:
    import numpy as np

    libraries: Any = np.show_config(mode="dicts")
    blas = libraries["Build Dependencies"]["blas"]
    return {
        "transcf": transcf.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": {
            "system": platform.platform(terse=True),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": thread_count(),
            "blas": f"{blas['name']} {blas['version']}",
            "data_folder": os.environ.get("TRANSCF_DATA"),
        },
        "extras": {
            extra: all(find_spec(module) is not None for module in modules)
            for extra, modules in EXTRAS.items()
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def demo(answer: output.Answer) -> None:
    """Take a tour: data, models, recommendations, explanations.

    Example: transcf demo
    """
    from transcf.data.splitters import split_log
    from transcf.experiments.experiment import Candidate, Experiment, compare_models
    from transcf.experiments.report import table_of
    from transcf.experiments.run import EvalConfig

    started = time.perf_counter()
    log = transcf.synthesize(**_LIFELIKE, seed=0)
    split, fitted = split_log(log), list[transcf.Recommender[Any]]()

    class Kept(Candidate):
        """A candidate whose models are kept, so that the best one is not fitted twice."""

        def make(self, seed: int, choice: Any = None) -> transcf.Recommender[Any]:
            fitted.append(super().make(seed, choice))
            return fitted[-1]

    candidates = [Kept(name, name, params) for name, params in _DEMO_MODELS.items()]
    found = compare_models("synthetic data", candidates, Experiment(split, EvalConfig()), "NDCG@10")
    user = split.train.users.series[0]
    served = fitted[-1]  # the comparison has fitted it on all events before the test
    table = served.recommend(user, k=5)
    explanation = served.explain(user, table["item_id"][0], top=3)
    history = split.train.items.ids(split.train.by_user.row(1)).to_list()[:5]
    folded = served.recommend_for(history, k=5)
    facts = {
        "models": [done.to_dict() for done in found.runs],
        "recommendations": table.to_dicts(),
        "explanation": explanation.to_dict(),
        "history": history,
        "folded_in": folded.to_dicts(),
        "seconds": round(time.perf_counter() - started, 3),
    }
    listed = ", ".join(map(str, history))
    answer.show(
        facts,
        f"Generated a log: {log!r}\n",
        table_of(found),
        "",
        lists_table(f"{served.name} recommends to {user}", [table]),
        f"\nWhy?\n{explanation}\n",
        lists_table(f"{served.name} recommends to a new user with {listed}", [folded]),
        f"Done in {facts['seconds']:.1f} s.",
    )
