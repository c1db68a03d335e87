"""A SavedModel that takes strings and returns strings: clean-up, tokenizers and search inside.

Axis legend: B batch, S source length, T target length, L layers, H heads.
"""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

from nmt.decoding.arranged import arrange
from nmt.decoding.options import GREEDY
from nmt.decoding.search import beam_search, follow, permit_tokens
from nmt.decoding.sentences import EXTRA_TARGET_TOKENS, MAX_SOURCE_TOKENS
from nmt.decoding.stepping import cached_step
from nmt.decoding.translation import Translation
from nmt.model.transformer import Transformer
from nmt.text.normalize import clean
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizer

BEAM = 4  # of the signature "beam4"
_TOKENS = dict(bos=BOS, eos=EOS, pad=PAD)


def write_saved_model(
    model: Transformer, source: Tokenizer, target: Tokenizer, folder: Path
) -> None:
    """Write the model with its tokenizers as a SavedModel into `folder`, with a README.md.

    Signatures: "translate" (greedy search; also "serving_default"), "beam4", and "attention",
    which is "translate" with the attention to the source.
    """
    module = to_module(model, source, target)
    signatures = {
        "serving_default": module.translate,
        "translate": module.translate,
        "beam4": module.beam4,
        "attention": module.attention,
    }
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(folder), signatures, options)
    _forget_gradients(folder)
    packages = {"tensorflow": tf.__version__, "tensorflow-text": tensorflow_text.__version__}
    lines = [f"{name}=={version}\n" for name, version in packages.items()]
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")


def to_module(model: Transformer, source: Tokenizer, target: Tokenizer) -> tf.Module:
    """Return a module with the functions `translate`, `beam4` and `attention`.

    Each takes (B,) strings. What they return is described in README.
    """
    module = tf.Module(name="nmt")
    module.weights = [variable.value for variable in model.variables]
    # Names of their own: without, the two are taken for one when loaded (tensorflow/text#1304).
    module.source_tokenizer = tensorflow_text.SentencepieceTokenizer(
        source.model_proto, add_eos=True, name="nmt_source"
    )
    module.target_tokenizer = tensorflow_text.SentencepieceTokenizer(
        target.model_proto, name="nmt_target"
    )
    tokenizers = module.source_tokenizer, module.target_tokenizer
    for name, beam, attention in (
        ("translate", 1, False),
        ("beam4", BEAM, False),
        ("attention", 1, True),
    ):
        function = _translating(model, *tokenizers, beam, attention)
        signature = [tf.TensorSpec([None], tf.string, name="texts")]
        setattr(module, name, tf.function(function, signature, autograph=False))
    return module


def clean_in_graph(texts):
    """Return (B,) strings as `text.normalize.clean` would; InvalidArgumentError if not UTF-8."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="strict")
    texts = tf.strings.regex_replace(texts, _characters_that_become(""), "")
    texts = tf.strings.regex_replace(texts, f"{_characters_that_become(' ')}+", " ")
    return tf.strings.regex_replace(texts, "^ | $", "")


def decode_in_graph(tokenizer: tensorflow_text.SentencepieceTokenizer, ids):
    """Return the text (B,) of ids (B, T) as `Tokenizer.decode` and `clean` would."""
    has_text = (ids != PAD) & (ids != BOS) & (ids != EOS)
    return clean_in_graph(tokenizer.detokenize(tf.ragged.boolean_mask(ids, has_text)))


class SavedModelTranslator:
    """A loaded SavedModel as an engine, to be compared with others: greedy search only."""

    def __init__(self, folder: Path):
        self.module = tf.saved_model.load(str(folder))

    def translate(self, texts: Sequence[str]) -> list[Translation]:
        """Return the translation of each sentence."""
        found = self.module.translate(tf.constant(list(texts), tf.string))
        found = {name: value.numpy() for name, value in found.items()}
        return [
            Translation(
                source=text,
                text=found["translation"][row].decode(),
                target_tokens=[token.decode() for token in found["tokens"][row, :length]],
                token_log_probs=found["log_probs"][row, :length].tolist(),
                score=float(found["score"][row]),
                truncated=bool(found["truncated"][row]),
            )
            for row, (text, length) in enumerate(zip(texts, found["length"], strict=True))
        ]


def _translating(model, source_tokenizer, target_tokenizer, beam, attention):
    """Return the function from (B,) strings to what is known of their translations."""

    def translate(texts):
        # Where there is no sentence, one without text stands in, as nothing has no longest.
        count = tf.size(texts)
        texts = tf.pad(texts, [[0, tf.cast(count == 0, tf.int32)]], constant_values="")
        ragged = source_tokenizer.tokenize(clean_in_graph(texts))
        source_lengths = tf.cast(ragged.row_lengths(), tf.int32)
        tf.debugging.assert_less_equal(
            source_lengths, MAX_SOURCE_TOKENS + 1, "a sentence has more subwords than the limit"
        )
        source_ids = ragged.to_tensor(PAD)
        found = search(model, source_ids, source_lengths + EXTRA_TARGET_TOKENS, beam)
        # Without text there is only an EOS, and nothing to be translated.
        has_text = source_lengths > 1
        lengths = tf.where(has_text, found.lengths[:, 0], 0)
        is_token = tf.sequence_mask(lengths, tf.shape(found.ids)[2])
        ids = tf.where(is_token, found.ids[:, 0], PAD)
        result = {
            "translation": decode_in_graph(target_tokenizer, ids),
            "score": tf.where(has_text, found.scores[:, 0], 0.0),
            "truncated": has_text & found.truncated[:, 0],
            "length": lengths,
            "tokens": _pieces(target_tokenizer, ids, is_token),
            "log_probs": tf.where(is_token, found.log_probs[:, 0], 0.0),
        }
        if attention:
            is_source = tf.sequence_mask(source_lengths) & has_text[:, None]
            result |= {
                "source_tokens": _pieces(source_tokenizer, source_ids, is_source),
                "attention": _cross_attention(model, source_ids, ids),
            }
        return {name: value[:count] for name, value in result.items()}

    return translate


def search(model, source_ids, limits, beam):
    """Return Hypotheses of (B, S) source ids, at most `limits` (B,) tokens long."""
    # Arranged at every call: it costs little, and the weights are stored once.
    step, state = cached_step([(arrange(model), model.config)], source_ids, beam)
    permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD)
    common = dict(**_TOKENS, permit=permit, alpha=GREEDY.length_penalty)
    if beam == 1:
        return follow(step, state, limits, **common)
    return beam_search(step, state, limits, **common, beam=beam)


def _pieces(tokenizer, ids, is_token):
    return tf.where(is_token, tokenizer.id_to_string(ids), "")


def _cross_attention(model, source_ids, target_ids):
    """Return (B, L, H, T, S) float32, the attention by which each target token was predicted."""
    encoded = model.encode(source_ids)
    target_in = tf.pad(target_ids[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
    decoded = model.decode(target_in, model.project_memory(encoded), encoded.may_attend)
    return tf.stack(decoded.cross_weights, axis=1)


def _forget_gradients(folder):
    """Take out the marks of gradients that the model defines by hand, for training.

    The gradients themselves are not saved. Loading would warn of each mark.
    """
    file = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if "_gradient_op_type" in node.attr:
                del node.attr["_gradient_op_type"]
    file.write_bytes(saved.SerializeToString())
    (folder / "fingerprint.pb").unlink(missing_ok=True)  # optional, and not true any more


def _characters_that_become(what):
    """Return the class, as in RE2, of the characters of which `clean` makes `what`."""
    # Beyond the first plane there are none. Asking `clean` itself keeps the two from drifting.
    found = [
        code
        for code in range(0x10000)
        if not 0xD800 <= code < 0xE000 and clean(f"a{chr(code)}a") == f"a{what}a"
    ]
    return "[" + "".join(f"\\x{{{code:x}}}" for code in found) + "]"


README = f"""# A translator in one folder

A SavedModel of TensorFlow: sentences in, translations out, with the tokenizers inside. The folder
can be moved, and needs nothing but the two packages in requirements.txt:

    pip install -r requirements.txt

```python
import tensorflow as tf
import tensorflow_text  # brings operations that the model is made of

model = tf.saved_model.load(".")  # this folder
found = model.translate(tf.constant(["Good morning.", "I like cats."]))
for text in found["translation"].numpy():
    print(text.decode())
```

Without `import tensorflow_text`, TensorFlow says "Op type not registered 'SentencepieceOp'".

Three functions, each also a signature of its name: `translate` (greedy search; also the signature
`serving_default`), `beam4` (beam search, {BEAM} hypotheses), and `attention` (`translate`, and
where each token looked). They take B sentences, strings in UTF-8 of at most {MAX_SOURCE_TOKENS}
subwords each, and return:

| Name | Shape | What |
|---|---|---|
| `translation` | (B,) string | the translation; empty for a sentence without text |
| `score` | (B,) float32 | log-probability over ((5 + length) / 6)^{GREEDY.length_penalty} |
| `truncated` | (B,) bool | stopped by the limit, {EXTRA_TARGET_TOKENS} tokens above the source |
| `length` | (B,) int32 | tokens of the translation, the end-of-sentence token included |
| `tokens` | (B, T) string | its subwords, then "" |
| `log_probs` | (B, T) float32 | of each token given those before it, then 0 |
| `source_tokens` | (B, S) string | only of `attention`: subwords of the source, then "" |
| `attention` | (B, L, H, T, S) float32 | only of `attention`: from target to source tokens |
"""
