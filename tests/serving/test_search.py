"""Search: words in any order, folded letters, a typo, exact titles first, categories."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from starlette.testclient import TestClient

from transcf.data.interactions import Interactions
from transcf.models.registry import create
from transcf.serving.items import _typo_pattern

TITLES = [
    ("Matrix, The (1999)", "Action|Sci-Fi"),
    ("Matrix Reloaded, The (2003)", "Action|Sci-Fi"),
    ("Star Wars: Episode IV - A New Hope (1977)", "Sci-Fi"),
    ("Toy Story (1995)", "Animation|Children's"),
    ("Toy Story 2 (1999)", "Animation|Children's"),
    ("Amélie (Fabuleux destin d'Amélie Poulain, Le) (2001)", "Comedy"),
    ("Léon: The Professional (1994)", "Action"),
    ("Story of Us, The (1999)", "Drama"),
]


@pytest.fixture(scope="module")
def films(log: Interactions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("films")
    items = log.items.series.to_list()[: len(TITLES)]
    rows = [(item, *film) for item, film in zip(items, TITLES, strict=True)]
    table = pl.DataFrame(rows, ["item_id", "title", "category"], orient="row")
    table.write_csv(place / "items.csv")
    return create("ease").fit(log).save(place / "films"), place / "items.csv"


@pytest.fixture
def ask(
    films: tuple[Path, Path], open_client: Callable[..., TestClient], tmp_path: Path
) -> Callable[[str], list[str]]:
    client = open_client(films[0], items=films[1], events=str(tmp_path / "events.db"))

    def titles(query: str) -> list[str]:
        found = client.get("/v1/search", params={"q": query, "kind": "items"}).json()
        return [entry["title"] for entry in found["items"]]

    titles.client = client  # type: ignore[attr-defined]
    return titles


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("the matrix", "Matrix, The (1999)"),
        ("MATRIX the 1999", "Matrix, The (1999)"),
        ("star wars episode", "Star Wars: Episode IV - A New Hope (1977)"),
        ("toy story 1995", "Toy Story (1995)"),
        ("toy story", "Toy Story (1995)"),
        ("story toy 2", "Toy Story 2 (1999)"),
        ("amelie", "Amélie (Fabuleux destin d'Amélie Poulain, Le) (2001)"),
        ("professional leon", "Léon: The Professional (1994)"),
        ("star wasr", "Star Wars: Episode IV - A New Hope (1977)"),
        ("mtrix reload", "Matrix Reloaded, The (2003)"),
        ("professsional", "Léon: The Professional (1994)"),
        ("eloaded", "Matrix Reloaded, The (2003)"),
    ],
)
def test_titles_are_found(ask: Callable[[str], list[str]], query: str, first: str) -> None:
    assert ask(query)[0] == first


def test_all_words_are_needed_and_only_one_typo_is_forgiven(
    ask: Callable[[str], list[str]],
) -> None:
    assert ask("matrix hope") == []
    assert ask("matirx reloadde") == []
    assert ask("...") == []


def test_ids_users_and_categories_are_found(ask: Callable[[str], list[str]]) -> None:
    client = ask.client  # type: ignore[attr-defined]
    found = client.get("/v1/search", params={"q": "i03"}).json()
    assert found["items"][0]["item"] == "i03"
    assert client.get("/v1/search?q=U0&kind=users").json()["users"][0]["user"].startswith("u0")
    for query in ("sci fi", "SCI-FI", "fi sci"):
        found = client.get("/v1/search", params={"q": query}).json()["categories"]
        assert found == [{"category": "Sci-Fi", "items": 3}]
    found = client.get("/v1/search", params={"q": "childrens", "kind": "categories"}).json()
    assert found["categories"][0]["category"] == "Children's"
    assert (found["items"], found["users"]) == ([], [])


def distance(one: str, other: str) -> int:
    """Return the number of edits; swapping neighbours counts as one."""
    table = {(-1, -1): 0}
    for i in range(-1, len(one)):
        for j in range(-1, len(other)):
            if i < 0 or j < 0:
                table[i, j] = max(i, j) + 1
                continue
            best = min(
                table[i - 1, j] + 1,
                table[i, j - 1] + 1,
                table[i - 1, j - 1] + (one[i] != other[j]),
            )
            if i and j and one[i] == other[j - 1] and one[i - 1] == other[j]:
                best = min(best, table[i - 2, j - 2] + 1)
            table[i, j] = best
    return table[len(one) - 1, len(other) - 1]


def test_a_typo_is_an_edit_distance_of_one() -> None:
    words = ["".join(w) for n in range(1, 6) for w in itertools.product("ab", repeat=n)]
    vocabulary = pl.Series(words)
    for word in ("abab", "aabb", "bbbb"):
        found = vocabulary.filter(vocabulary.str.contains(_typo_pattern(word, is_last=False)))
        assert set(found) == {w for w in words if distance(w, word) <= 1}
