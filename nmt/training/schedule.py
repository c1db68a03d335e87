"""The learning rate: linear warm-up, then decay with the inverse square root of the step."""

import keras
import tensorflow as tf


def learning_rate(step, d_model, warmup_steps, peak=None):
    """Return the learning rate of update number `step`, counted from 1.

    Equation 3 of Vaswani et al. 2017: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).
    It peaks at (d_model * warmup_steps)^-0.5 when step = warmup_steps; `peak` replaces that value
    and keeps the shape.

    Args:
      step: scalar of any number type; 0 gives 0.
      d_model: M; not used if a peak is given.
      warmup_steps: steps over which the rate rises, >= 1.
      peak: the rate at `warmup_steps`; None: the paper's.

    Returns:
      Scalar float32.
    """
    # Integer steps must not meet integer arithmetic, nor rsqrt, which has no int64 version.
    step = tf.cast(step, tf.float32)
    warmup = tf.cast(warmup_steps, tf.float32)
    if peak is None:
        peak = (d_model * warmup_steps) ** -0.5
    return peak * tf.minimum(step / warmup, tf.sqrt(warmup / tf.maximum(step, 1.0)))


@keras.saving.register_keras_serializable("nmt")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` for a Keras optimizer, which counts its updates from 0 and asks before each.

    The first update so has the rate of step 1; at the rate of step 0 it would change nothing.
    """

    def __init__(self, d_model, warmup_steps=4000, peak_learning_rate=None):
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.peak_learning_rate = peak_learning_rate

    def __call__(self, iterations):
        """Return the float32 rate of the update after `iterations` updates."""
        step = tf.cast(iterations, tf.float32) + 1
        return learning_rate(step, self.d_model, self.warmup_steps, self.peak_learning_rate)

    def get_config(self):
        """Return the arguments that make this schedule again."""
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "peak_learning_rate": self.peak_learning_rate,
        }
