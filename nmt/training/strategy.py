"""How the work is laid out on the hardware."""

import os
import platform
from pathlib import Path

import tensorflow as tf


def keras_policy(precision: str) -> str:
    """Return the Keras dtype policy for "float32", "bfloat16" or "auto"."""
    if precision == "bfloat16" or (precision == "auto" and has_bfloat16()):
        return "mixed_bfloat16"
    return "float32"


def has_bfloat16() -> bool:
    """Say whether the processor multiplies bfloat16 in hardware (known on Linux only)."""
    if platform.system() != "Linux":
        return False
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def share_cores(parts: int) -> None:
    """Give each of `parts` independent pieces of a computation its own share of the cores.

    The operations of a small model are too short to be split among threads with profit; whole
    pieces side by side are not. Has to be called before TensorFlow computes anything, and changes
    nothing afterwards.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, (cores or 1) // parts))
        tf.config.threading.set_inter_op_parallelism_threads(parts)
    except RuntimeError:
        pass  # already computing, as in a notebook: right, only slower


def rows_of(tensors, part, parts):
    """Return rows `part` / `parts` to (`part` + 1) / `parts` of tensors of B rows each.

    With fewer rows than parts, some parts are tensors without rows. `part` may be a tensor.
    """
    rows = tf.shape(tensors[0])[0]
    start, end = rows * part // parts, rows * (part + 1) // parts
    return [tensor[start:end] for tensor in tensors]


def split_rows(tensors, parts: int):
    """Split tensors of B rows each into `parts` lists of tensors of about B / parts rows."""
    return [rows_of(tensors, part, parts) for part in range(parts)]
