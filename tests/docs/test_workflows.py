"""The workflows of GitHub are well-formed, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
#: Keys by GitHub's schema, as far as they are used here.
TOP = {"name", "on", "permissions", "concurrency", "jobs", "env", "defaults"}
JOB = {
    "name", "runs-on", "needs", "if", "strategy", "steps", "permissions", "environment", "env",
    "timeout-minutes",
}  # fmt: skip
STEP = {"name", "id", "if", "uses", "with", "run", "env", "shell", "timeout-minutes"}
RUNNERS = {"ubuntu-latest", "macos-latest", "windows-latest"}
RIGHTS = {"contents", "pages", "id-token"}


def read(path: Path) -> dict[str, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["on"] = content.pop(True)  # YAML 1.1 reads the key `on` as a boolean
    return content


JOBS = [(path, name, job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_starts_by_events_and_has_few_rights(path: Path) -> None:
    content = read(path)
    assert content.keys() <= TOP
    assert content["on"].keys() <= {"push", "pull_request"}
    assert content["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("path", "name", "job"), JOBS, ids=lambda value: str(value)[-12:])
def test_a_job_has_a_runner_steps_and_known_predecessors(
    path: Path, name: str, job: dict[str, Any]
) -> None:
    assert job.keys() <= JOB
    matrix = job.get("strategy", {}).get("matrix", {})
    runners = matrix["os"] if "matrix.os" in job["runs-on"] else [job["runs-on"]]
    assert set(runners) <= RUNNERS
    assert {job["needs"]} <= read(path)["jobs"].keys() - {name} if "needs" in job else True
    assert job.get("permissions", {}).keys() <= RIGHTS
    assert set(re.findall(r"matrix\.(\w+)", str(job))) <= matrix.keys()


@pytest.mark.parametrize(("path", "name", "job"), JOBS, ids=lambda value: str(value)[-12:])
def test_steps_run_actions_of_a_version_or_targets_that_exist(
    path: Path, name: str, job: dict[str, Any]
) -> None:
    for step in job["steps"]:
        assert step.keys() <= STEP
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./-]+", step["uses"]), step
        for target in re.findall(r"\bmake ([\w-]+)", step.get("run", "")):
            assert target in TARGETS
        for script in re.findall(r"python ([\w/]+\.py)", step.get("run", "")):
            assert (ROOT / script).exists()


def test_the_core_is_tested_on_three_systems_and_four_pythons() -> None:
    (matrix,) = [job["strategy"]["matrix"] for _, name, job in JOBS if name == "core"]
    assert len(matrix["os"]) == 3
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
