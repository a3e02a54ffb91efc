"""Scores: those of scikit-learn; what is undefined is said to be, without a crash or a warning."""

import json
import tracemalloc
import warnings
from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse
from sklearn import metrics
from sklearn.calibration import calibration_curve

import expunge
from expunge.audit.findings import ClassScore
from expunge.audit.metrics import coarse_share
from expunge.audit.score_tables import largest_classes
from expunge.audit.scoring import check_score, score_blocks, score_on
from expunge.base.errors import BadRecords
from expunge.solvers import DualAveraging, Lloyd

RNG = np.random.default_rng(3)
X = RNG.normal(size=(400, 3)) / 3
TWO = np.where(X[:, 0] + RNG.normal(size=400) / 5 > 0.1, "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 1] + RNG.normal(size=400) / 6, [-0.2, 0.2])]
AMOUNT = 3 * X[:, 1] + RNG.normal(size=400) / 9
MACRO = "AUC, mean of each class against the rest"
RIVAL = "accuracy of always naming the most frequent class"


@pytest.fixture(scope="module")
def models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logistic, svm = (
            expunge.LogisticRegression(rho=1.0, solver="dual_averaging"),
            expunge.LinearSVC(rho=1.0, solver="dual_averaging"),
        )
        return {
            "two": logistic.fit(X, TWO),
            "three": expunge.LogisticRegression(rho=1.0, solver="dual_averaging").fit(X, THREE),
            "svm": svm.fit(X, TWO), "svm of three": expunge.LinearSVC(rho=1.0, solver="dual_averaging").fit(X, THREE),
            "ridge": expunge.Ridge().fit(X, AMOUNT),
            "k-means": expunge.KMeans(3, rho=1.0, solver=Lloyd(radius=2.0)).fit(X),
        }  # fmt: skip


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def close(value):
    return pytest.approx(value, rel=1e-3)


# --- what is measured ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "y"), [("two", TWO), ("three", THREE)])
def test_scores_of_a_model_with_probabilities_are_those_of_scikit_learn(models, name, y):
    model, score = models[name], score_on(models[name], (X, y))
    chances, named = model.predict_proba(X), model.predict(X)
    area = metrics.roc_auc_score(y == "yes", chances[:, 1]) if name == "two" else metrics.roc_auc_score(
        y, chances, multi_class="ovr", average="macro"
    )  # fmt: skip
    right, chance = (y == "yes", chances[:, 1]) if name == "two" else (y == named, chances.max(axis=1))
    values = dict(score.values)
    assert [*values] == ["accuracy", RIVAL, "AUC" if name == "two" else MACRO, "log-loss", "expected calibration error"]
    assert values["accuracy"] == close(metrics.accuracy_score(y, named))
    assert [*values.values()][2] == close(area)
    assert values["log-loss"] == close(metrics.log_loss(y, chances))
    report = metrics.classification_report(y, named, output_dict=True)
    assert [one.label for one in score.classes] == list(score.labels) == model.classes_.tolist()
    for one in score.classes:
        assert one.records == report[one.label]["support"]
        assert one.precision == close(report[one.label]["precision"])
        assert one.recall == close(report[one.label]["recall"])
    bins = score.calibration.bins
    assert score.calibration.of == ("yes" if name == "two" else None)
    assert sum(one.records for one in bins) == 400
    observed, predicted = calibration_curve(right, chance, n_bins=10)
    assert [one.observed for one in bins] == pytest.approx(observed, abs=0.051)
    assert [one.predicted for one in bins] == pytest.approx(predicted, abs=0.051)
    for one in bins:
        assert one.records == ((chance > one.low) & (chance <= one.high)).sum()
    error = sum(one.records * abs(x - y) for one, x, y in zip(bins, observed, predicted, strict=True)) / 400
    assert values["expected calibration error"] == close(error)
    assert score.notes == ()


@pytest.mark.parametrize(("name", "y"), [("svm", TWO), ("svm of three", THREE)])
def test_without_probabilities_there_is_no_log_loss_and_no_calibration(models, name, y):
    score = score_on(models[name], (X, y))
    scores = models[name].decision_function(X)
    wanted = metrics.roc_auc_score(y == "yes", scores) if name == "svm" else np.mean(
        [metrics.roc_auc_score(y == one, scores[:, j]) for j, one in enumerate("abc")]
    )  # fmt: skip
    assert [name for name, _ in score.values][3:] == []
    assert score.values[2][1] == close(wanted)
    assert score.calibration is None
    assert all(one.recall is not None for one in score.classes)


def test_scores_of_numbers_are_those_of_scikit_learn(models):
    score, guess = score_on(models["ridge"], (X, AMOUNT)), models["ridge"].predict(X)
    assert dict(score.values) == {
        "R²": close(metrics.r2_score(AMOUNT, guess)),
        "mean absolute error": close(metrics.mean_absolute_error(AMOUNT, guess)),
        "mean squared error": close(metrics.mean_squared_error(AMOUNT, guess)),
        "root mean squared error": close(metrics.root_mean_squared_error(AMOUNT, guess)),
    }
    assert score.notes == ()


def test_clusters_have_their_mean_distance_as_before(models):
    score = score_on(models["k-means"], X)
    assert dict(score.values) == {"mean squared distance to the centre": close(-models["k-means"].score(X) / 400)}
    assert sum(score.counts[0]) == 400


# --- what is undefined ---------------------------------------------------------------------------------------


def test_one_class_only_has_no_area(models):
    kept = TWO == "no"
    score = score_on(models["two"], (X[kept], TWO[kept]))
    values = dict(score.values)
    assert values["AUC"] is None
    assert values["log-loss"] > 0
    assert score.notes == ("AUC is undefined: all test records are of one class.",)
    assert all(one.observed == 0.0 for one in score.calibration.bins)
    no, yes = score.classes
    assert (no.precision, yes.records, yes.precision, yes.recall) == (1.0, 0, 0.0, None)
    said = check_score(score).finding
    assert "AUC undefined, log-loss" in said
    assert said.endswith("all test records are of one class.")
    json.dumps(asdict(score), allow_nan=False)


def test_a_class_that_no_test_record_has_is_left_out_of_the_area(models):
    kept = THREE != "b"
    score = score_on(models["three"], (X[kept], THREE[kept]))
    chances = models["three"].predict_proba(X[kept])
    areas = [metrics.roc_auc_score(THREE[kept] == one, chances[:, "abc".index(one)]) for one in "ac"]
    assert dict(score.values)[MACRO] == close(np.mean(areas))
    assert score.notes == ("AUC is the mean over the 2 of 3 classes that test records have.",)
    assert (score.classes[1].records, score.classes[1].recall) == (0, None)
    assert score.labels == ("a", "b", "c")


@pytest.mark.parametrize(("name", "what"), [("two", "AUC, log-loss and calibration leave"), ("svm", "AUC leaves")])
def test_classes_that_the_model_does_not_know_are_errors_but_have_no_probability(models, name, what):
    truth = np.where(np.arange(400) < 7, "perhaps", TWO)
    score, known = score_on(models[name], (X, truth)), score_on(models[name], (X[7:], TWO[7:]))
    assert score.labels == ("no", "yes", "another class")
    assert sum(score.counts[2]) == 7
    assert dict(score.values)["accuracy"] == close(dict(known.values)["accuracy"] * 393 / 400)
    assert score.values[2:] == known.values[2:]
    assert score.calibration == known.calibration
    assert [one.recall for one in score.classes] == [one.recall for one in known.classes]
    assert score.classes[0].precision == close(
        metrics.precision_score(truth, models[name].predict(X), labels=["no"], average=None)[0]
    )
    (note,) = score.notes
    assert note.startswith("7 test records have a class that the model does not know.")
    assert what in note


def test_nothing_is_known_of_unknown_classes_alone(models):
    score = score_on(models["two"], (X[:5], ["who"] * 5))
    assert score.values[2:] == (("AUC", None), ("log-loss", None), ("expected calibration error", None))
    assert score.calibration is None
    assert "no test record has a class that the model knows" in score.notes[1]
    assert dict(score.values)["accuracy"] == 0.0


@pytest.mark.parametrize("number", [0.1, 1e300])
def test_equal_targets_have_no_r2(models, number):
    score = score_on(models["ridge"], (X, np.full(400, number)))
    values = dict(score.values)
    assert values["R²"] is None
    assert values["mean absolute error"] > 0
    assert score.notes[0] == "R² is undefined: all targets are equal."
    assert (values["mean squared error"] is None) == (number > 1) == (len(score.notes) == 2)
    json.dumps(asdict(score), allow_nan=False)


def test_targets_too_large_to_be_squared_are_told(models):
    score = score_on(models["ridge"], (X, np.where(X[:, 0] > 0, 1.7e308, -1.7e308)))
    assert {value for _, value in score.values} == {None}
    assert "too large for these scores: R², mean absolute error, mean squared error, root" in score.notes[0]
    assert np.isfinite(score.edges).all()


@pytest.mark.parametrize("name", ["two", "ridge", "k-means"])
def test_no_records_are_refused(models, name):
    for blocks in ([], [(X[:0], TWO[:0])]):
        with pytest.raises(BadRecords, match="test: no records; give at least one"):
            score_blocks(models[name], blocks)


def test_one_record_is_enough_and_does_not_show(models):
    score = score_on(models["two"], (X[:1], TWO[:1]))
    (only,) = score.calibration.bins
    assert only.predicted in (only.low, only.high)
    assert dict(score_on(models["ridge"], (X[:1], AMOUNT[:1])).values)["R²"] is None
    assert coarse_share(1 / 3, 1_000_000) == 0.3333


# --- many records --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "y"), [("two", TWO), ("three", THREE), ("svm", TWO), ("ridge", AMOUNT)])
def test_blocks_give_the_scores_of_the_whole(models, name, y):
    parts = [slice(0, 150), slice(150, 150), slice(150, 151), slice(151, 400)]
    assert score_blocks(models[name], ((X[part], y[part]) for part in parts)) == score_on(models[name], (X, y))
    assert score_on(models[name], (scipy.sparse.csr_array(X), y)) == score_on(models[name], (X, y))
    clusters = score_blocks(models["k-means"], ((X[part], None) for part in parts))
    assert clusters == score_on(models["k-means"], X)


def test_rows_are_not_kept(models):
    """What is kept of a record: its class twice, its score and two probabilities, and as much again to put together."""
    wide = expunge.LogisticRegression(rho=1.0, solver=DualAveraging(steps=8)).fit(np.tile(X, 30), TWO)
    many, rows = 40, np.tile(X, (10, 30))
    tracemalloc.start()
    score = score_blocks(wide, ((rows + 0.0, np.tile(TWO, 10)) for _ in range(many)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score.records == 4000 * many
    assert most < 0.4 * many * rows.nbytes


def test_the_largest_classes_are_listed_in_their_order():
    classes = tuple(ClassScore(name, records, None, None) for name, records in zip("abcd", (1, 5, 0, 9), strict=True))
    assert [one.label for one in largest_classes(classes, 2)] == ["b", "d"]
    assert largest_classes(classes, 9) == classes
