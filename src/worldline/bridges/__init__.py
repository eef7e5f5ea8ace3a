"""Bridges: Worldline's worlds behind the interfaces of other libraries, imported on demand."""
