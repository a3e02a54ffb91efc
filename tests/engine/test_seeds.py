"""No seed lies in a file, or can be found from it by trying; where one is known, in memory, it gives all away."""

import os
import pickle
import warnings

import numpy as np
import pytest

import expunge
from cases.in_solver import in_solver
from cases.keys import keys_from
from cases.seeds import recovered_contribution, recovered_seed
from expunge.base.errors import BadPlan, SeedWarning
from expunge.engine.randomness import Randomness
from expunge.solvers import Lloyd

pytestmark = pytest.mark.filterwarnings("ignore::expunge.NoiseWarning")
rng = np.random.default_rng(3)
X = rng.uniform(-0.5, 0.5, size=(60, 4))
Y = np.arange(60) % 2
SEED, GONE, GUESSES = 7, np.array([41]), range(12)


def kmeans(**given):
    return expunge.KMeans(2, rho=0.3, solver=Lloyd(radius=1.5, n_rounds=2), **given).fit(X)


def projected(**given):
    return expunge.LogisticRegression(**in_solver(rho=0.3, steps=8, n_components=3, **given)).fit(X, Y)


def plain(**given):
    return expunge.LogisticRegression(**in_solver(rho=0.3, steps=8, **given)).fit(X, Y)


MODELS = pytest.mark.parametrize("fitted", [kmeans, projected, plain])


def seeded(fitted):
    """A model trained with a small number, from which a record was deleted that left all but sums as it was."""
    model = fitted(random_state=SEED).set_params(random_state=None)
    with keys_from(np.random.default_rng(1)):
        assert model.unlearn(GONE).kept
    return model


@MODELS
def test_a_small_random_state_is_found_by_trying(fitted):
    """In memory it is there for all to see: this is the attack, and what follows must withstand it."""
    assert recovered_seed(seeded(fitted), GONE, GUESSES) == SEED


def test_with_it_the_deleted_point_is_recovered():
    model = seeded(kmeans)
    first = recovered_contribution(model, GONE, SEED)[0]
    width = X.shape[1] + 1
    block = first[: len(first) // width * width].reshape(-1, width)
    found = block[np.abs(block).sum(axis=1).argmax()]
    np.testing.assert_allclose(found[:-1], X[41], atol=1e-4)


@MODELS
def test_so_a_model_trained_with_one_is_not_saved(fitted, tmp_path):
    for state in (SEED, np.random.default_rng(SEED), np.random.RandomState(SEED)):
        model = fitted(random_state=state)
        for _ in range(2):
            with pytest.raises(BadPlan, match=r"random_state: .* found by trying.* without it, or .* replan\(\)"):
                model.save(tmp_path / "model")
            model.set_params(random_state=None)  # what was drawn has been drawn
        model.unlearn(GONE)
        with pytest.raises(BadPlan, match="random_state"):
            model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@MODELS
def test_nor_is_one_of_which_a_request_was_served_with_one(fitted, tmp_path):
    model = fitted()
    model.set_params(random_state=np.random.default_rng(SEED)).unlearn(GONE)
    model.set_params(random_state=None)
    with pytest.raises(BadPlan, match="random_state"):
        model.save(tmp_path / "model")
    model.replan()
    model.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert stored.verify().ok


def test_a_number_that_nothing_was_drawn_from_does_not_matter(tmp_path):
    model = plain().set_params(random_state=SEED)
    model.save(tmp_path / "model")


@pytest.mark.parametrize("fitted", [kmeans, projected])
def test_a_new_plan_without_a_seed_can_be_saved(fitted, tmp_path):
    model = fitted(random_state=SEED)
    with pytest.raises(BadPlan, match="random_state"):
        model.save(tmp_path / "model")
    model.set_params(random_state=None).replan()
    model.save(tmp_path / "model")
    assert (tmp_path / "model").exists()


@MODELS
def test_no_random_state_gives_what_is_seen_of_a_stored_model(fitted, tmp_path):
    with keys_from(np.random.default_rng(1)):
        fitted().save(tmp_path / "model")
        with expunge.open(tmp_path / "model") as model:
            model.unlearn(GONE)
            assert recovered_seed(model, GONE, range(60)) is None


@pytest.mark.parametrize("state", [SEED, np.random.default_rng(SEED)])
def test_a_stored_model_draws_from_the_system_only(state, tmp_path):
    plain().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        model.random_state = state
        for ask in (lambda: model.unlearn(GONE), model.replan):
            with pytest.raises(BadPlan, match=r"random_state=.*is stored in a file.*Set it to None"):
                ask()
        assert model.n_records_ == 60
        model.random_state = None
        model.unlearn(GONE)


def test_nothing_is_ingested_with_a_random_state(tmp_path):
    wanted = expunge.LogisticRegression(classes=[0, 1], random_state=SEED, solver="dual_averaging")
    with pytest.raises(BadPlan, match=r"random_state: .*Leave it out"):
        expunge.ingest(wanted, [(X, Y)], tmp_path / "model")
    assert not list(tmp_path.iterdir())


@MODELS
@pytest.mark.parametrize("stream", ["plan", "layout"])
def test_noise_is_drawn_from_a_stream_that_nothing_public_comes_from(stream, fitted, monkeypatch):
    """Other seeds of centres, another projection and another order leave the noise as it is, to rounding."""

    def noise(model):
        kept = model.transcript_
        prefix = model.plan_.learner.mechanism.prefix
        return kept.answers[:] - (np.cumsum(kept.sums[:], axis=0) if prefix else kept.sums[:])

    before = fitted(random_state=SEED)
    monkeypatch.setattr(Randomness, stream, property(lambda _: np.random.default_rng(99)))
    after = fitted(random_state=SEED)
    np.testing.assert_allclose(noise(after), noise(before), atol=1e-9)
    monkeypatch.undo()
    same_to_see = recovered_seed(after, GONE[:0], [SEED]) == SEED
    assert same_to_see == ((stream, fitted) in [("plan", plain), ("layout", kmeans)])  # which have none


# --- warnings, and forks --------------------------------------------------------------------------------


def states():
    return [SEED, np.random.default_rng(SEED), np.random.RandomState(SEED)]


@MODELS
@pytest.mark.parametrize("number", range(3))
def test_a_fit_and_the_first_request_warn_of_a_random_state(fitted, number):
    state = states()[number]
    with pytest.warns(SeedWarning, match=r"^random_state=\w+ is for tests: .* the noise.* leave it out"):
        model = fitted(random_state=state)
    with pytest.warns(SeedWarning, match=r"^random_state=\w+ is for tests: .* what is deleted.* replan\(\)"):
        model.unlearn(GONE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeedWarning)
        model.unlearn([40])  # once
        model.set_params(random_state=None).replan()
        model.unlearn([39])
        fitted().unlearn(GONE)


def test_so_do_insert_replace_and_replan():
    for ask in (lambda m: m.insert(X[:1], Y[:1]), lambda m: m.replace(X[:1], Y[:1], [3]), lambda m: m.replan()):
        model = plain(random_state=SEED)
        with pytest.warns(SeedWarning, match="random_state=7 is for tests"):
            ask(model)


def test_a_warning_that_is_an_error_leaves_all_as_it_was():
    model = plain()
    model.set_params(random_state=np.random.default_rng(SEED))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeedWarning)
        with pytest.raises(SeedWarning):
            model.unlearn(GONE)
        with pytest.raises(SeedWarning):
            model.fit(X[:9], Y[:9])
    assert model.n_records_ == 60
    assert model.verify().ok


def in_a_fork(work):
    """Return what a forked process says."""
    report, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(report) as file:
        return file.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("fitted", [kmeans, plain])
@pytest.mark.parametrize("number", range(3))
def test_two_workers_do_not_toss_the_same_coins(fitted, number):
    model = fitted(random_state=states()[number])
    more = (X[:1],) if fitted is kmeans else (X[:1], Y[:1])
    for ask in (
        lambda: model.unlearn(GONE),
        lambda: model.insert(*more),
        lambda: model.replace(*more, [3]),
        model.replan,
    ):
        assert "forked" in (said := in_a_fork(ask)), said
        assert said.startswith("BadPlan: random_state=")
        assert said.endswith("Set it to None.")
    assert in_a_fork(lambda: model.set_params(random_state=None).unlearn(GONE).removed) == "1"
    assert in_a_fork(lambda: pickle.loads(pickle.dumps(model)).unlearn(GONE).removed) == "1"
    assert model.unlearn(GONE).removed == 1  # where it was fitted
    assert model.verify().ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_workers_without_a_random_state_go_on():
    model = plain()
    assert in_a_fork(lambda: (model.unlearn(GONE).removed, model.verify().ok)) == "(1, True)"
