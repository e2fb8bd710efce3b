"""Keys of runs: a hash of everything that can change a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.evaluation import Validation
from transcf.experiments.eval_config import EvalConfig
from transcf.models.base import Recommender
from transcf.models.params import values_of

#: A trial chooses parameters on the validation part; a judged run is evaluated for a table.
Kind: TypeAlias = Literal["trial", "judged"]


@dataclass(frozen=True)
class RunKey:
    """What a result depends on; names of data and models are not part of it.

    Attributes:
        kind: Trial or evaluation.
        data: Digest of the training part of a trial, else of the whole split.
        rules: How the run is evaluated.
        model: Class of the model.
        settings: All parameters, including the seed.
        version: Version of the library.
        generation: `Recommender._revision`; raised by changes of the library that change results.
    """

    kind: Kind
    data: str
    rules: Mapping[str, Any]
    model: str
    settings: Mapping[str, Any]
    version: str = __version__
    generation: int = 1

    @classmethod
    def trial(cls, model: Recommender[Any], train: Interactions, validation: Validation) -> Self:
        """Return the key of a trial; it does not depend on the test part.

        Example:
            >>> from transcf import EASE, open_split
            >>> split = open_split("synthetic")
            >>> keys = [
            ...     RunKey.trial(EASE(regularization=value), split.train, Validation.of(split))
            ...     for value in (50, 50.0, 60.0)
            ... ]
            >>> keys[0].digest == keys[1].digest, keys[0].digest == keys[2].digest
            (True, False)
        """
        rules = {"metric": validation.metric, "validation": validation.fingerprint}
        return cls("trial", train.digest, rules, *_about(model))

    @classmethod
    def evaluated(cls, model: Recommender[Any], split: Split, config: EvalConfig) -> Self:
        """Return the key of an evaluation by a protocol; `config` names the protocol."""
        rules = {
            "protocol": config.protocol,
            "ties": config.ties,
            "part": config.part,
            "at": list(config.at),
            "beyond": config.beyond,
            "split": split.how,
            "validated": config.with_validation,
        }
        return cls("judged", split.digest, rules, *_about(model))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON form; the same for numbers that mean the same, such as 50 and 50.0."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _plain(value) for name, value in content.items()}


def _about(model: Recommender[Any]) -> tuple[str, dict[str, Any], str, int]:
    """Return the parts of a key that depend on the model and the library."""
    return type(model).__name__, values_of(model.settings), __version__, model._revision


def _plain(value: Any) -> Any:
    """Convert to JSON types, the same for equal numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return int(value) if value.is_integer() else value if np.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)
