"""Environments: tasks on engines, in batches of worlds with episodes."""
