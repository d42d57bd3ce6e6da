"""my weight of late gradients

Lab 32: what a late gradient counts. At first it counts nothing, and 'engine check weight.py' says so.

age: updates since the weights of the gradient were given out. step: the learning rate times the largest curvature, up to 1.
The result is from 0 to 1; 1 for age 0, and no larger for an older gradient than for a younger one.
"""

from math import pi, sin

ENGINE_PLUGIN_VERSION = 3


def weight(age, step):
    return 0  # TODO
