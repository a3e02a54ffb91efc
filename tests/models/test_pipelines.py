"""A step that learns from the records is named; a step called safe has the same state whatever the records are."""

import warnings

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn import feature_extraction, impute, kernel_approximation, preprocessing, random_projection
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import all_estimators

from expunge import HuberRegressor, LogisticRegression
from expunge.base.errors import BadPlan
from expunge.models.pipelines import Leak, check_pipeline
from expunge.models.preprocessing import BoundedScaler
from expunge.solvers import DualAveraging

RNG = np.random.default_rng(0)
NUMBERS = RNG.uniform(size=(30, 4)), 1.0 + RNG.uniform(size=(29, 4))
HOLES = np.where(NUMBERS[0] < 0.3, np.nan, NUMBERS[0]), np.where(np.arange(4), np.nan, NUMBERS[1])
LETTERS = np.array([["a"], ["b"], ["c"]], dtype=object), np.array([["b"], ["b"]], dtype=object)
WORDS = ["one two two", "two three"], ["four"]
COUNTS = tuple(sparse.csr_array(RNG.poisson(0.5, size=(n, 4))) for n in (30, 29))
MAPS = [{"one": 1.0}, {"two": 2.0}], [{"three": 3.0}]

ABC = [["a", "b", "c"]]
FILL = {"strategy": "constant", "fill_value": 0.0, "keep_empty_features": True}

SAFE = [
    (BoundedScaler(), NUMBERS),
    (preprocessing.Normalizer(), NUMBERS),
    (preprocessing.Binarizer(), NUMBERS),
    (FunctionTransformer(np.log1p), NUMBERS),
    (preprocessing.PolynomialFeatures(2), NUMBERS),
    (preprocessing.SplineTransformer(knots=np.tile([[0.0], [0.5], [1.0]], 4)), NUMBERS),
    (random_projection.GaussianRandomProjection(2, random_state=0), NUMBERS),
    (random_projection.SparseRandomProjection(2, random_state=0), NUMBERS),
    (kernel_approximation.RBFSampler(gamma=0.5, random_state=0), NUMBERS),
    (kernel_approximation.RBFSampler(gamma=np.float32(2), random_state=0), NUMBERS),
    (kernel_approximation.SkewedChi2Sampler(random_state=0), NUMBERS),
    (kernel_approximation.PolynomialCountSketch(random_state=0), NUMBERS),
    (kernel_approximation.AdditiveChi2Sampler(), NUMBERS),
    (FrozenEstimator(StandardScaler().fit([[0.0] * 4, [1.0] * 4])), NUMBERS),
    (impute.SimpleImputer(**FILL), HOLES),
    (impute.MissingIndicator(features="all"), HOLES),
    (OneHotEncoder(categories=ABC), LETTERS),
    (OneHotEncoder(categories=ABC, drop="first", handle_unknown="ignore"), LETTERS),
    (OneHotEncoder(categories=ABC, drop="if_binary", handle_unknown="infrequent_if_exist"), LETTERS),
    (OrdinalEncoder(categories=ABC), LETTERS),
    (OrdinalEncoder(categories=ABC, handle_unknown="use_encoded_value", unknown_value=-1), LETTERS),
    (CountVectorizer(vocabulary=["one", "two"], max_df=1), WORDS),
    (TfidfVectorizer(vocabulary=["one", "two"], use_idf=False), WORDS),
    (TfidfTransformer(use_idf=False), COUNTS),
    (HashingVectorizer(n_features=8), WORDS),
    (feature_extraction.FeatureHasher(8), MAPS),
]
LEAKING = [
    (StandardScaler(), NUMBERS, "mean and variance", "BoundedScaler"),
    (preprocessing.MinMaxScaler(), NUMBERS, "smallest and largest", "BoundedScaler"),
    (preprocessing.MaxAbsScaler(), NUMBERS, "largest absolute", "BoundedScaler"),
    (preprocessing.RobustScaler(), NUMBERS, "median", "BoundedScaler"),
    (preprocessing.QuantileTransformer(n_quantiles=5), NUMBERS, "quantiles", "BoundedScaler"),
    (preprocessing.PowerTransformer(), NUMBERS, "exponent", "FunctionTransformer"),
    (preprocessing.KBinsDiscretizer(strategy="uniform"), NUMBERS, "edges", "np.digitize"),
    (preprocessing.SplineTransformer(), NUMBERS, "knots", "knots="),
    (preprocessing.SplineTransformer(knots="quantile"), NUMBERS, "knots", "knots="),
    (random_projection.GaussianRandomProjection(eps=0.99), (np.eye(40, 99), np.eye(9, 99)), "number of", "n_comp"),
    (kernel_approximation.RBFSampler(gamma="scale", random_state=0), NUMBERS, "variance", "gamma=number"),
    (kernel_approximation.Nystroem(n_components=3), NUMBERS, "records themselves", "RBFSampler"),
    (impute.SimpleImputer(), HOLES, "mean of every column", 'strategy="constant"'),
    (impute.SimpleImputer(strategy="median"), HOLES, "median", 'strategy="constant"'),
    (impute.SimpleImputer(strategy="most_frequent"), HOLES, "most frequent", 'strategy="constant"'),
    (impute.SimpleImputer(strategy=np.sum), HOLES, "statistic", 'strategy="constant"'),
    (impute.SimpleImputer(strategy="constant"), HOLES, "all values are missing", "keep_empty_features=True"),
    (impute.SimpleImputer(**FILL, add_indicator=True), HOLES, "values are missing", "MissingIndicator"),
    (impute.MissingIndicator(), HOLES, "values are missing", 'features="all"'),
    (impute.KNNImputer(), HOLES, "records themselves", "constant"),
    (OneHotEncoder(), LETTERS, "categories that occur", "categories="),
    (OneHotEncoder(categories=ABC, min_frequency=2), LETTERS, "rare", "min_frequency"),
    (OneHotEncoder(categories=ABC, max_categories=2), LETTERS, "rare", "max_categories"),
    (OrdinalEncoder(), LETTERS, "categories that occur", "categories="),
    (OrdinalEncoder(categories=ABC, min_frequency=2), LETTERS, "rare", "min_frequency"),
    (CountVectorizer(), WORDS, "words that occur", "HashingVectorizer"),
    (TfidfVectorizer(use_idf=False), WORDS, "words that occur", "HashingVectorizer"),
    (TfidfVectorizer(vocabulary=["one", "two"]), WORDS, "how many records", "use_idf=False"),
    (TfidfTransformer(), COUNTS, "how many records", "use_idf=False"),
    (feature_extraction.DictVectorizer(), MAPS, "names and values", "FeatureHasher"),
    (PCA(2), NUMBERS, "directions", "GaussianRandomProjection"),
    (TruncatedSVD(2), NUMBERS, "directions", "GaussianRandomProjection"),
    (VarianceThreshold(), NUMBERS, "variance", "ColumnTransformer"),
]

REGRESSION = HuberRegressor(solver=DualAveraging(target_range=(-9, 9)))


def _state(transformer, X):
    """Return a digest of all that a fit keeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return joblib.hash(vars(clone(transformer).fit(X, *[None] * isinstance(transformer, FrozenEstimator))))


def _name(value):
    return type(value).__name__ if isinstance(value, BaseEstimator) else ""


def _before_a_model(*steps):
    return make_pipeline(*steps, LogisticRegression(solver="dual_averaging"))


def _steps(leaks):
    return [leak.step for leak in leaks]


@pytest.mark.parametrize(("transformer", "records"), SAFE, ids=_name)
def test_what_is_called_safe_has_the_same_state_whatever_the_records(transformer, records):
    assert check_pipeline(_before_a_model(transformer)) == ()
    known = [LETTERS[0], LETTERS[0][:2]] if records is LETTERS else records
    assert _state(transformer, known[0]) == _state(transformer, known[1])


@pytest.mark.parametrize(("transformer", "records", "why", "instead"), LEAKING, ids=_name)
def test_what_is_called_leaking_has_another_state_for_other_records(transformer, records, why, instead):
    (leak,) = check_pipeline(_before_a_model(transformer))
    assert leak.transformer == type(transformer).__name__
    assert leak.step == leak.transformer.lower()
    assert why in leak.why
    assert instead in leak.instead
    assert _state(transformer, records[0]) != _state(transformer, records[1])


def test_whatever_else_scikit_learn_has_is_safe_only_if_its_state_is_the_same():
    safe = []
    for name, kind in all_estimators(type_filter="transformer"):
        try:
            transformer = kind()
        except TypeError:  # needs arguments
            continue
        if "random_state" in transformer.get_params():
            transformer.set_params(random_state=0)
        if not check_pipeline(Pipeline([("step", transformer), ("model", REGRESSION)])):
            safe.append(name)
            if name not in ("FeatureHasher", "HashingVectorizer", "PatchExtractor"):
                assert _state(transformer, NUMBERS[0]) == _state(transformer, NUMBERS[1]), name
    assert len(safe) >= 11


@pytest.mark.parametrize(
    ("transformer", "why"),
    [
        (preprocessing.TargetEncoder(), "mean target"),
        (preprocessing.LabelBinarizer(), "labels"),
        (SelectKBest(), "chooses columns"),
        (SelectFromModel(Ridge()), "chooses columns"),
        (RFE(Ridge()), "chooses columns"),
        (GridSearchCV(PCA(), {"n_components": [1, 2]}), "cross-validation"),
    ],
    ids=_name,
)
def test_what_looks_at_the_target_leaks_too(transformer, why):
    (leak,) = check_pipeline(_before_a_model(transformer))
    assert why in leak.why


class Foreign:
    """A transformer of somebody else, without tags."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class Unsaid(BaseEstimator, Foreign):
    """One with tags that do not say anything."""


class Said(Unsaid):
    """One that says that it learns nothing."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class Derived(preprocessing.PolynomialFeatures):
    """A class derived from a safe one may do anything in its fit."""


class DerivedScaler(StandardScaler):
    """A class derived from a leaking one leaks for the same reason."""


@pytest.mark.parametrize("transformer", [Foreign(), Unsaid(), Derived()])
def test_unknown_transformers_leak_unless_they_say_otherwise(transformer):
    (leak,) = check_pipeline(_before_a_model(transformer))
    assert "nothing says" in leak.why
    assert "FrozenEstimator" in leak.instead
    assert check_pipeline(_before_a_model(Said())) == ()


def test_a_derived_class_leaks_like_its_ancestor():
    (leak,) = check_pipeline(_before_a_model(DerivedScaler()))
    assert (leak.transformer, leak.why) == ("DerivedScaler", "keeps the mean and variance of every column")


def _nested():
    numbers = Pipeline([("fill", impute.SimpleImputer(**FILL)), ("scale", StandardScaler())])
    both = FeatureUnion([("pca", PCA(1)), ("same", "passthrough"), ("none", "drop"), ("bound", BoundedScaler())])
    columns = ColumnTransformer(
        [("numbers", numbers, [0, 1]), ("both", both, [2, 3]), ("drop", "drop", [0])],
        remainder=preprocessing.MaxAbsScaler(),
    )
    return Pipeline(
        [
            ("columns", columns),
            ("off", None),
            ("same", "passthrough"),
            ("bound", BoundedScaler()),
            ("model", REGRESSION),
        ]
    )


def test_steps_are_found_wherever_they_are_and_named_with_dots():
    leaks = check_pipeline(_nested())
    assert _steps(leaks) == ["columns.numbers.scale", "columns.both.pca", "columns.remainder"]
    assert str(leaks[0]) == (
        "columns.numbers.scale (StandardScaler): keeps the mean and variance of every column; "
        "instead, use BoundedScaler with public ranges"
    )
    assert {type(_nested().get_params()[leak.step.replace(".", "__")]).__name__ for leak in leaks} == {
        leak.transformer for leak in leaks
    }


def test_fitted_pipelines_give_the_same_answer():
    X = np.random.default_rng(1).normal(size=(20, 6))
    pipe = _nested()
    assert check_pipeline(clone(pipe).fit(X, X[:, 0])) == check_pipeline(pipe)


@pytest.mark.parametrize(
    "last", [LogisticRegression(solver="dual_averaging"), StandardScaler(), "passthrough", None, PCA()]
)
def test_the_last_step_is_not_looked_at(last):
    assert check_pipeline(Pipeline([("scale", BoundedScaler()), ("last", last)])) == ()
    assert _steps(check_pipeline(Pipeline([("scale", StandardScaler()), ("last", last)]))) == ["scale"]


def test_a_pipeline_as_last_step_is_looked_into():
    inner = Pipeline([("scale", StandardScaler()), ("model", REGRESSION)])
    assert _steps(check_pipeline(Pipeline([("pca", PCA()), ("inner", inner)]))) == ["pca", "inner.scale"]


def test_a_bare_estimator_has_nothing_before_it():
    for bare in (
        LogisticRegression(solver="dual_averaging"),
        StandardScaler(),
        BoundedScaler(),
        Foreign(),
        FrozenEstimator(_nested()),
    ):
        assert check_pipeline(bare) == ()
    assert _steps(check_pipeline(make_column_transformer((StandardScaler(), [0])))) == ["standardscaler"]


def test_a_search_leaks_by_its_choice_and_by_what_it_searches():
    inner = Pipeline([("scale", StandardScaler()), ("model", REGRESSION)])
    search = GridSearchCV(inner, {"model__alpha": [0.1, 1.0]})
    assert _steps(check_pipeline(search)) == ["GridSearchCV", "estimator.scale"]
    leaks = check_pipeline(Pipeline([("pca", PCA()), ("search", search)]))
    assert _steps(leaks) == ["pca", "search", "search.estimator.scale"]
    assert "cross-validation on the records" in leaks[1].why
    assert leaks[1].instead == "choose on public data, or fix them in advance"
    bare = RandomizedSearchCV(LogisticRegression(solver="dual_averaging"), {"alpha": [0.1, 1.0]})
    assert [leak.transformer for leak in check_pipeline(bare)] == ["RandomizedSearchCV"]


def test_what_is_wrapped_around_a_pipeline_is_looked_through():
    pipe = _before_a_model(StandardScaler())
    assert _steps(check_pipeline(VotingClassifier([("a", pipe), ("b", _before_a_model())]))) == ["a.standardscaler"]
    for wrap in (CalibratedClassifierCV, TunedThresholdClassifierCV, RFE):
        assert _steps(check_pipeline(wrap(pipe))) == [wrap.__name__, "estimator.standardscaler"]
    target = TransformedTargetRegressor(make_pipeline(PCA(), REGRESSION), transformer=StandardScaler())
    assert _steps(check_pipeline(target)) == ["transformer", "regressor.pca"]


def test_a_cache_keeps_transformed_records(tmp_path):
    pipe = Pipeline([("scale", BoundedScaler()), ("model", REGRESSION)], memory=str(tmp_path))
    (leak,) = check_pipeline(pipe)
    assert (leak.step, leak.instead) == ("memory", "use memory=None")
    pipe.fit(NUMBERS[0], NUMBERS[0][:, 0])
    assert any(path.is_file() for path in tmp_path.rglob("*.pkl"))


def test_column_transformers_that_measure_density_leak():
    def columns(unknown="ignore", **options):
        encode = OneHotEncoder(categories=[[0.0, 1.0, 2.0, 3.0, 4.0]], handle_unknown=unknown)
        return make_column_transformer((encode, [0]), remainder=BoundedScaler(), **options)

    (leak,) = check_pipeline(_before_a_model(columns()))
    assert (leak.step, leak.transformer) == ("columntransformer", "ColumnTransformer")
    assert "sparse_threshold=0" in leak.instead
    X = np.array([[0.0, 0.5], [9.0, 0.5]])  # the second is no known category, and becomes zeros
    assert [columns().fit(rows).sparse_output_ for rows in (X, X[:1])] == [True, False]
    for threshold in (0, 1):
        assert check_pipeline(_before_a_model(columns(sparse_threshold=threshold))) == ()
    assert check_pipeline(_before_a_model(columns("error"))) == ()  # each record has one 1: the density is known
    words = make_column_transformer((make_pipeline(HashingVectorizer(), preprocessing.Normalizer()), 0))
    assert _steps(check_pipeline(_before_a_model(words))) == ["columntransformer"]


@pytest.mark.parametrize("pipe", [None, 3, "passthrough", [("scale", StandardScaler())]])
def test_what_cannot_be_fitted_is_refused(pipe):
    with pytest.raises(BadPlan, match="has no fit; give a scikit-learn pipeline or estimator"):
        check_pipeline(pipe)


def test_a_class_instead_of_an_instance_is_refused():
    with pytest.raises(BadPlan, match=r"give an instance, StandardScaler\("):
        check_pipeline(StandardScaler)


def test_a_leak_is_one_line_and_cannot_be_changed():
    leak = Leak("a", "B", "c", "d")
    assert str(leak) == "a (B): c; instead, d"
    with pytest.raises(AttributeError):
        leak.step = "x"


def test_a_model_that_cannot_unlearn_is_named():
    for model in (Ridge(), GridSearchCV(Ridge(), {"alpha": [1.0]}), make_pipeline(BoundedScaler(), Ridge())):
        leaks = check_pipeline(model)
        assert "cannot unlearn" in leaks[-1].why
        assert leaks[-1].transformer == "Ridge"


def test_noise_that_can_be_computed_again_is_named():
    (leak,) = check_pipeline(
        make_pipeline(BoundedScaler(), LogisticRegression(random_state=0, solver="dual_averaging"))
    )
    assert "random_state" in leak.why
    assert leak.instead == "leave random_state=None"
