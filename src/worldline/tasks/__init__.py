"""Tasks: Gymnasium's, our own, and the registry through which they are made by name."""
