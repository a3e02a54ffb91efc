"""Audits: what is wrong is found, what is right is not complained about, and nobody is named."""

import json
import os
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import expunge
from cases.in_solver import in_solver
from cases.patching import patched_everywhere, patched_method
from expunge.audit import audit
from expunge.audit.integrity import coarsely, free_pages, said
from expunge.base.errors import BadPlan, BadRecords, NotAStore
from expunge.engine.records.lookup import Lookup
from expunge.engine.transcript import Path
from expunge.models.forgetting import ForgettingModel
from expunge.solvers import DualAveraging, FrankWolfe, GradientDescent, Lloyd
from expunge.store import failpoints, make_signing_key, scan
from expunge.store.file import checksum
from expunge.store.scanning import search
from expunge.store.surroundings import beside

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 3)) / 3
Y = np.where(X[:, 0] > 0, "yes", "no")
IDS = np.array([f"person {number:03d}" for number in range(80)])
FAMILIES = np.array([f"family {number // 2:03d}" for number in range(80)])

pytestmark = [
    pytest.mark.usefixtures("rehearsed"),
    pytest.mark.filterwarnings("ignore::expunge.NoiseWarning", "ignore::expunge.SizeWarning"),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with two receipts."""
    path = tmp_path_factory.mktemp("template") / "model"
    given = {"rho": 0.5, "steps": 16, "records_per_subject": 2, "classes": ["no", "yes"]}
    expunge.LogisticRegression(**in_solver(**given)).fit(X[:70], Y[:70], IDS[:70], FAMILIES[:70]).save(path)
    with expunge.open(path) as model:
        model.unlearn("person 003")
        model.unlearn(subjects=["family 010"])
    return path


@pytest.fixture
def path(template, tmp_path):
    for ending in ("", "-key"):
        shutil.copy(beside(template, ending), beside(tmp_path / "model", ending))
    return tmp_path / "model"


def result(found, key):
    (check,) = [check for check in found.checks if check.key == key]
    return check


def problems(found):
    return {check.key for check in found.with_result("problem")}


def statuses(found):
    return [one.status for one in found.given]


# --- what is right --------------------------------------------------------------------------------------


def test_a_sound_store_passes_and_is_left_as_it_was(path):
    before = path.read_bytes()
    found = audit(path, test=(X, Y))
    assert found.ok
    assert [check.result for check in found.checks].count("passed") >= 9
    assert result(found, "public").result == "not checked"  # no schema is stored
    assert result(found, "people").result == "not checked"
    facts = found.facts
    assert (facts.file, facts.model, facts.records, facts.features) == ("model", "LogisticRegression", 67, 3)
    assert (facts.version, facts.receipts, facts.schema, facts.classes) == (2, 2, "none", ("no", "yes"))
    assert [(one.kind, one.requests, one.removed) for one in found.activity] == [("delete", 2, 3)]
    assert path.read_bytes() == before
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["ok"] is True


MODELS = {
    "binary": (lambda: expunge.LogisticRegression(rho=0.4, solver=DualAveraging(steps=8)), Y),
    "row by row": (
        lambda: expunge.LogisticRegression(rho=0.4, solver=DualAveraging(mechanism="tree", coupling="sequential")),
        np.arange(80) % 3,
    ),
    "shuffled": (
        lambda: expunge.LogisticRegression(rho=0.4, solver=DualAveraging(schedule="shuffled", batch=4)),
        np.arange(80) % 3,
    ),
    "arrival": (
        lambda: expunge.LinearSVC(rho=0.4, solver=DualAveraging(schedule="arrival", mechanism="anytime", batch=4)),
        Y,
    ),
    "without noise": (lambda: expunge.LinearSVC(rho=1.0, solver="dual_averaging"), np.arange(80) % 4),
    "frank-wolfe": (lambda: expunge.HuberRegressor(rho=0.4, solver=FrankWolfe(target_range=(-1, 1))), X[:, 1]),
    "descent": (
        lambda: expunge.LinearRegression(rho=0.4, solver=GradientDescent(target_range=(-1, 1), rate=0.4)),
        X[:, 1],
    ),
    "projected": (
        lambda: expunge.LinearRegression(rho=0.4, solver=DualAveraging(target_range=(-1, 1), n_components=2)),
        X[:, 1],
    ),
    "ridge": (lambda: expunge.Ridge(1.0), X[:, 1]),
    "k-means": (lambda: expunge.KMeans(3, rho=0.4, solver=Lloyd(radius=2.0)), None),
    "k-means from a sample": (lambda: expunge.KMeans(3, rho=0.4), None),
    "boosting": (
        lambda: expunge.GradientBoostingClassifier(rho=0.4, max_iter=3, max_leaf_nodes=4, min_samples_leaf=3),
        np.arange(80) % 3,
    ),
    "k-means in a box": (lambda: expunge.KMeans(3, rho=1.0, solver=Lloyd(low=-2, high=3)), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_can_be_audited(tmp_path, name):
    make, y = MODELS[name]
    path = tmp_path / "model"
    make().fit(X, y, ids=IDS).save(path)
    with expunge.open(path) as model:
        model.unlearn(IDS[:3])
    found = audit(path, ids=IDS[:3], rows=X[2:4], test=X if y is None else (X, y))
    assert found.ok, found.with_result("problem")
    assert statuses(found) == ["gone", "gone", "gone", "gone", "live"]
    assert result(found, "score").result == "measured"
    assert found.facts.plan
    kinds = {"ridge": "sums", "descent": "rounds", "k-means": "rounds", "k-means in a box": "rounds"}
    kinds |= {"k-means from a sample": "sums", "boosting": "sums"}
    assert found.drawing.kind == kinds.get(name, "steps")
    assert (found.noise is None) == (
        name in ("without noise", "ridge", "k-means in a box", "k-means from a sample", "boosting")
    )
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("schedule", ["scattered", "shuffled"])
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.filterwarnings("ignore:every record has been deleted")
def test_a_store_with_no_or_one_record_can_be_audited(tmp_path, left, schedule):
    path = tmp_path / "model"
    expunge.LogisticRegression(rho=0.4, solver=DualAveraging(schedule=schedule)).fit(X[:20], Y[:20], ids=IDS[:20]).save(
        path
    )
    with expunge.open(path) as model:
        model.unlearn(IDS[left:20])
    found = audit(path, ids=IDS[:2], test=(X, Y))
    assert statuses(found) == (["live", "gone"] if left else ["gone", "gone"])
    assert [one.key for one in found.with_result("problem")] == ["people"] * left  # who was named is still there
    assert result(found, "size").result == "attention"


def test_sparse_and_shortened_rows_are_looked_for_as_they_are_kept(tmp_path):
    rows = scipy.sparse.random_array((60, 8), density=0.5, rng=np.random.default_rng(1), format="csr")
    path = tmp_path / "model"
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(rows, np.arange(60) % 2).save(path)
    assert statuses(audit(path, rows=rows[:2])) == ["live", "live"]
    assert [one.found > 0 for one in audit(path, rows=rows[:2]).given] == [True, True]  # rows longer than 1, shortened
    with expunge.open(path) as model:
        model.unlearn([0])
    assert statuses(audit(path, rows=rows[:2])) == ["gone", "live"]


# --- those who are asked for -----------------------------------------------------------------------------


def test_ids_subjects_and_rows_are_told_apart_by_position_and_nobody_is_named(path):
    found = audit(path, ids=["person 003", "person 004"], subjects=["family 010", "family 011"], rows=X[[3, 4]])
    assert [one.key for one in found.with_result("problem")] == ["people"]
    assert result(found, "people").problems == (
        "The 2nd id given is still in the model: delete it with unlearn, or do not give it.",
        "The 2nd subject given is still in the model: delete it with unlearn, or do not give it.",
    )
    assert statuses(found) == ["gone", "live", "gone", "live", "gone", "live"]
    assert [(one.what, one.position, one.receipts) for one in found.given[:3]] == [
        ("id", 1, 1), ("id", 2, 0), ("subject", 1, 1),
    ]  # fmt: skip
    text = json.dumps(found.to_dict())
    assert "person 0" not in text
    assert "family 0" not in text


def test_a_name_that_is_left_in_a_file_is_a_problem(path):
    beside(path, "-new").write_bytes(b"...person 003...")
    found = audit(path, ids=["person 004", "person 003"])
    assert not found.ok
    assert problems(found) == {"people", "leftovers"}
    assert statuses(found) == ["live", "left"]
    assert found.given[1].files == ("model-new",)
    assert "2nd id given" in result(found, "people").problems[0]


def test_a_row_that_is_left_in_a_file_is_a_problem(path):
    beside(path, "-new").write_bytes(b"." + X[3].tobytes() + b".")
    found = audit(path, rows=X[3])
    assert statuses(found) == ["left"]
    assert "people" in problems(found)


def test_half_a_row_is_a_sign_of_it_only_if_no_other_has_that_half(tmp_path):
    rows = np.zeros((200, 40), dtype=np.float32)
    rows[:, :9] = np.random.default_rng(2).normal(size=(200, 9)) / 9
    rows[np.arange(200), 20 + np.arange(200) % 7] = rows[:, 33] = 0.3  # seven second halves
    names, path = np.array([f"person {number:03d}" for number in range(200)]), tmp_path / "model"
    learner = expunge.LogisticRegression(rho=0.4, solver=DualAveraging(steps=2), classes=[False, True])
    with expunge.ingest(learner, [(rows, rows[:, 0] > 0, names)], path) as model:
        model.unlearn(names[:100])
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    beside(path, "-new").write_bytes(bytes(4) + rows[5].tobytes()[-100:] + bytes(page - 204) + rows[7].tobytes()[:100])
    assert {one.pattern for one in scan(path, rows[:100]) if one.file != path} == {7, *range(5, 100, 7)}
    assert statuses(audit(path, rows=rows[5:9])) == ["gone", "gone", "left", "gone"]
    assert statuses(audit(path, rows=rows[90:110])) == ["gone"] * 10 + ["live"] * 10


def test_what_is_part_of_something_that_belongs_there_needs_attention_only(path):
    found = audit(path, ids=["person 00", "no", "2026"])
    assert [one.status for one in found.given] == ["unclear", "absent", "unclear"]
    assert result(found, "people").result == "attention"
    assert found.ok


def interrupted(path, ask, at="request: recorded"):
    """Let a process die in the middle of a request."""

    class Killed(BaseException):
        pass

    def kill(name):
        if name == at:
            raise Killed

    with expunge.open(path) as model:
        failpoints.hook = kill
        try:
            with pytest.raises(Killed):
                ask(model)
        finally:
            failpoints.hook = None


@pytest.fixture
def numbered(tmp_path):
    """A model whose ids are numbers; 17 was erased."""
    path = tmp_path / "model"
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(X, Y).save(path)
    with expunge.open(path) as model:
        model.unlearn([17])
    return path


def test_small_numbers_are_looked_for_among_all_ids(numbered):
    found = audit(numbered, ids=[17, 18])
    assert statuses(found) == ["absent", "live"]
    assert problems(found) == {"people"}
    assert statuses(audit(numbered, ids=["17", "18", "x"])) == ["absent", "live", "absent"]  # as at a prompt
    found = audit(numbered, ids=[17])
    assert result(found, "people").result == "passed"
    assert "not among the ids, subjects, index entries or waiting requests, all of which were read" in (
        result(found, "people").finding
    )
    found = audit(numbered, ids=["somebody"])
    assert statuses(found) == ["gone"]
    assert result(found, "people").result == "passed"


def test_short_names_are_looked_for_among_all_ids_and_subjects(tmp_path):
    path = tmp_path / "model"
    names = np.array([f"{number:x}" for number in range(80)])
    learner = expunge.LogisticRegression(rho=0.4, solver=DualAveraging(records_per_subject=2))
    learner.fit(X, Y, ids=names, subjects=np.array([f"{number // 2}" for number in range(80)])).save(path)
    with expunge.open(path) as model:
        model.unlearn(["a"])
        model.unlearn(subjects=["7"])
    assert statuses(audit(path, ids=["a", "b", "e"], subjects=["7", "8"])) == [
        "absent", "live", "absent", "absent", "live",
    ]  # fmt: skip
    assert statuses(audit(path, ids=[5])) == ["live"]  # a name, though it looks like a number


def test_an_id_that_the_index_does_not_know_is_found_in_the_column(numbered):
    with patched_everywhere("_is_live", lambda *what: False):
        assert statuses(audit(numbered, ids=[17, 18])) == ["absent", "live"]


def test_an_index_that_knows_more_than_the_records_is_a_problem(numbered):
    wrong = ["records: a record of place 3 is in the index, but not there"]
    with patched_method(Lookup, "audit", lambda records: wrong):
        found = audit(numbered, ids=[17])
    assert result(found, "people").result == "problem"
    assert found.given == ()


def test_a_request_that_waits_is_looked_into(numbered):
    interrupted(numbered, lambda model: model.insert(X[:1], Y[:1], ids=[300]))
    found = audit(numbered, ids=[300, 17])
    assert statuses(found) == ["waiting", "absent"]
    assert "1st id given is in a request that is recorded but not finished" in result(found, "people").problems[0]


def test_a_row_too_common_to_search_for_is_compared_with_all_records(tmp_path):
    path, rows = tmp_path / "model", np.zeros((60, 3))
    rows[:, 0] = np.arange(60) % 2
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(rows, np.arange(60) % 2).save(path)
    assert statuses(audit(path, rows=[[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]])) == ["live", "absent"]
    interrupted(path, lambda model: model.insert([[0.0, 0.5, 0.0]], [1]))
    assert statuses(audit(path, rows=[[0.0, 0.5, 0.0]])) == ["waiting"]


def test_what_is_too_short_to_look_for_in_leftovers_is_not_checked(numbered):
    beside(numbered, "-new").write_bytes(b"perhaps with 17")
    found = audit(numbered, ids=[17])
    assert statuses(found) == ["not checked"]
    assert found.given[0].files == ("model-new",)
    assert result(found, "people").result == "not checked"
    assert result(found, "leftovers").result == "problem"


def test_numbers_of_many_digits_are_searched_for(tmp_path):
    path = tmp_path / "model"
    ids = 987654321012345 + np.arange(80)
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(X, Y, ids=ids).save(path)
    with expunge.open(path) as model:
        model.unlearn(ids[:1])
    assert statuses(audit(path, ids=ids[:2])) == ["gone", "live"]
    beside(path, "-new").write_bytes(int(ids[0]).to_bytes(8, "little"))
    assert statuses(audit(path, ids=ids[:2])) == ["left", "live"]


def test_subjects_of_a_model_without_them_and_rows_of_another_width_are_refused(tmp_path):
    path = tmp_path / "model"
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(X, Y).save(path)
    with pytest.raises(BadRecords, match="fitted without subjects"):
        audit(path, subjects=["family"])
    with pytest.raises(ValueError, match="features"):
        audit(path, rows=X[:2, :2])


# --- what is wrong -----------------------------------------------------------------------------------------


def rewrite_receipt(path, number, change):
    """Alter a receipt, and mend its checksum as a forger would."""
    connection = sqlite3.connect(path)
    (text,) = connection.execute("SELECT content FROM receipts WHERE number=?", (number,)).fetchone()
    said_now = json.loads(text)
    change(said_now)
    text = json.dumps(said_now, sort_keys=True, separators=(",", ":"))
    row = text, checksum("receipts", number, text.encode()), number
    connection.execute("UPDATE receipts SET content=?, checksum=? WHERE number=?", row)
    connection.commit()
    connection.close()


def test_a_receipt_that_was_altered_is_found(path):
    rewrite_receipt(path, 1, lambda receipt: receipt.update(removed=7))
    found = audit(path)
    assert problems(found) == {"receipts"}
    assert "altered" in result(found, "receipts").problems[0]
    assert found.receipts == ()


def test_signatures_and_the_noted_head_are_checked(tmp_path):
    pytest.importorskip("cryptography")
    path, key = tmp_path / "model", tmp_path / "signing"
    make_signing_key(key)
    make_signing_key(tmp_path / "other")
    expunge.LogisticRegression(rho=0.4, solver="dual_averaging").fit(X, Y, ids=IDS).save(path)
    with expunge.open(path, sign_with=key) as model:
        model.unlearn(IDS[:1])
        head = model.export_receipts()["head"]
        model.unlearn(IDS[1:2])
    found = audit(path, public_key=f"{key}.pub", noted=head)
    assert result(found, "receipts").result == "passed"
    assert all(receipt.signed for receipt in found.receipts)
    assert problems(audit(path, public_key=f"{tmp_path / 'other'}.pub")) == {"receipts"}
    assert problems(audit(path, noted="0" * 64)) == {"receipts"}


def flip(path, table):
    """Flip a byte of what the first row of a table holds."""
    connection = sqlite3.connect(path)
    number, blob = connection.execute(f"SELECT number, content FROM {table} ORDER BY number LIMIT 1").fetchone()
    blob = bytearray(blob)
    first = next(at for at, byte in enumerate(blob) if byte)  # the checksum
    blob[first + 9] ^= 0xFF
    connection.execute(f"UPDATE {table} SET content=? WHERE number=?", (bytes(blob), number))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("table", ["sums", "answers", "iterates", "blocks", "ids", "places", "arrays"])
def test_a_flipped_byte_is_reported_and_no_traceback(path, table):
    flip(path, table)
    found = audit(path, ids=IDS[:2], rows=X[:1])
    assert not found.ok
    assert {"state", "opening"} & problems(found)
    text = json.dumps(found.to_dict())
    assert str(path.parent) not in text
    assert "person 0" not in text


@pytest.mark.parametrize("at", [0, 20, 60, 1500])
def test_a_file_that_is_damaged_so_that_it_cannot_be_opened_is_reported(path, at):
    content = bytearray(path.read_bytes())
    content[at : at + 200] = bytes(200 * [0x5A])
    path.write_bytes(content)
    found = audit(path)
    assert not found.ok
    assert found.facts.model is None or "state" in problems(found)
    assert str(path.parent) not in json.dumps(found.to_dict())


def test_what_is_no_store_is_an_error(tmp_path):
    (tmp_path / "text").write_text("hello " * 100)
    for path in (tmp_path / "text", tmp_path / "nowhere", tmp_path):
        with pytest.raises(NotAStore):
            audit(path)


def test_a_record_that_was_smuggled_in_is_found_and_not_named(path):
    with expunge.open(path) as model:
        owner, records, query = model._store, model._records, model.plan_.learner.query
        place = int(np.argmax(records.places.lengths))
        first = tuple(column[:1] for column in records.batch_at(place))
        with owner.lock, owner.file.transaction():
            transcript = owner.transcript
            alone = query.contributions(place, Path(transcript.start, transcript.iterates, place), first)
            transcript.sums.write(place, transcript.sums[place : place + 1] - alone)
    found = audit(path)
    assert "state" in problems(found)
    assert "added from outside" in " ".join(result(found, "state").problems)
    assert "person" not in " ".join(result(found, "state").problems)


def test_a_request_that_waits_is_reported_and_left_alone(path):
    interrupted(path, lambda model: model.unlearn("person 005"))
    found = audit(path)
    assert problems(found) == {"leftovers"}
    assert "interrupted" in result(found, "leftovers").problems[-1]
    assert found.facts.records == 67
    with expunge.open(path) as model:
        assert model.n_records_ == 66
    assert audit(path).ok


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_permissions_and_the_key_are_checked(path):
    path.chmod(0o644)
    found = audit(path)
    assert found.ok
    assert result(found, "access").result == "attention"
    path.chmod(0o622)
    assert problems(audit(path)) == {"access"}
    path.chmod(0o600)
    beside(path, "-key").chmod(0o644)
    assert problems(audit(path)) == {"access"}
    beside(path, "-key").unlink()
    found = audit(path)
    assert problems(found) == {"access"}
    assert str(path.parent) not in json.dumps(found.to_dict())


def test_free_pages_that_are_not_blank_are_found(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA secure_delete=OFF")
    connection.execute("CREATE TABLE t (x BLOB)")
    connection.execute("INSERT INTO t VALUES (?)", (b"secret " * 3000,))
    connection.commit()
    connection.execute("DROP TABLE t")
    connection.commit()
    connection.close()
    count, dirty = free_pages(path.read_bytes())
    assert 0 < dirty <= count
    found = audit(path)
    assert problems(found) == {"free pages"}


def test_noise_of_another_size_is_a_problem(path, monkeypatch):
    verify = ForgettingModel.verify
    monkeypatch.setattr(ForgettingModel, "verify", lambda model, **more: replace(verify(model), noise_p_value=1e-9))
    assert problems(audit(path)) == {"noise"}


def test_a_difference_or_a_mistake_that_is_not_noticed_is_a_problem(path, rehearsed):
    fine = rehearsed[0]
    rehearsed[0] = replace(fine, p_value=1e-8)
    assert problems(audit(path)) == {"exactness"}
    rehearsed[0] = replace(fine, control_p_value=0.2)
    assert problems(audit(path)) == {"control"}
    rehearsed[0] = replace(fine, p_value=None, equal=99, control_p_value=None, control_equal=1)
    assert problems(audit(path)) == {"exactness", "control"}


def test_the_limit_stands_beside_p_and_chance_is_explained(path, rehearsed):
    finding = result(audit(path), "exactness").finding
    assert "p = 0.7 (below 0.0001 is a problem): no difference" in finding
    assert "fresh" in finding
    assert "p = 1e-30 (it must be below 1e-06)" in result(audit(path), "control").finding
    assert "a given seed; they are not fresh" in result(audit(path, seed=7), "exactness").finding
    rehearsed[0] = replace(rehearsed[0], p_value=2e-5)
    assert "in one audit of 10,000: audit again, once" in result(audit(path), "exactness").finding


def test_each_audit_draws_coins_of_its_own(path):
    seeds = []

    def note(plan, *, seed, **more):
        seeds.append(seed)
        raise ValueError

    with patched_everywhere("expunge.audit.auditor.rehearse", note):
        found = [audit(path), audit(path), audit(path, seed=7)]
    assert [one.seed for one in found] == seeds
    assert [one.fresh for one in found] == [True, True, False]
    assert len(set(seeds)) == 3
    assert seeds[2] == 7
    assert all(0 <= seed < 2**53 for seed in seeds)  # which JSON holds exactly


def test_a_plan_with_too_little_noise_is_a_problem(path):
    with patched_everywhere("worst_case_rho", lambda *what, **more: 0.9):
        assert problems(audit(path)) == {"accounting"}


def test_what_another_machine_rounds_differently_needs_attention_only(path, monkeypatch):
    verify = ForgettingModel.verify

    def elsewhere(model, tolerance=0.0):
        found = verify(model)
        return found if tolerance else replace(found, problems=("sums: row 3 is not what the records contribute",))

    monkeypatch.setattr(ForgettingModel, "verify", elsewhere)
    found = audit(path)
    assert found.ok
    assert result(found, "state").result == "attention"


@pytest.mark.parametrize(("confirmed", "wanted"), [(True, "passed"), (False, "attention")])
def test_a_schema_must_be_confirmed(path, monkeypatch, confirmed, wanted):
    class Schema:
        pass

    schema = Schema()
    schema.confirmed = confirmed
    monkeypatch.setattr(expunge.LogisticRegression, "schema_", schema, raising=False)
    found = audit(path)
    assert result(found, "public").result == wanted
    assert ("The operator has confirmed" in result(found, "public").finding) == confirmed
    assert ("this was not checked" in result(found, "public").finding) == confirmed
    assert found.facts.schema == ("confirmed" if confirmed else "not confirmed")


# --- what is asked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [({"runs": 5}, "runs=5"), ({"runs": 1.5}, "runs=1.5"), ({"seed": -1}, "seed=-1"), ({"noted": "x"}, "noted")],
    ids=str,
)
def test_bad_choices_are_refused_before_any_work(path, given, match):
    with pytest.raises(BadPlan, match=match):
        audit(path, **given)


@pytest.mark.parametrize("test", [(X, None), (X, Y[:3])], ids=["no answers", "few answers"])
def test_bad_test_records_are_refused(path, test):
    with pytest.raises(BadRecords, match="test:"):
        audit(path, test=test)


def test_scores(path, tmp_path):
    found = audit(path, test=(X, np.where(np.arange(80) < 5, "perhaps", Y))).score
    assert found.labels == ("no", "yes", "another class")
    assert sum(map(sum, found.counts)) == 80
    assert sum(found.counts[2]) == 5
    with expunge.open(path, read_only=True) as model:
        right = float((model.predict(X)[5:] == Y[5:]).sum()) / 80
    assert dict(found.values)["accuracy"] == pytest.approx(right, abs=1e-4)
    expunge.Ridge(0.0).fit(X, 3 * X[:, 1], ids=IDS).save(tmp_path / "ridge")
    score = audit(tmp_path / "ridge", test=(X, 3 * X[:, 1])).score
    assert dict(score.values)["R²"] == pytest.approx(1.0)
    assert sum(score.shares) == pytest.approx(1.0, abs=0.02)


def test_p_values_and_histograms_are_coarse_and_names_are_taken_out_of_problems(path):
    assert [coarsely(p) for p in (1.0, 0.5, 0.09999, 1e-3, 0.0)] == [0.9, 0.5, 0.09, 1e-3, 0.0]
    line = "sums: row 3; record 'it''s\n me' was added from outside"
    assert said(line, path) == "sums: row 3; one of the records there was added from outside"
    assert said("records: 'ann' lies at place 3, which", path) == "records: one lies at place 3, which"
    noise = audit(path).noise
    assert noise.p_value == coarsely(noise.p_value)
    with expunge.open(path) as model:
        size = model.transcript_.sums.size
    assert noise.numbers == size
    assert noise.heights == ()  # too few to draw


def test_auditing_waits_for_nobody_and_finishes_while_others_have_the_model_open(path):
    with expunge.open(path) as model:
        assert audit(path, ids=["person 003"]).ok
        model.unlearn("person 004")
    assert audit(path).facts.records == 66


def test_who_comes_while_bytes_are_searched_has_left_none(path):
    def search_late(where, patterns, show):
        with expunge.open(path) as model:
            model.insert(X[3:4], Y[3:4], ids=["person 003"], subjects=["family 001"])
        return search(where, patterns, show)

    with patched_everywhere("expunge.store.scanning.search", search_late):
        found = audit(path, ids=["person 003"])
    assert statuses(found) == ["live"]
    assert "bytes are in" not in str(result(found, "people").problems)
