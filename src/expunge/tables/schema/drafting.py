"""Draft a schema from data. What it guesses must be confirmed by someone who knows what is public."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.progress import progress_bars
from expunge.tables.files import guess_encoding, open_tables
from expunge.tables.reading import Broken, Table
from expunge.tables.schema.columns import (
    MISSING,
    Amount,
    Categorical,
    Classes,
    Date,
    Feature,
    Hashed,
    Key,
    Missing,
    Numeric,
    Scale,
    Schema,
    Text,
)
from expunge.tables.schema.guessing import MOSTLY, PLAIN, Way, guess_ways
from expunge.tables.schema.naming import names_a_thing, names_people, names_records, names_target, tells_who
from expunge.tables.schema.profiles import Profile
from expunge.tables.texts import is_utf8

MOST_VALUES = 50
"""The most values of a vocabulary."""
MOST_CLASSES = 200
FEW_NUMBERS = 20
"""A target with more different numbers is an amount."""
RARE = 5
"""A value that occurs less often may identify a person."""
FREE_TEXT = 3.5
"""Values of this many words on average are free text."""
NEARLY_ALL = 0.7
"""If this share of values is different, short ones look like names."""

_FOREIGN_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b")
_AMOUNT = re.compile(r"[€$£¥]? *[+-]?\d[\d.,' ]*(€|\$|£|¥|%|EUR|USD|GBP|CHF)?")


@dataclass(frozen=True)
class Draft:
    """A schema drafted from data, and why each column is what it is."""

    schema: Schema
    notes: dict[str, str]
    """A short phrase for each column, in the order of the table. None tells a value, or how many records have it: they
    are written into the draft, which stays when records are deleted."""
    remarks: tuple[str, ...]
    """Short phrases on the table as a whole."""
    rows: int
    broken: Broken
    """Records that could not be read, and were skipped."""
    encoding_guessed: bool = False


def draft(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    target: str | None = None,
    id: str | None = None,
    subject: str | None = None,
    ignore: Sequence[str] = (),
    encoding: str | None = None,
    ranges: bool | None = None,
    progress: bool | None = False,
) -> Draft:
    """Draft a schema from tables, in one pass; columns with unusual numbers or dates are read once more.

    ``target``, ``id`` and ``subject`` name columns, and so does each of ``ignore``; those not named are guessed from
    the columns' names and what they hold, and so are the ``encoding`` and how numbers and dates are written. Records
    that cannot be read are skipped. ``ranges`` says whether numbers and dates get ranges, which hold those of the
    records; by default only if there is no target, since clusters depend on scale.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    guessed = encoding is None
    encoding = guess_encoding(listed) if encoding is None else encoding
    tables = open_tables(listed, encoding)
    if not tables:
        raise BadRecords("paths: no files; give at least one table.")
    _check_asked(tables[0], {"target": target, "id": id, "subject": subject}, ignore)
    broken = Broken("skip")
    names = [name for name in tables[0].names if name not in ignore]
    left = _profiles(tables, dict.fromkeys(names, PLAIN), broken, progress)
    rows = max((profile.rows for profile in left.values()), default=0)
    if not rows:
        why = f": all are broken ({broken})" if broken.count else ""
        raise BadRecords(f"{tables[0].path}: no records to draft a schema from{why}; give at least one.")
    notes = dict.fromkeys(tables[0].nested, "holds lists or objects") | dict.fromkeys(ignore, "as asked")
    asked = {} if target is None else {target: left.pop(target)}
    keys = _take_id(left, id, subject, notes), _take_subject(left, subject, notes)
    for name, profile in _unusual_profiles(tables, {**asked, **left}, progress).items():
        (asked if name in asked else left)[name] = profile
    features: dict[str, Feature] = {}
    for name, profile in left.items():
        feature, notes[name] = _feature(name, profile)
        if feature is not None:
            features[name] = feature
    goal = _asked_target(asked, notes) if asked else _guessed_target(features, left, notes)
    if not features:
        raise BadRecords(
            f"{tables[0].path}: no feature columns: all columns are id, subject, target or ignored; give more."
        )
    used = {*features, *(one.name for one in (*keys, goal) if one is not None)}
    notes = {name: notes[name] for name in (*tables[0].names, *tables[0].nested)}
    ignored = tuple([name for name in notes if name not in used])
    schema = Schema(tuple(features.values()), *keys, goal, ignored, encoding=encoding)
    if not (goal is None if ranges is None else ranges):
        schema = _without_ranges(schema)
    remarks = [] if keys[0] else ["there is no id column, so records will be numbered"]
    guessed = guessed and not is_utf8(encoding)
    if guessed:
        remarks.append(f"the files are not UTF-8, so they were read as {encoding}, which is a guess: check the letters")
    return Draft(schema, notes, tuple(remarks), rows, broken, guessed)


def _without_ranges(schema: Schema) -> Schema:
    """Return a schema in which numbers and dates are taken as they are."""
    features = [
        replace(one, low=None, high=None) if isinstance(one, (Numeric, Date)) else one for one in schema.features
    ]
    goal = schema.target
    target = replace(goal, low=None, high=None) if isinstance(goal, Amount) else goal
    return replace(schema, features=tuple(features), target=target)


def _check_asked(table: Table, asked: dict[str, str | None], ignore: Sequence[str]) -> None:
    """Raise if columns that were asked for are not there, or are to be two things."""
    if isinstance(ignore, str):
        raise BadPlan(f"ignore={ignore!r}: give a list of names.")
    table.check_columns([name for name in (*asked.values(), *ignore) if name is not None and name not in table.nested])
    roles = dict.fromkeys(ignore, "to be ignored")
    for role, name in asked.items():
        if name in table.nested:
            raise BadRecords(f"{role}={name!r}: the column holds lists or objects; choose another.")
        if name in roles:
            raise BadPlan(f"{role}={name!r}: the column is {roles[name]} already; give each column one role.")
        if name is not None:
            roles[name] = f"the {role}"


def _profiles(tables: list[Table], ways: dict[str, Way], broken: Broken, progress: bool | None) -> dict[str, Profile]:
    """Profile some columns, in which numbers and dates are written in this way."""
    profiles = {name: Profile(MISSING, way) for name, way in ways.items()}
    for table in tables:
        table.check_columns(list(profiles))
    size = sum(table.size_bytes for table in tables)
    with progress_bars(progress) as show:
        for table in tables:
            for chunk in table.chunks(list(profiles), broken):
                for name, column in chunk.columns.items():
                    profiles[name].add(column, chunk.numbers.get(name))
                show("reading", sum(one.position() for one in tables), size)
    return profiles


def _unusual_profiles(tables: list[Table], profiles: dict[str, Profile], progress: bool | None) -> dict[str, Profile]:
    """Look once more at columns of numbers or dates that are not written as usual."""
    texts = {
        name: list(one.kept) for name, one in profiles.items() if one.only_texts and one.kept and not _are_iso(one)
    }
    ways = guess_ways(texts)
    again = _profiles(tables, ways, Broken("skip"), progress) if ways else {}
    return {name: one for name, one in again.items() if _is_numeric(one) or _are_iso(one)}


# Ids and subjects


def _take_id(left: dict[str, Profile], asked: str | None, subject: str | None, notes: dict[str, str]) -> Key | None:
    """Take the column that names records, if there is one; a person's key may do if it is not the subject."""
    name, why = asked, "as asked"
    if name is None:
        fit = [other for other, profile in left.items() if names_records(other) and _tells_apart(profile)]
        fit = [other for other in fit if other != subject]
        name = min(fit, key=names_people, default=None)
        why = "named like an id, and all values differ"
    return None if name is None else _take_key(left, name, why, notes, alone=True)


def _take_subject(left: dict[str, Profile], asked: str | None, notes: dict[str, str]) -> Key | None:
    """Take the column that names people, if there is one."""
    name, why = asked, "as asked"
    if name is None:
        fit = (other for other, profile in left.items() if names_people(other) and profile.repeated)
        name, why = next(fit, None), "named like a column of people, and values repeat"
    return None if name is None else _take_key(left, name, why, notes, alone=False)


def _tells_apart(profile: Profile) -> bool:
    """Return whether a column has another value in every record, and not amounts."""
    return not (profile.missing or profile.unfit or profile.repeated or _is_amount(profile))


def _is_amount(profile: Profile) -> bool:
    """Return whether all values are numbers, and not such as things are numbered with."""
    return profile.numbers == profile.present and not (profile.whole or profile.padded)


def _take_key(left: dict[str, Profile], name: str, why: str, notes: dict[str, str], *, alone: bool) -> Key:
    profile = left.pop(name)
    said = [why]
    if profile.missing:
        said.append("some are missing: such records are refused")
    if alone and profile.repeated:
        said.append("but values repeat: ids must differ")
    notes[name] = "; ".join(said)
    return Key(name, "integer" if profile.integers and profile.present else "text")


# Targets


def _asked_target(asked: dict[str, Profile], notes: dict[str, str]) -> Classes | Amount:
    """Return the target that was asked for."""
    [(name, profile)] = asked.items()
    goal = _target(name, profile)
    if goal is None:
        what = f"{profile.distinct:,} different texts" if profile.distinct > 1 else "no two values"
        raise BadRecords(f"target={name!r}: it has {what}; choose a column of numbers, or of a few values.")
    notes[name] = _said(["as asked", *_target_notes(goal, profile)])
    return goal


def _guessed_target(
    features: dict[str, Feature], profiles: dict[str, Profile], notes: dict[str, str]
) -> Classes | Amount | None:
    """Take the target from the features: by its name, or else the last column of numbers or categories."""
    fit = [name for name, feature in features.items() if isinstance(feature, (Numeric, Categorical))]
    fit = [name for name in fit if _target(name, profiles[name]) is not None] if len(features) > 1 else []
    if not fit:
        return None
    named = [name for name in fit if names_target(name)]
    name = (named or fit)[-1]
    goal = _target(name, profiles[name])
    why = "guessed from its name" if named else "guessed: it is the last column"
    if goal is not None:
        notes[name] = _said([why, *_target_notes(goal, profiles[name])])
        del features[name]
    return goal


def _target(name: str, profile: Profile) -> Classes | Amount | None:
    """Return what a column is as a target, if it can be one."""
    if profile.present == 0 or (profile.all_kept and len(profile.kept) < 2):
        return None
    if _is_numeric(profile):
        if (
            profile.whole
            and profile.all_kept
            and len(profile.kept) <= FEW_NUMBERS
            and profile.numbers == profile.present
            and profile.way == PLAIN
        ):
            numbers = {int(text) if profile.integers else int(float(text)) for text in profile.kept}
            return Classes(name, tuple(sorted(numbers))) if len(numbers) > 1 else None
        return Amount(name, *round_range(profile.low, profile.high, profile.whole), **profile.way.of_numbers)
    if profile.all_kept and len(profile.kept) <= MOST_CLASSES:
        return Classes(name, tuple(sorted(profile.kept)))
    return None


def _target_notes(goal: Classes | Amount, profile: Profile) -> list[str]:
    missing = ["some are missing: such records are refused"] * (profile.missing > 0)
    if isinstance(goal, Amount):
        return ["an amount", *_way(profile), *_mistakes(profile, "numbers"), *missing]
    return [f"{len(goal.values)} values", *missing, *_rare(profile, _REFUSED)]


# Features


def _feature(name: str, profile: Profile) -> tuple[Feature | None, str]:
    """Return what a column is, None if it is to be ignored, and why."""
    if profile.unfit:
        return None, f"of type {profile.unfit}, which is neither text, number nor date"
    if profile.present == 0:
        return None, "empty"
    if profile.all_kept and len(profile.kept) == 1 and profile.present == profile.rows:
        return None, "constant"
    if tells_who(name) and profile.distinct > 10:
        return None, "named like personal data that identifies someone"
    if (names_a_thing(name) or names_people(name)) and not _is_amount(profile):
        if profile.distinct > profile.present / 2:
            taken = "; it cannot be the id, since values repeat or are missing" * (not _tells_apart(profile))
            return None, f"named like an id: nothing to learn from{taken}"
        return _category(name, profile)
    if _are_iso(profile):
        return _date(name, profile)
    return _numeric(name, profile) if _is_numeric(profile) else _category(name, profile)


def _are_iso(profile: Profile) -> bool:
    return profile.dates >= MOSTLY * profile.present > 0


def _is_numeric(profile: Profile) -> bool:
    small = max(-profile.low, profile.high) < 1e100
    return profile.numbers >= MOSTLY * profile.present and not profile.padded and small


def _date(name: str, profile: Profile) -> tuple[Feature, str]:
    first, last = profile.years
    years = f"{first:04}-01-01", f"{min(last + 1, 9999):04}-01-01"
    feature = Date(name, *years, _flag(profile), profile.way.format)
    said = ["dates", *_way(profile), *_mistakes(profile, "dates"), *_missing(profile)]
    return feature, _said(said)


def _numeric(name: str, profile: Profile) -> tuple[Feature, str]:
    skewed = _is_skewed(profile)
    low, high = round_range(0.0 if skewed else profile.low, profile.high, profile.whole)
    scale: Scale = "log" if skewed else "linear"
    feature = Numeric(name, low, high, scale, _flag(profile), **profile.way.of_numbers)
    said = ["whole numbers" if profile.whole else "numbers"]
    said += ["mostly small, some very large"] * skewed + _way(profile)
    return feature, _said([*said, *_mistakes(profile, "numbers"), *_missing(profile)])


def _is_skewed(profile: Profile) -> bool:
    """Return whether amounts are mostly small, and some very large."""
    if profile.low < 0 or profile.high < 100:
        return False
    return profile.zeros * 2 > profile.numbers or profile.high > 100 * profile.median


def _category(name: str, profile: Profile) -> tuple[Feature | None, str]:
    """Return what a column of texts is, None if it is to be ignored, and why."""
    wrong = _unusual(profile)
    if wrong:
        return None, wrong
    common = sum(count >= RARE for count in profile.kept.values())
    if profile.all_kept and len(profile.kept) <= min(MOST_VALUES, 2 * common):
        values = tuple(sorted(profile.kept))
        number = f"{len(values)} value" + "s" * (len(values) > 1)
        return Categorical(name, values), _said([number, *_missing(profile), *_rare(profile)])
    if profile.words >= FREE_TEXT * profile.present:
        return Text(name), _said(["free text", *_missing(profile)])
    if profile.distinct > NEARLY_ALL * profile.present:
        return None, "nearly all values differ: it may name people"
    if profile.all_kept and common * 2 < len(profile.kept) <= MOST_VALUES:
        return _hashed(name, profile, "most values are rare, so they are not listed")
    return _hashed(name, profile)


def _hashed(name: str, profile: Profile, *why: str) -> tuple[Feature, str]:
    buckets = min(max(2 ** math.ceil(math.log2(profile.distinct)), 32), 256)
    about = "" if profile.all_kept else "about "
    return Hashed(name, buckets), _said([f"{about}{profile.distinct:,} values", *why, *_missing(profile)])


def _unusual(profile: Profile) -> str:
    """Say why texts should be written otherwise, or left out."""

    def most(test: Callable[[str], object]) -> bool:
        return sum(1 for text in profile.kept if test(text)) >= MOSTLY * len(profile.kept)

    if most(lambda text: "@" in text):
        return "e-mail addresses"
    if most(_FOREIGN_DATE.match):
        return "looks like dates in several formats; write them as 2026-11-15 to use them"
    if most(_AMOUNT.fullmatch) and profile.numbers < profile.present and any(map(_is_dressed, profile.kept)):
        return (
            "looks like numbers with a comma, a space or a sign, in several formats; write them as 1234.5 to use them"
        )
    return ""


def _is_dressed(text: str) -> bool:
    return not text.replace(".", "", 1).isdigit() and any(letter in text for letter in ",'€$£¥% ")


# What is said


def _said(phrases: Sequence[str]) -> str:
    return "; ".join(phrases)


def _flag(profile: Profile) -> Missing:
    return "flag" if profile.missing else "middle"


def _way(profile: Profile) -> list[str]:
    return [profile.way.said] * bool(profile.way.said)


def _missing(profile: Profile) -> list[str]:
    return ["some are missing"] * (profile.missing > 0)


def _mistakes(profile: Profile, what: str) -> list[str]:
    wrong = profile.present - (profile.dates if what == "dates" else profile.numbers)
    return [f'some are not {what}: fix them, or add what is written there to "missing"'] * (wrong > 0)


_REFUSED = "; records with other values are then refused, unless you give --on-error skip"
"""What leaving out a target's values leads to."""


def _rare(profile: Profile, then: str = "") -> list[str]:
    rare = any(count < RARE for count in profile.kept.values())
    return [f"some are rare: they may identify a person, so consider leaving them out{then}"] * rare


# Ranges


def round_range(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Return a range of round numbers that holds another; from 0 if that is near.

    >>> round_range(17, 88.5, False), round_range(1954, 2023, True), round_range(-0.31, 0.12, False)
    ((0, 100), (1950, 2030), (-0.4, 0.2))
    """
    if whole and low >= 1800 and high <= 2100:
        step = Decimal(10)
    else:
        low = 0.0 if 0 <= low <= high / 2 else low
        step = _step(max((high - low) / 5, abs(high) / 10**9) or 1.0, whole)
    first = (Decimal(repr(low)) / step).to_integral_value(ROUND_FLOOR)
    last = max((Decimal(repr(high)) / step).to_integral_value(ROUND_CEILING), first + 1)
    return _plain(first * step), _plain(last * step)


def _step(least: float, whole: bool) -> Decimal:
    """Return the smallest of 1, 2, 5, 10, 20, ... and 0.5, 0.2, 0.1, ... that is not below ``least``."""
    power = Decimal(10) ** math.floor(math.log10(least))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= Decimal(least) * Decimal("0.999"))
    return max(step, Decimal(1)) if whole else step


def _plain(number: Decimal) -> float:
    return int(number) if number == number.to_integral_value() and abs(number) < 2**53 else float(number)
