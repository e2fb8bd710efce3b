"""Torch itself: found when it is needed, on the wanted device, and left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from transcf.errors import MissingExtraError, ParameterError
from transcf.models.families import Device


def torch_library(model: str) -> ModuleType:
    """Return the module `torch`.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(f"Fitting {model}", "neural") from error
    return torch


def find_device(model: str, device: Device) -> Any:
    """Return the `torch.device` that a model is to be trained on.

    Args:
        model: Who asks, for errors.
        device: "auto" takes a CUDA device if there is one.

    Raises:
        MissingExtraError: Torch is not installed.
        ParameterError: CUDA was asked for and is not there.
    """
    torch = torch_library(model)
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ParameterError(
            f"{model}: device='cuda' is not there (torch {torch.__version__} finds no CUDA "
            "device): use device='auto' or 'cpu'."
        )
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread with gradients, and put back what was set before.

    Matrix products and sums add in an order that depends on the number of threads: with one,
    the same seed gives the same bits whatever a caller has set.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(before)
