"""Fitting a model from blocks of records directly into a file: no more than a block of them is ever in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags

from expunge.base.columns import canonical, is_sparse, rows_in, stack
from expunge.base.errors import BadPlan, BadRecords, warn_caller
from expunge.base.intake import as_ids, check_distinct
from expunge.base.progress import Show, progress_bars
from expunge.base.types import AnyArray, Batch, Column, Keys
from expunge.engine.learning import learn
from expunge.engine.randomness import Randomness
from expunge.engine.records.lookup import fresh_hash_key, hashes
from expunge.engine.schedules import Assignment
from expunge.models.forgetting import ForgettingModel
from expunge.models.opening import open
from expunge.models.saving import SEED_TELLS
from expunge.store.file import StoreFile
from expunge.store.keys import Signer, as_signer
from expunge.store.layout import Layout
from expunge.store.places import StoredPlaces
from expunge.store.records import Inventory, StoredRecords, index_records
from expunge.store.saving import as_path, begin_store, check_new, new_store, page_for, remove_spool
from expunge.store.sorting import Spool
from expunge.store.sqlite import WAIT, as_wait
from expunge.store.state import first_state, store_transcript, write_signer, write_state
from expunge.store.surroundings import beside
from expunge.tables.blocks import Source, blocks_of
from expunge.tables.forming import Block
from expunge.tables.schema import EncodedTables


def ingest(
    model: Any,
    source: Any,
    path: str | PathLike[str],
    *,
    target: str | None = None,
    id: str | None = None,
    subject: str | None = None,
    features: Sequence[str] | None = None,
    rows: int = 65536,
    progress: bool | Show | None = None,
    wait: float = WAIT,
    sign_with: Any = None,
) -> Any:
    """Fit a model of this kind to records that come in blocks, in a new file, and open it.

    ``source`` is an iterable of blocks, each a tuple (X, y), (X, y, ids) or (X, y, ids, subjects), or a table of Arrow,
    pandas or polars; or one such block; or the path of a CSV, JSON-lines, Parquet or Arrow file, or several. If columns
    have names, ``target``, ``id`` and ``subject`` say what they are; all others, or ``features``, are features. Or it
    is `expunge.tables.schema.EncodedTables`: files with a schema that says how to encode them; the schema is then
    stored with the model, as ``schema_``. 32-bit features stay in 32 bits, and sparse ones stay sparse. ``model``
    itself is not fitted; what it cannot know from a part of the records, such as ``classes``, must be declared. Records
    are read once, kept in temporary files beside ``path`` until they are laid out, and then trained on a block at a
    time. With ``sign_with``, a key or its path, the file notes the public key: requests then need the key.

    >>> import tempfile, expunge
    >>> rng = np.random.default_rng(0)
    >>> def blocks():
    ...     for number in range(3):
    ...         X = rng.normal(size=(1000, 2)).astype(np.float32)
    ...         yield X, X[:, 0] > 0, np.arange(1000) + 1000 * number
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wanted = expunge.LogisticRegression(classes=[False, True])
    ...     with ingest(wanted, blocks(), folder + "/model.expunge") as model:
    ...         outcome = model.unlearn([17, 2042])
    ...         print(model.n_records_, model.verify().ok)
    2998 True
    """
    path, wait = as_path(path), as_wait(wait)
    _check_model(model)
    check_new(path)
    signer = as_signer(sign_with) or None  # raises for what is no key, before anything is read
    model = _unfitted(model)
    estimate, schema = _no_estimate, None
    if isinstance(source, EncodedTables):
        source.encoder.sparse = source.encoder.sparse and takes_sparse(model)
        estimate, schema, source = source.estimate, source.schema, iter(source)
    blocks = blocks_of(source, target=target, id=id, subject=subject, features=features, rows=rows)
    folder = beside(path, "-spool")
    remove_spool(folder)  # of a process that died
    with progress_bars(progress) as show, Spool(folder) as spool:
        first = _read(model, blocks, spool, estimate, show)
        _check_distinct(spool, len(model.COLUMNS))
        model._plan_fit(spool.count, model.n_features_in_, first.y, sparse=is_sparse(first.X))
        if schema is not None:
            model.schema_ = schema
        with Randomness.fresh() as randomness:
            _fit(model, first, blocks.names, spool, path, signer, randomness, show)
    handed_in = {name: getattr(model, name) for name in model.HANDED_IN}
    return open(path, **handed_in, wait=wait, sign_with=sign_with)


def _check_model(model: Any) -> None:
    """Raise if this is not a model, or has a seed."""
    if not isinstance(model, ForgettingModel):
        raise BadPlan(f"model: expected a model of Expunge, got {type(model).__name__}.")
    if model.random_state is not None:
        raise BadPlan(f"random_state: a model in a file must not have one, {SEED_TELLS}. Leave it out.")


def _unfitted(model: Any) -> Any:
    """Return a copy of a model that is not fitted; raise if it must see all records to know its classes."""
    copy = clone(model)
    if getattr(copy, "classes", ()) is None and is_classifier(copy):
        raise BadPlan("classes: declare all of them; some may be missing in a block of records.")
    return copy


def takes_sparse(model: Any) -> bool:
    """Say whether a model can learn from sparse rows."""
    return bool(get_tags(model).input_tags.sparse)


# --- reading ------------------------------------------------------------------------------------------


def _no_estimate(records: int) -> int | None:
    return None


def _read(model: Any, blocks: Source, spool: Spool, estimate: Callable[[int], int | None], show: Show) -> Block:
    """Put all records into temporary files; return the first block, without its rows."""
    like: Block | None = None
    supervised = "y" in model.COLUMNS
    for block in blocks:
        if supervised and block.y is None:
            raise BadRecords("target: say which column it is, or give blocks (X, y).")
        if is_sparse(block.X) and not takes_sparse(model):
            raise BadRecords(f"X: sparse, which {type(model).__name__} cannot take; give blocks with its toarray().")
        if like is None:
            like = block._replace(X=block.X[:0])
            model.n_features_in_ = block.X.shape[1]
            if supervised and hasattr(model, "_meet_targets"):
                model._meet_targets(block.y, None, block.X.shape[1], is_sparse(block.X))
        if supervised:
            model._encode_targets(block.y)  # raises for what does not fit, before anything is laid out
        ids = np.arange(spool.count, spool.count + rows_in(block.X)) if block.ids is None else block.ids
        given = (block.X, block.y if supervised else None, ids, block.subjects)
        spool.add(tuple([column for column in given if column is not None]))
        show("reading", spool.count, blocks.total or estimate(spool.count))
    if like is None or spool.count == 0:
        raise BadRecords("source: no records; give at least one.")
    return like


def _all(spool: Spool, column: int) -> AnyArray:
    return np.concatenate(list(spool.column(column)))


def _check_distinct(spool: Spool, column: int) -> None:
    """Raise if an id appears twice, without holding all of them."""
    key = fresh_hash_key()
    hashed = np.sort(np.concatenate([hashes(as_ids("ids", ids), key) for ids in spool.column(column)]))
    twice = hashed[1:][hashed[1:] == hashed[:-1]]
    if len(twice):
        likely = [ids[np.isin(hashes(ids, key), twice)] for ids in spool.column(column)]
        check_distinct(np.concatenate(likely), "ids must be unique (use subject= to group records)")


# --- laying out and training --------------------------------------------------------------------------


def _fit(
    model: Any, first: Block, names: list[str] | None, spool: Spool, path: Path, signer: Signer | None,
    randomness: Randomness, show: Show,
) -> None:  # fmt: skip
    count, width, has_subjects = spool.count, len(model.COLUMNS), first.subjects is not None
    model._draw(randomness.plan)
    learner, numbers = model.plan_.learner, None
    if has_subjects:
        subjects = _all(spool, width + 1)
        model._refuse_crowds(subjects, None)
        numbers = np.unique(subjects, return_inverse=True)[1]
        del subjects
    assignment = learner.schedule.assign(count, numbers, randomness.layout)
    encoder = _Encoder(model, first.X)
    keys = () if assignment.keys is None else (assignment.keys[:0],)
    layout = Layout.of((*encoder.types, *_none(spool, width, has_subjects), *keys), width, encoder.kept)
    page = page_for(count * encoder.row_bytes // max(1, len(assignment.lengths)))
    with new_store(path, page) as (file, key):
        pieces = spool.by_place(assignment.order, assignment.lengths, convert=encoder)
        hash_key = fresh_hash_key()
        hashed = _lay(file, layout, _with_keys(pieces, assignment), has_subjects, hash_key, count, show)
        buckets = index_records(file, *hashed, assignment.lengths)
        next_id = count if first.ids is None else None
        inventory = Inventory(count, next_id, has_subjects, *buckets, layout, hash_key.hex())
        records = StoredRecords(file, inventory, learner.schedule)
        steps = learner.schedule.steps(count)
        transcript = learn(
            learner, records, randomness, arranged=True, watch=lambda done: show("training", done, steps)
        )
        model._refuse_fresh(transcript)
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        store_transcript(file, learner, transcript)
        begin_store(file, model._description(), model._packed_projection(), transcript)
        write_state(file, first_state(inventory, key))
        write_signer(file, signer)
        encoder.report()  # before there is a file: a warning may be an error
        model._report_size(count)


def _none(spool: Spool, width: int, has_subjects: bool) -> Batch:
    """Return ids and subjects, without records."""
    return tuple([next(iter(spool.column(number)))[:0] for number in range(width, width + 1 + has_subjects)])


class _Encoder:
    """Brings blocks of records into the form in which they are kept."""

    def __init__(self, model: Any, like: Column) -> None:
        self._model = model
        self._abilities = model.plan_.learner.abilities
        self._width = len(model.COLUMNS)
        self._said: dict[type[Warning], str] = {}
        projected = getattr(model, "_projection", None) is not None
        self.kept = "f4" if like.dtype == np.float32 and not projected else ""
        model._sparse = is_sparse(like) and not projected
        rows = sparse.csr_array((1, model.n_features_in_)) if is_sparse(like) else np.zeros((1, model.n_features_in_))
        targets = () if self._width == 1 else (_any_target(model),)
        self.types: Batch = tuple([column[:0] for column in model._new_columns(rows, *targets)])
        self._layout = Layout.of(self.types, self._width, self.kept)
        self.row_bytes = sum(one.numbers * one.stored.itemsize for one in self._layout.columns)

    def __call__(self, columns: Batch) -> Batch:
        """Encode a block; ids and subjects stay as they are."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            encoded = self._model._new_columns(columns[0].astype(np.float64), *columns[1 : self._width])
        encoded = tuple([canonical(column) if is_sparse(column) else column for column in encoded])
        for one in caught:
            self._said.setdefault(one.category, str(one.message))
        if self._abilities.admit is not None:
            self._abilities.admit(encoded)
        if self._abilities.prepare is not None:
            encoded = self._abilities.prepare(encoded)
        kept = [
            one.narrowed(column).astype(one.stored, copy=False)
            for one, column in zip(self._layout.columns, encoded, strict=True)
        ]
        return (*kept, *columns[self._width :])

    def report(self) -> None:
        """Warn of what was noticed, once."""
        for category, message in self._said.items():
            warn_caller(message, category)


def _any_target(model: Any) -> AnyArray:
    known = getattr(model, "classes_", None)
    return np.zeros(1) if known is None else known[:1]


def _with_keys(pieces: Iterator[tuple[int, Batch]], assignment: Assignment) -> Iterator[tuple[int, Batch]]:
    """Add the keys, where the schedule has them."""
    start = 0
    for place, columns in pieces:
        stop = start + int(columns[0].shape[0])
        if assignment.keys is not None:
            columns = (*columns, assignment.keys[assignment.order[start:stop]])
        start = stop
        yield place, columns


def _lay(
    file: StoreFile,
    layout: Layout,
    pieces: Iterator[tuple[int, Batch]],
    has_subjects: bool,
    hash_key: bytes,
    count: int,
    show: Show,
) -> tuple[list[Keys], list[Keys] | None]:
    """Write records place by place; return the hashes of their ids and subjects, in this order."""
    places = StoredPlaces(file, layout, 0)
    ids: list[Keys] = []
    subjects: list[Keys] = []
    done = 0
    for place, slot, columns in _whole_parts(pieces, layout.rows):
        places.lay(place, columns, slot)
        ids.append(hashes(columns[layout.width], hash_key))
        if has_subjects:
            subjects.append(hashes(columns[layout.width + 1], hash_key))
        done += int(columns[0].shape[0])
        show("laying out", done, count)
    return ids, subjects if has_subjects else None


def _whole_parts(pieces: Iterator[tuple[int, Batch]], rows: int) -> Iterator[tuple[int, int, Batch]]:
    """Return (place, first slot, columns), where only the last piece of a place may end in the middle of a part."""
    place, slot, rest = -1, 0, tuple[Column, ...]()
    for at, columns in pieces:
        if at == place and rest:
            columns = tuple([stack(pair) for pair in zip(rest, columns, strict=True)])
        elif rest:
            yield place, slot, rest
        if at != place:
            place, slot = at, 0
        count = rows_in(columns[0])
        whole = count // rows * rows
        if whole:
            yield place, slot, tuple([column[:whole] for column in columns])
            slot += whole
        rest = tuple([column[whole:] for column in columns]) if whole < count else ()
    if rest:
        yield place, slot, rest
