"""What the name of a column says about it, in English."""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KEYS = _set("id ids uuid guid key")
_NUMBERS = _set("no nr num number record row rowid")
_BESIDE = _KEYS | _NUMBERS | _set("e hash pseudonym address ref reference")
_PEOPLE = _set(
    "subject person customer cust patient user client member account email mail employee student participant applicant "
    "borrower donor driver citizen visitor subscriber respondent individual"
)
_CONTACTS = _set(
    "phone telephone mobile fax ssn iban passport surname lastname firstname forename fullname street address"
)
_NAMES = _PEOPLE | _set("name full first last middle given family maiden")
_TARGETS = _set("target label outcome class y")


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters.

    >>> words("customerID [old]"), words("userid")
    (['customer', 'id', 'old'], ['user', 'id'])
    """
    parts = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    split = ([part[:-2], part[-2:]] if part[-2:] in _BESIDE and part[:-2] in _PEOPLE else [part] for part in parts)
    return [word for pair in split for word in pair if word]


def names_a_thing(name: str) -> bool:
    """Return whether a column is named like one of keys: ``order_id``, not ``order``."""
    return not _KEYS.isdisjoint(words(name)[-1:])


def names_records(name: str) -> bool:
    """Return whether a column is named like one that tells records apart."""
    said = words(name)
    return names_a_thing(name) or not _NUMBERS.isdisjoint(said[-1:]) or said == ["index"] or names_people(name)


def names_people(name: str) -> bool:
    """Return whether a column is named like one that says whose record it is: ``patient no``, not ``patient age``."""
    said = set(words(name))
    return bool(said & _PEOPLE) and said <= _PEOPLE | _BESIDE


def tells_who(name: str) -> bool:
    """Return whether a column is named like one that holds names, numbers or addresses of people."""
    said = set(words(name))
    return bool(said & _CONTACTS) or ("name" in said and said <= _NAMES)


def names_target(name: str) -> bool:
    """Return whether a column is named like one to predict."""
    said = words(name)
    return len(said) == 1 and said[0] in _TARGETS
