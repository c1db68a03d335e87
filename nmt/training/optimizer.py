"""Optimizers: Adam as in the paper, and Muon, which learns more from every batch."""

import keras
import tensorflow as tf

from nmt.config import TrainingConfig

# Rows that Muon makes orthogonal to each other; as many as an attention head has in the paper.
BLOCK_ROWS = 64

# Of the polynomial a·s + b·s³ + c·s⁵ that draws singular values towards 1 (Jordan et al. 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315


def make_optimizer(config: TrainingConfig, schedule) -> keras.optimizers.Optimizer:
    """Return the optimizer of a configuration, with the paper's settings for Adam (5.3)."""
    if config.optimizer == "muon":
        return BlockMuon(
            schedule,
            adam_beta_1=0.9,
            adam_beta_2=0.98,
            epsilon=1e-9,
            ns_steps=3,
            exclude_layers=["output_projection"],
            weight_decay=None,
            adam_weight_decay=None,
        )
    return FusedAdam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)


@keras.saving.register_keras_serializable("nmt")
class FusedAdam(keras.optimizers.Adam):
    """Keras' Adam whose update is one pass over the memory instead of a dozen.

    Same mathematics and same variables, so a checkpoint of one is a checkpoint of the other.
    """

    def update_step(self, gradient, variable, learning_rate):
        """Update `variable` in place. Source: Kingma and Ba 2015, end of section 2."""
        index = self._get_variable_index(variable)
        _adam(
            *(variable, self._momentums[index], self._velocities[index], gradient, learning_rate),
            *(self.iterations, self.beta_1, self.beta_2, self.epsilon),
        )


@keras.saving.register_keras_serializable("nmt")
class BlockMuon(keras.optimizers.Muon):
    """Keras' Muon on blocks of a matrix; Adam, as above, for embeddings, biases and gains.

    Adam gives every weight a step of its own. Muon looks at a matrix as a whole: of its momentum it
    takes the nearest matrix with orthonormal rows, so that a direction that the gradient shows
    faintly is followed as far as one that it shows strongly. The size of a step is that of Adam.
    Not in the paper, which is older. Here it is done for blocks of BLOCK_ROWS rows, with fewer
    iterations: a third of the arithmetic, and nearly the same gain (bench/README.md).

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; the size of the step:
    Liu et al. 2025, arXiv:2502.16982.
    """

    def update_step(self, gradient, variable, learning_rate):
        """Update `variable` in place."""
        index = self._get_variable_index(variable)
        momentum, velocity = self.momentums[index], self.adam_velocities[index]
        if velocity is not None:
            _adam(
                *(variable, momentum, velocity, gradient, learning_rate * self.adam_lr_ratio),
                *(self.iterations, self.adam_beta_1, self.adam_beta_2, self.epsilon),
            )
            return
        new = self.momentum * momentum.value + gradient
        momentum.assign(new)
        step = _orthogonal_blocks(gradient + self.momentum * new, self.ns_steps)
        variable.assign_sub(learning_rate * self.rms_rate * step)


def _adam(variable, momentum, velocity, gradient, rate, iterations, beta_1, beta_2, epsilon):
    step = tf.cast(iterations + 1, tf.float32)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=tf.pow(beta_1, step),
        beta2_power=tf.pow(beta_2, step),
        lr=tf.cast(rate, tf.float32),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=gradient,
    )


@tf.function(autograph=False)  # traced once for each shape
def _orthogonal_blocks(matrix, iterations):
    """Return `matrix` (n, m) with the rows of each block orthonormal, times √(longer side).

    The blocks part its longer side, the columns of a square one: the heads of queries, keys and
    values, and the inner units of the feed-forward layers.
    """
    by_columns = matrix.shape[1] >= matrix.shape[0]
    rows = tf.transpose(matrix) if by_columns else matrix
    count, width = rows.shape
    height = BLOCK_ROWS if count % BLOCK_ROWS == 0 else count
    blocks = tf.reshape(rows, [-1, height, width])
    is_tall = height > width
    if is_tall:
        blocks = tf.linalg.matrix_transpose(blocks)
    length = tf.sqrt(tf.reduce_sum(blocks * blocks, axis=[1, 2], keepdims=True))
    blocks /= length + 1e-7  # no singular value above 1
    for _ in range(iterations):
        gram = tf.matmul(blocks, blocks, transpose_b=True)
        blocks = _A * blocks + tf.matmul(_B * gram + _C * tf.matmul(gram, gram), blocks)
    if is_tall:
        blocks = tf.linalg.matrix_transpose(blocks)
    rows = tf.reshape(blocks, rows.shape) * max(height, width) ** 0.5
    return tf.transpose(rows) if by_columns else rows
