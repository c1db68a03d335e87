"""Translating with CTranslate2, a C++ engine for CPUs. No TensorFlow."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import overload

from nmt.config import ConfigError
from nmt.decoding.ctranslate2_search import CTranslate2Searcher, Sentence, cores
from nmt.decoding.exported import read_description
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.sentences import (
    EXTRA_TARGET_TOKENS,
    best_first,
    by_length,
    encode_prefixes,
    encode_sentences,
    make_translation,
)
from nmt.decoding.translation import Translation
from nmt.run_folder import sha256
from nmt.text.tokenizer import EOS, Tokenizer, load_tokenizer

MODEL_FILES = ("model.bin", "config.json")
TOKENIZER_FILES = ("source.model", "target.model")


class CTranslate2Translator:
    """An exported model with its tokenizers; translates as a `Translator` does."""

    def __init__(
        self,
        folder: str | Path,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        target_language: str = "zh",
        segment_tokens: int = 64,
    ):
        pieces = target_tokenizer.pieces(range(target_tokenizer.vocab_size))
        self.searcher = CTranslate2Searcher(Path(folder), pieces)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.target_language = target_language
        self.segment_tokens = segment_tokens

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
        """Translate one sentence, or several at once; see `Translator.translate`.

        Raises:
          ConfigError: attention is asked for, which CTranslate2 has of one layer only.
          ValueError: as from `Translator.translate`.
        """
        if attention:
            raise ConfigError(
                "CTranslate2 does not give the attention of all layers and heads; "
                "use `--engine tensorflow` for it"
            )
        if isinstance(texts, str):
            prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
            return self.translate([texts], options, prefixes=prefixes)[0]
        sources = encode_sentences(self.source_tokenizer, texts)
        forced = encode_prefixes(self.target_tokenizer, prefixes, len(texts))
        results = [Translation(text, "") for text in texts]

        def translate_batch(indices):
            batch = [self._sentence(sources[i], forced[i]) for i in indices]
            found = self.searcher.search(batch, options)
            for index, sentence, hypotheses in zip(indices, batch, found, strict=True):
                results[index] = self._translation(texts[index], sentence, hypotheses, options)

        # Every core takes batches of its own; of few sentences, each core its share.
        share = math.ceil(len(texts) / cores()) * max(map(len, sources), default=0)
        batches = by_length(sources, min(batch_tokens // options.beam, share))
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(translate_batch, batches))
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Return given translations with the log-probability of each of their tokens.

        See `Translator.score`.
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"each source needs one target; received {len(sources)} sources and "
                f"{len(targets)} targets"
            )
        source_ids = encode_sentences(self.source_tokenizer, sources)
        target_ids = encode_sentences(self.target_tokenizer, targets)
        results = [Translation(*pair) for pair in zip(sources, targets, strict=True)]
        for indices in by_length(source_ids, batch_tokens=1024):
            batch = [self._sentence(source_ids[i], []) for i in indices]
            ids = [tuple(map(int, target_ids[i])) or (EOS,) for i in indices]
            log_probs = self.searcher.log_probs([sentence.source for sentence in batch], ids)
            for row, index in enumerate(indices):
                results[index] = results[index]._replace(
                    source_tokens=batch[row].source,
                    target_tokens=self.target_tokenizer.pieces(ids[row]),
                    token_log_probs=log_probs[row],
                    score=sum(log_probs[row]),
                )
        return results

    def _sentence(self, source_ids, prefix_ids):
        return Sentence(
            self.source_tokenizer.pieces(source_ids),
            self.target_tokenizer.pieces(prefix_ids),
            len(source_ids) + EXTRA_TARGET_TOKENS + len(prefix_ids),
        )

    def _translation(self, text, sentence, hypotheses, options):
        """Return the best hypothesis as a Translation, with the others as its alternatives."""
        translations = [
            make_translation(
                text,
                sentence.source,
                each.ids,
                each.token_log_probs,
                each.score,
                self.target_tokenizer,
            )
            for each in hypotheses
        ]
        return best_first(translations, options.nbest)


def load_ctranslate2(path: str | Path) -> CTranslate2Translator:
    """Load a folder that `nmt export --format ctranslate2` wrote; the run is not needed.

    Raises:
      ConfigError: the folder is missing, incomplete, damaged, or something else.
    """
    folder = Path(path)
    description = read_description(folder)
    if not description.format.startswith("ctranslate2"):
        raise ConfigError(f"{folder}: exported as {description.format}, not for CTranslate2")
    missing = [name for name in (*MODEL_FILES, *TOKENIZER_FILES) if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{folder}: incomplete export: {', '.join(missing)} missing")
    for name in TOKENIZER_FILES:
        if sha256((folder / name).read_bytes()) != description.sha256.get(name):
            raise ConfigError(f"{folder / name}: the vocabulary has changed; export the run again")
    source, target = (load_tokenizer(folder / name) for name in TOKENIZER_FILES)
    try:
        return CTranslate2Translator(
            folder, source, target, description.target_language, description.segment_tokens
        )
    except (RuntimeError, ValueError) as error:  # whatever C++ found in the files
        raise ConfigError(f"{folder}: cannot load the model: {error}") from None
