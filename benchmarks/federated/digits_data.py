"""Clients that hold scikit-learn's digits, uneven in labels and sizes, and their local training, all at once.

Twenty clients share the training images out among themselves. For more there are too few images, so that clients draw
theirs with replacement, and several have the same one. Local training is some gradient steps of softmax regression on
all images of a client. What a client answers depends on its own images and the model only, to the last bit: clients
whose images fill the same power of two of rows are trained together, each with matrix products of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from expunge.base.types import Array, Ints

CLASSES, FEATURES = 10, 65
PARAMETERS = FEATURES * CLASSES
HELD_OUT = 360
"""How many images are for testing; as many of the others are for choosing settings."""
FEWEST, MOST, USUAL = 10, 64, 20
"""Images of a client that draws them: the smallest, largest and median number."""
SKEW = 0.5
"""The parameter of the Dirichlet law of a client's labels; below 1 a few labels prevail."""


class Images(NamedTuple):
    """Images of norm at most 1 with a constant 1 beside them, and their labels."""

    pixels: Array
    labels: Ints


class Digits(NamedTuple):
    """What clients have, and what models are scored on."""

    train: Images
    held_out: Images


def load(choosing: bool = False) -> Digits:
    """Return the digits; for choosing settings, without the test part, and other images held out."""
    bunch = load_digits()
    pixels = bunch.data / 16.0
    pixels = pixels / np.maximum(1.0, np.linalg.norm(pixels, axis=1, keepdims=True))
    pixels = np.column_stack([pixels, np.ones(len(pixels))])
    order = np.random.default_rng(0).permutation(len(pixels))
    if choosing:
        order = order[HELD_OUT:]

    def part(of: Ints) -> Images:
        return Images(pixels[of], bunch.target[of])

    return Digits(part(order[HELD_OUT:]), part(order[:HELD_OUT]))


def share_out(images: Images, number: int, seed: int = 0) -> list[Ints]:
    """Return which images each client has: a partition for few clients, drawn with replacement for many."""
    rng = np.random.default_rng([seed, number])
    if number * FEWEST * 4 <= len(images.labels):
        return _partition(images.labels, number, rng)
    by_label = [np.flatnonzero(images.labels == label) for label in range(CLASSES)]
    sizes = np.clip(np.round(USUAL * rng.lognormal(0.0, 0.5, size=number)), FEWEST, MOST).astype(int)
    found = []
    for size in sizes.tolist():
        labels = rng.choice(CLASSES, size=size, p=rng.dirichlet(np.full(CLASSES, SKEW)))
        found.append(np.array([rng.choice(by_label[label]) for label in labels]))
    return found


def _partition(labels: Ints, number: int, rng: np.random.Generator) -> list[Ints]:
    """Cut the images of each label by a Dirichlet law, until every client has enough."""
    while True:
        parts: list[list[Ints]] = [[] for _ in range(number)]
        for label in range(CLASSES):
            mine = rng.permutation(np.flatnonzero(labels == label))
            cuts = np.cumsum(rng.dirichlet(np.full(number, SKEW)))[:-1] * len(mine)
            for part, piece in zip(parts, np.split(mine, cuts.astype(int)), strict=True):
                part.append(piece)
        found = [np.concatenate(part) for part in parts]
        if min(map(len, found)) >= FEWEST:
            return found


class _Group(NamedTuple):
    """Clients with the same number of rows, padded with zeros, which add nothing to any sum."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.float32]
    sizes: NDArray[np.float32]


class Clients:
    """Clients, known by their numbers, and how they train.

    >>> clients = Clients(load().train, [np.arange(10), np.arange(10, 40)])
    >>> clients.updates([0, 1], np.zeros(PARAMETERS), steps=5, rate=1.0).shape
    (2, 650)
    """

    def __init__(self, images: Images, owned: Sequence[Ints]) -> None:
        self.owned = owned
        rows = [1 << int(len(mine) - 1).bit_length() for mine in owned]
        self._home: list[tuple[int, int]] = [(0, 0)] * len(owned)
        self._groups: dict[int, _Group] = {}
        for height in sorted(set(rows)):
            members = [client for client, mine in enumerate(rows) if mine == height]
            pixels = np.zeros((len(members), height, FEATURES), dtype=np.float32)
            labels = np.zeros((len(members), height, CLASSES), dtype=np.float32)
            for position, client in enumerate(members):
                mine = owned[client]
                pixels[position, : len(mine)] = images.pixels[mine]
                labels[position, np.arange(len(mine)), images.labels[mine]] = 1.0
                self._home[client] = (height, position)
            sizes = np.array([len(owned[client]) for client in members], dtype=np.float32)
            self._groups[height] = _Group(pixels, labels, sizes)

    def __len__(self) -> int:
        return len(self.owned)

    def updates(self, clients: Sequence[int], model: Array, steps: int, rate: float) -> Array:
        """Return by how much some clients would change a model, one a row."""
        found = np.empty((len(clients), PARAMETERS))
        start = model.reshape(FEATURES, CLASSES).astype(np.float32)
        homes = np.array([self._home[client] for client in clients]).reshape(-1, 2)
        for height, group in self._groups.items():
            here = np.flatnonzero(homes[:, 0] == height)
            if len(here):
                wanted = homes[here, 1]
                trained = _train(_Group(*(part[wanted] for part in group)), start, steps, np.float32(rate))
                found[here] = trained.reshape(-1, PARAMETERS)
        return found


def _train(group: _Group, start: NDArray[np.float32], steps: int, rate: np.float32) -> NDArray[np.float32]:
    """Return what gradient steps change of the model that all clients start with."""
    moved = np.zeros((len(group.pixels), FEATURES, CLASSES), dtype=np.float32)
    across = group.pixels.transpose(0, 2, 1)
    scale = (rate / group.sizes)[:, None, None]
    for _ in range(steps):
        chances = np.matmul(group.pixels, start + moved)
        chances -= chances.max(axis=2, keepdims=True)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=2, keepdims=True)
        moved -= scale * np.matmul(across, chances - group.labels)
    return moved


def accuracy(model: Array, images: Images) -> float:
    """Return the share of images that a model labels rightly."""
    return float(np.mean(np.argmax(images.pixels @ model.reshape(FEATURES, CLASSES), axis=1) == images.labels))
