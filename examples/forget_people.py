"""Train a logistic regression on 200,000 people and delete some of them, exactly.

    python examples/forget_people.py

Takes under a minute on two cores, offline. It draws out/forget_people.png.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LogisticRegression as ScikitLearns

from expunge import Delete, LogisticRegression, Outcome
from expunge.checks import check_exact
from expunge.types import Array

OUT = Path("out")
PEOPLE, FEATURES, RHO = 200_000, 30, 0.05
console = Console()


def make_people(rng: np.random.Generator) -> tuple[Array, Array]:
    """Make a table in which a linear rule explains most, but not all, of the answers."""
    features = rng.normal(size=(PEOPLE + 20_000, FEATURES))
    features /= np.maximum(np.linalg.norm(features, axis=1), 1.0)[:, None]
    scores = 12.0 * features @ rng.normal(size=FEATURES) / np.sqrt(FEATURES) * np.sqrt(3)
    return features, np.where(rng.random(len(features)) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)


def draw(kept: list[float], replayed: list[float], refit: float, accuracies: dict[str, float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    bins = np.logspace(-5, np.log10(3 * refit), 60)
    left.hist(kept, bins, label=f"{len(kept)} kept", color="C0")
    left.hist(replayed, bins, label=f"{len(replayed)} replayed", color="C1")
    left.axvline(refit, color="C3", label="retraining with scikit-learn")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("seconds for one deletion")
    left.set_title("Deleting 2,000 people, one by one")
    left.legend()
    bars = right.barh(list(accuracies), [100 * a for a in accuracies.values()], color=["grey", "C0", "C0"])
    right.bar_label(bars, [f" {100 * a:.2f} %" for a in accuracies.values()])
    right.set_xlim(100 * min(accuracies.values()) - 2, 100 * max(accuracies.values()) + 2)
    right.set_title("Accuracy on 20,000 others")
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "forget_people.png", dpi=120)


def main() -> None:
    features, answers = make_people(np.random.default_rng(0))
    test, test_answers = features[PEOPLE:], answers[PEOPLE:]
    features, answers = features[:PEOPLE], answers[:PEOPLE]

    console.rule("Learn")
    began = time.perf_counter()
    model = LogisticRegression(rho=RHO).fit(features, answers)
    fitted = time.perf_counter() - began
    before = model.score(test, test_answers)
    began = time.perf_counter()
    peer = ScikitLearns().fit(features, answers)
    refit = time.perf_counter() - began
    theirs = peer.score(test, test_answers)
    console.print(f"{PEOPLE:,} people, {FEATURES} features: learned in {fitted:.2f} s (scikit-learn: {refit:.2f} s).")
    console.print(
        f"At most {RHO:.0%} of deletions will replay part of the training; "
        f"the noise for that is σ = {model.plan_.sigma:.1f}."
    )

    console.rule("Forget")
    ids = np.random.default_rng().permutation(PEOPLE)
    model.unlearn(ids[:1])  # the first deletion builds the index of ids
    outcomes: list[Outcome] = [model.unlearn(one) for one in track(ids[1:2001], "one by one")]
    began = time.perf_counter()
    model.unlearn(ids[2001:12001])
    bulk = time.perf_counter() - began
    kept = [o.seconds for o in outcomes if o.kept]
    replayed = [o.seconds for o in outcomes if not o.kept]

    report = model.verify()
    after = model.score(test, test_answers)
    table = Table("", "", show_header=False)
    table.add_row("2,000 single deletions", f"{len(kept)} kept the model as it was, {len(replayed)} replayed")
    table.add_row("a kept deletion (median)", f"{1e6 * float(np.median(kept)):.0f} microseconds")
    if replayed:
        table.add_row("a replay (mean)", f"{1e3 * float(np.mean(replayed)):.1f} milliseconds")
    table.add_row("10,000 people at once", f"{1e3 * bulk:.0f} milliseconds")
    table.add_row("retraining with scikit-learn", f"{1e3 * refit:.0f} milliseconds, each time")
    table.add_row("accuracy before and after", f"{before:.2%}, {after:.2%} (scikit-learn: {theirs:.2%})")
    verdict = "every sum and iterate agrees, bit for bit" if report.ok else "; ".join(report.problems)
    table.add_row("verify", f"{verdict} (noise: p = {report.noise_p_value:.2f})")
    console.print(table)

    console.rule("Is it exact?")
    small = LogisticRegression(rho=0.7, steps=3, radius=2.0).fit(features[:5, :2], answers[:5])
    exactness = check_exact(small.plan_.learner, (features[:5, :2], answers[:5]), [Delete([2])], runs=3000)
    console.print(f"Five of the people, one deleted, against four from the start: {exactness}.")
    draw(kept, replayed, refit, {"scikit-learn": theirs, "before": before, "after 12,000 left": after})
    console.print(f"A picture is in {OUT / 'forget_people.png'}.")


if __name__ == "__main__":
    main()
