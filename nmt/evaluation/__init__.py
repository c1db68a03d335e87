"""Evaluation: always of detokenized, free-running translations."""
