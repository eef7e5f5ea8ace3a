"""Robots of our own making."""
