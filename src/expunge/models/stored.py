"""A model in a file: closing it, and its receipts."""

from __future__ import annotations

from typing import Any, cast

from expunge.base.errors import StoreError
from expunge.base.intake import Delete, NamedBy, as_ids, check_named
from expunge.base.types import Mask
from expunge.models.serving import Serving
from expunge.store.copies import compact_kept
from expunge.store.owner import StoredOwner
from expunge.store.receipts import are_named
from expunge.store.session import Filed


class Stored(Filed, Serving):
    """A model that may be stored in a file."""

    @property
    def _store(self) -> StoredOwner:
        """What keeps the file."""
        owner = self.__dict__.get("_owner")
        if owner is None or owner.path is None:
            raise StoreError("this model is in memory only; save(path) it, and use expunge.open(path).")
        stored: StoredOwner = owner
        return stored

    def _refuse_stored(self, what: str) -> None:
        owner = self.__dict__.get("_owner")
        if owner is not None and owner.path is not None:
            raise StoreError(
                f"{what}: this model is stored in {owner.path}, with its records. Use insert, or replan(); to start "
                "from other records, fit a new model and save it to another path."
            )

    def close(self) -> None:
        """Close the model's file; a model in memory has nothing to close."""
        owner = self.__dict__.get("_owner")
        if owner is not None:
            owner.close()

    def compact(self) -> None:
        """Rewrite the file in canonical order, without empty pages: its layout then reveals no history."""
        self._need_fit()
        compact_kept(self._store)

    def export_receipts(self, *, ids: Any = None, subjects: Any = None) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed; or those that name certain ids or subjects."""
        self._check_fitted()
        return self._store.export(ids, subjects)

    def were_erased(self, ids: Any = None, subjects: Any = None) -> Mask:
        """Say for each id, or each subject, whether a deletion has named it; call this before an insertion.

        Deleted people may come back, but not by mistake. This reads all receipts, so `insert` does not call it. A
        request that found nobody does not count. A request that found some of those it named counts for all of them:
        its receipt does not distinguish them.
        """
        check_named(Delete(ids, subjects))
        return self._erased(subjects=subjects)[0] if ids is None else self._erased(ids=ids)[0]

    def _erased(self, **named: Any) -> list[Mask]:
        """Return the same of ids and of subjects: the receipts are read once for both."""
        owner = self._store
        receipts = [one for one in owner.receipts()[1] if one.kind == "delete" and one.removed]
        found = []
        for named_by, given in cast("dict[NamedBy, Any]", named).items():
            digests = {digest for one in receipts if one.named_by == named_by for digest in one.digests}
            found.append(are_named(owner.session.key, named_by, as_ids(named_by, given), digests))
        return found
