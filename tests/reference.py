"""Reference Transformer in NumPy float64, written from the paper alone.

"The paper" is "Attention Is All You Need" (Vaswani et al. 2017). The tests compare the
TensorFlow code with this file, so it shares nothing with that code: it imports only NumPy and
the standard library, and prefers loops that read like the equations over speed.

Every array that comes in is converted to float64. Kernels are stored (inputs, outputs), so a
linear map is ``x @ kernel + bias``. Weights are flat dictionaries whose keys are paths, such as
"encoder/0/self_attention/query/kernel".

Shape legend: B batch, S source length, T target length, Q/K query/key length, H heads,
D depth per head, M model width (M = H * D), F inner width of the feed-forward network,
L layers, V vocabulary (Vs source, Vt target), N number of labels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

EPSILON = 1e-6
"""Added to the variance by every layer normalisation inside the model."""

Weights = Mapping[str, ArrayLike]
NextLogProbs = Callable[[tuple[int, ...]], ArrayLike]


# Basic pieces ------------------------------------------------------------------------------------


def to_float64(values: ArrayLike) -> np.ndarray:
    """Convert anything array-like to a float64 array.

    Args:
        values: any shape.

    Source: none; keeps rounding of the reference far below that of the tested code.
    """
    return np.asarray(values, dtype=np.float64)


def subset(weights: Weights, prefix: str) -> dict[str, ArrayLike]:
    """Return the entries below "prefix/", with that prefix removed from their keys.

    Args:
        weights: flat dictionary of arrays.
        prefix: path without a trailing slash, such as "encoder/0".

    Source: none; bookkeeping.
    """
    start = prefix + "/"
    return {key[len(start) :]: value for key, value in weights.items() if key.startswith(start)}


def linear(weights: Weights, x: ArrayLike) -> np.ndarray:
    """Apply the affine map x @ kernel + bias.

    Args:
        weights: "kernel" (inputs, outputs) and "bias" (outputs,).
        x: (length, inputs).

    Source: the learned projections of sections 3.2.2, 3.3 and 3.4.
    """
    return to_float64(x) @ to_float64(weights["kernel"]) + to_float64(weights["bias"])


def positions(length: int, d_model: int) -> np.ndarray:
    """Compute the sinusoidal position encodings, sines and cosines interleaved: (length, M).

    Args:
        length: number of positions, counted from 0.
        d_model: M.

    Source: section 3.5: PE[pos, 2i] = sin(pos / 10000^(2i/M)) and PE[pos, 2i+1] = cos(same).
    """
    table = np.zeros((length, d_model), dtype=np.float64)
    for position in range(length):
        for column in range(d_model):
            pair = column // 2
            angle = position / 10000.0 ** (2 * pair / d_model)
            table[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def softmax(row: ArrayLike) -> np.ndarray:
    """Turn one row of scores into probabilities.

    Args:
        row: (K,), finite scores. The largest is subtracted first, which changes no result.

    Source: the softmax of equation 1.
    """
    scores = to_float64(row)
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def log_softmax(row: ArrayLike) -> np.ndarray:
    """Turn one row of scores into log probabilities.

    Args:
        row: (V,), finite scores.

    Source: the logarithm of the softmax of section 3.4.
    """
    scores = to_float64(row)
    shifted = scores - scores.max()
    return shifted - math.log(np.exp(shifted).sum())


def layer_norm(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, epsilon: float) -> np.ndarray:
    """Normalise each vector of the last axis to mean 0 and variance 1, then scale and shift it.

    The variance is the biased one (divided by M), and epsilon is added to it inside the root.

    Args:
        x: (..., M).
        gamma: (M,), scale.
        beta: (M,), shift.
        epsilon: small positive number.

    Source: section 3.1, which cites Ba et al. 2016.
    """
    x = to_float64(x)
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return to_float64(gamma) * (x - mean) / np.sqrt(variance + epsilon) + to_float64(beta)


def relu(x: ArrayLike) -> np.ndarray:
    """Replace negative values by zero.

    Args:
        x: any shape.

    Source: the max(0, .) of equation 2.
    """
    return np.maximum(0.0, to_float64(x))


# Attention ---------------------------------------------------------------------------------------


def attention(
    query: ArrayLike, keys: ArrayLike, values: ArrayLike, may_attend: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Attend with one head: return the output (Q, D) and the weights (Q, K).

    A forbidden key gets a weight of exactly 0. A query with no allowed key at all gets the
    uniform weights 1/K over all K keys, the forbidden ones included, since the softmax over an
    empty set is undefined.

    Args:
        query: (Q, D).
        keys: (K, D).
        values: (K, D).
        may_attend: bool (Q, K), True where the query may attend to the key.

    Source: equation 1: softmax(Q K^T / sqrt(D)) V; masking as in section 3.2.3.
    """
    query, keys, values = to_float64(query), to_float64(keys), to_float64(values)
    allowed = np.asarray(may_attend, dtype=bool)
    query_length, depth = query.shape
    key_length = keys.shape[0]
    if allowed.shape != (query_length, key_length):
        raise ValueError(f"mask {allowed.shape} is not {(query_length, key_length)}")

    weights = np.zeros((query_length, key_length), dtype=np.float64)
    output = np.zeros((query_length, values.shape[1]), dtype=np.float64)
    for q in range(query_length):
        allowed_keys = [k for k in range(key_length) if allowed[q, k]]
        if allowed_keys:
            scores = [np.dot(query[q], keys[k]) / math.sqrt(depth) for k in allowed_keys]
            weights[q, allowed_keys] = softmax(scores)
        else:
            weights[q, :] = 1.0 / key_length
        for k in range(key_length):
            output[q] += weights[q, k] * values[k]
    return output, weights


def multi_head_attention(
    weights: Weights,
    query: ArrayLike,
    memory: ArrayLike,
    may_attend: ArrayLike,
    num_heads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Attend with all heads in one sentence: return the output (Q, M) and the weights (H, Q, K).

    Head h reads columns h*D to (h+1)*D of the projected queries, keys and values, and its output
    takes the same columns of the concatenation.

    Args:
        weights: "query/kernel" (M, M) and "query/bias" (M,); likewise "key", "value", "output".
        query: (Q, M), where the queries come from.
        memory: (K, M), where the keys and values come from; equal to query in self attention.
        may_attend: bool (Q, K), True where the query may attend to the key.
        num_heads: H.

    Source: section 3.2.2: Concat(head_1, ..., head_H) W^O.
    """
    queries = linear(subset(weights, "query"), query)
    keys = linear(subset(weights, "key"), memory)
    values = linear(subset(weights, "value"), memory)
    d_model = queries.shape[1]
    if d_model % num_heads != 0:
        raise ValueError(f"width {d_model} is not a multiple of {num_heads} heads")
    depth = d_model // num_heads

    head_outputs = []
    head_weights = []
    for head in range(num_heads):
        columns = slice(head * depth, (head + 1) * depth)
        one_output, one_weights = attention(
            queries[:, columns], keys[:, columns], values[:, columns], may_attend
        )
        head_outputs.append(one_output)
        head_weights.append(one_weights)
    concatenated = np.concatenate(head_outputs, axis=1)
    return linear(subset(weights, "output"), concatenated), np.stack(head_weights)


def padding_mask(key_ids: ArrayLike, query_length: int, pad_id: int) -> np.ndarray:
    """Say which keys are tokens rather than padding, the same for each query: bool (Q, K).

    Args:
        key_ids: int (K,).
        query_length: Q.
        pad_id: the padding token.

    Source: none; the paper leaves padding unsaid.
    """
    ids = np.asarray(key_ids)
    mask = np.zeros((query_length, len(ids)), dtype=bool)
    for q in range(query_length):
        for k in range(len(ids)):
            mask[q, k] = ids[k] != pad_id
    return mask


def causal_mask(target_in_ids: ArrayLike, pad_id: int) -> np.ndarray:
    """Say which keys are neither later than the query nor padding: bool (T, T).

    Args:
        target_in_ids: int (T,).
        pad_id: the padding token.

    Source: section 3.2.3, third point (no leftward flow of information).
    """
    ids = np.asarray(target_in_ids)
    mask = np.zeros((len(ids), len(ids)), dtype=bool)
    for q in range(len(ids)):
        for k in range(len(ids)):
            mask[q, k] = k <= q and ids[k] != pad_id
    return mask


# Layers ------------------------------------------------------------------------------------------


def feed_forward(weights: Weights, x: ArrayLike) -> np.ndarray:
    """Apply the position-wise feed-forward network: (length, M).

    Args:
        weights: "inner/kernel" (M, F), "inner/bias" (F,), "outer/kernel" (F, M),
            "outer/bias" (M,).
        x: (length, M).

    Source: equation 2: max(0, x W1 + b1) W2 + b2.
    """
    inner = relu(linear(subset(weights, "inner"), x))
    return linear(subset(weights, "outer"), inner)


def normalise(weights: Weights, x: ArrayLike) -> np.ndarray:
    """Apply layer normalisation with the model's epsilon.

    Args:
        weights: "gamma" (M,) and "beta" (M,).
        x: (length, M).

    Source: section 3.1.
    """
    return layer_norm(x, weights["gamma"], weights["beta"], EPSILON)


def check_norm(norm: str) -> None:
    """Refuse a placement of layer normalisation other than "pre" and "post".

    Args:
        norm: "pre" or "post".

    Source: none; guards against a misspelt test.
    """
    if norm not in ("pre", "post"):
        raise ValueError(f'norm must be "pre" or "post", not {norm!r}')


def encoder_layer(
    weights: Weights, x: ArrayLike, may_attend: ArrayLike, num_heads: int, norm: str
) -> tuple[np.ndarray, np.ndarray]:
    """Apply one encoder layer to one sentence: return x (S, M) and the weights (H, S, S).

    Args:
        weights: "self_attention/..." as multi_head_attention takes them, "feed_forward/..." as
            feed_forward takes them, "self_attention_norm/gamma" and "self_attention_norm/beta"
            (M,), and likewise "feed_forward_norm".
        x: (S, M).
        may_attend: bool (S, S).
        num_heads: H.
        norm: "post" for LayerNorm(x + Sublayer(x)), the paper's, or "pre" for
            x + Sublayer(LayerNorm(x)).

    Source: section 3.1, "Encoder".
    """
    check_norm(norm)
    x = to_float64(x)
    self_attention = subset(weights, "self_attention")
    self_attention_norm = subset(weights, "self_attention_norm")
    feed_forward_weights = subset(weights, "feed_forward")
    feed_forward_norm = subset(weights, "feed_forward_norm")

    if norm == "pre":
        normal = normalise(self_attention_norm, x)
        attended, self_weights = multi_head_attention(
            self_attention, normal, normal, may_attend, num_heads
        )
        x = x + attended
        x = x + feed_forward(feed_forward_weights, normalise(feed_forward_norm, x))
        return x, self_weights

    attended, self_weights = multi_head_attention(self_attention, x, x, may_attend, num_heads)
    x = normalise(self_attention_norm, x + attended)
    x = normalise(feed_forward_norm, x + feed_forward(feed_forward_weights, x))
    return x, self_weights


def decoder_layer(
    weights: Weights,
    x: ArrayLike,
    memory: ArrayLike,
    self_may_attend: ArrayLike,
    cross_may_attend: ArrayLike,
    num_heads: int,
    norm: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Apply one decoder layer to one sentence: return x, self weights and cross weights.

    The shapes returned are (T, M), (H, T, T) and (H, T, S). The memory is used as it comes; in
    pre-norm only x is normalised before the cross attention.

    Args:
        weights: those of encoder_layer, "cross_attention/..." as multi_head_attention takes
            them, and "cross_attention_norm/gamma" and "cross_attention_norm/beta" (M,).
        x: (T, M).
        memory: (S, M), the output of the encoder.
        self_may_attend: bool (T, T).
        cross_may_attend: bool (T, S).
        num_heads: H.
        norm: "post" for LayerNorm(x + Sublayer(x)), the paper's, or "pre" for
            x + Sublayer(LayerNorm(x)).

    Source: section 3.1, "Decoder".
    """
    check_norm(norm)
    x = to_float64(x)
    self_attention = subset(weights, "self_attention")
    self_attention_norm = subset(weights, "self_attention_norm")
    cross_attention = subset(weights, "cross_attention")
    cross_attention_norm = subset(weights, "cross_attention_norm")
    feed_forward_weights = subset(weights, "feed_forward")
    feed_forward_norm = subset(weights, "feed_forward_norm")

    if norm == "pre":
        normal = normalise(self_attention_norm, x)
        attended, self_weights = multi_head_attention(
            self_attention, normal, normal, self_may_attend, num_heads
        )
        x = x + attended
        normal = normalise(cross_attention_norm, x)
        attended, cross_weights = multi_head_attention(
            cross_attention, normal, memory, cross_may_attend, num_heads
        )
        x = x + attended
        x = x + feed_forward(feed_forward_weights, normalise(feed_forward_norm, x))
        return x, self_weights, cross_weights

    attended, self_weights = multi_head_attention(self_attention, x, x, self_may_attend, num_heads)
    x = normalise(self_attention_norm, x + attended)
    attended, cross_weights = multi_head_attention(
        cross_attention, x, memory, cross_may_attend, num_heads
    )
    x = normalise(cross_attention_norm, x + attended)
    x = normalise(feed_forward_norm, x + feed_forward(feed_forward_weights, x))
    return x, self_weights, cross_weights


# The whole model ---------------------------------------------------------------------------------


def embed(table: ArrayLike, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Look up one sentence, multiply by sqrt(M) and add the position encodings: (length, M).

    Args:
        table: (V, M).
        ids: int (length,).

    Source: sections 3.4 and 3.5.
    """
    table = to_float64(table)
    vocabulary_size, d_model = table.shape
    rows = []
    for token in ids:
        if not 0 <= token < vocabulary_size:
            raise ValueError(f"token {token} is outside the vocabulary of {vocabulary_size}")
        rows.append(table[token] * math.sqrt(d_model))
    return np.stack(rows) + positions(len(rows), d_model)


def encode(
    weights: Weights,
    source_ids: np.ndarray,
    num_layers: int,
    num_heads: int,
    norm: str,
    pad_id: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Encode one sentence: return the memory (S, M) and the weights (L, H, S, S).

    Args:
        weights: as transformer takes them.
        source_ids: int (S,).
        num_layers: L.
        num_heads: H.
        norm: "pre" or "post".
        pad_id: the padding token.

    Source: section 3.1, "Encoder", and the left half of figure 1.
    """
    may_attend = padding_mask(source_ids, len(source_ids), pad_id)
    x = embed(weights["source_embedding"], source_ids)
    all_weights = []
    for layer in range(num_layers):
        x, self_weights = encoder_layer(
            subset(weights, f"encoder/{layer}"), x, may_attend, num_heads, norm
        )
        all_weights.append(self_weights)
    if norm == "pre":
        x = normalise(subset(weights, "encoder_norm"), x)
    return x, np.stack(all_weights)


def decode(
    weights: Weights,
    memory: np.ndarray,
    source_ids: np.ndarray,
    target_in_ids: np.ndarray,
    num_layers: int,
    num_heads: int,
    norm: str,
    pad_id: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decode one sentence: return hidden (T, M), self (L, H, T, T) and cross (L, H, T, S) weights.

    Args:
        weights: as transformer takes them.
        memory: (S, M), the output of encode.
        source_ids: int (S,), for the mask of the cross attention.
        target_in_ids: int (T,), the target shifted right.
        num_layers: L.
        num_heads: H.
        norm: "pre" or "post".
        pad_id: the padding token.

    Source: section 3.1, "Decoder", and the right half of figure 1.
    """
    self_may_attend = causal_mask(target_in_ids, pad_id)
    cross_may_attend = padding_mask(source_ids, len(target_in_ids), pad_id)
    x = embed(weights["target_embedding"], target_in_ids)
    all_self_weights = []
    all_cross_weights = []
    for layer in range(num_layers):
        x, self_weights, cross_weights = decoder_layer(
            subset(weights, f"decoder/{layer}"),
            x,
            memory,
            self_may_attend,
            cross_may_attend,
            num_heads,
            norm,
        )
        all_self_weights.append(self_weights)
        all_cross_weights.append(cross_weights)
    if norm == "pre":
        x = normalise(subset(weights, "decoder_norm"), x)
    return x, np.stack(all_self_weights), np.stack(all_cross_weights)


def project(weights: Weights, hidden: np.ndarray, tie_embeddings: bool) -> np.ndarray:
    """Turn the hidden states of one sentence into logits: (T, V).

    Args:
        weights: "target_embedding" (Vt, M) if tied, "output/kernel" (M, V) and "output/bias"
            (V,) if not.
        hidden: (T, M).
        tie_embeddings: whether to reuse the target embedding, unscaled and without a bias.

    Source: section 3.4.
    """
    if tie_embeddings:
        return hidden @ to_float64(weights["target_embedding"]).T
    return linear(subset(weights, "output"), hidden)


def transformer(
    weights: Weights,
    source_ids: ArrayLike,
    target_in_ids: ArrayLike,
    *,
    num_layers: int,
    num_heads: int,
    norm: str,
    tie_embeddings: bool,
    pad_id: int,
) -> dict[str, np.ndarray]:
    """Run the whole model without dropout: return logits and all attention weights.

    The result holds "logits" (B, T, V), "encoder" (L, B, H, S, S), "decoder" (L, B, H, T, T) and
    "cross" (L, B, H, T, S). Only keys are masked: queries at padding positions are computed like
    any other, and their logits are in the result.

    Args:
        weights: "source_embedding" (Vs, M), "target_embedding" (Vt, M), "encoder/<layer>/..." as
            encoder_layer takes them, "decoder/<layer>/..." as decoder_layer takes them; in
            pre-norm also "encoder_norm/gamma", "encoder_norm/beta", "decoder_norm/gamma" and
            "decoder_norm/beta" (M,); if untied "output/kernel" (M, V) and "output/bias" (V,).
        source_ids: int (B, S).
        target_in_ids: int (B, T), the target shifted right.
        num_layers: L, the same in the encoder and the decoder, at least 1.
        num_heads: H.
        norm: "post", the paper's, or "pre".
        tie_embeddings: whether the output projection is the transposed target embedding.
        pad_id: the padding token.

    Source: section 3 and figure 1.
    """
    check_norm(norm)
    source_ids = np.asarray(source_ids)
    target_in_ids = np.asarray(target_in_ids)
    if len(source_ids) != len(target_in_ids):
        raise ValueError(f"{len(source_ids)} sources but {len(target_in_ids)} targets")

    all_logits, all_encoder, all_decoder, all_cross = [], [], [], []
    for source, target_in in zip(source_ids, target_in_ids, strict=True):
        memory, encoder_weights = encode(weights, source, num_layers, num_heads, norm, pad_id)
        hidden, decoder_weights, cross_weights = decode(
            weights, memory, source, target_in, num_layers, num_heads, norm, pad_id
        )
        all_logits.append(project(weights, hidden, tie_embeddings))
        all_encoder.append(encoder_weights)
        all_decoder.append(decoder_weights)
        all_cross.append(cross_weights)
    return {
        "logits": np.stack(all_logits),
        "encoder": np.stack(all_encoder, axis=1),
        "decoder": np.stack(all_decoder, axis=1),
        "cross": np.stack(all_cross, axis=1),
    }


# Training ----------------------------------------------------------------------------------------


def smoothed_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, smoothing: float, pad_id: int
) -> tuple[float, int]:
    """Sum the label-smoothed cross entropy over the labels that are not padding.

    Returns the sum and the number of labels summed. The wanted distribution is
    (1 - smoothing) * onehot + smoothing / V, uniform over all V tokens: the right one and the
    padding token have their share of it. The minimum is therefore not 0 but its entropy.

    Args:
        logits: (N, V), finite.
        labels: int (N,).
        smoothing: epsilon_ls, from 0 (plain cross entropy) to 1.
        pad_id: the padding token.

    Source: section 5.4, "Label Smoothing", which cites Szegedy et al. 2015.
    """
    logits = to_float64(logits)
    labels = np.asarray(labels)
    vocabulary_size = logits.shape[1]
    total = 0.0
    count = 0
    for row, label in zip(logits, labels, strict=True):
        if label == pad_id:
            continue
        log_probabilities = log_softmax(row)
        for token in range(vocabulary_size):
            wanted = smoothing / vocabulary_size
            if token == label:
                wanted += 1.0 - smoothing
            total -= wanted * float(log_probabilities[token])
        count += 1
    return total, count


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Compute the learning rate of one update, with steps counted from 1; step 0 gives 0.0.

    Args:
        step: number of the update.
        d_model: M.
        warmup_steps: the step of the highest rate.

    Source: equation 3: M^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).
    """
    if step == 0:
        return 0.0
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


# Search ------------------------------------------------------------------------------------------


def greedy(
    next_log_probs: NextLogProbs, bos_id: int, eos_id: int, max_length: int
) -> tuple[tuple[int, ...], float]:
    """Take the likeliest next token again and again: return the ids and their log probability.

    Stops after EOS or after max_length tokens. The ids leave BOS out and end in EOS only where it
    was chosen in time. Of equally likely tokens the lowest id is taken.

    Args:
        next_log_probs: maps a prefix that begins with BOS to log probabilities (V,).
        bos_id: first token of each prefix.
        eos_id: token that ends a sequence.
        max_length: most tokens to choose, EOS counted and BOS not.

    Source: none; plain autoregressive decoding, section 3, first paragraph.
    """
    ids: tuple[int, ...] = ()
    log_prob = 0.0
    while len(ids) < max_length and (not ids or ids[-1] != eos_id):
        row = to_float64(next_log_probs((bos_id, *ids)))
        token = int(np.argmax(row))
        log_prob += float(row[token])
        ids = (*ids, token)
    return ids, log_prob


class Found(NamedTuple):
    """A sequence that a search found."""

    ids: tuple[int, ...]  # without BOS; EOS last, unless truncated
    log_prob: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """Compute what a log probability is divided by to become a score.

    Args:
        length: number of tokens, EOS counted and BOS not.
        alpha: exponent; 0 compares plain log probabilities.

    Source: section 6.1 (alpha 0.6), which cites Wu et al. 2016, equation 14.
    """
    return ((5 + length) / 6) ** alpha


def ranked(totals: Mapping[tuple[int, ...], float], eos_id: int, alpha: float) -> list[Found]:
    """Rank sequences best first: those that end in EOS before the others, then by score.

    Args:
        totals: log probability of each sequence of ids.
        eos_id: token that ends a sequence.
        alpha: of the length penalty.

    Source: Wu et al. 2016, section 7, for the score; a sequence without EOS is no sentence.
    """
    found = [Found(ids, t, t / length_penalty(len(ids), alpha)) for ids, t in totals.items()]
    return sorted(found, key=lambda each: (each.ids[-1] != eos_id, -each.score))


def exhaustive_search(
    next_log_probs: NextLogProbs, bos_id: int, eos_id: int, max_length: int, alpha: float
) -> list[Found]:
    """Rank all sequences there are.

    They end in EOS, or have max_length tokens without any. Nothing else is left out: to forbid a
    token (padding, BOS), let next_log_probs give it -inf. There are about V^max_length, so keep
    both small; next_log_probs is called once for each prefix.

    Args:
        next_log_probs: maps a prefix that begins with BOS to log probabilities (V,).
        bos_id: first token of each prefix, not part of the ids returned.
        eos_id: token that ends a sequence.
        max_length: most tokens in a sequence, EOS counted and BOS not; at least 1.
        alpha: of the length penalty.

    Source: none; every sequence is tried.
    """
    totals: dict[tuple[int, ...], float] = {}

    def extend(ids: tuple[int, ...], log_prob: float) -> None:
        for token, more in enumerate(to_float64(next_log_probs((bos_id, *ids)))):
            longer = (*ids, token)
            if more == -math.inf:
                continue
            if token == eos_id or len(longer) == max_length:
                totals[longer] = log_prob + float(more)
            else:
                extend(longer, log_prob + float(more))

    extend((), 0.0)
    return ranked(totals, eos_id, alpha)


def beam_search(
    next_log_probs: NextLogProbs,
    bos_id: int,
    eos_id: int,
    max_length: int,
    beam: int,
    alpha: float,
) -> list[Found]:
    """Keep `beam` sequences at every length, and rank those kept at the end.

    A sequence that has ended keeps its place; the continuations of the others compete for the
    places left, by plain log probability. It goes on until every sequence has ended or has
    max_length tokens: it never stops early.

    Args:
        next_log_probs: maps a prefix that begins with BOS to log probabilities (V,).
        bos_id: first token of each prefix, not part of the ids returned.
        eos_id: token that ends a sequence.
        max_length: most tokens in a sequence, EOS counted and BOS not; at least 1.
        beam: number of places.
        alpha: of the length penalty, which counts at the very end only.

    Source: none; the semantics of the Marian toolkit in plain Python.
    """
    ended: dict[tuple[int, ...], float] = {}
    live: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(max_length):
        continued: list[tuple[float, tuple[int, ...]]] = []
        for ids, log_prob in live.items():
            row = to_float64(next_log_probs((bos_id, *ids)))
            for token, more in enumerate(row):
                if more > -math.inf:
                    continued.append((log_prob + float(more), (*ids, token)))
        continued.sort(key=lambda each: -each[0])
        kept = continued[: beam - len(ended)]
        ended.update({ids: log_prob for log_prob, ids in kept if ids[-1] == eos_id})
        live = {ids: log_prob for log_prob, ids in kept if ids[-1] != eos_id}
    return ranked(ended | live, eos_id, alpha)
