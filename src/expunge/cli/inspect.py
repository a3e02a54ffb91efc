"""`expunge info`, `receipts`, `verify` and `scan`."""

from __future__ import annotations

import json as json_
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.wording import counted, percent, size, were
from expunge.cli.models import held, opened, schema_of
from expunge.cli.names import Names, keys_of, listed
from expunge.cli.options import (
    Column,
    Encoding,
    Force,
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
    Wait,
    check_output,
    written,
)
from expunge.cli.output import FOUND, Report, reporting
from expunge.cli.phrases import at_the_prompt
from expunge.cli.requests import show_receipts

_STATUSES = {
    "live": "IN THE MODEL, and so in its files (of a row: one like it)",
    "left": "NOT in the model, but its BYTES ARE LEFT in the files",
    "waiting": "IN A REQUEST that is recorded and NOT FINISHED; open the model for writing once",
    "not checked": "not in the model; NOT CHECKED in leftover files (too short to search for)",
    "unclear": "not in the model; the same bytes belong to something else in it",
    "absent": "in no id, subject, index or waiting request; too short to search for byte by byte",
    "gone": "not in the model, and in no byte of its files",
}
"""What became of someone, in words; the worst first."""
_FOUND = ("live", "left", "waiting")
_DETAILS = ("solver", "schedule", "mechanism", "coupling", "selector", "steps", "epochs")
SHOWN = 20
"""How many receipts are shown."""

ModelOrExport = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model's file, or receipts that were exported (.json).")
]
Export = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Export them to this JSON file.")]
ExportSigner = Annotated[
    Path | None, typer.Option(metavar="KEY", help="Also sign the export as a whole, with this Ed25519 key.")
]
Rows = Annotated[
    list[Path] | None,
    typer.Option(metavar="DATA", help=("Tables whose rows to look for, encoded by the model's schema.")),
]


def info(
    model: Store,
    details: Annotated[
        bool, typer.Option("--details", help="Also show how it is trained: schedule, mechanism, coupling and so on.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what a model is: records, noise, schema, receipts."""
    with reporting(json) as report:
        with held(model, read_only=True) as found:
            plan, schema = found.plan_, getattr(found, "schema_", None)
            state = found._store.newest()
            low, high = plan.size_class
            said: dict[str, Any] = {
                "kind": found.kind, "records": found.n_records_, "features": found.n_features_in_,
                "size_class": [low, high], "bytes": model.stat().st_size, "receipts": state.receipts,
                "head": state.head, "store": state.store, "version": state.version,
            }  # fmt: skip
            fixed = {field.name for field in fields(plan)}
            said |= {n: getattr(plan, n) for n in ("rho", "sigma", "clusters", *_DETAILS) if n in fixed}
            said["rounding_error"] = plan.rounding_error
            if plan.plans_share:
                said |= {"sigma": plan.sigma, "rho_is_planned_share": True}
            if hasattr(found, "classes_"):
                said["classes"] = found.classes_.tolist()
            if schema is not None:
                roles = {role: getattr(schema, role) for role in ("id", "subject", "target")}
                said["schema"] = {
                    "confirmed": schema.confirmed, "columns": list(schema.named), "ignored": list(schema.ignored),
                    **{role: part and part.name for role, part in roles.items()},
                }  # fmt: skip
        report.data = said
        report.facts(str(model), _plain(said))
        if details and (trained := _detailed(said)):
            report.facts("How it is trained", trained)
        report.say(
            "Hash of the latest receipt. Store a copy elsewhere, and check it later with "
            "`expunge receipts --noted HASH`:"
        )
        report.say(said["head"])


def _plain(said: dict[str, Any]) -> dict[str, object]:
    """Return facts as people read them."""
    low, high = said["size_class"]
    facts: dict[str, object] = {
        "model": said["kind"],
        "records": f"{said['records']:,} (the plan is for {low:,} to {high:,})",
        "features": f"{said['features']:,}",
    }
    if "rho" in said:
        planned = f"{percent(said['rho'])} of random deletions, as planned"
        worst = f"with probability {percent(said['rho'])} at most"
        facts["a deletion replays"] = planned if said.get("rho_is_planned_share") else worst
        facts["noise"] = "none" if not said.get("sigma") else f"σ = {said['sigma']:.4g}"
    if said.get("clusters") is not None:
        facts["clusters"] = said["clusters"]
    if "classes" in said:
        facts["classes"] = ", ".join(map(str, said["classes"]))
    if "schema" in said:
        schema = said["schema"]
        facts["schema"] = "confirmed as public" if schema["confirmed"] else "drafted from data, NOT confirmed as public"
        facts |= {role: schema[role] for role in ("target", "id", "subject") if schema[role]}
    return {**facts, "size": size(said["bytes"]), "receipts": f"{said['receipts']:,}"}


def _detailed(said: dict[str, Any]) -> dict[str, object]:
    """Return what only who knows how the training works can read."""
    facts = {name: said[name] for name in _DETAILS if said.get(name) is not None}
    rounding = f"changes what is stored by at most {said['rounding_error']:.1g} (total variation)"
    return {**facts, **({"rounding": rounding} if said.get("sigma") else {})}


def receipts(
    model: ModelOrExport,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    column: Column = None,
    encoding: Encoding = None,
    output: Export = None,
    force: Force = False,
    sign_with: ExportSigner = None,
    public_key: PublicKey = None,
    noted: Noted = None,
    json: Json = False,
) -> None:
    """List, export and check the receipts of requests.

    Each has the hash of the one before, so that none can be altered, added or
    removed unnoticed. A receipt says that a request was done, never how. With
    --id or --subject only receipts that name them are shown (people are named
    by keyed digests; the key is beside the model's file).
    """
    with reporting(json) as report:
        if output is not None:
            check_output(output, force, [model, ids_file, subjects_file, sign_with, public_key])
        exported = model.suffix.lower() == ".json"
        how: dict[str, Any] = {"column": column, "encoding": encoding, "models": [] if exported else [model]}
        ids, subjects = listed("id", id, ids_file, **how), listed("subject", subject, subjects_file, **how)
        if output is not None and (ids is not None or subjects is not None):
            raise BadPlan(
                "-o: all receipts are exported together, since a part cannot be checked; leave out ids and subjects."
            )
        if exported and (ids is not None or subjects is not None):
            given = {"--id": id, "--ids-file": ids_file, "--subject": subject, "--subjects-file": subjects_file}
            flag = next(flag for flag, value in given.items() if value is not None)
            raise BadRecords(f"{flag}: exported receipts name people by digests only; give the model's own file.")
        against: dict[str, Any] = {"public_key": public_key, "noted": noted}
        if exported:
            chosen, checked = _read_and_checked(model, **against)
        else:
            chosen, checked = _chosen_and_checked(model, ids, subjects, sign_with, **against)
        if output is not None:
            with written(output) as file:
                json_.dump(chosen, file, indent=1)
        _show_chain(report, chosen, checked, output, exported and public_key is not None)
        if not report.data["receipts"] and (ids is not None or subjects is not None):
            report.say("No receipt matches. Records deleted with --subject are found by --subject, not by --id.")
        if not checked.ok:
            report.finish()
            raise typer.Exit(FOUND)


def _read_and_checked(file: Path, **against: Any) -> tuple[dict[str, Any], Any]:
    """Return receipts that were exported, and what was found when they were checked."""
    from expunge.store import check_receipts
    from expunge.store.chain import read_exported

    checked = check_receipts(file, **against)
    return read_exported(file) if checked.count or checked.ok else {"receipts": []}, checked


def _chosen_and_checked(
    model: Path, ids: Names | None, subjects: Names | None, sign_with: Path | None, **against: Any
) -> tuple[dict[str, Any], Any]:
    """Return a model's receipts (of those named only, if anyone is), and what was found when all were checked."""
    from expunge.store import check_receipts

    with held(model, read_only=True, sign_with=sign_with) as found:
        chosen = found.export_receipts()
        checked = check_receipts(chosen, **against)
        named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
        if any(one is not None for one in named.values()):
            chosen = found.export_receipts(**named)
    return chosen, checked


def _show_chain(report: Report, chosen: dict[str, Any], checked: Any, output: Path | None, exported: bool) -> None:
    found = [one for one in chosen["receipts"] if isinstance(one, dict) and "hash" in one]
    report.data = {
        "ok": checked.ok, "problems": list(checked.problems), "checked": checked.count, "signed": checked.signed,
        "receipts": found, "exported": None if output is None else str(output),
    }  # fmt: skip
    if found and checked.ok:
        show_receipts(report, f"the last {SHOWN}" if len(found) > SHOWN else "", found[-SHOWN:])
    report.say(
        f"{counted(checked.count, 'receipt')} in all, {checked.signed:,} of them signed: "
        + ("an unbroken chain." if checked.ok else _trouble(checked)),
        "" if checked.ok else "bold red",
    )
    for problem in checked.problems:
        report.say(f"- {at_the_prompt(problem)}")
    if exported and checked.ok and not checked.framed:
        report.say("Its version is not signed: it was exported without a key (receipts --sign-with).")
    if output is not None:
        report.say(f"Exported to {output}.")


def _trouble(checked: Any) -> str:
    only_unsigned = checked.unsigned and len(checked.problems) == 1
    return "in order, but NOT ALL are signed." if only_unsigned else "NOT as they were written."


def verify(
    model: Store,
    tolerance: Annotated[
        float, typer.Option(metavar="T", help="Relative difference to allow on another machine, such as 1e-9.")
    ] = 0.0,
    wait: Wait = 10.0,
    json: Json = False,
) -> None:
    """Compute the whole state again from the records, and compare bit for bit.

    This shows that these records and no others make up the model's sums and
    iterates, and that the noise is as planned.
    """
    with reporting(json) as report:
        from expunge.audit.integrity import coarsely

        if not 0.0 <= tolerance < 1.0:
            raise BadPlan(f"--tolerance {tolerance}: give a number from 0 to below 1, such as 1e-9.")
        with held(model, wait=wait) as found:
            checked = found.verify(tolerance=tolerance)
        noise_p = (
            None if checked.noise_p_value is None else coarsely(checked.noise_p_value)
        )  # more digits tell the state
        report.data = {
            "ok": checked.ok, "problems": list(checked.problems), "records": checked.records, "steps": checked.steps,
            "noise_p_value": noise_p,
        }  # fmt: skip
        noise = "" if noise_p is None else f" The noise is plausible (p = {noise_p:g})."
        how = f"within {tolerance:g}" if tolerance else "bit for bit"
        if checked.ok:
            records = counted(checked.records, "record")
            steps = "the only step agrees" if checked.steps == 1 else f"all {checked.steps:,} steps agree"
            report.say(f"{model}: {steps} with the {records}, {how}.{noise}")
            return
        report.say(f"{model} does NOT agree with its records; restore a backup:", "bold red")
        for problem in checked.problems:
            report.say(f"- {problem}")
        report.finish()
        raise typer.Exit(FOUND)


def scan(
    model: Store,
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    rows: Rows = None,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Look for people in a model, and in every byte of its files.

    It exits with 1 if anyone is found: in the model, in a waiting request, or
    in leftover bytes of the files. All ids, subjects and rows are read and
    compared. Bytes are searched too, but not for small numbers and short names:
    such bytes are everywhere.
    """
    with reporting(json) as report:
        from expunge.audit.people import look_for
        from expunge.base.progress import progress_bars

        read: dict[str, Any] = {"encoding": encoding, "models": [model]}
        ids, subjects = listed("id", id, ids_file, **read), listed("subject", subject, subjects_file, **read)
        if ids is None and subjects is None and not rows:
            raise BadRecords("--id: say whom to look for with --id, --ids-file, --subject, --subjects-file or --rows.")
        with (opened if rows else held)(model, read_only=True) as found:
            named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
            table = _encoded_rows(found, model, rows, on_error, encoding) if rows else None
            with progress_bars(False if quiet or json else None) as show:
                searched = look_for(found, model, show, rows=table, **named)
        _show_searched(report, model, searched)
        if not report.data["ok"]:
            report.finish()
            raise typer.Exit(FOUND)


def _encoded_rows(model: Any, path: Path, tables: list[Path], on_error: Any, encoding: str | None) -> Any:
    """Return the rows of tables, encoded as the model has its own."""
    from expunge.models.ingest import takes_sparse
    from expunge.tables.schema import EncodedTables

    encoded = EncodedTables(
        schema_of(model, path), tables, on_error=on_error, target=False, sparse=takes_sparse(model), encoding=encoding,
        keys=(),
    )  # fmt: skip
    return encoded.all().X


def _show_searched(report: Report, model: Path, searched: Sequence[Any]) -> None:
    """Print what became of those who were looked for, the worst first."""
    left = [one for one in searched if one.status in _FOUND]
    open_ = [one for one in searched if one.status == "not checked"]
    report.data = {"ok": not left and not open_, "searched": [asdict(one) for one in searched]}
    shown = sorted(searched, key=lambda one: list(_STATUSES).index(one.status))[:SHOWN]
    report.table(
        f"{len(searched):,} looked for in the files of {model}",
        ("looked for", "found"),
        [(f"{one.what} number {one.position} of those given", _STATUSES[one.status]) for one in shown],
    )
    if len(searched) > len(shown):
        report.say(f"... and {len(searched) - len(shown):,} more; --json lists all.")
    if left:
        report.say(f"{len(left):,} {were(len(left))} found.", "bold red")
    if open_:
        files = ", ".join(sorted({name for one in open_ for name in one.files}))
        report.say(
            f"{len(open_):,} could not be checked in {files}. Open the model for writing once, which empties or "
            "removes leftover files, and scan again.",
            "bold red",
        )
