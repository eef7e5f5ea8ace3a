"""Worlds in a browser: a server for its page, the scene on it, and a page that plays by itself."""
