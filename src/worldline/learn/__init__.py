"""How a policy gets better."""
