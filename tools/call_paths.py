"""Which functions of `src/transcf` a command, a request or a model visits, and how deep.

Calls are traced with `sys.setprofile` on a log of 40 users, with one thread, in the second run of a
process: imports, caches and compilation are over. Only frames of `src/transcf` count. A compiled
kernel is one call, which numba reports to the profiler.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "transcf"
sys.path.insert(0, str(SOURCE.parent))  # trace these sources, whichever are installed
#: A function is on the printed path if it reaches this many other functions of the package.
TRUNK = 20

# -- Names that change with the library ----------------------------------------------------------

#: Words of each traced command; {log}, {model} and {new} are paths.
COMMANDS = {
    "evaluate": "--threads 1 --store {new} evaluate {log} --model transcf --set epochs=2",
    "fit": "--threads 1 fit {log} --model transcf --set epochs=2 --out {new}",
    "recommend": "recommend {model} --user u01",
    "explain": "explain {model} --user u01 --item {item}",
}
REQUEST = "/v1/recommendations/u01"
#: What the goals call a model: its registry name.
MODELS = {"TransCF": "transcf", "mixture": "transcf-mixture", "BPR": "bpr"}
#: The kernel that trains TransCF and BPR.
KERNEL = ("kernels/rounds.py", "take_part")


def run_command(words: list[str]) -> None:
    from typer.testing import CliRunner

    from transcf.cli.app import app

    done = CliRunner().invoke(app, words, catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(done.output)


def open_service(model: Path) -> Any:
    from transcf.serving.app import create_app
    from transcf.serving.service import Service
    from transcf.serving.settings import ServiceSettings

    return create_app(Service(ServiceSettings(model)))


# -- Tracing -------------------------------------------------------------------------------------


@dataclass
class Trace:
    """Functions of the package that a call visits, in the order of their first visits."""

    recording: bool = False
    visited: dict[CodeType, None] = field(default_factory=dict)
    below: dict[CodeType, set[CodeType]] = field(default_factory=dict)
    depth: int = 0
    to_kernel: int = 0
    kernel: CodeType | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; the signature is that of `sys.setprofile`."""
        if not self.recording or event != "call" or not is_function(frame.f_code):
            return
        stack = [frame.f_code]
        above: FrameType | None = sys._getframe(
            1
        )  # numba's frame of a compiled kernel does not know its caller
        above = above.f_back if above is frame else above
        while above is not None:
            if is_function(above.f_code):
                stack.append(above.f_code)
            above = above.f_back
        self.visited.setdefault(frame.f_code)
        for code in stack[1:]:
            self.below.setdefault(code, set()).add(frame.f_code)
        self.depth = max(self.depth, len(stack))
        if (relative(frame.f_code), frame.f_code.co_name) == KERNEL:
            self.to_kernel, self.kernel = len(stack), frame.f_code

    def files(self) -> dict[str, CodeType]:
        """Return each visited file with the function that was visited first."""
        found: dict[str, CodeType] = {}
        for code in self.visited:
            found.setdefault(relative(code), code)
        return found

    def figures(self) -> dict[str, int]:
        """Count what was visited."""
        return {
            "files": len(self.files()),
            "functions": len(self.visited),
            "depth": self.depth,
            "frames to the training kernel": self.to_kernel,
        }


def is_function(code: CodeType) -> bool:
    return code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>"


def relative(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(SOURCE).as_posix()


def trace(call: Callable[[], object]) -> Trace:
    """Trace the second of two calls."""
    call()
    found = Trace(recording=True)
    sys.setprofile(found)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def trace_request(model: Path) -> Trace:
    """Trace the second of two requests, in all threads of the service."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # starlette prefers another version of httpx
        from starlette.testclient import TestClient
    found = Trace()
    threading.setprofile(found)
    try:
        with TestClient(open_service(model), base_url="http://127.0.0.1") as client:
            client.get(REQUEST)
            found.recording = True
            assert client.get(REQUEST).status_code == 200
            found.recording = False
    finally:
        threading.setprofile(None)
    return found


def trace_all(names: tuple[str, ...], folder: Path) -> dict[str, Trace]:
    """Trace commands, "request" and "model NAME" by name."""
    import transcf

    os.environ["TRANSCF_RUNS"] = str(folder / "runs")
    log = transcf.synthesize(users=40, items=30, interactions=600, seed=1)
    log.to_frame().write_csv(folder / "events.csv")
    paths = {"log": str(folder / "events.csv"), "model": str(folder / "model")}
    model = transcf.create("transcf", epochs=2).fit(log)
    model.save(paths["model"])
    paths["item"] = model.recommend(["u01"], k=1)["item_id"][0]
    number = iter(range(1000))

    def command(name: str) -> None:
        new = str(folder / f"new {next(number)}")
        run_command([word.format(**paths, new=new) for word in COMMANDS[name].split()])

    def fit_and_recommend(name: str) -> None:
        with transcf.use_threads(1):
            transcf.create(name, epochs=2).fit(log).recommend(["u01"], k=3)

    found = {}
    for name in names:
        if name == "request":
            found[name] = trace_request(folder / "model")
        elif name.startswith("model "):
            found[name] = trace(partial(fit_and_recommend, MODELS[name.removeprefix("model ")]))
        else:
            found[name] = trace(partial(command, name))
    return found


def path_of(found: Trace) -> list[str]:
    """Return of each file the first function that reaches many others, and the kernel."""
    files: dict[str, CodeType] = {}
    for code in found.visited:
        is_trunk = len(found.below.get(code, ())) >= TRUNK and not code.co_name.startswith("<")
        if is_trunk or code is found.kernel:
            files.setdefault(relative(code), code)
    return [
        f"{number}. `{file}: {code.co_qualname.replace('.<locals>', '')}`{summary(code)}"
        for number, (file, code) in enumerate(files.items(), 1)
    ]


def summary(code: CodeType) -> str:
    """Return the first line of a function's docstring, after a colon."""
    for node in ast.walk(ast.parse(Path(code.co_filename).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min(node.lineno, *(each.lineno for each in node.decorator_list), node.lineno)
            text = ast.get_docstring(node)
            if first == code.co_firstlineno and text:
                return f": {text.splitlines()[0]}"
    return ""
