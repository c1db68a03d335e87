"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), a room for each part.

Axis legend of every module here: B batch, S source length, T target length, Q/K query/key length,
H heads, D depth per head, M model width (d_model), F inner width (dff), V vocabulary.
Shapes are written as suffixes (`scores_BHQK`) or behind the line (`# (B, T, M)`).
"""
