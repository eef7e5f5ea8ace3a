"""Cameras to images: what a world looks like, as part of its observation."""
