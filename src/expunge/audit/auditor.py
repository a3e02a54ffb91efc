"""Everything that can be checked about a stored model, in one go."""

from __future__ import annotations

import platform
import secrets
import warnings
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn

from expunge import __version__
from expunge.audit.describing import activity_of, facts_of, last_receipts
from expunge.audit.findings import Audit, Check, Facts, Given, Rehearsal, Result
from expunge.audit.integrity import (
    check_access,
    check_accounting,
    check_chain,
    check_free_pages,
    check_leftovers,
    check_noise,
    check_public,
    check_size,
    check_state,
    said,
)
from expunge.audit.people import look_for
from expunge.audit.rehearsal import rehearse
from expunge.audit.scoring import check_score, score_on
from expunge.base.errors import BadPlan, CorruptStore, ExpungeError, NotAStore
from expunge.base.progress import Show, progress_bars
from expunge.models.opening import open as open_model
from expunge.store.keys import load_public_key
from expunge.store.receipts import check_hex
from expunge.store.saving import as_path
from expunge.store.sqlite import WAIT
from expunge.store.surroundings import beside

RUNS = 1500
"""How often a deletion is rehearsed."""
SEED_BITS = 48
"""The size of a fresh seed: enough that none comes twice, and small enough for every JSON reader."""


def audit(
    path: str | PathLike[str],
    *,
    ids: Any = None,
    subjects: Any = None,
    rows: Any = None,
    test: Any = None,
    public_key: Any = None,
    noted: str | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    loss: Any = None,
    structure: Any = None,
    wait: float = WAIT,
    progress: bool | None = None,
) -> Audit:
    """Check everything about a stored model that can be checked.

    ``ids``, ``subjects`` and ``rows`` (features, as they were given to the model) are looked for in the model and in
    every byte of its files: give those who must not be there, since one that is found is a problem. ``test`` is (X, y),
    for a score. ``public_key`` and ``noted`` are those of `expunge.store.check_receipts`. ``runs`` says how often a
    deletion is rehearsed on a small problem with the model's own plan: a few seconds with 1,500. Each audit rehearses
    with fresh records and coins, from the operating system; to repeat a rehearsal, give the ``seed`` that its report
    names. ``loss`` is the loss of a model with a custom loss, ``structure`` that of a `Sampled`.

    The store is opened read_only, and nothing in it is changed: a request that was interrupted is reported, and left to
    whoever opens the model for writing. Writers wait while it is verified. Damage is reported; a file that is not a
    store is an error. The result names nobody, and does not say how any request went.

    >>> import tempfile, expunge
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/model.expunge"
    ...     expunge.Ridge().fit(X, X[:, 0]).save(path)
    ...     with expunge.open(path) as model:
    ...         outcome = model.unlearn([17])
    ...     found = audit(path, rows=X[17], runs=100)
    >>> found.ok, found.facts.records, found.given[0].status
    (True, 299, 'gone')
    """
    place = as_path(path)
    _refuse(runs, seed, public_key, noted)
    head = _head(runs, seed)
    with progress_bars(progress) as show:
        try:
            with _opened(place, loss, structure, wait) as model:
                with model._store.lock:  # all of one state
                    found = _look_at(model, place, head, public_key, noted, show)
                people, given = _people(model, place, {"ids": ids, "subjects": subjects, "rows": rows}, show)
                score = None if test is None else score_on(model, test)
                plan = model.plan_
        except (CorruptStore, NotAStore) as error:
            if isinstance(error, NotAStore) and not (place.is_file() and beside(place, "-key").exists()):
                raise
            return Audit(**head, facts=Facts(place.name, place.stat().st_size), checks=(_unreadable(error, place),))
        rehearsal, why = _rehearsed(plan, runs, head["seed"], show)
    checks = (*found.checks, people, *_rehearsal_checks(rehearsal, why, head["fresh"]), check_score(score))
    return replace(found, checks=_in_order(checks), given=given, rehearsal=rehearsal, score=score)


def _head(runs: int, seed: int | None) -> dict[str, Any]:
    """Return what a report begins with."""
    return {
        "day": datetime.now(UTC).date().isoformat(),
        "versions": _versions(),
        "runs": runs,
        "seed": secrets.randbits(SEED_BITS) if seed is None else int(seed),
        "fresh": seed is None,
    }


def _opened(path: Path, loss: Any, structure: Any, wait: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for who fits
        return open_model(path, loss=loss, structure=structure, read_only=True, wait=wait)


def _refuse(runs: Any, seed: Any, public_key: Any, noted: Any) -> None:
    """Raise if something that was given makes no sense, before any work is done."""
    if isinstance(runs, bool) or not isinstance(runs, (int, np.integer)) or runs < 100:
        raise BadPlan(f"runs={runs!r}: give a whole number of at least 100, so that the comparisons mean something.")
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if seed is not None and (not whole or seed < 0):
        raise BadPlan(f"seed={seed!r}: give a whole number of at least 0, or none for fresh coins.")
    if public_key is not None:
        load_public_key(public_key)
    if noted is not None:
        check_hex("noted", noted, 64)


def _versions() -> tuple[tuple[str, str], ...]:
    return (
        ("expunge", __version__), ("Python", platform.python_version()), ("NumPy", np.__version__),
        ("SciPy", scipy.__version__), ("scikit-learn", sklearn.__version__),
        ("machine", f"{platform.system()} {platform.machine()}"),
    )  # fmt: skip


def _unreadable(error: Exception, path: Path) -> Check:
    return Check(
        "opening", "The file can be read", "problem", "It is damaged, or it was replaced by something else.",
        "That it is a store with a plan and a state.", "Anything else.", (said(error, path),),
    )  # fmt: skip


def _look_at(model: Any, path: Path, head: dict[str, Any], public_key: Any, noted: Any, show: Show) -> Audit:
    """Check the contents of the files."""
    show("verifying", 0, None)
    owner = model._store
    state_check, found = check_state(model, path)
    noise_check, noise = check_noise(model, found)
    exported, error = None, None
    try:
        exported = model.export_receipts()
    except CorruptStore as damaged:
        error = said(damaged, path)
    show("verifying", 1, 1)
    checks = [
        state_check, noise_check, check_chain(exported, error, public_key, noted),
        check_leftovers(path, _waits(owner)), check_free_pages(path), check_access(path, owner.state),
        check_accounting(model), check_size(model), check_public(model),
    ]  # fmt: skip
    return Audit(
        **head,
        facts=facts_of(model, path, exported),
        checks=tuple(checks),
        drawing=model.plan_.drawing(),
        noise=noise,
        activity=() if exported is None else activity_of(exported),
        receipts=() if exported is None else last_receipts(exported),
    )


def _waits(owner: Any) -> bool:
    try:
        return bool(owner.file.get("pending", 0))
    except CorruptStore:
        return True


def _people(model: Any, path: Path, wanted: dict[str, Any], show: Show) -> tuple[Check, tuple[Given, ...]]:
    """Look for those who were asked for."""
    if all(one is None for one in wanted.values()):
        return _people_check((), None), ()
    try:
        given = look_for(model, path, show, **wanted)
    except CorruptStore as damaged:
        return _people_check((), said(damaged, path)), ()
    return _people_check(given, None), given


def _people_check(given: tuple[Given, ...], error: str | None) -> Check:
    result: Result = "passed"
    problems: list[str] = []
    if error is not None:
        result, finding, problems = "problem", "The files could not be searched.", [error]
    elif not given:
        result, finding = "not checked", "No ids, subjects or rows were given to look for."
    else:
        counts = {status: sum(one.status == status for one in given) for status in _STATUSES}
        finding = "Of those given: " + ", ".join(
            f"{counts[s]:,} {words}" for s, words in _STATUSES.items() if counts[s]
        )
        finding += "."
        problems = [
            f"The {ordinal(one.position)} {one.what} given is no longer in the model, but its bytes are in "
            f"{', '.join(one.files)}."
            for one in given
            if one.status == "left"
        ]
        problems += [
            f"The {ordinal(one.position)} {one.what} given is still in the model: delete it with unlearn, or do not "
            "give it."
            for one in given
            if one.status == "live" and one.what != "row"
        ]
        problems += [
            f"The {ordinal(one.position)} {one.what} given is in a request that is recorded but not finished: open the "
            "model for writing once, and audit again."
            for one in given
            if one.status == "waiting"
        ]
        if problems:
            result = "problem"
        elif counts["not checked"]:
            result = "not checked"
        elif counts["unclear"] or counts["live"]:
            result = "attention"
    return Check(
        "people", "Deleted people are gone", result, finding,
        "The model has no record of them: all ids, subjects and rows that it holds were read. No byte of the store's "
        "files holds their id or row as given.",
        "Other spellings, other files, backups, and what others have exported. For small numbers and short names, also "
        "bytes that are not part of a record: these are too common to search for.",
        tuple(problems),
    )  # fmt: skip


_STATUSES = {
    "gone": "not in the model, nor in any byte of its files",
    "live": "STILL IN THE MODEL (for rows: or an equal row)",
    "left": "not in the model, but STILL IN ITS FILES",
    "unclear": "not in the model; the same bytes are in the files, but may belong to something else",
    "absent": (
        "not among the ids, subjects, index entries or waiting requests, all of which were read (too short to search "
        "for byte by byte)"
    ),
    "waiting": "IN A REQUEST THAT IS NOT FINISHED",
    "not checked": "not in the model, but NOT CHECKED in leftover files (too short to search for)",
}


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, …

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '102nd', '111th']
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _rehearsed(plan: Any, runs: int, seed: int, show: Show) -> tuple[Rehearsal | None, str]:
    try:
        return rehearse(plan, runs=runs, seed=seed, show=show), ""
    except (ExpungeError, ArithmeticError, LookupError, TypeError, ValueError) as error:  # a loss of the user's own
        return None, f"No small problem could be made from this plan ({type(error).__name__})."


def _rehearsal_checks(found: Rehearsal | None, why: str, fresh: bool) -> tuple[Check, Check]:
    def check(key: str, name: str, good: bool, finding: str, shows: str, not_shown: str) -> Check:
        result: Result = "not checked" if found is None else "passed" if good else "problem"
        return Check(key, name, result, finding, shows, not_shown)

    exact, caught = why, why
    if found is not None and found.p_value is None:
        exact = f"{found.equal:,} of {found.runs:,} states after a deletion equal those of a fresh fit to the last bit."
        caught = f"{found.control_equal:,} of {found.runs:,} are equal if {found.control}."
    elif found is not None:
        exact = (
            f"p = {found.p_value:.2g} (below {found.level:g} is a problem): "
            f"{'no difference' if found.passed else 'A DIFFERENCE'} between {found.runs:,} states after a deletion and "
            f"as many of fresh training, in {found.comparisons:,} comparisons (p is corrected for their number). "
            + (_FRESH if fresh else "The coins come from a given seed; they are not fresh.")
            + ("" if found.passed else _ONE_IN.format(round(1.0 / found.level)))
        )
        caught = f"p = {found.control_p_value:.2g} (it must be below {found.control_level:g}) if {found.control}."
    return (
        check(
            "exactness", "A deletion leaves no trace", found is not None and found.passed, exact,
            "With this plan, on this machine, the state after a deletion cannot be distinguished from that of training "
            "without the record. It was tested on a small problem; what was scaled down for it is listed below.",
            "A proof. Expunge's documentation proves that it holds at any size; this check looks for mistakes.",
        ),
        check(
            "control", "A deliberate mistake is detected", found is not None and found.caught, caught,
            "The comparison above is sensitive enough to detect a deletion that is done wrong.",
            "That every possible mistake would be detected.",
        ),
    )  # fmt: skip


_FRESH = "Records and coins of the rehearsal are fresh, so p differs in every audit."
_ONE_IN = (
    " Chance alone does this in one audit of {:,}: audit again, once. If p is below the limit again, it is not chance: "
    "stop using the model for deletions, and report it to the makers of Expunge."
)


_ORDER = (
    "state", "people", "receipts", "exactness", "control", "noise", "leftovers", "free pages", "access", "public",
    "accounting", "size", "score",
)  # fmt: skip


def _in_order(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(sorted(checks, key=lambda check: _ORDER.index(check.key)))
