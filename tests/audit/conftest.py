"""Stores in tests need not outlive a power cut, and most tests are not about the rehearsal of a deletion."""

import os

import pytest

from expunge.audit import auditor
from expunge.audit.findings import Rehearsal, Scaled
from expunge.store.file import StoreFile

REHEARSED = Rehearsal(
    "6 made-up records", ("loss",), (Scaled("records", "1,024", "6"),), 100, 50, 1e-4, 0.7, None,
    "the record is forgotten", 1e-6, 1e-30, None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_synced(monkeypatch):
    greet = StoreFile._greet

    def greet_hastily(file):
        greet(file)
        file._connection.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(StoreFile, "_greet", greet_hastily)
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="session")
def audit_quickly():
    """Audits, but for the rehearsal."""

    def run(path, **given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auditor, "rehearse", lambda plan, **more: REHEARSED)
            return auditor.audit(path, **given)

    return run


@pytest.fixture
def rehearsed(monkeypatch):
    """Audits take the rehearsal for granted; a test may put another result in its place."""
    found = [REHEARSED]
    monkeypatch.setattr(auditor, "rehearse", lambda plan, **more: found[0])
    return found
