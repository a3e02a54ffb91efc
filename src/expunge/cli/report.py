"""`expunge audit`: everything that can be checked, in one report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.models import has_target, opened, schema_of
from expunge.cli.names import keys_of, listed
from expunge.cli.options import (
    Ids,
    IdsFile,
    Json,
    OnErrorOption,
    PublicKey,
    Quiet,
    Store,
    Subjects,
    SubjectsFile,
    check_output,
)
from expunge.cli.output import FOUND, reporting
from expunge.errors import CorruptStore


def _verdict(checked: Any) -> str:
    if not checked.ok:
        return "PROBLEMS WERE FOUND"
    attention = len(checked.with_result("attention"))
    return "nothing wrong was found" + (f", {attention} need attention" if attention else "")


def audit(
    model: Store,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The report; by default MODEL.html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the report if it is there.")] = False,
    test: Annotated[list[Path] | None, typer.Option(metavar="DATA", help="Records to score the model on.")] = None,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    public_key: PublicKey = None,
    noted: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head hash noted earlier, which must still be there.")
    ] = None,
    runs: Annotated[
        int, typer.Option(metavar="N", help="How often to rehearse a deletion, to see if it is exact.")
    ] = 3000,
    on_error: OnErrorOption = "stop",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check all that can be checked, and write a report (HTML).

    The state against the records, bit for bit; the chain of receipts; the bytes
    of ids or subjects that you give (they are not repeated in the report); a
    rehearsal of deletions with the model's own plan, with a control that must
    fail. The report is one HTML file with plots, which opens offline. Nothing
    in it tells how a request went.
    """
    with reporting(json) as report:
        from expunge.auditing import audit as audited
        from expunge.auditing import write_report
        from expunge.schema import EncodedTables

        path = output or model.with_name(model.name + ".html")
        check_output(path, force)
        ids, subjects = listed("id", id, ids_file), listed("subject", subject, subjects_file)
        records = None
        named = {}
        if test or ids is not None or subjects is not None:
            with suppress(CorruptStore), opened(model, read_only=True) as found:  # which the report says, then
                named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
                if test:
                    target = has_target(found)
                    tables = EncodedTables(
                        schema_of(found, model), test, on_error=on_error, target=target, keys=(), clip=False
                    )
                    block = tables.all()
                    records = (block.X.astype(float), block.y)
        checked = audited(
            model, **named, test=records, public_key=public_key, noted=noted, runs=runs,
            progress=False if quiet or json else None,
        )  # fmt: skip
        write_report(checked, path)
        report.data = {**checked.to_dict(), "report": str(path)}
        report.table(
            f"{model}: {_verdict(checked)}",
            ("check", "result", "finding"),
            [(one.name, one.result, one.finding) for one in checked.checks],
        )
        for check in checked.checks:
            for problem in check.problems:
                report.say(f"- {check.name}: {problem}")
        report.say(f"The report is {path}.")
        if not checked.ok:
            report.finish()
            raise typer.Exit(FOUND)
