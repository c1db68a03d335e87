"""One worker of a training with plain gradient descent: multi_worker.py RUN OUTPUT [TIMEOUT].

Run by the tests in processes of their own, as TensorFlow can be set up only once in each. Without
TF_CONFIG it is the only worker. Writes the final weights and the steps to OUTPUT, an .npz file.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np

from nmt.run_folder import RunFolder
from nmt.training import trainer
from nmt.training.workers import start_workers


def main(run, output):
    """Train, and write what came of it."""
    trainer.REPORT_STEPS = 1
    workers = start_workers("auto", timeout=60)
    models = []
    build = trainer.build_transformer
    trainer.build_transformer = lambda *args: models.append(build(*args)) or models[-1]
    reports = []
    # Adam would hide a gradient that is too large or too small.
    trainer.train(RunFolder(run), reports.append, workers, keras.optimizers.SGD)
    weights = {f"w{i}": value for i, value in enumerate(models[0].get_weights())}
    np.savez(output, losses=[r.loss for r in reports], epochs=[r.epoch for r in reports], **weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
