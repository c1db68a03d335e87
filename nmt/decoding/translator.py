"""Text in; text, score and attention out."""

from collections.abc import Iterator
from pathlib import Path
from typing import overload

import numpy as np
import tensorflow as tf

from nmt.data.batches import pad
from nmt.decoding.search import Hypotheses, greedy
from nmt.decoding.translation import Attention, Translation
from nmt.model.transformer import Transformer, build_transformer
from nmt.model.weights import load_weights
from nmt.run_folder import RunFolder
from nmt.text.normalize import clean
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizer

# Attention takes memory with the square of the length; nothing sentence-like is longer.
MAX_SOURCE_TOKENS = 1024

# A translation may be this much longer than its source before it counts as not ending.
EXTRA_TARGET_TOKENS = 50


class Translator:
    """A trained model with its two tokenizers."""

    def __init__(
        self, model: Transformer, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
    ):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        ids = tf.TensorSpec([None, None], tf.int32)
        self._search = tf.function(
            self._greedy, input_signature=[ids, tf.TensorSpec([None], tf.int32)]
        )
        self._attend = tf.function(self._all_attention, input_signature=[ids, ids])

    @overload
    def translate(
        self, texts: str, attention: bool = False, batch_tokens: int = 2048
    ) -> Translation: ...

    @overload
    def translate(
        self, texts: list[str], attention: bool = False, batch_tokens: int = 2048
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | list[str],
        attention: bool = False,
        batch_tokens: int = 2048,
    ) -> Translation | list[Translation]:
        """Translate one text, or several at once.

        Args:
          texts: a sentence, or a list of sentences. One without text gives one without text.
          attention: whether to return the attention weights of every layer and head.
          batch_tokens: most padded source positions that are decoded together.

        Returns:
          A Translation for a string; a list in the order of the input otherwise. Each depends on
          its own sentence only.

        Raises:
          ValueError: a sentence is not valid Unicode, or longer than MAX_SOURCE_TOKENS subwords.
        """
        if isinstance(texts, str):
            return self.translate([texts], attention, batch_tokens)[0]
        sources = self._encode(texts)
        results = [Translation(text, "", [], [], 0.0, False, None) for text in texts]
        for indices in _by_length(sources, batch_tokens):
            batch = pad([sources[i] for i in indices])
            hypotheses = self.search(batch)
            weights = self.attend(batch, hypotheses.ids) if attention else None
            for row, index in enumerate(indices):
                target = hypotheses.ids[row, : hypotheses.lengths[row]]
                results[index] = Translation(
                    source=texts[index],
                    # A model may spell a line break in bytes; a translation is one line.
                    text=clean(self.target_tokenizer.decode(target)),
                    source_tokens=self.source_tokenizer.pieces(sources[index]),
                    target_tokens=self.target_tokenizer.pieces(target),
                    score=float(hypotheses.scores[row]),
                    truncated=bool(hypotheses.truncated[row]),
                    attention=weights and _crop(weights, row, len(sources[index]), len(target)),
                )
        return results

    def search(self, source_ids: np.ndarray) -> Hypotheses:
        """Decode (B, S) int32 source ids; returns Hypotheses of NumPy arrays."""
        lengths = np.sum(source_ids != PAD, axis=1, dtype=np.int32)
        found = self._search(source_ids, lengths + np.int32(EXTRA_TARGET_TOKENS))
        return Hypotheses(*(value.numpy() for value in found))

    def attend(self, source_ids: np.ndarray, target_ids: np.ndarray) -> Attention:
        """Return the attention by which `target_ids` (B, T) are predicted, each (L, B, H, Q, K).

        One teacher-forced pass over the finished translations: it gives what the steps of the
        search saw, at a fraction of the cost of carrying it through the search.
        """
        first = np.full((len(target_ids), 1), BOS, np.int32)
        target_in = np.concatenate([first, target_ids[:, :-1]], axis=1)
        return Attention(*(value.numpy() for value in self._attend(source_ids, target_in)))

    def _encode(self, texts):
        sources = []
        encoded = self.source_tokenizer.encode([clean(text) for text in texts])
        for text, ids in zip(texts, encoded, strict=True):
            if len(ids) > MAX_SOURCE_TOKENS:
                raise ValueError(
                    f"a sentence may have at most {MAX_SOURCE_TOKENS} subwords; received "
                    f"{len(ids)}: split the text that begins {text[:40]!r}"
                )
            sources.append(np.array(ids + [EOS] if ids else [], np.int32))
        return sources

    def _greedy(self, source_ids, max_lengths):
        model = self.model
        encoded = model.encode(source_ids)
        memory = model.project_memory(encoded)
        # A cache of no positions yet, for each layer.
        past = tf.nest.map_structure(lambda tensor: tensor[:, :, :0], memory)

        def step(ids_B, past):
            decoded = model.decode(ids_B[:, None], memory, encoded.may_attend, past)
            return tf.nn.log_softmax(model.project(decoded.hidden[:, 0])), decoded.past

        return greedy(step, past, max_lengths, bos=BOS, eos=EOS, pad=PAD)

    def _all_attention(self, source_ids, target_in_ids):
        encoded = self.model.encode(source_ids)
        memory = self.model.project_memory(encoded)
        decoded = self.model.decode(target_in_ids, memory, encoded.may_attend)
        return Attention(
            tf.stack(encoded.weights),
            tf.stack(decoded.self_weights),
            tf.stack(decoded.cross_weights),
        )


def load_translator(path: str | Path) -> Translator:
    """Load a trained run folder; ConfigError says what is wrong with it."""
    run = RunFolder(path)
    run.require(run.config_file, run.weights_file)
    source_tokenizer, target_tokenizer = run.tokenizers()
    model = build_transformer(run.model_config())
    load_weights(model, run.weights_file)
    return Translator(model, source_tokenizer, target_tokenizer)


def _by_length(sources, batch_tokens) -> Iterator[list[int]]:
    """Yield indices of non-empty sources in batches of similar length, longest first.

    The longest batch comes first, so that too little memory shows at once, not at the end.
    """
    order = sorted((i for i, ids in enumerate(sources) if len(ids)), key=lambda i: -len(sources[i]))
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // len(sources[order[start]]))
        yield order[start : start + size]
        start += size


def _crop(weights, row, source_length, target_length):
    """Return one sentence's attention without the padding of its batch."""
    s, t = source_length, target_length
    return Attention(
        weights.encoder[:, row, :, :s, :s],
        weights.decoder[:, row, :, :t, :t],
        weights.cross[:, row, :, :t, :s],
    )
