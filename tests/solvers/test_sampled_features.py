"""Features of a transformer in whole numbers: the same bits in any batch, and what heads make of sums of them."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from expunge.base.errors import BadPlan
from expunge.engine.structures import Forgotten
from expunge.solvers.heads import ONE, head_of
from expunge.solvers.plans.sampled_features import make_sampled_features_plan
from expunge.solvers.sampled_features import FeatureSettings, SampledFeatures, fingerprint, frame_of, on_grid
from expunge.solvers.transforming import (
    ELEMENTWISE,
    automatic_columns,
    check_transformer,
    fit,
    fresh,
    in_any_batch,
    transformed,
    width_of,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 7)) * 10.0 ** np.arange(-3, 4) + 3.0
CODES = RNG.integers(4, size=(400, 3)).astype(float)
Y = np.sign(RNG.normal(size=400))
EXAMPLES = {
    "Binarizer": Binarizer(), "KBinsDiscretizer": KBinsDiscretizer(5), "MaxAbsScaler": MaxAbsScaler(),
    "MinMaxScaler": MinMaxScaler((-1, 2)), "OneHotEncoder": OneHotEncoder(), "OrdinalEncoder": OrdinalEncoder(),
    "PolynomialFeatures": PolynomialFeatures(3), "RandomTreesEmbedding": RandomTreesEmbedding(5, random_state=0),
    "RobustScaler": RobustScaler(), "SimpleImputer": SimpleImputer(), "StandardScaler": StandardScaler(),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_what_is_on_the_list_gives_the_same_bits_in_any_batch(name):
    given, rows = EXAMPLES[name], CODES if name in ("OneHotEncoder", "OrdinalEncoder") else X
    assert in_any_batch(given)
    transformer = fit(given, 0, rows[:100], Y[:100])
    width = width_of(transformer, rows)
    together, alone = (transformed(transformer, width, rows, each).rows for each in (True, False))
    assert together.tobytes() == alone.tobytes()
    assert together[::-1].tobytes() == transformed(transformer, width, rows[::-1].copy(), True).rows.tobytes()


def test_what_is_on_no_list_goes_row_by_row():
    class StandardScaler(BaseEstimator):
        """Another one of this name."""

    scaler = EXAMPLES["StandardScaler"]
    for given in (PCA(2), FunctionTransformer(), StandardScaler(), make_pipeline(scaler, PCA(2))):
        assert not in_any_batch(given)
    assert in_any_batch(make_pipeline(scaler, "passthrough", KBinsDiscretizer()))
    assert in_any_batch(FeatureUnion([("one", scaler), ("other", "drop")]))
    assert in_any_batch(ColumnTransformer([("one", scaler, [0]), ("other", "passthrough", [1])]))
    assert not in_any_batch(ColumnTransformer([("one", PCA(1), [0, 1])]))


def test_rows_that_are_refused_or_no_numbers_are_found_out_one_by_one():
    encoder = fit(OneHotEncoder(), 0, CODES, Y)
    rows = CODES[:50].copy()
    rows[[7, 30], 1] = 99.0
    found = transformed(encoder, 12, rows, True)
    assert sorted(found.refused) == [7, 30]
    assert not found.rows[[7, 30]].any()
    assert (found.rows.sum(axis=1) == 3).sum() == 48
    logs = fit(FunctionTransformer(np.log), 0, X, Y)
    assert sorted(transformed(logs, 1, np.array([[1.0], [-1.0], [0.0]]), False).refused) == [1, 2]


def test_widths_are_found_out_without_records():
    assert automatic_columns(StandardScaler(), 7, 2) == 7
    assert automatic_columns(PCA(3), 7, 0) == 3
    assert automatic_columns(RandomTreesEmbedding(10, max_depth=3), 7, 2) >= 60
    with pytest.raises(BadPlan, match="columns='auto': PCA could not be fitted"):
        automatic_columns(PCA(9), 7, 2)


def test_seeds_are_set_by_the_plan_where_none_is_given():
    given = make_pipeline(PCA(2), PCA(1, random_state=5), RandomTreesEmbedding())
    one, again, other = fresh(given, 3), fresh(given, 3), fresh(given, 4)
    seeds = [[step.random_state for step in pipe.named_steps.values()] for pipe in (one, again, other)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[0][1] == 5
    assert len({*seeds[0]}) == 3
    with pytest.raises(BadPlan, match="memory"):
        check_transformer(make_pipeline(PCA(2), memory="somewhere"))


# --- the grid ---------------------------------------------------------------------------------------------


def test_features_are_whole_numbers_with_centres_and_units_of_the_sample():
    centres, units = frame_of(X[:100])
    numbers = on_grid(X[:100], centres, units)
    assert (numbers == np.rint(numbers)).all()
    assert (np.abs(numbers) <= ONE).all()
    assert (np.abs(numbers).max(axis=1) > ONE / 4).all()
    assert (np.frexp(units)[0] == 0.5).all()
    assert np.allclose(numbers.T * units / ONE + centres, X[:100], atol=1e-6 * units.max())


def test_columns_that_are_constant_in_the_sample_leave_room_for_others():
    sample = np.tile([0.0, 1.0, 0.1, 1e-30, 1e9], (50, 1))
    centres, units = frame_of(sample)
    assert not on_grid(sample, centres, units).any()
    others = on_grid(sample + sample / 2 + [1.0, 0, 0, 0, 0], centres, units)
    assert (np.abs(others) > ONE / 8).all()
    assert (np.abs(others) <= ONE).all()


def test_what_is_far_out_counts_as_far():
    centres, units = frame_of(X[:100, :1])
    assert np.abs(on_grid(np.array([[1e100], [-1e100]]), centres, units)).tolist() == [[2.0**43, 2.0**43]]


# --- heads ------------------------------------------------------------------------------------------------

HEADS = [("newton", 2), ("newton", 4), ("ridge", 0), ("ridge_classifier", 2), ("ridge_classifier", 4)]
TARGETS = {0: 5.0 + X[:, 3] + RNG.normal(size=400), 2: Y, 4: RNG.integers(4, size=400)}


def structure(name, classes, transformer=None, rho=0.5):
    transformer = StandardScaler() if transformer is None else transformer
    return SampledFeatures(FeatureSettings(transformer, 7, rho, 0, head_of(name, classes, 8, 1.0)))


def keyed(seed=0, number=400):
    return np.random.default_rng(seed).integers(2**64, size=number, dtype=np.uint64)


@pytest.mark.parametrize(("name", "classes"), HEADS)
@pytest.mark.parametrize("transformer", [StandardScaler(), PCA(3)])
def test_sums_are_the_same_in_whatever_parts_and_order(name, classes, transformer):
    one, keys, batch = structure(name, classes, transformer), keyed(), (X, TARGETS[classes])
    joined = one.joins(None, keys, batch)
    found = None, one.find((None,), keys[joined], tuple(column[joined] for column in batch))
    total, parts = one.total(found, batch), one.parts(found, batch)
    added, removed = np.zeros_like(total), total.copy()
    for row, value in zip(parts.rows, parts.values, strict=True):
        one.normal(np.add(added[row], value, out=added[row]))
    assert added.tobytes() == total.tobytes()
    for first in (300, 0, 150):
        some = slice(first, first + 150 if first != 300 else 400)
        removed -= one.total(found, tuple(column[some] for column in batch))
        for row in removed:
            one.normal(row)
    assert not removed.any()
    for record in (0, 17):
        alone = one.parts(found, tuple(column[record : record + 1] for column in batch))
        assert alone.values.tobytes() == parts.values[record::400].tobytes()
        assert alone.rows.tolist() == parts.rows[record::400].tolist()


@pytest.mark.parametrize(("name", "classes"), HEADS)
def test_the_order_of_a_sample_makes_no_difference_to_what_is_found(name, classes):
    one, keys, y = structure(name, classes), keyed(), TARGETS[classes]
    keys[:10] = keys[0]  # of one subject
    order = RNG.permutation(400)
    first, second = one.find((None,), keys, (X, y)), one.find((None,), keys[order], (X[order], y[order]))
    assert first == second
    assert first != one.find((None,), keys[1:], (X[1:], y[1:]))
    assert first.start.tobytes() == second.start.tobytes()


def test_one_step_of_newton_over_everyone_leads_to_the_logistic_regression():
    """The sample is everyone: what it gives to begin with is calmer, and one step leads nearly all of the way."""
    one, y = structure("newton", 2), np.sign(X[:, 3] - 3.0 + RNG.normal(size=400))
    found = None, one.find((None,), keyed(), (X, y))
    parameters = one.model(found, one.total(found, (X, y)))[one.packed :]
    theirs = LogisticRegression().fit(StandardScaler().fit_transform(X), y)
    scales = 1.0 / found[1].units
    before, after = (np.abs(one[:7] * scales - theirs.coef_[0]).max() for one in (found[1].start[0], parameters))
    assert after < 0.5 * before


def test_classes_that_the_sample_lacks_have_no_weights_and_are_rare():
    one, y = structure("newton", 4), TARGETS[4]
    for there in ([0, 1, 3], [1, 3], [2]):
        some = np.isin(y, there)
        start = one.find((None,), keyed()[some], (X[some], y[some])).start
        absent = np.setdiff1d(np.arange(4), there)
        assert not start[absent, :-1].any()
        assert start[absent, -1].max() < start[there, -1].min()


def test_a_sample_that_is_refused_says_nothing_and_does_not_raise():
    one = structure("newton", 2, PCA(3))
    for number in (0, 1, 2):
        found = None, one.find((None,), keyed(number=number), (X[:number], Y[:number]))
        assert found[1].trouble
        sums = one.total(found, (X, Y))
        parameters = one.model(found, sums)[one.packed :]
        assert not parameters[:-1].any()
        assert np.isfinite(parameters).all()


def test_memory_has_what_was_packed_last_and_nothing_else():
    one = structure("ridge", 0)
    found = [(None, one.find((None,), keyed()[:end], (X[:end], TARGETS[0][:end]))) for end in (100, 200)]
    first, second = one.pack(found[0]), one.pack(found[1])
    assert one.unpack(second) is found[1]
    with pytest.raises(Forgotten):
        one.unpack(first)
    with pytest.raises(ValueError, match="no fingerprint"):
        one.unpack(first + 0.5)
    assert (np.floor(first) == first).all()
    assert first.max() < 2**52
    assert "_remembered" not in one.__getstate__()


def test_fingerprints_differ_by_any_bit():
    assert not np.array_equal(fingerprint(np.zeros(3)), fingerprint(np.zeros(4)))
    assert not np.array_equal(fingerprint(np.zeros(3), np.zeros(1)), fingerprint(np.zeros(1), np.zeros(3)))
    assert not np.array_equal(fingerprint(np.array([1.0])), fingerprint(np.array([1.0 + 2.0**-52])))


# --- plans ------------------------------------------------------------------------------------------------


def test_a_plan_looks_at_shapes_only():
    plan = make_sampled_features_plan(PCA(5), 3, 9, 100_000, seed=7)
    assert (plan.columns, plan.records, plan.outputs) == (5, 131072, 3)
    assert plan.rho == pytest.approx(20 * 5 / 131072)
    assert plan.transcript_bytes(9, 10) == 8 * (4 + 3 * 3 * 28)
    assert plan.flaw() is None
    assert len(plan.lines()) > 5


def test_sums_that_would_be_too_large_are_refused():
    with pytest.raises(BadPlan, match="columns=7000: sums would have"):
        make_sampled_features_plan(StandardScaler(), 0, 7_000, 1000, head="ridge", columns=7000)
    with pytest.raises(BadPlan, match=r"columns=2000: .* 20 outputs"):
        make_sampled_features_plan(StandardScaler(), 20, 7, 1000, columns=2000)
