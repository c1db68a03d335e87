"""The model: parity with the NumPy reference, hand-made values, and what must always hold."""

import dataclasses
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from nmt.config import ConfigError, ModelConfig
from nmt.model.attention import (
    MultiHeadAttention,
    attention_weights,
    scaled_dot_product_attention,
)
from nmt.model.layers import (
    LAYER_NORM_EPSILON,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerNorm,
)
from nmt.model.masks import look_ahead_mask, padding_mask
from nmt.model.positions import sinusoidal_positions
from nmt.model.transformer import Transformer, build_transformer
from nmt.text.tokenizer import BOS, EOS, PAD
from nmt.training.losses import token_sums

SMALL = ModelConfig(
    num_layers=2,
    d_model=16,
    num_heads=4,
    dff=24,
    dropout_rate=0.1,
    source_vocab_size=11,
    target_vocab_size=13,
)

# Three sentences of different lengths a side; the longest has no padding.
SOURCE = np.array([[4, 5, 6, EOS, PAD], [7, EOS, PAD, PAD, PAD], [8, 9, 10, 4, EOS]], np.int32)
TARGET_IN = np.array([[BOS, 5, 6, PAD], [BOS, 7, 12, 11], [BOS, PAD, PAD, PAD]], np.int32)

EVERY_SHAPE = pytest.mark.parametrize(
    ("norm", "tie_embeddings"), [("pre", True), ("pre", False), ("post", True), ("post", False)]
)


def randomised(layer, seed=0):
    """Give every weight a random value, so that no bias, gamma or beta is 0 or 1."""
    random = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        values = random.normal(size=variable.shape)
        name = variable.path.rsplit("/", 1)[-1]
        if name == "kernel":
            values *= 1.5 / np.sqrt(variable.shape[0])
        elif name == "embeddings":
            values *= 0.5
        elif name == "gamma":
            values = 1 + 0.3 * values
        else:
            values *= 0.3
        variable.assign(values)
    return layer


def small_model(seed=0, **changes):
    return randomised(build_transformer(dataclasses.replace(SMALL, **changes), seed=1), seed)


def reference_weights(layer):
    """Return the weights under the paths that the reference uses."""
    weights = {}
    for variable in layer.trainable_variables:
        path = variable.path.split("/", 1)[1]
        path = re.sub(r"^(encoder|decoder)_(\d+)/", r"\1/\2/", path)
        path = path.replace("output_projection/", "output/").replace("/embeddings", "")
        weights[path] = variable.numpy()
    return weights


def reference_outputs(model, source, target_in):
    config = model.config
    return reference.transformer(
        reference_weights(model),
        source,
        target_in,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        norm=config.norm,
        tie_embeddings=config.tie_embeddings,
        pad_id=PAD,
    )


def logits_of(model, source, target_in):
    return model((np.asarray(source, np.int32), np.asarray(target_in, np.int32))).numpy()


def random_float32(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_mask(*shape, seed=0):
    """Return a mask in which every row may see at least the first key."""
    mask = np.random.default_rng(seed).random(shape) < 0.6
    mask[..., 0] = True
    return mask


# Positions ---------------------------------------------------------------------------------------


def test_positions_by_hand():
    rows = [
        [0, 1, 0, 1],
        [0.841471, 0.540302, 0.01, 0.99995],
        [0.909297, -0.416147, 0.019999, 0.9998],
    ]
    np.testing.assert_allclose(sinusoidal_positions(3, 4), rows, atol=1e-6)


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (40, 4), (100, 16)])
def test_positions_match_the_reference(length, d_model):
    np.testing.assert_allclose(
        sinusoidal_positions(length, d_model), reference.positions(length, d_model), atol=2e-5
    )


def test_positions_can_start_anywhere():
    start = tf.constant(7)
    np.testing.assert_allclose(
        sinusoidal_positions(5, 8, start), sinusoidal_positions(12, 8)[7:], atol=1e-7
    )


@pytest.mark.parametrize("k", [1, 3, 20])
def test_position_plus_k_is_a_rotation_of_position(k):
    d_model = 12
    rotation = np.zeros((d_model, d_model))
    for pair in range(d_model // 2):
        angle = k / 10000 ** (2 * pair / d_model)
        rotation[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [
            [np.cos(angle), np.sin(angle)],
            [-np.sin(angle), np.cos(angle)],
        ]
    encodings = sinusoidal_positions(60 + k, d_model).numpy()
    np.testing.assert_allclose(encodings[:60] @ rotation.T, encodings[k:], atol=2e-5)


@pytest.mark.parametrize("vocab_size", [5, 200, 8000])
def test_positions_do_not_depend_on_the_vocabulary(vocab_size):
    """Without embeddings and sub-layers the encoder gives back its normalised positions."""
    model = build_transformer(
        ModelConfig(1, 4, 2, 8, 0.0, vocab_size, vocab_size, norm="pre"), seed=1
    )
    for variable in model.trainable_variables:
        if not variable.path.endswith("encoder_norm/gamma"):
            variable.assign(tf.zeros(variable.shape))
    memory = model.encode(np.full((1, 40), 4, np.int32)).memory[0]
    expected = reference.layer_norm(reference.positions(40, 4), np.ones(4), np.zeros(4), 1e-6)
    np.testing.assert_allclose(memory, expected, atol=1e-4)


# Masks -------------------------------------------------------------------------------------------


def test_look_ahead_mask_by_hand():
    mask = look_ahead_mask(3, 3)
    assert mask.dtype == tf.bool
    assert mask.shape == (1, 1, 3, 3)
    assert mask.numpy()[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_look_ahead_mask_of_the_newest_positions():
    assert look_ahead_mask(1, 5).numpy()[0, 0].tolist() == [[True] * 5]
    assert look_ahead_mask(2, 4).numpy()[0, 0].tolist() == [
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_padding_mask_by_hand():
    mask = padding_mask(np.array([[5, BOS, EOS, PAD], [PAD, 3, 7, PAD]], np.int32))
    assert mask.shape == (2, 1, 1, 4)
    assert mask.dtype == bool
    assert np.array(mask)[:, 0, 0].tolist() == [
        [True, True, True, False],
        [False, True, True, False],
    ]


# Attention ---------------------------------------------------------------------------------------


def test_attention_by_hand():
    """Scores 2 ln 3 and 0, divided by √4: weights 3/4 and 1/4. A third key is hidden."""
    query = tf.constant([[[[2 * np.log(3), 0, 0, 0]]]], tf.float32)
    keys = tf.constant([[[[1, 5, 5, 5], [0, 5, 5, 5], [9, 9, 9, 9]]]], tf.float32)
    values = tf.constant([[[[4, 0, 0, 0], [0, 8, 0, 0], [99, 99, 99, 99]]]], tf.float32)
    output, weights = scaled_dot_product_attention(query, keys, values, [[[[True, True, False]]]])
    np.testing.assert_allclose(weights[0, 0], [[0.75, 0.25, 0]], atol=1e-6)
    np.testing.assert_allclose(output[0, 0], [[3, 2, 0, 0]], atol=1e-5)


def test_attention_matches_the_reference():
    query, keys, values = (random_float32(2, 3, n, 8, seed=n) for n in (4, 6, 7))
    values = values[:, :, :6]
    mask = random_mask(2, 3, 4, 6)
    mask[1, 2, 3] = False
    output, weights = scaled_dot_product_attention(query, keys, values, mask)
    for b, h in np.ndindex(2, 3):
        expected_output, expected_weights = reference.attention(
            query[b, h], keys[b, h], values[b, h], mask[b, h]
        )
        np.testing.assert_allclose(output[b, h], expected_output, atol=1e-5)
        np.testing.assert_allclose(weights[b, h], expected_weights, atol=1e-6)


def test_without_a_mask_every_key_is_seen():
    query, keys = random_float32(1, 2, 3, 4), random_float32(1, 2, 5, 4, seed=1)
    everything = np.ones((1, 1, 3, 5), bool)
    np.testing.assert_array_equal(
        attention_weights(query, keys), attention_weights(query, keys, everything)
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_sum_to_one_over_what_may_be_seen(dtype):
    """In half precision too, and with scores as large as half precision has them."""
    query = tf.cast(30 * random_float32(2, 2, 5, 8), dtype)
    keys = tf.cast(30 * random_float32(2, 2, 7, 8, seed=1), dtype)
    mask = random_mask(2, 1, 5, 7)
    weights = attention_weights(query, keys, mask)
    assert weights.dtype == tf.float32
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)
    assert (np.array(weights)[np.broadcast_to(~mask, weights.shape)] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_output_has_the_type_of_its_values(dtype):
    query = tf.cast(random_float32(1, 1, 2, 4), dtype)
    output, weights = scaled_dot_product_attention(query, query, query)
    assert output.dtype == dtype
    assert weights.dtype == tf.float32


def test_query_that_may_see_nothing_hurts_nobody():
    query, keys, values = (tf.constant(random_float32(1, 1, 3, 4, seed=n)) for n in range(3))
    mask = np.ones((1, 1, 3, 3), bool)
    mask[0, 0, 1] = False
    with tf.GradientTape() as tape:
        tape.watch([query, keys, values])
        output, weights = scaled_dot_product_attention(query, keys, values, mask)
        loss = tf.reduce_sum(output**2)
    np.testing.assert_allclose(weights[0, 0, 1], [1 / 3] * 3, atol=1e-6)
    for gradient in tape.gradient(loss, [query, keys, values]):
        assert np.isfinite(gradient).all()
    unmasked = scaled_dot_product_attention(query, keys, values)
    for row in (0, 2):
        np.testing.assert_array_equal(output[0, 0, row], unmasked.output[0, 0, row])


def test_multi_head_attention_matches_the_reference():
    layer = MultiHeadAttention(16, 4)
    layer.build()
    weights = reference_weights(randomised(layer))
    query, memory = random_float32(2, 3, 16), random_float32(2, 5, 16, seed=1)
    mask = random_mask(2, 1, 3, 5)
    attended = layer(query, memory, may_attend=mask)
    assert attended.output.shape == (2, 3, 16)
    assert attended.weights.shape == (2, 4, 3, 5)
    for b in range(2):
        output, expected_weights = reference.multi_head_attention(
            weights, query[b], memory[b], mask[b, 0], 4
        )
        np.testing.assert_allclose(attended.output[b], output, atol=1e-5)
        np.testing.assert_allclose(attended.weights[b], expected_weights, atol=1e-5)


def test_multi_head_attention_equals_that_of_keras():
    ours = MultiHeadAttention(16, 4)
    ours.build()
    randomised(ours)
    theirs = keras.layers.MultiHeadAttention(4, 4)
    query, memory = random_float32(2, 3, 16), random_float32(2, 5, 16, seed=1)
    mask = random_mask(2, 3, 5)
    theirs.build(query.shape, memory.shape)
    for variable in theirs.trainable_variables:
        projection, kind = variable.path.split("/")[-2:]
        layer = getattr(ours, {"attention_output": "output_projection"}.get(projection, projection))
        variable.assign(tf.reshape(getattr(layer, kind), variable.shape))
    output, weights = theirs(query, memory, attention_mask=mask, return_attention_scores=True)
    attended = ours(query, memory, may_attend=mask[:, None])
    np.testing.assert_allclose(attended.output, output, atol=1e-5)
    np.testing.assert_allclose(attended.weights, weights, atol=1e-6)


# Layers and the whole model against the reference ------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_matches_the_reference(norm):
    layer = EncoderLayer(16, 4, 24, norm=norm)
    layer.build()
    weights = reference_weights(randomised(layer))
    x = random_float32(2, 5, 16)
    mask = random_mask(2, 1, 1, 5)
    output, attention = layer(x, may_attend=mask)
    for b in range(2):
        expected, expected_attention = reference.encoder_layer(
            weights, x[b], np.broadcast_to(mask[b, 0], (5, 5)), 4, norm
        )
        np.testing.assert_allclose(output[b], expected, atol=2e-5)
        np.testing.assert_allclose(attention[b], expected_attention, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_matches_the_reference(norm):
    layer = DecoderLayer(16, 4, 24, norm=norm)
    layer.build()
    weights = reference_weights(randomised(layer))
    x, memory = random_float32(2, 4, 16), random_float32(2, 5, 16, seed=1)
    self_mask, cross_mask = look_ahead_mask(4, 4).numpy(), random_mask(2, 1, 1, 5)
    decoded = layer(
        x,
        layer.cross_attention.project(memory),
        self_may_attend=self_mask,
        cross_may_attend=cross_mask,
    )
    for b in range(2):
        expected = reference.decoder_layer(
            weights,
            x[b],
            memory[b],
            self_mask[0, 0],
            np.broadcast_to(cross_mask[b, 0], (4, 5)),
            4,
            norm,
        )
        np.testing.assert_allclose(decoded.output[b], expected[0], atol=2e-5)
        np.testing.assert_allclose(decoded.self_weights[b], expected[1], atol=1e-5)
        np.testing.assert_allclose(decoded.cross_weights[b], expected[2], atol=1e-5)


@EVERY_SHAPE
def test_transformer_matches_the_reference(norm, tie_embeddings):
    model = small_model(norm=norm, tie_embeddings=tie_embeddings)
    expected = reference_outputs(model, SOURCE, TARGET_IN)
    logits = logits_of(model, SOURCE, TARGET_IN)
    encoded = model.encode(SOURCE)
    decoded = model.decode(TARGET_IN, model.project_memory(encoded), encoded.may_attend)
    assert logits.shape == (3, 4, 13)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(np.stack(encoded.weights), expected["encoder"], atol=1e-5)
    # What is computed at padded target positions is never used and need not agree.
    real = TARGET_IN != PAD
    np.testing.assert_allclose(logits[real], expected["logits"][real], atol=3e-5)
    for ours, name in ((decoded.self_weights, "decoder"), (decoded.cross_weights, "cross")):
        ours = np.stack(ours)
        for b in range(3):
            np.testing.assert_allclose(
                ours[:, b][:, :, real[b]], expected[name][:, b][:, :, real[b]], atol=1e-5
            )


def test_weights_have_a_seed():
    first, again, other = (build_transformer(SMALL, seed=seed) for seed in (3, 3, 4))
    for one, two, three in zip(*(m.get_weights() for m in (first, again, other)), strict=True):
        np.testing.assert_array_equal(one, two)
        if one.std() > 0:
            assert (one != three).any()


def test_inputs_start_at_the_scale_of_the_positions():
    """Embeddings of variance 1/M, times √M: as large as what is added to them."""
    config = dataclasses.replace(SMALL, d_model=64, source_vocab_size=500)
    table = build_transformer(config, seed=1).source_embedding.embeddings.numpy()
    assert 0.9 < (table * 8).std() < 1.1


# What must always hold ---------------------------------------------------------------------------


@EVERY_SHAPE
def test_future_tokens_cannot_change_past_logits(norm, tie_embeddings):
    model = small_model(norm=norm, tie_embeddings=tie_embeddings)
    source = SOURCE[2:]
    before = logits_of(model, source, [[BOS, 5, 6, 7]])
    after = logits_of(model, source, [[BOS, 5, 6, 9]])
    assert np.abs(before - after)[:, :3].max() < 1e-5
    assert np.abs(before - after)[:, 3].max() > 1e-2


def test_every_past_token_and_the_source_change_the_logits():
    """The masks hide no more than they must."""
    model = small_model()
    before = logits_of(model, SOURCE[2:], [[BOS, 5, 6, 7]])
    for place in range(1, 4):
        target_in = np.array([[BOS, 5, 6, 7]])
        target_in[0, place] = 9
        assert np.abs(before - logits_of(model, SOURCE[2:], target_in))[0, 3].max() > 1e-3
    for place in range(5):
        source = SOURCE[2:].copy()
        source[0, place] = 6
        assert np.abs(before - logits_of(model, source, [[BOS, 5, 6, 7]])).max(-1).min() > 1e-4


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_more_padding_changes_no_real_row(norm):
    model = small_model(norm=norm)
    before = logits_of(model, SOURCE, TARGET_IN)
    source = np.pad(SOURCE, [(0, 0), (0, 4)], constant_values=PAD)
    target_in = np.pad(TARGET_IN, [(0, 0), (0, 3)], constant_values=PAD)
    real = TARGET_IN != PAD
    for padded in (
        logits_of(model, source, TARGET_IN),
        logits_of(model, SOURCE, target_in)[:, :4],
        logits_of(model, source, target_in)[:, :4],
    ):
        np.testing.assert_allclose(padded[real], before[real], atol=1e-5)


def test_order_and_neighbours_in_a_batch_do_not_matter():
    model = small_model()
    before = logits_of(model, SOURCE, TARGET_IN)
    order = [2, 0, 1]
    np.testing.assert_allclose(
        logits_of(model, SOURCE[order], TARGET_IN[order]), before[order], atol=1e-5
    )
    for row in range(3):
        alone = logits_of(model, SOURCE[row : row + 1], TARGET_IN[row : row + 1])
        np.testing.assert_allclose(alone[0], before[row], atol=1e-5)


def test_all_attention_sums_to_one_and_is_zero_where_hidden():
    model = small_model()
    encoded = model.encode(SOURCE)
    decoded = model.decode(TARGET_IN, model.project_memory(encoded), encoded.may_attend)
    source_padding = (SOURCE == PAD)[:, None, None, :]
    future = ~np.tri(4, dtype=bool)[None, None]
    for every_layer, hidden in (
        (encoded.weights, source_padding),
        (decoded.self_weights, future),
        (decoded.cross_weights, source_padding),
    ):
        assert len(every_layer) == 2
        for weights in every_layer:
            np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)
            assert (np.array(weights)[np.broadcast_to(hidden, weights.shape)] == 0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_sentence_of_padding_alone_hurts_nobody(norm):
    model = small_model(norm=norm)
    source = np.array([[4, 5, EOS], [PAD, PAD, PAD], [8, 9, EOS]], np.int32)
    target_in = np.array([[BOS, 5, 6], [BOS, PAD, PAD], [BOS, 7, 8]], np.int32)
    labels = np.array([[5, 6, EOS], [PAD, PAD, PAD], [7, 8, EOS]], np.int32)

    def loss_and_gradients(rows):
        with tf.GradientTape() as tape:
            logits = model((source[rows], target_in[rows]))
            sums = token_sums(logits, labels[rows], 0.1)
            loss = sums.loss / sums.tokens
        gradients = tape.gradient(loss, model.trainable_variables)
        return logits.numpy(), loss.numpy(), [tf.convert_to_tensor(g).numpy() for g in gradients]

    logits, loss, gradients = loss_and_gradients([0, 1, 2])
    expected_logits, expected_loss, expected_gradients = loss_and_gradients([0, 2])
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[[0, 2]], expected_logits, atol=1e-5)
    np.testing.assert_allclose(loss, expected_loss, atol=1e-5)
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert np.isfinite(gradient).all()
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_trains_without_nan(policy):
    config = dataclasses.replace(SMALL, num_layers=1)
    model = build_transformer(config, seed=1, dtype=policy)
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    labels = np.array([[5, 6, EOS, PAD], [7, 12, 11, EOS], [EOS, PAD, PAD, PAD]], np.int32)
    losses = []
    for _ in range(10):
        with tf.GradientTape() as tape:
            logits = model((SOURCE, TARGET_IN), training=True)
            sums = token_sums(logits, labels, 0.1)
            loss = sums.loss / sums.tokens
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        assert logits.dtype == tf.float32
        assert np.isfinite(logits).all()
        losses.append(float(loss))
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert all(np.isfinite(weights).all() for weights in model.get_weights())
    assert all(variable.dtype == "float32" for variable in model.trainable_variables)
    encoded = model.encode(SOURCE)
    assert encoded.memory.dtype == policy.removeprefix("mixed_")
    assert (np.array(encoded.weights[0])[0, :, :, 4] == 0).all()


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_reaches_every_sublayer(kind, norm):
    """With nearly everything dropped, nothing but the residual path is left."""
    keras.utils.set_random_seed(1)
    layer_class = EncoderLayer if kind == "encoder" else DecoderLayer
    layer = layer_class(16, 4, 24, dropout_rate=0.99999, norm=norm)
    layer.build()
    randomised(layer)
    x = random_float32(1, 5, 16)
    arguments = (x,) if kind == "encoder" else (x, layer.cross_attention.project(x))
    expected = x
    if norm == "post":
        names = ["self_attention_norm", "cross_attention_norm", "feed_forward_norm"]
        for name in names if kind == "decoder" else names[::2]:
            expected = getattr(layer, name)(expected)
    np.testing.assert_allclose(layer(*arguments, training=True).output, expected, atol=1e-5)
    assert np.abs(layer(*arguments, training=False).output - expected).max() > 0.1


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_dropout_reaches_embeddings_and_every_layer(part):
    """With nearly everything dropped, the last LayerNorm reads zeros and gives its beta."""
    model = small_model(dropout_rate=0.99999, norm="pre")
    memory = model.project_memory(model.encode(SOURCE))
    visible = padding_mask(SOURCE)

    def output(training):
        if part == "encoder":
            return model.encode(SOURCE, training=training).memory
        return model.decode(TARGET_IN, memory, visible, training=training).hidden

    beta = getattr(model, f"{part}_norm").beta.numpy()
    dropped = output(training=True)
    np.testing.assert_allclose(dropped, np.broadcast_to(beta, dropped.shape), atol=1e-5)
    assert np.abs(output(training=False) - beta).max() > 0.1


def test_call_hands_training_to_encoder_and_decoder():
    """Dropping nearly everything, the logits depend neither on source nor target any more."""
    model = small_model(dropout_rate=0.99999, norm="pre")
    logits = model((SOURCE, TARGET_IN), training=True).numpy()
    expected = model.project(model.decoder_norm.beta[None])[0]
    np.testing.assert_allclose(logits, np.broadcast_to(expected, logits.shape), atol=1e-5)


def test_dropout_is_off_unless_training():
    model = small_model()
    first, again = (logits_of(model, SOURCE, TARGET_IN) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    trained, once_more = (model((SOURCE, TARGET_IN), training=True).numpy() for _ in range(2))
    assert np.abs(trained - once_more).max() > 0.1


def test_calls_leave_nothing_on_the_layers():
    model = small_model()
    model((SOURCE, TARGET_IN))
    stack = model.encoder_layers + model.decoder_layers
    attention = [layer.self_attention for layer in stack]
    attention += [layer.cross_attention for layer in model.decoder_layers]
    layers = [model, *stack, *attention, *(layer.feed_forward for layer in stack)]
    before = [dict(vars(layer)) for layer in layers]
    model((SOURCE[:1], TARGET_IN[:1]))
    encoded = model.encode(SOURCE)
    model.decode(TARGET_IN, model.project_memory(encoded), encoded.may_attend)
    for layer, attributes in zip(layers, before, strict=True):
        assert vars(layer).keys() == attributes.keys()
        for name, value in vars(layer).items():
            assert value is attributes[name] or value == attributes[name], f"{layer.name}.{name}"
            assert not any(tf.is_tensor(leaf) for leaf in tf.nest.flatten(value)), name


# An ordinary Keras model -------------------------------------------------------------------------


def test_summary_counts_the_parameters(capsys):
    model = small_model()
    model.summary()
    printed = capsys.readouterr().out
    assert "encoder_0" in printed
    assert f"{model.count_params():,}" in printed
    # Embeddings 11 and 13 rows; attention 4 (M² + M); feed-forward; LayerNorms 2M each.
    attention, inner, norm = 4 * (16 * 16 + 16), 16 * 24 + 24 + 24 * 16 + 16, 2 * 16
    layers = 2 * (attention + inner + 2 * norm) + 2 * (2 * attention + inner + 3 * norm)
    assert model.count_params() == (11 + 13) * 16 + layers


def test_compile_and_fit_work():
    model = build_transformer(dataclasses.replace(SMALL, num_layers=1), seed=1)
    target_out = np.array([[5, 6, EOS, PAD], [7, 12, 11, EOS], [EOS, PAD, PAD, PAD]], np.int32)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True, ignore_class=PAD))
    before = model.get_weights()
    history = model.fit((SOURCE, TARGET_IN), target_out, batch_size=3, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    after = model.get_weights()
    assert any((old != new).any() for old, new in zip(before, after, strict=True))


def test_saved_model_file_loads_in_a_fresh_process(tmp_path):
    """Without custom_objects: importing the module is enough to know its classes."""
    models = {
        "pre": small_model(norm="pre", tie_embeddings=True),
        "post": small_model(norm="post", tie_embeddings=False),
        "half": build_transformer(SMALL, seed=1, dtype="mixed_bfloat16"),
    }
    for name, model in models.items():
        model.save(tmp_path / f"{name}.keras")
    np.savez(tmp_path / "inputs.npz", source=SOURCE, target_in=TARGET_IN)
    program = f"""
import keras, numpy, nmt.model.transformer
inputs = numpy.load("inputs.npz")
for name in {list(models)}:
    model = keras.saving.load_model(name + ".keras")
    assert type(model) is nmt.model.transformer.Transformer
    logits = model((inputs["source"], inputs["target_in"]))
    numpy.savez(name + ".npz", logits=logits, policy=model.dtype_policy.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for name, model in models.items():
        loaded = np.load(tmp_path / f"{name}.npz")
        assert loaded["policy"] == model.dtype_policy.name
        np.testing.assert_allclose(loaded["logits"], logits_of(model, SOURCE, TARGET_IN), atol=1e-6)


def test_configuration_survives_the_round_trip():
    config = dataclasses.replace(SMALL, norm="post", tie_embeddings=False, dropout_rate=0.25)
    model = Transformer.from_config(Transformer(config).get_config())
    assert model.config == config
    for layer in (
        MultiHeadAttention(8, 2, name="a"),
        EncoderLayer(8, 2, 16, 0.3, "pre", name="b"),
        DecoderLayer(8, 2, 16, 0.3, "post", name="c"),
    ):
        again = type(layer).from_config(layer.get_config())
        assert again.get_config() == layer.get_config()


# Mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiHeadAttention(d_model=10, num_heads=4),
        lambda: EncoderLayer(10, 4, 16),
        lambda: ModelConfig(d_model=10, num_heads=4),
    ],
)
def test_heads_that_do_not_divide_the_width(make):
    with pytest.raises(ValueError, match=r"d_model.*num_heads.*d_model=10.*num_heads=4"):
        make()


@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
def test_unknown_norm(layer_class):
    with pytest.raises(ValueError, match=r"norm.*'pre'.*'post'.*'middle'"):
        layer_class(8, 2, 16, norm="middle")


def test_odd_width():
    with pytest.raises(ConfigError, match=r"d_model must be even.*15"):
        ModelConfig(d_model=15, num_heads=1)


# Dropout inside the sub-layers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["attention_dropout_rate", "activation_dropout_rate"])
def test_inner_dropout_is_on_in_training_only(kind):
    without = dataclasses.replace(SMALL, dropout_rate=0.0)
    model = build_transformer(dataclasses.replace(without, **{kind: 0.5}), 1)
    plain = build_transformer(without, 2)
    plain.set_weights([w.numpy() for w in model.trainable_variables])
    inputs = SOURCE, TARGET_IN
    np.testing.assert_allclose(model(inputs), plain(inputs), atol=1e-6)
    first, again = (np.array(model(inputs, training=True)) for _ in range(2))
    assert np.abs(first - again).max() > 1e-3
    np.testing.assert_allclose(plain(inputs, training=True), plain(inputs), atol=1e-6)


def test_attention_dropout_hides_nothing_from_the_view():
    """The weights that are shown sum to 1, whatever was dropped on the way to the output."""
    layer = MultiHeadAttention(8, 2, dropout_rate=0.9)
    layer.build()
    x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype(np.float32)
    np.testing.assert_allclose(np.sum(layer(x, x, training=True).weights, -1), 1, rtol=1e-5)
    kept = scaled_dot_product_attention(*[tf.ones([1, 1, 40, 4])] * 3, dropout=layer.dropout)
    np.testing.assert_allclose(kept.output, 1, rtol=1e-5)  # off, unless training


def test_layer_norm_and_its_gradient_are_those_of_keras():
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(3, 2, (2, 3, 8)), tf.float32)
    upstream = tf.constant(random.normal(size=(2, 3, 8)), tf.float32)
    scales = random.normal(size=(2, 8))
    found = []
    for layer in (LayerNorm(), keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON)):
        layer.build((None, None, 8))
        for variable, values in zip(layer.weights, scales, strict=True):
            variable.assign(values)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        gradients = tape.gradient(y, [x, *(v.value for v in layer.trainable_variables)], upstream)
        found.append([y, *gradients])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.mark.parametrize("dff", [512, 1024, 520])
def test_a_wide_feed_forward_layer_equals_the_reference(dff):
    """Its matrices are laid out with columns that must not count."""
    layer = FeedForward(8, dff)
    layer.build()
    random = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        variable.assign(random.normal(size=variable.shape))
    x = random.normal(size=(2, 3, 8)).astype(np.float32)
    weights = {v.path.split("/", 1)[-1]: v.numpy() for v in layer.trainable_variables}
    inner = np.maximum(x @ weights["inner/kernel"] + weights["inner/bias"], 0)
    expected = inner @ weights["outer/kernel"] + weights["outer/bias"]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-3)
