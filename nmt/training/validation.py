"""How good the model is on pairs it does not train on."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from nmt.data.batches import make_batch, plan_epoch
from nmt.data.prepared import Prepared
from nmt.data.splitting import SentencePair
from nmt.decoding.translator import Translator
from nmt.evaluation.scores import corpus_scores
from nmt.model.transformer import Transformer
from nmt.training.losses import token_sums


class Validation(NamedTuple):
    """The quality of the weights at a step."""

    step: int
    validation_loss: float  # nats a target token, given the reference so far; no label smoothing
    validation_accuracy: float  # share of target tokens that are predicted right so
    validation_bleu: float | None = None  # of free-running greedy translation; None: not measured


def make_predict(model: Transformer):
    """Return a tf.function from source and target-in ids to logits, traced once for all shapes."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(lambda *inputs: model(inputs), input_signature=[ids, ids])


def validate(predict: Callable, pairs: Prepared, step: int) -> Validation:
    """Predict every token of `pairs` from the reference before it."""
    loss = correct = tokens = 0.0
    sources, targets = pairs.source.split(), pairs.target.split()
    for indices in plan_epoch(pairs, batch_tokens=4096, seed=0, epoch=0):
        batch = make_batch([sources[i] for i in indices], [targets[i] for i in indices])
        logits = predict(batch.source_ids, batch.target_in_ids)
        sums = token_sums(logits, batch.target_out_ids)
        loss += float(sums.loss)
        correct += float(sums.correct)
        tokens += float(sums.tokens)
    return Validation(step, loss / tokens, correct / tokens)


def translation_bleu(translator: Translator, pairs: list[SentencePair], language: str) -> float:
    """Return the BLEU, 0 to 100, of what the weights now make of `pairs`, by greedy search."""
    translator.searcher.refresh()
    translations = translator.translate([pair.source for pair in pairs])
    texts = [translation.text for translation in translations]
    return corpus_scores(texts, [[pair.target for pair in pairs]], language)[0].value
