"""k-means from a keyed sample: every state is, bit for bit, that of a fresh fit with the same keys."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV

import expunge
from cases.toys import state
from expunge.base.errors import BadPlan, BadRecords, SizeWarning, UnknownId
from expunge.base.intake import Delete, Insert, Replace
from expunge.engine import sampling
from expunge.engine.streams import apply
from expunge.models import KMeans
from expunge.solvers import KeyedSample, Lloyd
from expunge.solvers.keyed_kmeans import centers_of, fit
from expunge.store.rows import StoredRows

CENTERS = np.array([[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]])
pytestmark = pytest.mark.filterwarnings("ignore::expunge.PlanWarning")


def blobs(count=300, seed=0, spread=0.1):
    rng = np.random.default_rng(seed)
    truth = np.arange(count) % 3
    return CENTERS[truth] + spread * rng.normal(size=(count, 2)), truth


X, TRUTH = blobs()


def fitted(rows=X, n_clusters=3, ids=None, subjects=None, **given):
    return KMeans(n_clusters, **{"rho": 0.1, "random_state": 0, **given}).fit(rows, ids=ids, subjects=subjects)


def assert_sound(model):
    """The whole state is that of a fresh fit of the live records with their keys, by the numerics alone."""
    report = model.verify()
    assert report.ok, report.problems
    records, structure = model._records, model.plan_.structure
    found = fit(model.plan_.settings, records.keys_at(0), records.batch_at(0)[0])
    assert model.transcript_.sums.tobytes() == found.sums.tobytes()
    assert model.transcript_.iterates[0].tobytes() == structure.pack((*found.stages, found.cells)).tobytes()
    assert model.cluster_centers_.tobytes() == centers_of(found.cells, found.sums).tobytes()
    assert np.isfinite(model.cluster_centers_).all()
    assert len(model.labels_) == len(model.ids_) == model.n_records_


# --- bit for bit a fresh fit ------------------------------------------------------------------------------


def random_request(model, rng):
    """One request of any kind, of one record or many, to whoever is there."""
    alive, number = rng.permutation(model.ids_), int(rng.choice([1, 1, 2, 7]))
    rows = np.round(rng.normal(size=(number, 2)) * 10.0 ** rng.integers(-2, 4), 3)
    match int(rng.integers(3)):
        case 0 if len(alive):
            return lambda: model.unlearn(alive[:number])
        case 1 if len(alive):
            return lambda: model.replace(rows[: len(alive)], ids=alive[:number])
        case _:
            return lambda: model.insert(rows)


def go_on(model, rng, requests):
    for _ in range(requests):
        random_request(model, rng)()
        assert_sound(model)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), rho=st.sampled_from([1e-9, 0.03, 0.3, 1.0]), clusters=st.integers(1, 5),
    count=st.sampled_from([5, 20, 200]),
)  # fmt: skip
def test_after_any_history_the_state_is_that_of_a_fresh_fit_with_the_same_keys(seed, rho, clusters, count):
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        go_on(fitted(X[rng.integers(300, size=count)], clusters, rho=rho, random_state=rng), rng, 6)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32), rho=st.sampled_from([0.03, 0.5]))
def test_the_same_in_a_file(seed, rho, tmp_path_factory):
    path = tmp_path_factory.mktemp("kmeans") / "model"
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KMeans(3, rho=rho).fit(X[rng.integers(300, size=200)]).save(path)
        with expunge.open(path) as model:
            go_on(model, rng, 4)
        with expunge.open(path) as model:
            assert_sound(model)


def test_a_deletion_outside_the_sample_changes_sums_only_and_one_inside_finds_all_anew():
    model, kinds = fitted(rho=0.3), set()
    for one in range(40):
        before, number = model.transcript_.iterates.tobytes(), model.n_records_
        outcome = model.unlearn(one)
        assert (model.transcript_.iterates.tobytes() == before) == outcome.kept
        assert outcome.evaluations == (1 if outcome.kept else number)
        kinds.add(outcome.kept)
    assert kinds == {True, False}
    assert_sound(model)


def test_a_bulk_finds_all_anew_once_at_most(monkeypatch):
    model, calls, find = fitted(rho=0.5), [], sampling.find_structure
    monkeypatch.setattr(sampling, "find_structure", lambda *given: calls.append(1) or find(*given))
    assert not model.unlearn(np.arange(100)).kept
    assert len(calls) == 1
    assert_sound(model)


def test_a_kept_deletion_in_a_file_rewrites_one_piece_of_the_sums(tmp_path, monkeypatch):
    fitted(blobs(3000)[0], random_state=None).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        model.unlearn(2999)
        put, pieces = StoredRows._put, []
        monkeypatch.setattr(StoredRows, "_put", lambda rows, *which: pieces.append(which) or put(rows, *which))
        while not model.unlearn(int(model.ids_[0])).kept:
            pieces.clear()
        assert [stop - first for first, stop in pieces] == [1]
        assert_sound(model)


# --- keys -------------------------------------------------------------------------------------------------


def test_every_record_has_a_key_of_its_own_and_every_subject_one_for_all_its_records():
    alone = fitted(ids=np.arange(300))
    assert len(np.unique(alone._records.keys_at(0))) == 300
    model = fitted(subjects=np.arange(300) // 3)
    model.insert(X[:4], subjects=[0, 0, 500, 500])
    subjects, keys = model._records.subjects, model._records.keys_at(0)
    assert {len(np.unique(keys[subjects == one])) for one in np.unique(subjects)} == {1}
    assert len(np.unique(keys)) == 101
    assert_sound(model)
    assert model.unlearn(subjects=[0, 500]).removed == 7
    assert_sound(model)


def test_keys_come_from_a_secret_stream_and_not_from_the_one_that_lays_records_out():
    model, layout = fitted(), expunge.engine.randomness.Randomness.given(0, 0).layout
    assert model._records.keys_at(0).tobytes() not in layout.bytes(16 * 300)
    order = layout.permutation(300)
    assert sorted(order.tolist()) == list(range(300))


def test_a_key_goes_with_its_record():
    model = fitted()
    slot = int(np.flatnonzero(model._records.ids_at(0) == 17)[0])
    key, row = model._records.keys_at(0)[slot].tobytes(), X[17].tobytes()
    assert key in pickle.dumps(model)
    model.unlearn(17)
    assert key not in pickle.dumps(model)
    assert row not in pickle.dumps(model)


def test_the_share_of_deletions_that_fit_anew_is_about_the_one_planned():
    rows, shares = blobs(2000, spread=0.4)[0], []
    for seed in range(6):
        model = fitted(rows, rho=0.1, random_state=seed)
        chances = model.replay_probability(np.arange(200))
        shares.append(chances.mean())
        assert chances.min() > 0.0
        assert chances.max() <= model.plan_.worst_case()
    assert 0.07 < np.mean(shares) < 0.12
    model = fitted(rows, rho=0.1)
    assert 8 < sum(not model.unlearn(one).kept for one in range(200)) < 35


# --- errors and interruptions -----------------------------------------------------------------------------


def test_what_fails_while_all_is_found_anew_leaves_the_state_and_is_finished_by_the_next_call(monkeypatch):
    model, twin = fitted(rho=0.9), fitted(rho=0.9)
    before = state(model._records, model.transcript_)

    def fails(*given):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "sum_everyone", fails)
        with pytest.raises(MemoryError):
            model.unlearn(np.arange(20))
        assert state(model._owner.records, model._owner.transcript) == before
    assert model.n_records_ == 300
    assert_sound(model)  # finishes it
    twin.unlearn(np.arange(20))
    assert state(model._records, model.transcript_) == state(twin._records, twin.transcript_)


NAN = np.array([[0.0, 0.0], [np.nan, 1.0]])
HUGE = np.array([[0.0, 2.0**41]])


@pytest.mark.parametrize(
    ("error", "match", "act"),
    [
        (BadRecords, "^X: row 1 has NaN", lambda m: m.insert(NAN)),
        (BadRecords, "^X: a number in column [01] is above 1.1e.12.* give a larger bound", lambda m: m.insert(HUGE)),
        (BadRecords, "^X: a number in column [01] is above", lambda m: m.replace(HUGE, ids=[3])),
        (BadRecords, "^X: a number in column [01] is above", lambda m: m.fit(np.concatenate([X, HUGE]))),
        (UnknownId, "^ids: id not found: 999", lambda m: m.unlearn([3, 999])),
        (BadRecords, "^X: n_samples=2 is below n_clusters=3", lambda m: m.fit(X[:2])),
    ],
)
def test_a_request_that_is_refused_changes_nothing(error, match, act):
    model = fitted()
    before = state(model._records, model.transcript_), model.cluster_centers_.tobytes()
    with pytest.raises(error, match=match):
        act(model)
    assert (state(model._records, model.transcript_), model.cluster_centers_.tobytes()) == before
    assert_sound(model)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"solver": "newton"}, r"^solver='newton': use 'keyed_sample', or .*Lloyd\(radius"),
        ({"solver": 3}, "^solver=3: use 'keyed_sample'"),
        ({"solver": KeyedSample(bound=0.0)}, "^bound=0.0: give a number above 0"),
        ({"solver": KeyedSample(bound="1")}, "^bound='1': give the largest number"),
        ({"solver": KeyedSample(seeds=0)}, "^seeds=0: give a whole number above 0"),
        ({"solver": KeyedSample(seeds=300)}, "^seeds=300: give at most 256"),
        ({"n_clusters": 0}, "^n_clusters=0: give a whole number above 0"),
        ({"rho": 0.0}, "^rho=0.0: give a probability above 0"),
        ({"expected_records": -1}, "^expected_records=-1: give a whole number above 0"),
    ],
)
def test_parameters_that_cannot_be_are_named(parameters, match):
    with pytest.raises(BadPlan, match=match):
        fitted(**parameters)


def test_a_bound_of_the_users_own_takes_larger_numbers():
    model = fitted(X * 1e15, solver=KeyedSample(bound=1e17))
    assert adjusted_rand_score(model.labels_, TRUTH) == 1.0
    assert_sound(model)


# --- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1e-12, 0.2, 1.0])
def test_all_may_leave_and_others_come(rho):
    model = fitted(X[:60], rho=rho)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.unlearn(np.arange(58))
        assert_sound(model)
        model.unlearn(58)
        assert_sound(model)
        with pytest.warns(UserWarning, match="every record has been deleted"):
            model.unlearn(59)
        assert (len(model.labels_), model.inertia_, model.n_records_) == (0, 0.0, 0)
        assert_sound(model)
        model.insert(X[:60])
    assert_sound(model)
    assert (model.cluster_centers_ != 0.0).any()


def test_nobody_in_the_sample_gives_the_mean():
    model = fitted(rho=1e-12)
    np.testing.assert_allclose(model.cluster_centers_, np.tile(X.mean(axis=0), (3, 1)))
    assert_sound(model)


def test_one_record_is_its_own_centre():
    for rho in (1e-12, "auto"):
        model = fitted(X[:1], 1, rho=rho)
        np.testing.assert_allclose(model.cluster_centers_, X[:1], atol=2.0**-40)
        assert_sound(model)


@pytest.mark.parametrize("rho", [0.05, 1.0])
def test_copies_and_constant_columns(rho):
    rows = np.column_stack([np.repeat([0.0, 1.0, 5.0], 40), np.full(120, 7.0)])
    model = fitted(rows, 5, rho=rho)
    model.unlearn(np.arange(30, 50))
    assert_sound(model)
    assert set(model.cluster_centers_[:, 1]) == {7.0}


def test_too_few_left_are_warned_of():
    model = fitted(X[:9], rho=0.5)
    with pytest.warns(SizeWarning), pytest.warns(UserWarning, match="2 records, fewer than n_clusters=3"):
        model.unlearn(np.arange(7))
    assert_sound(model)


# --- as scikit-learn has it -------------------------------------------------------------------------------


def test_it_fits_with_nothing_declared_and_finds_what_scikit_learn_finds():
    model = KMeans(3, random_state=0).fit(X * 1e5 + 1e7)
    theirs = sklearn.cluster.KMeans(3, n_init=5, random_state=0).fit(X * 1e5 + 1e7)
    assert adjusted_rand_score(model.labels_, TRUTH) == 1.0
    assert model.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    plain = model.to_sklearn()
    assert (plain.predict(X * 1e5 + 1e7) == model.labels_).all()
    assert X[17].tobytes() not in pickle.dumps(plain)


def test_solvers_take_part_in_parameters_clones_and_grid_searches():
    model = KMeans(3, solver=KeyedSample(seeds=32), random_state=0)
    assert model.get_params()["solver__seeds"] == 32
    twin = clone(model.set_params(solver__seeds=16))
    assert (twin.solver.seeds, twin.fit(X).plan_.seeds) == (16, 16)
    assert repr(twin) == "KMeans(n_clusters=3, random_state=0, solver=KeyedSample(seeds=16))"
    with pytest.raises(TypeError, match="radius: KeyedSample has no such parameter"):
        model.set_params(solver__radius=2.0)
    search = GridSearchCV(KMeans(random_state=0), {"n_clusters": [1, 3], "solver": [KeyedSample(), Lloyd(radius=2.0)]})
    assert search.fit(X).best_params_["n_clusters"] == 3


def test_a_stream_may_begin_small_and_a_new_plan_is_made_for_the_records_there_are():
    model = KMeans(3, expected_records=300, random_state=0).partial_fit(X[:1])
    model.partial_fit(X[1:200]).partial_fit(X[200:], ids=np.arange(500, 600))
    assert_sound(model)
    applied = apply(model, [Delete([3]), Delete([4, 5]), Insert((X[:10],)), Replace((X[6:7],), ids=[6])])
    assert (applied.deleted, applied.inserted, applied.replaced) == (3, 10, 1)
    assert_sound(model)
    assert model.replan(expected_records=5000).evaluations == 307
    assert (model.plan_.records, model.plan_.rho) == (8192, 0.046875)
    assert_sound(model)


def test_records_of_a_declared_region_stay_with_their_solver():
    model = KMeans(3, rho=1.0, solver=Lloyd(radius=2.0), random_state=0).fit(X)
    with pytest.raises(BadPlan, match="refit from the original data"):
        model.set_params(solver="keyed_sample").replan()
    other = fitted()
    with pytest.raises(BadPlan, match=r"^solver: the stored records"):
        other.set_params(solver=Lloyd(radius=2.0)).replan()
    assert_sound(other)


def test_verify_names_a_record_that_was_altered_and_a_structure_that_was():
    model = fitted()
    model._records.batch_at(0)[0][5] += 1e-9
    assert any("sums" in one or "iterates" in one for one in model.verify().problems)
    model = fitted()
    model.transcript_.iterates[0, 5] += 1.0
    assert any("iterates" in one for one in model.verify().problems)


# --- quality ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_inertia_is_that_of_scikit_learn(seed):
    rows = make_blobs(2000, n_features=8, centers=6, random_state=0)[0]
    theirs = sklearn.cluster.KMeans(6, n_init=10, random_state=0).fit(rows).inertia_
    assert KMeans(6, rho=0.05, random_state=seed).fit(rows).inertia_ <= 1.005 * theirs


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_digits_are_found_about_as_well(seed):
    rows = load_digits().data
    theirs = sklearn.cluster.KMeans(10, n_init=10, random_state=0).fit(rows).inertia_
    assert KMeans(10, rho=0.05, random_state=seed).fit(rows).inertia_ <= 1.02 * theirs


def test_a_pickle_after_a_deletion_holds_nothing_of_who_left():
    """The seeds of a small sample are its rows: what is remembered of them must leave with them."""
    model = KMeans(3, rho=0.9).fit(X, ids=np.arange(300))
    model.insert(X[:1], ids=[300])
    gone = model.unlearn([7])
    while gone.kept:
        model.insert(X[7:8], ids=[7])
        gone = model.unlearn([7])
    assert X[7].tobytes() not in pickle.dumps(model)
    again = pickle.loads(pickle.dumps(model))
    assert again.unlearn(np.arange(100, 200)).removed == 100
    held = pickle.dumps(again)
    assert not [one for one in range(100, 200) if X[one].tobytes() in held]
    assert again.verify().ok
