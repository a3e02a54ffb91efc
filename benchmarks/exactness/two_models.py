"""Who left between two published models? Candidates ranked by how well their influence fits the difference.

    python benchmarks/exactness/two_models.py

Somebody has the model from before some deletions and the one from after, and a list of candidates with their rows and
labels: one who left, and others who stayed. With public records of the same population they estimate the curvature H,
hence by how much each candidate's leaving moves the model (H⁻¹x times the residual), and rank candidates by the
likelihood of the difference. This is no flaw of a deletion: a refit would tell the same. It is why models should be
published after batches. Writes out/two_models.json and .md.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from rich.progress import Progress
from scipy.special import expit

import expunge
from benchmarks.accuracy.datasets import there
from benchmarks.accuracy.tables import CLASSES
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import Array

RECORDS, COLUMNS = sized(20_000, 300), 10
PUBLIC = sized(5_000, 200)
"""How many records of the same population, none of which the model has seen, the curvature is estimated from."""
CANDIDATES, AT_MOST = 100, 20
"""Candidates in a list; how many of those who left together are looked for, one by one."""
LOOKS, LOOKS_IN_VAIN = sized(400, 4), sized(2_000, 4)
"""Lists for each setting, and where the ranks should be those of chance."""
BATCHES = sized((1, 10, 100, 1_000), (1, 10))


class People(NamedTuple):
    """Rows with a 1 at their end, and labels -1 and 1."""

    rows: Array
    labels: Array


def newton() -> Any:
    return expunge.LogisticRegression(solver="newton")


def without_a_finish() -> Any:
    return expunge.LogisticRegression(solver="dual_averaging")


def generated() -> tuple[People, People]:
    """Return those the model is fitted to, and as many as the public ones of the same population."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=(RECORDS + PUBLIC, COLUMNS)), np.ones(RECORDS + PUBLIC)])
    y = np.where(rng.logistic(size=len(X)) < X[:, :-1] @ np.linspace(-1.0, 1.0, COLUMNS), 1.0, -1.0)
    return People(X[:RECORDS], y[:RECORDS]), People(X[RECORDS:], y[RECORDS:])


def adult() -> tuple[People, People]:
    """Return adult's records and test records, as in the files."""
    X, y, test, truth = CLASSES["adult"]()
    return tuple(People(np.column_stack([a, np.ones(len(a))]), b) for a, b in ((X, y), (test, truth)))  # type: ignore


def parameters(model: Any) -> Array:
    return np.append(model.coef_[0], model.intercept_)


def ranks(before: Array, after: Array, public: People, size: int, lists: list[People], rng: Any) -> list[int]:
    """Return where the first of each list of candidates ends up; ties are broken by lot."""
    moved = after - before
    certain = expit(public.rows @ before)
    curvature = (public.rows * (certain * (1.0 - certain))[:, None]).T @ public.rows * size / len(public.rows)
    curvature += 1e-9 * np.diag(curvature.diagonal() + 1.0)
    found = []
    for one in lists:
        residuals = one.labels * expit(-one.labels * (one.rows @ before))
        pulls = one.rows * residuals[:, None]  # leaving takes this off the gradient: the model moves by -H⁻¹ of it
        influences = -np.linalg.solve(curvature, pulls.T).T
        fits = -pulls @ moved - 0.5 * np.einsum("ij,ij->i", influences, -pulls)
        if not moved.any():
            fits[:] = 0.0  # nothing is to be seen
        order = np.lexsort((rng.random(len(fits)), -fits))
        found.append(1 + int(np.flatnonzero(order == 0)[0]))
    return found


def look(make: Any, people: People, public: People, batch: int, rng: Any) -> dict[str, Any]:
    """Fit, delete a batch, and look for some who left; return their ranks, and whether the model was kept."""
    ids = np.arange(len(people.labels))
    model = make().fit(people.rows[:, :-1], people.labels, ids=ids)
    found: dict[str, Any] = {"ranks": [], "kept": []}
    order = rng.permutation(ids)
    stayed = order[max(batch, AT_MOST) :]
    for gone in [order[:batch]] if batch > 1 else order[:AT_MOST, None]:
        before = parameters(model)
        outcome = model.unlearn(gone)
        sought = gone[:AT_MOST]
        lists = [np.append(one, rng.choice(stayed, CANDIDATES - 1, replace=False)) for one in sought]
        shown = [People(people.rows[one], people.labels[one]) for one in lists]
        found["ranks"] += ranks(before, parameters(model), public, len(ids), shown, rng)
        found["kept"] += [outcome.kept] * len(sought)
    return found


def measure(name: str, make: Any, batch: int, looks: int, table: tuple[People, People]) -> dict[str, Any]:
    """Look often enough, and count how often the one who left comes first."""
    rng = np.random.default_rng(batch)
    places: list[int] = []
    kept: list[bool] = []
    while len(places) < looks:
        found = look(make, *table, batch, rng)
        places += found["ranks"]
        kept += found["kept"]
    return {
        "setting": name, "batch": batch, "looks": len(places), "kept": float(np.mean(kept)),
        **{f"{what}{which}": value for which, some in (("", np.ones(len(kept), bool)), (" where kept", np.array(kept)))
           for what, value in summary(np.array(places)[some]).items()},
    }  # fmt: skip


def summary(places: Array) -> dict[str, float]:
    if not len(places):
        return {"first": float("nan"), "mean rank": float("nan")}
    return {"first": float((places == 1).mean()), "mean rank": float(places.mean())}


def report(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"| published | table | deletions between two models | ranked first of {CANDIDATES} | mean rank |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        which = " where kept" if row["only kept"] else ""
        lines.append(
            f"| {row['setting']}{which and ', kept'} | {row['table']} | {row['batch']:,} | "
            f"{100 * row[f'first{which}']:.1f} % | {row[f'mean rank{which}']:.1f} |"
        )
    return "\n".join([*lines, f"| chance | | | {100 / CANDIDATES:.1f} % | {(CANDIDATES + 1) / 2:.1f} |"]) + "\n"


def main() -> None:
    parser_of(__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    tables = {"generated": generated()} | ({"adult": adult()} if sized(there(["adult"]), []) else {})
    rows = []
    with Progress() as progress:
        bar = progress.add_task("settings", total=len(tables) * (len(BATCHES) + 1))
        for table, given in tables.items():
            settings = [("newton", newton, batch, LOOKS) for batch in BATCHES]
            for setting in [*settings, ("dual averaging", without_a_finish, 1, LOOKS_IN_VAIN)]:
                found = measure(*setting, given)
                rows.append({"table": table, "only kept": setting[0] != "newton", **found})
                progress.advance(bar)
                (OUT / "two_models.json").write_text(json.dumps(rows, indent=1))
                (OUT / "two_models.md").write_text(report(rows))
    print(report(rows))


if __name__ == "__main__":
    main()
