"""`expunge plan`: what a model will be like, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.base.wording import duration, percent, size
from expunge.cli.models import KINDS, SOLVERS, Kind, Solver, new_model
from expunge.cli.options import Clusters, Json, RecordsPerSubject, rho_or_auto, whole
from expunge.cli.output import Report, reporting


def plan(
    records: Annotated[Any, typer.Option(parser=whole, metavar="N", help="How many records; 2e6 is fine.")],
    features: Annotated[Any, typer.Option(parser=whole, metavar="D", help="How many columns, as the model sees them.")],
    rho: Annotated[
        Any,
        typer.Option(parser=rho_or_auto, metavar="P|auto", help="The largest probability that a deletion replays."),
    ] = "auto",
    model: Annotated[Kind, typer.Option(metavar=KINDS, help="What to fit.")] = Kind.logistic,
    solver: Annotated[Solver, typer.Option(metavar=SOLVERS, help="How to fit a linear model.")] = Solver.auto,
    classes: Annotated[int, typer.Option(metavar="K", help="How many classes a classifier has.")] = 2,
    clusters: Clusters = None,
    records_per_subject: RecordsPerSubject = 1,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long to measure this machine.")] = 1.0,
    json: Json = False,
) -> None:
    """Estimate a model before training: noise, replays, memory, seconds.

    It trains only small problems, for about a second, to see how fast this
    machine is. It also says when no noise (ρ = 1) is the better choice, and
    gives the paper's figures for the same problem.
    """
    with reporting(json) as report:
        from expunge.audit.forecast import forecast

        wanted = new_model(
            model, rho=rho, clusters=clusters, solver=solver, records_per_subject=records_per_subject,
            features=features, classes=classes,
        )  # fmt: skip
        found = forecast(wanted, records, features, classes=classes, seconds=seconds, bits=32, folder=Path())
        report.data = found.to_dict()
        _show(report, found)


def _show(report: Report, found: Any) -> None:
    noise = "none" if found.sigma == 0.0 else f"σ = {found.sigma:.3g}"
    report.facts(
        f"{found.model}, {found.records:,} records of {found.features:,} features",
        {
            "ρ": f"{found.rho:.3g} (auto would be {found.automatic_rho:.3g})",
            "noise": noise,
            "a deletion replays": f"with probability {percent(found.worst_case)} at worst, "
            f"{percent(found.typical.replay_probability)} typically",
            "memory": f"{size(found.memory_bytes)}, of which {size(found.transcript_bytes)} in addition to the records",
            "file": size(found.file_bytes),
        },
    )
    times = (
        ("in memory", found.in_memory), ("in a file", found.in_file), ("in memory, ρ = 1", found.without_noise),
        ("in a file, ρ = 1", found.without_noise_in_file),
    )  # fmt: skip
    report.table(
        "seconds on this machine",
        ("", "fit", "kept", "replayed", "on average"),
        [
            (name, *(duration(getattr(one, what)) for what in ("fit", "kept", "replayed", "deletion")))
            for name, one in times
        ],
        right="fit kept replayed average",
    )
    if found.paper is not None:
        ratio = "" if found.paper.ratio is None else f", {found.paper.ratio:,.0f} times ours"
        report.facts(
            "the paper's figures",
            {
                "noise": f"σ = {found.paper.sigma:,.4g}{ratio}",
                "a deletion replays": f"with probability {percent(min(1.0, found.paper.replay_bound))} at worst",
                "from": found.paper.source,
            },
        )
    for line in found.advice:
        report.say(line)
    report.say(found.uncertainty, "dim")
