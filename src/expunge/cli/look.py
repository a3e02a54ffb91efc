"""`expunge info`, `receipts`, `verify` and `scan`."""

from __future__ import annotations

import json as json_
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.change import show_receipts
from expunge.cli.models import opened, schema_of
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
    Wait,
    check_output,
    written,
)
from expunge.cli.output import FOUND, Report, reporting
from expunge.errors import BadPlan, BadRecords
from expunge.wording import percent, size

_STATUSES = {
    "live": "IN THE MODEL, and so in its files (of a row: one like it)",
    "gone": "not in the model, and no byte of it in its files",
    "left": "NOT in the model, but its BYTES ARE LEFT in the files",
    "unclear": "not in the model; such bytes are part of something else that is",
    "not searchable": "not in the model; too short to look for its bytes",
}
SHOWN = 20
"""How many receipts are shown."""


def info(model: Store, json: Json = False) -> None:
    """Say what a model is: plan, schema, records, receipts."""
    with reporting(json) as report:
        with opened(model, read_only=True) as found:
            plan, schema = found.plan_, getattr(found, "schema_", None)
            receipts = found.export_receipts()
            low, high = plan.size_class
            said: dict[str, Any] = {
                "kind": type(found).__name__, "records": found.n_records_, "features": found.n_features_in_,
                "size_class": [low, high], "bytes": model.stat().st_size, "receipts": len(receipts["receipts"]),
                "head": receipts["head"], "store": receipts["store"], "version": receipts["version"],
            }  # fmt: skip
            for name in ("rho", "sigma", "schedule", "mechanism", "coupling", "solver", "steps", "epochs", "clusters"):
                if hasattr(plan, name):
                    said[name] = getattr(plan, name)
            said["rounding_error"] = plan.rounding_error
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
        report.say("The hash of the last receipt, to be noted elsewhere (receipts --noted):")
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
        facts["a deletion replays"] = f"with probability {percent(said['rho'])} at most"
        facts["noise"] = "none" if not said.get("sigma") else f"σ = {said['sigma']:.4g}"
        if said.get("sigma"):
            facts["rounding"] = f"changes what is stored by at most {said['rounding_error']:.1g} (total variation)"
    names = ("solver", "schedule", "mechanism", "coupling", "steps", "epochs", "clusters")
    facts |= {name: said[name] for name in names if said.get(name) is not None}
    if "classes" in said:
        facts["classes"] = ", ".join(map(str, said["classes"]))
    if "schema" in said:
        schema = said["schema"]
        facts["schema"] = "confirmed as public" if schema["confirmed"] else "drafted from data, NOT confirmed as public"
        facts |= {role: schema[role] for role in ("target", "id", "subject") if schema[role]}
    return {**facts, "size": size(said["bytes"]), "receipts": f"{said['receipts']:,}"}


def receipts(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model's file, or receipts that were exported (.json).")
    ],
    id: Ids = None,
    ids_file: IdsFile = None,
    subject: Subjects = None,
    subjects_file: SubjectsFile = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Export them as JSON, to be filed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    public_key: PublicKey = None,
    noted: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head hash noted earlier, which must still be there.")
    ] = None,
    json: Json = False,
) -> None:
    """List, export and check the receipts of requests.

    Each has the hash of the one before, so that none can be altered, put in or
    taken out unnoticed. A receipt says that a request was done, never how. With
    --id or --subject only those that name them are shown (people are named by
    keyed digests; the key lies beside the model's file).
    """
    with reporting(json) as report:
        from expunge.store import check_receipts
        from expunge.store.receipts import read_exported

        if output is not None:
            check_output(output, force)
        ids, subjects = listed("id", id, ids_file), listed("subject", subject, subjects_file)
        exported = model.suffix.lower() == ".json"
        if output is not None and (ids is not None or subjects is not None):
            raise BadPlan(
                "-o: receipts are exported all together, since a part cannot be checked; leave out the names."
            )
        if exported and (ids is not None or subjects is not None):
            raise BadRecords("--id: exported receipts name people by digests only; ask the model's own file.")
        if exported:
            checked = check_receipts(model, public_key=public_key, noted=noted)
            chosen = read_exported(model) if checked.count or checked.ok else {"receipts": []}
        else:
            with opened(model, read_only=True) as found:
                whole = found.export_receipts()
                checked = check_receipts(whole, public_key=public_key, noted=noted)
                named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
                chosen = found.export_receipts(**named) if any(one is not None for one in named.values()) else whole
        if output is not None:
            with written(output) as file:
                json_.dump(chosen, file, indent=1)
        _show_chain(report, chosen, checked, output)
        if not report.data["receipts"] and (ids is not None or subjects is not None):
            report.say("No receipt names any of those given. (One who was erased as a subject is not named by ids.)")
        if not checked.ok:
            report.finish()
            raise typer.Exit(FOUND)


def _show_chain(report: Report, chosen: dict[str, Any], checked: Any, output: Path | None) -> None:
    found = [one for one in chosen["receipts"] if isinstance(one, dict) and "hash" in one]
    report.data = {
        "ok": checked.ok, "problems": list(checked.problems), "checked": checked.count, "signed": checked.signed,
        "receipts": found, "exported": None if output is None else str(output),
    }  # fmt: skip
    if found and checked.ok:
        show_receipts(report, f"the last {SHOWN}" if len(found) > SHOWN else "", found[-SHOWN:])
    report.say(
        f"{checked.count:,} receipts in all, {checked.signed:,} of them signed: "
        + ("an unbroken chain." if checked.ok else _trouble(checked)),
        "" if checked.ok else "bold red",
    )
    for problem in checked.problems:
        report.say(f"- {problem}")
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
    """Re-derive the whole state from the records, bit for bit.

    It shows that these records and no others make up the model's sums and
    iterates, and that the noise is such as the plan says.
    """
    with reporting(json) as report:
        from expunge.auditing.integrity import coarsely

        if not 0.0 <= tolerance < 1.0:
            raise BadPlan(f"--tolerance {tolerance}: give a number from 0 to below 1, such as 1e-9.")
        with opened(model, wait=wait) as found:
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
            report.say(
                f"{model}: all {checked.steps:,} steps agree with the {checked.records:,} records, {how}.{noise}"
            )
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
    rows: Annotated[
        list[Path] | None, typer.Option(metavar="DATA", help="Tables whose rows to look for, encoded as the model has.")
    ] = None,
    on_error: OnErrorOption = "stop",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Look for people in every byte of a model's files.

    It exits with 1 if anyone is found: in the model, or, of one who is not, in
    bytes that are left. Short numbers cannot be looked for, since such bytes
    are everywhere; give the rows themselves, as --rows people.csv.
    """
    with reporting(json) as report:
        from expunge.auditing.people import look_for
        from expunge.progress import progress_bars

        ids, subjects = listed("id", id, ids_file), listed("subject", subject, subjects_file)
        if ids is None and subjects is None and not rows:
            raise BadRecords("--id: say whom to look for, by --id, --ids-file, --subject, --subjects-file or --rows.")
        with opened(model, read_only=True) as found:
            named = {"ids": keys_of(found, "id", ids), "subjects": keys_of(found, "subject", subjects)}
            table = None
            if rows:
                from expunge.schema import EncodedTables

                table = EncodedTables(schema_of(found, model), rows, on_error=on_error, target=False, keys=()).all().X
            with progress_bars(False if quiet or json else None) as show:
                searched = look_for(found, model, show, rows=table, **named)
        left = [one for one in searched if one.status in ("left", "live")]
        report.data = {"ok": not left, "searched": [asdict(one) for one in searched]}
        shown = (left + [one for one in searched if one.status not in ("left", "live")])[:SHOWN]
        report.table(
            f"{len(searched):,} looked for in the files of {model}",
            ("looked for", "found"),
            [(f"{one.what} number {one.position} of those given", _STATUSES[one.status]) for one in shown],
        )
        if len(searched) > len(shown):
            report.say(f"... and {len(searched) - len(shown):,} more; --json lists all.")
        if left:
            report.say(f"{len(left):,} were found.", "bold red")
            report.finish()
            raise typer.Exit(FOUND)
