"""Models in notebooks: they can be displayed, completed and looked into, in whatever state they are."""

import copy
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import clone

import expunge
from expunge.base.errors import BadRecords, ExpungeError, NotAvailable, StoreError
from models.showcase import KINDS, NAMED, X, Y, models

PROPERTIES = ("ids_", "subjects_", "n_records_", "transcript_")
CLUSTERS = ("cluster_centers_", "labels_", "inertia_")
OWN = {"ridge": ("coef_", "intercept_", "rank_"), "kmeans": CLUSTERS, "noisy kmeans": CLUSTERS}


def properties_of(kind):
    return (*PROPERTIES, *OWN.get(kind, ("coef_", "intercept_")))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "IPYTHONDIR": str(folder), "NO_COLOR": "1"}
    script = Path(__file__).with_name("notebook.py")
    done = subprocess.run(
        [sys.executable, script, folder], env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ipython_displays_completes_and_explains_every_model(session):
    assert len(session) == len(KINDS) * (1 + 4 * len(NAMED))
    for name, seen in session.items():
        assert set(seen["shown"]) == {"text/plain", "text/html"}, (name, seen["printed"])
        assert seen["explained"], name
        assert "Traceback" not in seen["printed"], (name, seen["printed"])
        assert "deleted exactly" in seen["printed"], name
        assert {"fit", "unlearn", "insert", "rho" if "ridge" not in name else "alpha"} <= set(seen["completed"]), name
        assert set(properties_of(name.partition(",")[0])) <= set(seen["completed"]), name


def test_what_is_displayed_names_nobody(session):
    """A notebook is saved with all that it shows."""
    for name, seen in session.items():
        page = seen["shown"]["text/html"] + seen["shown"]["text/plain"]
        assert "person-" not in page, name
        fitted = "not fitted" not in name and "closed" not in name
        assert ("60</td>" in page) == fitted, name  # n_records_


def test_all_that_python_asks_of_an_object_works_in_every_state(tmp_path):
    for name, model in models(tmp_path):
        assert repr(model).startswith(type(model).__name__), name
        assert ("ids_" in dir(model)) == ("not fitted" not in name), name
        assert not [one for one in dir(model) if one.isupper()], name  # a class's own constants
        members = dict(inspect.getmembers(model))
        assert callable(members["unlearn"]), name
        assert clone(model).get_params() == model.get_params(), name
        for one in properties_of(name.partition(",")[0]):
            there = hasattr(model, one)
            assert there == (
                not {"closed", "not fitted"} & set(name.split(", ")) and (one != "subjects_" or "subjects" in name)
            ), (name, one)
        if "in memory" in name:
            assert copy.copy(model).n_records_ == 60


@pytest.mark.parametrize("kind", KINDS)
def test_dir_reads_nothing(kind):
    """Neither ids by the million, nor a file that somebody else is writing to."""
    make, given = KINDS[kind]
    model = make(**given).fit(X, Y)
    del model._owner.records, model._owner.transcript
    assert {"ids_", "subjects_", "transcript_"} <= set(dir(model))


def test_what_is_not_there_says_why_as_before(tmp_path):
    for name, model in models(tmp_path):
        if ", ids, " in name:
            where = "closed" if name.endswith("closed") else "fitted without subjects"
            with pytest.raises(NotAvailable, match=where) as caught:
                model.subjects_  # noqa: B018
            assert isinstance(caught.value, ExpungeError), name
            assert isinstance(caught.value, AttributeError), name
            assert isinstance(caught.value.__cause__, StoreError if where == "closed" else BadRecords), name
        elif name.endswith("not fitted"):
            assert not hasattr(model, "coef_"), name


def test_a_closed_model_still_refuses_requests_as_a_store(tmp_path):
    expunge.Ridge().fit([[0.0], [1.0]], [0.0, 1.0]).save(tmp_path / "model")
    model = expunge.open(tmp_path / "model")
    model.close()
    for ask in (lambda: model.unlearn([0]), lambda: model.predict([[0.0]]), model.verify):
        with pytest.raises(StoreError, match="was closed"):
            ask()
