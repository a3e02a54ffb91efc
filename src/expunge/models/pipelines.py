"""Steps before a model must not learn from the records either: find the steps of a pipeline that do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from expunge.base.errors import BadPlan


@dataclass(frozen=True)
class Leak:
    """A step that keeps something of the records, so that deleting one from the model does not delete it.

    >>> print(Leak("scale", "StandardScaler", "keeps the mean of every column", "use BoundedScaler"))
    scale (StandardScaler): keeps the mean of every column; instead, use BoundedScaler
    """

    step: str
    transformer: str
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.step} ({self.transformer}): {self.why}; instead, {self.instead}"


def check_pipeline(pipe: Any) -> tuple[Leak, ...]:
    """Return the steps of a pipeline, fitted or not, that keep something of deleted records; nothing if there are none.

    Steps are named as in ``set_params``, with dots. A step is safe if its scikit-learn tags say that it needs no fit,
    or if it is one of scikit-learn's whose fit, with its parameters, reads no value of a record. It trusts such tags,
    functions that you pass (``FunctionTransformer``, columns chosen by a callable), and constants (ranges, categories,
    vocabularies, a ``FrozenEstimator``). Take these from public knowledge; no check can verify that.

    >>> from expunge import LogisticRegression
    >>> from sklearn.preprocessing import StandardScaler
    >>> from expunge.models.preprocessing import BoundedScaler
    >>> for leak in check_pipeline(Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])):
    ...     print(leak)
    scale (StandardScaler): keeps the mean and variance of every column; instead, use BoundedScaler with public ranges
    >>> check_pipeline(Pipeline([("scale", BoundedScaler(0, 120)), ("model", LogisticRegression())]))
    ()
    """
    if isinstance(pipe, type):
        raise BadPlan(f"pipe={pipe.__name__}: this is a class; give an instance, {pipe.__name__}(...).")
    if not hasattr(pipe, "fit"):
        raise BadPlan(f"pipe={pipe!r}: has no fit; give a scikit-learn pipeline or estimator.")
    return tuple(_in_last("", pipe))


Reason = tuple[str, str]
"""Why a transformer leaks, and what to do instead."""


def _in_last(path: str, model: Any) -> Iterator[Leak]:
    """Yield the leaks in a last step: in the model, and in what is around and before it."""
    if _is_absent(model) or _is(model, "FrozenEstimator"):
        return
    if isinstance(model, Pipeline):
        yield from _in_cache(path, model)
        for name, step in model.steps[:-1]:
            yield from _in_step(_join(path, name), step)
        for name, step in model.steps[-1:]:
            yield from _in_last(_join(path, name), step)
    elif isinstance(model, ColumnTransformer | FeatureUnion):
        yield from _in_step(path, model)
    else:
        if _is(model, "TransformedTargetRegressor"):
            yield from _in_step(_join(path, "transformer"), model.transformer)
        reason = _choice(model)
        if reason is not None:
            yield _leak(path, model, reason)
        for name, part in _wrapped(model):
            yield from _in_last(_join(path, name), part)
        if not _wrapped(model):
            yield from _in_model(path, model)


def _in_model(path: str, model: Any) -> Iterator[Leak]:
    """Yield what keeps a model itself from forgetting."""
    if hasattr(model, "predict"):
        if not hasattr(model, "unlearn"):
            yield _leak(path, model, CANNOT_UNLEARN)
        elif getattr(model, "random_state", None) is not None:
            yield _leak(path, model, KNOWN_NOISE)


def _in_step(path: str, step: Any) -> Iterator[Leak]:
    """Yield the leaks in a step whose output goes to others."""
    if _is_absent(step):
        return
    if isinstance(step, Pipeline):
        yield from _in_cache(path, step)
        parts: Iterable[tuple[str, Any]] = step.steps
    elif isinstance(step, FeatureUnion):
        parts = step.transformer_list
    elif isinstance(step, ColumnTransformer):
        parts = [(name, part) for name, part, _ in step.transformers] + [("remainder", step.remainder)]
        if 0 < step.sparse_threshold < 1 and any(_varies(part) for _, part in parts):
            yield _leak(path, step, DENSITY)
    else:
        reason = _reason(step)
        if reason is not None:
            yield _leak(path, step, reason)
        return
    for name, part in parts:
        yield from _in_step(_join(path, name), part)


def _in_cache(path: str, pipe: Any) -> Iterator[Leak]:
    if pipe.memory is not None and any(not _is_absent(step) for _, step in pipe.steps[:-1]):
        yield _leak(_join(path, "memory"), pipe, CACHE)


def _leak(path: str, step: Any, reason: Reason) -> Leak:
    return Leak(path or type(step).__name__, type(step).__name__, *reason)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_absent(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step in ("passthrough", "drop"))


def _sklearn_names(step: Any) -> list[str]:
    """Return the names of the step's class and its ancestors, as far as they are scikit-learn's."""
    return [kind.__name__ for kind in type(step).__mro__ if kind.__module__.partition(".")[0] == "sklearn"]


def _is(step: Any, name: str) -> bool:
    return name in _sklearn_names(step)


def _wrapped(model: Any) -> list[tuple[str, Any]]:
    """Return the models inside a model, such as that of a grid search or those of an ensemble."""
    inside = [(name, getattr(model, name, None)) for name in ("estimator", "regressor")]
    several = getattr(model, "estimators", None)
    if isinstance(several, list | tuple):
        inside += [pair for pair in several if isinstance(pair, tuple) and len(pair) == 2]
    return [(name, part) for name, part in inside if hasattr(part, "fit") and not isinstance(part, type)]


def _choice(model: Any) -> Reason | None:
    """Return why what is wrapped around a model leaks, if it does."""
    if not _wrapped(model):
        return None
    if _is(model, "BaseSearchCV") or type(model).__name__.endswith("SearchCV"):
        return SEARCH
    return next((CHOICES[name] for name in _sklearn_names(model) if name in CHOICES), None)


def _varies(step: Any) -> bool:
    """Whether the step is known to give sparse output with more or fewer zeros from record to record."""
    if isinstance(step, Pipeline):
        return any(_varies(part) for _, part in step.steps)
    if isinstance(step, FeatureUnion):
        return any(_varies(part) for _, part in step.transformer_list)
    if isinstance(step, ColumnTransformer):
        return step.sparse_threshold > 0 and any(_varies(part) for _, part, _ in step.transformers)
    if _is(step, "OneHotEncoder") and step.handle_unknown == "error" and step.drop is None:
        return False  # one 1 for each value
    return getattr(step, "sparse_output", False) is True or any(name in SPARSE for name in _sklearn_names(step))


def _reason(step: Any) -> Reason | None:
    """Return why a single transformer leaks, or nothing if it does not."""
    names = _sklearn_names(step)
    if type(step).__module__.partition(".")[0] == "sklearn" and names[0] in RULES:
        return RULES[names[0]](step)
    if "BaseSearchCV" in names:
        return SEARCH
    if not _requires_fit(step):
        return None
    for name in names:  # of a class derived from scikit-learn's, we do not know what else its fit does
        if name in RULES and (reason := RULES[name](step)) is not None:
            return reason
        if name in REASONS:
            return REASONS[name]
    return UNKNOWN


def _requires_fit(step: Any) -> bool:
    """Whether the step's tags say that it must be fitted; it must if it has none."""
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        return True


def _never(step: Any) -> Reason | None:
    """Pass a transformer whose fit reads the shape and type of the records, whatever its parameters."""
    return None


def _one_hot(step: Any) -> Reason | None:
    if isinstance(step.categories, str):
        return (
            "keeps the categories that occur, and a rare one reveals its record",
            "give all categories=[[...], ...] from a public list, with handle_unknown for the rest",
        )
    if step.min_frequency is not None or step.max_categories is not None:
        return (
            "counts the categories and keeps which are rare",
            "leave min_frequency and max_categories out and give fewer categories",
        )
    return None


def _imputer(step: Any) -> Reason | None:
    if step.strategy != "constant":
        strategy = step.strategy if isinstance(step.strategy, str) else "statistic"
        return f"fills in the {strategy.replace('_', ' ')} of every column", CONSTANT
    if step.add_indicator:
        return (
            "keeps in which columns values are missing",
            'leave add_indicator out and put MissingIndicator(features="all") beside it in a FeatureUnion',
        )
    if not step.keep_empty_features:
        return "drops the columns in which all values are missing", "add keep_empty_features=True"
    return None


def _indicator(step: Any) -> Reason | None:
    return None if step.features == "all" else ("keeps in which columns values are missing", 'use features="all"')


def _words(step: Any) -> Reason | None:
    if step.vocabulary is None:
        return (
            "keeps the words that occur, and a rare one reveals its record",
            "use HashingVectorizer, or give vocabulary=[...] from a public list",
        )
    return None


def _frequencies(step: Any) -> Reason | None:
    return ("keeps in how many records each word occurs", "use use_idf=False") if step.use_idf else None


def _weighted_words(step: Any) -> Reason | None:
    return _words(step) or _frequencies(step)


def _spline(step: Any) -> Reason | None:
    if isinstance(step.knots, str):
        return "places its knots by the values of every column", "give knots=array of public places"
    return None


def _kernel(step: Any) -> Reason | None:
    if isinstance(step.gamma, Real):
        return None
    return "computes gamma from the variance of the records", "give gamma=number"


def _projection(step: Any) -> Reason | None:
    if step.n_components == "auto":
        return "derives the number of components from the number of records", "give n_components=number"
    return None


RULES: dict[str, Callable[[Any], Reason | None]] = {
    "CountVectorizer": _words,
    "FeatureHasher": _never,  # its tag says so only since 1.7
    "FrozenEstimator": _never,
    "GaussianRandomProjection": _projection,
    "HashingVectorizer": _never,
    "MissingIndicator": _indicator,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _one_hot,
    "PolynomialCountSketch": _never,
    "PolynomialFeatures": _never,
    "RBFSampler": _kernel,
    "SimpleImputer": _imputer,
    "SkewedChi2Sampler": _never,
    "SparseRandomProjection": _projection,
    "SplineTransformer": _spline,
    "TfidfTransformer": _frequencies,
    "TfidfVectorizer": _weighted_words,
}
"""Transformers that leak or not by their parameters, found in the source of scikit-learn 1.9."""

CONSTANT = 'use SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True)'
RANGES = "use BoundedScaler with public ranges"
PROJECT = "use GaussianRandomProjection(n_components=...), which does not look at the records"
LISTED = "declare the classes in advance, from a public list"
COLUMNS = "choose the columns in advance, from public knowledge, and name them in a ColumnTransformer"

SEARCH = (
    "choosing hyper-parameters by cross-validation on the records carries them in the choice",
    "choose on public data, or fix them in advance",
)
DENSITY = (
    "chooses sparse or dense output by how many zeros the records have",
    "use sparse_threshold=0 (always dense) or 1 (sparse)",
)
CACHE = ("stores transformed records on disk, where no deletion reaches them", "use memory=None")
CANNOT_UNLEARN = (
    "cannot unlearn: it keeps what it learned from every record",
    "use an estimator of Expunge, such as expunge.LogisticRegression",
)
KNOWN_NOISE = (
    "keeps the random_state that its noise comes from: anyone who knows it can compute what was deleted",
    "leave random_state=None",
)
UNKNOWN = (
    "is fitted to the records, and nothing says that its fit reads no values",
    "use one that needs no fit (tag requires_fit=False), or fit it on public data and wrap it in FrozenEstimator",
)

SELECTION = ("chooses columns by looking at the records", COLUMNS)
COMPONENTS = ("fits its components to the records", PROJECT)
LABELS = ("keeps the labels that occur", LISTED)
NEIGHBOURS = (
    "keeps the records themselves",
    "use a transformer that keeps none, such as RBFSampler(gamma=number)",
)
CENTRES = ("fits centres to the records", "fix the centres in advance, or compute them from public data")

REASONS: dict[str, Reason] = {
    "StandardScaler": ("keeps the mean and variance of every column", RANGES),
    "MinMaxScaler": ("keeps the smallest and largest value of every column, which are values of records", RANGES),
    "MaxAbsScaler": ("keeps the largest absolute value of every column, which is a value of a record", RANGES),
    "RobustScaler": ("keeps the median and quantiles of every column", RANGES),
    "QuantileTransformer": ("keeps quantiles of every column, which are values of records", RANGES),
    "PowerTransformer": (
        "fits an exponent to every column",
        "use a fixed function, such as FunctionTransformer(np.log1p), then BoundedScaler with public ranges",
    ),
    "KBinsDiscretizer": (
        "places the edges of its bins by the values of every column",
        "use FunctionTransformer(np.digitize, kw_args={'bins': edges}) with public edges",
    ),
    "KernelCenterer": ("keeps means of the kernel between records", "leave it out"),
    "KNNImputer": ("keeps the records themselves", CONSTANT),
    "IterativeImputer": ("fits a model of every column to the records", CONSTANT),
    "TargetEncoder": (
        "keeps the mean target of every category",
        "use OneHotEncoder with categories=[[...], ...] from a public list",
    ),
    "LabelBinarizer": LABELS,
    "LabelEncoder": LABELS,
    "MultiLabelBinarizer": LABELS,
    "DictVectorizer": ("keeps the names and values that occur", "use FeatureHasher"),
    "PCA": ("fits its directions, mean and variances to the records", PROJECT),
    "IncrementalPCA": ("fits its directions, mean and variances to the records", PROJECT),
    "KernelPCA": ("keeps the records themselves", "use RBFSampler(gamma=number), which does not look at the records"),
    "TruncatedSVD": ("fits its directions to the records", PROJECT),
    "FactorAnalysis": COMPONENTS,
    "FastICA": COMPONENTS,
    "LatentDirichletAllocation": COMPONENTS,
    "NMF": COMPONENTS,
    "MiniBatchNMF": COMPONENTS,
    "SparsePCA": COMPONENTS,
    "MiniBatchSparsePCA": COMPONENTS,
    "DictionaryLearning": COMPONENTS,
    "MiniBatchDictionaryLearning": COMPONENTS,
    "LinearDiscriminantAnalysis": COMPONENTS,
    "Nystroem": (
        "keeps some of the records themselves",
        "use RBFSampler(gamma=number), which does not look at the records",
    ),
    "KNeighborsTransformer": NEIGHBOURS,
    "RadiusNeighborsTransformer": NEIGHBOURS,
    "KMeans": CENTRES,
    "MiniBatchKMeans": CENTRES,
    "BisectingKMeans": CENTRES,
    "Birch": CENTRES,
    "VarianceThreshold": ("chooses columns by their variance", COLUMNS),
    "SelectorMixin": SELECTION,
}
"""Transformers that leak whatever their parameters; of several ancestors the nearest counts."""

CHOICES: dict[str, Reason] = {
    "TunedThresholdClassifierCV": (
        "choosing the threshold by cross-validation on the records carries them in the choice",
        "use FixedThresholdClassifier",
    ),
    "CalibratedClassifierCV": ("fits a calibration to the records", "use the model's own probabilities"),
    "SelectorMixin": SELECTION,
}
"""What is wrapped around a model and learns beside it."""

SPARSE = {"CountVectorizer", "DictVectorizer", "FeatureHasher", "HashingVectorizer", "TfidfTransformer"}
"""Transformers with sparse output that have no parameter ``sparse_output``."""
