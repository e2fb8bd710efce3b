"""The list of models: the module of each class, its names and presets; `create`, `save` and `load`.

A class is imported when it is asked for. Its `name` is what tables and commands call it; a class
with `_variants` has several names, each with parameters of its own. Presets are named parameters
in `presets.toml`, some of them for single datasets; they belong to a class, so that the ablations
of a model share them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcf.errors import ModelFileError, ParameterError, did_you_mean, shown
from transcf.models import aliases
from transcf.models.params import flat_fields, flat_params, nested_params, values_of

if TYPE_CHECKING:
    from transcf.data.training_data import TrainingData
    from transcf.io.tensors import Arrays
    from transcf.models.base import Recommender

#: Module of each class, in the order of tables.
HOMES = {
    "Popularity": "baselines",
    "RecentPopularity": "baselines",
    "InversePopularity": "baselines",
    "Random": "baselines",
    "ItemKNN": "itemknn",
    "SequentialRules": "transitions",
    "EASE": "ease",
    "IALS": "ials",
    "EALS": "eals",
    "SLIM": "slim",
    "FISM": "fism",
    "BPR": "bpr",
    "AoBPR": "bpr",
    "CML": "cml",
    "CDAE": "torch.cdae",
    "NeuMF": "torch.neumf",
    "LightGCN": "torch.lightgcn",
    "SASRec": "torch.sasrec",
    "TransCF": "transcf",
    "TransCFMixture": "mixture",
    "Blend": "blend",
}


# -- names -------------------------------------------------------------------------------------


def available() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(name for class_name in HOMES for name in import_class(class_name)._variants)


def distinct() -> tuple[str, ...]:
    """Return the names of the models that differ in how they rank: the meaning of "all"."""
    return tuple(name for name in available() if name not in model_class(name)._not_in_all)


def distributable() -> tuple[str, ...]:
    """Return the names of the models whose training can be distributed with their defaults."""
    return tuple(name for name in available() if create(name)._supports_distributed)


def canonical_name(name: str) -> str:
    """Return the name of a model as it is listed."""
    return _find(name)[1]


def model_class(name: str) -> type[Recommender[Any]]:
    """Return the class of a model; case, blanks, `-` and `_` in the name do not matter."""
    return _find(name)[0]


def import_class(class_name: str) -> type[Recommender[Any]]:
    """Return a class by its own name, one of `HOMES`."""
    module = import_module(f"transcf.models.{HOMES[class_name]}")
    found: type[Recommender[Any]] = getattr(module, class_name)
    return found


def _find(name: str) -> tuple[type[Recommender[Any]], str]:
    """Return the class and the listed name of a model."""
    if not isinstance(name, str):
        raise ParameterError(
            f"{shown(name)} is no name of a model; there are: {', '.join(available())}."
        )
    found = _look_up(name) or _look_up(aliases.current_name(name))
    if found is None:
        known = available()
        raise ParameterError(
            f"There is no model {name!r}; there are: {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return found


def _look_up(name: str) -> tuple[type[Recommender[Any]], str] | None:
    wanted = _bare(name)
    # Most names are those of a class: then no other has to be imported.
    likely = [class_name for class_name in HOMES if _bare(class_name) == wanted]
    for kind in map(import_class, likely or HOMES):
        for variant in kind._variants:
            if _bare(variant) == wanted:
                return kind, variant
    return None


def _bare(name: str) -> str:
    return name.lower().translate(str.maketrans("", "", "-_ "))


# -- parameters --------------------------------------------------------------------------------


def create(name: str, **params: Any) -> Recommender[Any]:
    """Make a model by name.

    Args:
        name: One of `available()`.
        params: Its hyper-parameters; the others keep their defaults. Fields of `event_weights`
            may be given by themselves.

    Example:
        >>> create("random", random_state=7)
        Random(random_state=7)
    """
    name, params = current(name, params)
    kind, variant = _find(name)
    given = {**kind._variants[variant], **params}
    model: Recommender[Any] = kind(**nested_params(kind._settings_class, given))
    return model


def current(name: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and parameters of a model, old names replaced and groups taken apart."""
    kind, variant = _find(name)
    if not params.keys() <= kind._param_names():
        class_name, params = aliases.current_params(kind.__name__, params)
        if class_name != kind.__name__:
            variant = next(iter(import_class(class_name)._variants))
    return variant, flat_params(params)


def name_and_params(model: Recommender[Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a model and the parameters that differ from the defaults of that name.

    `create` makes an equal model of them.
    """
    given, variants = values_of(model.settings), type(model)._variants
    matching = [name for name, own in variants.items() if own.items() <= given.items()]
    name = max(matching, key=lambda name: len(variants[name]), default=next(iter(variants)))
    made = create(name)
    if type(made) is not type(model):  # a subclass of a registered class
        raise ParameterError(f"There is no registered class {type(model).__name__!r}.")
    usual = values_of(made.settings)
    return name, {key: value for key, value in given.items() if value != usual[key]}


def describe(name: str, *, whole: bool = True) -> dict[str, Any]:
    """Return name, class, summary and parameters of a model, as JSON values.

    Unless `whole`, a variant has only the parameters that make it one.
    """
    kind, name = _find(name)
    values = values_of(create(name).settings)
    own, first = kind._variants[name], next(iter(kind._variants))
    summary = (kind.__doc__ or "").strip().split("\n")[0]
    if name != first:
        changed = ", ".join(f"{key}={value}" for key, value in own.items())
        why = kind._not_in_all.get(name)
        summary = f"As {first}, with {changed}" + (f" (not part of all: {why})." if why else ".")
    parameters = {
        field.name: {
            "default": values[field.name],
            "allowed": str(field.metadata["rule"]),
            "meaning": field.metadata["meaning"],
        }
        for field in flat_fields(kind._settings_class)
        if whole or name == first or field.name in own
    }
    return {"name": name, "class": kind.__name__, "summary": summary, "parameters": parameters}


def preset(class_name: str, name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the parameters of a preset; those for a dataset replace the general ones."""
    found = presets().get(class_name, {})
    if name not in found:
        known = ", ".join(found) or "none"
        raise ParameterError(f"{class_name} has no preset {name!r}; it has: {known}.")
    params = dict(found[name])
    own: dict[str, Any] = params.pop("datasets", {}).get(dataset, {})
    return params | own


def preset_of(name: str, preset_name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the parameters of a preset for a model by name; those of a variant win."""
    kind, variant = _find(name)
    return preset(kind.__name__, preset_name, dataset) | kind._variants[variant]


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Return the parameters of all presets by class and name."""
    text = files("transcf.models").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


# -- folders -----------------------------------------------------------------------------------


def load(folder: str | Path, *, mapped: bool | None = None) -> Recommender[Any]:
    """Read a model of any registered class from its folder.

    Args:
        folder: What `save` wrote. If `transcf refresh` has added versions, the current one is
            read, which is the one that the service uses.
        mapped: Whether arrays are mapped into memory rather than read; None does so from 256 MiB
            on. A mapped file must not be written to while the model is in use, which `save`
            never does.

    Raises:
        ModelFileError: Something is missing, damaged, altered, too old or too new; the message
            says what.

    Example:
        >>> from transcf import synthesize
        >>> folder = create("popularity").fit(synthesize()).save("models/popularity")
        >>> load(folder).name
        'popularity'
    """
    from transcf.io.model_dir import current_folder

    return load_version(current_folder(folder), mapped=mapped)


def load_version(folder: str | Path, *, mapped: bool | None = None) -> Recommender[Any]:
    """Read the model in a folder itself, whatever its current version is."""
    from transcf.io.model_dir import read_model

    return model_of(*read_model(folder, mapped=mapped), folder)


def model_of(
    about: dict[str, Any], known: TrainingData, arrays: Arrays, folder: str | Path
) -> Recommender[Any]:
    """Return the model whose description and arrays were read from a folder."""
    kind, params = about["class"], about["params"]
    try:
        if about["version"] <= 2:
            kind, params = aliases.from_format_2(kind, params)
    except ParameterError as error:
        raise ModelFileError(f"{folder} cannot be loaded: {error}") from error
    if kind not in HOMES:
        raise ModelFileError(
            f"{folder} holds a {kind!r}, and this version of transcf has no such model."
        )
    model_kind, params = import_class(kind), aliases.without_removed(kind, params)
    try:
        model: Recommender[Any] = model_kind(**nested_params(model_kind._settings_class, params))
        model._check_params()
    except ParameterError as error:
        raise ModelFileError(
            f"{folder} holds a model that this version of transcf cannot make: {error}"
        ) from error
    try:
        model.learned_ = model._restore_with_offsets(arrays, known)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder} does not hold the arrays of a {kind}: {error}.") from error
    model.report_, model.settings_ = about["report"], model._settings_for(known)
    model.best_epoch_, model.additions_ = about["best_epoch"], about["additions"]
    return model
