"""Plans of federated averaging, what a client contributes, and the rule that averages it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.base.errors import BadPlan
from expunge.engine.accounting import worst_case_rho
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.transcript import Path
from expunge.solvers.averaging import BITS, ClientUpdate, FederatedAverage
from expunge.solvers.plans.federated import WORTH, ArrayType, as_config, plan_federation

MODEL = [ArrayType("layer", (3, 2), "<f4"), ArrayType("bias", (), "<f8")]


def plan(**more):
    return plan_federation(MODEL, **{"clients": 5, "rounds": 4, "clip": 1.0, "rho": 0.3, "finish": None, **more})


def fitted(*updates, query=None):
    query = query or ClientUpdate(len(updates[0]), 1.0, 0.5)
    found = query.fit(np.array(updates, dtype=float))
    return found.numbers * query.unit, found.clipped.tolist(), found.unfit.tolist()


# --- contributions ---


def test_an_update_within_the_clip_stays_as_it_is_but_for_the_grid():
    numbers, clipped, unfit = fitted([0.3, -0.4], [0.0, 0.0], [0.6, 0.8])
    assert np.abs(numbers[:, :2] - [[0.3, -0.4], [0, 0], [0.6, 0.8]]).max() < 2.0**-BITS * 2
    assert (np.abs(numbers[:, :2]) <= [[0.3, 0.4], [0, 0], [0.6, 0.8]]).all()  # towards zero
    assert numbers[:, 2].tolist() == [0.5] * 3
    assert not any(clipped + unfit)


@pytest.mark.parametrize("size", [1.0000001, 5.0, 1e160, 1e300])
def test_a_longer_update_is_clipped_and_keeps_its_direction(size):
    numbers, clipped, _ = fitted([0.6 * size, -0.8 * size])
    assert clipped == [True]
    assert numbers[0, :2] == pytest.approx([0.6, -0.8], abs=1e-8)
    assert math.hypot(*numbers[0, :2]) <= 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_count_for_nothing_and_are_not_counted(bad):
    numbers, clipped, unfit = fitted([0.3, bad], [0.3, 0.1])
    assert not numbers[0].any()
    assert numbers[1, 2] == 0.5
    assert (clipped, unfit) == ([False, False], [True, False])


def test_the_tiniest_numbers_become_zero():
    numbers, clipped, unfit = fitted([5e-324, -1e-300])
    assert numbers[0].tolist() == [0.0, 0.0, 0.5]
    assert not any(clipped + unfit)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.floats(1e-6, 1e6), st.integers(0, 10**6))
def test_what_comes_of_an_update_depends_on_no_other_and_fits_the_bound(parameters, count, clip, seed):
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(count, parameters)) * 10.0 ** rng.uniform(-3, 3, size=(count, 1)) * clip
    query = ClientUpdate(parameters, clip, clip / parameters**0.25)
    together = query.fit(updates).numbers
    assert np.array_equal(together, np.concatenate([query.fit(row[None]).numbers for row in updates]))
    lengths = np.sqrt((together.astype(float) ** 2).sum(axis=1)) * query.unit
    assert (lengths <= query.bound * (1 + 1e-12)).all()
    assert np.abs(together).max(initial=0) <= 2**query.bits


def test_contributions_are_what_is_held_in_units_of_the_grid():
    query = ClientUpdate(2, 1.0, 0.5)
    held = np.array([[[1, 2, 3], [4, 5, 6]]], dtype=np.int32)
    found = query.contributions(1, Path(np.zeros(2), None, 0), (held,))
    assert found.tolist() == [[4 * query.unit, 5 * query.unit, 6 * query.unit]]


# --- plans ---


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"rounds": 0}, "rounds"), ({"rounds": 2.5}, "rounds"), ({"clip": 0.0}, "clip"), ({"clip": math.inf}, "clip"),
     ({"clip": "1"}, "clip"), ({"rho": 0.0}, "rho"), ({"rho": 1.1}, "rho"), ({"rho": "much"}, "rho"),
     ({"rate": 0.0}, "rate"), ({"rate": 1.5}, "rate"), ({"selector": "best"}, "selector"), ({"bits": 0}, "bits"),
     ({"bits": 31}, "bits"), ({"bits": True}, "bits"), ({"bits": 4.0}, "bits"), ({"finish": "noisy"}, "finish"),
     ({"finish": True}, "finish"), ({"finish": "exact", "rate": 0.5}, "rate")],
    ids=str,
)  # fmt: skip
def test_an_error_names_the_field(wrong, named):
    with pytest.raises(BadPlan, match=f"^{named}"):
        plan(**wrong)


def test_a_model_without_numbers_and_a_grid_too_coarse_to_count_are_refused():
    with pytest.raises(BadPlan, match=r"^arrays"):
        plan_federation([ArrayType("none", (0, 3), "<f8")], clients=2, rounds=1, clip=1.0)
    with pytest.raises(BadPlan, match=r"bits=1.*give more"):
        plan_federation([ArrayType("w", (100_000,), "<f8")], clients=2, rounds=1, clip=1.0, bits=1)


@pytest.mark.parametrize("clip", [1e-320, 1e-101, 1e160])
def test_a_clip_whose_square_is_no_number_is_refused(clip):
    with pytest.raises(BadPlan, match="squares of such numbers overflow or vanish"):
        plan(clip=clip)


def test_the_plan_knows_its_arrays_and_tells_no_exact_number_of_clients():
    made = plan()
    assert (made.parameters, made.query.size) == (7, 8)
    assert made.types == MODEL
    assert plan(clients=5) == plan(clients=8) != plan(clients=9)


def test_what_clients_are_told_is_part_of_the_plan_in_whatever_order_it_was_given():
    rates = [0.1, 2]
    made = plan(config={"rates": rates, "how": "fast", "deep": True, "none": []})
    assert made.config == (("deep", True), ("how", "fast"), ("none", []), ("rates", [0.1, 2]))
    assert made == plan(config={"none": [], "deep": True, "rates": [0.1, 2], "how": "fast"})
    assert plan().config == plan(config={}).config == as_config({}) == ()
    assert made != plan() != plan(config={"how": "slow"})
    rates.append(3)
    assert dict(made.config)["rates"] == [0.1, 2]
    assert as_config(dict(made.config)) == made.config


@pytest.mark.parametrize("wrong", [b"x", None, {}, (1,), [1, b"x"], [[1]], 1j, math.nan, [math.nan]], ids=str)
def test_what_cannot_be_kept_is_not_told_to_clients(wrong):
    with pytest.raises(BadPlan, match=r"^config: 'two' is not a number, a text or a list of them"):
        plan(config={"one": 1, "two": wrong})


def test_the_weight_lies_on_the_grid():
    for bits in (3, 12, 30):
        made = plan(bits=bits)
        assert made.weight / made.query.unit == round(made.weight / made.query.unit)
        assert 0 < made.weight <= made.clip / made.parameters**0.25
        assert made.query.fit(np.zeros((1, 7))).numbers[0, -1] * made.query.unit == made.weight


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("rho", [0.05, 0.7])
def test_the_noise_is_what_makes_the_worst_client_replay_with_rho(rho, rate):
    made = plan(rho=rho, rate=rate)
    bound = math.hypot(made.clip, made.weight)
    found = worst_case_rho(
        made.sigma, made.schedule, Identity(), bound=bound, coupling="sequential", size=made.query.size
    )
    assert found == pytest.approx(rho, rel=1e-9)
    assert plan(rho=rho, rate=rate, clip=3.0).sigma == pytest.approx(3 * made.sigma, rel=1e-5)


def test_rho_of_itself_falls_with_the_number_of_clients_and_is_at_most_one():
    assert plan(rho="auto", clients=5).rho == 1.0
    assert plan(rho="auto", clients=5).sigma == 0.0
    many = plan(rho="auto", clients=1000)
    assert many.rho == WORTH * math.sqrt(7) / 1024
    assert many.sigma > 0.0
    assert plan(rho="auto", clients=1000, rounds=50, rate=0.5).rho == many.rho  # however many rounds
    assert plan(rho="auto", clients=1025).rho == many.rho / 2
    wide = plan_federation([ArrayType("w", (700,), "<f8")], clients=1000, rounds=4, clip=1.0, finish=None)
    assert wide.rho == 10 * math.sqrt(700) / 1024


def test_with_an_exact_last_round_there_is_no_noise_and_rho_is_the_part_of_the_clients_in_all_others():
    made = plan(finish="exact", rho=0.3)
    assert (made.rho, made.sigma, made.stability, made.flaw()) == (0.3, 0.0, 1.0, None)
    joined = made.learner(np.zeros(7)).participation.joined
    keys = np.array([0, int(0.29 * 2**64), int(0.31 * 2**64), 2**64 - 1], dtype=np.uint64)
    assert [joined(keys, step).tolist() for step in range(3)] == [[True, True, False, False]] * 3
    assert joined(keys, 3) is None  # everyone
    assert [plan(finish="exact", rho="auto", clients=n).rho for n in (0, 1, 64, 65, 1000)] == [1, 1, 1, 0.5, 1 / 16]
    for wrong in ({"sigma": 1.0}, {"rate": 0.5}):
        assert "finish" in replace(made, **wrong).flaw()


def test_dp_accounting_agrees_on_the_stability():
    made = plan(rho=0.3)
    loss = pld.from_gaussian_mechanism(made.sigma / made.query.bound, value_discretization_interval=1e-4)
    assert made.stability == pytest.approx(loss.self_compose(4).get_delta_for_epsilon(0.0), rel=1e-2)
    assert made.stability < made.rho
    assert plan(rho=1.0).stability == 1.0


def test_where_nothing_can_be_repeated_with_more_than_rho_there_is_no_noise():
    assert plan(rounds=1).sigma == 0.0  # the only sum is added to, and nobody is asked again
    assert plan(rate=0.4, rho=0.8).sigma == 0.0  # 1 - 0.6³ = 0.784
    assert plan(rate=0.4, rho=0.78).sigma > 0.0


# --- the rule ---


def step(*answer, clip=1.0, weight=0.5):
    start = np.array([10.0, 20.0])
    return FederatedAverage(start, weight, clip).step(0, Path(start, None, 0), np.array(answer)) - start


def test_the_model_moves_by_noisy_sum_over_noisy_count():
    assert step(0.8, -0.4, 2.0) == pytest.approx([0.2, -0.1])


@pytest.mark.parametrize("count", [0.49, 0.0, -3.0])
def test_a_count_below_one_is_taken_for_one(count):
    assert step(0.8, -0.4, count) == pytest.approx([0.8, -0.4])


def test_a_mean_longer_than_the_clip_is_shortened_to_it():
    assert step(30.0, -40.0, 0.5) == pytest.approx([0.6, -0.8])
    assert step(30.0, -40.0, 0.5, clip=5.0) == pytest.approx([3.0, -4.0])


@pytest.mark.parametrize(
    "arrays",
    [
        [("w", (3,), "<i4")], [("w", (3,), "nonsense")], [("w", 3, "<f4")], [("w", (-1,), "<f4")], ["w"],
        [(1, (3,), "<f4")], [("w", (3,), "<f4"), ("w", (2,), "<f4")], [("w", (3,), "O")],
    ],
)  # fmt: skip
def test_arrays_that_cannot_be_averaged_are_refused(arrays):
    with pytest.raises(BadPlan, match="arrays: "):
        plan_federation(arrays, clients=3, rounds=2, clip=1.0)


def test_types_of_arrays_are_kept_as_text():
    plan = plan_federation([("w", [3], np.float32)], clients=3, rounds=2, clip=1.0)
    assert plan.arrays == (("w", (3,), "<f4"),)


@pytest.mark.parametrize("clients", [-5, 2.5, "3", True])
def test_the_number_of_clients_is_a_whole_number(clients):
    with pytest.raises(BadPlan, match="clients="):
        plan_federation([ArrayType("w", (3,), "<f4")], clients=clients, rounds=2, clip=1.0)


def test_what_noise_will_cost_can_be_told_before():
    given = {"clients": 64, "rounds": 8, "clip": 1.0, "finish": None}
    arrays = [ArrayType("w", (16,), "<f4")]
    assert plan_federation(arrays, rho=0.5, **given).worth == pytest.approx(0.5 * 64 / 4)
    assert plan_federation(arrays, rho=0.5, rate=0.5, **given).worth == pytest.approx(0.25 * 64 / 4)
    assert plan_federation(arrays, rho=1.0, **given).worth == np.inf
    assert plan_federation(arrays, rho=0.1, **{**given, "finish": "exact"}).worth == np.inf
