"""An HTTP service that recommends, stores events and retrains; clients for it.

Names are imported on first use: they need the extra `serve`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transcf.errors import needs_extra

if TYPE_CHECKING:
    from transcf.serving.client import AsyncClient as AsyncClient
    from transcf.serving.client import Client as Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'transcf.serving' has no attribute {name!r}")
    with needs_extra("The client", "serve"):
        return getattr(import_module("transcf.serving.client"), name)
