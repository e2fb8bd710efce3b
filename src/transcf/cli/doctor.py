"""`transcf doctor`: what this installation consists of."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from transcf import __version__
from transcf.cli._output import JsonFlag, print_facts, print_json
from transcf.parallel import thread_count

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


def doctor(as_json: JsonFlag = False) -> None:
    """Show versions, threads, BLAS, extras and where datasets are looked for."""
    found = _examine()
    if as_json:
        print_json(found)
        return
    versions = {"transcf": found["transcf"], "python": found["python"], **found["packages"]}
    print_facts("Versions", versions)
    print_facts("Machine", found["machine"])
    print_facts("Extras", {name: _words(present) for name, present in found["extras"].items()})


def _examine() -> dict[str, Any]:
    import numpy as np

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
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _words(present: bool) -> str:
    return "present" if present else "not installed"
