"""Pages are in plain technical English, generated ones included."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import transcf

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FILES = [
    *sorted(path for path in DOCS.rglob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
]
#: Words that readers stumble over, and names that the code does not have any more.
WORDS = (
    "somebody|nobody|everybody|whoever|anew|mend|mends|mended|told|beside|people|beneath|"
    "guests?|crew|contenders?|wishes|remedy"
)


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    """The module that writes the generated pages; it needs the extra `docs`."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    sys.path.insert(0, str(DOCS))
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(DOCS))


def odd_words(text: str) -> list[str]:
    prose = re.sub(r"`[^`\n]+`", "", text)  # names of options may be older
    return re.findall(rf"\b(?:{WORDS})\b", prose, re.IGNORECASE)


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.stem)
def test_pages_are_in_plain_english(page: Path) -> None:
    assert not odd_words(page.read_text(encoding="utf-8"))


def test_generated_pages_are_in_plain_english(pages: ModuleType) -> None:
    assert not odd_words(pages.commands_page())
    assert not odd_words(pages.models_index())
    assert not odd_words(pages.architecture_page())
    for name in pages.MODELS:
        assert not odd_words(pages.model_page(name)), name


def test_docstrings_of_the_public_names_are_in_plain_english() -> None:
    for name in transcf.__all__:
        public = getattr(transcf, name)
        members = vars(public).values() if isinstance(public, type) else ()
        for member in [public, *members]:
            assert not odd_words(getattr(member, "__doc__", None) or ""), name


def test_every_public_name_is_on_a_page(pages: ModuleType) -> None:
    text = pages.api_page() + pages.models_index()
    for name in set(transcf.__all__) - {"datasets"}:
        assert re.search(rf"\b{name}\b", text), name
