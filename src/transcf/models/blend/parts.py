"""The parts of a blend as a text: names of models, each with parameters where they are set.

    ease(regularization=100.0) + transcf-mixture

Values are numbers, words in quotes, True, False and None; nothing in a text is ever run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transcf.errors import ParameterError, shown
from transcf.models.params import Text, params_of
from transcf.models.registry import canonical_name, create, model_class, name_and_params

if TYPE_CHECKING:
    from transcf.models.base import Recommender

#: What a blend is called in the registry; it cannot be a part.
BLEND = "blend"

#: A name, what is in parentheses after it (quotes may hold parentheses), and what follows.
_PART = re.compile(
    r"""\s*([A-Za-z][\w-]*)\s*(\((?:[^()'"]|'[^']*'|"[^"]*")*\))?\s*(\+|$)""",
)
_SEED = "random_state"


@dataclass(frozen=True)
class Part:
    """One part of a blend.

    Attributes:
        name: That of the registry.
        params: Parameters that are set.
    """

    name: str
    params: Mapping[str, Any]

    @classmethod
    def of(cls, model: Recommender[Any]) -> Part:
        """Return the part that a fitted model is, by the settings that it was fitted with."""
        fitted = type(model)(**params_of(model.settings_))
        name, params = name_and_params(fitted)
        plain = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in params.items()
        }
        return cls(name, plain)

    def make(self, random_state: int) -> Recommender[Any]:
        """Make the model, with a general seed unless it has one of its own."""
        has_seed = _SEED in model_class(self.name)._rules()
        general = {_SEED: random_state} if has_seed else {}
        return create(self.name, **{**general, **self.params})

    def __str__(self) -> str:
        """Write it as it is read."""
        values = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        return f"{self.name}({values})" if values else self.name


def read_parts(text: str) -> tuple[Part, ...]:
    """Read the parts of a blend.

    Args:
        text: Names and parameters, joined by +.

    Raises:
        ParameterError: It is no such text; there is no such model or parameter; a value is not
            allowed; a part is a blend, or the same as another.

    Example:
        >>> [str(part) for part in read_parts("EASE + bpr( dim=8 )")]
        ['ease', 'bpr(dim=8)']
    """
    parts: list[Part] = []
    place, joined = 0, True
    while joined:
        found = _PART.match(text, place)
        if found is None:
            rest = text[place:].strip()
            wrong = f"from {shown(rest)} on it is not understood" if rest else "nothing follows"
            raise ParameterError(f"{wrong}, where a model is expected.")
        parts.append(_part(found[1], found[2] or "()"))
        place, joined = found.end(), found[3] == "+"
    if len(parts) < 2:
        raise ParameterError(f"{parts[0]} alone is no blend: name another part.")
    for number, part in enumerate(parts):
        if part in parts[:number]:
            raise ParameterError(f"{part} is there twice: leave one out, or set it otherwise.")
    return tuple(parts)


def written(parts: Iterable[Part]) -> str:
    """Write parts as `read_parts` reads them."""
    return " + ".join(map(str, parts))


def _part(name: str, values: str) -> Part:
    """Make one part of a name and of what is in parentheses after it, and check it."""
    name = canonical_name(name)
    if name == BLEND:
        raise ParameterError("a blend cannot be part of a blend: name its parts instead.")
    part = Part(name, _params(name, values))
    made = part.make(0)
    made._check_params()
    return part


def _params(name: str, values: str) -> dict[str, Any]:
    """Read `(name=value, ...)`; values are literals, so nothing can run."""
    params: dict[str, Any] = {}
    try:
        call = ast.parse(f"f{' '.join(values.splitlines())}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("parameters are given by name")
        for entry in call.keywords:
            if entry.arg is None or entry.arg in params:
                raise ValueError("every parameter is given once, by name")
            params[entry.arg] = ast.literal_eval(entry.value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ParameterError(
            f"{shown(values)} after {name} is not understood: write (name=value, ...) with "
            "numbers, words in quotes, True, False or None."
        ) from error
    return params


#: What the setting `parts` allows.
PARTS = Text("models joined by +, such as 'ease(regularization=100.0) + bpr'", read_parts)
