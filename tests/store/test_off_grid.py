"""Files from before answers lay on a grid: they open and predict, and are made anew before they serve requests."""

import numpy as np
import pytest

import expunge
import expunge.federated as federated
from cases.patching import patched_everywhere
from cases.stored_federations import make_rounds, new
from expunge import LogisticRegression
from expunge.base.errors import StoreError
from expunge.store.file import StoreFile

X = np.random.default_rng(0).normal(size=(80, 3)) / 3
Y = X[:, 0] > 0


def leave_the_grid(path, table="answers"):
    """Write answers as earlier versions did: the nearest numbers to sums plus noise, with all their digits."""
    file = StoreFile(path)
    with file.transaction():
        for number, content in list(file.all(table)):
            numbers = np.frombuffer(content, dtype="<f8").copy()
            numbers += np.random.default_rng(1).normal(size=len(numbers)) * 1e-12
            file.put(table, number, numbers.tobytes())
    file.close()


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.expunge"
    LogisticRegression(rho=0.3, solver="dual_averaging").fit(X, Y).save(path)
    leave_the_grid(path)
    return path


def test_it_opens_with_a_word_on_what_to_do_and_predicts(old):
    with pytest.warns(UserWarning, match=r"earlier version.*Refit it.*replan\(\)"):
        model = expunge.open(old)
    with model:
        assert model.predict(X).shape == (80,)
        assert model.n_records_ == 80
        found = model.verify()
    assert any("is not on the grid" in problem for problem in found.problems)


@pytest.mark.filterwarnings("ignore:.*earlier version")
def test_requests_are_refused_before_anything_is_recorded(old):
    with expunge.open(old) as model:
        with pytest.raises(StoreError, match=r"not on a grid.*replan\(\).*nothing was done") as caught:
            model.unlearn([3])
        assert caught.value.refused
        assert model.n_records_ == 80
        assert not model.export_receipts()["receipts"]


@pytest.mark.filterwarnings("ignore:.*earlier version")
def test_after_replan_it_is_on_the_grid_and_serves_requests(old):
    with expunge.open(old) as model:
        model.replan()
        model.unlearn([3])
        assert model.n_records_ == 79
        assert model.verify().ok
    with expunge.open(old) as model:  # no warning now
        assert model.verify().ok


def test_without_noise_there_is_nothing_to_do(tmp_path):
    path = tmp_path / "silent.expunge"
    LogisticRegression(rho=1.0, solver="dual_averaging").fit(X, Y).save(path)
    with expunge.open(path) as model:
        assert model.unlearn([3]).removed == 1


def test_a_request_that_an_earlier_version_has_recorded_is_left_to_it(old):
    path = old.with_name("pending.expunge")
    LogisticRegression(rho=0.3, solver="dual_averaging").fit(X, Y).save(path)

    def stop(*given, **more):
        raise RuntimeError("the power went off")

    with expunge.open(path) as model, patched_everywhere("decide_on", stop), pytest.raises(RuntimeError):
        model.unlearn([3])
    leave_the_grid(path)
    with pytest.raises(StoreError, match="Open the file once with that version"):
        expunge.open(path)


def test_a_federation_from_before_is_refused_and_its_model_can_be_read(tmp_path):
    path = tmp_path / "federation.expunge"
    with new(path) as federation:
        make_rounds(federation)
    leave_the_grid(path)
    with pytest.raises(StoreError, match="Start a new one with its clients"):
        federated.open(path)
    assert federated.load(path)["weights"].shape == (2,)
