"""Bridges: Worldline's worlds with the interfaces of other libraries, imported on demand."""
