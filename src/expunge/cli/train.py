"""`expunge schema` and `expunge fit`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.base.wording import counted, duration, percent, size, were
from expunge.cli.models import KINDS, SOLVERS, Kind, Solver
from expunge.cli.options import (
    Clusters,
    Encoding,
    Force,
    Json,
    OnErrorOption,
    Quiet,
    RecordsPerSubject,
    SignerToBe,
    Tables,
    check_output,
    rho_or_auto,
    whole,
    written,
)
from expunge.cli.output import Report, reporting

SYNCS = 5
"""How often a request waits for the disk."""
SAMPLE = 200
"""For how many records the chance of a replay is looked up."""
UNCONFIRMED = (
    "this schema was drafted from the data and nobody has confirmed it. What it reveals about the records (a rare "
    "category, the end of a range) stays when they are deleted. Read it, correct it to what is publicly known, and set "
    "confirmed = true."
)

# --- options of both commands ---

Draft = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the schema.")]
TargetColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")]
IdColumn = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="The column with the ids of records.")]
SubjectColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that names the person.")]
Ignored = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column to ignore; may be given several times.")
]
EncodingToGuess = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The encoding of CSV and JSON files, such as cp1252; else it is guessed."),
]
WithRanges = Annotated[
    bool | None,
    typer.Option(
        "--ranges/--no-ranges",
        help="Draft ranges of numbers: dual averaging needs them, in k-means columns then count equally. "
        "By default only without a target.",
    ),
]
SchemaFile = Annotated[Path, typer.Option(metavar="FILE", help="The schema; `expunge schema` drafts one.")]
NewModel = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The model's new file.")]
WhatToFit = Annotated[
    Kind | None,
    typer.Option(metavar=KINDS, help="What to fit; by default logistic for classes, huber for numbers, else kmeans."),
]
Rho = Annotated[
    Any,
    typer.Option(
        parser=rho_or_auto,
        metavar="P|auto",
        help="The largest probability that a deletion replays training; less means more noise.",
    ),
]
HeldOut = Annotated[list[Path] | None, typer.Option(metavar="DATA", help="Held-out records to score it on.")]
HowToFit = Annotated[
    Solver,
    typer.Option(
        metavar=SOLVERS,
        help="How to fit a linear model; newton needs no scaling and is as accurate as scikit-learn. Auto chooses by "
        "the loss, the number of columns, and whether they are sparse.",
    ),
]
LossWeight = Annotated[
    float | None,
    typer.Option("--C", metavar="C", help="For newton: the weight of the loss beside the penalty, as in scikit-learn."),
]
Alpha = Annotated[
    float | None,
    typer.Option(metavar="A", help="For dual_averaging and ridge: the weight of the penalty on large coefficients."),
]
ExpectedRecords = Annotated[
    Any, typer.Option(parser=whole, metavar="N", help="How many records there will be later; 2e6 is fine.")
]


# --- schema ---


def schema(
    data: Tables,
    output: Draft = Path("schema.toml"),
    target: TargetColumn = None,
    id: IdColumn = None,
    subject: SubjectColumn = None,
    ignore: Ignored = None,
    encoding: EncodingToGuess = None,
    ranges: WithRanges = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draft a schema: what each column is, and its values.

    The draft is derived from the data, so READ IT: everything in it must be
    public knowledge, for example which countries there are. What comes from the
    records (a rare category, the largest number if there are ranges) would stay
    in the model when they are deleted. When everything is right, set confirmed =
    true.

    Encoding by a schema learns nothing from the records, so it leaks nothing.
    """
    with reporting(json) as report:
        from expunge.tables.schema import draft, schema_toml

        check_output(output, force, data)
        drafted = draft(
            data, target=target, id=id, subject=subject, ignore=ignore or (), encoding=encoding, ranges=ranges,
            progress=_bars(quiet, json),
        )  # fmt: skip
        with written(output) as file:
            file.write(schema_toml(drafted.schema, drafted.notes, guessed=drafted.encoding_guessed))
        _show_columns(report, drafted, output)
        if drafted.broken.count:
            count = drafted.broken.count
            report.note(f"{counted(count, 'record')} cannot be read, and {were(count)} skipped: {drafted.broken}.")
        for remark in drafted.remarks:
            report.note(f"{remark}.")
        report.note(
            "this draft was derived from the data. Everything in it must be PUBLIC KNOWLEDGE, since it stays when "
            f"records are deleted. Read {output}, take out rare values, and set confirmed = true."
        )
        wants = "" if drafted.schema.target else " --model kmeans"
        wants += " --records-per-subject N" if drafted.schema.subject else ""
        wants += " --on-error skip" if drafted.broken.count else ""
        report.say(f"Next: confirm it, then expunge fit {data[0]} --schema {output}{wants} -o model.expunge")


def _show_columns(report: Report, drafted: Any, output: Path) -> None:
    """Print what each column is drafted as, and why."""
    found = drafted.schema
    roles = {"id": found.id, "subject": found.subject, "target": found.target}
    parts = [(part.name, role, _declared(part)) for role, part in roles.items() if part]
    parts += [(part.name, part.kind, _declared(part)) for part in found.features]
    parts += [(name, "ignore", "") for name in found.ignored]
    rows = [(*part, drafted.notes.get(part[0], "")) for part in parts]
    report.table(f"{output}, drafted from {drafted.rows:,} rows", ("column", "kind", "declared", "why"), rows)
    report.data = {
        "schema": str(output), "rows": drafted.rows, "features": found.width, "confirmed": False,
        "columns": {name: {"kind": kind, "declared": said, "why": why} for name, kind, said, why in rows},
    }  # fmt: skip


def _declared(part: Any) -> str:
    """Say in a few words what a column is declared as."""
    if hasattr(part, "low"):
        span = "as they are" if part.low is None else f"{part.low} to {part.high}"
        return span + (", log" if getattr(part, "scale", "") == "log" else "")
    if hasattr(part, "values"):
        listed = ", ".join(map(str, part.values))
        return listed if len(listed) <= 24 else f"{len(part.values)} values"
    return f"{part.buckets} buckets" if hasattr(part, "buckets") else str(part.type)


# --- fit ---


def fit(
    data: Tables,
    schema: SchemaFile,
    output: NewModel = Path("model.expunge"),
    model: WhatToFit = None,
    rho: Rho = "auto",
    test: HeldOut = None,
    clusters: Clusters = None,
    alpha: Alpha = None,
    solver: HowToFit = Solver.auto,
    C: LossWeight = None,
    records_per_subject: RecordsPerSubject = 1,
    expected_records: ExpectedRecords = None,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    sign_with: SignerToBe = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fit a model to tables; people can be deleted from it later.

    Records are read once, block by block, so they need not fit into memory. The
    file holds the model, its records, the schema and everything that exact
    deletion needs. Protect it as you protect the data. """  # fmt: skip
    with reporting(json) as report:
        from expunge.cli.models import new_model
        from expunge.cli.scores import show_scores
        from expunge.models.ingest import takes_sparse
        from expunge.tables.schema import EncodedTables, read_schema

        check_output(output)
        declared = read_schema(schema)
        kind = model or _kind_for(declared)
        wanted = new_model(
            kind, declared, rho=rho, clusters=clusters, alpha=alpha, solver=solver, C=C,
            records_per_subject=records_per_subject, expected_records=expected_records,
        )  # fmt: skip
        supervised = kind is not Kind.kmeans
        how: dict[str, Any] = {
            "on_error": on_error, "target": supervised, "sparse": takes_sparse(wanted), "encoding": encoding,
        }  # fmt: skip
        tables = EncodedTables(declared, data, **how)
        held_out = EncodedTables(declared, test, **how, keys=(), clip=False) if test else None
        others = held_out.all() if held_out else None  # what is wrong with it is better said before the fit
        _note_choices(report, declared, kind if model is None else None, tables)
        with _whole_or_not(report, output):
            fitted, seconds, training = _ingested(wanted, tables, output, sign_with, _bars(quiet, json))
        with fitted, _whole_or_not(report, output):
            report_counts(report, tables)
            _summarize(report, fitted, kind, output, seconds, training)
            if held_out is not None and others is not None:
                report.data["test"] = show_scores(report, "On held-out records", fitted, [others])
                report_counts(report, held_out, "test_data")
        what = "--subject NAME" if declared.subject else "--id ID" if declared.id else "--number N"
        if supervised:
            report.say(f"Next: expunge evaluate {output} test.csv; expunge unlearn {output} {what}")
        else:
            report.say(f"Next: expunge predict {output} {data[0]}; expunge unlearn {output} {what}")


def _kind_for(declared: Any) -> Kind:
    """Return what to fit by default."""
    from expunge.tables.schema import Amount

    if declared.target is None:
        return Kind.kmeans
    return Kind.huber if isinstance(declared.target, Amount) else Kind.logistic


def _ingested(
    wanted: Any, tables: Any, output: Path, sign_with: Path | None, bars: bool | None
) -> tuple[Any, float, float]:
    """Fit a model into a new file; return it, and how many seconds all of it and the training took."""
    import expunge
    from expunge.base.progress import progress_bars

    began = time.perf_counter()
    with progress_bars(bars) as show:
        clock = Clock(show)
        fitted = expunge.ingest(wanted, tables, output, progress=clock.show, sign_with=sign_with)
    return fitted, time.perf_counter() - began, clock.seconds("training")


@contextmanager
def _whole_or_not(report: Report, output: Path) -> Iterator[None]:
    """If Ctrl-C comes when the model's file is there, say so."""
    try:
        yield
    except KeyboardInterrupt:
        if output.exists():
            report.interrupted = f"interrupted, but {output} is complete: only the summary is missing."
        raise


def _note_choices(report: Report, declared: Any, chosen: Kind | None, tables: Any) -> None:
    """Say what was chosen without having been asked for."""
    if not declared.confirmed:
        report.note(UNCONFIRMED)
    if chosen is Kind.kmeans:
        report.note("the schema has no target, so this fits k-means; say so with --model kmeans, or declare a target.")
    if declared.id is None:
        report.note(
            "there is no id column, so records are numbered 0, 1, 2, … as they come (skipped ones are not counted). "
            "`expunge unlearn --number 0` deletes the first."
        )
    if len(tables.tables) > 1:
        report.note("reading " + ", ".join(str(table.path) for table in tables.tables) + ".")
    known = {*declared.named, *declared.ignored}
    strange = [name for name in tables.tables[0].names if name not in known]
    if strange:
        listed = ", ".join(strange[:8]) + (f" and {len(strange) - 8} more" if len(strange) > 8 else "")
        report.note(f"columns that are not in the schema are ignored: {listed}.")


class Clock:
    """Shows progress, and notes how long each stage takes."""

    def __init__(self, show: Any) -> None:
        self._show = show
        self._times: dict[str, tuple[float, float]] = {}

    def show(self, stage: str, done: int, total: int | None) -> None:
        """Show how far a stage is."""
        now = time.perf_counter()
        self._times[stage] = (self._times.get(stage, (now, now))[0], now)
        self._show(stage, done, total)

    def seconds(self, stage: str) -> float:
        """Return how long a stage took, from the first word of it to the last."""
        first, last = self._times.get(stage, (0.0, 0.0))
        return last - first


def _bars(quiet: bool, json: bool) -> bool | None:
    return False if quiet or json else None


def report_counts(report: Report, tables: Any, name: str = "data") -> None:
    """Say what was skipped, clipped, unknown and missing."""
    counts, broken = tables.counts, tables.broken
    report.data[name] = {**counts.to_dict(), "skipped": broken.count}
    if broken.count:
        report.note(f"{counted(broken.count, 'broken record')} {were(broken.count)} skipped: {broken}.")
    for kind, meaning in (
        ("clipped", "outside the declared range, and clipped to it"),
        ("unknown", 'none of the declared values, and count as "other"'),
        ("missing", "missing"),
    ):
        found = {column: times for column, times in getattr(counts, kind).items() if times}
        if found:
            listed = ", ".join(
                f"{column} {times:,}" for column, times in sorted(found.items(), key=lambda x: -x[1])[:8]
            )
            more = f" and {len(found) - 8} columns more" if len(found) > 8 else ""
            report.note(f"of {counts.rows:,} records, values were {meaning}: {listed}{more}.")


def _sync_seconds(folder: Path) -> float:
    """Return how long the disk takes to have something for sure."""
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(3):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - began) / 3


def _summarize(report: Report, model: Any, kind: Kind, path: Path, seconds: float, training: float) -> None:
    """Print what came of a fit."""
    import numpy as np

    plan = model.plan_
    rho, sigma = plan.rho, plan.sigma
    ids = model.ids_
    some = np.random.default_rng().choice(ids, min(SAMPLE, len(ids)), replace=False)
    began = time.perf_counter()
    typical = float(f"{model.replay_probability(some).mean():.2g}")  # more digits would tell the state
    look = (time.perf_counter() - began) / len(some)
    kept = look + SYNCS * _sync_seconds(path.parent)
    cost = kept + typical * training / 2.0
    bytes_ = path.stat().st_size
    report.data |= {
        "model": str(path), "kind": str(kind), "records": model.n_records_, "features": model.n_features_in_,
        "rho": rho, "sigma": sigma, "replay_probability": {"worst": plan.worst_case(), "typical": typical},
        "seconds": {"fit": seconds, "training": training, "deletion": cost}, "bytes": bytes_,
        "schema_confirmed": model.schema_.confirmed,
    }  # fmt: skip
    planned, worst = f"{percent(typical)} typically ({percent(rho)} planned)", f"{percent(rho)} at worst"
    replays = planned if plan.plans_share else f"{worst}, {percent(typical)} typically"
    report.facts(
        f"{path}: {kind}",
        {
            "records": f"{model.n_records_:,}",
            "features": f"{model.n_features_in_:,}",
            "fitted in": duration(seconds) + (f", of which training {duration(training)}" if rho else ""),
            "a deletion replays": f"with probability {replays}" if rho else "never",
            "a deletion takes": f"about {duration(cost)}" + (", replays included" if rho else ""),
            "noise": "none" if sigma == 0.0 else f"σ = {sigma:.3g}",
            "size": size(bytes_),
        },
    )
