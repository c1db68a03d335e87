"""Sentences in; text, scores and attention out."""

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from nmt.config import ConfigError
from nmt.data.batches import make_batch, pad
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.searcher import Searcher
from nmt.decoding.sentences import (
    best_first,
    by_length,
    coverage,
    encode_prefixes,
    encode_sentences,
    make_translation,
)
from nmt.decoding.translation import Attention, Translation
from nmt.model.transformer import Transformer, build_transformer
from nmt.model.weights import load_weights
from nmt.run_folder import RunFolder
from nmt.text.tokenizer import EOS, Tokenizer


class Translator:
    """A trained model with its two tokenizers; or several models, an ensemble.

    An ensemble votes on every token, with the mean of its probabilities.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        target_language: str = "zh",
        segment_tokens: int = 64,
    ):
        self.searcher = Searcher(models)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.target_language = target_language
        self.segment_tokens = segment_tokens  # longest sentences that the models were trained on

    @overload
    def translate(
        self,
        texts: str,
        options: SearchOptions = ...,
        *,
        attention: bool = False,
        prefixes: str | None = None,
        batch_tokens: int = 2048,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: list[str],
        options: SearchOptions = ...,
        *,
        attention: bool = False,
        prefixes: list[str] | None = None,
        batch_tokens: int = 2048,
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | list[str],
        options: SearchOptions = GREEDY,
        *,
        attention: bool = False,
        prefixes: str | list[str] | None = None,
        batch_tokens: int = 2048,
    ) -> Translation | list[Translation]:
        """Translate one sentence, or several at once; for longer texts see `documents.py`.

        Args:
          texts: a sentence, or a list of sentences. One without text gives one without text.
          options: how to search.
          attention: whether to return the attention weights of every layer and head.
          prefixes: what the translation of each sentence must begin with; "": anything.
          batch_tokens: most padded source positions, times the beam, that are decoded together.

        Returns:
          A Translation for a string; a list in the order of the input otherwise. Each depends on
          its own sentence only.

        Raises:
          ValueError: a sentence is not valid Unicode, or longer than MAX_SOURCE_TOKENS subwords;
            or the number of prefixes is not that of the sentences.
        """
        if isinstance(texts, str):
            prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
            return self.translate([texts], options, attention=attention, prefixes=prefixes)[0]
        sources = encode_sentences(self.source_tokenizer, texts)
        forced = encode_prefixes(self.target_tokenizer, prefixes, len(texts))
        results = [Translation(text, "") for text in texts]
        for indices in by_length(sources, batch_tokens // options.beam):
            batch = pad([sources[i] for i in indices])
            prefix_ids = pad([forced[i] for i in indices])
            found = self.searcher.search(batch, options, prefix_ids if prefix_ids.size else None)
            if np.isnan(found.scores).any():
                raise ValueError("the model gives no numbers (NaN): its weights are broken")
            # Sampling may draw one twice, and the coverage penalty may put another first.
            all_count = options.sampling or options.coverage_penalty > 0
            hypotheses = [
                (row, place)
                for row in range(len(indices))
                for place in range(options.beam if all_count else options.nbest)
                if found.scores[row, place] > -np.inf
            ]
            rows, places = np.transpose(hypotheses)
            looked: list[Attention | None] = [None] * len(rows)
            if attention or options.coverage_penalty:
                weights = self.searcher.attend(batch[rows], found.ids[rows, places])
                looked = [
                    _crop(weights, i, len(sources[indices[row]]), found.lengths[row, place])
                    for i, (row, place) in enumerate(hypotheses)
                ]
            ranked: list[list[Translation]] = [[] for _ in indices]
            for (row, place), its_attention in zip(hypotheses, looked, strict=True):
                length = found.lengths[row, place]
                score = float(found.scores[row, place])
                if options.coverage_penalty and its_attention is not None:
                    # The mean of the heads of the last decoder layer, as CTranslate2 has it.
                    looked_TS = its_attention.cross[-1].mean(axis=0)
                    score += options.coverage_penalty * coverage(looked_TS)
                translation = make_translation(
                    texts[indices[row]],
                    self.source_tokenizer.pieces(sources[indices[row]]),
                    found.ids[row, place, :length],
                    found.log_probs[row, place, :length],
                    score,
                    self.target_tokenizer,
                )
                if attention:
                    translation = translation._replace(attention=its_attention)
                ranked[row].append(translation)
            for index, translations in zip(indices, ranked, strict=True):
                if options.coverage_penalty:
                    translations.sort(key=lambda each: (each.truncated, -each.score))
                results[index] = best_first(translations, options.nbest)
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, attention: bool = False
    ) -> list[Translation]:
        """Return given translations with the log-probability of each of their tokens.

        Args:
          sources: sentences. One without text has nothing to be scored by: no tokens, score 0.
          targets: a translation of each. `score` of the result is without length penalty.
          attention: whether to return also the attention by which the tokens are predicted.

        Raises:
          ValueError: lists of different length, or a sentence as `translate` refuses it.
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"each source needs one target; received {len(sources)} sources and "
                f"{len(targets)} targets"
            )
        source_ids = encode_sentences(self.source_tokenizer, sources)
        target_ids = [
            ids if len(ids) else np.array([EOS], np.int32)
            for ids in encode_sentences(self.target_tokenizer, targets)
        ]
        results = [Translation(*pair) for pair in zip(sources, targets, strict=True)]
        longer = [
            max(*pair, key=len) if len(pair[0]) else pair[0]
            for pair in zip(source_ids, target_ids, strict=True)
        ]
        for indices in by_length(longer, batch_tokens=1024):
            batch = make_batch([source_ids[i] for i in indices], [target_ids[i] for i in indices])
            log_probs = self.searcher.log_probs(*batch)
            weights = (
                self.searcher.attend(batch.source_ids, batch.target_out_ids) if attention else None
            )
            for row, index in enumerate(indices):
                source_length, target_length = len(source_ids[index]), len(target_ids[index])
                token_log_probs = log_probs[row, :target_length]
                results[index] = results[index]._replace(
                    source_tokens=self.source_tokenizer.pieces(source_ids[index]),
                    target_tokens=self.target_tokenizer.pieces(target_ids[index]),
                    token_log_probs=[float(value) for value in token_log_probs],
                    score=float(token_log_probs.sum()),
                    attention=weights and _crop(weights, row, source_length, target_length),
                )
        return results


def load_translator(path: str | Path, *others: str | Path) -> Translator:
    """Load a trained run folder, or several as an ensemble.

    Raises:
      ConfigError: what is wrong with a folder; or the runs have different tokenizers.
    """
    models, tokenizers = [], None
    for folder in (path, *others):
        run = RunFolder(folder)
        run.require(run.config_file, run.weights_file)
        source, target = run.tokenizers()
        protos = (source.model_proto, target.model_proto)
        if tokenizers is not None and protos != tokenizers:
            raise ConfigError(
                f"{folder} and {path} have different tokenizers: they cannot vote on tokens; "
                f"train them on the same prepared data"
            )
        tokenizers = protos
        model = build_transformer(run.model_config())
        load_weights(model, run.weights_file)
        models.append(model)
    data = RunFolder(path).config().data
    return Translator(models, source, target, data.target_language, data.max_tokens)


def _crop(weights, row, source_length, target_length):
    """Return one sentence's attention without the padding of its batch."""
    s, t = source_length, target_length
    return Attention(
        weights.encoder[:, row, :, :s, :s],
        weights.decoder[:, row, :, :t, :t],
        weights.cross[:, row, :, :t, :s],
    )
