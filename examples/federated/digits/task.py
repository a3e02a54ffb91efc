"""The data, the model and its training: all that has nothing to do with Flower."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Images = tuple[Floats, NDArray[np.int64]]
"""Rows of pixels, and the digit that each shows."""

CLASSES = 10
TEST = 360
SMALLEST = 10


@cache
def load() -> tuple[Images, Images]:
    """All images, mixed: those to learn from, and those to score on. No row is longer than 1."""
    pixels, digits = load_digits(return_X_y=True)
    rows = pixels / 16
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    order = np.random.default_rng(0).permutation(len(rows))
    learn, score = order[TEST:], order[:TEST]
    return (rows[learn], digits[learn]), (rows[score], digits[score])


def parts_of(digits: NDArray[Any], clients: int) -> list[NDArray[np.int64]]:
    """Which rows each client has: parts of uneven sizes, in each of which some digits are rare."""
    draws = np.random.default_rng(1)
    sizes = SMALLEST + draws.multinomial(len(digits) - SMALLEST * clients, draws.dirichlet(np.ones(clients)))
    left = np.arange(len(digits))
    parts = []
    for size in sizes:
        liking = 0.001 + draws.dirichlet(np.full(CLASSES, 0.5))[digits[left]]
        part = draws.choice(left, size, replace=False, p=liking / liking.sum())
        parts.append(np.sort(part))
        left = np.setdiff1d(left, part)
    return parts


@cache
def images_of(client: int, clients: int) -> Images:
    """The images that one client learns from."""
    (rows, digits), _ = load()
    part = parts_of(digits, clients)[client]
    return rows[part], digits[part]


def start() -> list[Floats]:
    """The model at first: weights and biases of a softmax regression."""
    return [np.zeros((64, CLASSES)), np.zeros(CLASSES)]


def train(model: list[Floats], images: Images, steps: int, rate: float) -> list[Floats]:
    """The model after some steps of gradient descent on all images at once."""
    weights, biases = (array.copy() for array in model)
    rows, digits = images
    truth = np.eye(CLASSES)[digits]
    for _ in range(steps):
        scores = rows @ weights + biases
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        misses = likely / likely.sum(axis=1, keepdims=True) - truth
        weights -= rate * rows.T @ misses / len(rows)
        biases -= rate * misses.mean(axis=0)
    return [weights, biases]


def accuracy(model: list[Floats], images: Images) -> float:
    """The part of images that the model reads right."""
    rows, digits = images
    weights, biases = model
    return float(np.mean(np.argmax(rows @ weights + biases, axis=1) == digits))
