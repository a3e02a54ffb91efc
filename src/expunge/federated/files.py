"""The file of a federation: making one, and reading the model from it."""

from __future__ import annotations

import uuid
from os import PathLike
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan, Unfinished
from expunge.base.types import AnyArray, Array
from expunge.engine.selectors import select
from expunge.engine.transcript import Path as RowPath
from expunge.federated.federation import Federation
from expunge.federated.sealing import ROUND_BITS, Seal, as_seal_key
from expunge.federated.stored import START, client_bytes
from expunge.solvers.plans.federated import FederatedPlan
from expunge.store.file import StoreFile
from expunge.store.keys import fingerprint
from expunge.store.receipts import genesis
from expunge.store.rows import StoredRows, as_numbers
from expunge.store.saving import as_path, new_store, page_for
from expunge.store.state import DESCRIPTION, KNOWN, Description, FederationState, read_federation, write_state


def create(path: str | PathLike[str], plan: FederatedPlan, start: Array, members: Any, *, seal: Any = None) -> None:
    """Write a federation, of which no round has been made, into a new file.

    ``seal`` is the key that contributions are encrypted with: 32 bytes, or the path of a file with it. By default it is
    beside the store, in a file that ends in ``-seal``. Keep it in another place than backups of the store.
    """
    where = as_path(path)
    if plan.rounds >= 2**ROUND_BITS:
        raise BadPlan(f"rounds={plan.rounds}: a file holds fewer than {2**ROUND_BITS}.")
    drafted = Federation(plan, start)  # which checks all that is given
    drafted.join(members)
    with new_store(where, page_for(4 * (plan.parameters + 1))) as (file, key):
        sealing = as_seal_key(seal, where, new=True)
        store = uuid.uuid4().hex
        Seal(sealing, store)
        file.put_text("about", DESCRIPTION, KNOWN.write(Description("Federation", {}, {}, plan)))
        file.put("arrays", START, drafted.transcript.start.astype("<f8").tobytes())
        for client in drafted.clients.members.values():
            file.put("ids", client.slot, client_bytes(client, True))
        write_state(file, FederationState(store, 0, 0, genesis(store), fingerprint(key), fingerprint(sealing)))


def load(path: str | PathLike[str]) -> dict[str, AnyArray]:
    """Return the arrays of a federation's model, by name, for serving; this needs neither seal nor lock.

    A process that trains may have the federation open meanwhile.
    """
    file = StoreFile(as_path(path), read_only=True)
    try:
        with file.reading():
            plan, _ = read_federation(file)
            iterates = StoredRows(file, "iterates", plan.parameters)
            made = iterates.shape[0]
            start = as_numbers(file, "arrays", START, file.need("arrays", START), "<f8").astype(np.float64)
    finally:
        file.close()
    if made != plan.rounds:
        raise Unfinished(f"{path}: rounds are still to be made; start the strategy again.")
    return plan.arrays_of(select(plan.selector, RowPath(start, iterates, made)))
