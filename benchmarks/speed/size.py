"""What a deletion costs against the size of the table: evaluated records for n from 10⁴ to 10⁷ and d from 5 to 500.

    python benchmarks/speed/size.py [--largest 10000000]

Newton's method with default parameters on generated tables. Replays are rare, and each costs more than n evaluations,
so a plain mean over deletions says little. The mean is put together from its parts, all measured: the mean of
`replay_probability` over random records, the evaluations of deletions that were kept, among those that rounds see and
among the others, and those of deletions that replayed. Beside it stands what docs/newton-theory.md predicts. Writes
out/size.json, out/size.md and docs/images/size.png.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track

import expunge
from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from expunge.base.types import Array

BY_RECORDS = sized([(10_000, 5), (100_000, 5), (1_000_000, 5), (10_000_000, 5)], [(2_000, 5), (4_000, 5)])
WIDER = sized([(10_000, 50), (100_000, 50), (1_000_000, 50)], [])
BY_COLUMNS = sized([(30_000, d) for d in (5, 20, 50, 100, 200, 500)], [(2_000, 5), (2_000, 20)])
LOOKS = sized(((20, 400), (100, 150), (1_000, 30)), ((1_000, 30),))
"""Up to so many columns, of how many records that rounds see the probability is asked: more take long."""
REPLAYS, MOST, SPENT = 30, 5, sized(2e8, 1e6)
"""Deletions go on until so many have replayed, up to so many times the looks, and so many numbers evaluated."""


def model_of(X: Array, y: Array) -> Any:
    """Return our model with default parameters."""
    return expunge.LogisticRegression(solver="newton").fit(X, y, ids=np.arange(len(y)))


def predicted(plan: Any, records: int) -> float:
    """Return the evaluations of a deletion that theory predicts, if ρ is the share of replays at the planned number.

    With other numbers of records replays are as much rarer as each costs more, and the reverse. The last step reads
    everyone, as does each round after the draw that was not kept its part of them; how likely a draw is not to be kept
    is its share of the budget.
    """
    if plan.rho == 1.0:
        return float(records)
    shares = np.append(0.1, 0.9 * 1.5 ** np.arange(plan.rounds) / (1.5 ** np.arange(plan.rounds)).sum())
    left = float(shares @ np.arange(plan.rounds, -1, -1))
    return 1.0 + plan.rate * (plan.rounds + 4) + plan.rho * plan.expected * (1.0 + plan.rate * left)


def generated(records: int, features: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(records + features)
    X = rng.normal(size=(records, features))
    y = np.where(rng.logistic(size=records) < X @ np.linspace(-1.0, 1.0, features) / features**0.5, 1.0, -1.0)
    return X, y


def replayed_and_kept(model: Any, ids: Array, looks: int) -> tuple[list[int], list[int]]:
    """Delete until enough were replayed; return the evaluations of those, and of those that rounds see and kept."""
    replayed: list[int] = []
    kept: list[int] = []
    for one in ids.tolist():
        spent = sum(replayed) * model.plan_.columns > SPENT
        if len(kept) + len(replayed) >= looks and (len(replayed) >= REPLAYS or spent):
            break
        outcome = model.unlearn([one])
        if outcome.evaluations > 1:
            (kept if outcome.kept else replayed).append(outcome.evaluations)
    return replayed, kept


def measure(records: int, features: int) -> dict[str, Any]:
    """Return what deletions from one table cost."""
    X, y = generated(records, features)
    began = time.perf_counter()
    model = model_of(X, y)
    seconds, plan = time.perf_counter() - began, model.plan_
    looks = next(looks for most, looks in LOOKS if features <= most)
    some = np.random.default_rng(1).permutation(records)[: int(MOST * looks / plan.rate)]
    asked = some[: int(looks / plan.rate)]
    chances = model.replay_probability(asked)
    part, chance = float((chances > 0.0).mean()), float(chances.mean())
    outside = [model.unlearn([one]).evaluations for one in asked[chances == 0.0][:20].tolist()]
    replayed, kept = replayed_and_kept(model, np.append(asked[chances > 0.0], some[len(asked) :]), looks)
    whole = float(np.mean(replayed)) if replayed else records * (1.0 + plan.rate)
    mean = chance * whole + (part - chance) * float(np.mean(kept)) + (1.0 - part) * float(np.mean(outside or [0.0]))
    return {
        "records": records, "features": features, "rho": plan.rho, "rounds": plan.rounds, "rate": plan.rate,
        "planned for": plan.expected, "asked": len(asked), "seen by rounds": part, "share of replays": chance,
        "largest probability": float(chances.max()), "deletions": len(replayed) + len(kept) + len(outside),
        "replays": len(replayed), "evaluations of a replay": whole, "evaluations": mean,
        "predicted": predicted(plan, records), "columns": plan.columns, "fit, seconds": seconds,
    }  # fmt: skip


def report(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| n | d | ρ | rounds see | replays / ρ | a replay / n (seen) | evaluations of a deletion | predicted "
        "| / max(d, 50) | of n |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        replay = f"{row['evaluations of a replay'] / row['records']:.2f} ({row['replays']})"
        lines.append(
            f"| {row['records']:,} | {row['columns']} | {row['rho']:.2g} | {100 * row['rate']:.3g} % | "
            f"{row['share of replays'] / row['rho']:.2f} | {replay} | {row['evaluations']:,.0f} | "
            f"{row['predicted']:,.0f} | {row['evaluations'] / max(row['columns'], 50):.1f} | "
            f"1/{row['records'] / row['evaluations']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def picture(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for features in dict.fromkeys(features for _, features in [*BY_RECORDS, *WIDER]):
        own = sorted((r for r in rows if r["features"] == features), key=lambda r: float(r["records"]))
        own = [r for r in own if (r["records"], features) in [*BY_RECORDS, *WIDER]]
        at = [r["records"] for r in own]
        (line,) = left.plot(at, [r["evaluations"] for r in own], "o-", label=f"measured, {features} columns")
        left.plot(at, [r["predicted"] for r in own], ":", color=line.get_color(), label="predicted")
    own = [r for r in rows if (r["records"], r["features"]) in BY_COLUMNS]
    right.plot([r["columns"] for r in own], [r["evaluations"] for r in own], "o-", label="measured")
    right.plot([r["columns"] for r in own], [r["predicted"] for r in own], ":", color="C0", label="predicted")
    ten = [10.0 * max(r["columns"], 50) for r in own]
    right.plot([r["columns"] for r in own], ten, color="grey", linewidth=1, label="10·max(d, 50)")
    left.set_xlabel("records")
    right.set_xlabel(f"parameters, of {BY_COLUMNS[0][0]:,} records")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylabel("evaluated records of a deletion, mean")
        axis.legend(fontsize=8)
    left.set_ylim(10, 100_000)
    return figure


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--largest", type=int, default=10**7, help="leave out tables with more records")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    sizes = sorted(size for size in {*BY_RECORDS, *WIDER, *BY_COLUMNS} if size[0] <= given.largest)
    rows = []
    for size in track(sizes, "sizes"):
        rows.append(measure(*size))
        (OUT / "size.json").write_text(json.dumps(rows, indent=1))
        (OUT / "size.md").write_text(report(rows))
    picture(rows).savefig(IMAGES / "size.png", dpi=110)
    print(report(rows))


if __name__ == "__main__":
    main()
