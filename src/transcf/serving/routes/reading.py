"""A path and a query as a pydantic model, read in one go.

FastAPI reads parameters one by one, which takes a third of the time of a short request with seven
of them. Routes that are asked all the time read theirs here, and say in `described` what they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


def read(kind: type[M], request: Request) -> M:
    """Read what a request asks for; of a parameter that comes twice the last one counts.

    Args:
        kind: What to make of it: parameters of the path and the query are its fields, and fields
            that are lists may come several times.
        request: The request.

    Raises:
        RequestValidationError: Something is not as described.
    """
    several, values = _lists_of(kind), dict[str, Any]()
    for name, value in request.query_params.multi_items():
        if name in several:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return kind.model_validate(values | request.path_params)
    except ValidationError as error:
        found = [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


@lru_cache
def _lists_of(kind: type[BaseModel]) -> frozenset[str]:
    fields = kind.model_fields.items()
    return frozenset(name for name, field in fields if get_origin(field.annotation) is list)


def described(kind: type[BaseModel], *path: str) -> dict[str, Any]:
    """Return the parameters for the description of a route; `path` names those of its path."""
    schema = kind.model_json_schema()
    parameters = []
    for name, about in schema["properties"].items():
        words = {"description": about.pop("description", "")}
        place = {"name": name, "in": "path" if name in path else "query"}
        needed = {"required": name in schema.get("required", ())}
        parameters.append({**place, **needed, **words, "schema": about})
    return {"parameters": parameters}
