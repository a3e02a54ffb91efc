"""An audit of a model whose rounds are draws, and which is solved from a finish."""

import numpy as np
import pytest

import expunge
from expunge.audit import audit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(800, 3)) * [1.0, 1e4, 1e-3]
Y = np.where(X[:, 0] + RNG.logistic(size=800) > 0.0, "yes", "no")


REGRESSIONS = {
    "a learned scale": (expunge.HuberRegressor, 1e4 * X[:, 0] + RNG.standard_t(2, size=800)),
    "counts": (expunge.PoissonRegressor, RNG.poisson(np.exp(X[:, 0])).astype(float)),
}


@pytest.mark.long
@pytest.mark.parametrize("case", REGRESSIONS)
def test_an_audit_of_a_regression_finds_no_problem(case, tmp_path):
    path, (kind, y) = tmp_path / "m.expunge", REGRESSIONS[case]
    kind(solver="newton", rho=0.2).fit(X, y, ids=np.arange(800)).save(path)
    with expunge.open(path) as model:
        model.unlearn([3])
    found = audit(path, ids=[3], rows=X[3:4], test=(X, y), runs=300, seed=1)
    results = {check.key: check.result for check in found.checks}
    assert "problem" not in results.values(), [check for check in found.checks if check.result == "problem"]
    assert results["noise"] == "passed"


@pytest.mark.parametrize(("rho", "noise"), [(0.2, "passed"), pytest.param(1.0, "not checked", marks=pytest.mark.long)])
def test_an_audit_finds_no_problem(rho, noise, tmp_path):
    path = tmp_path / "m.expunge"
    expunge.LogisticRegression(solver="newton", rho=rho).fit(X, Y, ids=np.arange(800)).save(path)
    with expunge.open(path) as model:
        model.unlearn([3])
    found = audit(path, ids=[3], rows=X[3:4], test=(X, Y), runs=300, seed=1)
    results = {check.key: check.result for check in found.checks}
    assert "problem" not in results.values(), [check for check in found.checks if check.result == "problem"]
    assert results["noise"] == noise
    assert results["accounting"] == "not checked"
