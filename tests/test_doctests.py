"""Every example in the documentation of the package runs.

The examples of model classes are left to `tests/conformance`, which also asks that there is one.
"""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from transcf.errors import MissingExtraError
from transcf.models.registry import available, model_class

SOURCE = Path(__file__).resolve().parents[1] / "src" / "transcf"
MODULES = [
    ".".join(("transcf", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


class Runner(doctest.DocTestRunner):
    """Skips what an optional part is missing for."""

    def report_unexpected_exception(
        self,
        out: Any,
        test: doctest.DocTest,
        example: doctest.Example,
        exc_info: tuple[type[BaseException], BaseException, TracebackType],
    ) -> None:
        if isinstance(exc_info[1], MissingExtraError):
            pytest.skip(f"{test.name}: {exc_info[1]}")
        super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        module = import_module(name)
    except (MissingExtraError, ModuleNotFoundError) as error:
        if error.name is not None and error.name.startswith("transcf"):
            raise
        pytest.skip(f"{name} needs an optional part: {error}")
    monkeypatch.chdir(tmp_path)  # examples may write files
    kinds = map(model_class, available())
    of_models = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    everything = doctest.DocTestFinder().find(module)
    written = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    expected = sum(line.strip().startswith(">>> ") for line in written)
    assert sum(len(test.examples) for test in everything) == expected, "some are not found"
    found = [test for test in everything if test.name not in of_models]
    report: list[str] = []
    runner = Runner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = sum(runner.run(test, out=report.append).failed for test in found)
    assert failed == 0, "".join(report)


def test_there_are_examples() -> None:
    assert "transcf.data.ids" in MODULES
    assert not any(name.endswith("__main__") for name in MODULES)  # importing it runs the program
