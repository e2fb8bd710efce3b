"""A service that answers, and learns of new events: one model folder, HTTP and JSON.

Names are imported when they are first used: they need the extra `serve`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transcf.errors import MissingExtraError

if TYPE_CHECKING:
    from transcf.serving.async_client import AsyncClient as AsyncClient
    from transcf.serving.client import Client as Client

_HOMES = {"AsyncClient": "async_client", "Client": "client"}

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transcf.serving' has no attribute {name!r}")
    try:
        return getattr(import_module(f"transcf.serving.{_HOMES[name]}"), name)
    except ImportError as error:
        raise MissingExtraError("The client", "serve") from error
