"""The report of an audit: one HTML file that opens offline, for a privacy officer to file."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path

from expunge.audit.auditor import ordinal
from expunge.audit.diagrams import noise_diagram, plan_diagram
from expunge.audit.findings import Audit, Check, Given, ReceiptLine, Rehearsal, Score
from expunge.audit.page import CSS, drawn, listed, shown, table
from expunge.audit.plots import activity_plot, calibration_plot, noise_plot, score_plot
from expunge.audit.score_tables import probability_of, score_tables
from expunge.audit.scoring import said_value
from expunge.audit.words import ACTIVITY, ADDS, CALIBRATION, DOES_NOT_SHOW, SHOWS, SHOWS_OF_ARRIVAL, USES
from expunge.base.errors import StoreError
from expunge.base.wording import counted, size
from expunge.solvers.plans.protocol import Drawing
from expunge.store.saving import as_path
from expunge.store.surroundings import ENDINGS

RESULTS = {
    "problem": "✗ Problem",
    "attention": "! Attention",
    "passed": "✓ Passed",
    "measured": "Measured",
    "not checked": "– Not checked",
}


def write_report(audit: Audit, path: str | PathLike[str]) -> None:
    """Write an audit into one self-contained HTML file; an older report at the path is replaced.

    The path of a store, or of a file that belongs to one, is refused.
    """
    place = as_path(path)
    _refuse(place)
    content = render(audit).encode("utf-8")
    new = place.with_name(f"{place.name}-{secrets.token_hex(4)}")
    try:
        with open(new, "xb") as file:
            file.write(content)
        os.replace(new, place)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise StoreError(
            f"{place}: cannot be written ({error.strerror}); give a path in a folder that you may write to."
        ) from error


def _refuse(path: Path) -> None:
    belongs = any(
        path.name.endswith(ending) and path.with_name(path.name.removesuffix(ending)).exists() for ending in ENDINGS
    )
    if belongs:
        raise StoreError(
            f"{path}: this is the name of a file that belongs to a store; give another name, such as report.html."
        )
    try:
        with open(path, "rb") as file:
            start = file.read(16)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: cannot be replaced ({error.strerror}); give another path.") from error
    if start.startswith(b"SQLite format 3"):
        raise StoreError(f"{path}: this is a store, which the report would overwrite; give another path.")


def render(audit: Audit) -> str:
    """Return the report as HTML; equal audits give equal text."""
    title = f"Audit of {shown(audit.facts.file)}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{title}, {shown(audit.day)}</title>
<style>{CSS}</style>
</head>
<body>
<main>
{"".join(_sections(audit, title))}
</main>
</body>
</html>
"""


def _sections(audit: Audit, title: str) -> Iterator[str]:
    yield _top(audit, title)
    yield _section("checks", "What was checked", _checks(audit))
    if audit.given:
        yield _section("people", "People who were looked for", _people(audit.given))
    if pictures := list(_pictures(audit)):
        yield _section("pictures", "Pictures", f'<div class="figures">{"".join(pictures)}</div>')
    if audit.score is not None:
        yield from (_section(*each) for each in score_tables(audit.score))
    if audit.rehearsal is not None:
        yield _section("rehearsal", "Rehearsal of a deletion", _rehearsal(audit.rehearsal))
    yield _section("meaning", "What this shows, and what it does not", _meaning(audit))
    if audit.facts.plan:
        yield _section("plan", "The plan", _plan(audit))
    if audit.facts.receipts is not None:
        yield _section("receipts", "Receipts", _receipts(audit))
    yield _section("again", "How to repeat this audit", _again(audit))
    yield (
        "<footer>Made by Expunge. This file has no scripts and loads nothing. It names none of the people who were "
        "looked for.</footer>"
    )


def _section(key: str, title: str, content: str) -> str:
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>\n{content}\n</section>\n'


# --- the top -----------------------------------------------------------------------------------------


def _top(audit: Audit, title: str) -> str:
    facts = audit.facts
    known = [
        ("model", facts.model), ("records", _count(facts.records)), ("features", _count(facts.features)),
        ("size of the file", size(facts.bytes)), ("state", _version(facts.version)),
        ("receipts", _count(facts.receipts)), ("schema", facts.schema and _SCHEMAS[facts.schema]),
        ("classes", ", ".join(facts.classes) if facts.classes else None),
    ]  # fmt: skip
    items = "".join(f"<div><dt>{name}</dt><dd>{shown(value)}</dd></div>" for name, value in known if value is not None)
    store = f'Store <span class="mono">{shown(facts.store)}</span>, ' if facts.store else ""
    return (
        f"<header><h1>{title}</h1><p>{store}{shown(audit.day)} (UTC)</p></header>\n"
        f'<div class="verdict {_verdict_class(audit)}" role="status">'
        f"<strong>{_verdict(audit)}</strong>{_because(audit)}</div>\n"
        f'<dl class="facts">{items}</dl>\n'
    )


_SCHEMAS = {"none": "not stored", "confirmed": "stored, confirmed", "not confirmed": "stored, NOT confirmed"}


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _version(number: int | None) -> str | None:
    return None if number is None else f"version {number:,}"


def _verdict_class(audit: Audit) -> str:
    return "problem" if not audit.ok else "attention" if audit.with_result("attention") else "passed"


def _verdict(audit: Audit) -> str:
    return "No problem was found." if audit.ok else "There is a problem."


def _because(audit: Audit) -> str:
    passed, wrong = len(audit.with_result("passed")), audit.with_result("problem")
    total = passed + len(wrong) + len(audit.with_result("attention"))
    if wrong:
        failed = ", ".join(f"“{shown(check.name)}”" for check in wrong)
        return f"{len(wrong)} of {total} checks failed: {failed}."
    said = f"{passed} of {total} checks passed"
    if attention := audit.with_result("attention"):
        names = ", ".join(f"“{shown(check.name)}”" for check in attention)
        said += f"; {len(attention)} need{'s' * (len(attention) == 1)} attention: {names}"
    if missing := len(audit.with_result("not checked")):
        said += f"; {missing} could not be made, or {'was' if missing == 1 else 'were'} not requested"
    return said + "."


# --- checks and people -------------------------------------------------------------------------------


def _badge(result: str) -> str:
    return f'<span class="badge {result.replace(" ", "-")}">{RESULTS[result]}</span>'


def _checks(audit: Audit) -> str:
    def row(check: Check) -> list[str]:
        wrong = listed((shown(problem, 400) for problem in check.problems), "wrong") if check.problems else ""
        return [
            shown(check.name), _badge(check.result), shown(check.finding, 800) + wrong,
            f'<span class="why">{shown(check.shows, 800)}</span>',
            f'<span class="why">{shown(check.does_not_show, 800)}</span>',
        ]  # fmt: skip

    heads = ["Check", "Result", "Finding", "What it shows", "What it does not show"]
    return table(heads, map(row, audit.checks), kind="stacked checks")


_WORDS = {
    "gone": ("passed", "not in the model, and in no byte of its files"),
    "live": ("problem", "still in the model, and so in its files (for a row: an equal row)"),
    "left": ("problem", "not in the model, but still in the files"),
    "unclear": ("attention", "not in the model; the same bytes are in the files, but may belong to something else"),
    "absent": ("passed", "in no id, subject, index or waiting request; too short to search for byte by byte"),
    "waiting": (
        "problem",
        ("in a request that is recorded but not finished; open the model for writing once to finish it"),
    ),
    "not checked": ("not-checked", "not in the model; too short to search for in leftover files"),
}
_BADGES = {
    "gone": "✓ Deleted",
    "live": "✗ Still in model",
    "left": "✗ In files",
    "unclear": "! Unclear",
    "absent": "✓ Not found",
    "waiting": "✗ Waiting",
    "not checked": "– Not checked",
}
MOST_PEOPLE = 20


def _people(given: tuple[Given, ...]) -> str:
    def row(one: Given) -> list[str]:
        kind, words = _WORDS[one.status]
        receipts = f"{one.receipts:,}, last on {shown(one.last_day)}" if one.receipts else "none"
        if one.receipts is None:
            receipts = "rows are not named" if one.what == "row" else "cannot be known"
        return [
            f"{ordinal(one.position)} {one.what} given",
            f'<span class="badge {kind}">{_BADGES[one.status]}</span>', words,
            f"{one.found:,}{' in ' + ', '.join(map(shown, one.files)) if one.files else ''}",
            receipts,
        ]  # fmt: skip

    worst = sorted(given, key=lambda one: (list(_ORDER).index(one.status), one.what, one.position))
    rest = Counter(_WORDS[one.status][1] for one in worst[MOST_PEOPLE:])
    more = "".join(f"<p>And {count:,} more: {words}.</p>" for words, count in rest.items())
    heads = ["Given", "Result", "What that means", "Matches in the files", "Receipts that name them"]
    note = (
        "<p>People are listed by their position in the request, not by name: a report that named deleted people would "
        "keep their names. Rows were looked for as given, and as the model stores them.</p>"
    )
    return note + table(heads, map(row, worst[:MOST_PEOPLE]), kind="stacked brief") + more


_ORDER = ("left", "live", "waiting", "not checked", "unclear", "absent", "gone")


# --- pictures ----------------------------------------------------------------------------------------


def _pictures(audit: Audit) -> Iterator[str]:
    if audit.drawing is not None:
        yield drawn("How records are used", plan_diagram(audit.drawing), _use(audit.drawing))
        if audit.drawing.noise:
            yield drawn("How noise is added", noise_diagram(audit.drawing), ADDS[audit.drawing.mechanism])
    if audit.noise is not None and audit.noise.heights:
        caption = (
            f"{audit.noise.numbers:,} noise values from the file, compared with the planned normal distribution. "
            "Heights are rounded to the precision that chance allows."
        )
        yield drawn("The noise in the file", noise_plot(audit.noise), caption)
    if audit.activity:
        yield drawn("Deleted records, by day", activity_plot(audit.activity), ACTIVITY)
    if audit.score is not None:
        yield from _score_pictures(audit.score)


def _score_pictures(score: Score) -> Iterator[str]:
    what = "; ".join(f"{name} {said_value(name, value)}" for name, value in score.values)
    notes = " ".join([f"{counted(score.records, 'test record')}; {what}.", *score.notes])
    caption = f"{shown(notes, 800)} The score says nothing about deletion."
    yield drawn("Score on the test records", score_plot(score), caption)
    if score.calibration is not None:
        of = shown(probability_of(score.calibration))
        yield drawn("Calibration", calibration_plot(score.calibration), CALIBRATION.format(of))


def _use(drawing: Drawing) -> str:
    return USES[drawing.kind if drawing.noise else f"{drawing.kind} without noise"]


# --- meaning, plan, receipts -------------------------------------------------------------------------


def _meaning(audit: Audit) -> str:
    passed = {check.key for check in audit.with_result("passed")}
    shows = {**SHOWS, **(SHOWS_OF_ARRIVAL if audit.drawing is not None and audit.drawing.schedule == "arrival" else {})}
    shown_now = [words for key, words in shows.items() if key in passed] or ["Nothing: none of these checks passed."]
    return (
        f'<div class="columns"><div><h3>It shows</h3>{listed(shown_now)}</div>'
        f"<div><h3>It does not show</h3>{listed(DOES_NOT_SHOW)}</div></div>"
    )


def _rehearsal(found: Rehearsal) -> str:
    """Say what was rehearsed, and how it differs from the model."""
    said = [f"Done on {shown(found.problem)}, {found.runs:,} times. No record of the model takes part."]
    if found.p_value is not None:
        said.append(
            "p says how often chance alone makes as large a difference. It is different in every audit. A p below "
            f"{found.level:g} is a problem. That limit was fixed beforehand, and a sound model falls below it by "
            f"chance in one audit of {round(1.0 / found.level):,}. Above the limit, a large p is no better than a "
            "small one."
        )
    said.append(f"The same as in the model: {shown(', '.join(found.own), 400)}.")
    if not found.scaled:
        return "".join(f"<p>{one}</p>" for one in said)
    said.append("Scaled down, so that it can be repeated often and a mistake is visible:")
    rows = ([shown(one.name), shown(one.own), shown(one.here)] for one in found.scaled)
    heads = ["Setting", "The model", "The rehearsal"]
    return "".join(f"<p>{one}</p>" for one in said) + table(heads, rows, kind="stacked terse")


def _plan(audit: Audit) -> str:
    rows = (
        [shown(line.name), shown(line.value), f'<span class="why">{shown(line.meaning, 300)}</span>']
        for line in audit.facts.plan
    )
    note = "<p>Everything that was fixed before the records were read. Requests never change it.</p>"
    return note + table(["Setting", "Value", "Meaning"], rows, kind="stacked terse")


def _receipts(audit: Audit) -> str:
    facts = audit.facts
    head = ""
    if facts.head:
        head = (
            "<p>Note this head hash in another place. Given to the next audit, it shows that none of these receipts "
            f"was altered or removed since.</p><pre>{shown(facts.head)}</pre>"
        )
    if not audit.receipts:
        return head + (
            "<p>No receipts yet: no request was made since the model was saved.</p>" if not facts.receipts else ""
        )
    left_out = (facts.receipts or 0) - len(audit.receipts)
    caption = f"The last {len(audit.receipts)} of {facts.receipts:,}" if left_out > 0 else "All receipts"
    rows = (
        [
            f"{one.number:,}", shown(one.day), shown(one.kind),
            _named(one),
            f"{one.removed:,}", f"{one.added:,}", f'<span class="mono">{shown(one.request)}…</span>',
            f'<span class="mono">{shown(one.hash)}…</span>', "yes" if one.signed else "no",
        ]
        for one in audit.receipts
    )  # fmt: skip
    heads = ["No.", "Day (UTC)", "Request", "Names", "Removed", "Added", "Request id", "Hash", "Signed"]
    return head + table(heads, rows, caption=f"{caption}; hashes are shortened.", kind="stacked brief", numbers=(4, 5))


def _named(one: ReceiptLine) -> str:
    if one.named_by is None:
        return "nobody"
    return f"{one.named:,} {shown(one.named_by.removesuffix('s') if one.named == 1 else one.named_by)}"


def _again(audit: Audit) -> str:
    file = shown(audit.facts.file)
    versions = ", ".join(f"{shown(name)} {shown(version)}" for name, version in audit.versions)
    return (
        f"<pre>expunge audit {file}</pre><p>or, in Python:</p><pre>from expunge.audit import audit, "
        f"write_report\nwrite_report(audit(&quot;{file}&quot;, runs={audit.runs}, seed={audit.seed}), "
        "&quot;report.html&quot;)</pre><p>with the same ids, subjects, rows, test records, public key and noted head, "
        "if any were given. The same store and seed give the same report, except for the day. Without a seed the "
        f"rehearsal has fresh coins, and a different p.</p><p>Made with {versions}. Bits are compared: use the machine "
        "that writes the store.</p>"
    )
