"""Where sentence pairs come from: packaged corpora, TSV files, any TFDS translation set."""

import contextlib
import gzip
import io
import itertools
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from nmt.config import ConfigError, DataConfig
from nmt.data.cleaning import clean_pairs, is_swapped
from nmt.data.splitting import SentencePair, Splits, overlap, split_pairs

log = logging.getLogger(__name__)

PACKAGED = {"tatoeba": "tatoeba_en_zh", "hsk": "hsk_en_zh"}

# Shares held out of corpora that come without splits of their own.
VALIDATION_SHARE, TEST_SHARE = 0.01, 0.02


class Corpus(NamedTuple):
    """Clean sentence pairs in three splits, and what was dropped on the way."""

    splits: Splits
    dropped: Counter  # reason -> number of pairs


def check_corpus(name: str) -> None:
    """Raise ConfigError if `name` cannot be a corpus; reads nothing and imports nothing heavy."""
    if name in PACKAGED or (name.startswith("tfds:") and len(name) > len("tfds:")):
        return
    if not Path(name).is_file():
        raise ConfigError(
            f"no such data: {name!r} is neither a file nor one of {', '.join(PACKAGED)}, "
            f"tfds:NAME; a file holds one pair a line: source, tab, target"
        )


def load_corpus(config: DataConfig, data_dir: str | None = None) -> Corpus:
    """Load, clean and split a corpus.

    Args:
      config: names the corpus, its languages and the script wanted for Chinese.
      data_dir: where TFDS keeps prepared data; None: its default (`TFDS_DATA_DIR`, or
        `tensorflow_datasets` in the home folder).

    Returns:
      Corpus. Held-out pairs that share a side with a training pair are only possible where the
      corpus brought its own splits; they are counted in a warning.

    Raises:
      ConfigError: the corpus is missing, malformed, or has nothing left to train on.
    """
    check_corpus(config.corpus)
    if config.corpus in PACKAGED or config.corpus.startswith("tfds:"):
        raw = _from_tfds(config, data_dir)
    else:
        raw = Splits(read_tsv(config.corpus), [], [])
    into_chinese = config.target_language.startswith("zh")
    if into_chinese != config.source_language.startswith("zh"):
        raw = _orient(raw, config.target_language)
    script = config.target_script if into_chinese else "keep"
    cleaned = [clean_pairs(pairs, script) for pairs in raw]
    dropped = sum((part.dropped for part in cleaned), Counter())
    splits = Splits(*(part.pairs for part in cleaned))
    if not splits.validation or not splits.test:
        splits = split_pairs(_together(splits), VALIDATION_SHARE, TEST_SHARE)
    if not all(splits):
        raise ConfigError(
            f"{config.corpus}: too little to train on: {len(splits.train)} training, "
            f"{len(splits.validation)} validation and {len(splits.test)} test pairs are left "
            f"({format_dropped(dropped)})"
        )
    leaked = overlap(splits.test, splits.train)
    if leaked:
        log.warning(
            "%d of %d test pairs share a side with a training pair: scores on them measure memory",
            leaked,
            len(splits.test),
        )
    return Corpus(splits, dropped)


def format_dropped(dropped: Counter) -> str:
    """Return the counts by reason as one line."""
    if not dropped.total():
        return "no pair dropped"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    return f"{dropped.total():,} pair{'s' * (dropped.total() > 1)} dropped: {reasons}"


def read_lines(path: str | Path) -> list[str]:
    """Read a text file as a list of lines; see `iterate_lines`."""
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text file, gzipped if its name ends in .gz, as they are read.

    Only \n ends a line (and a \r before it goes too): the separators that `str.splitlines` also
    knows occur inside sentences. A byte-order mark is not text.

    Raises:
      ConfigError: missing, not UTF-8 (file and line are named), or a damaged archive.
    """
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            yield from decode_lines(file, str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot read: {error}") from None


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield what `iterate_lines` does for the lines of a binary file; `name` is for errors."""
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
            if not line:
                continue
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}:{number}: not UTF-8: {error}") from None


def read_tsv(path: str | Path) -> list[SentencePair]:
    """Read sentence pairs from the first two columns of a tab-separated file.

    A third column, such as the attribution in Tatoeba exports, is ignored; a blank line counts
    as a pair without text, which cleaning drops and counts.

    Raises:
      ConfigError: as for `read_lines`, or a line without a tab.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) < 2 and line.strip():
            raise ConfigError(
                f"{path}:{number}: expected two columns, source<TAB>target; received {line[:60]!r}"
            )
        pairs.append(SentencePair(columns[0], columns[1] if len(columns) > 1 else ""))
    return pairs


def _orient(splits, target_language):
    """Swap the two sides if the text says that they are the wrong way round."""
    if not is_swapped(_together(splits), target_language):
        return splits
    log.warning("the two languages stand the other way round in this corpus: swapping them")
    return Splits(*([SentencePair(pair.target, pair.source) for pair in part] for part in splits))


def _together(splits):
    return list(itertools.chain.from_iterable(splits))


def _from_tfds(config, data_dir):
    """Return the splits of a TFDS set; one without all three has everything in `train`."""
    # TFDS brings TensorFlow with it; reading a TSV file needs neither.
    import tensorflow_datasets as tfds

    import nmt.data.builders  # noqa: F401 - registers the packaged corpora

    name = PACKAGED.get(config.corpus) or config.corpus.removeprefix("tfds:")
    tfds.disable_progress_bar()
    builder = _attempt(lambda: _builder(tfds, name, data_dir), name)
    keys = (config.source_language, config.target_language)
    if not set(keys) <= set(builder.info.features or ()):
        raise ConfigError(
            f"TFDS set {name} must have the text features {keys[0]!r} and {keys[1]!r}; it has "
            f"{', '.join(builder.info.features or ()) or 'none'}"
        )
    if not builder.is_prepared():
        log.info("building the TFDS set %s in %s, once", name, builder.data_dir)
        no_cloud = tfds.download.DownloadConfig(try_download_gcs=False)
        # TFDS prints what it does to standard output, which is for results.
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                _attempt(lambda: builder.download_and_prepare(download_config=no_cloud), name)
            except ConfigError:
                # Another process that built the same set has been faster: then it is there.
                builder = _attempt(lambda: _builder(tfds, name, data_dir), name)
                if not builder.is_prepared():
                    raise
    parts = {split: _read_split(tfds, builder, split, keys) for split in builder.info.splits}
    if set(parts) >= {"train", "validation", "test"}:
        return Splits(parts["train"], parts["validation"], parts["test"])
    return Splits(_together(parts.values()), [], [])


def _builder(tfds, name, data_dir):
    if name.startswith("wmt19_translate/"):
        # `wmt19_translate` insists on every corpus of the task, one of them on a dead host;
        # `wmt_translate` takes the one that the classic tutorial meant.
        languages = tuple(name.removeprefix("wmt19_translate/").split("-"))
        if len(languages) != 2:
            raise ConfigError(f"expected tfds:wmt19_translate/zh-en; received tfds:{name}")
        wmt = tfds.translate.wmt.WmtConfig(
            version="1.0.0",
            description="News Commentary v14",
            language_pair=languages,
            subsets={tfds.Split.TRAIN: ["newscommentary_v14"]},
        )
        return tfds.builder("wmt_translate", config=wmt, data_dir=data_dir)
    return tfds.builder(name, data_dir=data_dir)


def _attempt(action: Callable, name):
    """Run `action`, with anything that TFDS or the network raises told in one line."""
    try:
        return action()
    except ConfigError:
        raise
    except Exception as error:  # TFDS raises whatever its sources raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
        raise ConfigError(
            f"TFDS could not prepare {name}: {reason}. If a host is unreachable, put the "
            f"archive by hand into the folder downloads/manual of your TFDS folder, or give "
            f"--data a TSV file instead"
        ) from error


def _read_split(tfds, builder, split, keys):
    batches = tfds.as_numpy(builder.as_dataset(split=split).batch(1024))
    return [
        SentencePair(source.decode(), target.decode())
        for batch in batches
        for source, target in zip(batch[keys[0]], batch[keys[1]], strict=True)
    ]
