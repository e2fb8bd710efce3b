"""Compiled kernels are kept from their first use on, as long as all sources are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transcf.errors import ParameterError
from transcf.kernels._cache import STAMP, Source, forget_stale, sources_in
from transcf.kernels.translation import Rates, register_form

FORM = """
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS, NoTranslation


class Plain(NoTranslation):
    name, title = "plain", "TransCF-plain"

    @staticmethod
    def cost(a, q, b, n):
        return {sign}a * b

    @staticmethod
    def slope(g, a, q, b, n):
        return {sign}g * b, g - g, {sign}g * a, g - g


SCORE_FUNCTIONS["plain"] = Plain()
"""
FIT = """
import numpy as np
import scipy.sparse as sp
{imports}
from transcf.learning.triples import Problem
from transcf.models.transcf.fast import FastSolver
from transcf.models.transcf.parameters import first_parameters
from transcf.models.transcf.settings import TransCFSettings

matrix = sp.csr_array(np.random.default_rng(0).random((30, 20)) < 0.3)
problem = Problem.from_csr(matrix.indptr, matrix.indices, 20)
settings = TransCFSettings(variant="{form}", dim=4)
found, _ = FastSolver(problem, settings).epoch(first_parameters(problem, settings), 1)
print(found.items.sum())
"""


@pytest.fixture
def kept(tmp_path: Path) -> list[Path]:
    """Files as numba leaves them in a cache, and one that is not its own."""
    source, cache = tmp_path / "kernel.py", tmp_path / "cache"
    source.write_text("x = 1")
    forget_stale(cache, sources_in(tmp_path, "transcf"), [])
    paths = [cache / "kernel.f-1.py311.nbi", cache / "kernel.f-1.py311.1.nbc"]
    for path in (*paths, cache / "kernel.cpython-311.pyc"):
        path.write_bytes(b"compiled")
    return paths


def test_what_is_compiled_goes_when_any_source_changes(tmp_path: Path, kept: list[Path]) -> None:
    cache = tmp_path / "cache"
    forget_stale(cache, sources_in(tmp_path, "transcf"), [])
    assert all(path.exists() for path in kept)
    os.utime(tmp_path / "kernel.py", ns=(0, 0))
    forget_stale(cache, sources_in(tmp_path, "transcf"), [])
    assert not any(path.exists() for path in kept)
    assert (cache / "kernel.cpython-311.pyc").exists()


@pytest.mark.parametrize("fate", ["changed", "gone", "not importable"])
def test_sources_that_another_process_has_noted_count(
    tmp_path: Path, kept: list[Path], fate: str
) -> None:
    cache, form = tmp_path / "cache", tmp_path / "forms" / "form.py"
    own = sources_in(tmp_path, "transcf")
    form.parent.mkdir()
    form.write_text("x = 1")
    module = "no_such_package.form" if fate == "not importable" else "transcf.form"
    forget_stale(cache, own, [Source(module, form)])
    assert all(path.exists() for path in kept)
    if fate == "changed":
        form.write_text("x = 10")
    elif fate == "gone":
        form.unlink()
    forget_stale(cache, own, [])
    assert not any(path.exists() for path in kept)
    assert "form" not in (cache / STAMP).read_text()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the library in which nothing has been compiled."""
    import transcf

    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(transcf.__file__).parent, copy / "transcf", ignore=ignored)
    return copy


def run(script: str, *folders: Path) -> str:
    paths = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-B", "-c", script]
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_OPT": "0"}  # quick to compile
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_import_changes_nothing_on_disk_or_in_the_environment(library: Path) -> None:
    before = sorted(library.rglob("*"))
    script = """
import os
import numba, polars, scipy.sparse
given = dict(os.environ)
import pkgutil, importlib, transcf.kernels, transcf.models.transcf
for module in pkgutil.iter_modules(transcf.kernels.__path__):
    importlib.import_module(f"transcf.kernels.{module.name}")
assert dict(os.environ) == given
"""
    run(script, library)
    assert sorted(library.rglob("*")) == before


def test_kernels_follow_a_form_of_another_module(library: Path, tmp_path: Path) -> None:
    """A form that changes, and one that is out of reach, are not found in old kernels."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_form.py").write_text(FORM.format(sign=""))
    own = FIT.format(imports="import my_form", form="plain")
    first = run(own, library, folder)
    assert run(own, library, folder) == first
    (folder / "my_form.py").write_text(FORM.format(sign="-"))
    assert run(own, library, folder) != first
    run(FIT.format(imports="", form="translation"), library)


def test_a_form_of_the_main_program_is_refused() -> None:
    kind = type("Mine", (Rates,), {"__module__": "__main__"})
    with pytest.raises(ParameterError, match="Mine is defined in the main program"):
        register_form(kind, lambda a, q, b, n: a, lambda g, a, q, b, n: (a, q, b, n))
