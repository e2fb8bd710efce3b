"""From scores to ranked lists, exactly and in bounded memory.

Names are imported when they are first used: models need `scorer` alone, without compiled code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcf.retrieval.forms import LinearForm, StoredForm
    from transcf.retrieval.scorer import Scorer
    from transcf.retrieval.topk import top_k

__all__ = ["LinearForm", "Scorer", "StoredForm", "top_k"]

_HOMES = {
    "LinearForm": "transcf.retrieval.forms",
    "Scorer": "transcf.retrieval.scorer",
    "StoredForm": "transcf.retrieval.forms",
    "top_k": "transcf.retrieval.topk",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
