"""The datasets of the catalog: who made them, where they are, and on what terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transcf.data.datasets import parsers
from transcf.data.interactions import Interactions


@dataclass(frozen=True)
class Remote:
    """A file to fetch.

    Attributes:
        url: Where it is.
        name: What to call it, or which member of a zip archive to take.
        sha256: Of the file (of the member, if it is in an archive), or None if not known.
    """

    url: str
    name: str
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog.

    Attributes:
        name: What `load` calls it.
        title: What people call it.
        home: Page of its makers.
        citation: What to cite.
        terms: On what terms it is given.
        parse: Reads the published files in a folder.
        marks: Files of which one tells that a folder holds this dataset.
        remotes: Files to fetch; empty if they have to be asked for at `home`.
        paper_size: Users, items and interactions in the paper, where known.
        split_by_rule: Whether the authors' split follows from the published files: their filter,
            then each user's largest item number. (Tests compare it with their held-out rows.)
    """

    name: str
    title: str
    home: str
    citation: str
    terms: str
    parse: Callable[[Path], Interactions]
    marks: tuple[str, ...]
    remotes: tuple[Remote, ...] = ()
    paper_size: tuple[int, int, int] | None = None
    split_by_rule: bool = False


_RESEARCH = "Research use, with citation; the files are not passed on with this library."
_TWEETINGS = "https://raw.githubusercontent.com/sidooms/MovieTweetings/master/snapshots/100K"
_PINTEREST = "https://raw.githubusercontent.com/hexiangnan/neural_collaborative_filtering/master"
_MOVIELENS = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
_AMAZON = "ratings_Cell_Phones_and_Accessories.csv"
_GOWALLA = "https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/master/data/gowalla"
_REVIEWS = "http://snap.stanford.edu/data/amazon/productGraph/categoryFiles"

_ENTRIES = (
    Dataset(
        name="delicious",
        title="Delicious (HetRec 2011)",
        home="https://grouplens.org/datasets/hetrec-2011/",
        citation="Cantador, Brusilovsky, Kuflik: Second workshop on information heterogeneity and "
        "fusion in recommender systems (HetRec 2011). RecSys 2011.",
        terms=_RESEARCH,
        parse=parsers.parse_delicious,
        marks=("user_taggedbookmarks-timestamps.dat",),
        remotes=(
            Remote(
                "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-delicious-2k.zip",
                "user_taggedbookmarks-timestamps.dat",
            ),
        ),
        paper_size=(1050, 1196, 7698),
    ),
    Dataset(
        name="tradesy",
        title="Tradesy",
        home="https://cseweb.ucsd.edu/~jmcauley/datasets.html",
        citation="He, McAuley: VBPR: visual Bayesian personalized ranking from implicit feedback. "
        "AAAI 2016.",
        terms=_RESEARCH,
        parse=parsers.parse_tradesy,
        marks=("tradesy.json",),
        remotes=(
            Remote(
                "http://jmcauley.ucsd.edu/data/tradesy/tradesy.json.gz",
                "tradesy.json.gz",
                "fae038f71157d085946ba8a64ae7305dbd8aa94699e963040ab8d052764e9b6a",
            ),
        ),
        paper_size=(3352, 5547, 32710),
    ),
    Dataset(
        name="ciao",
        title="Ciao",
        home="https://www.cse.msu.edu/~tangjili/trust.html",
        citation="Tang, Gao, Liu: mTrust: discerning multi-faceted trust in a connected world. "
        "WSDM 2012.",
        terms=_RESEARCH,
        parse=parsers.parse_ciao,
        marks=("rating.mat",),
        remotes=(
            Remote(
                "https://www.cse.msu.edu/~tangjili/datasetcode/ciao.zip",
                "rating.mat",
                "aa793568686285a93286ba9e56954fcce347370ad2e58c785760362ab12d2c2c",
            ),
        ),
        paper_size=(6760, 11166, 146996),
    ),
    Dataset(
        name="amazon",
        title="Amazon, Cell Phones and Accessories",
        home="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
        citation="McAuley, Targett, Shi, van den Hengel: Image-based recommendations on styles and "
        "substitutes. SIGIR 2015.",
        terms=_RESEARCH,
        parse=parsers.parse_amazon,
        marks=(_AMAZON, "reviews_Cell_Phones_and_Accessories_5.json"),
        remotes=(
            Remote(
                f"{_REVIEWS}/{_AMAZON}",
                _AMAZON,
            ),
        ),
    ),
    Dataset(
        name="bookcrossing",
        title="Book-Crossing",
        home="http://www2.informatik.uni-freiburg.de/~cziegler/BX/",
        citation="Ziegler, McNee, Konstan, Lausen: Improving recommendation lists through topic "
        "diversification. WWW 2005.",
        terms=_RESEARCH,
        parse=parsers.parse_bookcrossing,
        marks=("BX-Book-Ratings.csv",),
        remotes=(
            Remote(
                "http://www2.informatik.uni-freiburg.de/~cziegler/BX/BX-CSV-Dump.zip",
                "BX-Book-Ratings.csv",
                "f359084e5f350151b61f3d07acbe3c6ff0e2bd057d88901fa60507449d0e0e57",
            ),
        ),
        paper_size=(19571, 39702, 605178),
        split_by_rule=True,
    ),
    Dataset(
        name="pinterest",
        title="Pinterest",
        home="https://github.com/hexiangnan/neural_collaborative_filtering",
        citation="Geng, Zhang, Bian, Chua: Learning image and user features for recommendation in "
        "social networks. ICCV 2015.",
        terms=_RESEARCH,
        parse=parsers.parse_pinterest,
        marks=("pinterest-20.train.rating", "hmgcn_train.txt"),
        remotes=tuple(
            Remote(f"{_PINTEREST}/Data/{name}", name)
            for name in ("pinterest-20.train.rating", "pinterest-20.test.rating")
        ),
    ),
    Dataset(
        name="flixster",
        title="Flixster (excerpt of 3,000 users and 3,000 films)",
        home="https://github.com/fmonti/mgcnn",
        citation="Jamali, Ester: A matrix factorization technique with trust propagation for "
        "recommendation in social networks. RecSys 2010.",
        terms=_RESEARCH,
        parse=parsers.parse_flixster,
        marks=("training_test_dataset.mat",),
        remotes=(
            Remote(
                "https://raw.githubusercontent.com/fmonti/mgcnn/master/Data/flixster/"
                "training_test_dataset.mat",
                "training_test_dataset.mat",
                "8b07e0387edfe7ffdccead2826bb3844ddbd9e6a8ccba264ce81a3b59b273197",
            ),
        ),
        paper_size=(69482, 25687, 8000690),
    ),
    Dataset(
        name="movietweetings",
        title="MovieTweetings, snapshot of 100,000",
        home="https://github.com/sidooms/MovieTweetings",
        citation="Dooms, De Pessemier, Martens: MovieTweetings: a movie rating dataset collected "
        "from Twitter. CrowdRec at RecSys 2013.",
        terms="MIT licence.",
        parse=parsers.parse_movietweetings,
        marks=("movies.dat",),
        remotes=(
            Remote(
                f"{_TWEETINGS}/ratings.dat",
                "ratings.dat",
                "c0dd868c2632d10002ebc928ddc5345f33adeaa59eca52c2941c26a2c5e36fd6",
            ),
            Remote(
                f"{_TWEETINGS}/movies.dat",
                "movies.dat",
                "e63fb84bc734e3c574f135634a40d3cbafab22b8f94f5fc0b80f80d1d2076efc",
            ),
        ),
    ),
    Dataset(
        # A tab-separated list of user, item and time, or the reviews it was made from.
        name="beauty",
        title="Amazon, Beauty, 5-core",
        home="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
        citation="McAuley, Targett, Shi, van den Hengel: Image-based recommendations on styles and "
        "substitutes. SIGIR 2015.",
        terms=_RESEARCH,
        parse=parsers.parse_beauty,
        marks=("Beauty.txt", "reviews_Beauty_5.json"),
        remotes=(Remote(f"{_REVIEWS}/reviews_Beauty_5.json.gz", "reviews_Beauty_5.json.gz"),),
    ),
    Dataset(
        # Known by the name of its folder: its files have the most common names there are.
        name="gowalla",
        title="Gowalla, 10-core, with the split of graph recommenders",
        home="https://github.com/gusye1234/LightGCN-PyTorch",
        citation="Cho, Myers, Leskovec: Friendship and mobility: user movement in location-based "
        "social networks. KDD 2011; split: Wang, He, Wang, Feng, Chua: Neural graph collaborative "
        "filtering. SIGIR 2019.",
        terms=_RESEARCH,
        parse=parsers.parse_gowalla,
        marks=(),
        remotes=tuple(Remote(f"{_GOWALLA}/{name}", name) for name in ("train.txt", "test.txt")),
    ),
    Dataset(
        # Its makers replace the archive from time to time, so no checksum can be stated.
        name="ml-latest-small",
        title="MovieLens latest-small",
        home="https://grouplens.org/datasets/movielens/latest/",
        citation="Harper, Konstan: The MovieLens datasets: history and context. ACM TiiS 5(4), "
        "2015.",
        terms="Research use, no commercial use without permission; see README.txt in the archive.",
        parse=parsers.parse_movielens,
        marks=("movies.csv",),
        remotes=tuple(
            Remote(_MOVIELENS, name) for name in ("ratings.csv", "movies.csv", "README.txt")
        ),
    ),
)

#: Every dataset by name.
CATALOG: dict[str, Dataset] = {entry.name: entry for entry in _ENTRIES}
