"""Whom to delete, from which models: looked up in all of them before any is changed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from expunge.base.errors import BadPlan, BadRecords, UnknownId
from expunge.base.wording import counted
from expunge.cli.models import held
from expunge.cli.names import Names, keys_of
from expunge.cli.output import Report
from expunge.cli.phrases import at_the_prompt

SHOWN = 20
"""How many of those named are shown."""


@dataclass(frozen=True)
class Wanted:
    """Who is named, and how."""

    by: Literal["id", "subject", "number"]
    names: Names
    ignore_missing: bool


@dataclass(frozen=True)
class Target:
    """A model that is open, and whom to delete from it."""

    path: Path
    model: Any
    keys: Any
    numbers: list[int]
    """How many records each of those named has."""

    def request(self, wanted: Wanted) -> Any:
        """Return the request to delete them, prepared."""
        from expunge.base.intake import Delete

        missing: Any = "ignore" if wanted.ignore_missing else "error"
        named = {"subjects" if wanted.by == "subject" else "ids": self.keys}
        return self.model.prepare_request(Delete(**named, missing=missing))


def named(ids: Names | None, subjects: Names | None, numbers: list[int] | None, ignore_missing: bool) -> Wanted:
    """Return who is named; raise unless it is in one way."""
    numbered = None if numbers is None else Names([str(one) for one in numbers], [f"--number {one}" for one in numbers])
    given: dict[Any, Names | None] = {"id": ids, "subject": subjects, "number": numbered}
    found = [Wanted(by, names, ignore_missing) for by, names in given.items() if names is not None]
    if len(found) != 1:
        said = "no ids are given" if not found else "too many kinds of names at once"
        raise BadRecords(
            f"--id: {said}; give records (--id, --ids-file), people (--subject, --subjects-file) or, if no column "
            "holds ids, record numbers (--number)."
        )
    return found[0]


def check_models(paths: list[Path]) -> None:
    """Raise if a model is named twice."""
    for number, path in enumerate(paths):
        for other in paths[:number]:
            if path.exists() and other.exists() and os.path.samefile(path, other):
                raise BadPlan(f"{path}: is the same file as {other}; give each model once.")


def looked_up(stack: ExitStack, paths: list[Path], wanted: Wanted, **how: Any) -> list[Target]:
    """Open all models, for as long as the stack lasts, and look up in each whom to delete."""
    targets = []
    for path in paths:
        model = stack.enter_context(held(path, **how))
        try:
            keys, numbers = _look_up(model, wanted)
        except BadRecords as error:
            raise BadRecords(f"{path}: {error}" if len(paths) > 1 else str(error)) from None
        targets.append(Target(path, model, keys, numbers))
    return targets


def _look_up(model: Any, wanted: Wanted) -> tuple[Any, list[int]]:
    """Return names in the type that a model has, and how many records each has."""
    _check_numbered(model, wanted.by)
    names = wanted.names
    keys = [int(text) for text in names.texts] if wanted.by == "number" else keys_of(model, wanted.by, names)
    if not wanted.ignore_missing:
        names.check_distinct(keys)
    with model._owner.lock:
        records = model._records
        numbers = records.numbers_of(keys) if wanted.by == "subject" else records.has(keys)
    return keys, [int(number) for number in numbers]


def _check_numbered(model: Any, by: str) -> None:
    """Raise if records that have names are meant by numbers, or the other way round."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        return
    if by == "id" and schema.id is None:
        raise BadRecords(
            "--id: the schema has no id column. Records are numbered from 0 in the order in which they were read: give "
            "--number, or --subject for people, if you are sure which ones you mean."
        )
    if by == "number" and schema.id is not None:
        raise BadRecords(f"--number: records have ids, in the column {schema.id.name!r}; give --id.")


def check_known(targets: list[Target], wanted: Wanted) -> None:
    """Raise if somebody is not in one of the models, unless that may be."""
    if wanted.ignore_missing:
        return
    said = []
    for one in targets:
        missing = [place for place, number in enumerate(one.numbers) if not number]
        if missing:
            said.append(f"{wanted.names.at(missing)}: not in {one.path}")
    if said:
        raise UnknownId(
            f"{'; '.join(said)}. They were deleted already, or were never in it; --ignore-missing skips them. Nothing "
            "was deleted."
        )


def check_ready(targets: list[Target]) -> None:
    """Raise if one of the models would refuse a request now, whatever it asks for."""
    for one in targets:
        try:
            one.model._owner.check_ready()
        except BadPlan as error:
            said = at_the_prompt(str(error))
            raise BadPlan(f"{one.path}: {said}" if len(targets) > 1 else said) from None


def rehearse(report: Report, targets: list[Target], wanted: Wanted) -> None:
    """Say who would be deleted from which model."""
    names = wanted.names.places
    report.before = {
        "dry_run": True,
        "models": [
            {
                "model": str(one.path), "records": sum(one.numbers),
                "named": [{"name": name, "records": number} for name, number in zip(names, one.numbers, strict=True)],
            }
            for one in targets
        ],
    }  # fmt: skip
    for one in targets:
        order = sorted(range(len(names)), key=lambda place: one.numbers[place] > 0)  # who is not there comes first
        report.say(f"{one.path}: {counted(sum(one.numbers), 'record')} would be deleted.", "bold")
        report.table(
            "",
            ("named", "records"),
            [
                (names[place], f"{one.numbers[place]:,}" if one.numbers[place] else "not found")
                for place in order[:SHOWN]
            ],
            right="records",
        )
        if len(order) > SHOWN:
            report.say(f"... and {len(order) - SHOWN:,} more; --json lists all.")
    report.say("This was a dry run: nothing was changed.")
