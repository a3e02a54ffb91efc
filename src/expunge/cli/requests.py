"""`expunge unlearn`, `insert`, `replace` and `replan`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from expunge.base.errors import BadRecords, BusyStore, ExpungeError, LogNotEmptied, StoreError, UnknownId
from expunge.base.wording import are, counted, duration, were
from expunge.cli.erasing import SHOWN, Target, check_known, check_models, check_ready, looked_up, named, rehearse
from expunge.cli.models import has_target, held, opened, schema_of
from expunge.cli.names import check_column, listed
from expunge.cli.options import (
    Column,
    Encoding,
    Ids,
    IdsFile,
    IgnoreMissing,
    Json,
    OnErrorOption,
    SignWith,
    Store,
    Stores,
    Subjects,
    SubjectsFile,
    Tables,
    Unsigned,
    Wait,
    signing,
    whole,
)
from expunge.cli.output import INTERRUPTED, PARTLY, Report, reporting
from expunge.cli.train import report_counts

ShowOutcome = Annotated[
    bool, typer.Option("--outcome", help="Also print the outcome. It depends on the record: do not store it.")
]


def unlearn(
    model: Stores,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    column: Column = None,
    encoding: Encoding = None,
    number: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="A record's number, if there is no id column: 0 is the first that was read."),
    ] = None,
    ignore_missing: IgnoreMissing = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say who would be deleted and who is not found; change nothing.")
    ] = False,
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Delete people or single records, exactly, and print the receipt.

    Afterwards the model has exactly the distribution of one trained without
    them, and its files hold nothing of them. All are deleted in one request; if
    one is not found, nothing is deleted. The request is on disk before it is
    begun, so a crash or Ctrl-C can neither lose it nor repeat it.

    You may give several models. Each gets its own request and receipt. All are
    opened, and everybody is looked up, before the first is changed.

    Do not choose whom to delete, or when, by looking at the model or at how
    earlier requests went: the guarantee does not cover such requests.
    """
    with reporting(json) as report, ExitStack() as stack:
        key = signing(sign_with, unsigned)
        check_column(column, ids_file, subjects_file)
        how: dict[str, Any] = {"column": column, "encoding": encoding, "models": model}
        ids, subjects = listed("id", id, ids_file, **how), listed("subject", subject, subjects_file, **how)
        wanted = named(ids, subjects, number, ignore_missing)
        check_models(model)
        if dry_run:
            targets = looked_up(stack, model, wanted, read_only=True, wait=wait)
            rehearse(report, targets, wanted)
            check_known(targets, wanted)
            return
        targets = looked_up(stack, model, wanted, wait=wait, sign_with=key)
        check_known(targets, wanted)
        requests = [one.request(wanted) for one in targets]
        check_ready(targets)
        if len(targets) > 1:
            _erase_each(report, targets, requests, outcome, key)
        elif not _erased(report, targets[0], requests[0], outcome, key):
            _stop(report)


def insert(
    model: Store,
    data: Tables,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Add records, as if they had been in the data from the start.

    All are added in one request; if an id is already in the model, none is
    added. If a receipt shows that somebody among them was deleted before, a
    note gives the line.
    """
    with reporting(json) as report:
        from expunge.base.intake import Insert

        def ask(found: Any, columns: Any, block: Any) -> tuple[Insert, list[int]]:
            back = _erased_before(report, found, block, len(data) > 1)
            return Insert(columns, block.ids, block.subjects), back

        key = signing(sign_with, unsigned)
        _serve_tables(report, model, data, ask, on_error, encoding, outcome, key, wait)


def replace(
    model: Store,
    data: Tables,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    ignore_missing: IgnoreMissing = False,
    outcome: ShowOutcome = False,
    sign_with: SignWith = None,
    unsigned: Unsigned = False,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Correct records: new ones replace those with the same ids.

    Afterwards the model has exactly the distribution of one trained on the
    corrected records (GDPR Art. 16). All are corrected in one request; if an id
    is not found, none is.
    """
    with reporting(json) as report:
        from expunge.base.intake import Replace

        def ask(found: Any, columns: Any, block: Any) -> tuple[Replace, list[int]]:
            if block.ids is None:
                raise BadRecords(
                    "ids: the schema has no id column, so the records to replace cannot be found. Delete the old "
                    "record with `expunge unlearn --number`, and insert the corrected one."
                )
            if not ignore_missing:
                _check_there(found, block, len(data) > 1)
            _check_owners(found, block)
            return Replace(columns, block.ids, missing="ignore" if ignore_missing else "error"), []

        key = signing(sign_with, unsigned)
        _serve_tables(report, model, data, ask, on_error, encoding, outcome, key, wait)


def replan(
    model: Store,
    expected_records: Annotated[
        Any, typer.Option(parser=whole, metavar="N", help="How many records there will be; by default as many as now.")
    ] = None,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Refit, with a plan for the current number of records.

    Do it only when a note says that the number of records has outgrown the
    plan. Refitting because a model turned out badly is a bias.
    """
    with reporting(json) as report:
        with opened(model, wait=wait) as found:
            seconds = found.replan(expected_records).seconds
            report.data = {"records": found.n_records_, "size_class": list(found.plan_.size_class)}
            low, high = found.plan_.size_class
        report.say(f"{model} was refitted in {duration(seconds)}; the plan is for {low:,} to {high:,} records.")


# --- parts --------------------------------------------------------------------------------------------


def _serve_tables(
    report: Report, path: Path, data: list[Path], ask: Callable[[Any, Any, Any], tuple[Any, list[int]]],
    on_error: Any, encoding: str | None, show_outcome: bool, sign_with: Any, wait: float,
) -> None:  # fmt: skip
    """Read tables for a model, and serve the request that ``ask`` makes of their columns, if it raises nothing.

    With the request it gives the places of records that are of somebody who was erased.
    """
    with opened(path, wait=wait, sign_with=sign_with) as model:
        columns, block = _encoded(report, model, path, data, on_error, encoding)
        request, erased = ask(model, columns, block)
        whole = _served(report, model, path, model.prepare_request(request), show_outcome, sign_with)
        _note_erased(report, erased, len(data) > 1)
        if not whole:
            _stop(report)


def _check_there(model: Any, block: Any, several: bool) -> None:
    """Raise if a record to correct is not in the model, and say where it is in the table."""
    with model._owner.lock:
        there = model._records.has(block.ids)
    missing = [place for place, found in enumerate(there) if not found]
    if missing:
        places = [f"record {place + 1}" if several else f"line {block.lines[place]}" for place in missing]
        shown = ", ".join(places[:SHOWN]) + f" and {len(places) - SHOWN:,} more" * (len(places) > SHOWN)
        raise UnknownId(
            f"{shown}: id not found in the model. `expunge insert` adds new records; --ignore-missing skips them. "
            "Nothing was replaced."
        )


def _check_owners(model: Any, block: Any) -> None:
    """Raise if a correction says that a record is someone else's: that would have to be moved to another place."""
    if block.subjects is None:
        return
    there = set(model.ids_.tolist())
    for one, subject in zip(block.ids, block.subjects, strict=True):
        if one.item() in there and one not in model._records.ids_of([subject], "ignore"):
            raise BadRecords(
                f"column {model.schema_.subject.name!r}: record {one.item()!r} belongs to another subject; delete it, "
                "and insert it again."
            )


def _encoded(
    report: Report, model: Any, path: Path, data: list[Path], on_error: Any, encoding: str | None
) -> tuple[tuple[Any, ...], Any]:
    """Return the columns of the records of some tables, and all that is known of them."""
    import numpy as np

    from expunge.models.ingest import takes_sparse
    from expunge.tables.schema import EncodedTables

    tables = EncodedTables(
        schema_of(model, path), data, on_error=on_error, target=has_target(model), sparse=takes_sparse(model),
        encoding=encoding,
    )  # fmt: skip
    block = tables.all()
    report_counts(report, tables)
    X = block.X.astype(np.float64)
    return (X, block.y) if has_target(model) else (X,), block


def _erased_before(report: Report, model: Any, block: Any, several: bool) -> list[int]:
    """Return the lines (for several tables, the numbers) of records of somebody who was deleted before."""
    import numpy as np

    names = {role: getattr(block, role) for role in ("ids", "subjects") if getattr(block, role) is not None}
    back = np.zeros(len(block.lines), dtype=bool)
    for erased in model._erased(**names) if names else ():
        back |= erased
    places: list[int] = (1 + np.arange(len(back)) if several else block.lines)[back].tolist()
    report.data["erased_before"] = places
    return places


def _note_erased(report: Report, places: list[int], several: bool) -> None:
    """Say which of the inserted records are of somebody who was deleted before."""
    if places:
        shown = ", ".join(map(str, places[:SHOWN])) + (f" and {len(places) - SHOWN:,} more" * (len(places) > SHOWN))
        where = "counting the records read, number" if several else "see line" + "s" * (len(places) > 1)
        report.note(
            f"{counted(len(places), 'record')} {are(len(places))} of somebody who was deleted before, according to the "
            f"receipts: {where} {shown}. They are in the model now. If this is not intended, delete them again with "
            "`expunge unlearn`."
        )


def _stop(report: Report) -> NoReturn:
    """Exit after Ctrl-C, with what was finished all the same."""
    report.finish()
    raise typer.Exit(INTERRUPTED)


def _erased(report: Report, target: Target, prepared: Any, show_outcome: bool, sign_with: Any) -> bool:
    """Serve a request to delete; an error names nobody, since a line of a file may be a whole record."""
    try:
        return _served(report, target.model, target.path, prepared, show_outcome, sign_with)
    except UnknownId:
        raise UnknownId(
            f"{target.path}: another process has deleted some of these in the meantime; --dry-run shows which. Nothing "
            "was deleted here."
        ) from None


def _erase_each(report: Report, targets: list[Target], requests: list[Any], outcome: bool, sign_with: Any) -> None:
    """Serve a request to each of several models; whatever happens, say which are done."""
    states: list[dict[str, Any]] = [{"model": str(one.path), "status": "not done"} for one in targets]
    report.before = {"models": states}
    usual, whole, state, asked = report.interrupted, True, states[0], None
    try:
        for one, state, prepared in zip(targets, states, requests, strict=True):
            report.interrupted, asked = usual, (one.model, prepared)
            report.say(f"{one.path}:", "bold")
            whole = _erased(report, one, prepared, outcome, sign_with)
            state |= {"status": "done", **report.data}
            report.data, asked = {}, None
            if not whole:
                break
    except BaseException as error:
        if asked is not None and _has_begun(*asked):
            state["status"] = "begun"
        if isinstance(error, (ExpungeError, OSError)) and any(one["status"] != "not done" for one in states):
            report.fail(PARTLY, f"{error} {_standing(states)}", type(error).__name__)
        report.note(_standing(states))
        raise
    if not whole:
        report.note(_standing(states))
        _stop(report)


def _has_begun(model: Any, prepared: Any) -> bool:
    try:
        return bool(model.has_begun(prepared))
    except StoreError:  # it is closed, which it is only when the request had begun
        return True


def _standing(states: list[dict[str, Any]]) -> str:
    """Say which models are done, and which are not."""
    said = {
        "done": "Done",
        "begun": "Begun, and finished by the next command that may write there, such as `expunge verify`",
        "not done": "Not done",
    }
    parts = [(said[status], [one["model"] for one in states if one["status"] == status]) for status in said]
    return " ".join(f"{what}: {', '.join(which)}." for what, which in parts if which)


def _served(report: Report, model: Any, path: Path, prepared: Any, show_outcome: bool, sign_with: Any) -> bool:
    """Serve a request and print its receipt; once begun, it is finished even after Ctrl-C, of which False tells."""
    outcome = None
    nothing_begun, report.interrupted = report.interrupted, "interrupted; `expunge verify` says whether it was begun."
    try:
        try:
            outcome = model.serve_request(prepared)
        except LogNotEmptied as error:
            outcome = error.outcome
            report.note(str(error))
        _acknowledge(report, model, prepared, model._store.asked(prepared))
        report.interrupted = "interrupted, but the request is done: `expunge receipts` lists its receipt."
    except KeyboardInterrupt:
        if not model.has_begun(prepared):
            report.interrupted = nothing_begun
            raise
        report.note(
            "Ctrl-C came after the request had started, so it is being completed; stopping half-way would bias "
            "the model."
        )
        report.interrupted = (
            "interrupted again; the next command that may write, such as `expunge verify`, finishes it."
        )
        asked = model._store.asked(prepared)
        model.close()
        with held(path, sign_with=sign_with) as again:
            _acknowledge(report, again, prepared, asked)
        return False
    except Exception as error:
        if not getattr(error, "refused", False) and model.has_begun(prepared):
            report.note(
                "the request had begun. The next command that may write, such as `expunge verify`, finishes it. Do not "
                "repeat it."
            )
            if isinstance(error, BusyStore):  # to try again would be wrong
                raise StoreError(str(error)) from error
        raise
    if show_outcome:
        _show_outcome(report, outcome)
    return True


def _acknowledge(report: Report, model: Any, request: Any, asked: tuple[str, int]) -> None:
    """Print the receipt of a request that was recorded under a number; of all receipts, only this one is read."""
    kind, receipt = type(request).__name__.lower(), model._store.receipt(*asked)
    report.data["receipts"] = [] if receipt is None else [receipt.to_dict()]
    report.data["records"] = records = model.n_records_
    if receipt is None or (kind != "insert" and not receipt.digests):
        report.say(f"There was nothing to do; {counted(records, 'record')}.")
        return
    if kind != "insert" and not receipt.removed:
        report.say(f"Nothing was {kind}d: none of those given is in the model.", "bold")
        show_receipts(report, "The receipt only says that the request was served", report.data["receipts"])
    else:
        show_receipts(report, "Done, and on disk", report.data["receipts"])
        absent = 0 if request.ids is None or kind == "insert" else len(set(request.ids.tolist())) - receipt.removed
        if absent:
            report.note(f"{absent:,} of those given {were(absent)} not found, and {were(absent)} skipped.")
    report.say(f"{counted(records, 'record')} {are(records)} in the model now.")


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
        f"outcome, for you only (it depends on the record, so do not store it): the request {said}, in "
        f"{duration(outcome.seconds)}."
    )
    report.data["outcome"] = {"kept": outcome.kept, "seconds": outcome.seconds, "evaluations": outcome.evaluations}
