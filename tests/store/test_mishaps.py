"""What may happen around a store: others that die, links, files that are put in its place, settings that change."""

import os
import sqlite3
import threading
import warnings

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.errors import BadPlan, CorruptStore, FullStore, NotAStore, SeedWarning, StoreError
from expunge.store import failpoints, scan
from expunge.store.file import beside
from expunge.store.keeper import DurableKeeper
from expunge.store.keys import make_key

rng = np.random.default_rng(12)
N = 120
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5).fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_copy_that_another_process_left_when_it_died_is_gone_when_a_deletion_is_acknowledged(path):
    with expunge.open(path) as model:
        model._keeper.file.copy_to(beside(path, "-new"))  # as by a process that dies in compact
        model.unlearn([5])
        assert scan(path, [X[5]]) == []
        assert len(scan(path, [X[6]])) == 1
