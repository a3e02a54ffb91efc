"""A second implementation of the two protocols, slow and plain: places and rows in files."""

import numpy as np

from expunge.base.errors import UnknownId
from expunge.base.intake import Delete, Insert
from expunge.engine.contributions import Located, Total, Totals
from expunge.engine.records.staging import evaluate
from expunge.engine.schedules import Entering


class FileRows:
    """Rows in a file."""

    def __init__(self, folder, array):
        self.name = folder / f"rows-{len(list(folder.iterdir()))}.npy"
        np.save(self.name, array)

    @property
    def shape(self):
        return np.load(self.name, mmap_mode="r").shape

    def __getitem__(self, rows):
        return np.array(np.load(self.name, mmap_mode="r")[rows])

    def write(self, start, block):
        table = np.load(self.name, mmap_mode="r+")
        table[start : start + len(block)] = block
        table.flush()

    def resize(self, steps):
        table = np.load(self.name)
        np.save(
            self.name,
            np.concatenate([table[:steps], np.zeros((max(steps - len(table), 0), *table.shape[1:]))]),
        )

    def damage(self):
        return None


class FileRecords:
    """One column of records, a file for each place; the last column of the file is the id."""

    def __init__(self, folder, features):
        self.folder, self.features, self.count = folder, np.asarray(features, dtype=float), len(features)
        self.staged = self.blocks = None

    def _read(self, place):
        name = self.folder / f"place-{place}.npy"
        return np.load(name) if name.exists() else np.zeros((0, self.features.shape[1] + 1))

    def _block(self, place):
        return self.blocks[place][0] if self.blocks is not None and place in self.blocks else self._read(place)

    def _lengths(self):
        return np.array([len(self._read(place)) for place in range(self.places)], dtype=np.int64)

    def arrange(self, schedule, rng):
        assignment = schedule.assign(self.count, None, rng)
        table = np.column_stack([self.features, np.arange(self.count)])[assignment.order]
        self.places, start = len(assignment.lengths), 0
        for place, length in enumerate(assignment.lengths.tolist()):
            np.save(self.folder / f"place-{place}.npy", table[start : start + length])
            start += length
        return assignment

    def admit(self, abilities):
        pass

    def prepare(self, abilities):
        pass

    def check_entering(self, abilities, edit):
        return edit

    def keep_layout(self):
        pass

    def drop_layout(self):
        pass

    def audit(self):
        return []

    def ids_at(self, place):
        return self._block(place)[:, -1].astype(np.int64)

    def batch_at(self, place):
        return (np.ascontiguousarray(self._block(place)[:, :-1]),)

    def locate(self, ids):
        where = {one: (place, slot) for place in range(self.places) for slot, one in enumerate(self.ids_at(place))}
        if missing := [one for one in ids if one not in where]:
            raise UnknownId(f"ids: id not found: {missing[0]!r}")
        found = np.array([where[one] for one in ids], dtype=np.int64).reshape(-1, 2)
        return Located(found[:, 0], found[:, 1])

    def edit(self, schedule, request, randomness):
        from dataclasses import replace

        if isinstance(request, Delete):
            return schedule.delete(self._lengths(), *self.locate(request.ids))
        assert isinstance(request, Insert)
        rows = np.column_stack([np.asarray(request.columns[0]), request.ids])
        none = np.zeros(0, dtype=np.int64)
        entering = Entering(self.count, len(rows), self._lengths(), None, none, none.astype(np.uint64))
        return replace(schedule.insert(entering, randomness.layout), entering=(rows,))

    def stage(self, edit):
        old = {place: list(self._read(place)) for place in range(self.places + len(edit.put_places))}
        new = {place: list(rows) for place, rows in old.items()}
        for place, slot, source in zip(edit.put_places, edit.put_slots, edit.put_sources, strict=True):
            if source >= 0:
                row = edit.entering[0][source]
            else:
                row = old[edit.moved_places[-1 - source]][edit.moved_slots[-1 - source]]
            new[place][slot : slot + 1] = [row]
        for place in edit.drop_places:
            new[place].pop()
        enters = {tuple(row): place for place, rows in new.items() for row in rows}
        leaves = {tuple(row): place for place, rows in old.items() for row in rows}
        self.blocks = {}
        for place in new:
            came = [row for row, at in enters.items() if at == place and leaves.get(row) != place]
            went = [row for row, at in leaves.items() if at == place and enters.get(row) != place]
            width = self.features.shape[1] + 1
            self.blocks[place] = tuple(np.array(part).reshape(-1, width) for part in (new[place], came, went))
        self.staged = edit

    def total(self, place, step, path, query, participation):
        total = evaluate(query, step, path, self.batch_at(place), participation)
        return total._replace(sum=0.0 + total.sum)

    def before(self, place, step, path, query, participation):
        return evaluate(query, step, path, (np.ascontiguousarray(self._read(place)[:, :-1]),), participation)

    def shifts(self, place, steps, path, query, participation):
        return Totals.of([self.shift(place, step, path.upto(step), query, participation) for step in steps])

    def shift(self, place, step, path, query, participation):
        parts = [evaluate(query, step, path, (rows[:, :-1],), participation) for rows in self.blocks[place][1:]]
        return Total(parts[0].sum - parts[1].sum, sum(p.evaluations for p in parts), sum(p.above for p in parts))

    def changed(self, place, step, path, query, participation, stored):
        shift = self.shift(place, step, path, query, participation)
        return shift._replace(sum=stored + shift.sum)

    def commit(self):
        for place, (rows, _, _) in self.blocks.items():
            np.save(self.folder / f"place-{place}.npy", rows)
        self.count += self.staged.added - self.staged.removed
        self.places = max(self.blocks) + 1
        self.staged = self.blocks = None

    def rollback(self):
        self.staged = self.blocks = None
