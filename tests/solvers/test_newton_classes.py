"""Newton's method for several classes: its laws are what they should be, its sums have the same bits in every batch."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax

from cases.draws import CODES, FAR, ROWS, newton
from expunge import BadPlan, BadRecords, Insert, MemoryRecords, learn
from expunge.engine.changing import change
from expunge.solvers.class_sums import ClassSums, contrasts, exact_products, expand, scores_of_classes
from expunge.solvers.exact_products import AT_ONCE, LARGEST, ExactProducts, carry
from expunge.solvers.losses import MulticlassHinge, Multinomial, Weighted
from expunge.solvers.newton import COLUMNS, FIRST
from expunge.solvers.plans.newton import MOST_OF_CLASSES, make_newton_plan

THREE = Multinomial(3)
UNEQUAL = Weighted(THREE, (1.0, 2.5, 0.3))


def several(number=400, features=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(number, features)) * 10.0 ** np.arange(features)
    scores = rows / 10.0 ** np.arange(features) @ rng.normal(size=(features, 3))
    return rows, (scores + rng.gumbel(size=(number, 3))).argmax(axis=1)


def learned(loss=THREE, rows=None, codes=None, **more):
    rows, codes = several() if rows is None else (rows, codes)
    learner = make_newton_plan(loss, rows.shape[1], len(rows), **{"rho": 0.2, "rate": 1.0, **more}).learner
    return learner, learn(learner, MemoryRecords((rows, codes)), np.random.default_rng(1))


# --- the law ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [THREE, UNEQUAL], ids=["plain", "weighted"])
def test_a_round_draws_from_the_law_that_numpy_computes(loss):
    """Everything but the penalty's and the damping's powers of two is computed here from scratch."""
    rows, codes = several()
    learner, transcript = learned(loss, rows, codes)
    laws, path = learner.laws, transcript.path.upto(FIRST)
    law = laws.law(FIRST, path, transcript.sums[: FIRST + 1])
    units = 2.0 ** laws.query.frame(path[COLUMNS]).exponents[1:]
    own = np.array(getattr(loss, "weights", (1.0, 1.0, 1.0)))[codes]
    x = np.column_stack([rows, np.ones(len(rows))]) / units
    point, B = path[FIRST][: law.mean.size], contrasts(3)
    p = softmax(x @ point.reshape(-1, 2) @ B.T, axis=1)
    missed = np.eye(3)[codes] - p
    gradient = (x.T @ (own[:, None] * missed) @ B).ravel()
    between = (p + np.eye(3)[codes]) / np.sqrt(3.0)
    bends = np.array([B.T @ (one.sum() * np.diag(one) - np.outer(one, one)) @ B for one in between])
    curvature = np.einsum("z,zi,zj,zab->iajb", own, x, x, bends).reshape(law.mean.size, -1)
    metric = law.factor @ law.factor.T
    more = np.diag(metric - curvature)
    penalty = np.repeat(np.append(2.0 ** np.round(np.log2(rows.var(axis=0) / units[:-1] ** 2)), 0.0), 2)
    assert np.allclose(metric, curvature + np.diag(more), rtol=1e-4, atol=1e-4 * np.abs(curvature).max())
    assert (more[:6] > 0.0).all()
    step = np.linalg.solve(metric, gradient - penalty * point)
    shrunk = (law.mean - point) @ step / (step @ step)
    assert np.allclose(law.mean, point + shrunk * step, rtol=0.02, atol=0.02 * np.abs(step).max())
    surprise = np.sum(own * (missed**2 / p).sum(axis=1)) / 2.0
    misfit = (surprise + (step @ curvature @ step - 2.0 * step @ gradient) / 2.0) / laws.expected
    effective = len(point) - np.trace(np.linalg.solve(metric, np.diag(more)))
    variance = laws.spreads[0] * misfit * effective / len(point)
    total = np.sum(own * (between.sum(axis=1) ** 2 - (between**2).sum(axis=1))) / 2.0
    assert shrunk == pytest.approx(1.0 / (1.0 + variance * effective / total), rel=0.02)
    assert law.scale == pytest.approx(shrunk * np.sqrt(variance), rel=0.02)


def test_the_misfit_is_one_on_average_where_the_model_is_right():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 100_000))
    codes = (scores + rng.gumbel(size=scores.shape)).argmax(axis=0)
    found = expand(scores, codes, None, 2.0**-17)
    assert found.misfit.mean() == pytest.approx(1.0, abs=0.02)
    in_rounds = expand(scores, codes, None, 2.0**-17, observed=True)
    for a, b in ((0, 1), (2, 3)):  # so are curvatures, with what was observed and without it
        one, other = ((each.left[a] * each.right[b]) ** 2 for each in (in_rounds, found))
        assert one.mean() == pytest.approx(other.mean(), rel=0.02)


@pytest.mark.parametrize("digits", [1, 4])
def test_the_curvature_is_positive_however_coarsely_numbers_are_rounded(digits):
    rows, codes = several(60, 4)
    columns = np.vstack([rows.T / 10.0 ** np.arange(4)[:, None], np.ones(60)]) * 2.0**digits
    sums, laws = ClassSums(3, 5), learned(rows=rows, codes=codes)[0].laws
    limbs = np.zeros((3, sums.count))
    sums.add(columns, expand(np.random.default_rng(0).normal(size=(3, 60)), codes, None, 2.0**-17), 2.0**digits, limbs)
    values = np.linalg.eigvalsh(laws._curvature(sums.seen(limbs, 1.0)))
    assert values[0] > -1e-12 * values[-1]


def test_contrasts_are_orthonormal_and_leave_out_what_is_the_same_for_all_classes():
    for classes in (2, 3, 10):
        found = contrasts(classes)
        assert np.allclose(found.T @ found, np.eye(classes - 1))
        assert np.allclose(found.sum(axis=0), 0.0)


# --- sums ---------------------------------------------------------------------------------------------


def test_scores_and_expansions_have_the_same_bits_in_every_batch():
    rng = np.random.default_rng(0)
    for width, classes in ((4, 3), (6, 9)):
        columns, weights = rng.normal(size=(width, 203)), rng.normal(size=(classes, width)) * 8.0
        codes, own = rng.integers(0, classes, 203), rng.random(classes) + 0.1
        expected = scores_of_classes(columns, weights)
        whole = expand(expected, codes, own, 2.0**-17, observed=True)
        for size in (1, 2, 3, 5, 8, 9, 17, 64):
            for first in range(0, 203, size):
                part = slice(first, first + size)
                scores = scores_of_classes(np.ascontiguousarray(columns[:, part]), weights)
                assert np.array_equal(scores, expected[:, part])
                for one, other in zip(expand(scores, codes[part], own, 2.0**-17, observed=True), whole, strict=True):
                    assert np.array_equal(one, other[..., part])


@pytest.mark.parametrize("loss", [THREE, UNEQUAL], ids=["plain", "weighted"])
@pytest.mark.parametrize("rows", [ROWS, FAR], ids=["plain", "far"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_contributions_have_the_same_bits_in_every_batch_order_and_storage(loss, rows, rho):
    learner = newton(rho, loss=loss)
    transcript = learn(learner, MemoryRecords((rows, CODES)), np.random.default_rng(0))
    normal = learner.abilities.normal
    for step in range(transcript.steps):
        path = transcript.path.upto(step)
        each = learner.query.contributions(step, path, (rows, CODES))
        for kept in (rows, np.asfortranarray(rows), sparse.csr_array(rows)):
            whole, _ = learner.query.total(step, path, (kept, CODES))
            assert np.array_equal(normal(each.sum(axis=0)), normal(whole))


def test_many_blocks_add_up_to_the_same_bits_as_other_blocks():
    rows, codes = several(3 * AT_ONCE + 17)
    learner, transcript = learned(rows=rows, codes=codes, rho=1.0)
    path, query = transcript.path.upto(FIRST), learner.query
    parts = sum(query.total(FIRST, path, (rows[i : i + 700], codes[i : i + 700]))[0] for i in range(0, len(rows), 700))
    assert np.array_equal(query.normal(parts), query.total(FIRST, path, (rows, codes))[0])


@pytest.mark.parametrize("top", [2.0**20, 2.0**30, LARGEST])
def test_products_of_two_tables_are_exact(top):
    rng = np.random.default_rng(0)
    one, other = (np.rint(rng.uniform(-top, top, size=(3, 200))) for _ in range(2))
    limbs = np.zeros((3, 9))
    for limb, part in zip(limbs, exact_products(one, other, top), strict=False):
        limb += part.ravel()
    carry(limbs)
    expected = one.astype(np.int64).astype(object) @ other.astype(np.int64).astype(object).T
    found = sum(limb.astype(np.int64).astype(object) * 2 ** (33 * place) for place, limb in enumerate(limbs))
    assert found.tolist() == expected.ravel().tolist()
    gram = np.zeros((3, 9))
    for limb, part in zip(gram, exact_products(one, one, top), strict=False):
        limb += part.ravel()
    carry(gram)
    products = ExactProducts(3)
    assert np.array_equal(gram[:, [0, 1, 2, 4, 5, 8]].ravel(), products.total(one))


def test_numbers_that_are_far_out_saturate_and_are_taken_off_again_without_a_trace():
    rows, codes = several(40)
    rows[7] = [1e18, -1e19, 1e-300]
    learner, transcript = learned(UNEQUAL, rows, codes)
    assert np.isfinite(transcript.model(learner)).all()
    _, transcript = learned(UNEQUAL, np.delete(rows, 7, axis=0), np.delete(codes, 7))
    query = learner.query
    for step in range(transcript.steps):
        path = transcript.path.upto(step)
        one = query.total(step, path, (rows[7:8], codes[7:8]))[0]
        more = query.normal(transcript.sums[step] + one)
        assert np.array_equal(more, query.total(step, path, (rows, codes))[0])
        assert np.array_equal(query.normal(more - one), transcript.sums[step])


def test_a_class_that_is_nearly_impossible_still_has_curvature():
    expanded = expand(np.array([[0.0], [900.0], [-900.0]]), np.array([0]), None, 2.0**-17)
    assert np.allclose(expanded.residuals.ravel(), [1.0, -1.0, 0.0])
    assert (expanded.left**2).min() == pytest.approx(2.0**-17)
    assert np.isfinite(expanded.misfit).all()


# --- the plan -----------------------------------------------------------------------------------------


def test_the_plan_counts_the_parameters_of_contrasts():
    plan = make_newton_plan(Multinomial(5), 20, 20_000)
    assert (plan.outputs, plan.columns) == (5, 84)
    assert plan.rho == pytest.approx(0.0204, abs=1e-4)
    learner, transcript = learned(rounds=1)
    assert transcript.sums.shape[1] == learner.query.size


@pytest.mark.parametrize(
    ("loss", "features", "named"),
    [
        (Multinomial(10), 784, "10 classes are too many"),
        (Weighted(Multinomial(3), (1.0, 1.0, 2.0)), MOST_OF_CLASSES // 3, "3 classes are too many"),
        (MulticlassHinge(3), 5, "second derivative"),
        (Weighted(MulticlassHinge(3), (1.0, 1.0, 2.0)), 5, "second derivative"),
    ],
)
def test_what_it_is_not_for_is_refused_with_a_remedy(loss, features, named):
    with pytest.raises(BadPlan, match=named) as error:
        make_newton_plan(loss, features, 1000)
    assert "dual_averaging" in str(error.value)


@pytest.mark.parametrize("code", [-1, 3, 0.5])
def test_codes_of_no_class_do_not_enter(code):
    rows, codes = several(20)
    learner, transcript = learned(rows=rows, codes=codes)
    with pytest.raises(BadRecords, match="codes of classes"):
        learn(learner, MemoryRecords((rows, np.append(codes[:-1], code))), np.random.default_rng(0))
    records = MemoryRecords((rows, codes.astype(float)))
    transcript = learn(learner, records, np.random.default_rng(0))
    with pytest.raises(BadRecords, match="codes of classes"):
        change(
            learner, records, transcript, Insert((rows[:1], np.array([float(code)])), [99]), np.random.default_rng(0)
        )
