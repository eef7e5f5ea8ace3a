"""The command line.

This is the first module of the `worldline` command to be imported, before those that take seconds.
"""

import time

#: `time.perf_counter()` at the start of the process, from which a run's clock counts.
BEGAN = time.perf_counter()
