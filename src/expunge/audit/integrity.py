"""Checks of a store itself: everything in its files is as it should be, and there is nothing else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from expunge.audit.findings import Check, Noise, Result
from expunge.base.errors import ExpungeError, StoreError
from expunge.base.types import Array
from expunge.engine.accounting import worst_case_rho
from expunge.engine.verifying import Verification, noise_of
from expunge.store.chain import check_receipts
from expunge.store.keys import load_key
from expunge.store.state import check_key
from expunge.store.surroundings import beside, read_open

ELSEWHERE = 1e-9
"""How far, relatively, another machine's linear algebra may be off."""
IMPLAUSIBLE = 1e-4
"""Noise with a p-value below this is taken for wrong."""
FEWEST = 100
"""Fewer numbers make no histogram."""
EDGES = np.arange(-4.0, 4.25, 0.5)


def said(error: object, path: Path) -> str:
    """Return what an error says, without folders, and without the names of people."""
    text = str(error).replace(str(path), path.name).replace(str(path.parent) + os.sep, "")
    someone = re.compile(r"record .* was added from outside", flags=re.DOTALL)
    text = someone.sub("one of the records there was added from outside", text)
    return re.sub(r"records: .* lies at place", "records: one lies at place", text, flags=re.DOTALL)


# --- the state ---------------------------------------------------------------------------------------

_STATE_SHOWS = (
    "The sums, the path of the training and the model itself were computed again from the records in the file, and "
    "from no others. A record that had been left in them, or added from outside, would be detected."
)
_STATE_NOT = "That nobody kept a copy of the file, of a record or of an earlier model. No program can show that."


def check_state(model: Any, path: Path) -> tuple[Check, Verification | None]:
    """Re-derive everything from the records that are there."""

    def check(result: Result, finding: str, problems: tuple[str, ...] = ()) -> Check:
        return Check("state", "The state follows from the records", result, finding, _STATE_SHOWS, _STATE_NOT, problems)

    try:
        found = model.verify()
        if found.ok:
            return check("passed", f"Everything agrees to the last bit with {_records(found.records)}."), found
        roughly = model.verify(tolerance=ELSEWHERE)
    except (ExpungeError, ValueError) as error:
        return check("problem", "The file cannot be verified.", (said(error, path),)), None
    if roughly.ok:
        finding = (
            f"Everything agrees with {_records(found.records)} to nine digits, but not to the last bit. This is "
            "expected on another machine than the one that wrote the file; to compare every bit, audit it there."
        )
        return check("attention", finding), roughly
    problems = tuple(said(problem, path) for problem in found.problems)
    return check("problem", "The state does not follow from the records in the file.", problems), found


def _records(count: int) -> str:
    return "the 1 record in the file" if count == 1 else f"the {count:,} records in the file"


def check_noise(model: Any, found: Verification | None) -> tuple[Check, Noise | None]:
    """Compare the noise in the transcript with the planned noise."""
    shows = (
        "The noise in the transcript looks untouched: independent, normal, of the planned size. Deletions leave no "
        "trace because of this noise."
    )
    not_shown = (
        "That it was drawn in secret: anyone who kept the generator's seed could subtract it. p-values and heights are "
        "rounded, so that this report is no fingerprint of the current state."
    )

    def check(result: Result, finding: str) -> Check:
        return Check("noise", "The noise is the planned noise", result, finding, shows, not_shown)

    if model.plan_.sigma == 0.0:
        why = "sums are exact" if model.plan_.never_replays else "ρ = 1: every deletion trains again"
        if model.plan_.samples:
            why = "who is in the sample follows from secret keys"
        return check("not checked", f"This plan has no noise ({why}), so there is nothing to check."), None
    if found is None or not found.ok or found.noise_p_value is None:
        why = "there are no steps" if found is not None and found.ok else "the state does not agree"
        return check("not checked", f"Not checked, because {why}."), None
    noise = _noise(model, found.noise_p_value)
    good = found.noise_p_value >= IMPLAUSIBLE
    finding = (
        f"{noise.numbers:,} number{'s' * (noise.numbers != 1)} compared with the normal distribution: p ≈ "
        f"{noise.p_value:g}"
        f" ({'nothing unusual' if good else f'below {IMPLAUSIBLE:g}: they do not look like the planned noise'})."
    )
    return check("passed" if good else "problem", finding), noise


def _noise(model: Any, p_value: float) -> Noise:
    learner, transcript = model.plan_.learner, model.transcript_
    if learner.laws is not None:
        xi = noise_of(learner.laws, transcript)
    else:
        sums: Array = learner.grid.met(transcript.sums)
        noise = transcript.answers - (np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums)
        scales = learner.sigma * learner.mechanism.scales(len(noise))
        xi = (learner.mechanism.whiten(noise) / scales[:, None]).ravel()
    edges: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    if xi.size >= FEWEST:
        coarse = 1.0 / (3.0 * np.sqrt(xi.size))  # about as much as chance makes of the largest share
        shares = np.rint(np.histogram(xi, EDGES)[0] / xi.size / coarse) * coarse
        edges, heights = tuple(EDGES.tolist()), tuple(np.round(shares / np.diff(EDGES), 4).tolist())
    return Noise(xi.size, float(model.plan_.sigma), coarsely(p_value), edges, heights)


def coarsely(p_value: float) -> float:
    """Return a p-value with one digit, rounded down.

    >>> [coarsely(p) for p in (0.97, 0.1234, 0.0177, 3.9e-7)]
    [0.9, 0.1, 0.01, 3e-07]
    """
    if p_value <= 0.0:
        return 0.0
    digit = 10.0 ** np.floor(np.log10(p_value))
    return float(f"{min(np.floor(p_value / digit + 1e-9), 9) * digit:.1g}") if p_value < 1.0 else 0.9


def check_accounting(model: Any) -> Check:
    """Compute again which ρ the planned noise gives."""
    shows = (
        "The plan's noise is large enough for ρ, the promised bound on how often a deletion trains a part again. It "
        "was computed again from schedule, mechanism and the largest contribution."
    )
    not_shown = "Anything about exactness, which does not depend on the size of the noise. ρ is about cost."

    def check(result: Result, finding: str) -> Check:
        return Check("accounting", "Plan and noise fit together", result, finding, shows, not_shown)

    plan = model.plan_
    learner = plan.learner
    if plan.never_replays:
        return check("passed", "Sums are exact without noise, and no deletion trains anything again.")
    if plan.plans_share:
        return check("not checked", f"ρ = {plan.rho:.3g} is a planned share of deletions; it bounds no single one.")
    found = worst_case_rho(
        learner.sigma, learner.schedule, learner.mechanism, bound=learner.query.bound, coupling=learner.coupling,
        records=plan.horizon, records_per_subject=plan.records_per_subject, size=learner.query.size,
    )  # fmt: skip
    if found > plan.rho * (1.0 + 1e-6):
        return check("problem", f"ρ = {plan.rho:g} was promised, but σ = {learner.sigma:g} gives only {found:.3g}.")
    return check("passed", f"σ = {learner.sigma:.4g} keeps ρ = {plan.rho:g}.")


def check_size(model: Any) -> Check:
    """Say whether the plan is good for the number of records that there are."""
    low, high = model.plan_.size_class[0], model.plan_.largest
    count = model.n_records_
    fits = low <= count <= high
    wanted = f"{low:,} to {high:,} records" if low else f"up to {high:,} records"
    finding = f"The plan is for {wanted}; there {'is' if count == 1 else 'are'} {count:,}." + (
        "" if fits else " Accuracy may suffer: replan() refits, at the cost of a fit."
    )
    return Check(
        "size", "The plan is for this many records", "passed" if fits else "attention", finding,
        "Step sizes and noise were planned for about as many records as there are.",
        "Anything about exactness: that holds for any number.",
    )  # fmt: skip


# --- receipts ----------------------------------------------------------------------------------------


def check_chain(exported: dict[str, Any] | None, error: str | None, public_key: Any, noted: str | None) -> Check:
    """Check the chain of receipts, and with a public key their signatures."""
    shows = (
        "Which requests the operator's software recorded as done, on which days and in which order; that no receipt "
        "was altered, moved or removed since a later one was signed, or since the head hash was noted elsewhere."
    )
    not_shown = (
        "That the model is free of a record: anyone who holds file and key could write any receipt. The first check "
        "shows it."
    )

    def check(result: Result, finding: str, problems: tuple[str, ...] = ()) -> Check:
        return Check("receipts", "The receipts are in order", result, finding, shows, not_shown, problems)

    if exported is None:
        return check("problem", "The receipts cannot be read.", () if error is None else (error,))
    found = check_receipts(exported, public_key=public_key, noted=noted)
    number = f"{found.count:,} receipt{'s' * (found.count != 1)}"
    if not found.ok:
        return check("problem", f"{number}, with problems.", tuple(found.problems))
    if public_key is None:
        signatures = (
            f"{found.signed:,} signed (no public key was given to check it with)" if found.signed else "none signed"
        )
    else:
        signatures = "all signed by the given key" if found.count else "none to be signed"
    known = "the noted head is among them" if noted is not None else "no earlier head hash was given to compare with"
    return check("passed", f"{number} in an unbroken chain; {signatures}; {known}.")


# --- files -------------------------------------------------------------------------------------------


def check_leftovers(path: Path, waiting: bool) -> Check:
    """Look for what should not be there between two requests."""
    problems = [f"{name}: {why}" for name, why in leftovers(path)]
    if waiting:
        problems.append(
            "A request was recorded and interrupted; it is not done yet. Open the model for writing to finish it."
        )
    return Check(
        "leftovers", "Nothing is left over", "problem" if problems else "passed",
        "A process that ended early has left something behind." if problems else
        "No request waits, the log is empty, and there are no temporary files.",
        "No deleted bytes are in the log or in temporary files of the store.",
        "Other copies: backups, exports, snapshots of the file system, old blocks of the disk.", tuple(problems),
    )  # fmt: skip


_OPEN = "may contain deleted bytes. Open the model for writing once to empty or remove it."


def leftovers(path: Path) -> Iterator[tuple[str, str]]:
    """Return the files that should not be there between two requests, each with what to do about it."""
    for ending in ("-wal", "-journal", "-new", "-new-wal", "-new-journal"):
        file = beside(path, ending)
        if file.exists() and (file.is_dir() or file.stat().st_size):
            yield file.name, _OPEN
    if beside(path, "-spool").exists():
        yield beside(path, "-spool").name, _OPEN


def check_free_pages(path: Path) -> Check:
    """Check that free pages of the file are blank."""
    content = read_open(path, path)
    count, dirty = free_pages(path.read_bytes() if content is None else content)
    finding = f"{dirty:,} of {count:,} free pages still have content." if dirty else (
        f"All free pages of the file are blank ({count:,})." if count else "The file has no free pages."
    )  # fmt: skip
    return Check(
        "free pages", "Free space is blank", "problem" if dirty else "passed", finding,
        "Everything that was deleted was overwritten, not only marked as free.",
        "What the disk itself keeps: old blocks of an SSD, snapshots. Encrypt the disk.",
        ("Another program than Expunge has written to this file. compact() rewrites it.",) if dirty else (),
    )  # fmt: skip


def free_pages(content: bytes | bytearray) -> tuple[int, int]:
    """Return how many pages of a SQLite file are free, and how many of these are not blank."""
    size = int.from_bytes(content[16:18])
    size = 65536 if size == 1 else size
    trunk, count, dirty, seen = int.from_bytes(content[32:36]), 0, 0, set[int]()

    def page(number: int) -> bytes:
        return bytes(content[(number - 1) * size : number * size])

    while trunk and trunk not in seen and size >= 512:
        seen.add(trunk)
        listed = np.frombuffer(page(trunk)[: size // 4 * 4], ">u4").tolist()
        leaves = listed[2 : 2 + listed[1]] if len(listed) > 1 else []
        count += 1 + len(leaves)
        dirty += sum(any(page(leaf)) for leaf in leaves)
        trunk = listed[0] if listed else 0
    return count, dirty


def check_access(path: Path, state: Any) -> Check:
    """Check who can read the files, and that the key is there."""
    problems, remarks = list(_key_problems(path, state)), []
    if os.name == "posix":
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o022:
            problems.append(f"{path.name}: other users than its owner can change it; run chmod 600 on it.")
        elif mode & 0o077:
            remarks.append("other users than its owner can read the file, and so the records in it")
    result: Result = "problem" if problems else "attention" if remarks else "passed"
    fine = "The key exists and belongs to this store. Only their owner can read file and key."
    finding = "; ".join(remarks).capitalize() + "." if remarks else fine
    return Check(
        "access", "Key and permissions", result, "Something is wrong with them." if problems else finding,
        "Receipts can be searched for a person, and backups can be brought up to date. Other users of this machine "
        "have no access.",
        "Who the owner is, who has been administrator, or who has read the file elsewhere.", tuple(problems),
    )  # fmt: skip


def _key_problems(path: Path, state: Any) -> Iterator[str]:
    key = beside(path, "-key")
    try:
        check_key(key, load_key(key), state)
    except StoreError as error:
        yield said(error, path)


# --- what was read off the data ----------------------------------------------------------------------


def check_public(model: Any) -> Check:
    """Say what was fixed from public knowledge, and what was taken from the records."""
    schema = getattr(model, "schema_", None)
    read: list[str] = []
    unknown: list[str] = []
    if schema is None:
        unknown.append("how features were made is not stored with the model, so it could not be checked")
    elif not getattr(schema, "confirmed", False):
        read.append("nobody has confirmed that the ranges and vocabularies of the schema are public knowledge")
    if hasattr(model, "classes_") and getattr(model, "classes", None) is None:
        read.append("the classes were taken from the records: a class stays known even if its only record is deleted")
    result: Result = "attention" if read else "not checked" if unknown else "passed"
    said_so = [*read, *unknown]
    finding = (
        "; ".join(said_so)[:1].upper() + "; ".join(said_so)[1:]
        if said_so
        else "The operator has confirmed that the schema is public knowledge; this was not checked"
    )
    return Check(
        "public", "What was fixed beforehand is declared as public knowledge", result, finding + ".",
        "If the operator is right, ranges, vocabularies and classes were not computed from the records, and so reveal "
        "nothing about deleted records.",
        "Whether the operator is right, how the data was prepared before training, and how settings were chosen.",
    )  # fmt: skip
