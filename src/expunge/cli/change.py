"""`expunge unlearn`, `insert`, `replace` and `replan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.models import has_target, opened, schema_of
from expunge.cli.names import keys_of, listed
from expunge.cli.options import (
    Ids,
    IdsFile,
    IgnoreMissing,
    Json,
    OnErrorOption,
    SignWith,
    Store,
    Subjects,
    SubjectsFile,
    Tables,
    Unsigned,
    Wait,
    signing,
    whole,
)
from expunge.cli.output import INTERRUPTED, STORE, Report, reporting
from expunge.cli.train import report_counts
from expunge.errors import BadRecords, BusyStore, LogNotEmptied
from expunge.wording import duration

ShowOutcome = Annotated[
    bool, typer.Option("--outcome", help="Also say how it went. It depends on the record: do not keep it.")
]


def unlearn(
    model: Store,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    number: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="A record's number, if no column names records: 0 is the first that was read."),
    ] = None,
    ignore_missing: IgnoreMissing = False,
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Erase people or single records, exactly, and print the receipt.

    Afterwards the whole file is as if they had never been in it. All that are
    named are erased in one request: all of them, or, if one is unknown, none.
    The request is on disk before it is begun, so that a crash or Ctrl-C can
    neither lose it nor do it twice.

    Do not choose whom to erase, or when, by looking at the model or at how
    earlier requests went: the guarantee is for requests that do not.
    """
    with reporting(json) as report:
        from expunge.records import Delete

        key = signing(sign_with, unsigned)
        ids, subjects = listed("id", id, ids_file), listed("subject", subject, subjects_file)
        given = [one for one in (ids, subjects, number) if one is not None]
        if len(given) != 1:
            said = "nobody is named" if not given else "too much at once"
            raise BadRecords(
                f"--id: {said}; name records (--id, --ids-file), people (--subject, --subjects-file), or, where no "
                "column names records, their numbers (--number)."
            )
        with opened(model, wait=wait, sign_with=key) as found:
            _check_numbered(found, ids, number)
            missing = "ignore" if ignore_missing else "error"
            named = Delete(number or keys_of(found, "id", ids), keys_of(found, "subject", subjects), missing)  # type: ignore[arg-type]
            _serve(report, found, model, named, outcome, key)


def _check_numbered(model: Any, ids: list[str] | None, numbers: list[int] | None) -> None:
    """Raise if records that have names are meant by numbers, or the other way round."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        return
    if ids is not None and schema.id is None:
        raise BadRecords(
            "--id: the schema has no column that names records. They are numbered from 0 in the order in which they "
            "were read: name them by --number, or people by --subject, if you know that you mean these."
        )
    if numbers is not None and schema.id is not None:
        raise BadRecords(f"--number: records are named by the column {schema.id.name!r}; name them by --id.")


def insert(
    model: Store,
    data: Tables,
    on_error: OnErrorOption = "stop",
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Add records, as if they had been there from the start.

    All of them are added in one request, or, if an id is taken, none.
    """
    with reporting(json) as report:
        from expunge.records import Insert

        key = signing(sign_with, unsigned)
        with opened(model, wait=wait, sign_with=key) as found:
            columns, block = _encoded(report, found, model, data, on_error)
            _serve(report, found, model, Insert(columns, block.ids, block.subjects), outcome, key)


def replace(
    model: Store,
    data: Tables,
    on_error: OnErrorOption = "stop",
    ignore_missing: IgnoreMissing = False,
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Correct records: those of tables replace those with the same ids.

    Afterwards all is as if the corrected ones had always been there (GDPR
    Art. 16). All are corrected in one request, or, if an id is unknown, none.
    """
    with reporting(json) as report:
        from expunge.records import Replace

        key = signing(sign_with, unsigned)
        with opened(model, wait=wait, sign_with=key) as found:
            columns, block = _encoded(report, found, model, data, on_error)
            if block.ids is None:
                raise BadRecords(
                    "ids: the schema has no column that names records, so that none can be told from another; unlearn "
                    "it by its number, and insert the corrected one."
                )
            _check_owners(found, block)
            missing = "ignore" if ignore_missing else "error"
            _serve(report, found, model, Replace(columns, block.ids, missing=missing), outcome, key)  # type: ignore[arg-type]


def replan(
    model: Store,
    expected_records: Annotated[
        Any, typer.Option(parser=whole, metavar="N", help="How many records there will be; by default, as now.")
    ] = None,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Fit anew, with a plan for as many records as there are now.

    Do it when a note says that the plan has been outgrown, and for no other
    reason: to fit anew because a model turned out badly is a bias.
    """
    with reporting(json) as report:
        with opened(model, wait=wait) as found:
            seconds = found.replan(expected_records).seconds
            report.data = {"records": found.n_records_, "size_class": list(found.plan_.size_class)}
            low, high = found.plan_.size_class
        report.say(f"{model} was fitted anew in {duration(seconds)}; the plan is for {low:,} to {high:,} records.")


# --- parts --------------------------------------------------------------------------------------------


def _check_owners(model: Any, block: Any) -> None:
    """Raise if a correction says that a record is someone else's: that would have to be moved to another place."""
    if block.subjects is None:
        return
    there = set(model.ids_.tolist())
    for one, subject in zip(block.ids, block.subjects, strict=True):
        if one.item() in there and one not in model._records.ids_of([subject], "ignore"):
            raise BadRecords(
                f"column {model.schema_.subject.name!r}: record {one.item()!r} is another subject's; unlearn it, and "
                "insert it anew."
            )


def _encoded(report: Report, model: Any, path: Path, data: list[Path], on_error: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the columns of the records of some tables, and all that is known of them."""
    import numpy as np

    from expunge.schema import EncodedTables

    tables = EncodedTables(schema_of(model, path), data, on_error=on_error, target=has_target(model))
    block = tables.all()
    report_counts(report, tables)
    X = block.X.astype(np.float64)
    return (X, block.y) if has_target(model) else (X,), block


def _serve(report: Report, model: Any, path: Path, request: Any, show_outcome: bool, sign_with: Any) -> None:
    """Serve a request and print its receipt; once begun, it is finished even after Ctrl-C."""
    before = {receipt["request"] for receipt in model.export_receipts()["receipts"]}
    prepared = model.prepare_request(request)
    outcome = None
    nothing_begun, report.interrupted = report.interrupted, "interrupted; `expunge verify` tells whether it was begun."
    try:
        try:
            outcome = model.serve_request(prepared)
        except LogNotEmptied as error:
            outcome = error.outcome
            report.note(str(error))
        _acknowledge(report, model, prepared, before)
        report.interrupted = "interrupted; but the request is done: `expunge receipts` lists its receipt."
    except KeyboardInterrupt:
        if not model.has_begun(prepared):
            report.interrupted = nothing_begun
            raise
        report.note(
            "Ctrl-C came when the request had begun, so it is being finished: to stop between the coin and the deed "
            "would be a bias."
        )
        try:
            model.close()
            with opened(path, sign_with=sign_with) as again:
                _acknowledge(report, again, prepared, before)
        except KeyboardInterrupt:
            report.fail(
                INTERRUPTED,
                "interrupted again; the next command that may write, such as `expunge verify`, finishes it.",
                "Ctrl-C",
            )
        report.finish()
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if not getattr(error, "refused", False) and model.has_begun(prepared):
            report.note(
                "the request had begun: the next command that may write, such as `expunge verify`, finishes it: do not "
                "repeat it."
            )
            if isinstance(error, BusyStore):  # to try again would be wrong
                report.fail(STORE, str(error), type(error).__name__)
        raise
    if show_outcome:
        _show_outcome(report, outcome)


def _acknowledge(report: Report, model: Any, request: Any, before: set[str]) -> None:
    """Print the receipt of a request; others may have asked for something meanwhile."""
    kind = type(request).__name__.lower()
    named = {} if kind == "insert" else {"ids": request.ids, "subjects": request.subjects}
    new = [one for one in model.export_receipts(**named)["receipts"] if one["request"] not in before]
    receipts = [one for one in new if one["kind"] == kind]
    report.data["receipts"] = receipts
    report.data["records"] = model.n_records_
    if not receipts:
        report.say(f"There was nothing to do; {model.n_records_:,} records.")
        return
    show_receipts(report, "Done, and on disk", receipts)
    absent = 0 if request.ids is None or kind == "insert" else len(set(request.ids.tolist())) - receipts[-1]["removed"]
    if absent:
        report.note(f"{absent:,} of those named were not there, and were passed over.")
    elif kind == "delete" and not receipts[-1]["removed"]:
        report.note("none of those named was there: nothing was erased.")
    report.say(f"{model.n_records_:,} records are in the model now.")


def show_receipts(report: Report, title: str, receipts: list[dict[str, Any]]) -> None:
    """Print receipts."""
    rows = [
        (
            one["day"], one["kind"], f"{one['removed']:,}", f"{one['added']:,}", one["request"][:11],
            one["hash"][:11], "yes" if one["signature"] else "no",
        )
        for one in receipts
    ]  # fmt: skip
    names = ("day (UTC)", "request", "removed", "added", "number", "hash", "signed")
    report.table(title, names, rows, right="removed added")


def _show_outcome(report: Report, outcome: Any) -> None:
    said = "kept the model as it was" if outcome.kept else f"replayed the training from step {outcome.replayed_from}"
    report.note(
        f"outcome, for you only (it depends on the record, so do not keep it): the request {said}, in "
        f"{duration(outcome.seconds)}."
    )
    report.data["outcome"] = {"kept": outcome.kept, "seconds": outcome.seconds, "evaluations": outcome.evaluations}
