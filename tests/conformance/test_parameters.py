"""Hyper-parameters are written once: whoever shows them shows the same; for every model."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import pydoc
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_every_model import EVERY_MODEL, make
from typer.testing import CliRunner

import transcf
from transcf.cli.app import app
from transcf.data.synthetic import synthesize
from transcf.errors import ParameterError
from transcf.models.base import Recommender
from transcf.models.params import fields_of, flat_fields, values_of
from transcf.models.registry import available, create, model_class

SOURCE = Path(transcf.__file__).parent


def one_line(text: str) -> str:
    return " ".join(text.split())


def levels(kind: type) -> list[type]:
    """The classes of this package that a class inherits from, itself included."""
    return [base for base in kind.__mro__ if base.__module__.startswith("transcf.")]


@EVERY_MODEL
def test_a_model_is_made_of_parts_rather_than_ancestors(name: str) -> None:
    kind = model_class(name)
    assert Recommender in levels(kind)
    assert len(levels(kind)) <= 5, " > ".join(base.__name__ for base in levels(kind))
    log = synthesize(users=20, items=12, interactions=80, seed=1)
    short = {"epochs": 1} if kind._has_epochs() else {}
    assert len(levels(type(make(name, **short).fit(log).learned_))) <= 4


@EVERY_MODEL
def test_the_documentation_has_every_parameter_with_its_meaning(name: str) -> None:
    kind = model_class(name)
    text = inspect.getdoc(kind) or ""
    helped = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    shown = one_line(re.sub(r"^ \|", "", helped, flags=re.MULTILINE))
    found = re.search(r"^Args:\n((?:    .*\n|\n)*)", text, re.MULTILINE)
    section = found.group(1) if found else ""
    listed = re.findall(r"^    (\w+): ", section, re.MULTILINE)
    assert listed == list(inspect.signature(kind).parameters)
    for entry in fields_of(kind._settings_class):
        assert entry.metadata["meaning"].endswith("."), "a sentence"
        assert f"{entry.name}: {one_line(entry.metadata['meaning'])} (" in one_line(section)
        assert f"{entry.name}: {one_line(entry.metadata['meaning'])} (" in shown, "in help()"
        assert f"default {entry.default!r})" in one_line(section)
        assert getattr(kind, entry.name).__doc__ == entry.metadata["meaning"]
    assert text.index("Args:") < text.index("Attributes (after `fit`):") if listed else True


def described(name: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["models", name, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@EVERY_MODEL
def test_whoever_shows_parameters_shows_the_same(name: str, tmp_path: Path) -> None:
    kind = model_class(name)
    signature = inspect.signature(kind).parameters
    assert list(signature) == list(kind().get_params())
    assert list(kind._rules()) == list(values_of(kind().settings))
    assert {key: entry.default for key, entry in signature.items()} == kind().get_params()
    model = create(name)
    assert {key: getattr(model, key) for key in signature} == model.get_params()
    params = values_of(model.settings)
    shown = described(name)
    assert (shown["name"], shown["class"]) == (name, kind.__name__)
    assert list(shown["parameters"]) == list(params)
    for entry in flat_fields(kind._settings_class):
        assert shown["parameters"][entry.name] == {
            "default": params[entry.name],
            "allowed": str(kind._rules()[entry.name]),
            "meaning": entry.metadata["meaning"],
        }
    fitted = make(name, **({"epochs": 1} if kind._has_epochs() else {}))
    fitted.fit(synthesize(users=20, items=12, interactions=80, seed=1)).save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    params = values_of(fitted.settings_)
    assert about["params"] == params
    card = (tmp_path / "model" / "README.md").read_text()
    chapter = card.partition("## Hyper-parameters")[2].partition("## Training")[0]
    rows = re.findall(r"^\| (\w+) \| `(.*)` \|$", chapter, re.MULTILINE)
    assert dict(rows) == {key: str(value) for key, value in params.items()}


def test_the_list_of_models_says_of_each_what_it_says_alone() -> None:
    result = CliRunner().invoke(app, ["models", "--json"])
    listed = json.loads(result.stdout)
    assert [entry["name"] for entry in listed] == list(available())
    for entry in listed:
        alone = described(entry["name"])
        first, *_ = model_class(entry["name"])._variants
        if entry["name"] != first:  # the others are told by what makes them
            own = model_class(entry["name"])._variants[entry["name"]]
            alone["parameters"] = {key: alone["parameters"][key] for key in own}
        assert entry == alone


@EVERY_MODEL
def test_no_parameter_is_hidden(name: str) -> None:
    kind = model_class(name)
    model, params = kind(), set(inspect.signature(kind).parameters)
    assert set(vars(model)) == {"settings"}, "a new model holds its settings and nothing else"
    assert {entry.name for entry in dataclasses.fields(kind._settings_class)} == params
    for base in kind._settings_class.__mro__[:-1]:
        for key, value in vars(base).items():  # beside fields only what follows from them
            is_derived = inspect.isfunction(value) or isinstance(value, property)
            assert key.startswith("_") or key in params or is_derived
    for wrong in ({"colour": "red"}, {"n_threads": 1}):
        for attempt in (kind, model.set_params):
            with pytest.raises(ParameterError, match=f"has no parameter '{next(iter(wrong))}'"):
                attempt(**wrong)
    with pytest.raises(ParameterError, match="takes its parameters by name"):
        kind(1)


@EVERY_MODEL
def test_settings_are_set_one_by_one_and_never_changed_in_place(name: str) -> None:
    model = create(name)
    before = model.settings
    for key, value in model.get_params().items():
        setattr(model, key, value)
        assert model.settings == before
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(before, key, value)
        with pytest.raises(ParameterError, match=f"{key}='changed' is not allowed"):
            setattr(model, key, "changed")
        assert model.settings == before, "what is refused changes nothing"
    if has_seed := "random_state" in model.get_params():
        model.random_state = 7
        assert before.random_state != 7, "those who hold the old settings keep them"
    assert (model.settings != before) == has_seed


def settings_read() -> set[str]:
    """What the sources read of anything that is called settings, or settings of themselves."""
    read: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if "serving" in path.parts or path.name == "serve.py":  # a service has its own settings
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        read |= attributes_of(tree, "settings")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
                read |= attributes_of(node, "self")
    return read


def attributes_of(tree: ast.AST, name: str) -> set[str]:
    """What is read of anything that goes by a name, with or without an underscore before it."""
    read = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            called = owner.attr if isinstance(owner, ast.Attribute) else ""
            called = owner.id if isinstance(owner, ast.Name) else called
            if called.strip("_") == name:
                read.add(node.attr)
    return read


def test_every_parameter_is_read_and_nothing_else_is() -> None:
    kinds = {model_class(name)._settings_class for name in available()}
    fields = {entry.name for kind in kinds for entry in dataclasses.fields(kind)}
    derived = {key for kind in kinds for key in dir(kind)}
    methods = set(dir(dict)) | set(dir(list))  # some plain collections are called so, too
    read = settings_read()
    assert len(fields) > 30
    assert fields <= read, "these do nothing"
    assert read <= fields | derived | methods, "these come from somewhere else"
