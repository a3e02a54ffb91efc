"""Sums of products of whole numbers: exact, reversible, in one form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from expunge.solvers import exact_products
from expunge.solvers.exact_products import LARGEST, LIMB, ROOT, SURE, ExactProducts, whole

NUMBERS = st.integers(-int(LARGEST), int(LARGEST)).map(float) | st.sampled_from([0.0, 1.0, -1.0, 2.0**21, -(2.0**21)])
TABLES = hnp.arrays(float, st.tuples(st.just(3), st.integers(0, 12)), elements=NUMBERS)


def exactly(columns):
    """Return the sums of products as Python's whole numbers, in the order of the upper triangle."""
    rows = [[int(number) for number in column] for column in columns]
    return [sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for i in range(3) for j in range(i, 3)]


def value(total):
    low, middle, high = total.reshape(3, -1).tolist()
    return [int(c) * 2**66 + int(b) * 2**33 + int(a) for a, b, c in zip(low, middle, high, strict=True)]


@given(TABLES)
def test_sums_are_exact_and_in_their_one_form(columns):
    total = ExactProducts(3).total(columns)
    assert value(total) == exactly(columns)
    low, middle, _ = total.reshape(3, -1)
    assert ((low >= 0) & (low < LIMB) & (middle >= 0) & (middle < LIMB)).all()
    assert not np.signbit(total[total == 0.0]).any()


@given(TABLES, st.data())
def test_what_leaves_leaves_no_trace_in_any_order(columns, data):
    products = ExactProducts(3)
    order = data.draw(st.permutations(range(columns.shape[1])))
    left = data.draw(st.integers(0, columns.shape[1]))
    total = products.total(columns)
    for row in order[:left]:
        total = products.normal(total - products.total(columns[:, [row]]))
    assert np.array_equal(total, products.total(columns[:, order[left:]]))


def test_many_rows_are_summed_as_few_are():
    columns = whole(
        np.random.default_rng(0).normal(size=(4, 5000)) * np.array([[2.0**17], [2.0**40], [1.0], [2.0**22]])
    )
    products = ExactProducts(4)
    parts = [products.total(columns[:, part]) for part in (slice(0, 1), slice(1, 1500), slice(1500, None))]
    assert np.array_equal(products.normal(sum(parts)), products.total(columns))
    assert np.allclose(products.matrix(products.total(columns)), columns @ columns.T)


@given(TABLES, st.integers(0, 12), st.booleans())
def test_numbers_are_cut_where_they_must_be_and_it_makes_no_difference(columns, cut, come):
    products, blocks = ExactProducts(3), [columns[:, :cut], columns[:, cut:]]
    total = products.total(np.ones((3, 2)))
    found = products.moved(total.copy(), [block.copy() for block in blocks], come)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_products, "SURE", -1.0)  # all are cut
        patch.setattr(exact_products, "ROOT", -1.0)
        assert np.array_equal(products.moved(total.copy(), blocks, come), found)
    sign = 1 if come else -1
    assert value(found) == [2 + sign * number for number in exactly(columns)]


@pytest.mark.parametrize("number", [2.0**20, 2.0**20 + 1.0, 2.0**21 - 1.0])
def test_sums_of_squares_about_where_numbers_are_cut_are_exact(number):
    rows = int(SURE / number**2)
    for count in (rows - 1, rows, rows + 1, 2 * rows + 3):
        assert value(ExactProducts(1).total(np.full((1, count), number))) == [count * int(number) ** 2]


@pytest.mark.parametrize("number", [ROOT - 1.0, ROOT, ROOT + 1.0, -ROOT, -ROOT - 1.0])
def test_a_single_row_about_where_it_is_cut_is_exact(number):
    columns = np.array([[number], [1.0 - number], [3.0]])
    total = ExactProducts(3).moved(ExactProducts(3).total(columns), [columns], True)
    assert value(total) == [2 * product for product in exactly(columns)]


def test_what_overflows_or_is_no_number_is_not_taken_for_exact():
    products = ExactProducts(2)
    assert np.array_equal(products.total(np.array([[1e300], [1.0]])), products.total(np.array([[LARGEST], [1.0]])))
    with np.errstate(invalid="ignore"):
        assert np.isnan(products.total(np.array([[math.nan, 1.0], [1.0, 1.0]]))).any()


def test_numbers_beyond_the_largest_are_taken_for_it():
    assert whole(np.array([1e300, -1e300, 0.5, 1.5])).tolist() == [LARGEST, -LARGEST, 0.0, 2.0]


@pytest.mark.parametrize("width", [1, 2, 57])
def test_the_matrix_is_symmetric(width):
    matrix = ExactProducts(width).matrix(ExactProducts(width).total(np.arange(3.0 * width).reshape(width, 3)))
    assert np.array_equal(matrix, matrix.T)
