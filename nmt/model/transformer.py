"""The whole model: embeddings, encoder stack, decoder stack, final dense layer."""

import dataclasses
from typing import NamedTuple

import keras
import tensorflow as tf

from nmt.config import ModelConfig
from nmt.model.attention import KeysValues
from nmt.model.keras_layers import Dense, Dropout
from nmt.model.layers import DecoderLayer, EncoderLayer, LayerNorm
from nmt.model.masks import look_ahead_mask, padding_mask
from nmt.model.positions import sinusoidal_positions


class Encoded(NamedTuple):
    """A batch of source sentences after the encoder."""

    memory: tf.Tensor  # (B, S, M)
    may_attend: tf.Tensor  # (B, 1, 1, S) bool: where the source has tokens
    weights: list[tf.Tensor]  # for each layer (B, H, S, S)


class Decoded(NamedTuple):
    """Target positions after the decoder."""

    hidden: tf.Tensor  # (B, Q, M); `Transformer.project` makes logits of it
    self_weights: list[tf.Tensor]  # for each layer (B, H, Q, K)
    cross_weights: list[tf.Tensor]  # for each layer (B, H, Q, S)
    past: list[KeysValues]  # for each layer: the cache for the next positions


@keras.saving.register_keras_serializable("nmt")
class Transformer(keras.Model):
    """The Transformer (figure 1), as an ordinary Keras model: (source, target so far) → logits.

    The two sides have vocabularies and embeddings of their own. `call` is the teacher-forced pass
    of training; `encode`, `decode` and `project` are its parts, for decoding step by step.
    """

    def __init__(self, config: ModelConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        policy = self.dtype_policy
        # Variance 1/M: with the multiplication by √M, inputs start at the scale of the positions.
        normal = keras.initializers.RandomNormal(stddev=config.d_model**-0.5)
        self.source_embedding = keras.layers.Embedding(
            config.source_vocab_size, config.d_model, normal, name="source_embedding", dtype=policy
        )
        self.target_embedding = keras.layers.Embedding(
            config.target_vocab_size, config.d_model, normal, name="target_embedding", dtype=policy
        )
        self.dropout = Dropout(config.dropout_rate, dtype=policy)
        sizes = dict(
            d_model=config.d_model,
            num_heads=config.num_heads,
            dff=config.dff,
            dropout_rate=config.dropout_rate,
            norm=config.norm,
            attention_dropout_rate=config.attention_dropout_rate,
            activation_dropout_rate=config.activation_dropout_rate,
            dtype=policy,
        )
        layers = range(config.num_layers)
        self.encoder_layers = [EncoderLayer(name=f"encoder_{i}", **sizes) for i in layers]
        self.decoder_layers = [DecoderLayer(name=f"decoder_{i}", **sizes) for i in layers]
        if config.norm == "pre":
            self.encoder_norm = LayerNorm(name="encoder_norm", dtype=policy)
            self.decoder_norm = LayerNorm(name="decoder_norm", dtype=policy)
        if not config.tie_embeddings:
            self.output_projection = Dense(
                config.target_vocab_size, name="output_projection", dtype=policy
            )

    def build(self, input_shape=None):
        """Create all weights; every shape follows from the configuration."""
        width = (None, None, self.config.d_model)
        self.source_embedding.build()
        self.target_embedding.build()
        for layer in self.encoder_layers + self.decoder_layers:
            layer.build()
        if self.config.norm == "pre":
            self.encoder_norm.build(width)
            self.decoder_norm.build(width)
        if not self.config.tie_embeddings:
            self.output_projection.build(width)
        self.built = True

    def encode(self, source_ids, training=False) -> Encoded:
        """Read source sentences.

        Args:
          source_ids: (B, S) int32, each row closed by EOS, then PAD.
          training: whether dropout is on.

        Returns:
          Encoded.
        """
        may_attend = padding_mask(source_ids)
        x = self._embed(self.source_embedding, source_ids, 0, training)  # (B, S, M)
        weights = []
        for layer in self.encoder_layers:
            x, layer_weights = layer(x, may_attend=may_attend, training=training)
            weights.append(layer_weights)
        if self.config.norm == "pre":
            x = self.encoder_norm(x)
        return Encoded(x, may_attend, weights)

    def project_memory(self, encoded: Encoded) -> list[KeysValues]:
        """Return each decoder layer's keys and values of the source, once for all positions."""
        return [layer.cross_attention.project(encoded.memory) for layer in self.decoder_layers]

    def decode(self, target_ids, memory, source_may_attend, past=None, training=False) -> Decoded:
        """Read target positions that may see the source and the positions before them.

        Args:
          target_ids: (B, Q) int32: BOS and the target so far, or with `past` its newest tokens.
          memory: from `project_memory`.
          source_may_attend: (B, 1, 1, S) bool, from `encode`.
          past: the `past` of the call before, holding P positions; None: start at position 0.
          training: whether dropout is on.

        Returns:
          Decoded, with K = P + Q.
        """
        start = 0 if past is None else tf.shape(past[0].keys)[2]
        length = tf.shape(target_ids)[1]
        # Padding needs no mask of its own here: it stands behind every real position, where the
        # look-ahead mask hides it already, and what padding itself computes is never used.
        self_may_attend = look_ahead_mask(length, start + length)
        x = self._embed(self.target_embedding, target_ids, start, training)  # (B, Q, M)
        outputs = []
        for i, layer in enumerate(self.decoder_layers):
            outputs.append(
                layer(
                    x,
                    memory[i],
                    past=None if past is None else past[i],
                    self_may_attend=self_may_attend,
                    cross_may_attend=source_may_attend,
                    training=training,
                )
            )
            x = outputs[-1].output
        if self.config.norm == "pre":
            x = self.decoder_norm(x)
        return Decoded(
            x,
            [output.self_weights for output in outputs],
            [output.cross_weights for output in outputs],
            [output.keys_values for output in outputs],
        )

    def project(self, hidden):
        """Return float32 logits (..., V) of decoder output (..., M): the final dense layer."""
        if self.config.tie_embeddings:
            # Section 3.4: one matrix for target embedding and output.
            hidden = tf.cast(hidden, self.compute_dtype)
            table_VM = tf.cast(self.target_embedding.embeddings, self.compute_dtype)
            logits = tf.matmul(hidden, table_VM, transpose_b=True)
        else:
            logits = self.output_projection(hidden)
        return tf.cast(logits, tf.float32)

    def call(self, inputs, training=False):
        """Return logits (B, T, V) float32 for (source_ids (B, S), target_in_ids (B, T)).

        The logits at position t tell which token follows target_in_ids[:, :t+1].
        """
        source_ids, target_in_ids = inputs
        encoded = self.encode(source_ids, training)
        memory = self.project_memory(encoded)
        decoded = self.decode(target_in_ids, memory, encoded.may_attend, training=training)
        return self.project(decoded.hidden)

    def _embed(self, embedding, ids, start, training):
        x = embedding(ids) * self.config.d_model**0.5  # section 3.4
        positions = sinusoidal_positions(tf.shape(ids)[1], self.config.d_model, start)
        return self.dropout(x + tf.cast(positions, x.dtype), training=training)

    def get_config(self):
        """Return the arguments that make this model again."""
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config):
        """Make the model again from `get_config`."""
        return cls(**{**config, "config": ModelConfig(**config["config"])})


def build_transformer(config: ModelConfig, seed: int | None = None, dtype="float32"):
    """Return a Transformer with its weights made.

    Args:
      config: the shape.
      seed: of the weights and of dropout; None: another one each time.
      dtype: Keras dtype policy, "float32" or "mixed_bfloat16" (float32 weights, bfloat16 maths).
    """
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = Transformer(config, dtype=dtype, name="transformer")
    model.build()
    return model
