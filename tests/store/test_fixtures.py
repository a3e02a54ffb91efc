"""Stores that earlier versions have written: they open, and a request that waits in them ends as it would have then.

`tests/cases/write_stores.py` has written them, and digests of every row of every table once the request was done. The
order in which random numbers are drawn is part of the format.

What the digests depend on beside the library: on what NumPy's generators make of their bits where records are laid out,
and hardly on how a machine rounds. Features and targets are small multiples of a power of two, most losses have no exp
or log, contributions that meet noise (or are of gradient descent, or k-means) lie on a grid, and problems are so small
that no BLAS uses threads. What is left: the quantiles of the normal law (scipy's ndtri), the exp of logistic losses and
scores (sums of a few products) may have another last digit elsewhere; it shows only where it decides on which side of
an edge of the grid, or of a kink of a hinge, a number lies. The ball's norms, and merged centres of k-means, are not on
a grid. Ridge's coefficients are LAPACK's, and compared to nine digits. With OpenBLAS's kernels for Prescott, Nehalem,
Haswell, Zen and SkylakeX, one thread or two, and without NumPy's AVX2 and AVX-512, digests were the same.
"""

import hashlib
import json
from functools import cache

import pytest

import expunge
import expunge.federated as federated
from cases import opened, stored

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DIGESTS = json.loads(stored.DIGESTS.read_text())
MODELS = [(name, waiting) for name in stored.MODELS for waiting in DIGESTS[name]["waiting"]]
FEDERATIONS = [(name, waiting) for name in stored.FEDERATIONS for waiting in DIGESTS[name]["waiting"]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The files of a case, by its name; not to be opened, but copied."""
    return cache(lambda name: stored.unpack(name, tmp_path_factory.mktemp("unpacked")))


@pytest.fixture
def taken(unpacked, tmp_path):
    """Copies one store of a case, for this test alone."""

    def take(name, state, to="store"):
        folder = unpacked(name)
        if (pem := folder / stored.SIGNING).exists():
            (tmp_path / stored.SIGNING).write_bytes(pem.read_bytes())
            (tmp_path / stored.SIGNING).chmod(0o600)
        return opened.copy_store(folder / state, tmp_path / to)

    return take


def differences(found, expected):
    """Which rows of which tables are other than they were."""
    return [
        f"{table}, row {number}"
        for table in sorted({*found, *expected})
        for ours, theirs in [[one.get(table, {"rows": {}})["rows"] for one in (found, expected)]]
        for number in sorted({*ours, *theirs}, key=int)
        if ours.get(number) != theirs.get(number)
    ]


def check_tables(found, expected):
    assert differences(found, expected) == []
    assert found == expected


# --- models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stored.MODELS)
def test_a_store_of_an_earlier_version_opens_unchanged_and_shows_the_same_model(name, taken):
    case, path = stored.MODELS[name], taken(name, "idle")
    before = stored.rows_of(path)
    with stored.open_model(case, path) as model:
        assert type(model).__name__ == case.model
        assert stored.answers_of(case, model) == DIGESTS[name]["idle"]["answers"]
        assert model.verify(tolerance=case.tolerance).ok
        assert model.verify_receipts().ok
    assert stored.rows_of(path) == before


def test_k_means_of_an_earlier_version_opens_with_its_solver(taken):
    with stored.open_model(stored.MODELS["kmeans sequential"], taken("kmeans sequential", "idle")) as model:
        assert repr(model.solver) == "Lloyd(radius=1.0, n_rounds=4, coupling='sequential')"
        assert model.get_params(deep=False).keys() == expunge.KMeans().get_params(deep=False).keys()


@pytest.mark.parametrize(("name", "waiting"), MODELS)
def test_a_request_begun_by_an_earlier_version_ends_with_the_same_bits(name, waiting, taken):
    case, told = stored.MODELS[name], DIGESTS[name]["waiting"][waiting]
    waits, path = opened.recorded(taken(name, waiting, "looked at")), taken(name, waiting)
    with stored.open_model(case, path) as model:
        assert stored.answers_of(case, model) == told["answers"]
        assert model.verify(tolerance=case.tolerance).ok
        assert model.verify_receipts().ok
        last = model.export_receipts()["receipts"][-1]
        assert (last["request"], last["day"]) == (waits.number, waits.day)
        assert (last["signature"] is not None) == case.signed
    check_tables(stored.tables_of(path, rounded=case.rounded), told["tables"])
    assert opened.recorded(path) is None


@pytest.mark.parametrize(("name", "waiting"), MODELS)
def test_the_same_request_with_the_same_key_ends_with_the_same_bits_in_the_idle_store(name, waiting, taken):
    case, told = stored.MODELS[name], DIGESTS[name]["waiting"][waiting]
    waits, path = opened.recorded(taken(name, waiting, "looked at")), taken(name, "idle")
    request = stored.requests_of(case, DIGESTS[name]["features"])[told["asked"]]
    with stored.open_model(case, path) as model:
        prepared = model.prepare_request(request)
        with opened.drawing(*waits):
            assert model.serve_request(prepared).kept == told["kept"]
        assert stored.answers_of(case, model) == told["answers"]
    check_tables(stored.tables_of(path, rounded=case.rounded), told["tables"])


def changed_tables(path, expected, key):
    """In which tables a deletion ends otherwise if another key is recorded with it."""
    opened.change_key(path, key)
    expunge.open(path).close()
    return {row.partition(",")[0] for row in differences(stored.tables_of(path), expected)}


@pytest.mark.parametrize("name", ["scattered sqrt joint", "shuffled tree sequential", "everyone half adaptive"])
def test_a_request_with_another_key_ends_with_other_bits(name, taken):
    expected = DIGESTS[name]["waiting"]["delete, replayed"]["tables"]
    key = hashlib.sha256(b"another key").digest()
    changed = changed_tables(taken(name, "delete, replayed"), expected, key)
    assert "answers" in changed
    assert "receipts" not in changed  # they do not tell how it went
    same = opened.recorded(taken(name, "delete, replayed", "looked at")).key
    assert changed_tables(taken(name, "delete, replayed"), expected, same) == set()


NOTICED = {
    "layout": ["scattered sqrt joint", "shuffled sqrt joint", "sparse shuffled", "subjects shuffled"],
    "coins": ["scattered sqrt joint", "shuffled tree sequential", "everyone half adaptive", "kmeans sequential"],
    "noise": ["everyone adaptive", "shuffled sqrt joint", "arrival tree sequential", "kmeans adaptive"],
}
"""By which fixtures, among others, it is noticed if one number more is drawn from a stream."""


@pytest.mark.parametrize(("stream", "name"), [(stream, name) for stream, names in NOTICED.items() for name in names])
def test_one_number_more_that_is_drawn_is_noticed(stream, name, taken):
    noticed = []
    for waiting, told in DIGESTS[name]["waiting"].items():
        path = taken(name, waiting, waiting)
        with opened.wasting_one(stream):
            stored.open_model(stored.MODELS[name], path).close()
        if differences(stored.tables_of(path), told["tables"]):
            noticed.append(waiting)
    assert noticed


def test_the_fixtures_have_every_model_schedule_mechanism_and_coupling_kept_and_replayed(unpacked):
    seen, models = set(), set()
    for name, case in stored.MODELS.items():
        models.add(case.model)
        with expunge.open(unpacked(name) / "idle", read_only=True) as model:
            plan = model.plan_
        if not hasattr(plan, "schedule"):
            continue
        for told in DIGESTS[name]["waiting"].values():
            for part in (plan.schedule, plan.mechanism, plan.coupling, plan.solver, type(plan.loss).__name__):
                seen.add((part, told["kept"], plan.sigma > 0.0))
    assert models == {"HuberRegressor", "KMeans", "LinearRegression", "LinearSVC", "LogisticRegression", "Ridge"}
    both = {part for part, kept, noisy in seen if noisy and (part, not kept, noisy) in seen}
    assert both == {
        "scattered", "shuffled", "arrival", "everyone", "sqrt", "tree", "anytime", "halving", "identity", "joint",
        "sequential", "adaptive", "dual_averaging", "frank_wolfe", "gradient_descent", "Logistic", "Multinomial",
        "Hinge", "MulticlassHinge", "SmoothedHinge", "Weighted", "Squared", "Huber",
    }  # fmt: skip
    assert {part for part, _, noisy in seen if not noisy} >= {"scattered", "shuffled", "arrival", "everyone"}


# --- federations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stored.FEDERATIONS)
@pytest.mark.parametrize("state", sorted(set(stored.ASKED.values())))
def test_a_federation_of_an_earlier_version_opens_unchanged(name, state, taken):
    path = taken(name, state)
    before = stored.rows_of(path)
    with federated.open(path) as federation:
        assert federation.verify().ok
        assert federation.verify_receipts().ok
    assert stored.rows_of(path) == before


@pytest.mark.parametrize(("name", "waiting"), FEDERATIONS)
def test_what_a_federation_of_an_earlier_version_had_begun_ends_with_the_same_bits(name, waiting, taken):
    told, path = DIGESTS[name]["waiting"][waiting], taken(name, waiting)
    federated.open(path).close()
    check_tables(stored.tables_of(path, nameless=True), told["tables"])
    with federated.open(path) as federation:
        assert federation.verify().ok
        assert federation.verify_receipts().ok
        assert stored.answers_of_federation(federation) == told["answers"]
    assert opened.recorded(path) is None


@pytest.mark.parametrize(("name", "waiting"), FEDERATIONS)
def test_the_same_with_the_same_key_ends_with_the_same_bits_in_an_idle_federation(name, waiting, taken):
    told = DIGESTS[name]["waiting"][waiting]
    waits, path = opened.recorded(taken(name, waiting, "looked at")), taken(name, told["from"])
    with federated.open(path) as federation, opened.drawing(waits.key, day=waits.day):
        assert getattr(stored.ask_federation(federation, told["asked"]), "kept", None) == told["kept"]
    check_tables(stored.tables_of(path, nameless=True), told["tables"])
