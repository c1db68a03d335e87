"""Training: schedule, loss, optimizer, checkpoints and the loop; and that it does learn."""

import dataclasses
import json
import logging
import shutil
import types

import h5py
import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from nmt.config import Config, ConfigError, DataConfig, ModelConfig, TrainingConfig, to_json
from nmt.data.batches import batches_from, make_batch, pad, plan_epoch
from nmt.data.prepared import Encoded, Prepared, load_held_out, load_train, prepare
from nmt.decoding.searcher import Searcher
from nmt.decoding.translator import load_translator
from nmt.evaluation.scores import corpus_scores
from nmt.model.transformer import build_transformer
from nmt.model.weights import load_weights
from nmt.run_folder import RunFolder, write_text
from nmt.text.tokenizer import BOS, EOS, PAD
from nmt.training import trainer, validation
from nmt.training.checkpoints import Checkpoints, mean_weights
from nmt.training.losses import TokenSums, smoothed_cross_entropy, token_sums
from nmt.training.metrics import Meter, Metrics, Report
from nmt.training.optimizer import BLOCK_ROWS, BlockMuon, FusedAdam, make_optimizer
from nmt.training.schedule import WarmupSchedule, learning_rate
from nmt.training.step import AVERAGE_STEPS, make_train_step, move_averages
from nmt.training.strategy import split_rows
from nmt.training.trainer import TrainingError, average_checkpoints, train
from nmt.training.validation import Validation, make_predict, validate

SMALL = ModelConfig(
    num_layers=1,
    d_model=16,
    num_heads=2,
    dff=32,
    dropout_rate=0.1,
    source_vocab_size=20,
    target_vocab_size=20,
)

# The weights are saved after every step.
EVERY_STEP = 1e-9


def prepared_run(path, pairs_file, *, model=SMALL, **training):
    """Prepare a run folder of the tiny corpus: 18 pairs, about 5 batches an epoch."""
    model = dataclasses.replace(model, source_vocab_size=500, target_vocab_size=500)
    settings = {"batch_tokens": 128, "warmup_steps": 10, "peak_learning_rate": 1e-3, **training}
    config = Config(DataConfig(corpus=str(pairs_file)), model, TrainingConfig(**settings))
    run = RunFolder(path)
    prepare(run, config, record={})
    return run


def change(run, section, **settings):
    """Change a section of the configuration of a run that is already prepared."""
    config = run.config()
    changed = dataclasses.replace(getattr(config, section), **settings)
    write_text(run.config_file, to_json(dataclasses.replace(config, **{section: changed})))


def train_quietly(run, **limits):
    """Train as in a process of its own: nothing is left over from an earlier training."""
    keras.utils.set_random_seed(999)
    change(run, "training", **limits)
    reports = []
    validation = train(run, reports.append)
    return reports, validation


def weights_on_disk(run):
    """Return the arrays of model.weights.h5 by their paths."""
    arrays = {}
    with h5py.File(run.weights_file) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]}) if hasattr(item, "shape") else None
        )
    return arrays


def metrics_of(run):
    return [json.loads(line) for line in run.metrics_file.read_text("utf-8").splitlines()]


def optimizer_for(model, rate=1e-3):
    optimizer = FusedAdam(rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    optimizer.build(model.trainable_variables)
    return optimizer


def random_batch(lengths, seed=0):
    """Return a batch of sentence pairs with (source, target) tokens, EOS included."""
    random = np.random.default_rng(seed)
    sentences = [
        [np.append(random.integers(4, 20, length - 1), EOS).astype(np.int32) for length in pair]
        for pair in lengths
    ]
    return make_batch(*map(list, zip(*sentences, strict=True)))


# Learning rate -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0),
        (1, 1.746928107e-07),
        (2, 3.493856215e-07),
        (4000, 6.98771243e-04),
        (4001, 6.986839129e-04),
        (8000, 4.941058844e-04),
        (100_000, 1.397542486e-04),
    ],
)
@pytest.mark.parametrize(
    "as_type", [int, float, np.int64, lambda step: tf.constant(step, tf.int64)]
)
def test_learning_rate_of_every_number_type(step, expected, as_type):
    rate = learning_rate(as_type(step), 512, 4000)
    assert rate.dtype == tf.float32
    np.testing.assert_allclose(rate, expected, rtol=1e-6)
    np.testing.assert_allclose(rate, reference.learning_rate(step, 512, 4000), rtol=1e-6)


def test_learning_rate_peaks_at_the_end_of_the_warm_up():
    np.testing.assert_allclose(learning_rate(4000, 128, 4000), 1.397542486e-03, rtol=1e-6)
    rates = [float(learning_rate(step, 64, 20)) for step in range(1, 60)]
    assert int(np.argmax(rates)) + 1 == 20
    np.testing.assert_allclose(rates[:20], np.arange(1, 21) * rates[19] / 20, rtol=1e-5)


def test_peak_replaces_the_height_and_keeps_the_shape():
    for step in (1, 7, 50, 51, 333):
        np.testing.assert_allclose(
            learning_rate(step, 512, 50, peak=3.0),
            3.0 * learning_rate(step, 512, 50) / learning_rate(50, 512, 50),
            rtol=1e-6,
        )
    np.testing.assert_allclose(learning_rate(50, 512, 50, peak=3.0), 3.0)
    # An integer from a configuration file must not bring integer arithmetic.
    np.testing.assert_allclose(learning_rate(25, 512, 50, peak=1), 0.5)


def test_schedule_gives_the_first_update_the_rate_of_step_1():
    schedule = WarmupSchedule(512, 4000)
    for updates in (0, 1, 3999, 99_999):
        expected = learning_rate(updates + 1, 512, 4000)
        np.testing.assert_allclose(schedule(tf.constant(updates, tf.int64)), expected, rtol=1e-6)
    optimizer = keras.optimizers.SGD(schedule)
    variable = keras.Variable([1.0])
    optimizer.apply([tf.constant([1.0])], [variable])
    np.testing.assert_allclose(1 - variable.numpy(), 1.746928107e-07, atol=6e-8)


def test_schedule_survives_the_round_trip():
    schedule = WarmupSchedule(128, 500, 2e-3)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    np.testing.assert_allclose(again(30), schedule(30))
    optimizer = FusedAdam.from_config(FusedAdam(schedule, beta_2=0.98).get_config())
    assert optimizer.beta_2 == 0.98


# Loss --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_matches_the_reference(smoothing):
    random = np.random.default_rng(0)
    logits = (3 * random.normal(size=(9, 7))).astype(np.float32)
    labels = np.array([1, 2, 3, 4, 5, 6, 1, PAD, PAD], np.int32)
    expected, tokens = reference.smoothed_cross_entropy(logits, labels, smoothing, PAD)
    sums = token_sums(tf.constant(logits), labels, smoothing)
    np.testing.assert_allclose(sums.loss, expected, rtol=1e-5)
    assert float(sums.tokens) == tokens == 7


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_matches_numeric_differences_of_the_reference(smoothing):
    random = np.random.default_rng(0)
    logits = random.normal(size=(3, 5)).astype(np.float32)
    labels = np.array([2, 4, 1], np.int32)
    upstream = np.array([1.0, -2.0, 0.5])
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        losses = smoothed_cross_entropy(variable, labels, smoothing)
        total = tf.reduce_sum(losses * upstream.astype(np.float32))
    gradient = tape.gradient(total, variable).numpy()
    for row, column in np.ndindex(3, 5):
        ends = []
        for delta in (1e-4, -1e-4):
            moved = logits[row : row + 1].astype(np.float64)
            moved[0, column] += delta
            ends.append(
                reference.smoothed_cross_entropy(moved, labels[row : row + 1], smoothing, PAD)[0]
            )
        expected = upstream[row] * (ends[0] - ends[1]) / 2e-4
        np.testing.assert_allclose(gradient[row, column], expected, atol=1e-5)


@pytest.mark.parametrize(("vocab_size", "least"), [(5, 0.389673), (8000, 1.223650)])
def test_perfect_prediction_costs_the_entropy_of_the_smoothed_target(vocab_size, least):
    target = np.full(vocab_size, 0.1 / vocab_size)
    target[2] += 0.9
    if vocab_size == 5:
        np.testing.assert_allclose(target, [0.02, 0.02, 0.92, 0.02, 0.02])
    logits = tf.constant(np.log(target)[None], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = smoothed_cross_entropy(logits, np.array([2], np.int32), 0.1)
    np.testing.assert_allclose(loss, [least], atol=2e-5)
    # The float32 sum of 8,000 terms is not more exact than this on every processor.
    np.testing.assert_allclose(tape.gradient(loss, logits), 0, atol=3e-5)


def test_untrained_prediction_costs_the_logarithm_of_the_vocabulary():
    loss = smoothed_cross_entropy(tf.zeros([1, 8000]), np.array([7], np.int32), 0.1)
    np.testing.assert_allclose(loss, [8.987197], atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("row", "label"),
    [
        ([-1e9, 0.0, -1e9, -1e9], 1),
        ([-1e9, 0.0, -1e9, -1e9], 2),
        ([1e9, -1e9, 0.0, 5.0], 0),
        ([1e9, -1e9, 0.0, 5.0], 1),
        ([-1e9, -1e9, -1e9, -1e9], 3),
        ([0.0, 0.0, 0.0, 200.0], 1),
    ],
)
def test_extreme_logits(row, label, smoothing):
    logits = tf.constant([row], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = smoothed_cross_entropy(logits, np.array([label], np.int32), smoothing)
    expected, _ = reference.smoothed_cross_entropy([row], [label], smoothing, pad_id=-1)
    np.testing.assert_allclose(loss, [expected], rtol=1e-5, atol=1e-5)
    wanted = np.full(4, smoothing / 4)
    wanted[label] += 1 - smoothing
    np.testing.assert_allclose(
        tape.gradient(loss, logits)[0], reference.softmax(row) - wanted, atol=1e-6
    )


def test_smoothing_nothing_costs_nothing_when_certain():
    loss = smoothed_cross_entropy(tf.constant([[0.0, 99.0, 0.0]]), np.array([1], np.int32))
    np.testing.assert_allclose(loss, [0], atol=1e-6)


def test_padding_costs_nothing_whatever_is_predicted_there():
    labels = np.array([[3, PAD], [PAD, PAD]], np.int32)
    logits = np.zeros((2, 2, 5), np.float32)
    logits[0, 1], logits[1] = np.nan, np.inf
    sums = token_sums(tf.constant(logits), labels)
    np.testing.assert_allclose(sums.loss, np.log(5), rtol=1e-6)
    assert (float(sums.tokens), float(sums.correct)) == (1, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_batch_of_padding_alone_costs_nothing(smoothing):
    logits = tf.Variable(tf.random.normal([2, 3, 5], seed=1))
    with tf.GradientTape() as tape:
        sums = token_sums(logits, np.full((2, 3), PAD, np.int32), smoothing)
    assert [float(value) for value in sums] == [0.0, 0.0, 0.0]
    np.testing.assert_array_equal(tape.gradient(sums.loss, logits), 0)


def test_hits_are_counted_over_real_tokens():
    logits = tf.constant([[[0, 9, 0, 0], [0, 0, 9, 0], [9, 0, 0, 0]]], tf.float32)
    sums = token_sums(logits, np.array([[1, 3, PAD]], np.int32))
    assert (float(sums.correct), float(sums.tokens)) == (1, 2)


@pytest.mark.parametrize("length", [4, 40])
def test_mean_loss_does_not_depend_on_padding(length):
    """Each real token is predicted with probability 0.7: ln 0.7, however long the batch is."""
    labels = np.zeros((1, length), np.int32)
    labels[0, :2] = 1, 2
    logits = np.log(np.full((1, length, 4), 0.1, np.float32))
    for position, label in enumerate(labels[0]):
        logits[0, position, label] = np.log(0.7)
    sums = token_sums(tf.constant(logits), labels)
    np.testing.assert_allclose(sums.loss / sums.tokens, 0.356675, atol=1e-6)
    # The same tokens in two batches of different padding.
    halves = [token_sums(tf.constant(logits[:, i : i + n]), labels[:, i : i + n])
              for i, n in ((0, 1), (1, length - 1))]  # fmt: skip
    loss, tokens = (
        sum(float(getattr(half, name)) for half in halves) for name in ("loss", "tokens")
    )
    np.testing.assert_allclose(loss / tokens, 0.356675, atol=1e-6)


# Batches, optimizer and the step -----------------------------------------------------------------


def test_decoder_reads_one_token_behind_what_it_predicts():
    batch = make_batch([np.array([7, EOS])] * 2, [np.array([5, 6, EOS]), np.array([EOS])])
    assert batch.target_in_ids.tolist() == [[BOS, 5, 6], [BOS, EOS, PAD]]
    assert batch.target_out_ids.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    # EOS must be learned, so it carries loss; PAD carries none.
    sums = token_sums(tf.zeros([2, 3, 9]), batch.target_out_ids)
    assert float(sums.tokens) == 4


def test_fused_adam_equals_the_adam_of_keras():
    random = np.random.default_rng(0)
    settings = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}
    schedule = WarmupSchedule(16, 3, 0.05)
    start = [random.normal(size=shape) for shape in ((3, 4), (4,))]
    sides = []
    for optimizer in (FusedAdam(schedule, **settings), keras.optimizers.Adam(schedule, **settings)):
        variables = [
            keras.Variable(values, dtype="float32", name=name)
            for values, name in zip(start, ("kernel", "bias"), strict=True)
        ]
        optimizer.build(variables)
        sides.append((optimizer, variables))
    for step in range(5):
        gradients = [random.normal(size=values.shape) * 10.0 ** (step - 2) for values in start]
        for optimizer, variables in sides:
            optimizer.apply([tf.constant(g, tf.float32) for g in gradients], variables)
        for ours, theirs in zip(sides[0][1], sides[1][1], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert int(sides[0][0].iterations) == 5
    assert not np.allclose(sides[0][1][0], start[0], atol=0.05)
    # The same state too, so that one can go on from the other's checkpoint.
    states = [optimizer.variables for optimizer, _ in sides]
    for ours, theirs in zip(*states, strict=True):
        assert ours.path.split("/")[1:] == theirs.path.split("/")[1:]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def after_steps(optimizer, shapes, steps=4):
    """Return the variables that `optimizer` makes of random gradients of very different size."""
    random = np.random.default_rng(0)
    variables = [
        keras.Variable(random.normal(size=shape), dtype="float32", name=name)
        for name, shape in shapes.items()
    ]
    optimizer.build(variables)
    for step in range(steps):
        gradients = [random.normal(size=each.shape) * 10.0 ** (step - 2) for each in variables]
        optimizer.apply([tf.constant(g, tf.float32) for g in gradients], variables)
    return {each.name: each.numpy() for each in variables}


def test_muon_of_single_blocks_equals_the_muon_of_keras():
    shapes = {"wide": (4, 6), "tall": (6, 4), "square": (5, 5), "bias": (4,), "embedding": (7, 4)}
    schedule = WarmupSchedule(16, 3, 0.05)
    settings = dict(epsilon=1e-9, ns_steps=3, weight_decay=None, adam_weight_decay=None)
    ours = after_steps(BlockMuon(schedule, **settings), shapes)
    theirs = after_steps(keras.optimizers.Muon(schedule, **settings), shapes)
    for name in shapes:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("shape", [(8, 2 * BLOCK_ROWS), (2 * BLOCK_ROWS, 100), (128, 128)])
def test_muon_makes_the_rows_of_each_block_orthogonal(shape):
    """The first step, by the singular values of each block of the gradient."""
    gradient = np.random.default_rng(1).normal(size=shape)
    rows = gradient if shape[0] > shape[1] else gradient.T
    expected = []
    for block in np.split(rows, len(rows) // BLOCK_ROWS):
        left, values, right = np.linalg.svd(block, full_matrices=False)
        values /= np.linalg.norm(block)
        for _ in range(3):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        expected.append(left @ np.diag(values) @ right * max(block.shape) ** 0.5)
    expected = np.concatenate(expected)
    expected = -0.01 * 0.2 * (expected if shape[0] > shape[1] else expected.T)
    variable = keras.Variable(np.zeros(shape), dtype="float32", name="kernel")
    optimizer = make_optimizer(TrainingConfig(optimizer="muon"), 0.01)
    optimizer.build([variable])
    optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
    np.testing.assert_allclose(variable.numpy(), expected, atol=2e-5)
    # As large as a step of Adam, or nearly.
    assert 0.1 * 0.01 < np.std(variable.numpy()) < 0.3 * 0.01


def test_muon_leaves_tables_and_vectors_to_adam():
    model = build_transformer(dataclasses.replace(SMALL, tie_embeddings=False))
    optimizer = make_optimizer(TrainingConfig(optimizer="muon"), 0.01)
    optimizer.build(model.trainable_variables)
    by_adam = {
        weight.path.split("/", 1)[1]
        for weight, velocity in zip(
            model.trainable_variables, optimizer.adam_velocities, strict=True
        )
        if velocity is not None
    }
    matrices = {w.path.split("/", 1)[1] for w in model.trainable_variables if len(w.shape) == 2}
    tables = {"source_embedding/embeddings", "target_embedding/embeddings"}
    assert matrices & by_adam == tables | {"output_projection/kernel"}
    assert not optimizer.weight_decay
    assert not optimizer.adam_weight_decay


def test_average_by_hand():
    weight, average = keras.Variable([1.0, 3.0]), keras.Variable([0.0, 0.0])
    model = types.SimpleNamespace(trainable_variables=[weight])
    averaged = types.SimpleNamespace(trainable_variables=[average])
    # The random start is forgotten at once: before the first real step, the decay is 0.
    move_averages(averaged, model, 1, 0.9)
    np.testing.assert_array_equal(average, weight)
    # The first has decay 1/10, the tenth 1/2 unless it is limited.
    for step, expected in ((AVERAGE_STEPS, [0.9, 2.7]), (9 * AVERAGE_STEPS, [0.5, 1.5])):
        average.assign([0.0, 0.0])
        move_averages(averaged, model, step, 0.999)
        np.testing.assert_allclose(average, expected, rtol=1e-6)
        # Not every update moves the average.
        move_averages(averaged, model, step + 1, 0.999)
        np.testing.assert_allclose(average, expected, rtol=1e-6)
    average.assign([0.0, 0.0])
    move_averages(averaged, model, 10_000 * AVERAGE_STEPS, 0.9)
    share = 1 - 0.9**AVERAGE_STEPS
    np.testing.assert_allclose(average, [share, 3 * share], rtol=1e-5)


@pytest.mark.parametrize(("rows", "parts"), [(5, 1), (5, 2), (6, 3), (1, 2), (2, 4)])
def test_split_rows_loses_and_repeats_nothing(rows, parts):
    tensors = [tf.reshape(tf.range(rows * width), [rows, width]) for width in (3, 2)]
    split = split_rows(tensors, parts)
    assert len(split) == parts
    for part in split:
        assert len({len(tensor) for tensor in part}) == 1
        assert rows // parts <= len(part[0]) <= -(-rows // parts)
    for number, tensor in enumerate(tensors):
        joined = tf.concat([part[number] for part in split], axis=0)
        np.testing.assert_array_equal(joined, tensor)


def still_step(parts=1, dropout_rate=0.0):
    """Return a model and its training step, whose learning rate is 0."""
    model = build_transformer(dataclasses.replace(SMALL, dropout_rate=dropout_rate), seed=1)
    config = TrainingConfig(label_smoothing=0.1, batch_parts=parts)
    return model, make_train_step(model, optimizer_for(model, rate=0.0), config)


@pytest.fixture(scope="module")
def stepping():
    return still_step()


def test_step_computes_loss_and_gradient_of_the_mean_token(stepping):
    model, step = stepping
    batch = random_batch([(5, 3), (2, 6), (4, 4)])
    sums, norm = step(*batch)
    with tf.GradientTape() as tape:
        logits = model(batch[:2])
        expected = token_sums(logits, batch.target_out_ids, 0.1)
        mean = expected.loss / 13
    gradients = tape.gradient(mean, model.trainable_variables)
    expected_norm = tf.linalg.global_norm([tf.convert_to_tensor(g) for g in gradients])
    assert float(sums.tokens) == 13
    np.testing.assert_allclose(sums.loss, expected.loss, rtol=1e-5)
    np.testing.assert_allclose(norm, expected_norm, rtol=1e-4)
    per_token, _ = reference.smoothed_cross_entropy(
        logits.numpy().reshape(-1, 20), batch.target_out_ids.ravel(), 0.1, PAD
    )
    np.testing.assert_allclose(sums.loss, per_token, rtol=1e-5)


def test_step_does_not_depend_on_padding(stepping):
    _, step = stepping
    batch = random_batch([(5, 3), (2, 6), (4, 4)])
    padded = [np.pad(ids, [(0, 0), (0, 5)], constant_values=PAD) for ids in batch]
    sums, norm = step(*batch)
    padded_sums, padded_norm = step(*padded)
    np.testing.assert_allclose(padded_sums, sums, rtol=1e-5)
    np.testing.assert_allclose(padded_norm, norm, rtol=1e-4)


def test_step_is_traced_once_for_all_shapes(stepping):
    _, step = stepping
    for lengths in ([(5, 3)], [(2, 6), (4, 4)], [(9, 1), (1, 9), (3, 3)]):
        step(*random_batch(lengths))
    assert step.experimental_get_tracing_count() == 1


def test_step_in_parts_is_the_same_step(stepping):
    """Also where there are fewer sentences than parts."""
    _, step = stepping
    _, step_in_parts = still_step(parts=2)
    for lengths in ([(5, 3), (2, 6), (4, 4)], [(3, 5)]):
        batch = random_batch(lengths)
        sums, norm = step(*batch)
        sums_in_parts, norm_in_parts = step_in_parts(*batch)
        np.testing.assert_allclose(sums_in_parts, sums, rtol=1e-5)
        np.testing.assert_allclose(norm_in_parts, norm, rtol=1e-4)


def test_step_trains_with_dropout():
    """At learning rate 0 the same batch costs something else each time."""
    _, step = still_step(dropout_rate=0.5)
    batch = random_batch([(5, 3), (2, 6), (4, 4)])
    first, again = (float(step(*batch)[0].loss) for _ in range(2))
    assert abs(first - again) > 1e-3


def test_meter_divides_once():
    """A long batch counts for more than a short one."""
    meter = Meter()
    for loss, correct, lengths in ((2.0, 1.0, [(3, 1)]), (30.0, 3.0, [(5, 3), (2, 6)])):
        batch = random_batch(lengths)
        tokens = float(np.count_nonzero(batch.target_out_ids))
        meter.add(TokenSums(loss, correct, tokens), batch)
    report = meter.report(40, 1.5, 1e-3, None)
    assert report.loss == pytest.approx(32 / 10)
    assert report.token_accuracy == pytest.approx(4 / 10)


def test_tensorboard_shows_what_the_file_says(tmp_path):
    """Also after a stop: each step once, and nothing of the future that was lost."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = RunFolder(tmp_path)
    metrics = Metrics(run, step=0)
    for step in (20, 40, 60):
        metrics.write(Report(step, 0.5, 1.0, 8.0 / step, 0.25, 1e-3, 100.0, None))
        metrics.write(Validation(step, 9.0 / step, 0.5, None if step == 20 else float(step)))
    with open(run.metrics_file, "a", encoding="utf-8") as file:
        file.write('{"step": 80, "epo')  # killed while writing
    again = Metrics(run, step=40)
    again.write(Report(60, 0.75, 1.5, 0.5, 0.5, 1e-3, 100.0, None))
    assert [r["step"] for r in run.metrics()] == [20, 20, 40, 40, 60]
    events = EventAccumulator(str(run.tensorboard), size_guidance={"tensors": 0})
    events.Reload()
    for name in ("loss", "token_accuracy", "learning_rate", "validation_loss", "validation_bleu"):
        shown = [(e.step, float(tf.make_ndarray(e.tensor_proto))) for e in events.Tensors(name)]
        logged = [(r["step"], r[name]) for r in run.metrics() if r.get(name) is not None]
        assert shown == [(step, pytest.approx(value)) for step, value in logged]


# Validation --------------------------------------------------------------------------------------


def encoded(sentences):
    """Return sentences without EOS as the data of one side."""
    closed = [np.append(ids, EOS).astype(np.int32) for ids in sentences]
    lengths = np.array([len(ids) for ids in closed], np.int32)
    return Encoded(np.concatenate(closed), lengths)


def test_validation_loss_does_not_depend_on_batch_size(monkeypatch):
    random = np.random.default_rng(0)
    sides = [
        encoded([random.integers(4, 20, random.integers(1, 12)) for _ in range(10)])
        for _ in range(2)
    ]
    data = Prepared(*sides)
    model = build_transformer(SMALL, seed=1)
    found = []
    for batch_tokens in (1, 100_000):
        monkeypatch.setattr(
            validation,
            "plan_epoch",
            lambda pairs, seed, epoch, batch_tokens, size=batch_tokens: plan_epoch(
                pairs, size, seed, epoch
            ),
        )
        found.append(validate(make_predict(model), data, step=7))
    for result in found:
        assert result.step == 7
        assert result.validation_loss == pytest.approx(found[0].validation_loss, abs=1e-5)
        assert result.validation_accuracy == pytest.approx(found[0].validation_accuracy)
    # Without smoothing and dropout: the plain mean over all tokens.
    loss = tokens = 0
    for source, target in zip(data.source.split(), data.target.split(), strict=True):
        batch = make_batch([source], [target])
        pair_loss, pair_tokens = reference.smoothed_cross_entropy(
            model(batch[:2])[0], batch.target_out_ids[0], 0.0, PAD
        )
        loss, tokens = loss + pair_loss, tokens + pair_tokens
    assert found[0].validation_loss == pytest.approx(loss / tokens, abs=1e-5)


def test_training_traces_the_model_once_for_validation(tmp_path, pairs_file, monkeypatch):
    """Tracing takes seconds; TensorFlow also complains on the terminal about doing it often."""
    run = prepared_run(tmp_path / "run", pairs_file)
    calls = []
    original = trainer.Transformer.call

    def call(*arguments, **options):
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(trainer.Transformer, "call", call)
    train_quietly(run, max_steps=3, checkpoint_minutes=EVERY_STEP)
    assert sum("validation_loss" in line for line in metrics_of(run)) >= 3
    assert len(calls) <= 2


# When training goes wrong ------------------------------------------------------------------------


def assert_all_finite(run):
    """Every checkpoint and the weights must be of use to someone."""
    checkpoints = sorted(run.checkpoints.glob("*.index"))
    for index in checkpoints:
        reader = tf.train.load_checkpoint(str(index).removesuffix(".index"))
        for name in reader.get_variable_to_shape_map():
            value = reader.get_tensor(name)
            assert not isinstance(value, np.ndarray) or np.isfinite(value).all(), (index, name)
    for name, value in weights_on_disk(run).items():
        assert np.isfinite(value).all(), name
    return [index.stem for index in checkpoints]


def test_divergence_stops_training_and_keeps_the_good_checkpoint(tmp_path, pairs_file):
    run = prepared_run(tmp_path / "run", pairs_file, warmup_steps=1)
    train_quietly(run, max_steps=2)
    good = weights_on_disk(run)
    with pytest.raises(TrainingError, match=r"^step (3|4): .*learning rate \d(\.\d+)?e\+\d+"):
        train_quietly(
            run,
            max_steps=8,
            peak_learning_rate=1e20,
            checkpoint_minutes=EVERY_STEP,
            keep_checkpoints=1,
        )
    # What the broken update left behind must not take the place of what was good.
    assert assert_all_finite(run) == ["step-2"]
    for name, value in weights_on_disk(run).items():
        np.testing.assert_array_equal(value, good[name])
    for line in run.metrics_file.read_text("utf-8").splitlines():
        assert "NaN" not in line, "not JSON"


def test_divergence_in_the_last_step_is_noticed(tmp_path, pairs_file):
    run = prepared_run(tmp_path / "run", pairs_file, warmup_steps=1, peak_learning_rate=3e38)
    with pytest.raises(TrainingError, match=r"^step 1: .*learning rate 3e\+38"):
        train_quietly(run, max_steps=1)
    assert not run.weights_file.exists()


def test_hundred_pairs_stay_finite(tmp_path, pairs_file):
    """The shipped settings, at a small size, on hardly any data."""
    rows = [line.split("\t") for line in pairs_file.read_text("utf-8").splitlines()]
    hundred = tmp_path / "hundred.tsv"
    hundred.write_text(
        "".join(f"{a} {b}\t{c}{d}\n" for a, c in rows[:10] for b, d in rows[10:]), "utf-8"
    )
    run = prepared_run(
        tmp_path / "run",
        hundred,
        model=dataclasses.replace(SMALL, norm="pre"),
        batch_tokens=2048,
        warmup_steps=500,
        peak_learning_rate=2e-3,
        precision="float32",
    )
    reports, validation = train_quietly(run, max_steps=60)
    assert [report.step for report in reports] == [20, 40, 60]
    losses = [report.loss for report in reports]
    assert np.isfinite([*losses, validation.validation_loss]).all()
    assert losses[-1] < losses[0]
    assert_all_finite(run)


# Checkpoints -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, pairs_file):
    """The same training twice: 12 steps at once, and 6 steps and 6 more."""
    folder = tmp_path_factory.mktemp("resume")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "REPORT_STEPS", 1)
        straight = prepared_run(folder / "straight", pairs_file, weight_average=0.9)
        train_quietly(straight, max_steps=12)
        parts = prepared_run(folder / "parts", pairs_file, weight_average=0.9)
        train_quietly(parts, max_steps=6)
        train_quietly(parts, max_steps=12)
    return straight, parts


@pytest.fixture
def parts(interrupted, tmp_path):
    """A copy of the run that has checkpoints at steps 6 and 12."""
    shutil.copytree(interrupted[1].path, tmp_path / "parts")
    return RunFolder(tmp_path / "parts")


def assert_same_training(run, expected):
    wanted = weights_on_disk(expected)
    found = weights_on_disk(run)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)
    lines, wanted_lines = (
        [line for line in metrics_of(each) if "loss" in line] for each in (run, expected)
    )
    assert [line["step"] for line in lines] == list(range(1, 13))
    for line, wanted_line in zip(lines, wanted_lines, strict=True):
        for key in ("step", "epoch", "loss", "token_accuracy", "learning_rate"):
            assert line[key] == pytest.approx(wanted_line[key], rel=1e-5), (line["step"], key)


def test_resumed_training_equals_one_without_a_break(interrupted):
    straight, parts = interrupted
    assert_same_training(parts, straight)
    schedule = WarmupSchedule(16, 10, 1e-3)
    for line in metrics_of(parts):
        if "loss" in line:
            assert line["learning_rate"] == pytest.approx(float(schedule(line["step"] - 1)))
    assert sum("validation_loss" in line for line in metrics_of(parts)) == 2


def test_training_that_is_done_does_nothing_more(parts):
    before = weights_on_disk(parts)
    reports, validation = train_quietly(parts, max_steps=12)
    assert reports == []
    assert validation.step == 12
    for name, value in weights_on_disk(parts).items():
        np.testing.assert_array_equal(value, before[name])


def truncate(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def test_resume_falls_back_to_the_checkpoint_before(interrupted, parts, monkeypatch, caplog):
    monkeypatch.setattr(trainer, "REPORT_STEPS", 1)
    truncate(next(parts.checkpoints.glob("step-12.data*")), 0.5)
    with caplog.at_level(logging.INFO, logger="nmt"):
        reports, _ = train_quietly(parts, max_steps=12)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any("step-12: cannot restore" in warning for warning in warnings)
    assert "going on from step 6" in caplog.text
    assert reports[0].step == 7
    assert_same_training(parts, interrupted[0])


def checkpoints_of(run):
    """Return what restores the checkpoints of a run into a new model."""
    model = build_transformer(run.model_config(), seed=5)
    averaged = build_transformer(model.config)
    optimizer = optimizer_for(model, WarmupSchedule(16, 10, 1e-3))
    return Checkpoints(
        run.checkpoints, model, optimizer, averaged, keep=3, fingerprint=run.fingerprint()
    )


def checkpoints_in(folder, model, optimizer=None, averaged=None, fingerprint=None):
    """Return what saves a model, and keeps two checkpoints."""
    return Checkpoints(
        *(folder, model, optimizer or optimizer_for(model), averaged or model),
        keep=2,
        fingerprint=fingerprint or {"source.model": "aaaa", "train.npz": "bbbb"},
    )


@pytest.mark.parametrize(
    "damage", ["empty data", "lost data", "lost index", "empty index", "litter", "nothing"]
)
def test_damaged_checkpoints(parts, damage, caplog):
    data = next(parts.checkpoints.glob("step-12.data*"))
    index = parts.checkpoints / "step-12.index"
    if damage == "empty data":
        truncate(data, 0)
    elif damage == "lost data":
        data.unlink()
    elif damage == "lost index":
        index.unlink()
    elif damage == "empty index":
        truncate(index, 0)
    elif damage == "litter":
        (parts.checkpoints / "step-18_temp").mkdir()
        (parts.checkpoints / "step-18_temp" / "part-00000-of-00001.data").write_bytes(b"half")
        (parts.checkpoints / "checkpoint.tmp1234").write_bytes(b"half")
    checkpoints = checkpoints_of(parts)
    assert checkpoints.restore()
    intact = damage in ("litter", "nothing")
    assert checkpoints.step == (12 if intact else 6)
    assert ("step-12: cannot restore" in caplog.text) == (not intact)


@pytest.mark.parametrize("content", [None, b"", b"garbled {{{"])
def test_checkpoints_are_found_without_their_list(parts, content):
    """TensorFlow lists checkpoints in a file; if that is lost or cut, they are still there."""
    listing = parts.checkpoints / "checkpoint"
    listing.unlink(missing_ok=True)
    if content is not None:
        listing.write_bytes(content)
    checkpoints = checkpoints_of(parts)
    assert checkpoints.restore(), "starts from step 0 silently"
    assert checkpoints.step == 12


def test_only_damaged_checkpoints_is_an_error(parts):
    for data in parts.checkpoints.glob("*.data*"):
        truncate(data, 0.5)
    with pytest.raises(ConfigError, match=r"none of the 2 checkpoints can be restored"):
        train_quietly(parts, max_steps=18)


def test_no_checkpoint_is_a_start_from_zero(tmp_path):
    model = build_transformer(SMALL, seed=1)
    checkpoints = checkpoints_in(tmp_path, model)
    assert checkpoints.restore() is None
    assert checkpoints.step == 0


def test_checkpoint_brings_everything_back(tmp_path):
    """Weights, averages, both moments, step, minutes, and the state of dropout."""
    model, averaged = (build_transformer(SMALL, seed=seed) for seed in (1, 2))
    optimizer = optimizer_for(model)
    model(random_batch([(3, 3)])[:2], training=True)
    random = np.random.default_rng(0)
    everything = [*model.variables, *averaged.trainable_variables, *optimizer.variables]
    for variable in everything:
        variable.assign(random.integers(1, 1000, variable.shape))
    optimizer.iterations.assign(41)
    expected = [variable.numpy() for variable in everything]
    checkpoints = checkpoints_in(tmp_path, model, optimizer, averaged)
    state = {"minutes": 1 / 3, "sums": [0.1, 2.0, 3.0], "validation": None}
    checkpoints.save(state)
    for variable in everything:
        variable.assign(tf.zeros(variable.shape))
    assert checkpoints.step == 0
    assert checkpoints.restore() == state
    assert checkpoints.step == 41
    for variable, value in zip(everything, expected, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.path)
    assert any("seed_generator" in variable.path for variable in model.variables)


def test_as_many_checkpoints_are_kept_as_asked(tmp_path):
    model = build_transformer(SMALL, seed=1)
    optimizer = optimizer_for(model)
    checkpoints = checkpoints_in(tmp_path, model, optimizer)
    for step in (5, 10, 15):
        optimizer.iterations.assign(step)
        checkpoints.save({})
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "step-10.index",
        "step-15.index",
    ]


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ({}, {"d_model": 32}),
        ({}, {"dff": 64}),
        ({}, {"source_vocab_size": 21}),
        ({}, {"num_layers": 2}),
        ({"num_layers": 2}, {}),
        ({}, {"norm": "pre"}),
        ({"norm": "pre"}, {}),
        ({}, {"tie_embeddings": False}),
        ({"tie_embeddings": False}, {}),
    ],
    ids=str,
)
def test_checkpoint_of_another_architecture_is_refused(tmp_path, saved, now):
    model = build_transformer(dataclasses.replace(SMALL, **saved), seed=1)
    checkpoints_in(tmp_path, model).save({})
    model = build_transformer(dataclasses.replace(SMALL, **now), seed=1)
    checkpoints = checkpoints_in(tmp_path, model)
    with pytest.raises(ConfigError, match="checkpoints can be restored"):
        checkpoints.restore()


# Learning ----------------------------------------------------------------------------------------


def test_learns_to_reverse_digits():
    """A task that needs positions, attention in both stacks, the shift and EOS to be right."""
    random = np.random.default_rng(0)
    sequences = sorted({tuple(random.integers(4, 14, random.integers(3, 7))) for _ in range(4300)})
    random.shuffle(sequences)
    unseen, seen = sequences[:200], sequences[200:]
    data = Prepared(encoded(seen), encoded([ids[::-1] for ids in seen]))

    model = build_transformer(ModelConfig(1, 32, 4, 128, 0.0, 14, 14, norm="pre"), seed=1)
    optimizer = optimizer_for(model, WarmupSchedule(32, 100, 5e-3))
    step = make_train_step(model, optimizer, TrainingConfig(label_smoothing=0.1))
    for number, batch in enumerate(batches_from(data, batch_tokens=1024, seed=1, step=0), 1):
        step(*batch)
        if number == 700:
            break

    found = Searcher([model]).search(pad([np.append(ids, EOS) for ids in unseen]))
    right = [
        tuple(ids[:length]) == (*reversed(asked), EOS)
        for ids, length, asked in zip(found.ids[:, 0], found.lengths[:, 0], unseen, strict=True)
    ]
    assert not {tuple(ids) for ids in unseen} & {tuple(ids) for ids in seen}
    assert np.mean(right) >= 0.95


def test_prepared_pairs_fill_several_batches(tmp_path, pairs_file):
    """Else the tests of resuming would not see whether batches are repeated or left out."""
    run = prepared_run(tmp_path / "run", pairs_file)
    assert 4 <= len(plan_epoch(load_train(run), 128, seed=1, epoch=0)) <= 8


# Best weights, patience, means of checkpoints ----------------------------------------------------


def test_best_weights_and_patience_survive_a_resume(tmp_path, pairs_file, monkeypatch):
    """BLEU 10, 30, then worse ones: the weights of 30 stay, and the third worse one ends it."""
    scores = iter([10.0, 30.0, 20.0, 20.0, 29.0, 99.0])
    monkeypatch.setattr(trainer, "translation_bleu", lambda *_: next(scores))
    run = prepared_run(
        tmp_path / "run", pairs_file, checkpoint_steps=2, validation_sentences=2, patience=3
    )
    train_quietly(run, max_steps=4)
    best = weights_on_disk(run)
    train_quietly(run, max_steps=6)
    _, final = train_quietly(run, max_steps=100)
    assert final.step == 10
    assert [r["validation_bleu"] for r in metrics_of(run) if "validation_bleu" in r] == [
        *(10.0, 30.0, 20.0, 20.0, 29.0)
    ]
    for name, value in weights_on_disk(run).items():
        np.testing.assert_array_equal(value, best[name])
    # Asked again, it does not begin anew.
    assert train_quietly(run, max_steps=100)[1] == final


def test_equal_bleu_is_decided_by_the_loss(tmp_path, pairs_file, monkeypatch):
    """At first every BLEU is 0, and later weights are better all the same."""
    monkeypatch.setattr(trainer, "translation_bleu", lambda *_: 0.0)
    run = prepared_run(tmp_path / "run", pairs_file, checkpoint_steps=3, validation_sentences=2)
    train_quietly(run, max_steps=3)
    early = weights_on_disk(run)
    train_quietly(run, max_steps=12)
    losses = [r["validation_loss"] for r in metrics_of(run) if "validation_loss" in r]
    assert losses[-1] < losses[0]
    moved = [not np.array_equal(value, early[name]) for name, value in weights_on_disk(run).items()]
    assert any(moved)


def test_validation_bleu_is_that_of_translating(tmp_path, pairs_file):
    run = prepared_run(tmp_path / "run", pairs_file, validation_sentences=2)
    _, validation = train_quietly(run, max_steps=4)
    pairs = load_held_out(run, "validation")[:2]
    translations = load_translator(run.path).translate([pair.source for pair in pairs])
    texts = [translation.text for translation in translations]
    scores = corpus_scores(texts, [[pair.target for pair in pairs]], "zh")
    assert validation.validation_bleu == pytest.approx(scores[0].value)


def test_mean_of_checkpoints(parts):
    """The weights of steps 6 and 12, added by hand."""
    expected = []
    for step in (6, 12):
        reader = tf.train.load_checkpoint(str(parts.checkpoints / f"step-{step}"))
        names = [n for n in reader.get_variable_to_shape_map() if n.startswith("averaged/")]
        expected.append({name: reader.get_tensor(name) for name in names})
    means = mean_weights(parts.checkpoints, [12, 6])
    assert len(means) == len(expected[0])
    for name in expected[0]:
        mean = means[int(name.split("/")[1])]
        np.testing.assert_allclose(mean, (expected[0][name] + expected[1][name]) / 2, atol=1e-6)

    steps, before, after = average_checkpoints(parts, last=2)
    assert steps == [12, 6]
    assert before.validation_loss != after.validation_loss
    model = build_transformer(parts.model_config())
    load_weights(model, parts.weights_file)
    for variable, mean in zip(model.trainable_variables, means, strict=True):
        np.testing.assert_array_equal(variable, mean)
    with pytest.raises(ConfigError, match="has 2 checkpoints, not 3"):
        average_checkpoints(parts, last=3)


def test_changed_training_data_is_refused(parts):
    content = parts.train_file.read_bytes()
    parts.train_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConfigError, match="changed since the run was prepared"):
        train_quietly(parts, max_steps=13)


@pytest.mark.parametrize("name", ["source.model", "train.npz"])
def test_checkpoint_of_other_data_is_refused(tmp_path, name, caplog):
    """Of the same shapes: nothing but the fingerprint could tell."""
    model = build_transformer(SMALL, seed=1)
    checkpoints_in(tmp_path, model).save({})
    fingerprint = {"source.model": "aaaa", "train.npz": "bbbb", name: "cccc"}
    with pytest.raises(ConfigError, match=f"other data or another vocabulary: {name} was .*cccc"):
        checkpoints_in(tmp_path, model, fingerprint=fingerprint).restore()


def test_what_is_left_of_another_preparation_is_not_built_upon(parts, pairs_file):
    config = parts.config()
    parts.manifest_file.unlink()
    with pytest.raises(ConfigError, match=r"not prepared, but holds checkpoints and model.weights"):
        prepare(parts, config, record={})


def test_clipping_shortens_the_update_to_the_norm():
    """Plain gradient descent at rate 1 moves all weights together by just `clip_norm`."""
    model = build_transformer(dataclasses.replace(SMALL, dropout_rate=0.0), seed=1)
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(model.trainable_variables)
    step = make_train_step(model, optimizer, TrainingConfig(clip_norm=0.25))
    before = [weight.numpy() for weight in model.trainable_variables]
    _, norm = step(*random_batch([(5, 3), (2, 6), (4, 4)]))
    moved = [w.numpy() - b for w, b in zip(model.trainable_variables, before, strict=True)]
    assert float(norm) > 0.5
    assert np.sqrt(sum(np.sum(m**2) for m in moved)) == pytest.approx(0.25, rel=1e-4)
