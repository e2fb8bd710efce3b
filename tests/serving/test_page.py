"""The files of the explorer: what is served, and what the page never does."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from transcf.serving.app import PAGE, POLICY

SCRIPTS = sorted(PAGE.glob("*.js"))


def test_the_page_and_its_parts_come_with_a_policy_and_a_tag(client: TestClient) -> None:
    for path, kind in {"/": "text/html", "/page/main.js": "text/javascript"}.items():
        answer = client.get(path)
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["content-security-policy"] == POLICY
        again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_files_are_compressed(client: TestClient) -> None:
    for name in ("main.js", "style.css"):
        answer = client.get(f"/page/{name}")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        plain = client.get(f"/page/{name}", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == answer.content
        assert int(answer.headers["content-length"]) < len(plain.content) / 2


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
@pytest.mark.parametrize("wanted", ["bytes=0-9", "bytes=9-0", "bytes=99999999-", "lines=1-2"])
def test_files_are_sent_whole(client: TestClient, path: str, wanted: str) -> None:
    answer = client.get(path, headers={"range": wanted})
    assert (answer.status_code, answer.content) == (200, client.get(path).content)


def test_files_have_a_route_in_metrics(client: TestClient) -> None:
    for name in ("main.js", "style.css", "nothing.js"):
        client.get(f"/page/{name}")
    text = client.get("/metrics").text
    assert 'method="GET",route="/page/{name}",status="200"} 2.0' in text
    assert 'method="GET",route="/page/{name}",status="404"} 1.0' in text


def test_large_answers_are_compressed(client: TestClient) -> None:
    answer = client.get("/v1/search?k=60")
    assert answer.headers["content-encoding"] == "gzip"
    plain = client.get("/v1/search?k=60", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == answer.json()


@pytest.mark.parametrize("name", ["..%2Fpage.py", "%2e%2e%2fpage.py", "nothing.js", "", "%00"])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_every_part_that_the_page_names_is_there() -> None:
    index = (PAGE / "index.html").read_text()
    early, late = {"main.js"}, set[str]()
    for script in SCRIPTS:
        early |= set(re.findall(r'from "\./([^"]+)"', script.read_text()))
        late |= set(re.findall(r'import\("\./([^"]+)"\)', script.read_text()))
    named = early | late | {*re.findall(r'"page/([^"]+)"', index)}
    assert named <= {path.name for path in PAGE.iterdir()}
    assert {script.name for script in SCRIPTS} <= early | late, "no script that nobody asks for"
    loaded = re.findall(r'rel="modulepreload" href="page/([^"]+)"', index)
    assert set(loaded) == early - late - {"main.js"}, "all that the first view needs, at once"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_text_of_the_data_can_only_become_text(script: Path) -> None:
    risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    assert not re.search(risky, script.read_text())
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", script.read_text())


#: Colours of words, and of what they stand on.
PAIRS = [
    *itertools.product(("ink", "soft", "faint"), ("ground", "panel", "raised", "hover")),
    *itertools.product(("accent",), ("ground", "panel", "accent-soft")),
    ("soft", "accent-soft"),
    ("on-accent", "accent"), ("warm", "warm-soft"), ("bad", "bad-soft"), ("bad", "ground"),
]  # fmt: skip


def luminance(color: str) -> float:
    """Relative luminance of "#rrggbb" by WCAG 2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("selector", [":root {", ':root[data-theme="dark"] {'])
def test_words_stand_out_from_what_is_behind_them(selector: str) -> None:
    block = (PAGE / "style.css").read_text().partition(selector)[2].partition("}")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for words, behind in PAIRS:
        low, high = sorted(luminance(colors[name]) for name in (words, behind))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (words, behind)
