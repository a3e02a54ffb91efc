"""Show that a learner is exact: compare the complete state after changes with that of fresh learning.

`check_exact` runs both many times on a small problem and looks for any difference in law, in single numbers,
in products of any two, in products of two under each event of the schedule, and in the last binary digits of all that
is stored. It can show that a learner is biased; that it is exact is proved in docs/guarantee.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.columns import stack
from expunge.base.errors import BadPlan
from expunge.base.intake import Request, as_columns
from expunge.base.types import AnyArray, Array, Column
from expunge.engine.bits import compare_bits
from expunge.engine.changing import change
from expunge.engine.learner import Learner, Transcript
from expunge.engine.learning import learn
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.schedules import joins
from expunge.engine.structures import Structure
from expunge.engine.verifying import whitened_draws

Serve = Callable[[Learner, MemoryRecords, Transcript, Request, np.random.Generator], tuple[MemoryRecords, Transcript]]
MOST_EVENTS = 48


@dataclass(frozen=True)
class Exactness:
    """What `check_exact` found."""

    p_value: float
    """The smallest p-value of all comparisons, multiplied by their number (Bonferroni)."""
    level: float
    runs: int
    names: tuple[str, ...]
    """What was compared."""
    p_values: Array
    """The p-value of each comparison."""

    @property
    def passed(self) -> bool:
        """Whether no difference was found at the level."""
        return self.p_value >= self.level

    def __bool__(self) -> bool:
        return self.passed

    def worst(self, number: int = 5) -> list[tuple[str, float]]:
        """Return the comparisons with the smallest p-values."""
        order = np.argsort(self.p_values, kind="stable")[:number]
        return [(self.names[j], float(self.p_values[j])) for j in order]

    def __str__(self) -> str:
        verdict = "no difference found" if self.passed else "BIASED"
        name, p = self.worst(1)[0]
        return (
            f"{verdict}: {len(self.names)} comparisons of {self.runs} runs each way, corrected p = {self.p_value:.3g} "
            f"(smallest {p:.3g} at {name})"
        )

    def plot(self) -> Any:
        """Draw the p-values against what chance would give; points far above the line are differences in law."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 4), layout="constrained")
        axes = figure.subplots()
        number = len(self.p_values)
        expected = -np.log10((np.arange(number) + 0.5) / number)
        seen = -np.log10(np.maximum(np.sort(self.p_values), 1e-300))
        axes.plot(expected, seen, ".", markersize=4, label="comparisons")
        axes.plot([0, expected[0]], [0, expected[0]], color="grey", linewidth=1, label="chance")
        axes.axhline(-np.log10(self.level / number), color="C3", linewidth=1, label=f"limit at level {self.level:g}")
        axes.set_xlabel("-log10 p, expected by chance")
        axes.set_ylabel("-log10 p, seen")
        axes.set_title("exact" if self.passed else "biased")
        axes.legend(loc="upper left")
        return figure


def serve_and_commit(
    learner: Learner,
    records: MemoryRecords,
    transcript: Transcript,
    request: Request,
    rng: np.random.Generator,
) -> tuple[MemoryRecords, Transcript]:
    """Serve a request as `unlearn` and `insert` do."""
    change(learner, records, transcript, request, rng).commit()
    return records, transcript


def check_exact(
    learner: Learner,
    columns: Sequence[Any],
    requests: Sequence[Request],
    *,
    ids: Any = None,
    subjects: Any = None,
    runs: int = 10_000,
    level: float = 0.01,
    seed: int = 0,
    serve: Serve = serve_and_commit,
    watch: Callable[[int], None] | None = None,
) -> Exactness:
    """Compare learning and then serving ``requests`` with learning on what is left, ``runs`` times each.

    Keep the problem small: a handful of records and steps, noise about as large as a contribution. ``serve``
    is what is put to the test; by default it is the engine's own `change`. ``watch`` is called with the number
    of runs done so far, for a progress bar.
    """
    if runs < 100:
        raise BadPlan(f"runs={runs}: at least 100, so that the comparisons mean something.")
    data = as_columns(columns)

    def changed(rng: np.random.Generator) -> tuple[MemoryRecords, Transcript]:
        records = MemoryRecords(data, ids, subjects)
        transcript = learn(learner, records, rng)
        for request in requests:
            records, transcript = serve(learner, records, transcript, request, rng)
        return records, transcript

    left = _snapshot(changed(np.random.default_rng(seed))[0])

    def fresh(rng: np.random.Generator) -> tuple[MemoryRecords, Transcript]:
        records = MemoryRecords(left.columns, left.ids, left.subjects)
        return records, learn(learner, records, rng)

    return check_same_law(
        lambda rng: _state(learner, *changed(rng), left.ids),
        lambda rng: _state(learner, *fresh(rng), left.ids),
        _state_names(learner, *fresh(np.random.default_rng(seed)), left.ids),
        runs=runs, level=level, seed=seed, watch=watch,
    )  # fmt: skip


def check_same_law(
    one: Callable[[np.random.Generator], Array],
    other: Callable[[np.random.Generator], Array],
    names: Sequence[str],
    *,
    runs: int = 10_000,
    level: float = 0.01,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> Exactness:
    """Compare two ways to a state, each a row of numbers, ``runs`` times each: for a learner driven otherwise.

    ``names`` has a name for each number; those of the schedule, whose events are looked at one by one, begin with @,
    those of which only the digits are compared with #. A table's are ``name[row,column]``.
    """
    rows: list[list[Array]] = []
    for which, (way, source) in enumerate(zip((one, other), np.random.SeedSequence(seed).spawn(2), strict=True)):
        rng = np.random.default_rng(source)
        rows.append([])
        for run in range(runs):
            rows[-1].append(way(rng))
            if watch is not None:
                watch(which * runs + run + 1)
    return compare(np.array(rows[0]), np.array(rows[1]), names, level)


# --- the complete state as numbers ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Left:
    columns: list[Column]
    ids: AnyArray
    subjects: AnyArray | None


def _snapshot(records: MemoryRecords) -> _Left:
    """Return the records that are left, place by place in their order (for `Arrival`, the order is the law)."""
    places = range(len(records.places))
    blocks = [records.places.block(place) for place in places]
    width = len(records.batch_at(0)) if blocks else 0
    merged = [stack([block[k] for block in blocks]) for k in range(len(blocks[0]) if blocks else 0)]
    if not merged:
        raise BadPlan("requests: they leave no step at all; keep at least one record with an ordered schedule.")
    return _Left(merged[:width], merged[width], merged[width + 1] if records.has_subjects else None)


def _positions(records: MemoryRecords, ids: AnyArray) -> tuple[AnyArray, AnyArray]:
    all_ids = records.all_ids()
    order = np.argsort(all_ids)
    rank = order[np.searchsorted(all_ids, ids, sorter=order)]
    places, slots = records.positions()
    return places[rank], slots[rank]


def _state(learner: Learner, records: MemoryRecords, transcript: Transcript, ids: AnyArray) -> Array:
    """Return everything that is kept, as one row of numbers."""
    places, slots = _positions(records, ids)
    if learner.structure is not None:
        return np.concatenate([places, slots, *_by_keys(learner.structure, records, transcript, slots).values()])
    sums, answers = transcript.sums[:], transcript.answers[:]
    if learner.laws is not None:
        joined = learner.participation.joined(records.keys_at(0)[slots], 0) if learner.schedule.rate < 1.0 else None
        numbers = [np.stack(whitened_draws(learner.laws, transcript)), sums, answers, transcript.model(learner)]
        who = [] if joined is None else [joined]
        return np.concatenate([places, slots, *who, *(part.ravel() for part in numbers)], dtype=float)
    met = learner.grid.met(sums)
    noise = answers - (np.cumsum(met, axis=0) if learner.mechanism.prefix else met)
    parts = [places, slots]
    if learner.schedule.rate < 1.0:
        keys = records.keys_at(0)[slots] if len(slots) else np.zeros(0, dtype=np.uint64)
        parts += [joins(keys, step, learner.schedule.rate) for step in range(len(sums))]
    numbers = [
        learner.mechanism.whiten(noise),
        *([noise] if learner.mechanism.prefix else []),
        sums,
        answers,
        transcript.iterates[:],
        transcript.model(learner),
    ]
    return np.concatenate([*parts, *(part.ravel() for part in numbers)], dtype=float)


def _by_keys(structure: Structure, records: MemoryRecords, transcript: Transcript, slots: AnyArray) -> dict[str, Array]:
    """Return the state of a learner with a structure from a keyed sample: keys, who is in it, and all that follows."""
    found = transcript.found(structure)
    keys, batch = records.keys_at(0)[slots], tuple([column[slots] for column in records.batch_at(0)])
    sums = np.zeros((structure.most_rows, structure.width))
    sums[: transcript.sums.shape[0]] = transcript.sums[:]
    return {
        "samples": structure.sampled(found, keys, batch).astype(float),
        "keys": (keys >> np.uint64(32)).astype(float),
        "rest": (keys & np.uint64(2**32 - 1)).astype(float),
        "found": transcript.iterates[0].copy(),
        "sum": sums.ravel(),
        "model": structure.model(found, transcript.sums[:]),
    }


def _state_names(learner: Learner, records: MemoryRecords, transcript: Transcript, ids: AnyArray) -> list[str]:
    """Return a name for each number of the state; those of the schedule are marked by @, N, for its digits, by #."""
    people = [str(one) for one in ids.tolist()]
    names = [f"@place({one})" for one in people] + [f"slot({one})" for one in people]
    if learner.structure is not None:
        slots = _positions(records, ids)[1]
        numbers = _by_keys(learner.structure, records, transcript, slots)
        own = [f"{name}({one})" for name in ("@samples", "key", "rest of the key") for one in people]
        rest = ("found", "sum", "model")
        return [*names, *own, *(f"{name}[0,{j}]" for name in rest for j in range(numbers[name].size))]
    if learner.laws is not None:
        return names + _names_of_draws(learner, transcript, people)
    if learner.schedule.rate < 1.0:
        names += [f"@joins({one},{step})" for step in range(transcript.steps) for one in people]
    sizes = {
        "noise": transcript.sums,
        **({"#N": transcript.sums} if learner.mechanism.prefix else {}),
        "sum": transcript.sums,
        "answer": transcript.answers,
        "w": transcript.iterates,
    }
    for name, table in sizes.items():
        flat = table[:].reshape(transcript.steps, -1)
        names += [f"{name}[{row},{column}]" for row in range(len(flat)) for column in range(flat.shape[1])]
    return names + [f"model[{j}]" for j in range(transcript.model(learner).size)]


def _names_of_draws(learner: Learner, transcript: Transcript, people: list[str]) -> list[str]:
    """Return a name for each number of the state of a pass whose rounds are draws, after places and slots."""
    assert learner.laws is not None
    names = [f"@joins({one},0)" for one in people] if learner.schedule.rate < 1.0 else []
    for name, table in {"noise": transcript.iterates, "sum": transcript.sums, "w": transcript.iterates}.items():
        names += [f"{name}[{row},{column}]" for row in range(table.shape[0]) for column in range(table.shape[1])]
    return names + [f"model[{j}]" for j in range(transcript.model(learner).size)]


# --- two-sample comparisons --------------------------------------------------------------------------------------


def compare(one: Array, other: Array, names: Sequence[str], level: float) -> Exactness:
    """Compare two samples of states by many statistics, corrected for their number.

    Numbers are replaced by their ranks in both samples together, so that all products are bounded and the
    normal limit holds far out. Each number is compared by a Kolmogorov–Smirnov test; every product of two,
    and every product of two under each event of the schedule, by the difference of its means. So are the last
    digits of every number, which a change that is exact but for rounding would leave as they were (`compare_bits`).
    """
    from scipy import stats

    found: list[tuple[str, float]] = []
    features: list[tuple[str, Array]] = []
    events: list[tuple[str, Array]] = []
    both = np.concatenate([one, other])
    for name, column in zip(names, both.T, strict=True):
        if name.startswith("@"):
            for value in np.unique(column)[:16]:
                events.append((f"{name[1:]}={value:g}", (column == value).astype(float)))
            continue
        if name.startswith("#") or np.ptp(column) == 0.0:
            continue
        test = stats.ks_2samp(column[: len(one)], column[len(one) :], method="asymp")
        found.append((name, float(test.pvalue)))
        ranked = stats.rankdata(column)
        ranked = (ranked - ranked.mean()) / ranked.std()
        features.append((name, ranked))
        if name.startswith("noise"):
            features.append((f"{name}²", ranked**2 - 1.0))
    found += _compare_products(features + events, len(one), "")
    inner = [(name, column) for name, column in features if name.startswith(("noise", "sum")) and "²" not in name]
    for name, event in events[:MOST_EVENTS]:
        if 0.01 < event.mean() < 0.99:
            found += _compare_products(inner, len(one), f" given {name}", event)
    found += compare_bits(both, len(one), names)
    p_values = np.array([p for _, p in found])
    corrected = min(1.0, float(p_values.min()) * len(found))
    return Exactness(corrected, level, len(one), tuple(name for name, _ in found), p_values)


def _compare_products(
    features: list[tuple[str, Array]], split: int, suffix: str, event: Array | None = None
) -> list[tuple[str, float]]:
    """Compare the means of each feature and of all products of two (counting only runs where the event holds)."""
    from scipy import stats

    matrix = np.stack([np.ones(len(features[0][1])), *(column for _, column in features)], axis=1)
    moments = []
    for part in (slice(None, split), slice(split, None)):
        rows = matrix[part]
        weighted = rows if event is None else rows * event[part][:, None]
        mean = weighted.T @ rows / len(rows)
        square = (weighted**2).T @ rows**2 / len(rows)
        moments.append((mean, (square - mean**2) / len(rows)))
    (mean_one, variance_one), (mean_other, variance_other) = moments
    variance = variance_one + variance_other
    names = ["1", *(name for name, _ in features)]
    upper = np.triu_indices(len(names), 1) if event is None else np.triu_indices(len(names))
    difference, spread = (mean_one - mean_other)[upper], np.sqrt(np.maximum(variance[upper], 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(spread > 1e-12, difference / spread, np.where(np.abs(difference) > 1e-9, np.inf, 0.0))
    p = 2.0 * stats.norm.sf(np.abs(z))
    return [
        (f"{names[i]}·{names[j]}{suffix}", float(value)) for i, j, value in zip(*upper, p, strict=True)
    ]  # fmt: skip
