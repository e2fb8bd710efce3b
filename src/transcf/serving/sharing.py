"""One copy of the item vectors for all workers, also where the score needs them in another form.

What a model has learned is mapped from its files, which the system keeps in memory once. Many
scores are inner products of something made from it (a bias in front, say): that lies in a file of
its own, made by the worker that comes first, which all of them map.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from transcf.data.atomic import atomic_write
from transcf.models.fitted import FittedScorer

#: Where workers find the folder that they share; without it nothing is shared.
FOLDER = "TRANSCF_SHARED"


def share_vectors(learned: FittedScorer, name: str) -> None:
    """Map the item side of a linear form from a file, if workers share a folder.

    Args:
        learned: What scores; other scores than inner products are left as they are.
        name: Of the version and its files, such that the same name means the same vectors.
    """
    folder, form = os.environ.get(FOLDER), learned.linear_form()
    if folder is None or form is None:
        return
    path = Path(folder, f"{name}.npy")
    if not path.exists():
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, form.item_vectors)
        for older in Path(folder).glob("*.npy"):
            if older != path:  # who has it mapped keeps it
                older.unlink(missing_ok=True)
    try:
        form.item_vectors = np.asarray(np.load(path, mmap_mode="r"))
    except FileNotFoundError:  # a later version has come meanwhile: this one keeps its own
        return
