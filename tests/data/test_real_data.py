"""The paper's datasets: published counts, and the authors' own held-out rows, one by one."""

import numpy as np
import polars as pl
import pytest

from transcf import datasets
from transcf.data import leave_one_out, open_data, open_split, paper_filter

COUNTS = {
    "delicious": (1050, 1196, 7698),
    "ciao": (6760, 11166, 146996),
    "bookcrossing": (19571, 39702, 605178),
    "amazon": (59089, 17969, 332236),
}
RAW = {
    "tradesy": (92835, 184281, 508992),
    "pinterest": (37501, 9836, 1000154),
    "flixster": (2341, 2956, 26173),
    "movietweetings": (16554, 10506, 100000),
    "beauty": (22363, 12101, 198502),
    "gowalla": (29858, 40981, 810128 + 217242),
    "yelp2018": (31668, 38048, 1237259 + 324147),
    "ml-latest-small": (671, 9066, 100004),
}


def sizes(log):
    return log.n_users, log.n_items, len(log)


def authors_rows(folder, name):
    path = folder / name
    file = path if path.exists() else path.with_name(f"{name}.gz")
    return pl.read_csv(file, separator="\t").sort("uid").rows()


# The authors' candidates of Amazon are not published, so they are drawn.
@pytest.mark.parametrize(("name", "drawn"), [("delicious", 100), ("ciao", 100), ("amazon", 99)])
def test_prepared_folders(real_data, name, drawn):
    folder = real_data(name)
    log = open_data(folder)
    assert sizes(log) == COUNTS[name]
    split = leave_one_out(log, "paper")
    for part, file in ((split.validation, "LOOVal.dat"), (split.test, "LOOTest.dat")):
        rows = part.to_frame().select("user_id", "item_id").rows()
        assert rows == authors_rows(folder, file)
    stored = open_split(folder, "paper")
    for part in ("train", "validation", "test"):
        assert getattr(stored, part).to_frame().equals(getattr(split, part).to_frame())
    assert np.all(np.diff(stored.candidates.indptr) == drawn)


@pytest.mark.parametrize("name", ["delicious", "ciao", "bookcrossing"])
def test_raw_logs_with_the_papers_filter(real_data, name):
    folder = real_data(name)
    log = paper_filter(datasets.load(name, folder, variant="raw"))
    assert sizes(log) == COUNTS[name]
    if name != "bookcrossing":
        return
    split = open_split(folder, "paper")
    assert np.all(np.diff(split.candidates.indptr) == 99)
    numbers = {}
    ordered = log.to_frame().with_columns(place=pl.Series(log.positions)).sort("place")
    for column in ("user_id", "item_id"):
        distinct = ordered[column].unique(maintain_order=True)
        numbers[column] = dict(zip(distinct, range(len(distinct)), strict=True))
    for part, file in ((split.validation, "LOOVal.dat"), (split.test, "LOOTest.dat")):
        rows = sorted(
            (numbers["user_id"][user], numbers["item_id"][item])
            for user, item in part.to_frame().select("user_id", "item_id").iter_rows()
        )
        assert rows == authors_rows(folder, file)


def test_ratings_and_categories_of_ciao_follow_the_authors_numbers(real_data):
    log = datasets.load("ciao", real_data("ciao"))
    raw = datasets.load("ciao", real_data("ciao"), variant="raw")
    assert log.categories["category"].n_unique() == 28
    assert "Household Appliances" in log.categories["category"]
    # The authors' numbers are by first appearance; a user's ratings are the same multiset.
    filtered = paper_filter(raw)
    for one, other in ((log, filtered),):
        assert np.array_equal(np.sort(one.ratings), np.sort(other.ratings))
        # First users of both are the same person: user 1 of the raw log.
        mine = one.ratings[: one.by_user.indptr[1]]
        theirs = other.ratings[: other.by_user.indptr[1]]
        assert np.array_equal(np.sort(mine), np.sort(theirs))
    popular = log.categories.join(log.to_frame(), on="item_id")["category"].value_counts()
    theirs = filtered.categories.join(filtered.to_frame(), on="item_id")["category"].value_counts()
    assert sorted(popular.rows()) == sorted(theirs.rows())


@pytest.mark.parametrize("name", RAW)
def test_raw_logs(real_data, name):
    if name == "flixster":
        pytest.importorskip("h5py")
    log = datasets.load(name, real_data(name))
    assert sizes(log) == RAW[name]
    assert (log.categories is not None) == (name in ("movietweetings", "ml-latest-small"))


def test_gowalla_comes_in_its_public_parts(real_data):
    folder = real_data("gowalla")
    split, other = (open_split(folder, seed=seed) for seed in (0, 1))
    assert len(split.before_test) == 810_128
    assert len(split.test) == 217_242
    assert len(split.validation) == 81_013
    assert split.test.to_frame().equals(other.test.to_frame())
    assert not split.validation.to_frame().equals(other.validation.to_frame())
