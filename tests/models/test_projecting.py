"""Models on random projections: what is kept of rows, which norms hold where, new plans, files."""

import numpy as np
import pytest
from scipy import sparse

import expunge
from cases import opened, stored
from cases.in_solver import in_solver
from expunge.audit.forecast.forecasting import forecast
from expunge.base.errors import BadPlan
from expunge.base.norms import shortened
from expunge.models.preprocessing import bound_rows
from expunge.models.projecting import EarlierProjection
from expunge.solvers import DualAveraging
from expunge.solvers.projection import Projection, stretch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(4)
X = RNG.normal(size=(64, 40)) * RNG.choice([0.0, 1.0], size=(64, 40)) * np.exp(RNG.uniform(-3, 1, size=(64, 1)))
Y = np.arange(64) % 2


def fitted(rows=X, **given):
    return expunge.LogisticRegression(**in_solver(**{"rho": 0.5, "steps": 8, "n_components": 5, **given})).fit(
        rows, Y[: rows.shape[0]]
    )


def kept(model):
    """Rows as they are kept, by id."""
    records = model._records
    found = {}
    for place in range(len(records.places.lengths)):
        found |= dict(zip(records.ids_at(place).tolist(), records.batch_at(place)[0], strict=True))
    return {name: row.tobytes() for name, row in found.items()}


def only(name, model):
    return kept(model)[name]


# --- what is kept of a row ------------------------------------------------------------------------------


def test_what_is_kept_of_a_row_depends_on_it_and_the_key_alone():
    """Not on whom it came with, nor on how they lay in memory: a survivor must not tell who was there."""
    seen = [kept(fitted(rows, random_state=3)) for rows in (X, np.asfortranarray(X), sparse.csr_array(X))]
    assert seen[0] == seen[1] == seen[2]
    few = fitted(random_state=3)
    few.unlearn(range(8, 64))
    few.insert(X[8:9], Y[8:9], [8])
    few.insert(sparse.csc_array(X[9:30]), Y[9:30], range(9, 30))
    assert kept(few) == {name: row for name, row in seen[0].items() if name < 30}
    few.replace(X[40:41], Y[40:41], [8])
    assert only(8, few) == seen[0][40]


def test_a_file_projects_as_the_model_did_that_was_saved(tmp_path):
    model = fitted()
    rows = kept(model)
    model.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as opened_model:
        assert opened_model._projection == model._projection
        assert np.array_equal(opened_model.coef_, model.coef_)
        assert kept(opened_model) == rows
        opened_model.insert(X[7:9], Y[7:9], [100, 101])
        assert only(100, opened_model) == rows[7]
        assert only(101, opened_model) == rows[8]
        opened_model.insert(sparse.csr_array(X[9:10]), Y[9:10], [102])
        assert only(102, opened_model) == rows[9]
        assert opened_model.verify().ok
        opened_model.save(tmp_path / "copy")
    with expunge.open(tmp_path / "copy") as copied:
        assert only(101, copied) == rows[8]


def test_what_is_ingested_is_projected_likewise(tmp_path):
    for name, blocks in (("dense", [X[:30], X[30:]]), ("sparse", [sparse.csr_array(X[:9]), sparse.csr_array(X[9:])])):
        ends = np.cumsum([block.shape[0] for block in blocks])
        source = [(block, Y[end - block.shape[0] : end]) for block, end in zip(blocks, ends, strict=True)]
        wanted = expunge.LogisticRegression(
            rho=0.5, solver=DualAveraging(steps=8, n_components=5), classes=[0, 1], expected_records=64
        )
        with expunge.ingest(wanted, source, tmp_path / name) as model:
            projected = model._projection.apply(X)
            limit = model.plan_.feature_norm
            assert kept(model) == {row: shortened(projected[[row]], limit).tobytes() for row in range(64)}


def test_the_file_holds_the_key_and_not_the_matrix():
    wide = sparse.random_array((64, 16_384), density=0.01, format="csr", rng=RNG)
    assert len(fitted(wide, n_components=60)._packed_projection()) < 300


def test_each_fit_draws_another_key_and_a_seed_the_same():
    one, other = fitted(), fitted()
    assert one._projection.key != other._projection.key
    assert one.fit(X, Y)._projection.key != other._projection.key
    assert fitted(random_state=1)._projection == fitted(random_state=1)._projection
    assert fitted(random_state=1)._projection != fitted(random_state=2)._projection


# --- norms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1.0, 2.5])
def test_rows_are_shortened_before_and_after_they_are_projected(norm):
    model = fitted(feature_norm=norm, n_components=30, rho=0.3)
    plan = model.plan_
    assert plan.feature_norm == norm * stretch(30, 64, 0.3) < 2.0 * norm
    assert plan.bound == pytest.approx(np.hypot(plan.feature_norm, 0.2 * norm))
    rows = np.array([np.frombuffer(row) for _, row in sorted(kept(model).items())])
    assert np.linalg.norm(rows, axis=1).max() <= plan.feature_norm * (1 + 1e-12)
    phi = model._projection.back(np.eye(30))
    np.testing.assert_allclose(rows, bound_rows(bound_rows(X, norm) @ phi.T, plan.feature_norm), atol=1e-12)
    assert model.replay_probability(range(64)).max() <= 0.3 + 1e-9


def test_hardly_a_row_is_shortened_because_it_was_projected():
    """At the norm itself, as in earlier versions, it was nearly half of those that have it."""
    rows = RNG.normal(size=(2000, 300))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    model = expunge.LogisticRegression(rho=0.1, solver=DualAveraging(n_components=60)).fit(rows, np.arange(2000) % 2)
    lengths = np.linalg.norm(model._encode_rows(rows), axis=1)
    assert np.mean(lengths > 1.0) > 0.4
    assert np.mean(lengths > model.plan_.feature_norm) == 0.0


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_array])
def test_rows_to_predict_are_shortened_to_the_norm_of_rows_as_they_come(made):
    model = fitted(feature_norm=0.5)
    assert model.plan_.feature_norm > 0.5
    scores = bound_rows(X, 0.5) @ model.coef_[0] + model.intercept_
    np.testing.assert_allclose(model.decision_function(made(X)), scores, atol=1e-12)
    np.testing.assert_allclose(model.to_sklearn().decision_function(made(X)), scores, atol=1e-12)
    model.set_params(solver__feature_norm=3.0)  # which has no effect before a new fit
    with pytest.warns(UserWarning, match="solver: set after the fit"):
        np.testing.assert_allclose(model.decision_function(made(X)), scores, atol=1e-12)


def test_scores_of_records_that_were_not_shortened_are_those_of_their_projections():
    model = fitted(feature_norm=60.0)
    weights, intercept = model.plan_.coefficients(model.transcript_.model(model.plan_.learner))
    np.testing.assert_allclose(model.decision_function(X), (model._encode_rows(X) @ weights.T + intercept)[:, 0])


def test_units_do_not_matter():
    one, other = (fitted(times * X, feature_norm=times, random_state=5, rho=1.0) for times in (1.0, 1024.0))
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(1024.0 * X), rtol=1e-9)


def test_a_forecast_is_of_rows_as_they_come():
    plan = fitted(feature_norm=3.0, rho=0.3).plan_
    assert plan.bounded(np.ones((1, 1))).item() == pytest.approx(3.0)
    wanted = expunge.LogisticRegression(solver=DualAveraging(n_components=5), rho=0.3, classes=[0, 1])
    assert forecast(wanted, 200, 40, seconds=0.1).plan.projected


# --- new plans ------------------------------------------------------------------------------------------


def test_a_new_plan_keeps_rows_as_they_are():
    """The stretch is that of the first fit: what was shortened cannot be made longer."""
    model = fitted(n_components=30, rho=0.3)
    before, rows = model.plan_, kept(model)
    model.set_params(rho=0.9).replan(expected_records=200)
    assert stretch(30, 256, 0.9) != stretch(30, 64, 0.3)
    assert model.plan_.feature_norm == before.feature_norm
    assert model.plan_.records == 256
    assert kept(model) == rows
    assert model.verify().ok
    fresh = fitted(n_components=30, rho=0.9, expected_records=200)
    assert fresh.plan_.feature_norm == stretch(30, 256, 0.9)
    model.fit(X, Y)  # a fit is a new one in all
    assert model.plan_.feature_norm == stretch(30, 64, 0.9)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (5, {"feature_norm": 2.0}, r"feature_norm: the stored records were encoded with 1\.0"),
        (5, {"n_components": 6}, "n_components: the stored records were encoded with 5"),
        (40, {"n_components": None}, "n_components: the stored records were encoded with 40"),
        (None, {"n_components": 40}, "n_components: the stored records were encoded with None"),
    ],
)
def test_a_new_plan_cannot_change_how_rows_were_projected(before, after, words):
    model = fitted(n_components=before).set_params(**{f"solver__{name}": value for name, value in after.items()})
    with pytest.raises(BadPlan, match=words):
        model.replan()


@pytest.mark.parametrize("components", [41, 0, -1, 2.0, "few", True])
def test_more_components_than_columns_are_refused_by_name(components):
    with pytest.raises(BadPlan, match=rf"n_components={components!r}: give None, 'auto', or .* from 1 to 40"):
        fitted(n_components=components)


# --- files of earlier versions --------------------------------------------------------------------------


@pytest.fixture
def earlier(tmp_path):
    """A store with a sparse matrix, as earlier versions wrote it."""
    folder = stored.unpack("svc projected", tmp_path / "unpacked")
    return opened.copy_store(folder / "idle", tmp_path / "store")


def test_a_model_of_an_earlier_version_keeps_its_matrix_and_its_norm(earlier, tmp_path):
    case = stored.MODELS["svc projected"]
    with stored.open_model(case, earlier) as model:
        projection = model._projection
        assert isinstance(projection, EarlierProjection)
        assert projection.norm == model.plan_.feature_norm == 1.0
        assert (projection.components, projection.features) == (4, 9)
        rows = np.random.default_rng(0).normal(size=(3, 9))
        np.testing.assert_array_equal(model._encode_rows(rows), bound_rows(rows, 1.0) @ projection.matrix.T)
        model.replan()
        assert model.plan_.feature_norm == 1.0
        model.save(tmp_path / "copy")
        coef = model.coef_.copy()
    for path in (earlier, tmp_path / "copy"):
        with expunge.open(path) as model:
            assert isinstance(model._projection, EarlierProjection)
            assert np.array_equal(model.coef_, coef)
            assert model.verify().ok


def test_a_new_model_has_signs():
    assert isinstance(fitted()._projection, Projection)
    assert fitted(n_components=None)._projection is None
