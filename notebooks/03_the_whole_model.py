# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Positions, layers, the whole model
# # 3. 位置、层与完整模型
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# Attention alone is not yet a Transformer. It needs to know the order of the words, a second kind
# of sub-layer, and two tricks without which a deep network hardly learns. You will leave them out
# and measure what breaks, then follow two sentences through the whole model, count its
# parameters by hand, and race it against a recurrent network. About a minute on two CPU cores.
#
# > 光有注意力还不是 Transformer。它还要知道词的顺序，要有另一种子层，
# > 以及两个让深层网络学得动的窍门。我们把这些拿掉试试，量一量什么会坏；
# > 然后跟着两个句子走完整个模型，亲手数一遍参数，最后让它和循环网络比赛。两个 CPU 核大约一分钟。
#
# **You will learn 你将学到**
#
# - why positions are added, and why as sines and cosines 为什么要加位置，为什么用正弦和余弦
# - what residuals and layer normalization are good for 残差和层归一化有什么用
# - the shape of every tensor (array) on the way from ids to logits
#   从编号到 logits，每一步张量（多维数组）的形状
# - where the parameters are 参数都在哪里
# - what self-attention has over an RNN, and what it costs 自注意力比 RNN 强在哪里，代价又是什么
#
# ← [2. Attention by hand 手算注意力](02_attention_by_hand.ipynb) ·
# [4. Training 训练](04_training.ipynb) →

# %% [markdown]
# ## Before we start 准备工作
#
# On Colab, first upload the project folder (or clone it) and name it below; on your own machine
# there is nothing to do here.
#
# > 如果用 Colab，请先把项目文件夹上传（或克隆）上去，并在下面写好文件夹名；
# > 在自己的电脑上不用管这一格。

# %%
import subprocess
import sys

PROJECT = "nmt-project"  # on Colab: the folder that you uploaded or cloned

if "google.colab" in sys.modules:
    requirements = f"{PROJECT}/requirements.txt"
    # Should Colab ask for a restart of the runtime: restart, and run this cell once more.
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    sys.path.insert(0, PROJECT)

# %%
import dataclasses
import logging
import os
import time

# TensorFlow's C++ side greets on standard error, whatever Python is told; not in here.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import tensorflow as tf

tf.zeros([1])  # wakes up the devices, which is announced as well
os.dup2(standard_error, 2)
logging.getLogger("absl").setLevel(logging.ERROR)

import keras
import matplotlib.pyplot as plt
import numpy as np

import nmt

plt.switch_backend(plt.get_backend())  # so that pictures show that pyplot did not make
keras.utils.set_random_seed(1)
print("nmt", nmt.__version__, "| tensorflow", tf.__version__, "| keras", keras.__version__)

# %% [markdown]
# What you may play with: the width of the model, the number of layers in section 4, and the
# sentence lengths of the race in section 8.
#
# > 可以改着玩的：模型宽度、第 4 节的层数，以及第 8 节比赛用的句子长度。

# %% tags=["parameters"] toy={"DEPTH": 12, "LENGTHS": [8, 16, 32]}
D_MODEL = 128  # even, and divisible by 4 heads
DEPTH = 24
LENGTHS = [8, 16, 32, 64, 128, 256, 512, 1024]

# %% [markdown]
# ## 1. Order is invisible 顺序是看不见的
#
# "The dog bites the man" and "the man bites the dog" have the same words. Attention is a weighted
# mean, and a mean does not care about the order of its terms. We shuffle the tokens that are looked
# at, and compare the output (`attention(x, y)`: the tokens of x look at those of y):
#
# > “狗咬人”和“人咬狗”用的是同样的字。注意力是加权平均，而平均与各项的顺序无关。
# > 我们把被看的词元打乱，再比较输出（`attention(x, y)` 表示 x 的词元去看 y 的词元）：

# %%
from nmt.model.attention import MultiHeadAttention
from nmt.model.positions import sinusoidal_positions

attention = MultiHeadAttention(D_MODEL, num_heads=4)
x = tf.random.normal([1, 5, D_MODEL])  # five tokens
shuffled = tf.gather(x, [4, 2, 0, 1, 3], axis=1)
positions = sinusoidal_positions(5, D_MODEL)

blind = np.abs(attention(x, x).output - attention(x, shuffled).output).max()
seeing = np.abs(
    attention(x, x + positions).output - attention(x, shuffled + positions).output
).max()
print(f"largest change by shuffling, without positions: {blind:.6f}")
print(f"                             with positions:    {seeing:.6f}")

# %% [markdown]
# ## 2. Positions 位置
#
# So each vector gets something added that says where it stands: sines and cosines of its position,
# from fast waves (left in the picture) to slow ones (right), like the hands of a clock from seconds
# to hours. *pos* is the position from 0, *d* the width, and *i* counts the pairs (sine, cosine):
#
# > 所以要给每个向量加上一份“我在第几位”的信息：用位置的正弦和余弦，图中左边的波快，右边的波慢，
# > 就像钟表的秒针、分针和时针。*pos* 是位置，从 0 数起；*d* 是维度；*i* 是第几对（正弦，余弦）：
#
# $$PE(pos, 2i) = \sin\frac{pos}{10000^{2i/d}}, \qquad
# PE(pos, 2i+1) = \cos\frac{pos}{10000^{2i/d}}$$

# %%
from nmt.visualize.diagrams import plot_positions


def positions_by_hand(length, d):
    """Return (length, d): the two formulas above."""
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    table = np.empty([length, d])
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


positions = sinusoidal_positions(60, D_MODEL).numpy()  # (positions, d_model)
position_error = np.abs(positions - positions_by_hand(60, D_MODEL)).max()
print(f"largest difference, by hand and nmt: {position_error:.1e}")
plot_positions(60, D_MODEL)

# %% [markdown]
# Left: no two rows are alike, so every position has its own pattern. (The stripes are waves so
# slow that they have hardly begun: sines still near 0, cosines near 1.) Right: how similar two
# positions are, by their dot product, depends only on the distance between them, so the curves of
# different positions lie on top of each other.
#
# > 左图：没有两行是相同的，每个位置都有自己的图案。（竖条纹是极慢的波，在这里才刚起步：
# > 正弦还接近 0，余弦还接近 1。）右图：两个位置有多像（用点积来量），只取决于它们相距多远，
# > 所以不同位置的曲线重合在一起。
#
# The reason: going k positions further **rotates** every pair (sine, cosine) by an angle that
# depends on k only, not on the position. So "three words back" is the same calculation
# everywhere, and a layer can learn it once.
#
# > 原因在于：往后移 k 位，相当于把每一对（正弦，余弦）**旋转**一个角度，这个角度只与 k 有关，
# > 与所在位置无关。于是“往前数第三个词”在句子任何地方都是同一种运算，学会一次就够了。

# %%
k = 7
angle = k / 10000 ** (np.arange(0, D_MODEL, 2) / D_MODEL)  # one for each pair, at all positions
sine, cosine = positions[:, 0::2], positions[:, 1::2]
rotated_sine = sine * np.cos(angle) + cosine * np.sin(angle)
rotated_cosine = cosine * np.cos(angle) - sine * np.sin(angle)
rotation_error = max(
    np.abs(rotated_sine[:-k] - sine[k:]).max(), np.abs(rotated_cosine[:-k] - cosine[k:]).max()
)
print(f"largest difference between rotated PE(pos) and PE(pos + {k}): {rotation_error:.1e}")

# %% [markdown]
# ## 3. Feed-forward 前馈网络
#
# Attention moves information *between* tokens. Then each token thinks about it *alone*: two dense
# layers (matrix product plus bias) with a ReLU between, which replaces negative numbers by 0. The
# inner one is usually four times as wide. The same weights serve all positions.
#
# > 注意力在词元*之间*传递信息，然后每个词元*独自*想一想：两个全连接层（矩阵乘法加偏置），
# > 中间夹一个 ReLU（把负数变成 0），中间的宽度通常是四倍。所有位置共用同一套参数。
#
# $$\text{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2$$

# %%
from nmt.model.layers import DecoderLayer, EncoderLayer, FeedForward, LayerNorm

feed_forward = FeedForward(D_MODEL, 4 * D_MODEL)
whole = feed_forward(x)  # builds the layer
w1, b1, w2, b2 = feed_forward.get_weights()
by_hand = np.maximum(0, x.numpy() @ w1 + b1) @ w2 + b2
ffn_error = np.abs(whole - by_hand).max()
alone_error = np.abs(whole[:, 2:3] - feed_forward(x[:, 2:3])).max()
print(f"largest difference, by hand and nmt:              {ffn_error:.1e}")
print(f"the third token alone, or among the other four:   {alone_error:.1e}")

# %% [markdown]
# ## 4. Residuals: what happens without? 没有残差会怎样？
#
# Attention and feed-forward are the two *sub-layers* of an encoder layer. Every sub-layer *adds*
# its result to what came in: `x + sublayer(x)`. This addition is the *residual connection*, and it
# looks like a detail. We send five tokens through a stack of `DEPTH` untrained layers: as they are
# (`as_it_is`), without the addition (`without_residual`), and without addition and normalization
# (`bare`; what normalization does is told in section 5). At each height we measure
#
# - the **gradient** that arrives there from the top, that is, how much the result at the top moves
#   when a number here changes a little: what a layer has to learn from,
# - how much the five **tokens differ** from each other, in proportion to their size.
#
# > 注意力和前馈网络是编码器层的两个*子层*。每个子层都把结果*加*到输入上：`x + sublayer(x)`，
# > 这个加法叫*残差连接*，看似小事一桩。我们让五个词元穿过 `DEPTH` 个没训练过的层：
# > 照原样（`as_it_is`）、去掉加法（`without_residual`）、连归一化也去掉（`bare`，见下一节）。
# > 在每一层量两样东西：从顶上传下来的**梯度**有多大，也就是这里的数稍稍一变，
# > 顶上的结果会变多少（这一层全靠它来学习）；
# > 以及五个**词元之间的差别**有多大（相对于它们自身的大小）。


# %%
def as_it_is(layer, x):
    """An encoder layer: normalize, sub-layer, add; twice."""
    return layer(x).output


def without_residual(layer, x):
    """The same sub-layers, but nothing is added to what came in."""
    x = layer.self_attention_norm(x)
    x = layer.self_attention(x, x).output
    return layer.feed_forward(layer.feed_forward_norm(x))


def bare(layer, x):
    """Neither residual nor normalization."""
    return layer.feed_forward(layer.self_attention(x, x).output)


layers = [EncoderLayer(D_MODEL, 4, 4 * D_MODEL, dropout_rate=0, norm="pre") for _ in range(DEPTH)]
for layer in layers:
    layer.build()


def climb(step, x):
    """Return the vectors at each height, and the gradients of a random target by them."""
    with tf.GradientTape() as tape:
        heights = [x]
        tape.watch(x)
        for layer in layers:
            heights.append(step(layer, heights[-1]))
        goal = tf.reduce_sum(heights[-1] * tf.random.stateless_normal(x.shape, [1, 2]))
    return heights, tape.gradient(goal, heights)


def size(x):
    """Return the typical size of a number in x."""
    return float(np.sqrt(np.mean(np.square(x))))


def difference(x):
    """Return how much tokens differ from their mean, in proportion to their size."""
    return size(x - np.mean(x, axis=1, keepdims=True)) / size(x)


climbs = {step.__name__: climb(step, x) for step in (as_it_is, without_residual, bare)}
gradient = {name: [size(g) for g in gradients] for name, (_, gradients) in climbs.items()}
differ = {name: [difference(h.numpy()) for h in heights] for name, (heights, _) in climbs.items()}
print("                    gradient at the bottom   tokens differ at the top")
for name in climbs:
    print(f"{name:16} {gradient[name][0]:20.1e} {differ[name][-1]:24.1e}")

# %%
from nmt.visualize.fonts import font_for


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font)


styles = {"as_it_is": "-", "without_residual": "--", "bare": ":"}
names = {"as_it_is": "照原样", "without_residual": "去掉加法", "bare": "连归一化也去掉"}
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for name, style in styles.items():
    left.plot(gradient[name], style, label=f"{name} {names[name]}")
    right.plot(differ[name], style, label=f"{name} {names[name]}")
for axis in (left, right):
    axis.set_yscale("log")
    axis.legend(prop=font_for(names.values()))
caption(left, "Gradient from the top 从顶上传来的梯度", "layer 层", "size 大小")
caption(right, "Do the tokens differ? 词元之间的差别", "layer 层", "difference 差别")

# %% [markdown]
# Bare layers lose the gradient: each one shrinks it, and next to nothing arrives at the bottom.
# Normalizing saves the gradient but not the meaning: attention averages, and after a few averages
# **all tokens are the same vector** (10⁻⁷ is the rounding of float32); whatever the sentence said
# is gone. The residual carries the tokens past every sub-layer, so they stay themselves, and gives
# the gradient a straight way down.
#
# > 什么都没有时，每一层都让梯度变小，到底层几乎什么也不剩。归一化救得了梯度，却救不了内容：
# > 注意力是在做平均，平均几次之后，**所有词元都成了同一个向量**（10⁻⁷ 已是 float32 的舍入误差），
# > 句子说了什么已无从知晓。
# > 有了残差，词元可以绕过每个子层往上走，保持自己的本色；梯度也有了一条直通底层的路。

# %% [markdown]
# ## 5. Layer norm or batch norm? 层归一化还是批归一化？
#
# Both subtract a mean and divide by a standard deviation, so that numbers keep a handy size from
# layer to layer. The question is: of *which* numbers?
# Layer norm takes the numbers of **one token**. Batch norm takes one number of **all tokens of the
# batch**. Then a sentence depends on its neighbours, and on how much padding the longest of them
# brings in. We put the same sentence into different batches:
#
# > 两者都是减去均值、再除以标准差，好让数值逐层传下去时大小适中。问题是：用*哪些*数来算？
# > 层归一化取**一个词元**的所有数；批归一化取**整批所有词元**的同一个数。
# > 于是一个句子的结果会受邻句影响，也会受最长的句子带来的填充影响。
# > 我们把同一个句子放进不同的批次：

# %%
sentence, neighbours = tf.random.normal([1, 5, 8]), tf.random.normal([3, 5, 8])
batches = {
    "other neighbours": tf.concat([sentence, 2 * neighbours + 1], axis=0),
    "more padding": tf.pad(tf.concat([sentence, neighbours], axis=0), [[0, 0], [0, 10], [0, 0]]),
}
layer_norm, batch_norm = LayerNorm(), keras.layers.BatchNormalization()
norms = {"layer norm": layer_norm, "batch norm": lambda x: batch_norm(x, training=True)}
norm_change = {}
for name, normalize in norms.items():
    usual = normalize(tf.concat([sentence, neighbours], axis=0))[0]
    for change, batch in batches.items():
        norm_change[name, change] = np.abs(normalize(batch)[0, :5] - usual).max()
        print(f"{name}, {change:17} the sentence changes by {norm_change[name, change]:.3f}")

# %% [markdown]
# With batch norm a translation would depend on what else happens to be translated, and training
# (statistics of the batch) would differ from use (averages remembered from training). Layer norm
# knows nothing of the batch. By hand, for one token (a learned scale and shift follow, which are 1
# and 0 at first, and 1e-6 guards against division by 0):
#
# > 用批归一化，译文会取决于同一批里碰巧还有什么句子，而且训练时（用本批统计）和使用时
# > （用训练时记下的滑动平均）也不一样。层归一化根本不知道有“批”这回事。对一个词元手算一遍
# > （之后还要乘上、加上学出来的缩放和平移，一开始是 1 和 0；1e-6 是为了避免除以 0）：

# %%
token = sentence[0, 0].numpy()
by_hand = (token - token.mean()) / np.sqrt(token.var() + 1e-6)
norm_error = np.abs(layer_norm(sentence)[0, 0] - by_hand).max()
print(f"mean {by_hand.mean():.2f}, standard deviation {by_hand.std():.2f}")
print(f"largest difference, by hand and nmt: {norm_error:.1e}")

# %% [markdown]
# ## 6. The two layers 两种层
#
# Now we have all the parts. An **encoder layer** is self-attention, then feed-forward. A **decoder
# layer** has *cross-attention* in between: the queries come from the translation, keys and values
# from the source as the encoder has read it (the *memory*). As shapes in and out are equal, layers
# can be stacked as high as you like.
#
# > 零件齐了。**编码器层** = 自注意力 + 前馈网络；**解码器层**中间多一个*交叉注意力*：
# > 查询来自译文，键和值来自编码器读过的原文（叫作 *memory*，记忆）。
# > 输入和输出形状相同，所以想叠多少层都可以。
#
# **Pre-norm or post-norm?** The paper (Vaswani et al. 2017, *Attention Is All You Need*)
# normalizes after adding (post): `norm(x + sublayer(x))`. Today most normalize what the sub-layer
# reads (pre): `x + sublayer(norm(x))`; the straight way stays free from bottom to top, and
# training is less sensitive to the warm-up (notebook 4; Xiong et al. 2020). `nmt` can do both.
# Here is pre-norm by hand, with B sentences, S tokens of source and T of translation:
#
# > **先归一化还是后归一化？** 论文（Vaswani 等，2017，*Attention Is All You Need*）
# > 里是加完再归一化（post-norm）：`norm(x + sublayer(x))`。
# > 如今多半是对子层读入的东西做归一化（pre-norm）：`x + sublayer(norm(x))`，
# > 从下到上的直路畅通无阻，训练对预热（第 4 课）也不那么敏感（Xiong 等，2020）。`nmt` 两种都支持。
# > 下面手写 pre-norm，B 是句子数，S、T 是原文和译文的词元数：

# %%
from nmt.model.masks import look_ahead_mask

memory = tf.random.normal([1, 7, D_MODEL])  # a source of seven tokens
encoder = EncoderLayer(D_MODEL, 4, 4 * D_MODEL, dropout_rate=0, norm="pre")
decoder = DecoderLayer(D_MODEL, 4, 4 * D_MODEL, dropout_rate=0, norm="pre")
encoder.build()
decoder.build()


def encoder_by_hand(layer, x):
    """Return the output of an encoder layer, as three lines."""
    read = layer.self_attention_norm(x)
    x = x + layer.self_attention(read, read).output
    return x + layer.feed_forward(layer.feed_forward_norm(x))


def decoder_by_hand(layer, x, memory):
    """Return the output of a decoder layer."""
    read = layer.self_attention_norm(x)
    x = x + layer.self_attention(read, read, look_ahead_mask(5, 5)).output
    x = x + layer.cross_attention(layer.cross_attention_norm(x), memory).output
    return x + layer.feed_forward(layer.feed_forward_norm(x))


projected = decoder.cross_attention.project(memory)  # keys and values, once for all positions
decoded = decoder(x, projected, self_may_attend=look_ahead_mask(5, 5))
encoder_error = np.abs(encoder(x).output - encoder_by_hand(encoder, x)).max()
decoder_error = np.abs(decoded.output - decoder_by_hand(decoder, x, memory)).max()
print(f"largest difference, by hand and nmt, encoder: {encoder_error:.1e}")
print(f"                                     decoder: {decoder_error:.1e}")
print("self-attention weights  (B, heads, T, T)", decoded.self_weights.shape)
print("cross-attention weights (B, heads, T, S)", decoded.cross_weights.shape)

# %% [markdown]
# ## 7. The whole model 完整的模型
#
# ```text
#  source ids                          target ids so far
#      │ embedding × √d + positions        │ embedding × √d + positions
#      ▼                                   ▼
#  encoder layer  × N                  decoder layer  × N
#    self-attention                      self-attention, look-ahead mask
#    feed-forward                        cross-attention  ◄── keys and values of the source
#      │                                 feed-forward
#      └── memory ─────────────────────►   │ project: one logit for each subword
#                                          ▼
#                                      which token comes next?
# ```
#
# The **encoder** reads the source, once. The **decoder** reads the translation so far and looks at
# the source. An *embedding* is a table with a learned vector for each subword; times √d, its
# numbers have the size of those of the positions. A *logit* is the score of one subword as the
# next token. Take two pairs and follow the shapes: B = 2 sentences, S and T tokens, M = d_model, V
# subwords.
#
# > **编码器**把原文读一遍；**解码器**读已经写出的译文，同时看原文。
# > *嵌入*（embedding）是一张表，每个子词占一行，是学出来的向量；乘以 √d，数值就和位置编码大小相当。
# > *logit* 是某个子词作为下一个词元的得分。取两个句对，注意看形状：
# > B = 2 个句子，S、T 是词元数，M 是 d_model，V 是词表大小。

# %%
from nmt.config import DataConfig, preset
from nmt.data.batches import make_batch
from nmt.data.corpora import load_corpus
from nmt.data.prepared import encode_pairs
from nmt.data.splitting import SentencePair
from nmt.model.transformer import build_transformer
from nmt.text.tokenizer import train_tokenizer

corpus = load_corpus(DataConfig(corpus="hsk")).splits  # small, and comes with a package
source_tokenizer = train_tokenizer([pair.source for pair in corpus.train], 2000, spaced=True)
target_tokenizer = train_tokenizer([pair.target for pair in corpus.train], 3000, spaced=False)
pairs = [
    SentencePair("I like cats.", "我喜欢猫。"),
    SentencePair("Where is the train station?", "请问，火车站在哪里呢？"),
]
encoded_pairs = encode_pairs(pairs, source_tokenizer, target_tokenizer)
batch = make_batch(encoded_pairs.source.split(), encoded_pairs.target.split())
for name, tokenizer, ids in zip(
    ("source_ids", "target_in_ids"), (source_tokenizer, target_tokenizer), batch, strict=False
):
    print(name)
    for row in ids:
        print("   ", *tokenizer.pieces(row))

# %% [markdown]
# `target_in_ids` is what the decoder reads: each translation begins with `<s>`, so that every word
# is moved one place to the right, and at place t the decoder predicts the word at place t + 1. The
# last place is not needed as input, which is why the longest row lacks its `</s>`.
#
# > `target_in_ids` 是解码器读到的内容：译文前面加了 `<s>`，所以每个词都往右挪了一位，
# > 解码器在第 t 位预测第 t + 1 位的词。最后一位不必读入，所以最长的那一行没有 `</s>`。

# %%
config = dataclasses.replace(
    preset("quickstart").model,
    d_model=D_MODEL,
    dff=4 * D_MODEL,
    source_vocab_size=source_tokenizer.vocab_size,
    target_vocab_size=target_tokenizer.vocab_size,
)
model = build_transformer(config, seed=1)

encoded = model.encode(batch.source_ids)
memory = model.project_memory(encoded)
decoded = model.decode(batch.target_in_ids, memory, encoded.may_attend)
logits = model.project(decoded.hidden)

for step, meaning, tensor in (
    ("source_ids", "(B, S)", batch.source_ids),
    ("embedding", "(B, S, M)", model.source_embedding(batch.source_ids)),
    ("encode → memory", "(B, S, M)", encoded.memory),
    ("encode → may_attend", "(B, 1, 1, S)", encoded.may_attend),
    ("encode → weights of layer 1", "(B, heads, S, S)", encoded.weights[0]),
    ("project_memory → keys of layer 1", "(B, heads, S, M/heads)", memory[0].keys),
    ("target_in_ids", "(B, T)", batch.target_in_ids),
    ("decode → hidden", "(B, T, M)", decoded.hidden),
    ("decode → self_weights of layer 1", "(B, heads, T, T)", decoded.self_weights[0]),
    ("decode → cross_weights of layer 1", "(B, heads, T, S)", decoded.cross_weights[0]),
    ("project → logits", "(B, T, V)", logits),
):
    print(f"{step:34} {meaning:23} {tuple(tensor.shape)}")

# %% [markdown]
# `encode` and `project_memory` run once for a sentence, `decode` and `project` once for each new
# token. That is why they are separate. Target embedding and output projection share one table:
# the vector that *means* 猫 on the way in is also what the output is compared with. And as a whole
# it is an ordinary Keras model, `model((source_ids, target_in_ids))`.
#
# > 每个句子只需运行一次 `encode` 和 `project_memory`，
# > 而每写一个新词元都要运行一次 `decode` 和 `project`，所以要分开。
# > 译文的嵌入和输出投影共用同一张表：输入时代表“猫”的那个向量，
# > 输出时也用来判断下一个词是不是“猫”。整体上它就是一个普通的 Keras 模型，
# > 可以直接调用 `model((source_ids, target_in_ids))`。
#
# **Where are the parameters?** Count them: a dense layer from *a* to *b* numbers has a·b weights
# and b biases; a norm has a scale and a shift for each number; an embedding has a row for each
# subword.
#
# > **参数都在哪里？** 来数一数：从 *a* 维到 *b* 维的全连接层有 a·b 个权重和 b 个偏置；
# > 归一化对每个数有一个缩放、一个平移；嵌入表里每个子词占一行。


# %%
def count(c):
    """Return the number of parameters by part, of a model with tied embeddings."""
    m, f, n = c.d_model, c.dff, c.num_layers
    attention = 4 * (m * m + m)  # query, key, value, output
    feed_forward = (m * f + f) + (f * m + m)
    norms = 2 + 3  # in an encoder layer, and in a decoder layer
    return {
        "embeddings": (c.source_vocab_size + c.target_vocab_size) * m,
        "attention": n * 3 * attention,  # one in an encoder layer, two in a decoder layer
        "feed-forward": n * 2 * feed_forward,
        "norms": (n * norms + 2 * (c.norm == "pre")) * 2 * m,  # pre: one at the end of each stack
    }


counted = count(config)
for part, number in counted.items():
    print(f"{part:14} {number:10,}  {number / sum(counted.values()):6.1%}")
print(f"{'by hand':14} {sum(counted.values()):10,}")
print(f"{'Keras':14} {model.count_params():10,}")

# %% [markdown]
# ## 8. Why not an RNN? 为什么不用 RNN？
#
# Before 2017 sentences were read by recurrent networks such as the GRU, word by word, with one
# memory that is updated at each word; attention was added so that they could look back (Bahdanau et
# al. 2015). The Transformer threw the recurrence out. Two things are gained, and one is paid:
#
# | for n tokens of width d | GRU | self-attention |
# |---|---|---|
# | steps that must wait for each other 必须先后进行的步数 | n | 1 |
# | way between two distant words 远处两词之间的路程 | up to n | 1 |
# | multiplications 乘法次数 | about n·d² | about n·d² + n²·d |
#
# > 2017 年以前，句子由 GRU 之类的循环网络来读：一个词一个词地读，每读一个就更新一次记忆；
# > 后来加上了注意力，好让它能回头看（Bahdanau 等，2015）。Transformer 干脆去掉了循环。
# > 得到的好处有两样，代价有一样，见上表。
#
# We measure it: a GRU with dot-product attention against one encoder layer with about as many
# parameters, the time of a forward pass (the result) and a backward pass (its gradients) over four
# sentences of n tokens.
#
# > 来量一量：带点积注意力的 GRU，对参数量差不多的一个编码器层，
# > 各处理四个长度为 n 的句子，测量前向（算结果）加反向（求梯度）的时间。

# %%
from nmt.model.attention import scaled_dot_product_attention


class Recurrent(keras.layers.Layer):
    """A GRU, and dot-product attention from each of its states to all of them."""

    def build(self, shape):
        self.gru = keras.layers.GRU(D_MODEL, return_sequences=True)
        self.mix = keras.layers.Dense(D_MODEL)
        self.gru.build(shape)
        self.mix.build((None, None, 2 * D_MODEL))

    def call(self, x):
        states = self.gru(x)  # (B, n, M), one after the other
        with_heads = states[:, None]  # one head
        looked_at = scaled_dot_product_attention(with_heads, with_heads, with_heads).output[:, 0]
        return self.mix(tf.concat([states, looked_at], axis=-1))


recurrent = Recurrent()
encoder = EncoderLayer(D_MODEL, 4, 2 * D_MODEL, dropout_rate=0, norm="pre")
runners = {"GRU + attention": recurrent, "self-attention": lambda x: encoder(x).output}
for name, layer in (("GRU + attention", recurrent), ("self-attention", encoder)):
    layer(tf.zeros([1, 4, D_MODEL]))
    print(f"{name:16} {layer.count_params():,} parameters")


def timer(run, weights):
    """Return a function that measures one pass, forward and backward, in seconds."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, D_MODEL])])
    def both_ways(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(x) ** 2)
        return tape.gradient(loss, weights)

    def measure(x):
        started = time.perf_counter()
        both_ways(x)
        return time.perf_counter() - started

    return measure


timers = {
    "GRU + attention": timer(runners["GRU + attention"], recurrent.trainable_variables),
    "self-attention": timer(runners["self-attention"], encoder.trainable_variables),
}
seconds = {name: [] for name in timers}
for n in LENGTHS:
    sentences = tf.random.normal([4, n, D_MODEL])
    for name, measure in timers.items():
        measure(sentences)  # the first time a graph or a shape is new
        repeats = max(2, 600 // n)  # the best of several: other programs disturb
        seconds[name].append(min(measure(sentences) for _ in range(repeats)))
print("\n    n   GRU + attention   self-attention   GRU takes")
for n, slow, fast in zip(LENGTHS, *seconds.values(), strict=True):
    print(f"{n:5} {1000 * slow:14.1f} ms {1000 * fast:13.1f} ms {slow / fast:9.1f} times as long")

# %% [markdown]
# The second gain is the short way. How much does the *last* output still notice of the *first*
# word? We take the gradient of the one by the other: for the GRU without its attention, with it,
# and for self-attention (all untrained).
#
# > 第二个好处是路短。*最后*一个输出还能感觉到*第一个*词多少？用前者对后者求梯度来量：
# > 没有注意力的 GRU、有注意力的 GRU，以及自注意力（都没训练过）。


# %%
def notice(run, n):
    """Return the size of the gradient of the last output by the first input."""
    x = tf.random.stateless_normal([16, n, D_MODEL], [n, 1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        goal = tf.reduce_sum(run(x)[:, -1] * tf.random.stateless_normal([16, D_MODEL], [n, 2]))
    return size(tape.gradient(goal, x)[:, 0])


watched = {"GRU alone": recurrent.gru, **runners}
distances = [2, 4, 8, 16, 32]
noticed = {name: [notice(run, n) for n in distances] for name, run in watched.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
styles = {"GRU alone": "C2v:", "GRU + attention": "C0o-", "self-attention": "C1s--"}
for name in seconds:
    left.plot(LENGTHS, 1000 * np.array(seconds[name]), styles[name], label=name)
for name in noticed:
    right.plot(distances, noticed[name], styles[name], label=name)
for axis, ticks in ((left, LENGTHS), (right, distances)):
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(ticks, ticks)
    axis.legend()
caption(left, "Time forward and backward 前向加反向的时间", "tokens 词元数 n", "milliseconds 毫秒")
caption(right, "Last output by first word 末尾输出对首词的梯度", "tokens 词元数 n", "gradient 梯度")

# %% [markdown]
# **Left.** For sentences of the usual length self-attention was clearly faster here, although a
# CPU with few cores can make little use of its one step; a GPU, which works on all tokens at once,
# makes more of it. But look at the right end: the term n² begins to tell. When n doubles, n·d²
# doubles and n²·d becomes four times as much. Our GRU has attention as well, but one head, so one
# table of n × n weights instead of four; and a GRU alone has none, so for texts that are long
# enough it would win. (Part of the GRU's time is the overhead of TensorFlow's loop, not
# arithmetic. Your times will differ from these, and jump about when other programs are running.)
#
# > **左图。** 句子不长不短时，这里测得自注意力明显更快，
# > 尽管核数不多的 CPU 其实不太用得上“一步到位”的好处；GPU 能同时处理所有词元，更能发挥这一点。
# > 但请看右端：n² 那一项开始起作用。n 翻一倍，n·d² 变成两倍，n²·d 变成四倍。
# > 我们的 GRU 也带注意力，不过只有一个头，只要一张 n × n 的权重表，而不是四张；
# > 不带注意力的 GRU 一张也没有，所以文本足够长时，反而是它快。
# > （GRU 的时间里有一部分是 TensorFlow 循环本身的开销，不全是运算。你测到的时间会和这里不同，
# > 别的程序也在跑时还会忽高忽低。）
#
# **Right.** In a GRU alone the first word fades with every step. Attention gives even the GRU a
# direct way back, which is what it was invented for; self-attention has nothing but direct ways.
# Their curves fall mainly because the first word is one among n. (Training can teach a GRU to hold
# on to things for longer; but it has to be learned, and what is far stays hard.)
#
# > **右图。** 只有 GRU 时，第一个词每走一步就淡一分。加上注意力，GRU 也有了直达的路，
# > 注意力当初正是为此发明的；自注意力则全是直达的路。它们的曲线会下降，
# > 主要是因为第一个词不过是 n 个词里的一个。（训练可以让 GRU 记得更久，但这得靠学，
# > 离得远的东西总归难学。）

# %% [markdown]
# ## Checks 检查
#
# The claims of this notebook, as tests. None of them depends on how fast your machine is.
#
# > 把这一课说过的话写成测试。没有一条取决于你的机器有多快。

# %%
# Attention does not see the order; with positions it does.
assert blind < 1e-5 < 1e-2 < seeing

# What was calculated by hand is what nmt calculates.
assert max(position_error, rotation_error) < 1e-4
assert max(ffn_error, alone_error, norm_error, encoder_error, decoder_error) < 1e-4
assert sum(counted.values()) == model.count_params()

# Without residuals tokens become the same; bare layers lose the gradient as well.
assert differ["as_it_is"][-1] > 0.1
assert max(differ["without_residual"][-1], differ["bare"][-1]) < 1e-3
assert gradient["bare"][0] < gradient["as_it_is"][0] / 100

# Layer norm does not depend on the batch, batch norm does.
assert max(norm_change["layer norm", change] for change in batches) < 1e-5
assert min(norm_change["batch norm", change] for change in batches) > 1e-2

# The whole model gives what its parts gave, and the first sentence does not feel its padding.
np.testing.assert_allclose(model((batch.source_ids, batch.target_in_ids)), logits, atol=1e-4)
alone = make_batch(encoded_pairs.source.split()[:1], encoded_pairs.target.split()[:1])
length = alone.target_in_ids.shape[1]
single = model((alone.source_ids, alone.target_in_ids))
np.testing.assert_allclose(single[0], logits[0, :length], atol=1e-3)

# In a GRU alone the first word fades faster than with attention.
assert noticed["GRU alone"][-1] < noticed["GRU + attention"][-1]
print("all checks passed 检查全部通过")

# %% [markdown]
# ## Exercises 练习
#
# **1. The paper's models.** `preset("base")` and `preset("big")` have the sizes of the paper. How
# many parameters do they have, and which part has most of them? (Nothing has to be built: use
# `count`.)
#
# > **1. 论文里的模型。** `preset("base")` 和 `preset("big")` 就是论文里的尺寸。
# > 它们各有多少参数？哪一部分最多？（不用真的建模型，用 `count` 就行。）
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# for name in ("quickstart", "base", "big"):
#     parts = count(preset(name).model)
#     total = sum(parts.values())
#     shares = ", ".join(f"{part} {number / total:.0%}" for part, number in parts.items())
#     print(f"{name:11} {total / 1e6:6.1f} million: {shares}")
# ```
#
# In `base` the embeddings have most of them, in `big` the feed-forward layers. The paper writes 65
# and 213 million: it has one vocabulary for both languages, so one table
# instead of our two. With the same vocabulary, the wider and deeper the model, the smaller the
# share of the embeddings: a table grows with the width, a layer with its square.
#
# > `base` 里嵌入最多，`big` 里前馈网络最多。论文写的是 6500 万和 2.13 亿：它两种语言共用一张词表，
# > 所以只有一张嵌入表，而我们有两张。词表不变的话，模型越宽越深，嵌入所占的比例越小：
# > 嵌入表随宽度增长，而一层的参数随宽度的平方增长。
#
# </details>

# %% [markdown]
# **2. Residuals without normalization.** Section 4 left one case out: add, but do not normalize.
# Write it as a function like `bare`, climb once more, and look at the *size* of the vectors at each
# height. What is normalization good for?
#
# > **2. 有残差、没归一化。** 第 4 节漏了一种情形：做加法，但不归一化。仿照 `bare` 写一个函数，
# > 再爬一次，看看每一层向量的*大小*。归一化有什么用？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# def only_residual(layer, x):
#     x = x + layer.self_attention(x, x).output
#     return x + layer.feed_forward(x)
#
#
# for step in (as_it_is, only_residual):
#     heights, gradients = climb(step, x)
#     sizes = "  ".join(f"{size(h):.1e}" for h in heights[::4])
#     print(f"{step.__name__:14} size at every fourth layer {sizes}")
# ```
#
# Each layer adds something in proportion to what it reads, so without normalization the numbers
# grow like compound interest. With it each layer reads vectors of the same size and adds about the
# same amount.
#
# > 每一层加上去的量与读入的成正比，所以不归一化的话，数值就像利滚利一样增长。
# > 有了归一化，每层读入的向量大小相同，加上去的量也差不多。
#
# </details>
