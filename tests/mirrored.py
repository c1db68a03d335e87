"""Compares a training step on two mirrored devices, and one in pieces, with the plain step.

Run by the tests in a process of its own: the devices must be set up before TensorFlow computes.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import tensorflow as tf

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batches import make_batch
from nmt.model.keras_layers import Dropout
from nmt.model.transformer import build_transformer
from nmt.text.tokenizer import EOS
from nmt.training.optimizer import BlockMuon, FusedAdam
from nmt.training.step import make_train_step

SHAPE = ModelConfig(1, 16, 2, 32, 0.0, 20, 20)


def batches():
    """Return batches of five, three and one sentence."""
    random = np.random.default_rng(0)
    return [
        make_batch(*(
            [np.append(random.integers(4, 20, random.integers(1, 7)), EOS) for _ in range(rows)]
            for _ in range(2)
        ))
        for rows in (5, 3, 1)
    ]  # fmt: skip


def trained(strategy, make_optimizer, **settings):
    """Return sums and gradient norm of each step, and the weights after the last."""
    with strategy.scope():
        model = build_transformer(SHAPE, seed=1)
        optimizer = make_optimizer()
        optimizer.build(model.trainable_variables)
    step = make_train_step(model, optimizer, TrainingConfig(**settings), strategy)
    steps = [[float(value) for value in (*sums, norm)] for sums, norm in
             (step(*batch) for batch in batches())]  # fmt: skip
    assert int(optimizer.iterations.numpy()) == len(steps)
    return np.array(steps), model.get_weights()


def main():
    """Compare."""
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        processor, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    one = tf.distribute.get_strategy()
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def sgd():
        return keras.optimizers.SGD(0.5)

    def adam():
        # Where a gradient is 0 but for rounding, Adam makes a step of it; so a large epsilon.
        return FusedAdam(0.1, epsilon=1e-3)

    def muon():
        # It magnifies what a gradient shows faintly, rounding too, up to a thousandth of a step.
        return BlockMuon(0.005, epsilon=1e-3)

    alone = {
        name: trained(one, make, clip_norm=0.5)
        for name, make in (("sgd", sgd), ("adam", adam), ("muon", muon))
    }
    assert (alone["sgd"][0][:, -1] > 0.5).all(), "nothing to clip"
    for name, make, strategy, settings in (
        ("sgd", sgd, two, {"accumulation": 2}),
        ("adam", adam, two, {}),
        ("muon", muon, two, {}),
        ("sgd", sgd, one, {"accumulation": 3, "batch_parts": 2}),
    ):
        steps, weights = trained(strategy, make, clip_norm=0.5, **settings)
        np.testing.assert_allclose(steps, alone[name][0], rtol=1e-5, err_msg=str(settings))
        for ours, theirs in zip(weights, alone[name][1], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=str(settings))
    with two.scope():
        dropout = Dropout(0.5)
    kept = [
        np.concatenate([np.ravel(part) for part in two.experimental_local_results(replicas)])
        for replicas in (two.run(dropout, (tf.ones([100]),), {"training": True}) for _ in range(2))
    ]
    noise = np.reshape(kept, [4, 100])  # of two calls, on two replicas
    assert len(np.unique(noise, axis=0)) == 4, "the same places dropped on both replicas"
    # The norm that is reported is that before clipping; what is clipped is another update.
    free, _ = trained(one, sgd)
    np.testing.assert_allclose(alone["sgd"][0][0], free[0], rtol=1e-6)
    assert abs(alone["sgd"][0][-1][0] - free[-1][0]) > 1e-2, "clipping changes nothing"


if __name__ == "__main__":
    main()
