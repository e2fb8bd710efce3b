"""Adam for tables of which a batch touches few rows, and for small dense parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from transcf.io.tensors import Arrays
from transcf.kernels import Array

#: What torch's Adam keeps of each parameter.
_STATE = ("step", "exp_avg", "exp_avg_sq")
_MEAN_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class Taken(NamedTuple):
    """Some rows of a table.

    Attributes:
        rows: (n,) which ones, each once.
        packed: (n, 3 width) copies of the values and both moments.
        values: (n, width) the values, a leaf of the graph of gradients.
    """

    rows: torch.Tensor
    packed: torch.Tensor
    values: torch.Tensor


class RowTable:
    """Vectors that are trained by Adam, row by row.

    A step touches only the rows that it has gradients for, and each row has its own clock: it is
    where Adam would be if the table were that row alone. So a step costs as much as its batch,
    however many users there are. Values and moments lie side by side: one access fetches all.
    """

    def __init__(self, values: Array, learning_rate: float, device: torch.device) -> None:
        """Start from values, (n, width)."""
        self._width = values.shape[1]
        #: Step size; may change from step to step.
        self.rate = learning_rate
        packed = np.zeros((len(values), 3 * self._width), values.dtype)
        packed[:, : self._width] = values
        self._packed = put(packed, device)
        self._clocks = torch.zeros(len(values), dtype=self._packed.dtype, device=device)

    @property
    def values(self) -> Array:
        """(n, width) the present values, a view or a copy."""
        view: Array = self._packed[:, : self._width].cpu().numpy()
        return view

    def take(self, rows: torch.Tensor) -> Taken:
        """Fetch rows, each of which is named once."""
        packed = self._packed.index_select(0, rows)
        return Taken(rows, packed, packed[:, : self._width].detach().clone().requires_grad_())

    def step(self, taken: Taken, gradient: torch.Tensor) -> None:
        """Move the taken rows along their gradient, (n, width), and put them back."""
        with torch.no_grad():
            clocks = self._clocks.index_select(0, taken.rows).add_(1)
            values, mean, square = torch.split(taken.packed, self._width, dim=1)
            mean.lerp_(gradient, 1 - _MEAN_DECAY)
            square.mul_(_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - _SQUARE_DECAY)
            root = square / (1 - _SQUARE_DECAY**clocks)[:, None]
            root.sqrt_().add_(_EPSILON)
            rate = self.rate / (1 - _MEAN_DECAY**clocks)
            values.sub_((mean * rate[:, None]).div_(root))
            self._packed.index_copy_(0, taken.rows, taken.packed)
            self._clocks.index_copy_(0, taken.rows, clocks)

    def restart(self) -> None:
        """Forget the moments."""
        self._packed[:, self._width :] = 0
        self._clocks.zero_()

    def tensors(self, name: str) -> Arrays:
        """Return all that has to be kept, by names that begin with `name`."""
        return {
            f"{name}.rows": self._packed.cpu().numpy(),
            f"{name}.clocks": self._clocks.cpu().numpy(),
        }

    def load(self, name: str, tensors: Arrays) -> None:
        """Take back what `tensors` returned."""
        _overwrite(self._packed, tensors[f"{name}.rows"])
        _overwrite(self._clocks, tensors[f"{name}.clocks"])


class DenseParameters:
    """Parameters that every batch touches, trained by Adam."""

    def __init__(self, values: Arrays, rate: float, device: torch.device) -> None:
        """Start from values by name."""
        self.values = {name: put(value, device).requires_grad_() for name, value in values.items()}
        self._rate = rate
        self.restart()

    def restart(self) -> None:
        """Forget the moments."""
        self._adam = torch.optim.Adam(self.values.values(), lr=self._rate, fused=True)
        for tensor in self.values.values():
            # As Adam itself would make it at its first step: needed before to be saved.
            self._adam.state[tensor] = {
                "step": torch.zeros((), dtype=torch.float32, device=tensor.device),
                "exp_avg": torch.zeros_like(tensor, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(tensor, requires_grad=False),
            }

    def step(self, gradients: dict[str, torch.Tensor]) -> None:
        """Move along the gradients."""
        for name, tensor in self.values.items():
            tensor.grad = gradients[name]
        self._adam.step()

    def arrays(self) -> Arrays:
        """Return the present values by name."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.values.items()}

    def assign(self, values: Arrays) -> None:
        """Change the values, by name."""
        for name, tensor in self.values.items():
            _overwrite(tensor, values[name])

    def tensors(self) -> Arrays:
        """Return all that has to be kept."""
        kept = self.arrays()
        for name, tensor in self.values.items():
            state = self._adam.state[tensor]
            for part in _STATE:
                kept[f"{name}.{part}"] = state[part].cpu().numpy()
        return kept

    def load(self, tensors: Arrays) -> None:
        """Take back what `tensors` returned."""
        self.assign(tensors)
        for name, tensor in self.values.items():
            for part in _STATE:
                _overwrite(self._adam.state[tensor][part], tensors[f"{name}.{part}"])


def put(array: Array, device: torch.device) -> torch.Tensor:
    """Copy an array to the device."""
    return torch.from_numpy(np.array(array)).to(device)


def distinct(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the different rows, the place of each row among them, and how often each occurs."""
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.unique(
        rows, return_inverse=True, return_counts=True
    )
    return found


def pull(gradient: torch.Tensor, taken: Taken, uses: torch.Tensor, weight: float) -> torch.Tensor:
    """Add the gradient of `weight * uses * |values|^2` in place, (n, width), uses (n,)."""
    if weight:
        factors = uses.to(gradient.dtype) * (2 * weight)
        gradient.addcmul_(taken.values.detach(), factors[:, None])
    return gradient


def _overwrite(tensor: torch.Tensor, array: Array) -> None:
    """Copy an array, maybe a read-only one, into a tensor of as many numbers."""
    with torch.no_grad():
        tensor.copy_(put(array, tensor.device).reshape(tensor.shape))
