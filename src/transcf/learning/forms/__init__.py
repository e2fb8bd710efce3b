"""Forms of TransCF's score, one module each, found by their names."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

from transcf.learning.forms.base import Form


def _found() -> dict[str, Form]:
    forms = {}
    for module in pkgutil.iter_modules(__path__):
        for kind in vars(import_module(f"{__name__}.{module.name}")).values():
            if inspect.isclass(kind) and issubclass(kind, Form) and not inspect.isabstract(kind):
                forms[kind.name] = kind()
    return forms


#: By name; the paper's own comes first.
FORMS: dict[str, Form] = dict(sorted(_found().items(), key=lambda form: form[0] != "translation"))

__all__ = ["FORMS", "Form"]
