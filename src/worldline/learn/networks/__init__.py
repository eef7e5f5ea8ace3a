"""Networks as pytrees."""
