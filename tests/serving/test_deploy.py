"""The files in deploy/: they parse, and name settings, metrics and routes that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from starlette.testclient import TestClient
from typer.main import get_command

from transcf.cli.app import app as cli
from transcf.serving.settings import ENVIRONMENT_PREFIX, NAMES, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_settings_exist() -> None:
    settings = load_settings({}, DEPLOY / "serve.toml", environment={})
    assert (settings.workers, settings.log_format) == (2, "json")
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            for name in re.findall(rf"{ENVIRONMENT_PREFIX}([A-Z_]+)\b", path.read_text()):
                assert name.lower().strip("_") in (*NAMES, ""), f"{path}: {name}"


def test_the_dashboard_asks_for_metrics_that_exist(client: TestClient) -> None:
    assert client.get("/v1/recommendations/u005").status_code == 200
    client.post("/v1/events", json={"user": "u005", "item": "i01"})
    text = client.get("/metrics").text
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    known |= {f"{name}{end}" for name in known for end in ("_bucket", "_sum", "_count")}
    dashboard = json.loads((DEPLOY / "grafana" / "transcf.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for expression in asked:
        named = re.findall(r"\b((?:transcf|process)_\w+)\{", expression)
        assert named
        assert set(named) <= known, expression


def test_kubernetes_and_compose_are_yaml_with_probes() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    kinds = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").open())}
    [container] = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    compose = yaml.safe_load((DEPLOY / "docker-compose.yml").open())
    assert set(compose["services"]) == {"postgres", "transcf", "nginx"}
    assert {name for each in compose["services"].values() for name in each["secrets"]} == set(
        compose["secrets"]
    )


def test_the_nightly_refresh_is_a_command_with_its_options() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    kinds = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").open())}
    pod = kinds["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    command, _, *given = container["args"]
    program = get_command(cli)
    known = program.get_command(typer.Context(program), command)
    options = {option for parameter in known.params for option in parameter.opts}
    assert {option for option in given if option.startswith("--")} <= options
    [served] = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == served["image"]
    mounts = {mount["name"]: mount for mount in served["volumeMounts"]}
    assert "readOnly" not in mounts["models"], "versions are switched there"
