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
# # A Transformer that translates English into Chinese, step by step
# # 一步一步看懂英译中 Transformer
#
# You will build up the model of *Attention Is All You Need* (Vaswani et al. 2017) piece by piece,
# train it for one minute, watch it write a translation token by token, and see where it looked.
# You need some Python and NumPy; nothing about Transformers is taken for granted. The whole
# notebook takes about two minutes on two CPU cores. No GPU is needed.
#
# > 我们把论文 *Attention Is All You Need*（Vaswani 等，2017）里的模型拆开来，一块一块地看明白；
# > 然后训练一分钟，看它怎样一个词元一个词元地写出译文，又在写的时候“看”了原文的哪里。
# > 只要会一点 Python 和 NumPy 就够了，不需要事先了解 Transformer，也不需要 GPU；
# > 全部跑完大约两分钟（两个 CPU 核）。
#
# Every step calls the package `nmt`, the same code that the command line uses. When a step makes
# you curious, open the module that is imported there: each is short and meant to be read.
#
# > 每一步调用的都是 `nmt` 包里的代码，和命令行用的是同一套。哪一步让你好奇，
# > 就打开对应的模块读一读：每个模块都很短，写出来就是给人读的。
#
# | | | |
# |---|---|---|
# | 1 Sentence pairs 句对 | 5 Attention 注意力 | 9 Token by token 逐个词元地翻译 |
# | 2 Subwords 子词 | 6 The whole model 完整的模型 | 10 BLEU |
# | 3 Positions 位置 | 7 The loss 损失 | 11 The heatmap 热力图 |
# | 4 Masks 掩码 | 8 Training 训练 | Checks and exercises 检查与练习 |

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

# %% [markdown]
# These are the settings to play with. `"tatoeba"` has 55,000 training pairs, `"hsk"` only 3,600.
# Whatever you change, run the notebook again from the top.
#
# > 下面几个值可以随意改。`"tatoeba"` 有五万五千个训练句对，`"hsk"` 只有三千六百个。
# > 改完请从头重新运行。

# %% tags=["parameters"]
CORPUS = "tatoeba"
MINUTES = 1.0
TEST_SENTENCES = 200
SENTENCE = "Where do you live?"

# %%
import contextlib
import io
import json
import logging
import os
import random
import tempfile
import unicodedata
from pathlib import Path

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
import tensorflow_datasets as tfds

import nmt
import nmt.data.builders  # makes the packaged corpora known to tfds

keras.utils.set_random_seed(1)
print("nmt", nmt.__version__, "| tensorflow", tf.__version__, "| keras", keras.__version__)

# %% [markdown]
# ## 1. Sentence pairs
# ## 1. 句对
#
# All that the model will ever know comes from pairs of sentences that mean the same. Nobody tells
# it a rule of grammar, nor which word belongs to which. Ours come from
# [Tatoeba](https://tatoeba.org) (CC-BY 2.0 FR), short sentences written by volunteers.
#
# > 模型知道的一切，都来自一对一对意思相同的句子。没有人教它语法，也没有人告诉它哪个词对应哪个词。
# > 这里的句子来自 [Tatoeba](https://tatoeba.org)（CC-BY 2.0 FR），是志愿者写的短句。
#
# There are three parts: **train** is learned from, **validation** is watched during the learning,
# **test** is used once, at the end.
#
# > 句对分成三份：**train** 用来学习，**validation** 用来在学习过程中观察，
# > **test** 只在最后用一次。

# %%
from nmt.data.corpora import PACKAGED

tfds.disable_progress_bar()
with contextlib.redirect_stdout(io.StringIO()):  # the first time, TFDS tells where it writes
    corpus = tfds.load(PACKAGED[CORPUS])
for split in ("train", "validation", "test"):
    print(f"{split:10} {len(corpus[split]):6,} pairs")
for pair in tfds.as_numpy(corpus["train"].take(6)):
    print(f"\n{pair['en'].decode()}\n{pair['zh'].decode()}")

# %% [markdown]
# ### Simplified and Traditional 简体与繁体
#
# The volunteers write in both scripts. To a model, 给 and 給 are two characters that have nothing
# to do with each other: it would have to learn everything twice. So the Chinese side is converted
# to one script, here Simplified, and so are the sentences that the model is judged by.
#
# > 志愿者有的写简体，有的写繁体。在模型眼里，“给”和“給”是两个毫无关系的字，什么都得学两遍。
# > 所以中文一侧统一转换成一种写法（这里用简体），用来评分的参考译文也一样。

# %%
from nmt.data.splitting import SentencePair, overlap, split_pairs
from nmt.text.script import convert

some = next(iter(tfds.as_numpy(corpus["train"].batch(20_000))))
pairs = [
    SentencePair(english.decode(), chinese.decode())
    for english, chinese in zip(some["en"], some["zh"], strict=True)
]
changed = sum(convert(pair.target, "simplified") != pair.target for pair in pairs)
print(f"{changed:,} of {len(pairs):,} sentences change when converted to Simplified, for example")
for text in ("明天我給你打電話。", "頭髮長了，該理髮了。"):
    print(f"{text} → {convert(text, 'simplified')}")

# %% [markdown]
# ### Why the test set must not leak 为什么测试集不能泄漏
#
# The test answers one question: what does the model do with sentences it has *not* seen? A model
# with a good memory would pass a test made of training sentences without being able to translate.
# And a random split leaks more than one would think, because many sentences have several
# translations: the pair is new, but one half of it is not.
#
# > 测试只回答一个问题：遇到*没见过*的句子，模型翻译得怎么样？如果测试句在训练时出现过，
# > 那么死记硬背也能得高分。随机划分的泄漏比想象中严重，因为很多句子有好几种译法：句对是新的，
# > 其中一半却早就见过了。
#
# Here we count the test pairs whose English or Chinese side also stands in the training part, for
# a random split and for the one that `nmt` makes, which holds out only pairs that stand alone.
#
# > 下面数一数：测试句对里，有多少对的英文或中文在训练部分也出现过。先看随机划分，
# > 再看 `nmt` 的划分，后者只把“独一无二”的句对留作测试。

# %%
shuffled = random.Random(1).sample(pairs, len(pairs))
careful = split_pairs(pairs, validation=0.0, test=0.3)
size = len(careful.test)
print(f"random split: {overlap(shuffled[:size], shuffled[size:]):5,} of {size:,} test pairs leak")
print(f"split by nmt: {overlap(careful.test, careful.train):5,} of {size:,} test pairs leak")

# %% [markdown]
# ## 2. Subwords
# ## 2. 子词
#
# A network calculates with numbers, so text has to be cut into pieces from a fixed list, the
# *vocabulary*, and each piece gets a number, its *id*. Whole words make an endless list (*play,
# plays, played, player ...*), and Chinese does not even put spaces between them. Single letters
# make a short list but very long sentences. **Subwords** lie between: frequent words stay whole,
# rare ones are put together from parts. Which pieces pay off is learned from the training text
# (SentencePiece), for each language by itself.
#
# > 网络只会算数，所以要先把文本切成一段一段，每一段都来自一张固定的表，即*词表*，
# > 并对应一个编号（*id*）。以整词为单位，词表永远列不完，何况中文词与词之间没有空格；
# > 以单个字母为单位，句子又会变得太长。**子词**介于两者之间：常见词保持完整，罕见词由几段拼成。
# > 哪些片段划算，由训练文本统计得出（SentencePiece），两种语言各学各的。

# %%
from nmt.text.tokenizer import BOS, EOS, PAD, train_tokenizer

sentences = [pair.source for pair in pairs[:5000]]
for size in (400, 700, 2500):
    tokenizer = train_tokenizer(sentences, size, spaced=True)
    [ids] = tokenizer.encode(["The teacher was reading."])
    print(f"{size:5,} subwords:", *tokenizer.pieces(ids))

# %% [markdown]
# The mark `▁` (U+2581) stands for a space: thanks to it, joining the pieces gives back the text
# exactly. With a larger vocabulary the pieces grow and the sentence gets shorter.
#
# > 符号 `▁`（U+2581）代表空格：有了它，把各段拼起来就能一字不差地还原文本。词表越大，片段越长，
# > 句子就越短。
#
# `prepare` does steps 1 and 2 for real and writes the result into a *run folder*: clean, convert
# the script, learn both vocabularies from the training part only, turn sentences into ids. A
# minute is short, so what we order is a *small* model: two layers, short sentences, small batches
# that allow many updates, and no dropout, because there is no time to overfit.
#
# > `prepare` 正式完成第 1、2 步，并把结果写进一个*运行文件夹*：清理文本、统一简繁、
# > 只用训练部分学出两张词表、把句子变成编号。一分钟很短，所以我们要的是一个*小*模型：两层、短句、
# > 小批次（这样更新次数多），而且不用 dropout，因为根本来不及过拟合。

# %%
from nmt.config import override, preset
from nmt.data.prepared import prepare
from nmt.run_folder import RunFolder

folder = tempfile.TemporaryDirectory()  # goes away with the notebook's kernel
run = RunFolder(Path(folder.name) / "one-minute")
settings = f"""
    data.corpus={CORPUS}              data.max_tokens=24
    model.num_layers=2                model.d_model=128               model.num_heads=4
    model.dff=512                     model.dropout_rate=0.0
    model.source_vocab_size=3000      model.target_vocab_size=4000
    training.max_minutes={MINUTES}    training.batch_tokens=768
    training.warmup_steps=200         training.peak_learning_rate=0.003
    training.checkpoint_minutes=10.0  training.weight_average=0.0
""".split()
config = override(preset("quickstart"), settings)

dropped = prepare(run, config, {"command": "notebooks/transformer_en_zh"})
source_tokenizer, target_tokenizer = run.tokenizers()
print(f"English: {source_tokenizer.vocab_size:,} subwords", end=", ")
print(f"Chinese: {target_tokenizer.vocab_size:,} subwords")
print("pairs left out:", ", ".join(f"{n:,} {reason}" for reason, n in dropped.items()) or "none")

# %%
for tokenizer, text in (
    (source_tokenizer, "I don't know where the library is."),
    (target_tokenizer, "我不知道图书馆在哪里。"),
):
    [ids] = tokenizer.encode([text])
    for subword, number in zip(tokenizer.pieces(ids), ids, strict=True):
        print(f"{subword} {number}", end="   ")
    print("\n")

# %% [markdown]
# ### Nothing may get lost 什么都不能丢
#
# Two things often go wrong with Chinese. First, many tokenizers "normalize" text beforehand
# (NFKC) and turn full-width punctuation into ASCII for good: the model could never write `，`
# again. Ours keeps every character.
#
# > 中文最容易在两处出错。其一，很多分词器会先做“规范化”（NFKC），把全角标点变成 ASCII，
# > 而且再也变不回来：模型从此写不出“，”。我们的分词器一个字符都不改。

# %%
text = "他说：“你好，世界！”……（真的吗？）"
[ids] = target_tokenizer.encode([text])
print("original            ", text)
print("encoded and decoded ", target_tokenizer.decode(ids))
print("NFKC                ", unicodedata.normalize("NFKC", text))

# %% [markdown]
# Second, a character that the vocabulary lacks is often replaced by `<unk>`, "unknown", and is
# lost. Ours spells it in its UTF-8 bytes instead. That takes more pieces, but it comes back.
#
# > 其二，词表里没有的字常被换成 `<unk>`（“未知”），就此丢失。我们的做法是把它拆成 UTF-8 字节：
# > 虽然占的位置多些，但能原样还原。

# %%
for text in ("𠮷", "🐼"):
    [ids] = target_tokenizer.encode([text])
    print(text, "→", *target_tokenizer.pieces(ids), "→", target_tokenizer.decode(ids))

# %% [markdown]
# Three ids are never text. `PAD` fills short sentences up to the length of the longest in the
# batch, `BOS` (beginning of sentence) starts the translation, `EOS` (end of sentence) ends it.
#
# > 有三个编号不代表任何文字：`PAD` 把短句补到和同一批里最长的句子一样长，`BOS` 表示译文开始，
# > `EOS` 表示句子结束。

# %%
print(f"PAD = {PAD}, BOS = {BOS}, EOS = {EOS}")

# %% [markdown]
# ## 3. Positions
# ## 3. 位置
#
# Attention, which comes in section 5, looks at all tokens at once. By itself it could not tell
# "the dog bites the man" from "the man bites the dog". So each vector gets something added that
# says where it stands: sines and cosines of its position, from fast waves (left) to slow ones
# (right), like the hands of a clock from seconds to hours.
#
# > 第 5 节要讲的注意力会同时看所有词元，它本身分不清“狗咬人”和“人咬狗”。
# > 所以要给每个向量加上一份“我在第几位”的信息：用位置的正弦和余弦，左边的波快，右边的波慢，
# > 就像钟表的秒针、分针和时针。
#
# $$PE(pos, 2i) = \sin\frac{pos}{10000^{2i/d}}, \qquad
# PE(pos, 2i+1) = \cos\frac{pos}{10000^{2i/d}}$$

# %%
from nmt.model.positions import sinusoidal_positions
from nmt.visualize.fonts import font_for


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font, labelpad=7)


positions = sinusoidal_positions(60, 128).numpy()  # (positions, d_model)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
picture = left.imshow(positions, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
figure.colorbar(picture, ax=left)
caption(left, "One row for each position 每行一个位置", "dimension 维度", "position 位置")
for pos, width in ((20, 7), (30, 4), (39, 1)):
    near = positions[pos - 20 : pos + 21]
    right.plot(range(-20, 21), near @ positions[pos], linewidth=width, label=f"pos = {pos}")
right.legend()
caption(right, "PE(pos) · PE(pos + k)", "distance 距离 k", "dot product 点积")

# %% [markdown]
# Left: no two rows are alike, so every position has its own pattern. Right: how similar two
# positions are depends only on the distance between them: the three curves lie exactly on top of
# each other, which is why each is drawn thinner than the one before.
#
# > 左图：没有两行是相同的，每个位置都有自己的图案。右图：两个位置有多像，只取决于它们相距多远；
# > 三条曲线完全重合，所以才画得一条比一条细。
#
# The reason: going k positions further **rotates** every pair (sine, cosine) by an angle that
# depends on k only, not on the position. So "three words back" is the same calculation
# everywhere, and a layer can learn it once.
#
# > 原因在于：往后移 k 位，相当于把每一对（正弦，余弦）**旋转**一个角度，这个角度只与 k 有关，
# > 与所在位置无关。于是“往前数第三个词”在句子任何地方都是同一种运算，学会一次就够了。

# %%
k = 7
angle = k / 10000 ** (np.arange(0, 128, 2) / 128)  # one angle for each pair, for all positions
sine, cosine = positions[:, 0::2], positions[:, 1::2]
rotated_sine = sine * np.cos(angle) + cosine * np.sin(angle)
rotated_cosine = cosine * np.cos(angle) - sine * np.sin(angle)
error = max(
    np.abs(rotated_sine[:-k] - sine[k:]).max(), np.abs(rotated_cosine[:-k] - cosine[k:]).max()
)
print(f"largest difference between rotated PE(pos) and PE(pos + {k}): {error:.1e}")

# %% [markdown]
# ## 4. Masks
# ## 4. 掩码
#
# Two things must not be looked at. **Padding** is not language. And while learning, the decoder
# must not see the words it is about to predict, only those **before** them. A mask says who may
# look at whom. In `nmt` there is one kind of mask only, and it reads like a sentence: **True =
# may attend**.
#
# > 有两样东西不能看。**填充**不是语言；训练时，解码器也不能看到它正要预测的词，
# > 只能看**前面**的词。掩码规定谁可以看谁。在 `nmt` 里掩码只有一种，读起来就是一句话：
# > **True = 可以看**。

# %%
from nmt.model.masks import look_ahead_mask, padding_mask

labels = ["BOS", "我", "喜欢", "猫", "PAD", "PAD"]
ids = np.array([[BOS, 11, 12, 13, PAD, PAD]], np.int32)
padding = padding_mask(ids)  # (batch, 1, 1, keys)
look_ahead = look_ahead_mask(6, 6)  # (1, 1, queries, keys)
both = padding & look_ahead  # (batch, 1, queries, keys)
print("shapes:", padding.shape, look_ahead.shape, both.shape)

figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
titles = ("padding 填充", "look-ahead 前瞻", "both 两者")
for axis, mask, title in zip(axes, (padding, look_ahead, both), titles, strict=True):
    axis.imshow(np.broadcast_to(mask[0, 0], [6, 6]), cmap="Greens", vmin=0, vmax=1.4)
    axis.set_xticks(range(6), labels, font=font_for(labels))
    axis.set_yticks(range(6), labels, font=font_for(labels))
    axis.set_xticks(np.arange(5) + 0.5, minor=True)
    axis.set_yticks(np.arange(5) + 0.5, minor=True)
    axis.grid(which="minor", color="lightgray")
    axis.tick_params(which="both", length=0)
    caption(axis, title, "who is looked at 看谁", "who looks 谁在看")

# %% [markdown]
# Green means "may attend". Each row is a token that looks, each column a token to be looked at.
# The lower triangle is the look-ahead rule: 喜欢 may see BOS, 我 and itself, but not 猫. Whoever
# looks at the source needs the first mask; the decoder, when it looks at its own words, the second.
#
# > 绿色表示“可以看”。每一行是正在看的词元，每一列是被看的词元。下三角就是前瞻掩码的规则：
# > “喜欢”可以看 BOS、“我”和它自己，但不能看“猫”。看原文时用第一种掩码；
# > 解码器看自己写的词时用第二种。

# %% [markdown]
# ## 5. Attention
# ## 5. 注意力
#
# Attention is a soft look-up. Each token asks with a **query**, every token offers a **key** and
# a **value**. How well query and key fit (their dot product) decides how much of the value is
# taken: weights that sum to 1, then a weighted mean.
#
# > 注意力就像一次“软查询”：每个词元用**查询**（query）发问，
# > 每个词元又各提供一个**键**（key）和一个**值**（value）。查询与键越合得来（点积越大），
# > 取走的值就越多：先得到总和为 1 的权重，再求加权平均。
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$
#
# By hand, with three tokens and vectors of two numbers. The query of "it" is made to fit the key
# of "cat":
#
# > 先用三个词元、二维向量动手算一遍。我们故意让“it”的查询与“cat”的键合得来：

# %%
words = ["cat", "sleeps", "it"]
query = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]], np.float32)  # the last: "it" asks
key = np.array([[2.0, 0.0], [0.0, 2.0], [0.5, 0.5]], np.float32)
value = np.array([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]], np.float32)

scores = query @ key.T / np.sqrt(2)  # how well each query fits each key, (3, 3)
weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)  # softmax: rows sum to 1
output = weights @ value  # for each query a mean of the values, (3, 2)
for name, matrix in (("scores", scores), ("weights", weights), ("output", output)):
    print(f"{name}\n{matrix.round(2)}")

# %% [markdown]
# Read the last row of the weights: "it" takes nearly everything from "cat". The function of
# `nmt` gives the same numbers. It only adds two axes in front, for the sentences of the batch and
# for the heads, and takes a mask.
#
# > 看权重的最后一行：“it”几乎全部取自“cat”。`nmt` 的函数算出来的数完全一样，
# > 只是前面多了两个轴（批次里的句子、注意力头），并且可以接受掩码。

# %%
from nmt.model.attention import MultiHeadAttention, scaled_dot_product_attention
from nmt.visualize.heatmap import plot_attention

attended = scaled_dot_product_attention(*(x[None, None] for x in (query, key, value)))
print(f"largest difference: {np.abs(attended.output[0, 0] - output).max():.1e}")
masked = scaled_dot_product_attention(
    *(x[None, None] for x in (query, key, value)), look_ahead_mask(3, 3)
)
both = np.stack([attended.weights[0, 0], masked.weights[0, 0]])
plot_attention(both, words, words, ["no mask 无掩码", "look-ahead 前瞻掩码"])

# %% [markdown]
# With the look-ahead mask the first token can only look at itself, and every row still sums to 1:
# a masked score is set to the lowest number there is *before* the softmax, so its weight is 0.
#
# > 加上前瞻掩码后，第一个词元只能看自己，而每一行的和仍然是 1：
# > 在 softmax *之前*把被遮住的分数换成最小的数，它的权重就成了 0。
#
# **Why divide by √d?** The dot product of two random vectors grows with their length. Large
# scores make the softmax choose one token and give the rest almost nothing, and where a weight is
# stuck at 0 or 1, no gradient flows. Dividing keeps the scores at the same size for every d:
#
# > **为什么要除以 √d？** 随机向量的维度越高，点积的数值越大。分数太大，softmax 就会只选一个、
# > 其余几乎为零；权重一旦卡在 0 或 1，梯度就传不过去了。除以 √d，不管 d 多大，
# > 分数的大小都差不多：

# %%
for d in (4, 64, 1024):
    query, key = np.random.default_rng(1).normal(size=(2, 2000, d))
    scores = np.einsum("nd,nd->n", query, key)
    print(f"d = {d:5}: typical score {scores.std():6.2f}, divided {scores.std() / d**0.5:.2f}")

# %% [markdown]
# ### Several heads 多头
#
# One softmax makes one choice. But a word wants to know several things at once: its verb, its
# neighbour, its subject. So `MultiHeadAttention` splits the vectors into *heads*, which attend
# independently of each other, each in its own projection, and joins the results.
#
# > 一个 softmax 只做一次选择，但一个词往往同时想知道好几件事：动词是哪个、旁边是什么、主语是谁。
# > 所以 `MultiHeadAttention` 把向量分成几个*头*，各自投影、各看各的，最后再拼起来。

# %%
attention = MultiHeadAttention(d_model=128, num_heads=4)
x = tf.random.normal([2, 5, 128])
attended = attention(x, x, may_attend=look_ahead_mask(5, 5))
projected = attention.project(x)
print("input                        (batch, tokens, d_model)       ", x.shape)
print("keys, and values likewise    (batch, heads, tokens, d/heads)", projected.keys.shape)
print("weights                      (batch, heads, queries, keys)  ", attended.weights.shape)
print("output                       (batch, tokens, d_model)       ", attended.output.shape)

# %% [markdown]
# Are we sure that it is right? Keras has an attention layer of its own. Given the same weights,
# it must give the same output.
#
# > 怎么确定它是对的？Keras 自带一个注意力层，把同样的参数抄过去，输出就应当相同。

# %%
peer = keras.layers.MultiHeadAttention(num_heads=4, key_dim=32)
peer.build(x.shape, x.shape)
peer.set_weights(
    [w.reshape(v.shape) for w, v in zip(attention.get_weights(), peer.weights, strict=True)]
)
theirs = peer(x, x, attention_mask=look_ahead_mask(5, 5)[0])
print(f"largest difference to keras: {np.abs(theirs - attended.output).max():.1e}")

# %% [markdown]
# ## 6. The layers and the whole model
# ## 6. 各层与完整的模型
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
# The **encoder** reads the source: each token looks at all others (self-attention), then thinks
# about it alone (feed-forward). The **decoder** does the same with the translation so far, and in
# between it looks at the source (cross-attention). Each part *adds* its result to what came in
# (a residual connection): so information and gradients have a straight way through all layers.
# Layer normalization keeps the numbers in range. As shapes in and out are equal, layers can be
# stacked as high as you like.
#
# > **编码器**读原文：每个词元先看其他所有词元（自注意力），再独自“想一想”（前馈网络）。
# > **解码器**对已经写出的译文做同样的事，中间再看一眼原文（交叉注意力）。
# > 每一部分都把结果*加*到输入上（残差连接），信息和梯度因此有一条直通各层的路；
# > 层归一化让数值保持在合适的范围内。输入和输出形状相同，所以想叠多少层都可以。
#
# Here is a batch of two pairs. Follow the shapes: B = 2 sentences, S and T tokens, M = d_model,
# V subwords.
#
# > 下面是两个句对组成的一批。注意看形状：B = 2 个句子，S、T 是词元数，M 是 d_model，V 是词表大小。

# %%
from nmt.data.batches import make_batch
from nmt.data.prepared import load_train
from nmt.model.transformer import build_transformer

model = build_transformer(run.model_config(), seed=1)
train_set = load_train(run)
lengths = train_set.target.lengths
chosen = [int(np.argmax(lengths == 6)), int(np.argmax(lengths == 9))]  # the first such pairs
sources, targets = train_set.source.split(), train_set.target.split()
batch = make_batch([sources[i] for i in chosen], [targets[i] for i in chosen])

encoded = model.encode(batch.source_ids)
memory = model.project_memory(encoded)
decoded = model.decode(batch.target_in_ids, memory, encoded.may_attend)
logits = model.project(decoded.hidden)

for step, meaning, tensor in (
    ("source_ids", "(B, S)", batch.source_ids),
    ("encode → memory", "(B, S, M)", encoded.memory),
    ("encode → may_attend", "(B, 1, 1, S)", encoded.may_attend),
    ("project_memory → keys of layer 1", "(B, heads, S, M/heads)", memory[0].keys),
    ("target_in_ids", "(B, T)", batch.target_in_ids),
    ("decode → hidden", "(B, T, M)", decoded.hidden),
    ("decode → cross_weights of layer 1", "(B, heads, T, S)", decoded.cross_weights[0]),
    ("project → logits", "(B, T, V)", logits),
):
    print(f"{step:34} {meaning:23} {tuple(tensor.shape)}")

# %% [markdown]
# `encode` and `project_memory` run once for a sentence, `decode` and `project` once for each new
# token. That is why they are separate. Target embedding and output projection share one table:
# the vector that *means* 猫 on the way in is also what the output is compared with.
#
# > 每个句子只需运行一次 `encode` 和 `project_memory`，
# > 而每写一个新词元都要运行一次 `decode` 和 `project`，所以要分开。
# > 译文的嵌入和输出投影共用同一张表：输入时代表“猫”的那个向量，
# > 输出时也用来判断下一个词是不是“猫”。

# %%
model.summary()  # a question mark: the shape depends on the batch

# %% [markdown]
# ## 7. What is learned: teacher forcing and the loss
# ## 7. 学什么：教师强制与损失
#
# The task is always the same: **given the source and the translation so far, which token comes
# next?** In training the "translation so far" is taken from the reference, whatever the model
# itself would have written (*teacher forcing*). So one pass trains all positions at once, and the
# look-ahead mask makes sure that nobody copies the answer.
#
# > 任务始终只有一个：**给定原文和已有的译文，下一个词元是什么？** 训练时，
# > “已有的译文”取自参考译文，不管模型自己会写什么（*教师强制*）。这样一次就能训练所有位置，
# > 而前瞻掩码保证谁也抄不到答案。

# %%
show = target_tokenizer.pieces
print("decoder reads    ", *show(batch.target_in_ids[1]))
print("has to predict   ", *show(batch.target_out_ids[1]))

# %% [markdown]
# **The loss** of a token is −log of the probability that the model gave to the right one: 0 if it
# was sure and right. Padding must not count. Ten more columns of padding change nothing in the
# sums:
#
# > 一个词元的**损失**，是模型给正确答案的概率取负对数：如果又确定又正确，损失就是 0。
# > 填充不能算在内：再多补十列填充，总和也不变：

# %%
from nmt.training.losses import smoothed_cross_entropy, token_sums

wider = [np.pad(ids, ((0, 0), (0, 10)), constant_values=PAD) for ids in batch]
for source_ids, target_in_ids, target_out_ids in (batch, wider):
    sums = token_sums(model((source_ids, target_in_ids)), target_out_ids)
    print(f"{target_out_ids.size} positions, {sums.tokens:.0f} real tokens, loss {sums.loss:.3f}")

# %% [markdown]
# An untrained model knows nothing. Guessing evenly among V subwords costs ln V for each token, and
# random weights start near that, mostly a little above. This is what the training has to beat:
#
# > 没训练过的模型什么也不知道。在 V 个子词里平均地猜，每个词元的损失是 ln V；
# > 随机参数的起点就在这附近，往往略高一点。训练首先要胜过的就是它：

# %%
from nmt.data.prepared import encode_pairs, load_held_out
from nmt.training.trainer import train
from nmt.training.validation import make_predict, validate

vocab_size = run.model_config().target_vocab_size
validation_pairs = encode_pairs(load_held_out(run, "validation"), *run.tokenizers())
before = validate(make_predict(model), validation_pairs, step=0)
print(f"ln V = {np.log(vocab_size):.2f}, untrained model: {before.validation_loss:.2f}")

# %% [markdown]
# **Label smoothing.** For one sentence there are many good translations, so it would be wrong to
# demand 100% for one token. The target gives 90% to the reference and spreads 10% over the
# whole vocabulary. Then the loss can no longer reach 0: its floor is the entropy of the target. A
# loss that stays there is perfect, not stuck. And being *too* sure is punished:
#
# > **标签平滑。** 一个句子有很多种好的译法，硬要某一个词元占 100% 并不合理。所以目标是：
# > 参考词元占 90%，其余 10% 平摊到整个词表。这样损失就到不了 0，它的下限是目标分布的熵。
# > 停在下限不是“学不动了”，而是已经完美；*过分*自信反而会受罚：

# %%
smoothing = config.training.label_smoothing
wanted = np.full(vocab_size, smoothing / vocab_size, np.float32)
wanted[7] += 1 - smoothing  # token 7 is the right one
floor = -np.sum(wanted * np.log(wanted))
too_sure = 50.0 * np.eye(vocab_size, dtype=np.float32)[7]
for name, logits_of_one in (("exactly the target", np.log(wanted)), ("too sure", too_sure)):
    loss = smoothed_cross_entropy(tf.constant(logits_of_one[None]), tf.constant([7]), smoothing)
    print(f"{name:19} loss {loss[0]:.3f}")
print(f"floor               {floor:.3f}")

# %% [markdown]
# **The learning rate** says how far each update goes. It starts near 0, because the first
# gradients of a random network point anywhere; it rises for `warmup_steps` updates; then it falls
# with 1/√step, to settle down. The paper derives the height from d_model; our short run sets the
# peak itself.
#
# > **学习率**决定每次更新走多远。它从接近 0 开始，因为随机网络最初的梯度方向并不可靠；
# > 先在 `warmup_steps` 步内上升（预热），再按 1/√step 下降，慢慢稳定下来。
# > 论文用 d_model 算出峰值；我们的训练很短，直接给定峰值。

# %%
from nmt.training.schedule import learning_rate

steps = np.arange(1, 3001)
warmup, peak = config.training.warmup_steps, config.training.peak_learning_rate
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.plot(steps, learning_rate(steps, 128, warmup, peak), label=f"ours: warm-up {warmup:,}")
axis.plot(steps, learning_rate(steps, 128, 1000), "--", label="paper's formula: warm-up 1,000")
axis.legend()
caption(axis, "Learning rate 学习率", "step 步数", "rate 学习率")

# %% [markdown]
# ## 8. Training for a minute
# ## 8. 训练一分钟
#
# `train` takes batch after batch: predict, compute the loss, move every weight a little against
# its gradient. Its loop fits on one screen: see `nmt/training/trainer.py`. Now wait a minute and
# watch the loss fall.
#
# > `train` 一批一批地重复：预测、算损失、让每个参数沿梯度的反方向挪一小步。整个循环一屏就能看完，
# > 见 `nmt/training/trainer.py`。现在等一分钟，看着损失往下降。

# %%
from nmt.progress import describe


def show_sometimes(report):
    """Print every fifth report, so about one line in a hundred steps."""
    if report.step % 100 == 0:
        print(describe(report))


after = train(run, on_report=show_sometimes)
print(f"validation loss before {before.validation_loss:.2f}, after {after.validation_loss:.2f}")

# %%
records = [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
reports = [record for record in records if "loss" in record]
steps = [report["step"] for report in reports]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
left.plot(steps, [report["loss"] for report in reports], label="training, with smoothing")
left.plot(after.step, after.validation_loss, "D", label="validation, without")
left.axhline(np.log(vocab_size), color="gray", linestyle=":", label="ln V: guessing")
left.axhline(floor, color="gray", linestyle="--", label="floor of label smoothing")
left.set_ylim(0, 1.1 * before.validation_loss)
left.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 0.13))
caption(left, "Loss of a token 每个词元的损失", "step 步数", "nats 奈特")
right.plot(steps, [report["token_accuracy"] for report in reports])
right.plot(after.step, after.validation_accuracy, "D")
right.set_ylim(0, 1)
caption(right, "Right next tokens 下一个词元猜对的比例", "step 步数", "share 比例")

# %% [markdown]
# The line is ragged because every point comes from a few batches only, some of short and some of
# long sentences. What counts is the trend, and the diamond: sentences that were not trained on. It
# may lie below the line, because it is measured without smoothing and so has no floor. If the line
# still falls at its end, more time would help: a minute is not enough.
#
# > 曲线毛糙，是因为每个点只来自少数几批，有的批次句子短，有的句子长。要看的是趋势，还有那个菱形：
# > 它来自没有参加训练的句子；它可能比曲线低，因为计算时没有标签平滑，也就没有那个下限。
# > 如果曲线到末尾还在下降，再多训练一会儿就会更好：一分钟是不够的。

# %% [markdown]
# ## 9. A translation, token by token
# ## 9. 逐个词元地翻译
#
# Now there is no reference to read from. The model gets its own words back: begin with BOS, ask
# which token comes next, take the most likely one (*greedy*), append it, ask again, until EOS.
# The whole loop:
#
# > 现在没有参考译文可读了，模型读的是自己写出的词：从 BOS 开始，问下一个词元是什么，
# > 取概率最大的那个（*贪心*），接在后面，再问，直到出现 EOS。整个循环就是：

# %%
from nmt.data.batches import pad
from nmt.decoding.searcher import EXTRA_TARGET_TOKENS

translator = nmt.load(run.path)
model = translator.searcher.models[0]


def greedy(source_ids):
    """Yield each chosen token and the probabilities (V,) from which it was chosen."""
    encoded = model.encode(source_ids)
    memory, target = model.project_memory(encoded), [BOS]
    while target[-1] != EOS and len(target) <= source_ids.size + EXTRA_TARGET_TOKENS:
        decoded = model.decode(np.array([target]), memory, encoded.may_attend)
        p = tf.nn.softmax(model.project(decoded.hidden[:, -1]))[0].numpy()
        p[[PAD, BOS]] = 0  # never part of a translation
        target.append(int(np.argmax(p)))
        yield target[-1], p


def source_ids_of(sentence):
    """Return (1, S) ids of an English sentence, closed by EOS."""
    return pad([np.array([*source_tokenizer.encode([sentence])[0], EOS])])


# %%
print(SENTENCE)
written = []
for token, p in greedy(source_ids_of(SENTENCE)):
    written.append(token)
    best = np.argsort(-p)[:3]
    candidates = zip(target_tokenizer.pieces(best), p[best], strict=True)
    print(f"{len(written):2}.", "   ".join(f"{piece} {share:.1%}" for piece, share in candidates))
by_hand = target_tokenizer.decode(written)
print(by_hand)

# %% [markdown]
# Each line shows the three best candidates, the chosen one first. Look where the model hesitates,
# and where the end, `</s>`, becomes likely.
#
# > 每一行是概率最高的三个候选，排在最前的就是被选中的。看看模型在哪里犹豫，
# > 又从哪里开始觉得该结束（`</s>`）了。
#
# Our loop decodes the whole beginning again for every token. `Translator.translate` keeps the keys
# and values of earlier tokens (a *cache*) and computes only what is new. That must not change the
# result:
#
# > 我们的循环每写一个词元，都要把前面的全部重算一遍。
# > `Translator.translate` 会把前面词元的键和值存起来（*缓存*），只算新的部分。结果必须一样：

# %%
translation = translator.translate(SENTENCE, attention=True)
print("by hand, no cache:    ", by_hand)
print("translate, with cache:", translation.text)

# %% [markdown]
# ## 10. BLEU: how good is it?
# ## 10. BLEU：翻译得怎么样？
#
# BLEU counts how many runs of one to four tokens the translations share with the references, from
# 0 to 100. It compares *whole, freely written* translations, not teacher-forced guesses, and here
# sentences that share no side with the training data.
#
# > BLEU 统计译文与参考译文之间有多少相同的片段（一到四个连续的词元），取值 0 到 100。
# > 它比较的是模型*自由写出的完整译文*，而不是教师强制下的单步猜测；这里用的句子，
# > 中英文都没有在训练数据里出现过。

# %%
from nmt.evaluation.scores import corpus_scores

test = load_held_out(run, "test")[:TEST_SENTENCES]
references = [pair.target for pair in test]
texts = [t.text for t in translator.translate([pair.source for pair in test])]
for pair, text in list(zip(test, texts, strict=True))[:6]:
    print(f"source     {pair.source}\ntranslated {text}\nreference  {pair.target}\n")

# %% [markdown]
# **A trap.** BLEU counts tokens, so someone has to cut the text first. The usual cutter, `13a`,
# cuts at spaces. Chinese has none, so a whole sentence becomes *one* word, right or wrong, and one
# word contains no runs of four. The same translations, scored both ways:
#
# > **一个陷阱。** BLEU 数的是词元，所以总得有人先切分文本。常用的 `13a` 按空格切，而中文没有空格，
# > 于是整句成了*一个*词，要么全对，要么全错，更谈不上连续四个词。同样的译文，用两种切法打分：

# %%
for language in ("zh", "en"):  # chooses the tokenizer: zh, or 13a
    bleu = corpus_scores(texts, [references], language)[0]
    print(f"{bleu.name} {bleu.value:5.2f}   {bleu.signature}")

# %% [markdown]
# Only the first figure means something. The text behind it is the *signature*: it says how the
# figure was made (`tok:zh`, the version ...). A BLEU without a signature cannot be compared with
# any other.
#
# > 只有第一个数有意义。后面的文字叫*签名*，说明分数是怎么算出来的（`tok:zh`、版本等）。
# > 没有签名的 BLEU 无法与别人的比较。
#
# And be honest with the result: a small model after one minute is **poor**. It knows frequent
# words and short patterns; it drops, repeats or invents the rest. So few sentences are a rough
# measure, too. `nmt quickstart` trains a larger model for longer and measures the whole test set.
#
# > 也要诚实地看待结果：小模型只训练一分钟，翻译得**很差**。它会常用词和短句型，其余的不是漏掉、
# > 重复，就是瞎编。而且测试句子不多，这个分数也比较粗略。`nmt quickstart` 用更大的模型、
# > 更长的时间来训练，并在整个测试集上评分。

# %% [markdown]
# ## 11. Where did it look?
# ## 11. 它看了哪里？
#
# For every token it wrote, the decoder looked at the source with cross-attention: these are the
# weights of the last layer, one picture for each head.
#
# > 解码器每写一个词元，都会用交叉注意力看一遍原文。下面是最后一层的权重，每个头一幅图。

# %%
from nmt.visualize.heatmap import plot_translation

plot_translation(translation)

# %% [markdown]
# **How to read it.** A row is a token of the translation, at the moment when it was about to be
# written; a column is a token of the source. Bright means "looked here". Each row sums to 1. If a
# word was translated from one source word, one square of its row is bright. The bright squares
# leave the diagonal where Chinese puts words in another order. Heads divide the work: some follow
# the words, some rest on the full stop or on `</s>`, which mostly means "nothing to look for here".
# After a minute of training expect a rough picture; with more training it becomes clearer.
#
# > **怎么读。** 每一行是译文的一个词元（即将写出它的那一刻），每一列是原文的一个词元；越亮，
# > 表示看得越多，每行之和为 1。如果某个词译自某一个原词，那一行就有一格是亮的；
# > 中英文语序不同的地方，亮格会离开对角线。各个头有分工：有的跟着词走，有的停在句号或 `</s>` 上，
# > 多半表示“这里没什么要找的”。只训练一分钟，图会比较粗糙；训练得越久，越清楚。
#
# Here is the one head that looks most decidedly:
#
# > 下面单独看“目光最集中”的那个头：

# %%
cross = translation.attention.cross  # (layers, heads, target tokens, source tokens)
focus = cross[-1, :, :, :-1].max(axis=-1).mean(axis=-1)  # on words, EOS left out; for each head
plot_translation(translation, head=int(np.argmax(focus)) + 1)

# %% [markdown]
# Attention shows where information was *available* to the next calculation. It is a good hint, not
# a proof of why the model chose a word.
#
# > 注意力显示的是下一步计算*能用到*哪里的信息。它是很好的线索，但不能证明模型为什么选这个词。

# %% [markdown]
# ## Checks
# ## 检查
#
# Did all of this really work on your machine? These are tests of the mechanisms, so they hold for
# a run of any length. Only how far the loss has to fall depends on how many updates there was time
# for; fall it must in any case.
#
# > 这一切在你的机器上真的都对吗？下面检查的是机制，所以不管训练多久都应当成立。
# > 只有损失至少该降多少，取决于来得及更新多少次；但无论如何都必须下降。

# %%
# The loss fell: by more than 1 nat once the warm-up is over, by something from the first update on.
assert after.step > 0, "there was no time for a single update: raise MINUTES"
least = 1.0 if after.step >= warmup else 0.0
assert before.validation_loss - after.validation_loss > least

# A wrong mask would let the answer through: change the last target token, and what is predicted
# before it must stay the same (while the prediction behind it must not, or the check is blind).
target = np.array([[BOS, 300, 301, 302, 303]], np.int32)
other = np.array([[BOS, 300, 301, 302, 400]], np.int32)
source = source_ids_of(SENTENCE)
first, second = model((source, target)).numpy(), model((source, other)).numpy()
np.testing.assert_allclose(first[:, :4], second[:, :4], atol=1e-4)
assert np.abs(first[:, 4] - second[:, 4]).max() > 1e-3

# Padding behind the source changes nothing.
wider_source = np.pad(source, ((0, 0), (0, 7)), constant_values=PAD)
np.testing.assert_allclose(model((wider_source, target)), first, atol=1e-3)

# Attention weights sum to 1, for each layer and head, over the source and over the target.
for weights in translation.attention:
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)

# The loop without a cache writes the same as translate, on sentences of the test set too.
assert show(written) == translation.target_tokens
for pair in test[:2]:
    tokens = [token for token, p in greedy(source_ids_of(pair.source))]
    assert show(tokens) == translator.translate(pair.source).target_tokens

# Nothing gets lost in the tokenizers, and nothing of the test set has been trained on.
for pair in test:
    assert source_tokenizer.decode(source_tokenizer.encode([pair.source])[0]) == pair.source
    assert target_tokenizer.decode(target_tokenizer.encode([pair.target])[0]) == pair.target
trained_on = [target_tokenizer.decode(ids) for ids in targets]
assert not set(references) & set(trained_on)
print("all checks passed 全部通过")

# %% [markdown]
# ## What next?
# ## 接下来
#
# - `nmt quickstart` — the whole road in one command, with a larger model and more time.
# - `nmt train checkpoints/mine --preset small --minutes 60` — your own run; `--data pairs.tsv`
#   trains on your own sentence pairs.
# - `nmt translate` and `nmt attention` — use a trained run and look into it.
# - The modules in reading order: `nmt/model/attention.py`, `layers.py`, `transformer.py`, then
#   `nmt/training/trainer.py` and `nmt/decoding/search.py`.
#
# > - `nmt quickstart`：一条命令走完全程，模型更大，时间更长。
# > - `nmt train checkpoints/mine --preset small --minutes 60`：训练你自己的模型；
# >   加上 `--data pairs.tsv` 就能用自己的句对。
# > - `nmt translate` 和 `nmt attention`：使用训练好的模型，并看看它的内部。
# > - 建议的阅读顺序：`nmt/model/attention.py`、`layers.py`、`transformer.py`，
# >   然后是 `nmt/training/trainer.py` 和 `nmt/decoding/search.py`。

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Is order really invisible to attention?** Section 3 claimed it. Take the layer `attention`
# of section 5 and five random vectors `x`. Shuffle the vectors that are looked *at* and compare the
# output. Then do the same after adding positions.
#
# > **1. 注意力真的看不出顺序吗？** 第 3 节是这么说的。用第 5 节的 `attention` 和五个随机向量 `x`，
# > 打乱*被看*的那些向量的顺序，比较输出；然后加上位置编码再试一次。
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# x = tf.random.normal([1, 5, 128])
# shuffled = tf.gather(x, [4, 2, 0, 1, 3], axis=1)
# positions = sinusoidal_positions(5, 128)
#
# difference = attention(x, x).output - attention(x, shuffled).output
# print(f"without positions: {np.abs(difference).max():.6f}")
# difference = attention(x, x + positions).output - attention(x, shuffled + positions).output
# print(f"with positions:    {np.abs(difference).max():.6f}")
# ```
#
# Without positions the difference is only rounding: a weighted mean does not depend on the order of
# its terms. With positions it is large.
#
# > 没有位置编码时，差别只是舍入误差，因为加权平均与各项的顺序无关；加上位置编码后，差别就很大。
#
# </details>

# %% [markdown]
# **2. Roll the dice.** Greedy search always takes the best token. Write a version that *samples*
# the next token by its probability, with a temperature: raise the probabilities to the power 1/t
# and let them sum to 1 again. Translate `SENTENCE` three times with t = 0.5. What happens for
# t = 0.1 and for t = 2?
#
# > **2. 掷骰子。** 贪心搜索总是取概率最大的词元。请写一个按概率*抽样*的版本，并加上温度：
# > 把各概率取 1/t 次方，再重新归一化。令 t = 0.5，把 `SENTENCE` 翻译三次。
# > t = 0.1 和 t = 2 时会怎样？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# def sample(source_ids, temperature, dice):
#     encoded = model.encode(source_ids)
#     memory, target = model.project_memory(encoded), [BOS]
#     while target[-1] != EOS and len(target) <= 20:
#         decoded = model.decode(np.array([target]), memory, encoded.may_attend)
#         p = tf.nn.softmax(model.project(decoded.hidden[:, -1]) / temperature)[0].numpy()
#         p[[PAD, BOS]] = 0
#         target.append(int(dice.choice(len(p), p=p / p.sum())))
#     return target_tokenizer.decode(target)
#
#
# dice = np.random.default_rng(1)
# for temperature in (0.1, 0.5, 2.0):
#     print(temperature, [sample(source_ids_of(SENTENCE), temperature, dice) for _ in range(3)])
# ```
#
# Dividing the logits by t is the same as raising the probabilities to the power 1/t. A low
# temperature comes close to greedy search, a high one to pulling words out of a hat.
#
# > 把 logits 除以 t，等于把概率取 1/t 次方。温度低就接近贪心搜索，温度高就近乎抓阄。
#
# </details>
