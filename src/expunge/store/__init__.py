"""A model in one SQLite file, in which requests are never lost and deleted bytes are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.store.chain import ReceiptsCheck, check_receipts
    from expunge.store.copies import Restored, backup, restore
    from expunge.store.keys import make_signing_key
    from expunge.store.scanning import Finding, scan
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "chain": "ReceiptsCheck check_receipts",
            "copies": "Restored backup restore",
            "keys": "make_signing_key",
            "scanning": "Finding scan",
        },
    )

__all__ = [
    "Finding", "ReceiptsCheck", "Restored", "backup", "check_receipts", "make_signing_key", "restore", "scan",
]  # fmt: skip
