"""The catalog: parsers on small files in the published forms, search order, download."""

import gzip
import hashlib
import http.server
import io
import threading
import warnings
import zipfile
from dataclasses import replace
from functools import partial

import pytest

from transcf import datasets
from transcf.data import leave_one_out, open_data, open_split, synthesize
from transcf.data.datasets import CATALOG, Remote, fetch, find_folder, is_name
from transcf.errors import DataError, EvaluationError, MissingExtraError, ParameterError

FILES = {
    "delicious": {
        "user_taggedbookmarks-timestamps.dat": "userID\tbookmarkID\ttagID\ttimestamp\n"
        "8\t1\t1\t1289255362000\n8\t1\t2\t1289255362000\n9\t7\t1\t1289255159000\n"
    },
    "tradesy": {
        "tradesy.json": "{'lists': {'bought': ['1'], 'selling': ['5'], 'want': ['2', '1'], "
        "'sold': []}, 'uid': '9'}\n"
        "{'lists': {'bought': [], 'selling': [], 'want': [], 'sold': ['1']}, 'uid': '8'}\n"
    },
    "amazon": {
        "ratings_Cell_Phones_and_Accessories.csv": "A1,0110400550,4.0,1367193600\n"
        "A2,0195866479,1.0,1353456000\n"
    },
    "bookcrossing": {
        "BX-Book-Ratings.csv": '"User-ID";"ISBN";"Book-Rating"\r\n"276725";"034545104X";"0"\r\n'
        '"276726";"\\"0155061224";"5"\r\n"276726";" 0155061224";"7"\r\n'
    },
    "pinterest": {"hmgcn_train.txt": "0 2 4\n1 4\n", "hmgcn_test.txt": "0 5\n1\n"},
    "movietweetings": {
        "ratings.dat": "1::0104257::8::1364690142\n1::1259521::6::1364118447\n",
        "movies.dat": "0104257::A Few: Good Men (1992)::Crime|Drama\n1259521::The Cabin::\n",
    },
    "beauty": {"Beauty.txt": "0\t6845\t1318896000\n0\t7872\t1318896000\n3\t1\t1318896001\n"},
    "ml-latest-small": {
        "ratings.csv": "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n"
        "1,10,3.0,1260759179\n",
        "movies.csv": 'movieId,title,genres\n31,"Minds, Dangerous",Drama\n'
        "10,X,(no genres listed)\n",
    },
}
EXPECTED = {
    "delicious": [(8, 1, 1289255362000), (9, 7, 1289255159000)],
    "tradesy": [(9, 1), (9, 2)],
    "amazon": [("A1", "0110400550", 4.0, 1367193600), ("A2", "0195866479", 1.0, 1353456000)],
    "bookcrossing": [
        (276725, "034545104X", 0.0),
        (276726, " 0155061224", 7.0),
        (276726, '\\"0155061224', 5.0),
    ],
    "pinterest": [(0, 2), (0, 4), (0, 5), (1, 4)],
    "movietweetings": [(1, "0104257", 8.0, 1364690142), (1, "1259521", 6.0, 1364118447)],
    "beauty": [(0, 6845, 1318896000), (0, 7872, 1318896000), (3, 1, 1318896001)],
    "ml-latest-small": [(1, 10, 3.0, 1260759179), (1, 31, 2.5, 1260759144)],
}


def write(folder, name, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in FILES[name].items():
        content = text.encode("latin-1")
        if packed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_published_forms(tmp_path, name, packed):
    folder = write(tmp_path / "somewhere", name, packed)
    assert datasets.load(name, folder).to_frame().rows() == EXPECTED[name]
    assert open_data(folder).to_frame().rows() == EXPECTED[name]


def test_genres_become_categories(tmp_path):
    log = datasets.load("movietweetings", write(tmp_path, "movietweetings"))
    assert log.categories.rows() == [("0104257", "Crime"), ("0104257", "Drama")]


def test_reviews_of_amazon(tmp_path):
    path = tmp_path / "reviews_Cell_Phones_and_Accessories_5.json.gz"
    review = b'{"reviewerID": "A1", "asin": "00X", "overall": 4.0, "unixReviewTime": 5, "x": 1}\n'
    path.write_bytes(gzip.compress(review))
    assert datasets.load("amazon", tmp_path).to_frame().rows() == [("A1", "00X", 4.0, 5)]


def test_other_forms_of_beauty(tmp_path):
    folder = tmp_path / "beauty"  # a common name of a file is known by that of its folder
    folder.mkdir()
    lines = FILES["beauty"]["Beauty.txt"].replace("\t", ",")
    (folder / "events.csv").write_text(f"user_id,item_id,timestamp\n{lines}")
    assert open_data(folder).to_frame().rows() == EXPECTED["beauty"]
    review = '{"reviewerID": "A1", "asin": "00X", "overall": 4.0, "unixReviewTime": 5, "x": 1}\n'
    (tmp_path / "reviews_Beauty_5.json").write_text(review)
    assert open_data(tmp_path).to_frame().rows() == [("A1", "00X", 4.0, 5)]


@pytest.mark.parametrize("name", ["gowalla", "yelp2018"])
def test_public_parts(tmp_path, name):
    folder = tmp_path / name  # known by its name alone
    folder.mkdir()
    (folder / "train.txt").write_text("0 " + " ".join(map(str, range(1, 11))) + "\n1 4\n")
    (folder / "test.txt").write_text("0 11\n1\n")
    assert len(open_data(folder)) == 12
    split = open_split(folder)
    assert split.test.to_frame().rows() == [(0, 11)]
    assert (len(split.train), len(split.validation)) == (10, 1)
    assert "public test part" in split.how
    with pytest.raises(EvaluationError, match="cut at one moment"):
        open_split(folder, "temporal")


@pytest.mark.parametrize("name", ["beauty", "bookcrossing", "movietweetings", "tradesy"])
def test_lines_in_another_form_are_refused(tmp_path, name):
    folder = write(tmp_path, name)
    file = folder / next(iter(FILES[name]))
    file.write_bytes(file.read_bytes() + b"what's this?\n")
    with pytest.raises(DataError, match="not as published"):
        datasets.load(name, folder)


def test_every_entry_says_where_what_and_how():
    assert {"delicious", "tradesy", "ciao", "amazon", "bookcrossing", "pinterest", "flixster",
            "movietweetings", "beauty", "gowalla", "yelp2018", "ml-latest-small",
            } == set(datasets.names())  # fmt: skip
    for name in datasets.names():
        entry = datasets.describe(name)
        assert entry.home.startswith("http")
        assert entry.citation
        assert entry.terms
    with pytest.raises(DataError, match="There is no dataset 'netflix' in the catalog"):
        datasets.load("netflix")


def test_search_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSCF_DATA", raising=False)
    assert find_folder("tradesy") is None
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    write(tmp_path / "datasets" / "tradesy", "tradesy")  # next to this folder, not in it
    assert find_folder("tradesy") is None
    for place in ("../cache/transcf", "datasets", "data", "env"):
        folder = write(tmp_path / "work" / place / "tradesy", "tradesy")
        if place == "env":
            monkeypatch.setenv("TRANSCF_DATA", str(folder.parent))
        assert find_folder("tradesy").resolve() == folder.resolve()
    assert open_data("tradesy").to_frame().rows() == EXPECTED["tradesy"]


@pytest.mark.parametrize("name", ["tradesy", "synthetic"])
def test_a_path_wins_over_a_name_with_a_warning(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TRANSCF_DATA", str(write(tmp_path / "env" / "tradesy", "tradesy").parent))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    mine = leave_one_out(synthesize(users=20, items=20, interactions=150))
    mine.save(tmp_path / "work" / name)
    n = len(mine.train) + len(mine.validation) + len(mine.test)
    for opener, expected in (
        (open_data, n),
        (lambda spec: open_split(spec).train, len(mine.train)),
    ):
        with pytest.warns(UserWarning, match=f"^{name} is a path here") as caught:
            assert len(opener(name)) == expected
        assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_data(f"./{name}")) == len(open_data(tmp_path / "work" / name)) == n
        assert not is_name(name)
        monkeypatch.chdir(tmp_path)
        assert is_name(name)
        assert len(open_data(name)) != n


def test_a_folder_that_is_the_dataset_hides_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSCF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "tradesy", "tradesy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_data("tradesy").to_frame().rows() == EXPECTED["tradesy"]
    monkeypatch.delenv("TRANSCF_DATA")
    with (
        pytest.warns(UserWarning, match="^tradesy is a path here"),
        pytest.raises(DataError, match="LOO"),
    ):
        datasets.load_split("tradesy")


def test_an_empty_folder_is_no_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSCF_DATA", str(tmp_path / "env"))
    (tmp_path / "env" / "tradesy").mkdir(parents=True)
    folder = write(tmp_path / "data" / "tradesy", "tradesy")
    assert find_folder("tradesy").resolve() == folder


@pytest.mark.parametrize(
    "content",
    [b"movieId,title\n31,X\n", b"movieId,genres\nx,Drama\n", b"movieId,genres\n\xff\xfe,Drama\n"],
    ids=["no genres", "no numbers", "no text"],
)
def test_movies_in_another_form_are_refused(tmp_path, content):
    folder = write(tmp_path, "ml-latest-small")
    (folder / "movies.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"movies\.csv is not as published: [^\n]*$"):
        datasets.load("ml-latest-small", folder)


def test_candidates_in_another_form_are_refused(tmp_path):
    for name in ("LOOTrain", "LOOVal", "LOOTest"):
        (tmp_path / f"{name}.dat").write_text("uid\tiid\n")
    (tmp_path / "LOOTrain.dat").write_text("uid\tiid\n1\t1\n1\t2\n")
    (tmp_path / "LOONegatives.dat").write_text("1\t2\tmany\n")
    with pytest.raises(DataError, match=r"LOONegatives\.dat is not as published: [^\n]*$"):
        datasets.load_split(tmp_path)


def test_what_tradesy_leaves_out_is_counted(tmp_path):
    folder = write(tmp_path, "tradesy")
    line = '{"lists": {"bought": [null], "selling": [], "want": ["7"], "sold": []}, "uid": "7"}\n'
    with (folder / "tradesy.json").open("a") as file:
        file.write(line)
    report = datasets.load("tradesy", folder).report
    assert report.count("leave out", "users_without_items") == 1
    assert report.count("leave out", "missing_items") == 1


def test_columns_are_for_files(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,what,n\n1,2,-3\n1,4,5\n1,6,5\n")
    named = {"user": "who", "item": "what"}
    assert open_data(path, **named).to_frame().rows() == [(1, 2), (1, 4), (1, 6)]
    assert len(open_split(path, **named).train) == 1
    for spec in ("synthetic", "tradesy", open_split(path, **named).save(tmp_path / "split")):
        with pytest.raises(ParameterError, match=r"is no file: .*\(user, item\) can only"):
            open_split(spec, "paper", **named)


def test_flixster_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"transcf\[hdf5\]"):
        datasets.load("flixster", tmp_path)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
    ) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


def test_download_of_a_file_and_of_members_of_an_archive(server, tmp_path):
    folder, url = server
    content = FILES["ml-latest-small"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in content.items():
            archive.writestr(f"ml-latest-small/{name}", text)
    (folder / "ml.zip").write_bytes(packed.getvalue())
    (folder / "README.txt").write_text("hello")
    digest = hashlib.sha256(content["ratings.csv"].encode()).hexdigest()
    remotes = (
        Remote(f"{url}/ml.zip", "ratings.csv", digest),
        Remote(f"{url}/ml.zip", "movies.csv"),
        Remote(f"{url}/README.txt", "README.txt"),
    )
    target = fetch(replace(CATALOG["ml-latest-small"], remotes=remotes), tmp_path / "got")
    assert sorted(p.name for p in target.iterdir()) == ["README.txt", "movies.csv", "ratings.csv"]
    assert open_data(target).to_frame().rows() == EXPECTED["ml-latest-small"]


@pytest.mark.parametrize(
    ("file", "digest", "message"),
    [
        ("there.dat", "0" * 64, "has sha256 2cf24dba5fb0a30e..., expected 0000000000000000"),
        ("absent.dat", None, "cannot be fetched .*: check the network"),
        ("there.zip", None, "is no zip archive"),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, tmp_path, file, digest, message):
    folder, url = server
    for name in ("there.dat", "there.zip"):
        (folder / name).write_text("hello")
    entry = replace(CATALOG["tradesy"], remotes=(Remote(f"{url}/{file}", "x", digest),))
    with pytest.raises(DataError, match=message):
        fetch(entry, tmp_path / "got")
    assert [path.name for path in tmp_path.iterdir()] == ["served"]


def test_offline_is_one_sentence(tmp_path):
    entry = replace(CATALOG["tradesy"], remotes=(Remote("http://127.0.0.1:9/x", "x"),))
    with pytest.raises(DataError, match=r"cannot be fetched .* set TRANSCF_DATA"):
        fetch(entry, tmp_path)
    with pytest.raises(DataError, match="has to be asked for at https"):
        fetch(replace(entry, remotes=()), tmp_path)


def test_open_data_names_what_it_knows(tmp_path, monkeypatch):
    assert len(open_data("synthetic")) == 20_000
    with pytest.raises(DataError, match="nor a name of the catalog: synthetic, delicious"):
        open_data("nonsense")
    with pytest.raises(DataError, match="is a folder without files that end in"):
        open_data(tmp_path)
    with pytest.raises(ParameterError, match="protocol='loose'"):
        open_split("synthetic", "loose")


def test_open_split_draws_candidates_for_sampled_protocols_only():
    for protocol in (None, "temporal", "leave-last-out"):
        assert open_split("synthetic", protocol).candidates is None
    split = open_split("synthetic", "paper", seed=4)
    assert split.candidates.source == "99 drawn, seed 4"
    assert split.recipe["rule"] == "leave-one-out by time"
