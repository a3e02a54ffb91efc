"""Ctrl-C at any line of a request: it is refused or done, never half, never twice, and with its own coins."""

from pathlib import Path

import numpy as np
import pytest

import expunge
from cases.keys import keys_from
from cases.toys import interrupted
from expunge.base.intake import Delete, Insert
from expunge.solvers import DualAveraging
from expunge.store import scan

LINES = 60
rng = np.random.default_rng(7)
X = rng.normal(size=(130, 3)) / 3
Y = X[:, 0] > 0
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def request_of(kind):
    return Delete(np.arange(3, 9)) if kind == "delete" else Insert((X[120:], Y[120:]))


def serve(path, kind, line=10**9):
    """Serve one request, interrupted at a line; return whether it was finished before, and the state afterwards."""
    with expunge.open(path) as model:
        prepared = model.prepare_request(request_of(kind))
        with keys_from(np.random.default_rng(21)):
            finished = interrupted(lambda: model.serve_request(prepared), line)
        if not finished and not model.has_begun(prepared):
            with keys_from(np.random.default_rng(21)):
                model.serve_request(prepared)
        assert model.verify().ok
        receipts = model.export_receipts()["receipts"]
        assert [one["version"] for one in receipts] == [1]
        assert model.verify_receipts().ok
        return finished, model.n_records_, model.transcript_.answers.copy(), model.coef_.copy()


@pytest.mark.parametrize(("kind", "rho"), [("delete", 1.0), ("delete", 0.3), ("insert", 1.0)])
def test_ctrl_c_at_any_line(kind, rho, tmp_path):
    saved = tmp_path / "saved"
    expunge.LogisticRegression(rho=rho, solver=DualAveraging(steps=4)).fit(X[:120], Y[:120]).save(saved)

    def copy(name):
        for ending in ("", "-key"):
            Path(f"{tmp_path / name}{ending}").write_bytes(Path(f"{saved}{ending}").read_bytes())
        (tmp_path / f"{name}-key").chmod(0o600)
        return tmp_path / name

    finished, number, answers, coefficients = serve(copy("whole"), kind)
    assert finished
    cut = 0
    for line in np.random.default_rng(1).integers(1200, size=LINES).tolist():
        path = copy("cut")
        finished, there, now, model = serve(path, kind, line)
        cut += not finished
        assert there == number, line
        np.testing.assert_array_equal(now, answers, err_msg=str(line))
        np.testing.assert_array_equal(model, coefficients)
        if kind == "delete":
            assert scan(path, X[3:9]) == []
        for file in tmp_path.glob("cut*"):
            file.unlink()
    assert cut > LINES // 3
