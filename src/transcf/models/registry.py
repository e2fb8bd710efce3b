"""The list of models: where their classes live, and what they are called.

A class is imported when it is asked for. Its `name` is what tables and commands call it; a class
with `variants` goes by several names, each with parameters of its own.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcf.errors import ModelFileError, ParameterError, did_you_mean, shown
from transcf.models.aliases import current_name, current_params

if TYPE_CHECKING:
    from transcf.models.recommender import Recommender

#: Module of each class, in the order of tables.
HOMES = {
    "Popularity": "popularity",
    "RecentPopularity": "popularity",
    "InversePopularity": "popularity",
    "Random": "random",
    "ItemKNN": "itemknn",
    "EASE": "ease",
    "IALS": "ials",
    "EALS": "eals",
    "SLIM": "slim",
    "FISM": "fism",
    "BPR": "bpr",
    "AoBPR": "aobpr",
    "CML": "cml",
    "CDAE": "torch.cdae",
    "NeuMF": "torch.neumf",
    "LightGCN": "torch.lightgcn",
    "TransCF": "transcf",
    "TransCFMixture": "mixture",
    "TransCFExtended": "transcf.extensions",
    "Blend": "blend",
}


def available() -> tuple[str, ...]:
    """Return the names of all models.

    Example:
        >>> "ease" in available()
        True
    """
    return tuple(name for class_name in HOMES for name in _variants(class_name))


def distinct() -> tuple[str, ...]:
    """Return the names of the models that rank any events in a way of their own.

    That is what "all" stands for.

    Example:
        >>> "transcf-emb" in available(), "transcf-emb" in distinct()
        (True, False)
    """
    return tuple(name for name in available() if name not in model_class(name).not_in_all)


def distributable() -> tuple[str, ...]:
    """Return the names of the models whose training can be spread over processes, as they are.

    Example:
        >>> "bpr" in distributable(), "ease" in distributable()
        (True, False)
    """
    return tuple(name for name in available() if create(name).supports_distributed())


def model_class(name: str) -> type[Recommender[Any]]:
    """Return the class of a model; capitals, blanks, `-` and `_` in the name do not matter.

    Example:
        >>> model_class("InversePopularity").__name__
        'InversePopularity'
    """
    return _import(_find(name)[0])


def create(name: str, **params: Any) -> Recommender[Any]:
    """Make a model by name.

    Args:
        name: One of `available()`.
        params: Its hyper-parameters; the others keep their defaults.

    Example:
        >>> create("random", random_state=7)
        Random(random_state=7)
    """
    name, params = current(name, params)
    class_name, variant = _find(name)
    kind = _import(class_name)
    kind.check_names(params)
    model: Recommender[Any] = kind(**{**kind.variants[variant], **params})
    return model


def current(name: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a model and its parameters with old names replaced; see `aliases`."""
    class_name, variant = _find(name)
    found, params = current_params(class_name, params)
    return (variant if found == class_name else next(iter(_variants(found)))), params


def preset_of(name: str, preset_name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the hyper-parameters of a preset for a model by name.

    A name that stands for parameters of its own keeps them, whatever the preset says.

    Args:
        name: One of `available()`.
        preset_name: Name of the preset.
        dataset: Catalog name of the data.

    Example:
        >>> preset_of("transcf-dot", "paper")["negatives"]
        1
    """
    from transcf.models.presets import preset

    class_name, variant = _find(name)
    return preset(class_name, preset_name, dataset) | _variants(class_name)[variant]


def name_and_params(model: Recommender[Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a model, and the parameters in which it differs from what it stands for.

    `create` makes the same of them.

    Raises:
        ParameterError: Its class is not registered.

    Example:
        >>> name_and_params(create("transcf-dot", dim=8))
        ('transcf-dot', {'dim': 8})
    """
    given, variants = model.get_params(), type(model).variants
    fitting = [name for name, own in variants.items() if own.items() <= given.items()]
    # The plain name stands for nothing in particular: others say more of what fits them.
    name = max(fitting, key=lambda name: len(variants[name]), default=next(iter(variants)))
    made = create(name)
    if type(made) is not type(model):  # a class of somebody's own that inherits a name
        raise ParameterError(f"There is no registered class {type(model).__name__!r}.")
    usual = made.get_params()
    return name, {key: value for key, value in given.items() if value != usual[key]}


def load(folder: str | Path, *, mapped: bool | None = None) -> Recommender[Any]:
    """Read a model of any registered class from its folder.

    Args:
        folder: What `save` wrote. If `transcf refresh` has added versions, the current one is
            read, which is the one that the service uses.
        mapped: Whether arrays are mapped into memory rather than read. None does so from 256 MiB
            on. What is read is the model's own; a mapped file must not be written to while the
            model is in use, which `save` never does.

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


def load_version(folder: Path, *, mapped: bool | None = None) -> Recommender[Any]:
    """Read the model in a folder itself, whatever its current version is; else as `load`."""
    from transcf.models.state import from_state, read_stored

    stored = read_stored(folder, mapped=mapped)
    if stored.kind not in HOMES:
        raise ModelFileError(
            f"{folder} holds a {stored.kind!r}, and this version of transcf has no such model."
        )
    return from_state(_import(stored.kind), stored, folder)


def canonical_name(name: str) -> str:
    """Return the name that a model is listed by, however it was spelled.

    Example:
        >>> canonical_name("Inverse_Popularity")
        'inverse-popularity'
    """
    return _find(name)[1]


def _find(name: str) -> tuple[str, str]:
    """Return the class and the variant that a name stands for."""
    if not isinstance(name, str):
        raise ParameterError(
            f"{shown(name)} is no name of a model; there are: {', '.join(available())}."
        )
    wanted = _bare(current_name(name))
    # Most names are those of a class: then no other has to be imported.
    likely = [class_name for class_name in HOMES if _bare(class_name) == wanted]
    for class_name in likely or HOMES:
        for variant in _variants(class_name):
            if _bare(variant) == wanted:
                return class_name, variant
    known = available()
    raise ParameterError(
        f"There is no model {name!r}; there are: {', '.join(known)}.{did_you_mean(name, known)}"
    )


def _variants(class_name: str) -> dict[str, dict[str, Any]]:
    """Return the names of a class, and the parameters that each stands for."""
    return _import(class_name).variants


def _import(class_name: str) -> type[Recommender[Any]]:
    found: type[Recommender[Any]] = getattr(
        import_module(f"transcf.models.{HOMES[class_name]}"), class_name
    )
    return found


def _bare(name: str) -> str:
    return name.lower().translate(str.maketrans("", "", "-_ "))
