"""The paper's learners by name: they are as stable as asked for, exact, and as cheap as predicted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cases.paper_learners import LEARNERS, PULL, N, to_point
from expunge import (
    BadPlan,
    BadRecords,
    Ball,
    BinaryTree,
    Box,
    Delete,
    DualAveragingRule,
    Hinge,
    Insert,
    L1Ball,
    Logistic,
    MemoryRecords,
    Multinomial,
    Shuffled,
    change,
    check_exact,
    learn,
    learn_with_outcome,
    paper,
    verify,
)  # fmt: skip
from expunge.engine.accounting import relative_complexity, stability, worst_case_rho
from expunge.solvers.any_loss import LossGradient


@pytest.fixture(params=LEARNERS, ids=str)
def case(request):
    return LEARNERS[request.param]


def test_every_learner_is_as_stable_as_asked_for(case):
    learner = case[0]
    wanted = 0.4 if learner.schedule.rate < 1.0 else 0.5
    endless = learner.mechanism == BinaryTree("anytime")
    assert stability(learner, 2**60 if endless else N) == pytest.approx(wanted, rel=1e-4)


def test_the_parts_are_the_papers():
    learner = LEARNERS["prefix_sums"][0]
    assert (learner.schedule, learner.mechanism, learner.coupling) == (Shuffled(1), BinaryTree(), "sequential")
    assert LEARNERS["frank_wolfe"][0].selector == "last"
    assert LEARNERS["dual_averaging"][0].selector == "average"


def test_anytime_noise_is_for_any_number_of_records():
    for make in (paper.weak_stream, paper.exact_stream):
        learner = make(PULL, DualAveragingRule(np.zeros(2), 0.3, anytime=1.0), rho=0.2)
        found = [stability(learner, n) for n in (2, 2**10, 2**20, 2**60)]
        assert found == sorted(found)
        assert found[-1] <= 0.2 * (1 + 1e-9)


def test_the_complete_state_after_a_deletion_has_the_law_of_fresh_training(case):
    learner, columns = case
    found = check_exact(learner, columns, [Delete([1])], runs=600, level=0.001, seed=7)
    assert found, str(found)


@pytest.mark.parametrize("name", ["weak_stream", "exact_stream"])
def test_streams_are_exact_after_a_deletion_and_an_insertion(name):
    learner, columns = LEARNERS[name]
    requests = [Delete([1]), Insert((np.array([[0.3, -0.2]]),), [50]), Delete([0])]
    found = check_exact(learner, columns, requests, runs=600, level=0.001, seed=8)
    assert found, str(found)


def test_a_deletion_that_is_kept_makes_two_evaluations_as_the_proof_says():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(64, 2)) / 4
    learner = paper.prefix_sums(PULL, DualAveragingRule(np.zeros(2), 0.01), rho=0.01, n=64)
    records = MemoryRecords((points,))
    transcript, learned = learn_with_outcome(learner, records, rng)
    assert learned.evaluations == 64
    for number in range(20):
        deletion = change(learner, records, transcript, Delete([number]), rng)
        deletion.rollback()
        if deletion.outcome.kept:
            assert deletion.outcome.evaluations <= 2


def measured_complexity(learner, columns, trials, seed):
    """Return the mean of evaluations of a deletion over those of learning, and its standard error."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(trials):
        records = MemoryRecords(columns)
        transcript, learned = learn_with_outcome(learner, records, rng)
        gone = int(rng.integers(len(columns[0])))
        outcome = change(learner, records, transcript, Delete([gone]), rng).outcome
        found.append(outcome.evaluations / learned.evaluations)
    return np.mean(found), np.std(found) / math.sqrt(trials)


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
def test_the_relative_complexity_of_prefix_sums_is_as_predicted(coupling):
    """Contributions of exactly the bound, so that the prediction is no upper bound but the mean itself."""
    unit = np.ones((48, 1))
    query = LossGradient(lambda w, z: z, 1, 1.0)
    learner = replace(paper.prefix_sums(query, DualAveragingRule(np.zeros(1), 0.1), rho=0.3, n=48), coupling=coupling)
    flips = np.where(np.arange(48) % 2, 1.0, -1.0)[:, None] * unit
    mean, error = measured_complexity(learner, (flips,), 1500, seed=1)
    # half of the replacements are by an equal record and shift nothing, the other half by twice the bound
    predicted = 0.5 * relative_complexity(learner, 48) + 0.5 * relative_complexity(learner, 48, norm=1e-9)
    assert abs(mean - predicted) < 4 * error + 0.01


@pytest.mark.parametrize("coupling", ["sequential", "adaptive"])
def test_the_relative_complexity_of_linear_queries_is_as_predicted(coupling):
    query = LossGradient(lambda w, z: z, 1, 1.0)
    learner = replace(
        paper.linear_queries(query, DualAveragingRule(np.zeros(1), 0.1), rho=0.3, rounds=8), coupling=coupling
    )
    mean, error = measured_complexity(learner, (np.ones((40, 1)),), 1500, seed=2)
    assert abs(mean - relative_complexity(learner, 40)) < 4 * error + 0.005


def test_sequential_decisions_replay_more_often_than_the_stability_and_joint_ones_exactly_as_often():
    for learner in (LEARNERS["prefix_sums"][0], LEARNERS["linear_queries"][0]):
        given = {"bound": learner.query.bound, "records": N}
        rows = worst_case_rho(learner.sigma, learner.schedule, learner.mechanism, coupling="sequential", **given)
        least = "joint" if learner.mechanism.prefix else "adaptive"
        whole = worst_case_rho(learner.sigma, learner.schedule, learner.mechanism, coupling=least, **given)
        assert stability(learner, N) == pytest.approx(whole, rel=1e-4)
        assert rows > 1.05 * whole


def test_the_stability_of_a_plan_is_that_of_its_learner():
    from expunge.solvers.plans.linear import make_plan

    plan = make_plan(Logistic(), features=3, records=1000, rho=0.2)
    assert stability(plan) == pytest.approx(0.2, rel=1e-4)
    several = make_plan(Logistic(), features=3, records=1000, rho=0.2, epochs=3)
    assert 0.05 < stability(several) < 0.2  # a coin for each epoch costs more than one for all would
    assert stability(make_plan(Logistic(), features=3, records=1000, rho=1.0)) == 1.0


def test_edges_nothing_one_record_and_the_last_one_deleted(case):
    learner, columns = case
    rng = np.random.default_rng(0)
    for count in (0, 1):
        records = MemoryRecords(tuple(column[:count] for column in columns))
        transcript = learn(learner, records, rng)
        if count:
            change(learner, records, transcript, Delete([0]), rng).commit()
        assert verify(learner, records, transcript).ok
        assert np.isfinite(transcript.model(learner)).all()


GOOD = {"rho": 0.2, "n": 100, "d": 3, "D": 2.0}
BAD = [
    (paper.dual_averaging, (Logistic(),), {"rho": 0.0}, "rho=0"),
    (paper.dual_averaging, (Logistic(),), {"rho": 1.5}, r"rho=1\.5"),
    (paper.dual_averaging, (Logistic(),), {"rho": "auto"}, "rho='auto'"),
    (paper.dual_averaging, (Logistic(),), {"n": 0}, "n=0"),
    (paper.dual_averaging, (Logistic(),), {"d": 2.5}, r"d=2\.5"),
    (paper.frank_wolfe, (Logistic(),), {"D": -1.0}, r"D=-1\.0"),
    (paper.frank_wolfe, (Logistic(),), {"G": 2.0, "H": 0.1}, r"H=0\.1 contradicts G=2\.0: .*H = 1"),
    (paper.frank_wolfe, (Logistic(),), {"domain": Ball(3.0)}, r"D=2 contradicts domain=.*diameter is 6"),
    (paper.frank_wolfe, (to_point,), {"G": 1.0}, "H=None"),
    (paper.frank_wolfe, (to_point,), {"H": 1.0}, "G=None"),
    (paper.frank_wolfe, (Hinge(),), {}, "smooth"),
    (paper.sgd_2021, (Hinge(),), {}, "Hinge is not smooth"),
    (paper.sgd_2021, (Logistic(),), {"rounds": 0}, "rounds=0"),
    (paper.dual_averaging, (Multinomial(3),), {}, "has 3 outputs"),
]


@pytest.mark.parametrize(("make", "given", "wrong", "said"), BAD, ids=[one[3] for one in BAD])
def test_bad_constants_are_named(make, given, wrong, said):
    with pytest.raises(BadPlan, match=said):
        make(*given, **{**GOOD, **wrong})


def test_bad_centres_and_starts_are_named():
    with pytest.raises(BadPlan, match="centers: expected a table"):
        paper.lloyd([1.0, 2.0], rho=0.5, rounds=2, radius=1.0)
    with pytest.raises(BadPlan, match="start: expected a flat array"):
        paper.federated_averaging(to_point, [[1.0]], rho=0.5, rounds=2, clip=1.0)
    with pytest.raises(BadPlan, match="records: say how many"):
        stability(LEARNERS["prefix_sums"][0])


def test_projected_models_have_the_original_features_whenever_rows_are_projected():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 300))
    targets = np.where(rows[:, 0] > 0, 1.0, -1.0)
    learner = paper.projected(Logistic(), rho=0.5, n=40, d=300, radius=2.0)
    assert learner.query.size < 300
    states = []
    for features in (rows, learner.query.project(rows)):
        records, rng = MemoryRecords((features, targets)), np.random.default_rng(5)
        transcript = learn(learner, records, rng)
        change(learner, records, transcript, Insert((features[:1], targets[:1]), [99]), rng).commit()
        assert verify(learner, records, transcript).ok
        states.append(transcript)
    assert states[0].answers[:].tobytes() == states[1].answers[:].tobytes()
    assert states[0].model(learner).shape == (300,)
    small = paper.projected(Logistic(), rho=0.5, n=40, d=3, radius=2.0)  # nothing to gain
    assert (small.query.size, small.selector) == (3, "last")


def test_projections_that_make_no_sense_are_named():
    given = {"rho": 0.5, "n": 40, "d": 4, "radius": 1.0}
    with pytest.raises(BadPlan, match="components=5: give at most d=4"):
        paper.projected(Logistic(), **given, components=5)
    with pytest.raises(BadPlan, match="base='newton'"):
        paper.projected(Logistic(), **given, base="newton")
    with pytest.raises(BadPlan, match=r"radius=0\.0"):
        paper.projected(Logistic(), **{**given, "radius": 0.0})
    learner = paper.projected(Logistic(), **given, components=2)
    with pytest.raises(BadPlan, match="query: a random projection in a stream"):
        paper.weak_stream(learner.query, learner.rule, rho=0.5)
    with pytest.raises(BadRecords, match="expected features of 4 columns"):
        learn(learner, MemoryRecords((np.ones((3, 7)), np.ones(3))), np.random.default_rng(0))


def test_domains_that_do_not_have_the_origin_are_started_inside():
    shifted = Box(1.0, 2.0)
    for make in (paper.frank_wolfe, paper.dual_averaging):
        learner = make(Logistic(), rho=0.5, n=8, d=2, D=1.5, domain=shifted)
        assert learner.rule.start.tolist() == [1.0, 1.0]
    assert paper.frank_wolfe(Logistic(), rho=0.5, n=8, d=2, D=2.0, domain=L1Ball(1.0)).rule.domain == L1Ball(1.0)
