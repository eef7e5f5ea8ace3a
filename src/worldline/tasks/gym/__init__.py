"""Gymnasium's MuJoCo tasks, version 5: same models, observations, rewards and terminations."""
