"""Least squares with few unknowns, none of them negative, by the standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

RIDGE = 1e-10
"""Added to the diagonal of the scaled equations: equal columns then share their part."""


def non_negative(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Return x >= 0 that minimises the sum of weight * (row . x - 1) ** 2.

    With the few unknowns of a clock, all subsets of positive ones are tried: the optimum is the best one of them.
    """
    size = len(rows[0])
    matrix, right = _normal_equations(rows, weights)
    scales = [matrix[i][i] ** 0.5 or 1.0 for i in range(size)]
    scaled = [[matrix[i][j] / scales[i] / scales[j] + RIDGE * (i == j) for j in range(size)] for i in range(size)]
    aim = [value / scale for value, scale in zip(right, scales, strict=True)]
    best, best_gain = [0.0] * size, 0.0
    for count in range(1, size + 1):
        for subset in combinations(range(size), count):
            found = _solved([[scaled[i][j] for j in subset] for i in subset], [aim[i] for i in subset])
            gain = sum(aim[i] * value for i, value in zip(subset, found, strict=True))
            if min(found) >= 0 and gain > best_gain:
                best, best_gain = _spread(size, subset, found), gain
    return [value / scale for value, scale in zip(best, scales, strict=True)]


def _normal_equations(
    rows: Sequence[Sequence[float]], weights: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    size = len(rows[0])
    matrix, right = [[0.0] * size for _ in range(size)], [0.0] * size
    for row, weight in zip(rows, weights, strict=True):
        for i, value in enumerate(row):
            if value:
                right[i] += weight * value
                for j in range(i + 1):
                    matrix[i][j] += weight * value * row[j]
    return [[matrix[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)], right


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a positive definite system by elimination."""
    size = len(right)
    for i in range(size):
        for j in range(i + 1, size):
            factor = matrix[j][i] / matrix[i][i]
            right[j] -= factor * right[i]
            matrix[j] = [mine - factor * its for mine, its in zip(matrix[j], matrix[i], strict=True)]
    for i in reversed(range(size)):
        right[i] = (right[i] - sum(matrix[i][j] * right[j] for j in range(i + 1, size))) / matrix[i][i]
    return right


def _spread(size: int, subset: Sequence[int], values: Sequence[float]) -> list[float]:
    found = [0.0] * size
    for i, value in zip(subset, values, strict=True):
        found[i] = value
    return found
