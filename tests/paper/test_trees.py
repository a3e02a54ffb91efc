"""The operations of the paper's tree, as they are printed: none of them gives prefix sums."""

import numpy as np
import pytest

from cases.printed import end, leaf, path_to_root
from expunge import BinaryTree
from expunge.engine.mechanisms.binary_tree import TreeNodes, lowbit


def printed_prefix_sums(values, stop_at_noise, short_path, when_complete):
    """Append, UpdateTree, GetPrefixSum without noise; b moves up, and "leaf child" means left child."""
    u, r, sums = {}, {}, []
    for t, value in enumerate(values, 1):
        path = path_to_root(leaf(t))
        for b in path[: lowbit(t).bit_length()] if short_path else path:
            u[b] = u.get(b, 0.0) + value
            if (b.endswith("0") or len(b) == 3) and (end(b) == t or not when_complete):
                r[b] = u[b]
                if stop_at_noise:
                    break
        sums.append(sum(r.get(b, 0.0) for b in path if b.endswith("0") or len(b) == 3))
    return sums


@pytest.mark.parametrize(
    ("reading", "seen"),
    [
        ((True, True, False), [1, 10, 100, 1000]),
        ((False, True, False), [1, 20, 100, 2000]),
        ((False, False, False), [3, 32, 211, 2111]),
        ((False, False, True), [1, 21, 100, 2111]),
    ],
    ids=[
        "as printed: only leaves are ever written",
        "without the break: nodes miss earlier leaves",
        "up to the root: nodes count before they are complete",
        "when complete: right leaves count twice and left subtrees are lost",
    ],
)
def test_the_printed_tree_operations_do_not_give_prefix_sums(reading, seen):
    values = [10.0**t for t in range(8)]
    right = np.cumsum(values).tolist()
    printed = printed_prefix_sums(values, *reading)
    assert printed[:4] == seen
    assert not any(printed[t] == right[t] for t in range(1, 8))
    tree, nodes = BinaryTree(), TreeNodes(1)
    for t, value in enumerate(values):
        tree.append(nodes, np.array([value]), noise=np.zeros(1))
        assert tree.prefix_sum(nodes, t + 1).item() == right[t]


def test_the_listings_append_sums_that_are_summed_again():
    gradients = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0])
    tree, printed, ours = BinaryTree(), TreeNodes(1), TreeNodes(1)
    for t in range(6):
        u_t = gradients[: t + 1].sum(keepdims=True)  # "u_t = Σ_{i ≤ t} ∇ℓ(w_i; z_i)"
        tree.append(printed, u_t, np.zeros(1))
        tree.append(ours, gradients[t : t + 1], np.zeros(1))
    right = gradients.cumsum()
    for t in range(6):
        assert tree.prefix_sum(ours, t + 1) == right[t]
        assert tree.prefix_sum(printed, t + 1) == right.cumsum()[t]
    assert np.all(right.cumsum()[1:] != right[1:])


def sums_of_the_main_text(values, when_complete):
    """Append and GetPrefixSum as the main text has them, without noise: left children on the way up, nothing else."""
    u, r, sums = {}, {}, []
    for t, value in enumerate(values, 1):
        path = path_to_root(leaf(t))
        for b in path:
            u[b] = u.get(b, 0.0) + value
            if b.endswith("0") and (end(b) == t or not when_complete):
                r[b] = u[b]
        sums.append(sum(r.get(b, 0.0) for b in path if b.endswith("0")))
    return sums


def test_the_main_texts_prefix_sum_is_right_only_where_one_node_is_the_whole_sum():
    values = [10.0**t for t in range(8)]
    right = np.cumsum(values).tolist()
    printed = sums_of_the_main_text(values, when_complete=True)
    assert printed[2] == values[2]  # at t = 3: p₃ alone; node (0, 2] is no ancestor of leaf 3
    assert [t + 1 for t in range(8) if printed[t] == right[t]] == [1, 2, 4]  # and 8, if the root counts
    early = sums_of_the_main_text(values, when_complete=False)
    assert early[:3] == [3.0, 22.0, 211.0]  # at once: what is not yet complete counts too, and more than once
    tree, nodes = BinaryTree(), TreeNodes(1)
    for t, value in enumerate(values):
        tree.append(nodes, np.array([value]), noise=np.zeros(1))
        assert tree.prefix_sum(nodes, t + 1).item() == right[t]
