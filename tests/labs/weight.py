"""A solution of lab 32, and what goes wrong with another WRONG."""

from math import pi, sin

ENGINE_PLUGIN_VERSION = 3
BY_AGE_ALONE, DIVIDES_BY_ZERO = 1, 2


def weight(age, step):
    if WRONG == BY_AGE_ALONE:
        return 1 / (1 + age)
    limit = 2 * sin(pi / (2 * (2 * age + 1)))
    return min(1, 0.7 * limit / step) if age else 1 / (WRONG != DIVIDES_BY_ZERO)
