"""What a world is worth, and episodes."""
