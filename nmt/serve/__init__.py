"""The server: a JSON interface and one page."""
