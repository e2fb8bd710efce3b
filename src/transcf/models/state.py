"""From a fitted model to what a folder holds, and back."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from transcf.errors import ModelFileError, ParameterError
from transcf.io.model_dir import StoredModel, read_model
from transcf.models.aliases import from_format_2
from transcf.models.params import nested_params, values_of
from transcf.models.registry import HOMES
from transcf.models.training_data import TrainingData

if TYPE_CHECKING:
    from transcf.models.base import Recommender

M = TypeVar("M", bound="Recommender[Any]")


def to_state(model: Recommender[Any]) -> StoredModel:
    """Return what a folder holds of a fitted model.

    Raises:
        ParameterError: Its class is not registered, so `load` could not read it.
    """
    kind, known = type(model), model.learned_.known
    if kind.__name__ not in HOMES:
        raise ParameterError(
            f"There is no registered class {kind.__name__!r}: transcf.load could not read what it "
            "saved."
        )
    return StoredModel(
        kind=kind.__name__,
        summary=inspect.cleandoc(kind.__doc__ or "").split("\n")[0],
        params=values_of(model.settings_),
        report=model.report_,
        best_epoch=model.best_epoch_,
        additions=model.additions_,
        users=known.users,
        items=known.items,
        seen=known.seen,
        histories=known.histories,
        timed=known.timed,
        arrays=model.learned_.stored_arrays(),
    )


def read_stored(folder: str | Path, *, mapped: bool | None = None) -> StoredModel:
    """Read a folder, with the names that models and parameters have now.

    Raises:
        ModelFileError: It cannot be read, or holds a model that does not exist any more.
    """
    stored = read_model(folder, mapped=mapped)
    if stored.version > 2:
        return stored
    try:
        kind, params = from_format_2(stored.kind, stored.params)
    except ParameterError as error:
        raise ModelFileError(f"{folder} cannot be loaded: {error}") from error
    return replace(stored, kind=kind, params=params)


def from_state(kind: type[M], stored: StoredModel, folder: str | Path) -> M:
    """Return the model that was read from a folder.

    Raises:
        ParameterError: It is of another class.
        ModelFileError: Its parameters or arrays are not those of its class.
    """
    if stored.kind != kind.__name__:
        raise ParameterError(
            f"{folder} holds a {stored.kind}, not a {kind.__name__}: use {stored.kind}.load or "
            "transcf.load."
        )
    try:
        kind._check_names(stored.params)
        model: M = kind(**nested_params(kind._settings_class, stored.params))
        model._check_params()
    except ParameterError as error:
        raise ModelFileError(
            f"{folder} holds a model that this version of transcf cannot make: {error}"
        ) from error
    known = TrainingData(stored.users, stored.items, stored.seen, stored.histories, stored.timed)
    try:
        model.learned_ = model._restore_with_offsets(stored.arrays, known)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{folder} does not hold the arrays of a {kind.__name__}: {error}."
        ) from error
    model.report_, model.settings_ = stored.report, model._settings_for(known)
    model.best_epoch_, model.additions_ = stored.best_epoch, stored.additions
    return model
