"""`expunge audit`: everything that can be checked, in one report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.base.errors import CorruptStore
from expunge.cli.models import has_target, opened, schema_of
from expunge.cli.names import keys_of, listed
from expunge.cli.options import (
    Encoding,
    Ids,
    IdsFile,
    Json,
    Noted,
    OnErrorOption,
    PublicKey,
    Quiet,
    Store,
    Subjects,
    SubjectsFile,
    check_output,
)
from expunge.cli.output import FOUND, Report, reporting


def _verdict(checked: Any) -> str:
    if not checked.ok:
        return "PROBLEMS WERE FOUND"
    attention = len(checked.with_result("attention"))
    return "no problem was found" + (
        f", {attention} {'needs' if attention == 1 else 'need'} attention" if attention else ""
    )


def audit(
    model: Store,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The report; by default MODEL.html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the report if it exists.")] = False,
    test: Annotated[list[Path] | None, typer.Option(metavar="DATA", help="Records to score the model on.")] = None,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    public_key: PublicKey = None,
    noted: Noted = None,
    runs: Annotated[
        int, typer.Option(metavar="N", help="How often to rehearse a deletion to test that it is exact.")
    ] = 1500,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check everything that can be checked, and write an HTML report.

    It compares the state with the records, bit for bit; checks the chain of receipts; searches all bytes for ids or
    subjects that you give (the report does not repeat them); and rehearses deletions with the model's own plan and
    fresh coins, next to a control that must fail. The report is one HTML file with plots, which opens offline. It does
    not say how any request went.
    """
    with reporting(json) as report:
        from expunge.audit import audit as audited
        from expunge.audit import write_report

        path = output or model.with_name(model.name + ".html")
        check_output(path, force, [model, *(test or []), ids_file, subjects_file, public_key])
        read: dict[str, Any] = {"encoding": encoding, "models": [model]}
        ids, subjects = listed("id", id, ids_file, **read), listed("subject", subject, subjects_file, **read)
        named, records = _looked_up(model, ids, subjects, test, on_error, encoding)
        checked = audited(
            model, **named, test=records, public_key=public_key, noted=noted, runs=runs,
            progress=False if quiet or json else None,
        )  # fmt: skip
        write_report(checked, path)
        report.data = {**checked.to_dict(), "report": str(path)}
        _tell(report, checked, model, path)
        if not checked.ok:
            report.finish()
            raise typer.Exit(FOUND)


def _looked_up(
    model: Path, ids: Any, subjects: Any, test: list[Path] | None, on_error: OnErrorOption, encoding: Encoding
) -> tuple[dict[str, Any], Any]:
    """Return names as the model has them, and records to score it on; of a damaged file what could be had."""
    from expunge.models.ingest import takes_sparse
    from expunge.tables.schema import EncodedTables

    named: dict[str, Any] = {}
    records = None
    if test or ids is not None or subjects is not None:
        with suppress(CorruptStore), opened(model, read_only=True) as found:  # which the report says, then
            named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
            if test:
                tables = EncodedTables(
                    schema_of(found, model), test, on_error=on_error, target=has_target(found), keys=(), clip=False,
                    sparse=takes_sparse(found), encoding=encoding,
                )  # fmt: skip
                block = tables.all()
                records = (block.X.astype(float), block.y)
    return named, records


def _tell(report: Report, checked: Any, model: Path, path: Path) -> None:
    """Print what was found."""
    report.table(
        f"{model}: {_verdict(checked)}",
        ("check", "result", "finding"),
        [(one.name, one.result, one.finding) for one in checked.checks],
    )
    for check in checked.checks:
        for problem in check.problems:
            report.say(f"- {check.name}: {problem}")
    report.say(f"The report is {path}.")
