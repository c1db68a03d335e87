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


def updater(optimizer):
    """Return a function (gradient, variable) → None: the coming update of a Keras optimizer.

    What all variables need alike is computed once: per variable, it is a fifth of a training graph.
    """
    rate = optimizer.learning_rate
    if isinstance(optimizer, FusedAdam | BlockMuon):
        return optimizer.updater(rate)
    return lambda gradient, variable: optimizer.update_step(gradient, variable, rate)


@keras.saving.register_keras_serializable("nmt")
class FusedAdam(keras.optimizers.Adam):
    """Keras' Adam whose update is one pass over the memory instead of a dozen.

    Same mathematics and same variables, so a checkpoint of one is a checkpoint of the other.
    """

    def update_step(self, gradient, variable, learning_rate):
        """Update `variable` in place."""
        self.updater(learning_rate)(gradient, variable)

    def updater(self, learning_rate):
        """Return the function (gradient, variable) that makes the coming update."""
        adam = _adam(learning_rate, self.iterations, self.beta_1, self.beta_2, self.epsilon)

        def update(gradient, variable):
            index = self._get_variable_index(variable)
            adam(gradient, variable, self._momentums[index], self._velocities[index])

        return update


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
        self.updater(learning_rate)(gradient, variable)

    def updater(self, learning_rate):
        """Return the function (gradient, variable) that makes the coming update."""
        adam = _adam(
            *(learning_rate * self.adam_lr_ratio, self.iterations),
            *(self.adam_beta_1, self.adam_beta_2, self.epsilon),
        )

        def update(gradient, variable):
            index = self._get_variable_index(variable)
            momentum, velocity = self.momentums[index], self.adam_velocities[index]
            if velocity is not None:
                adam(gradient, variable, momentum, velocity)
                return
            new = self.momentum * momentum.value + gradient
            momentum.assign(new)
            step = _orthogonal_blocks(gradient + self.momentum * new, self.ns_steps)
            variable.assign_sub(learning_rate * self.rms_rate * step)

        return update


def _adam(rate, iterations, beta_1, beta_2, epsilon):
    """Return Adam's update number `iterations` + 1 in one pass over the memory.

    Source: Kingma and Ba 2015, end of section 2.
    """
    step = tf.cast(iterations + 1, tf.float32)
    same_for_all = dict(
        beta1_power=tf.pow(beta_1, step),
        beta2_power=tf.pow(beta_2, step),
        lr=tf.cast(rate, tf.float32),
        beta1=tf.constant(beta_1),
        beta2=tf.constant(beta_2),
        epsilon=tf.constant(epsilon),
    )

    def update(gradient, variable, momentum, velocity):
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            grad=gradient,
            **same_for_all,
        )

    return update


@tf.function(autograph=False)  # traced once for each shape
def _orthogonal_blocks(matrix, iterations):
    """Return `matrix` (n, m) with orthonormal blocks, times the root of a block's longer side.

    The blocks part its longer side, the columns of a square one: the heads of queries, keys and
    values, and the inner units of the feed-forward layers. Orthonormal are a block's vectors along
    its own longer side, as far as so many iterations get.

    The polynomial is odd, so its iterations come to X times a polynomial of XᵀX, which is smaller:
    only the first and the last product read the whole block, and it is half the time. Rounding is
    up to a thousandth of a step, where a gradient has directions that it shows faintly.
    """
    rows, columns = matrix.shape
    longer = max(rows, columns)
    size = BLOCK_ROWS if longer % BLOCK_ROWS == 0 else longer
    if columns >= rows:
        blocks = tf.transpose(tf.reshape(matrix, [rows, -1, size]), [1, 0, 2])
    else:
        blocks = tf.reshape(matrix, [-1, size, columns])
    _, height, width = blocks.shape
    is_tall = height > width
    gram = tf.matmul(blocks, blocks, transpose_a=is_tall, transpose_b=not is_tall)
    square = tf.linalg.trace(gram)[:, tf.newaxis, tf.newaxis] + 1e-14
    gram /= square  # no singular value of the blocks above 1
    diagonal = _A * tf.eye(min(height, width))
    product = None
    for _ in range(iterations):
        factor = diagonal + _B * gram + _C * tf.matmul(gram, gram)
        product = factor if product is None else tf.matmul(factor, product)
        gram = tf.matmul(tf.matmul(factor, gram), factor)
    product *= max(height, width) ** 0.5 * tf.math.rsqrt(square)
    blocks = tf.matmul(blocks, product) if is_tall else tf.matmul(product, blocks)
    if columns >= rows:
        blocks = tf.transpose(blocks, [1, 0, 2])
    return tf.reshape(blocks, [rows, columns])
