"""What the models trained with torch share: `NeuralModel`, random draws and negative samples.

This module does not import torch, so that models can be listed, loaded and served without it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import Rows
from transcf.errors import MissingExtraError, ParameterError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.base import Recommender
from transcf.models.event_weights import InteractionWeights
from transcf.models.families import Device, NeuralSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.training import TrainingRun

S = TypeVar("S", bound=NeuralSettings)
Integers: TypeAlias = npt.NDArray[np.int64]

#: Draws per binary search, which bounds the memory of an epoch.
_DRAWS_AT_ONCE = 2**20
#: Purposes of a random generator.
INIT, ORDER, NEGATIVES, NOISE = 0, 1, 2, 3


class NeuralModel(Recommender[S]):
    """Base of the models that are trained with torch; `networks` has the network of each."""

    def _learn(self, run: TrainingRun) -> FittedScorer:
        device = find_device(self.name, run.settings.device)
        from transcf.models.torch import networks

        kind = getattr(networks, f"{self.name}Network")
        training = networks.AdamTraining(kind, *self._events(run), run.settings, device)
        return run.run(training, self._snapshot)

    def _events(self, run: TrainingRun) -> tuple[Any, Array]:
        """Return what the network learns from, and the weights of its events."""
        events = InteractionWeights.of(run.train, run.settings.event_weights)
        return run.train.by_user, events.overall

    def _snapshot(self, tensors: Arrays, known: TrainingData, settings: S) -> FittedScorer:
        return self._restore(self._arrays(tensors, known, settings), known, settings)

    @abstractmethod
    def _arrays(self, tensors: Arrays, known: TrainingData, settings: S) -> Arrays:
        """Return the arrays of the model, from the tensors of its network; none are shared."""


def stored_weights(arrays: Arrays, shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Check the arrays of a file that have these shapes."""
    return {name: checked(arrays, name, np.float32, shape) for name, shape in shapes.items()}


def find_device(model: str, device: Device) -> Any:
    """Return the `torch.device` to train a model on; "auto" prefers CUDA."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(f"Fitting {model}", "neural") from error
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ParameterError(
            f"{model}: device='cuda' is not there (torch {torch.__version__} finds no CUDA "
            "device): use device='auto' or 'cpu'."
        )
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


def generator(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """Return the random generator of an epoch and purpose; earlier epochs do not affect it."""
    return np.random.default_rng((seed, epoch, purpose))


class UnseenItems:
    """Draws uniformly among the trained items that a user does not have, without rejections.

    If the user's k-th item (from 0) is the s_k-th trained item, s_k - k unseen items precede it.
    The r-th unseen item therefore follows all k with s_k - k <= r, which a binary search counts.
    """

    def __init__(self, by_user: Csr) -> None:
        trained = np.bincount(by_user.indices, minlength=by_user.n_columns) > 0
        self._items = np.flatnonzero(trained).astype(np.int32)
        self._starts = by_user.indptr
        slots = (np.cumsum(trained) - 1)[by_user.indices]
        rows = by_user.entry_rows.astype(np.int64)
        nth = np.arange(len(slots)) - self._starts[rows]
        # Keys of different users do not overlap: one sorted array serves all users.
        self._apart = len(self._items) + 1
        self._keys: Integers = rows * self._apart + slots - nth
        #: (n_users,) number of unseen items of each user.
        self.lacking: Integers = len(self._items) - by_user.counts

    def draw(self, users: Rows, count: int, rng: np.random.Generator) -> Rows:
        """Draw `count` items for each user row; each user needs an unseen item: (n, count)."""
        drawn = np.empty((len(users), count), np.int32)
        step = max(1, _DRAWS_AT_ONCE // count)
        for start in range(0, len(users), step):
            some = users[start : start + step, None].astype(np.int64)
            nth = (rng.random((len(some), count)) * self.lacking[some]).astype(np.int64)
            wanted = some * self._apart + nth
            before = np.searchsorted(self._keys, wanted.ravel(), side="right").reshape(nth.shape)
            drawn[start : start + step] = self._items[nth + before - self._starts[some]]
        return drawn
