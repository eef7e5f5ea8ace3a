"""The DeepMind Control Suite: same models, starts, observations and rewards."""
