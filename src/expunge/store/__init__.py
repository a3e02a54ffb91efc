"""A durable home for a model: one SQLite file, in which requests are never lost and deleted bytes are gone."""

from expunge.store.keys import make_signing_key
from expunge.store.maintenance import Restored, backup, restore
from expunge.store.receipts import ReceiptsCheck, check_receipts
from expunge.store.scanning import Finding, scan

__all__ = [
    "Finding", "ReceiptsCheck", "Restored", "backup", "check_receipts", "make_signing_key", "restore", "scan",
]  # fmt: skip
