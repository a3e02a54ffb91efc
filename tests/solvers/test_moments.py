"""Sums of products are exact: those of whole numbers, and the same bits in any order, batch, type and form."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from expunge.base.errors import BadPlan, BadRecords
from expunge.engine.transcript import Path
from expunge.solvers.exact_moments import BITS, EXACT_TO, LEVELS, SLICES, Moments, _circle
from expunge.solvers.normal_equations import Gram

PATH = Path(np.zeros(1), None, 0)


def numbers(count, bounds, seed=0):
    """Numbers of all sizes up to their bounds, which some of them are."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(count, len(bounds))) * 2.0 ** rng.integers(-50, 1, size=(count, len(bounds)))
    rows[rng.random(rows.shape) < 0.1] = 1.0
    rows[rng.random(rows.shape) < 0.1] = -1.0
    rows[rng.random(rows.shape) < 0.1] = 0.0
    return rows * np.array(bounds)


def on_the_grid(rows, bounds):
    """The same numbers, rounded to the grid by Python's arithmetic, and a one behind them."""
    units = [Fraction(2) ** (math.ceil(math.log2(bound)) - 3 * BITS) for bound in bounds]
    return [[*(round(Fraction(x) / unit) * unit for x, unit in zip(row, units, strict=True)), 1] for row in rows]


def exact(packed, width):
    """A packed row as one fraction for each two columns."""
    levels = packed.reshape(LEVELS, -1)
    one, other = _circle(width)
    return {
        (min(i, j), max(i, j)): sum(Fraction(value) for value in levels[:, place].tolist())
        for place, (i, j) in enumerate(zip(one.tolist(), other.tolist(), strict=True))
    }


@pytest.mark.parametrize("bounds", [(1.0,), (3.0, 1e-5), (1.0, 2.0**20, 7.3), (0.1,) * 6], ids=len)
def test_sums_are_those_of_whole_numbers(bounds):
    rows = numbers(50, bounds)
    whole = on_the_grid(rows, bounds)
    width = len(bounds) + 1
    found = exact(Moments(bounds).total((rows,)), width)
    assert len(found) == width * (width + 1) // 2
    for (i, j), value in found.items():
        assert value == sum(row[i] * row[j] for row in whole)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 7), st.integers(0, 2**32), st.data())
def test_neither_order_nor_batches_nor_form_make_a_difference(count, columns, seed, data):
    rng = np.random.default_rng(seed)
    bounds = tuple((2.0 ** rng.uniform(-30, 30, size=columns + 1)).tolist())
    rows, query = numbers(count, bounds, seed), Gram(Moments(bounds))
    X, y = rows[:, :-1], rows[:, -1]
    whole = (query.total(0, PATH, (X, y))[0] + 0.0).tobytes()
    order = rng.permutation(count)
    cut = data.draw(st.integers(0, count))
    parts = [order[:cut], order[cut:]]
    assert sum(query.total(0, PATH, (X[part], y[part]))[0] for part in parts).tobytes() == whole
    assert (query.contributions(0, PATH, (X[order], y[order])).sum(axis=0) + 0.0).tobytes() == whole
    assert (query.total(0, PATH, (sparse.csr_array(X), y))[0] + 0.0).tobytes() == whole
    assert (query.total(0, PATH, (np.asfortranarray(X), y))[0] + 0.0).tobytes() == whole


def test_the_type_of_the_numbers_makes_no_difference():
    X = np.random.default_rng(0).integers(-99, 100, size=(300, 3))
    query = Gram(Moments((100.0, 128.0, 99.0, 64.0)))
    sums = {
        query.total(0, PATH, (X.astype(kind), X[:, 0].clip(-64, 64)))[0].tobytes()
        for kind in (np.int8, np.int64, np.float32, np.float64)
    }
    assert len(sums) == 1


@pytest.mark.parametrize("half", [16383.5, -16383.5, 16384.0, -16384.0, 32767.0])
def test_at_the_largest_number_of_records_the_largest_sums_are_still_exact(half):
    """The third level is largest where the lower slices are: 2¹⁵ · 2³⁰ less half of a slice, and a half of that."""
    largest = 2**15
    number = (largest - 1) * 2**30 + int(half * 2**15) if half < largest else largest * 2**30
    x = number / 2**45
    assert abs(x) <= 1.0
    moments = Moments((1.0, 1.0))
    one = moments.each((np.array([[x, -x]]),))[0]
    assert np.abs(one).max() <= moments.largest
    for each in map(Fraction, one.tolist()):
        for most in (EXACT_TO * each, (EXACT_TO - 1) * each, EXACT_TO * each / 2):
            assert Fraction(float(most)) == most


def test_no_level_is_above_what_the_number_of_records_is_derived_from():
    high, low = 2**15, 2**14  # the largest slices
    levels = [high * high, 2 * high * low, low * low + 2 * high * low, 2 * low * low, low * low]
    assert max(levels) * EXACT_TO <= 2**53 < max(levels) * (EXACT_TO + 1)
    rows = numbers(4000, (1.0, 1.0, 1.0), seed=4)
    cut = Moments((1.0, 1.0, 1.0)).slices((rows,))
    cut /= Moments((1.0, 1.0, 1.0)).units
    assert (np.abs(cut).max(axis=(0, 2)) <= [high, low, low]).all()
    assert (cut == np.rint(cut)).all()
    assert cut.shape == (4000, SLICES, 4)


def test_numbers_below_the_grid_are_rounded_to_nearest():
    unit = 2.0**-45
    given = np.array([0.4, 0.6, -0.6, 1.5, 2.5]) * unit
    cut = Moments((1.0,)).slices((given[:, None],))[:, :, 0].sum(axis=1)
    assert (cut / unit).tolist() == [0, 1, -1, 2, 2]


def test_means_far_from_0_lose_nothing():
    """Mean 1000 and spread 1, mean 10⁶ and spread 0.1, a constant: as exact as if they had been centred before."""
    rng = np.random.default_rng(0)
    centred = rng.integers(-(2**20), 2**20, size=(500, 3)) / 2.0**20 * [1.0, 0.125, 0.0]
    centred = np.concatenate([centred, -centred])  # of mean 0
    moments = Moments((2.0**20,) * 3)
    normal = moments.normal(moments.total((centred + np.array([1000.0, 1e6, 0.1]),)), True)
    found = np.triu(normal.products)
    np.testing.assert_allclose(found, np.triu(centred.T @ centred), rtol=1e-12)
    np.testing.assert_allclose(normal.means, [1000.0, 1e6, 0.1], rtol=1e-7)
    assert not found[:, 2].any()


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf, 1e70, 1e-70])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(BadPlan, match=r"^bounds: "):
        Moments((1.0, bound))


def test_numbers_beyond_their_bounds_are_refused_by_column():
    query = Gram(Moments((1.0, 2.0, 3.0)))
    X, y = np.array([[1.0, -2.0], [0.0, 2.0]]), np.array([3.0, -3.0])
    query.admit((X, y))
    for form in (np.asarray, sparse.csr_array):
        for sign in (1, -1):
            with pytest.raises(BadRecords, match=r"^features: column 1 has 2\.5 .* Declare a larger feature_bound"):
                query.admit((form(sign * np.array([[1.0, 2.5]])), y[:1]))
    with pytest.raises(BadRecords, match=r"^targets: .* 3\.5 .* larger target_bound"):
        query.admit((X[:1], np.array([-3.5])))
    with pytest.raises(BadRecords, match=r"^records: expected features of 2 columns"):
        query.admit((X[:, :1], y))
