"""The paper's Table 1, empirically: excess risk against n, ρ and d, with fitted exponents beside the theorems'.

    python benchmarks/paper/rates.py [--quick] [--draw]

Every run is the engine's own learning on a problem whose optimum is known, and its excess risk is computed exactly.
Rows 1 and 2, and what is said to be by name, are the learners of `expunge.paper`: one record a step in random order, a
tree's noise. Theorems are upper bounds: a faster decay contradicts none. A quick run takes the smaller half of the
same points, fewer times. Writes out/paper/rates.json and .png.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.fitting import Sweep, as_in_the_theorem, evaluate, not_slower, run_all, together
from benchmarks.paper.linear_methods import (
    LinearDualAveraging,
    PlainLipschitz,
    PlainSmooth,
    ProjectedDualAveraging,
    ProjectedFrankWolfe,
    WorstDimension,
    most_evaluations,
)
from benchmarks.paper.methods import (
    DualAveragingAnywhere,
    DualAveragingByName,
    FrankWolfeByName,
    FrankWolfeInSteps,
    Setting,
)

REPETITIONS, QUICK_REPETITIONS = 6, 3
WORKERS = 2
ONE, TWO_THIRDS, HALF = Fraction(-1), Fraction(-2, 3), Fraction(-1, 2)
THIRD, FLAT, QUARTER, THREE_QUARTERS = Fraction(-1, 3), Fraction(0), Fraction(1, 4), Fraction(3, 4)
TIED = "n, ρ = n^−¼"


def powers(first: int, last: int, by: int = 1) -> tuple[float, ...]:
    return tuple([float(2**e) for e in range(first, last + 1, by)])


def convex() -> list[Sweep]:
    """Return the sweeps of rows 1 and 2."""
    noisy, quiet = FrankWolfeByName(tilts=(2.0, 4.0, 8.0)), FrankWolfeByName("VR-FW, no noise", tilts=(0.5, 1.0, 2.0))
    steps, ball = FrankWolfeInSteps(), DualAveragingByName()
    printed, anywhere = DualAveragingByName("DA, ball, η printed", printed=True), DualAveragingAnywhere()
    found = [
        Sweep("1", noisy, "noise", "n", powers(11, 15), Setting(0, 0.3, 16), ONE),
        Sweep("1", noisy, "noise", "ρ", (0.1, 0.2, 0.4), Setting(2**13, 0, 16), ONE),
        Sweep("1", noisy, "noise", "d", (4, 16, 64, 256), Setting(2**13, 0.3, 0), -HALF),
        Sweep("1", steps, "noise", "n", powers(15, 18), Setting(0, 0.005, 16), ONE),
        Sweep("1", steps, "noise", "ρ", (0.0025, 0.005, 0.01, 0.02), Setting(2**17, 0, 16), ONE, quick=4),
        Sweep("1", quiet, "statistical", "n", powers(10, 14), Setting(0, 1.0, 16), HALF, times=6),
        Sweep("1", quiet, "statistical", "d", (16, 64, 256), Setting(2**12, 1.0, 0), FLAT, times=3),
    ]
    for of in ("model", "iterates"):
        found += [
            Sweep("2", ball, "noise", "n", powers(10, 16, 2), Setting(0, 0.3, 16), HALF, of=of),
            Sweep("2", ball, "noise", "ρ", (0.05, 0.1, 0.2, 0.4), Setting(2**13, 0, 16), HALF, quick=4, of=of),
            Sweep("2", ball, "noise", "d", (4, 16, 64, 256), Setting(2**13, 0.3, 0), QUARTER, quick=4, of=of),
            Sweep("2", ball, "statistical", "n", powers(10, 16, 2), Setting(0, 1.0, 16), HALF, of=of),
            Sweep("2", printed, "noise", "ρ", (0.05, 0.1, 0.2, 0.4), Setting(2**13, 0, 16), HALF, of=of, judged=False),
        ]
    found += [
        Sweep("2", anywhere, "noise", "n", powers(10, 16, 2), Setting(0, 0.1, 64), HALF),
        Sweep("2", anywhere, "noise", "d", (4, 16, 64, 256), Setting(2**13, 0.1, 0), QUARTER, quick=4),
    ]
    return found


def linear() -> list[Sweep]:
    """Return the sweeps of rows 3 and 4, and of linear models that are not projected."""
    frank, jl, free = (
        ProjectedFrankWolfe(),
        ProjectedDualAveraging(),
        ProjectedDualAveraging("JL + DA, free η", free=True),
    )
    printed = ProjectedDualAveraging("JL + DA, k printed", printed=True)
    smooth, plain = PlainSmooth(), PlainLipschitz()
    rhos, wide, narrow = (0.05, 0.1, 0.2, 0.4), (512.0, 2048.0, 8192.0), (32.0, 128.0, 512.0, 2048.0)
    across, along, rising = Setting(2**13, 0.1, 0), Setting(2**13, 0, 4096), powers(11, 15)
    return [
        Sweep("3", frank, "noise", "n", rising, Setting(0, 0.1, 4096), TWO_THIRDS, quick=4, times=2),
        Sweep("3", frank, "noise", "ρ", rhos, along, TWO_THIRDS, quick=4, times=2),
        Sweep("3", frank, "noise", "d", wide, across, FLAT, times=2),
        Sweep("3", WorstDimension(), "statistical", "n", powers(10, 14), Setting(0, 1.0, 0), HALF, 4),
        Sweep("4", jl, "noise", "n", rising, Setting(0, 0.1, 4096), THIRD, times=2),
        Sweep("4", jl, "noise", "ρ", rhos, along, THIRD, quick=4, times=2),
        Sweep("4", jl, "noise", "d", wide, across, FLAT, times=12),
        Sweep("4", LinearDualAveraging(), "statistical", "n", powers(10, 16, 2), Setting(0, 1.0, 64), HALF),
        Sweep("4", printed, "noise", "n", rising, Setting(0, 0.1, 4096), THIRD, judged=False),
        Sweep("4", free, "noise", "n", rising, Setting(0, 0.1, 4096), THIRD, judged=False),
        Sweep("4", free, "noise", "d", wide, across, FLAT, judged=False),
        Sweep("ours", smooth, "noise", "n", powers(12, 15), Setting(0, 0.1, 64), TWO_THIRDS),
        Sweep("ours", smooth, "noise", "ρ", rhos, Setting(2**13, 0, 64), TWO_THIRDS, quick=4),
        Sweep("ours", smooth, "noise", "d", narrow, Setting(2**13, 0.1, 0), FLAT),
        Sweep("ours", plain, "noise", "n", rising, Setting(0, 0.1, 64), HALF),
        Sweep("ours", plain, "noise", "d", narrow, Setting(2**13, 0.1, 0), FLAT),
    ]  # fmt: skip


def tied() -> list[Sweep]:
    """Return the sweeps along ρ = n^(-1/4), where logistic regression is to lose nothing and deletions take n^(3/4)."""
    frank = ProjectedFrankWolfe("JL + VR-FW, deletions", deletions=1000)
    smooth = PlainSmooth("DA, unprojected, deletions", deletions=400)
    return [
        Sweep(row, method, "tied", TIED, values, Setting(0, 0, d), exponent, 3, of=of, times=2, expected=expected)
        for row, method, d, values in (("3", frank, 4096, powers(10, 15)), ("ours", smooth, 64, powers(11, 15)))
        for of, exponent, expected in (
            ("model", HALF, None),
            ("evaluations", THREE_QUARTERS, _evaluations_of(method)),
        )
    ]  # fmt: skip


def _evaluations_of(method: ProjectedFrankWolfe | PlainSmooth) -> Callable[[Setting], float]:
    return lambda at: most_evaluations(method.learner(at), at)


def sweeps() -> list[Sweep]:
    return convex() + linear() + tied()


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    wanted = sweeps()
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    runs = run_all(wanted, quick, repetitions, watch, WORKERS)
    return {"repetitions": repetitions, "sweeps": [evaluate(sweep, quick, runs) for sweep in wanted]}


# --- verdicts, tables, picture --------------------------------------------------------------------------

CLAIMS = {
    ("1", "noise"): "row 1, noise: excess falls like n⁻¹ and ρ⁻¹ and grows like d^½",
    ("1", "statistical"): "row 1, no noise: n^−½, whatever d",
    ("2", "noise"): "row 2, noise: excess falls like n^−½ and ρ^−½ and grows like d^¼, on a ball with projection",
    ("2", "statistical"): "row 2, no noise: n^−½",
    ("3", "noise"): "row 3, noise: (nρ)^−⅔, whatever d",
    ("3", "statistical"): "row 3, no noise, worst dimension: n^−½",
    ("3", "tied"): "row 3, ρ = n^−¼: excess n^−½, and a deletion takes n^¾ evaluations",
    ("4", "noise"): "row 4, noise: (nρ)^−⅓, whatever d",
    ("4", "statistical"): "row 4, its n^−½ term alone: no noise, no projection",
    ("ours", "noise"): "linear models not projected: (nρ)^−⅔ smooth, (nρ)^−½ Lipschitz, whatever d",
    ("ours", "tied"): "not projected, ρ = n^−¼: excess n^−½, and a deletion takes n^¾ evaluations",
}


def judge(result: Result) -> list[Verdict]:
    verdicts = []
    for (row, regime), claim in CLAIMS.items():
        mine = [s for s in result["sweeps"] if (s["row"], s["regime"]) == (row, regime) and s["judged"]]
        if mine:
            shown = [f"{s['varied'][0]} {s['slope']:+.2f} ({s['theorem']})" + _part(s) for s in mine]
            verdicts.append(Verdict(claim, together([not_slower(s) for s in mine]), "; ".join(shown)))
    judged = [s for s in result["sweeps"] if s["judged"]]
    above = [s for s in judged if s["of_bound"] > 1.0]
    largest = max(s["of_bound"] for s in judged)
    found = f"{len(judged) - len(above)} of {len(judged)} sweeps, at most {largest:.2g} of the bound"
    return [*verdicts, Verdict("every mean is below the bound that the proof gives", not above, found)]


def _part(sweep: dict[str, Any]) -> str:
    return {"model": "", "iterates": " of iterates", "evaluations": " of evaluations"}[sweep["of"]]


def tables(result: Result) -> list[Table]:
    head = [
        "row",
        "learner",
        "problem",
        "regime",
        "exponent of",
        "theorem",
        "fitted, 95 %",
        "so",
        "bound's",
        "of bound",
    ]
    rows = []
    for s in result["sweeps"]:
        span = f"{s['varied']}: {s['points'][0]['x']:g}..{s['points'][-1]['x']:g}"
        rows.append([
            s["row"], s["method"] + _part(s), s["problem"], s["regime"], span, s["theorem"],
            f"{s['slope']:+.2f} [{s['low']:+.2f}, {s['high']:+.2f}]", as_in_the_theorem(s),
            f"{s['slope_of_bound']:+.2f}", f"{s['of_bound']:.2g}",
        ])  # fmt: skip
    return [Table(head, rows)]


Chosen = Callable[[dict[str, Any]], bool]


def panels() -> list[tuple[str, str, Chosen]]:
    def on(varied: str, rows: str) -> Chosen:
        def choose(s: dict[str, Any]) -> bool:
            mine = ("1", "2") if rows == "convex" else ("3", "4", "ours")
            quiet = s["regime"] == "statistical"
            return s["row"] in mine and s["varied"] == varied and s["of"] == "model" and not quiet

        return choose

    found = [
        (f"{title}, noise, against {varied}", varied, on(varied, rows))
        for title, rows in (("any convex loss", "convex"), ("linear models", "linear"))
        for varied in ("n", "ρ", "d")
    ]

    def along_n(regime: str, of: str) -> Chosen:
        return lambda s: s["regime"] == regime and s["varied"] != "d" and s["of"] == of

    return [
        *found,
        ("no noise, against n", "n", along_n("statistical", "model")),
        ("ρ = n^−¼: excess", "n", along_n("tied", "model")),
        ("ρ = n^−¼: evaluations of a deletion", "n", along_n("tied", "evaluations")),
    ]


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 15), layout="constrained")
    for axes, (title, label, choose) in zip(figure.subplots(3, 3).ravel(), panels(), strict=True):
        for number, s in enumerate(filter(choose, result["sweeps"])):
            x, mean = (np.array([p[key] for p in s["points"]]) for key in ("x", "mean"))
            half = [stats.t.ppf(0.975, p["runs"] - 1) * p["error"] for p in s["points"]]
            name = f"{s['method']}, {s['problem']}" if s["row"] == "ours" else s["method"]
            text = f"{name}: {s['slope']:+.2f} ({s['theorem']})"
            axes.errorbar(x, mean, half, fmt="o-", color=f"C{number}", markersize=4, linewidth=1, label=text)
            middle, height = np.exp(np.log(x).mean()), np.exp(np.log(mean).mean())
            axes.plot(x, height * (x / middle) ** float(Fraction(s["theorem"])), ":", color=f"C{number}", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("evaluations" if "evaluations" in title else "excess risk")
        axes.set_title(title)
        if axes.has_data():
            axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.suptitle("Table 1, with 95 % intervals: slope fitted (theorem's, dotted)")
    return figure


CHAPTER = Chapter(
    "rates",
    "Rates: Table 1",
    "Table 1 bounds the excess risk of four learners by powers of n, ρ and d. They learn problems whose optimum is "
    "known, and exponents are fitted. None may be slower than the theorem's, or than that of the bound which the proof "
    "gives on the same points, with its logarithms.",
    measure, draw, judge, tables,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
