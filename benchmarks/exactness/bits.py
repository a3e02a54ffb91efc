"""Attacks on the last digits of a state: they tell nothing of a deleted record, and much where answers lie on no grid.

    python benchmarks/exactness/bits.py [--runs 20000] [--quick] [--seed 1] [--only TEXT] [--resume]

- digits: trailing zeros and residues of all stored numbers after a request, against those of fresh learning, for all
  mechanisms, couplings and schedules, k-means and federations. |z| of the trailing zeros of answers must be at most
  3.5, that of any other statistic below the limit for so many;
- ranking: twenty candidates that differ in one to three values, ranked by how well the digits of the state fit their
  having been there, after 40 kept deletions. How often the true one is first must be a matter of chance;
- words: default parameters and 40,000 sparse rows; which words only the deleted record had. The AUC must be 0.5;
- seeds: a small ``random_state`` is found by trying in memory, and is in no file (`tests/cases/seeds.py`).

Each attack is also tried on an engine without a grid (`ungridded.py`), where it must succeed, and on the same engine
with a grid, where it must not. About half an hour on two cores (extrapolated); with --quick four minutes. Writes
out/bits.json, with the commit it was made at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks.exactness.ranking import CANDIDATES, Make, rank
from benchmarks.exactness.subjects import Seen, Served, Subject, bare, controls, planned, subjects
from benchmarks.exactness.words import answers_of_engine, answers_without_grid, area, spread
from benchmarks.problems import Job, Result, conclude, parser_of, run_jobs
from benchmarks.smoke import OUT, SMOKE, sized
from cases import seeds
from expunge.base.types import Array
from expunge.engine.bits import digits_below, limited, lowest_digit, trailing_zeros, units_for

WANTED = 3.5
"""How far z of the trailing zeros of answers may be off."""
LEVEL = 0.01
"""How likely a false alarm is, among all other statistics of all subjects together."""
CAUGHT = 1e-6
"""An attack succeeds if chance alone would do as well less often than this."""
FEWEST = 100
"""Of fewer kept runs nothing is said."""
RECORDS = sized(40_000, 500)

TABLES = "answers", "noise", "iterates", "model"


# --- digits --------------------------------------------------------------------------------------------------


def statistics(one: Array, other: Array, noises: tuple[Array, ...]) -> Iterator[tuple[str, Array, Array]]:
    """Return what is compared of a table, or of some of its columns: for each run of either sample a number."""
    both = np.concatenate([one, other])
    if np.ptp(both) == 0.0:
        return
    finest, split = units_for(both)[0], len(one)
    for what, count in (("trailing zeros", trailing_zeros), ("lowest digit", lowest_digit)):
        counts = count(both)
        means = limited(counts, counts).mean(axis=(1, 2))
        yield what, means[:split], means[split:]
    means = np.mod(np.rint(np.ldexp(both, -finest)), 4).mean(axis=(1, 2))
    yield "residues mod 4", means[:split], means[split:]
    if noises:
        below = [
            np.minimum(digits_below(*each), 8).mean(axis=(1, 2)) for each in zip((one, other), noises, strict=True)
        ]
        yield "digits below sum and noise", below[0], below[1]


def stacked(states: Iterable[Seen], runs: int) -> dict[str, Array]:
    """Return the tables of all runs, one behind the other."""
    found: dict[str, Array] = {}
    for run, state in enumerate(states):
        for name in TABLES:
            table = getattr(state, name)
            found.setdefault(name, np.empty((runs, *table.shape)))[run] = table
    return found


def compare_digits(subject: Subject, runs: int, seed: int) -> dict[str, float]:
    """Return z of each statistic; that of kept runs alone only for digits that hardly depend on the values."""
    rngs = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2)]
    kept = np.zeros(runs, dtype=bool)

    def served() -> Iterator[Seen]:
        for run in range(runs):
            state, kept[run] = subject.deleted(rngs[0])
            yield state

    one, other = stacked(served(), runs), stacked((subject.fresh(rngs[1]) for _ in range(runs)), runs)
    found = {}
    for name in TABLES:
        columns = np.arange(one[name].shape[2])
        groups = {"": columns}
        if subject.own:
            groups = {", own columns": np.array(subject.own), ", other columns": np.setdiff1d(columns, subject.own)}
        for group, chosen in groups.items():
            noises = (one["noise"][:, :, chosen], other["noise"][:, :, chosen]) if name == "answers" else ()
            for what, after, fresh in statistics(one[name][:, :, chosen], other[name][:, :, chosen], noises):
                found[f"{what} of {name}{group}"] = z_of(after, fresh)
                if kept.sum() >= FEWEST and name == "answers" and what == "lowest digit":
                    found[f"{what} of {name}{group}, kept"] = z_of(after[kept], fresh)
    return {name: z for name, z in found.items() if not np.isnan(z)}


def z_of(one: Array, other: Array) -> float:
    """Return the difference of two means in its standard deviations; NaN if all numbers are the same."""
    difference = float(one.mean() - other.mean())
    deviation = float(np.sqrt(one.var() / len(one) + other.var() / len(other)))
    if deviation < 1e-12:
        return float("nan") if abs(difference) < 1e-9 else float(np.copysign(np.inf, difference))
    return difference / deviation


def find(name: str) -> Subject:
    """Return the subject of a name; those of controls have what is wrong in front."""
    everyone = {subject.name: subject for subject in subjects()}
    for wrong, those in controls().items():
        everyone |= {f"{wrong}: {subject.name}": subject for subject in those}
    return everyone[name]


def attack_digits(name: str, runs: int, seed: int) -> Result:
    found = compare_digits(find(name), runs, seed)
    first = max(
        (each for each in found if each.startswith("trailing zeros of answers")), key=lambda each: "own" in each
    )
    worst = max(found, key=lambda each: abs(found[each]))
    return {"figure": found[first], "largest": found[worst], "where": worst, "z": found}


def limit(statistics: int) -> float:
    """Return how far off the largest of so many statistics may be."""
    return float(stats.norm.isf(LEVEL / (2.0 * max(statistics, 1))))


def judge_digits(results: list[Result]) -> None:
    """Say of each result if it is as it should be: without a mistake no statistic is off, with one, one is."""
    most = max(WANTED, limit(sum(len(result["z"]) for result in results if not result["control"])))
    for result in results:
        result["says"] = f"z = {result['figure']:.1f}, largest {result['largest']:.1f} ({result['where']})"
        if result["control"]:
            caught = limit_of_caught(len(result["z"]))
            result["as_it_should_be"] = bool(abs(result["largest"]) > caught)
            result["wanted"] = f"above {caught:.1f}"
        else:
            result["as_it_should_be"] = bool(abs(result["figure"]) <= WANTED and abs(result["largest"]) <= most)
            result["wanted"] = f"within {WANTED:g}, all within {most:.1f}"


def limit_of_caught(statistics: int) -> float:
    """Return how far off the largest of so many must be to be caught."""
    return float(stats.norm.isf(CAUGHT / (2.0 * statistics)))


# --- ranking -------------------------------------------------------------------------------------------------


def rankings() -> dict[str, tuple[Make, bool]]:
    """Return whose deletions candidates are ranked for, and if their answers are sums of all steps so far."""
    root, tree = planned(), planned(mechanism="tree", coupling="sequential")
    descent = planned(solver="gradient_descent", steps=4)
    return {
        "sqrt, joint": (lambda *columns: Served(root, columns), True),
        "tree, sequential": (lambda *columns: Served(tree, columns), True),
        "gradient descent": (lambda *columns: Served(descent, columns), False),
        "reference on a grid, root": (lambda *columns: bare("root", "always", columns), True),
        "without a grid: root": (lambda *columns: bare("root", "never", columns), True),
        "without a grid: tree": (lambda *columns: bare("tree", "never", columns), True),
    }


def attack_ranking(name: str, runs: int, seed: int) -> Result:
    make, prefix = rankings()[name]
    rng = np.random.default_rng(seed)
    first = sum(rank(make, prefix, rng) == 1 for _ in range(runs))
    p = float(stats.binom.sf(first - 1, runs, 1.0 / CANDIDATES))
    says = f"first in {first} of {runs} kept deletions, p = {p:.2g}"
    return {"figure": first, "p": p, "says": says, **verdict(name, p)}


def verdict(name: str, p: float) -> Result:
    """Say what is wanted of an attack by itself, and if it is so."""
    if name.startswith("without a grid"):
        return {"as_it_should_be": bool(p < CAUGHT), "wanted": f"p < {CAUGHT:g}"}
    return {"as_it_should_be": bool(p >= LEVEL / 10.0), "wanted": f"p ≥ {LEVEL / 10.0:g}"}


# --- words ---------------------------------------------------------------------------------------------------

WORDS = {"default parameters": answers_of_engine, "without a grid: root": answers_without_grid}


def attack_words(name: str, runs: int, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    areas = np.array([area(WORDS[name](RECORDS, rng)) for _ in range(runs)])
    z = float((areas.mean() - 0.5) / (spread() / np.sqrt(runs)))
    says = f"AUC {areas.mean():.3f} ({areas.min():.2f} to {areas.max():.2f}) in {runs} deletions, z = {z:.1f}"
    return {"figure": float(areas.mean()), "z": z, "says": says, **verdict(name, 2.0 * stats.norm.sf(abs(z)))}


# --- all of them ---------------------------------------------------------------------------------------------


ATTACKS: dict[str, Callable[[str, int, int], Result]] = {
    "digits": attack_digits,
    "ranking": attack_ranking,
    "words": attack_words,
}


def jobs(runs: int, quick: bool, seed: int) -> list[Job]:
    """Return everything there is to do, the long ones first."""
    found = [("digits", subject.name, runs) for subject in subjects()]
    for wrong, those in controls().items():
        found += [("digits", f"{wrong}: {subject.name}", min(runs, 4_000)) for subject in those]
    found += [("ranking", name, sized(40, 2)) for name in rankings()]
    found += [("words", name, sized(8 if quick else 40, 2)) for name in WORDS]
    return [(*job, 1_000 * seed + number) for number, job in enumerate(found)]


def run_one(job: Job) -> Result:
    attack, name, runs, seed = job
    began = time.perf_counter()
    found = ATTACKS[attack](name, runs, seed)
    plain = {"kind": attack, "name": name, "control": ":" in name, "runs": runs, "seed": seed}
    return {**plain, **found, "seconds": round(time.perf_counter() - began, 1)}


def show(results: list[Result]) -> None:
    """Print a table."""
    table = Table("", "attack", "on", "found", "wanted")
    for result in results:
        good = "ok" if result["as_it_should_be"] else "[red]BAD[/]"
        table.add_row(good, result["kind"], result["name"], result["says"], result["wanted"])
    Console(width=160).print(table)


def main() -> int:
    parser = parser_of(__doc__ or "", runs=20_000)
    parser.add_argument("--quick", action="store_true", help="at most 1,000 runs a side: a few minutes")
    options = parser.parse_args()
    runs = min(options.runs, 1_000) if options.quick else options.runs
    todo = jobs(runs, options.quick, options.seed)
    out = OUT / "bits.json"
    results = run_jobs(run_one, todo, out, options)
    judge_digits([result for result in results if result["kind"] == "digits"])
    if options.only in "seeds":
        results += seeds.results(options.quick or SMOKE)
    show(results)
    return conclude(results, out)


if __name__ == "__main__":
    raise SystemExit(main())
