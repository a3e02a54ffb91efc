"""No seed lies in a file, or can be found from it by trying; where one is known, in memory, it gives all away."""

import numpy as np
import pytest

import expunge
from exactness.seeds import recovered_contribution, recovered_seed
from expunge.errors import BadPlan
from expunge.randomness import Randomness
from store.keys import keys_from

pytestmark = pytest.mark.filterwarnings("ignore::expunge.errors.NoiseWarning")
rng = np.random.default_rng(3)
X = rng.uniform(-0.5, 0.5, size=(60, 4))
Y = np.arange(60) % 2
SEED, GONE, GUESSES = 7, np.array([41]), range(12)


def kmeans(**given):
    return expunge.KMeans(2, radius=1.5, rho=0.3, n_rounds=2, **given).fit(X)


def projected(**given):
    return expunge.LogisticRegression(rho=0.3, steps=8, n_components=3, **given).fit(X, Y)


def plain(**given):
    return expunge.LogisticRegression(rho=0.3, steps=8, **given).fit(X, Y)


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
            with pytest.raises(BadPlan, match=r"random_state=.*lives in a file.*Set it to None"):
                ask()
        assert model.n_records_ == 60
        model.random_state = None
        model.unlearn(GONE)


def test_nothing_is_ingested_with_a_random_state(tmp_path):
    wanted = expunge.LogisticRegression(classes=[0, 1], random_state=SEED)
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
