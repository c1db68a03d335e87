"""Measure what a second core gains: one thread, two parts in one process, two worker processes.

    python bench/two_cores.py --data hsk --preset small --steps 60

Each arrangement trains the same run from the start with `nmt train`, pinned with taskset (Linux);
the figure is the median of the tokens a second in metrics.jsonl, the first two reports left out.
The arrangements take turns. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ADDRESSES = ["127.0.0.1:23456", "127.0.0.1:23457"]

ARRANGEMENTS = {
    "one process, one core": (["0"], 1),
    "one process, two parts on two cores": (["0,1"], 2),
    "two processes, a core each": (["0", "1"], 1),
}


def measure(prepared, folder, cores, parts, steps):
    """Train with a process for each entry of `cores`; return tokens a second, all together."""
    run = Path(folder) / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(prepared, run)
    config = json.loads((run / "config.json").read_text("utf-8"))
    limits = {"batch_parts": parts, "max_steps": steps, "max_minutes": None, "max_epochs": None}
    config["training"].update(limits, checkpoint_minutes=1000.0, validation_sentences=0)
    config["training"].update(patience=None)
    (run / "config.json").write_text(json.dumps(config), "utf-8")
    processes = []
    for index, core in enumerate(cores):
        environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
        if len(cores) > 1:
            environment["TF_CONFIG"] = json.dumps(
                {"cluster": {"worker": ADDRESSES}, "task": {"type": "worker", "index": index}}
            )
        command = ["taskset", "-c", core, sys.executable, "-m", "nmt", "train", str(run)]
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        )
    for process in processes:
        _, error = process.communicate()
        if process.returncode:
            sys.exit(error.decode("utf-8", "replace")[-2000:])
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    speeds = [r["tokens_per_second"] for r in map(json.loads, lines) if "tokens_per_second" in r]
    return statistics.median(speeds[2:])


def main():
    """Measure all in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="hsk")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared"
        command = [sys.executable, "-m", "nmt", "prepare", str(prepared), "--data", options.data]
        subprocess.run([*command, "--preset", options.preset], check=True)
        results = {name: [] for name in ARRANGEMENTS}
        for _ in range(options.rounds):
            for name, (cores, parts) in ARRANGEMENTS.items():
                results[name].append(measure(prepared, folder, cores, parts, options.steps))
    base = statistics.median(next(iter(results.values())))
    print("| | tokens/s (min-max) | of one core |\n|---|---|---|")
    for name, speeds in results.items():
        median = statistics.median(speeds)
        print(
            f"| {name} | {median:,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f}) "
            f"| {median / base:.2f} |"
        )


if __name__ == "__main__":
    main()
