"""What tests share: where real data is, and small logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Tests of thread counts need threads to choose from, on a machine of any size.
os.environ.setdefault("NUMBA_NUM_THREADS", "4")

import numba
import pytest
from hypothesis import settings

# Kernels compile at first use: a time limit per example would judge the compiler.
settings.register_profile("transcf", deadline=None)
settings.load_profile("transcf")

numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))

# As the Makefile does it, for those who call pytest by themselves.
_DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"
if _DATASETS.is_dir():
    os.environ.setdefault("TRANSCF_DATA", str(_DATASETS))


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return the folder of a real dataset, or skip the test when it is not there."""

    def find(name: str) -> Path:
        root = os.environ.get("TRANSCF_DATA")
        if root and (folder := Path(root) / name).is_dir():
            return folder
        pytest.skip(f"real dataset {name!r} is not here: set TRANSCF_DATA to its parent folder")

    return find
