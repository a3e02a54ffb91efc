"""`expunge plan`."""

import pytest

from cli.conftest import flat

PLAN = ("plan", "--records", "2e3", "--features", "5", "--seconds", "0.01")


def test_what_a_model_will_be_like(done):
    said = flat(done(*PLAN, "--solver", "dual_averaging", "--rho", "0.5"))
    for word in ("LogisticRegression, 2,000 records of 5 features", "a deletion replays", "memory", "in memory, ρ = 1",
                 "the paper's figures", "Seconds are estimates"):  # fmt: skip
        assert word in said


@pytest.mark.parametrize("kind", ["svm", "ridge", "boosting", "kmeans"])
def test_other_models_can_be_planned(kind, done):
    found = done(*PLAN, "--model", kind, "--json")
    assert (found["records"], found["features"]) == (2000, 5)
    assert found.keys() >= {"model", "rho", "sigma", "worst_case", "typical", "memory_bytes", "file_bytes", "in_memory"}
    assert found["in_memory"]["fit"] > 0


REFUSED = {
    "part of a record": (2, "Invalid value for '--records': '1.5' is not a whole number", ("--records", "1.5")),
    "too many": (2, "'1e30' is not a whole number", ("--records", "1e30")),
    "no number": (2, "'many' is not a whole number, such as 2e6", ("--features", "many")),
    "no records": (3, "--records 0: give a whole number of at least 1", ("--records", "0")),
    "no features": (3, "--features 0: give a whole number of at least 1", ("--features", "0")),
    "more than can be": (3, "cannot be forecast; give fewer", ("--records", "1e18")),
    "rho above 1": (3, "--rho 2.0: give a probability", ("--rho", "2")),
    "rho that is none": (2, "'abc' is neither a probability nor auto", ("--rho", "abc")),
    "one class": (3, "--classes 1: give a whole number of at least 2", ("--classes", "1")),
    "no clusters": (3, "--clusters 0: give a whole number above 0", ("--model", "kmeans", "--clusters", "0")),
    "no records of anyone": (3, "--records-per-subject 0", ("--records-per-subject", "0")),
    "no time": (3, "--seconds 0.0: give a finite number above 0", ("--seconds", "0")),
    "no such model": (2, "'forest' is not one of", ("--model", "forest")),
    "a table": (2, "Got unexpected extra argument(s) (people.csv)", ("people.csv",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_refused(case, refused):
    code, said, options = REFUSED[case]
    refused(code, said, *PLAN, *options)


def test_what_must_be_said(refused):
    refused(2, "Missing option '--features'. See `expunge plan --help`.", "plan", "--records", "1000")
