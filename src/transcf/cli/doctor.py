"""`transcf doctor`: what this installation consists of."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from transcf import __version__
from transcf.cli._output import JsonFlag, print_facts, print_json

#: Packages that the library itself needs, and modules that each extra brings.
_PACKAGES = ("numpy", "scipy", "polars", "numba", "safetensors", "typer", "rich")
EXTRAS = {
    "cluster": ("ray",),
    "hdf5": ("h5py",),
    "index": ("faiss",),
    "lancedb": ("lancedb",),
    "neural": ("torch",),
    "pgvector": ("psycopg", "pgvector"),
    "plots": ("matplotlib", "jinja2", "sklearn"),
    "serve": ("fastapi", "uvicorn", "prometheus_client", "psycopg", "plotly", "httpx"),
    "tune": ("optuna", "psycopg", "sklearn"),
}

#: Models on torch, models of other models, and models that need categories or friends.
_NOT_COMPILED = {
    "blend", "cdae", "lightgcn", "neumf", "transcf-attention", "transcf-categories",
    "transcf-friends", "transcf-map",
}  # fmt: skip


def doctor(
    warm_up: Annotated[
        bool, typer.Option("--warm-up", help="Compile all kernels first, for container images.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show versions, threads, BLAS, extras and where datasets are looked for."""
    if warm_up:
        _compile_kernels()
    found = _examine()
    if as_json:
        print_json(found)
        return
    versions = {"transcf": found["transcf"], "python": found["python"], **found["packages"]}
    print_facts("Versions", versions)
    print_facts("Machine", found["machine"])
    print_facts("Extras", {name: _words(present) for name, present in found["extras"].items()})


def _compile_kernels() -> None:
    """Fit, evaluate and query every model without torch on a small log, to fill the cache."""
    import warnings
    from contextlib import suppress

    from transcf import Validation, available, create, evaluate
    from transcf.data.splitters import split_log
    from transcf.data.synthetic import synthesize
    from transcf.errors import TransCFError

    split = split_log(synthesize(users=200, items=100, interactions=3000, drift=4.0, sequences=0.5))
    history = split.train.items.series[:5].to_list()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs on a small log teach little
        for name in (name for name in available() if name not in _NOT_COMPILED):
            model = create(name)
            if "epochs" in model.get_params():
                model = create(name, epochs=2).fit(split.train, Validation.of(split))
            else:
                model = model.fit(split.train)
            evaluate(model.refit(split.before_test), split)
            model.recommend(split.train.users.series[:20], k=5)
            with suppress(TransCFError):  # without fold-in
                model.recommend_for(history, k=5)


def _examine() -> dict[str, Any]:
    import platform
    from importlib.util import find_spec

    import numpy as np

    from transcf.parallel import thread_count

    libraries: Any = np.show_config(mode="dicts")
    blas = libraries["Build Dependencies"]["blas"]
    return {
        "transcf": __version__,
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
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _words(present: bool) -> str:
    return "present" if present else "not installed"
