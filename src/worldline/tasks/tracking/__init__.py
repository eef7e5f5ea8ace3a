"""Motion tracking: reference motions from files, and a task in which a robot follows one."""
