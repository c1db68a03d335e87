"""Measure decoding speed against peers: sentences a second, interleaved.

    python bench/decode_speed.py ids.npz --rounds 3
    python bench/decode_speed.py ids.npz --peer "NAME=python peer.py --beam {beam} --batch {batch}"

A model of the shape of the preset `small` with random weights and 8,000 subwords translates the
first `--sentences` test sentences of an .npz file of token ids (arrays test_en, test_en_len,
without EOS), sorted by length, every one to exactly `--length` tokens: EOS is forbidden, so that
random weights do the work of trained ones. One sentence by itself takes the compiled way (XLA), as
in a server; what compiling took is given too. Every measurement runs in a process of its own; they
take turns, and the ratios are those of the medians. A peer is any command that prints a line
`RESULT {"sent_s": ..., "peak_rss_mib": ...}`; {beam} and {batch} are filled in.
Nothing else should run on the machine meanwhile; `taskset -c 0` in front pins all of them.
"""

import argparse
import dataclasses
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time

CASES = {"one by one, greedy": (1, 1), "one by one, beam 4": (4, 1)}
CASES |= {"batches of 32, greedy": (1, 32), "batches of 32, beam 4": (4, 32)}


def measure(path, sentences, length, beam, batch):
    """Translate once to warm up and once for the clock; return the figures."""
    import numpy as np
    import tensorflow as tf

    from nmt.config import preset
    from nmt.data.batches import pad
    from nmt.decoding.arranged import arrange
    from nmt.decoding.search import beam_search, follow, permit_tokens
    from nmt.decoding.stepping import cached_step
    from nmt.model.transformer import build_transformer
    from nmt.text.tokenizer import BOS, EOS, PAD
    from nmt.training.strategy import share_cores

    share_cores(1)
    with np.load(path) as arrays:
        lengths = arrays["test_en_len"][:sentences]
        ids = np.split(arrays["test_en"][: lengths.sum()], np.cumsum(lengths)[:-1])
    sources = sorted((np.append(each, EOS).astype(np.int32) for each in ids), key=len)
    shape = dataclasses.replace(
        preset("small").model, source_vocab_size=8000, target_vocab_size=8000
    )
    arranged = tf.nest.map_structure(tf.Variable, arrange(build_transformer(shape, seed=1)))
    permit = permit_tokens(forbidden=[BOS, PAD, EOS], pad=PAD)
    compiled = beam == batch == 1
    rules = dict(bos=BOS, eos=EOS, pad=PAD, permit=permit, alpha=tf.constant(0.6))

    def search(source_ids, limits):
        models = [(tf.nest.map_structure(tf.convert_to_tensor, arranged), shape)]
        if compiled:
            step, state = cached_step(models, source_ids, 1, room=length)
            return follow(step, state, limits, **rules, longest=length)
        step, state = cached_step(models, source_ids, beam)
        if beam == 1:
            return follow(step, state, limits, **rules)
        return beam_search(step, state, limits, **rules, beam=beam)

    rows = tf.TensorSpec([1 if compiled else None, None], tf.int32)
    limits = tf.TensorSpec([1 if compiled else None], tf.int32)
    # A compiled graph is made for each length, so lengths come in steps of 16, as in `Searcher`.
    function = tf.function(
        search,
        None if compiled else [rows, limits],
        autograph=False,
        jit_compile=compiled,
    )

    def translate():
        started = time.perf_counter()
        for start in range(0, len(sources), batch):
            source_ids = pad(sources[start : start + batch])
            if compiled:
                room = -source_ids.shape[1] % 16
                source_ids = np.pad(source_ids, [(0, 0), (0, room)], constant_values=PAD)
            limits = np.full(len(source_ids), length, np.int32)
            found = function(tf.constant(source_ids), tf.constant(limits)).ids.numpy()
            assert found.shape == (len(source_ids), beam, length)
        return time.perf_counter() - started

    first = translate()
    seconds = translate()
    return {
        "sent_s": len(sources) / seconds,
        "first_pass_s": first,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run(command, folder):
    """Return the figures that a command prints."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=quiet, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{shlex.join(command)}: no RESULT line; it ended with:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1][7:])


def main():
    """Measure all in turn and print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help=".npz file of token ids")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--length", type=int, default=12, help="tokens of every translation")
    parser.add_argument("--cases", nargs="+", default=[], metavar="BEAM,BATCH")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peer-folder", default=".", help="where the peers' commands run")
    parser.add_argument("--measure", action="store_true", help="measure one, in this process")
    options = parser.parse_args()
    cases = {f"beam {case}": tuple(map(int, case.split(","))) for case in options.cases} or CASES
    if options.measure:
        ((beam, batch),) = cases.values()
        result = measure(options.data, options.sentences, options.length, beam, batch)
        print("RESULT " + json.dumps(result))
        return
    ours = [sys.executable, os.path.abspath(__file__), os.path.abspath(options.data), "--measure"]
    ours += ["--sentences", str(options.sentences), "--length", str(options.length)]
    commands = {"nmt": [*ours, "--cases", "{beam},{batch}"]}
    for peer in options.peer:
        name, _, command = peer.partition("=")
        commands[name] = shlex.split(command)
    results = {(case, name): [] for case in cases for name in commands}
    for number in range(options.rounds):
        for (case, name), runs in results.items():
            beam, batch = cases[case]
            command = [part.format(beam=beam, batch=batch) for part in commands[name]]
            runs.append(run(command, options.peer_folder))
            print(f"round {number + 1}: {case}: {name}: {runs[-1]}", file=sys.stderr)
    print("| | | sentences/s (min-max) | nmt is faster by | peak MiB |")
    print("|---|---|---|---|---|")
    for (case, name), runs in results.items():
        speeds = [each["sent_s"] for each in runs]
        ours = statistics.median(each["sent_s"] for each in results[case, "nmt"])
        peak = statistics.median(each["peak_rss_mib"] for each in runs)
        print(
            f"| {case} | {name} | {statistics.median(speeds):,.1f} "
            f"({min(speeds):,.1f}-{max(speeds):,.1f}) | {ours / statistics.median(speeds):.2f} "
            f"| {peak:,.0f} |"
        )


if __name__ == "__main__":
    main()
