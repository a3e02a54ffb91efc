"""Mechanisms: B C = R, the tree is the paper's, and growing never touches earlier rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.base.errors import BadPlan
from expunge.engine.couplings.common import longest_pull
from expunge.engine.mechanisms.binary_tree import BinaryTree, TreeNodes, lowbit
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.mechanisms.noise import draw_noise
from expunge.engine.mechanisms.protocol import matrices
from expunge.engine.mechanisms.square_root import SquareRoot

PREFIX = [BinaryTree(), BinaryTree("anytime"), BinaryTree((1.0, 2.5)), SquareRoot()]
ALL = [*PREFIX, Identity()]


@pytest.mark.parametrize("mechanism", PREFIX, ids=str)
def test_b_times_c_is_the_prefix_sum_matrix_for_every_length_up_to_300(mechanism):
    for steps in range(1, 301):
        b, c = matrices(mechanism, steps)
        np.testing.assert_allclose(b @ c, np.tri(steps), atol=1e-10)


def test_b_and_c_of_linear_queries_are_the_identity():
    b, c = matrices(Identity(), 7)
    assert np.array_equal(b, np.eye(7))
    assert np.array_equal(c, np.eye(7))


@given(st.integers(1, 300), st.integers(0, 299))
def test_node_t_covers_exactly_its_interval_and_each_leafs_path_is_right(steps, step):
    step %= steps
    covering = [t for t in range(1, steps + 1) if t - lowbit(t) < step + 1 <= t]
    assert BinaryTree().path(step, steps) == [t - 1 for t in covering]
    assert len(covering) <= int(np.log2(steps)) + 1


def test_the_tree_equals_the_papers_figure_for_eight_leaves():
    # noise on the left children and the root: ξ1, ξ2 over 1-2, ξ3, ξ4 over 1-4, ξ5, ξ6 over 5-6, ξ7, ξ8 over 1-8
    figure = {1: [1], 2: [1, 2], 3: [3], 4: [1, 2, 3, 4], 5: [5], 6: [5, 6], 7: [7], 8: list(range(1, 9))}
    b, c = matrices(BinaryTree(), 8)
    for node, leaves in figure.items():
        assert (np.flatnonzero(c[node - 1]) + 1).tolist() == leaves
    assert (np.flatnonzero(b[6]) + 1).tolist() == [4, 6, 7]  # the seventh prefix sum is 4 + 2 + 1


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_whitening_undoes_coloring(mechanism):
    for steps in (0, 1, 5, 129, 1000):
        xi = np.random.default_rng(steps).standard_normal((steps, 3))
        noise = mechanism.color(xi)
        np.testing.assert_allclose(mechanism.whiten(noise), xi, atol=1e-9)
        if steps:
            np.testing.assert_allclose(mechanism.whiten(noise[:, 0].copy()), xi[:, 0], atol=1e-9)


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_growing_leaves_earlier_rows_as_they_are(mechanism):
    xi = np.random.default_rng(0).standard_normal((40, 2))
    noise = mechanism.color(xi)
    for step in range(40):
        np.testing.assert_allclose(mechanism.carry(noise, step) + xi[step], noise[step], atol=1e-12)
        np.testing.assert_allclose(mechanism.color(xi[: step + 1]), noise[: step + 1], atol=1e-12)


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_columns_their_norms_and_what_a_coin_looks_at_agree_with_the_matrices(mechanism):
    steps = 37
    b, c = matrices(mechanism, steps)
    scales = mechanism.scales(steps)
    np.testing.assert_allclose(mechanism.column_norms(steps), np.linalg.norm(c / scales[:, None], axis=0))
    for step in range(steps):
        column = mechanism.column(step, steps)
        probe = c[:, step] / scales**2
        np.testing.assert_allclose(column.probe, probe[column.rows])
        assert column.norm == pytest.approx(np.linalg.norm(c[:, step] / scales))
        np.testing.assert_allclose(mechanism.pull(step, steps), np.linalg.solve(b.T, probe), atol=1e-9)


def test_the_known_column_norms():
    assert SquareRoot().column_norms(1024)[0] == pytest.approx(1.81, abs=0.005)
    assert SquareRoot().column_norms(10**6)[0] == pytest.approx(2.34, abs=0.01)
    assert BinaryTree().column_norms(1024)[0] == pytest.approx(11**0.5)
    assert BinaryTree("anytime").column_norms(2**14).max() <= np.pi / 6**0.5


def test_noise_has_the_covariance_of_the_mechanism():
    rng = np.random.default_rng(1)
    for mechanism in (BinaryTree("anytime"), SquareRoot()):
        b, _ = matrices(mechanism, 6)
        draws = np.stack([draw_noise(mechanism, 6, 1, 2.0, 2.0**-30, rng)[:, 0] for _ in range(40_000)])
        wanted = 4.0 * (b * mechanism.scales(6) ** 2) @ b.T
        np.testing.assert_allclose(draws.T @ draws / 40_000, wanted, atol=0.05 * wanted.max())
    assert not draw_noise(SquareRoot(), 6, 2, 0.0, 2.0**-30, rng).any()


def test_append_and_prefix_sum_give_what_the_engines_answers_are():
    tree, rng = BinaryTree(), np.random.default_rng(2)
    values, xi = rng.normal(size=(21, 3)), rng.normal(size=(21, 3))
    nodes = TreeNodes(3)
    for t in range(21):
        tree.append(nodes, values[t], xi[t])
        np.testing.assert_allclose(tree.prefix_sum(nodes, t + 1), values[: t + 1].sum(axis=0) + tree.color(xi)[t])
    node = tree.get(nodes, 7)
    np.testing.assert_allclose(node.response, values[:8].sum(axis=0) + xi[7])
    tree.set(nodes, 7, node._replace(response=node.response + 1.0))
    np.testing.assert_allclose(tree.prefix_sum(nodes, 8), values[:8].sum(axis=0) + xi[7] + 1.0)


def test_a_tree_of_many_steps_needs_no_matrix():
    steps = 2**18
    noise = draw_noise(BinaryTree(), steps, 1, 1.0, 2.0**-30, np.random.default_rng(3))
    assert noise.shape == (steps, 1)
    assert len(BinaryTree().path(0, steps)) == 19


@pytest.mark.parametrize("shares", ["other", (), (0.0,), (1.0, float("nan"))])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(BadPlan, match="shares"):
        BinaryTree(shares)


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_weights_are_those_of_the_matrix(mechanism):
    _, c = matrices(mechanism, 19)
    found = [[mechanism.weight(row, step) for step in range(19)] for row in range(19)]
    np.testing.assert_allclose(found, c, atol=1e-15)


@pytest.mark.parametrize("horizon", [20, 32])
def test_the_tables_of_the_square_root_are_products_with_its_matrices(horizon):
    b, c = matrices(SquareRoot(), horizon)
    steps, others = np.array([0, 1, 7, 19]), np.array([3, 7, 12])
    wanted = np.linalg.inv(b).T @ c[:, steps]
    np.testing.assert_allclose(SquareRoot().pulls(steps, horizon)[:, ::-1], wanted.T, atol=1e-12)
    np.testing.assert_allclose(SquareRoot().overlaps(steps, others, horizon), c[:, steps].T @ c[:, others], atol=1e-12)


@pytest.mark.parametrize(
    "mechanism", [SquareRoot(), BinaryTree(), BinaryTree("anytime"), BinaryTree((0.3, 2.0))], ids=str
)
def test_no_pull_is_longer_than_the_bound(mechanism):
    for steps in (1, 2, 3, 17, 128, 700):
        longest = max(np.abs(mechanism.pull(step, steps)).sum() for step in range(steps))
        assert longest <= longest_pull(mechanism, steps)
