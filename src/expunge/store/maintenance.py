"""Looking after a store: scanning its bytes, compacting, backups."""

from __future__ import annotations

from expunge.store import failpoints
from expunge.store.file import StoreFile, beside
from expunge.store.keeper import DurableKeeper
from expunge.store.saving import remove


def compact_kept(keeper: DurableKeeper) -> None:
    """Rewrite the file of a store in canonical order."""
    new = beside(keeper.path, "-new")
    with keeper.lock:
        keeper.reindex()
        remove(new)
        try:
            keeper.file.copy_to(new)
            failpoints.reach("compact: copied")
            copy = StoreFile(new)
            try:
                failpoints.reach("compact: replacing")
                keeper.file.replace_by(copy)
            finally:
                copy.close()
            failpoints.reach("compact: replaced")
            keeper.empty_log()
        finally:
            remove(new)
