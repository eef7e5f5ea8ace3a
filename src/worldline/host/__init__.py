"""From a compiled program to this process and back."""
