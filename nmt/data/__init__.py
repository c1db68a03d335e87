"""Data: from sentence pairs, wherever they come from, to batches of token ids."""
