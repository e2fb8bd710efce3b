"""What tests share: where real data is, and small logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Kernels compile at first use: a time limit per example would judge the compiler.
settings.register_profile("transcf", deadline=None)
settings.load_profile("transcf")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return the folder of a real dataset, or skip the test when it is not there."""

    def find(name: str) -> Path:
        places = [os.environ.get("TRANSCF_DATA"), ROOT.parent / "shared" / "datasets"]
        for place in filter(None, places):
            if (folder := Path(place) / name).is_dir():
                return folder
        pytest.skip(f"real dataset {name!r} is not here: set TRANSCF_DATA to its parent folder")

    return find
