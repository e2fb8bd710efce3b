"""Names of models and parameters of earlier versions: one table, and what applies it.

In version 0.1 one class, `TransCF`, had a parameter `form`, and its default was the mixture. Now
`TransCF` is the published model, with a parameter `variant`, and `TransCFMixture` is a class of its
own. Old names are replaced with a `FutureWarning`.

The registry name "transcf" is not an alias: it is the published model now. Only in model folders of
format 2, written by version 0.1, does it mean the mixture.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from transcf.errors import ParameterError

#: Registry names.
NAMES = {"transcf-translation": "transcf", "transcf-still": "transcf-none"}
#: Registry names of models that were removed, and why.
GONE = {
    f"transcf-{name}": "The extensions of TransCF were removed: none was better by the same solver"
    for name in ("attention", "map", "friends", "categories", "swapped")
}
#: Parameters, by class. The value "still" of `form` is called "none" now.
PARAMETERS = {
    "TransCF": {
        "form": "variant",
        "refresh": "neighborhood_updates",
        "bound": "norm_constraint",
    },
    "TransCFMixture": {
        "rho": "history_decay",
        "future": "future_weight",
        "tied": "tie_item_vectors",
        "debias": "popularity_correction",
        "user_rate": "user_lr_multiplier",
    },
}
#: Removed parameters, by class, with the value that all models have now.
REMOVED: dict[str, dict[str, Any]] = {
    "TransCF": {"bias_decay": 0.01, "bias_rate": 0.2, "solver": "fast"},
    "TransCFMixture": {
        "decay": "linear",
        "bound": "norm",
        "norm_constraint": "norm",
        "item_bias": True,
        "solver": "fast",
    },
    "Blend": {"beneath": 0.0},
    "CDAE": {"loss": "logistic"},
}

#: Parameters of the one class of version 0.1 that only the mixture used.
_ONLY_MIXTURE_HAS = {
    *("tau", "beta", "rho", "future", "tied", "shared_negatives", "negative_power"),
    *("debias", "user_rate", "batch_events"),
}


def current_name(name: str) -> str:
    """Return the registry name that replaces an old one, or the name; removed models raise."""
    plain = re.sub("[_ ]", "-", name.lower())
    if plain in GONE:
        raise ParameterError(f"There is no model {name!r} any more. {GONE[plain]}.")
    found = NAMES.get(plain)
    if found is None:
        return name
    _warn(f"The model {name!r} is called {found!r} now")
    return found


def current_params(class_name: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace old names of parameters; the class of `form="mixture"` is `TransCFMixture`.

    A `ParameterError` says which parameters were removed with another value than all models have
    now, belong to `TransCFMixture`, or are given by the old and the new name.
    """
    found = dict(params)
    if class_name == "TransCF" and found.get("form") == "mixture":
        _warn("TransCF with form='mixture' is TransCFMixture now, 'transcf-mixture'")
        del found["form"]
        class_name = "TransCFMixture"
    if class_name == "TransCF" and (moved := sorted(_ONLY_MIXTURE_HAS & found.keys())):
        raise ParameterError(
            f"{moved[0]!r} is no parameter of TransCF: it belongs to TransCFMixture, "
            "'transcf-mixture', which was called 'transcf' before."
        )
    for old, new in PARAMETERS.get(class_name, {}).items():
        if old in found:
            _warn(f"The parameter {old!r} of {class_name} is called {new!r} now")
            if new in found:
                raise ParameterError(
                    f"{class_name} is given {new!r} twice, by its old and its new name."
                )
            found[new] = _current_value(old, found.pop(old))
    for old, value in REMOVED.get(class_name, {}).items():
        if old in found:
            given = found.pop(old)
            if given not in (value, str(value)):  # on the command line values are text
                raise ParameterError(
                    f"{class_name} has no parameter {old!r} any more: it is always {value!r}."
                )
            _warn(f"{class_name} has no parameter {old!r} any more: it is always {value!r}")
    return class_name, found


def _current_value(old: str, value: Any) -> Any:
    return "none" if old == "form" and value == "still" else value


def without_removed(class_name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Leave removed parameters of a saved model out if they have the value of all models now."""
    removed = REMOVED.get(class_name, {}).items()
    return dict(param for param in params.items() if param not in removed)


def warn_of_group(class_name: str, group: str, names: Collection[str]) -> None:
    """Warn of parameters that are fields of one object now."""
    for name in sorted(names):
        _warn(
            f"The parameter {name!r} of {class_name} is part of {group!r} now: give "
            f"{group}=EventWeights({name}=...)"
        )


def from_format_2(class_name: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return class and parameters of a model that version 0.1 saved.

    Parameters that the class does not have are left out: a fitted model does not use them.
    """
    found = dict(params)
    if class_name == "Blend":
        found["parts"] = _parts_of_format_2(str(found.get("parts", "ease + transcf")))
    elif class_name == "TransCF":
        if found.get("form", "mixture") == "mixture":
            class_name = "TransCFMixture"
        else:
            _check_extensions(found)
        _warn(f"The folder of a TransCF is of version 0.1 and read as {class_name}: save it again")
    else:
        return class_name, found
    names = PARAMETERS.get(class_name, {})
    found = {names.get(name, name): _current_value(name, found[name]) for name in found}
    for name, value in REMOVED.get(class_name, {}).items():
        if found.pop(name, value) != value:
            _warn(f"{class_name} has no parameter {name!r} any more; the folder's is ignored")
    from transcf.models.registry import import_class

    known = import_class(class_name)._rules()
    return class_name, {name: value for name, value in found.items() if name in known}


def _check_extensions(params: dict[str, Any]) -> None:
    """Raise a `ParameterError` for a TransCF of version 0.1 with a removed extension."""
    asked = {
        "attention": params.get("neighbors") == "attention",
        "map": params.get("mapping") == "network",
        "friends": params.get("friends"),
        "categories": params.get("category"),
        "swapped": params["form"] == "swapped",
    }
    for name, is_used in asked.items():
        if is_used:
            why = GONE[f"transcf-{name}"]
            raise ParameterError(f"TransCF with {name} does not exist any more. {why}.")


def _parts_of_format_2(text: str) -> str:
    """Replace names of models in the parts of a blend: "transcf" was the mixture."""

    def renamed(found: re.Match[str]) -> str:
        name, values = found[1].lower(), found[2] or ""
        if name != "transcf":
            return NAMES.get(name, found[1]) + values
        return name + values if "form=" in values else f"transcf-mixture{values}"

    return re.sub(r"""([A-Za-z][\w-]*)(\s*\((?:[^()'"]|'[^']*'|"[^"]*")*\))?""", renamed, text)


def _warn(text: str) -> None:
    # The caller's line is of no use here: names come from files and from the command line, too.
    warnings.warn(f"{text}.", FutureWarning, stacklevel=4)
