"""Plans are as they were: a table of choices, and what earlier versions made of them."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from expunge.base.errors import BadPlan
from expunge.solvers import losses
from expunge.solvers.plans.linear import make_plan

TABLE = json.loads(Path(__file__).with_name("plan_table.json").read_text())
KNOWN = (
    losses.Logistic(), losses.Hinge(), losses.Multinomial(4), losses.MulticlassHinge(3, 0.7), losses.Huber(0.2),
)  # fmt: skip
LOSSES = {repr(loss): loss for loss in KNOWN}


def test_the_table_has_every_solver_and_schedule():
    plans = [row["plan"] for row in TABLE if "plan" in row]
    assert len(plans) >= 60
    assert {plan["solver"] for plan in plans} == {"dual_averaging", "frank_wolfe", "gradient_descent"}
    assert {plan["schedule"] for plan in plans} == {"scattered", "shuffled", "arrival", "everyone"}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: ", ".join(row["chosen"]) or "nothing")
def test_a_plan_is_as_it_was(row):
    given = LOSSES[row["loss"]], row["features"], row["records"]
    if "error" in row:
        with pytest.raises(BadPlan) as error:
            make_plan(*given, **row["chosen"])
        assert str(error.value) == row["error"]
        return
    plan = make_plan(*given, **row["chosen"])
    found = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "loss"}
    for name, value in row["plan"].items():
        wanted = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        assert found.pop(name) == wanted, name
    assert not found
