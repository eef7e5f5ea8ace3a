"""System identification: the constants of a model from a recording of the robot."""

from worldline.identify.fit import Fit as Fit
from worldline.identify.fit import fit as fit
from worldline.identify.log import Log as Log
from worldline.identify.log import read_log as read_log
from worldline.identify.parameters import Parameter as Parameter
from worldline.identify.parameters import find_parameters as find_parameters
from worldline.identify.result import domain_around as domain_around
