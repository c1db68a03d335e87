"""Where a run comes from, and what is in it. No TensorFlow."""

import importlib.metadata
import os
import platform
from collections import Counter
from datetime import UTC, datetime

import h5py

from nmt import __version__
from nmt.data.corpora import format_dropped
from nmt.run_folder import RunFolder

PACKAGES = ("tensorflow", "keras", "numpy", "sentencepiece", "opencc", "sacrebleu")


def provenance(command: str) -> dict:
    """Return when, how and on what a run is made, for its manifest."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "versions": {
            "nmt": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cores": os.cpu_count(),
        },
    }


def describe(run: RunFolder) -> str:
    """Return what is in a prepared run folder, a line a subject."""
    manifest, config, model = run.manifest(), run.config(), run.model_config()
    pairs = ", ".join(f"{count:,} {split}" for split, count in manifest.get("pairs", {}).items())
    output = "tied" if model.tie_embeddings else "separate"
    facts = {
        "run": run.path,
        "created": manifest.get("created", "unknown"),
        "command": manifest.get("command", "unknown"),
        "versions": _listed(manifest.get("versions", {})),
        "hardware": _listed(manifest.get("hardware", {})),
        "pairs": f"{pairs} from {config.data.corpus}, script {config.data.target_script}",
        "dropped": format_dropped(Counter(manifest.get("dropped", {}))),
        "vocabulary": f"{model.source_vocab_size:,} source, {model.target_vocab_size:,} target",
        "model": f"{model.num_layers} layers, d_model {model.d_model}, {model.num_heads} heads, "
        f"dff {model.dff}, dropout {model.dropout_rate}, {model.norm}-norm, {output} output",
        "weights": _weights(run),
        "training": _training(run),
    }
    return "\n".join(f"{name:12} {fact}" for name, fact in facts.items())


def _listed(facts):
    return ", ".join(f"{name} {fact}" for name, fact in facts.items()) or "unknown"


def _weights(run):
    if not run.weights_file.is_file():
        return "none yet"
    sizes: list[int] = []

    def add(_, item):
        # The state of a dropout generator is stored too, as integers, and is no parameter.
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            sizes.append(item.size)

    try:
        with h5py.File(run.weights_file) as file:
            file.visititems(add)
    except OSError as error:
        return f"cannot be read: {error}"
    return f"{sum(sizes):,} parameters, {run.weights_file.stat().st_size / 1e6:.1f} MB"


def _training(run):
    last: dict = {}
    for record in run.metrics():
        last.update(record)
    if not last:
        return "not begun"
    parts = [f"step {last['step']:,}"]
    if "epoch" in last:
        parts.append(f"epoch {last['epoch']:.1f}, {last['minutes']:.1f} minutes")
        parts.append(f"loss {last['loss']:.3f}")
    if "validation_loss" in last:
        parts.append(f"validation loss {last['validation_loss']:.3f}")
        parts.append(f"validation token accuracy {last['validation_accuracy']:.1%}")
    if last.get("validation_bleu") is not None:
        parts.append(f"validation BLEU {last['validation_bleu']:.2f}")
    return ", ".join(parts)
