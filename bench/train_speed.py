"""Measure training speed against peers and against ourselves: useful tokens a second, interleaved.

    python bench/train_speed.py checkpoints/speed --rounds 3
    python bench/train_speed.py ids.npz --peer "torch=python peer_torch.py train --seconds 20"

The data are a prepared run folder with its own settings, or an .npz file of token ids (arrays
train_en, train_en_len, train_zh, train_zh_len without EOS, 8,000 subwords) that is trained on with
the shape of the preset `small`. Every measurement runs in a process of its own; they take turns,
and the ratios are those of the medians. A peer is any command that prints a line
`RESULT {"tok_s": ..., "first_step_s": ..., "peak_rss_mib": ...}`, measured in the same way.
Nothing else should run on the machine meanwhile; `taskset -c 0` in front pins all of them.
"""

import argparse
import dataclasses
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

STARTED = time.perf_counter()


def load(path):
    """Return encoded pairs, and the settings they are trained with."""
    import numpy as np

    from nmt.config import preset
    from nmt.data.prepared import Encoded, Prepared, load_train
    from nmt.run_folder import RunFolder
    from nmt.text.tokenizer import EOS

    if not path.endswith(".npz"):
        run = RunFolder(path)
        return load_train(run), run.model_config(), run.config().training
    sides = []
    with np.load(path) as arrays:
        for side in ("train_en", "train_zh"):
            lengths = arrays[f"{side}_len"]
            ids = np.insert(arrays[side], np.cumsum(lengths), EOS).astype(np.int32)
            sides.append(Encoded(ids, (lengths + 1).astype(np.int32)))
    config = preset("small")
    model = dataclasses.replace(config.model, source_vocab_size=8000, target_vocab_size=8000)
    # The batches that the peers make.
    return Prepared(*sides), model, dataclasses.replace(config.training, batch_tokens=4096)


def measure(path, parts, precision, seconds, sgd):
    """Train from random weights; return a dict of figures of the steady state.

    Steady: after 8 steps and 4 s, or after 3 steps and 12 s.
    """
    import resource

    from nmt.cli.app import import_tensorflow

    import_tensorflow(for_training=True)

    import keras
    import numpy as np

    from nmt.data.batches import batches_from
    from nmt.model.transformer import build_transformer
    from nmt.text.tokenizer import PAD
    from nmt.training.optimizer import FusedAdam
    from nmt.training.schedule import WarmupSchedule
    from nmt.training.step import make_train_step
    from nmt.training.strategy import keras_policy, share_cores

    share_cores(parts)
    data, shape, config = load(path)
    config = dataclasses.replace(config, batch_parts=parts)
    model = build_transformer(shape, seed=1, dtype=keras_policy(precision))
    schedule = WarmupSchedule(shape.d_model)
    adam = FusedAdam(schedule, beta_2=0.98, epsilon=1e-9)
    optimizer = keras.optimizers.SGD(schedule) if sgd else adam
    optimizer.build(model.trainable_variables)
    train_step = make_train_step(model, optimizer, config)
    useful = padded = steps = 0
    first = start = None
    for batch in batches_from(data, config.batch_tokens, seed=1, step=0):
        sums, _ = train_step(*batch)
        float(sums.loss)
        now = time.perf_counter()
        first = first or now
        steps += 1
        if start is None:
            if (steps >= 8 and now - first >= 4) or (steps >= 3 and now - first >= 12):
                start, steps, cpu = now, 0, time.process_time()
            continue
        useful += np.count_nonzero(batch.source_ids != PAD) + int(sums.tokens)
        padded += batch.source_ids.size + batch.target_out_ids.size
        if now - start >= seconds:
            break
    return {
        "tok_s": useful / (now - start),
        "tok_cpu_s": useful / (time.process_time() - cpu),
        "useful_share": useful / padded,
        "ms_step": 1000 * (now - start) / steps,
        "first_step_s": first - STARTED,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run(command, folder):
    """Return the figures that a command prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{shlex.join(command)}: no RESULT line; it ended with:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1][7:])


def main():
    """Measure all in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="prepared run folder, or .npz file of token ids")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--precision", nargs="+", default=["float32"], help="float32 bfloat16")
    parser.add_argument("--parts", nargs="+", default=["1"], help="1 2: parts side by side")
    parser.add_argument("--sgd", action="store_true", help="without Adam, to see what it costs")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peer-folder", default=".", help="where the peers' commands run")
    parser.add_argument("--measure", action="store_true", help="measure one, in this process")
    options = parser.parse_args()
    if options.measure:
        result = measure(
            options.data,
            int(options.parts[0]),
            options.precision[0],
            options.seconds,
            options.sgd,
        )
        print("RESULT " + json.dumps(result))
        return
    ours = [sys.executable, os.path.abspath(__file__), os.path.abspath(options.data), "--measure"]
    ours += ["--seconds", str(options.seconds)] + ["--sgd"] * options.sgd
    commands = {
        f"nmt {precision} {parts} part": [*ours, "--precision", precision, "--parts", parts]
        for precision in options.precision
        for parts in options.parts
    }
    for peer in options.peer:
        name, _, command = peer.partition("=")
        commands[name] = shlex.split(command)
    results = {name: [] for name in commands}
    for number in range(options.rounds):
        for name, command in commands.items():
            results[name].append(run(command, options.peer_folder))
            print(f"round {number + 1}: {name}: {results[name][-1]}", file=sys.stderr)

    def median(name, key):
        return statistics.median(result[key] for result in results[name])

    base = median(next(iter(commands)), "tok_s")
    print("| | tokens/s (min-max) | the first row is faster by | first step s | peak MiB |")
    print("|---|---|---|---|---|")
    for name, runs in results.items():
        speeds = [result["tok_s"] for result in runs]
        print(
            f"| {name} | {median(name, 'tok_s'):,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f}) "
            f"| {base / median(name, 'tok_s'):.2f} | {median(name, 'first_step_s'):.1f} "
            f"| {median(name, 'peak_rss_mib'):,.0f} |"
        )


if __name__ == "__main__":
    main()
