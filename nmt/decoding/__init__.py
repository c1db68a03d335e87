"""Decoding: from a step function to hypotheses, from text to text."""
