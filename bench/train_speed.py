"""Measure training speed: useful tokens a second of a preset, in parts and precisions, interleaved.

    python bench/train_speed.py checkpoints/quickstart --rounds 3 --seconds 10

Needs a prepared run folder, whose data and settings it takes. Every measurement runs in a process
of its own; the variants take turns, and the ratio to the first is that of the medians. Nothing
else should run on the machine meanwhile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

VARIANTS = [(1, "float32"), (1, "bfloat16"), (2, "float32"), (2, "bfloat16")]
WARM_UP_STEPS = 25


def measure(run_path, parts, precision, seconds):
    """Train from random weights for `seconds` after the warm-up; return a dict of figures."""
    import dataclasses
    import resource

    import numpy as np
    import tensorflow as tf

    from nmt.data.batches import batches_from
    from nmt.data.prepared import load_train
    from nmt.model.transformer import build_transformer
    from nmt.run_folder import RunFolder
    from nmt.text.tokenizer import PAD
    from nmt.training.optimizer import FusedAdam
    from nmt.training.schedule import WarmupSchedule
    from nmt.training.strategy import keras_policy, share_cores
    from nmt.training.trainer import make_train_step

    share_cores(parts)
    run = RunFolder(run_path)
    config = dataclasses.replace(run.config().training, batch_parts=parts)
    model = build_transformer(run.model_config(), seed=1, dtype=keras_policy(precision))
    optimizer = FusedAdam(WarmupSchedule(model.config.d_model), beta_2=0.98, epsilon=1e-9)
    optimizer.build(model.trainable_variables)
    train_step = make_train_step(model, optimizer, config)
    tokens = steps = 0
    start = None
    for batch in batches_from(load_train(run), config.batch_tokens, seed=1, step=0):
        sums, _ = train_step(*batch)
        steps += 1
        tokens += np.count_nonzero(batch.source_ids != PAD) + int(sums.tokens)
        if steps == WARM_UP_STEPS:
            start, tokens = time.perf_counter(), 0
        if start and time.perf_counter() - start > seconds:
            break
    elapsed = time.perf_counter() - start
    return {
        "tokens_per_second": tokens / elapsed,
        "ms_per_step": 1000 * elapsed / (steps - WARM_UP_STEPS),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "tensorflow": tf.__version__,
    }


def main():
    """Run all variants in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--variant", nargs=2, metavar=("PARTS", "PRECISION"), help="measure one")
    options = parser.parse_args()
    if options.variant:
        parts, precision = options.variant
        print(json.dumps(measure(options.run, int(parts), precision, options.seconds)))
        return
    results = {variant: [] for variant in VARIANTS}
    for _ in range(options.rounds):
        for parts, precision in VARIANTS:
            done = subprocess.run(
                [sys.executable, __file__, options.run, "--seconds", str(options.seconds)]
                + ["--variant", str(parts), precision],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
            results[parts, precision].append(json.loads(done.stdout.splitlines()[-1]))
    print("parts  precision   tokens/s (min-max)         ms/step  peak MiB  ratio")
    first = statistics.median(r["tokens_per_second"] for r in results[VARIANTS[0]])
    for (parts, precision), runs in results.items():
        speeds = [r["tokens_per_second"] for r in runs]
        median = statistics.median(speeds)
        print(
            f"{parts:5}  {precision:9}  {median:8,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f})"
            f"  {statistics.median(r['ms_per_step'] for r in runs):12.0f}"
            f"  {statistics.median(r['peak_mib'] for r in runs):8,.0f}  {median / first:5.2f}"
        )


if __name__ == "__main__":
    main()
