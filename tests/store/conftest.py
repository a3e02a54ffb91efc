"""Stores in tests need not outlive a power cut: nothing is synced, except where a test is about that."""

import os

import pytest

from expunge.store import failpoints
from expunge.store.file import StoreFile


@pytest.fixture(autouse=True)
def _nothing_is_synced(monkeypatch):
    greet = StoreFile._greet

    def greet_hastily(file):
        greet(file)
        file._connection.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(StoreFile, "_greet", greet_hastily)
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(autouse=True)
def _no_hook_is_left():
    yield
    failpoints.hook = None
