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
# # 2. Attention by hand
# # 2. 手算注意力
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# Attention is one line of mathematics. You will calculate it for three words, with numbers that you
# can check in your head; then hide words with masks, break a mask and watch the answer leak; and at
# the end build multi-head attention from NumPy and find it equal to that of `nmt` and of Keras. You
# need NumPy and the idea of a matrix product. About a minute on two CPU cores.
#
# > 注意力的数学只有一行。我们先用三个词、几个能心算的数把它算一遍；再用掩码把一些词遮住，
# > 故意弄坏掩码，看答案怎样泄漏；最后用 NumPy 搭出多头注意力，
# > 和 `nmt`、Keras 的结果对一对。
# > 只要会 NumPy、知道矩阵乘法就够了。两个 CPU 核大约一分钟。
#
# **You will learn 你将学到**
#
# - what query, key and value are, and why one divides by √d 查询、键、值是什么，为什么要除以 √d
# - which two masks there are, and what happens without them 有哪两种掩码，没有它们会怎样
# - how to tell a leak from a good model 怎样分辨“模型真好”和“答案泄漏”
# - what several heads do 多个头有什么用
#
# ← [1. Sentence pairs and subwords 句对与子词](01_pairs_and_subwords.ipynb) ·
# [3. The whole model 完整的模型](03_the_whole_model.ipynb) →

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
import logging
import os
from unittest.mock import patch

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
np.set_printoptions(precision=2, suppress=True)
keras.utils.set_random_seed(1)
print("nmt", nmt.__version__, "| tensorflow", tf.__version__, "| keras", keras.__version__)

# %% [markdown]
# What you may play with: the three words of section 1, and how long the models of section 5 train.
#
# > 可以改着玩的：第 1 节的三个词，以及第 5 节的模型训练多少步。

# %% tags=["parameters"] toy={"STEPS": 120}
WORDS = ["cat", "sleeps", "it"]
STEPS = 200

# %% [markdown]
# ## 1. Three words 三个词
#
# "The cat is tired, so it sleeps": what "it" means stands in another word. Attention lets each
# token gather what it needs from the others. It is a soft look-up: each token asks with a
# **query**, every token offers a **key** and a **value**. How well query and key fit (their dot
# product) decides how much of the value is taken: weights that sum to 1, then a weighted mean.
#
# > “猫累了，所以它睡了”：“它”指谁，要到别的词里去找。
# > 注意力让每个词元从其他词元那里取来所需的信息。这就像一次“软查询”：每个词元用**查询**（query）
# > 发问，每个词元又各提供一个**键**（key）和一个**值**（value）。查询与键越合得来（点积越大），
# > 取走的值就越多：先得到总和为 1 的权重，再求加权平均。
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$
#
# Q, K and V are the queries, keys and values of all tokens, a row for each token; d_k is the
# number of entries in a query or key. A trained model has learned how to make these vectors. Here
# we make them up, four numbers long, so that "it" asks for what "cat" offers. The rows belong to
# "cat", "sleeps", "it":
#
# > Q、K、V 是所有词元的查询、键、值，每个词元占一行；d_k 是一个查询（或键）里有几个数。
# > 训练好的模型已经学会怎样生成这些向量。这里我们自己编：四维向量，
# > 让“it”要找的正好是“cat”提供的。三行依次对应“cat”“sleeps”“it”：

# %%
query = np.array([[2, 0, 0, 0], [0, 2, 0, 0], [4, 0, 0, 0]], np.float32)  # the last: "it" asks
key = np.array([[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0]], np.float32)
value = np.array([[10, 0], [0, 10], [0, 0]], np.float32)  # may have another width

# %% [markdown]
# **Step 1: scores.** Each query times each key. "it" (last row) and "cat" (first column):
# 4 · 2 = 8.
#
# > **第一步：打分。** 每个查询乘以每个键。“it”（最后一行）对“cat”（第一列）：4 · 2 = 8。

# %%
scores = query @ key.T  # (3, 3)
print(scores)

# %% [markdown]
# **Step 2: divide by √d.** The vectors have d = 4 numbers, so √d = 2.
#
# > **第二步：除以 √d。** 向量有 d = 4 个数，所以 √d = 2。

# %%
scaled = scores / np.sqrt(key.shape[-1])
print(scaled)

# %% [markdown]
# **Step 3: softmax.** e to the power of each number, then divide by the sum of the row. In the last
# row e⁴ ≈ 54.6 stands against two times e⁰ = 1, so "cat" gets 54.6 / 56.6 ≈ 0.96. All weights are
# positive, and each row sums to 1.
#
# > **第三步：softmax。** 每个数取 e 的幂，再除以整行之和。最后一行是 e⁴ ≈ 54.6 对两个 e⁰ = 1，
# > 所以“cat”分到 54.6 / 56.6 ≈ 0.96。权重都是正数，每行之和为 1。


# %%
def softmax(x):
    """Return x with each row (last axis) made positive and summing to 1."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))  # minus the largest: e to 1,000 would overflow
    return e / e.sum(axis=-1, keepdims=True)


weights = softmax(scaled)
print(weights)
print("sums of the rows:", weights.sum(axis=-1))

# %% [markdown]
# **Step 4: the weighted mean** of the values. "it" comes away with nearly the value of "cat",
# (10, 0).
#
# > **第四步：对值做加权平均。** “it”拿到的几乎就是“cat”的值 (10, 0)。

# %%
output = weights @ value  # (3, 2)
print(output)

# %% [markdown]
# That is all. The function of `nmt` gives the same **output and weights**, up to the rounding of
# float32 (`1e-06` means 0.000001). It only adds two axes in front, for the sentences that are
# handled together (the *batch*) and for the heads (section 6), and takes a mask (section 3).
#
# > 这就是全部。`nmt` 的函数同时返回**输出和权重**，算出来的数是一样的，只差 float32 的舍入误差
# > （`1e-06` 就是 0.000001）。只是前面多了两个轴：一起处理的各个句子（即一个*批次*）和注意力头
# > （第 6 节）；另外还可以接受掩码（第 3 节）。

# %%
from nmt.model.attention import MultiHeadAttention, scaled_dot_product_attention
from nmt.visualize.heatmap import plot_attention

batched = [x[None, None] for x in (query, key, value)]  # (batch, heads, tokens, width)
attended = scaled_dot_product_attention(*batched)
output_error = np.abs(attended.output[0, 0] - output).max()
weights_error = np.abs(attended.weights[0, 0] - weights).max()
print(f"largest difference: output {output_error:.0e}, weights {weights_error:.0e}")
plot_attention(attended.weights[0], WORDS, WORDS, ["weights 权重"])

# %% [markdown]
# Read it by rows: a row is the token that looks, a column the token that is looked at. The weights
# are worth returning: they are what all the heatmaps of this course are made of.
#
# > 按行来读：每一行是正在看的词元，每一列是被看的词元。权重值得一并返回：
# > 本课程里的热力图画的都是它。

# %% [markdown]
# ## 2. Why divide by √d? 为什么要除以 √d？
#
# The dot product of two random vectors grows with the number d of their entries: a sum of d random
# terms is about √d in size. Large scores make the softmax **saturate**: one token gets everything.
# And a network learns by slopes (*gradients*): how does the result change when a number changes a
# little? The slope of a weight p against its own score is p(1 − p), which is 0 where p is 0 or 1.
# What cannot change cannot learn.
#
# > 随机向量的维度 d 越高，点积的数值越大：d 个随机项之和，大小约为 √d。分数太大，
# > softmax 就会**饱和**：一个词元独占全部权重。而网络是靠斜率（*梯度*）学习的：
# > 某个数稍稍一变，结果会跟着变多少？权重 p 对自身分数的斜率是 p(1 − p)，
# > p 为 0 或 1 时等于 0。变不动的东西，也就学不动。
#
# We measure it with random queries, each with ten random keys to choose from, without the division
# (raw) and with it (scaled):
#
# > 我们来量一量：随机的查询，各配十个随机的键，不除（raw）和除以 √d（scaled）各算一遍。
# > 表中依次是分数的典型大小、最大的权重、斜率：

# %%
dice = np.random.default_rng(1)
sizes = [1, 4, 16, 64, 256, 1024]
largest, slope = {}, {}
print("   d   typical score   largest weight    slope p(1-p)")
print("        raw  scaled     raw  scaled     raw     scaled")
for d in sizes:
    queries, keys = dice.normal(size=(500, 1, d)), dice.normal(size=(500, 10, d))
    raw = (queries @ keys.transpose(0, 2, 1))[:, 0]  # (500 queries, 10 keys)
    for name, x in (("raw", raw), ("scaled", raw / np.sqrt(d))):
        p = softmax(x)
        largest[d, name], slope[d, name] = p.max(axis=-1).mean(), (p * (1 - p)).mean()
    print(f"{d:4} {raw.std():6.1f} {raw.std() / d**0.5:7.1f}", end=" ")
    print(f"{largest[d, 'raw']:7.2f} {largest[d, 'scaled']:7.2f}", end=" ")
    print(f"{slope[d, 'raw']:9.4f} {slope[d, 'scaled']:8.4f}")

# %%
from nmt.visualize.fonts import font_for


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font)


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
for name, label in (("raw", "without 不除"), ("scaled", "divided by √d 除以 √d")):
    left.plot(sizes, [largest[d, name] for d in sizes], "o-", label=label)
    right.plot(sizes, [slope[d, name] for d in sizes], "o-", label=label)
for axis in (left, right):
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, sizes)
    axis.set_ylim(0)
    axis.legend(prop=font_for(["除"]))
caption(left, "Largest of ten weights 十个权重中最大的", "width 维度 d", "weight 权重")
caption(right, "Gradient that gets through 传得过去的梯度", "width 维度 d", "p(1 − p)")

# %% [markdown]
# Without the division, wide vectors leave no choice: the largest weight goes to 1 and the slope to
# 0. With it, the width hardly matters.
#
# > 不除的话，维度一高就没有选择余地了：最大权重趋于 1，斜率趋于 0。
# > 除以 √d 以后，维度几乎不再有影响。

# %% [markdown]
# ## 3. Masks 掩码
#
# Two things must not be looked at. **Padding**, which fills short sentences up to the length of
# the longest in the batch, is not language. And while learning, the *decoder* (the half of the
# model that writes the translation; the *encoder* reads the source) must not see the words it is
# about to predict, only those **before** them. A mask says who may look at whom. In `nmt` there is
# one kind of mask only, and it reads like a sentence: **True = may attend**.
#
# > 有两样东西不能看。**填充**只是为了把短句补到与同批最长的句子一样长，不是语言；训练时，
# > *解码器*（模型中负责写译文的一半；另一半是读原文的*编码器*）也不能看到它正要预测的词，
# > 只能看**前面**的词。掩码规定谁可以看谁。在 `nmt` 里掩码只有一种，读起来就是一句话：
# > **True = 可以看**。

# %%
from nmt.model.masks import look_ahead_mask, padding_mask
from nmt.text.tokenizer import BOS, PAD
from nmt.visualize.diagrams import plot_masks

ids = np.array([[BOS, 11, 12, 13, PAD, PAD]], np.int32)
padding = padding_mask(ids)  # (batch, 1, 1, keys)
look_ahead = look_ahead_mask(6, 6)  # (1, 1, queries, keys)
both = padding & look_ahead  # (batch, 1, queries, keys)
print("shapes:", padding.shape, look_ahead.shape, both.shape)
tokens = ["<s>", "我", "喜欢", "猫", "<pad>", "<pad>"]
plot_masks({"padding 填充": padding, "look-ahead 前瞻": look_ahead, "both 两者": both}, tokens)

# %% [markdown]
# The lower triangle is the look-ahead rule: 喜欢 may see `<s>`, 我 and itself, but not 猫. Whoever
# looks at the source needs the first mask; the decoder, when it looks at its own words, the second.
# (It needs no other: padding stands at the end, where the look-ahead rule hides it already.)
#
# > 下三角就是前瞻掩码的规则：“喜欢”可以看 `<s>`、“我”和它自己，但不能看“猫”。
# > 看原文时用第一种掩码；解码器看自己写的词时用第二种。
# > （有第二种就够了：填充都在句末，前瞻掩码已经把它遮住了。）
#
# **How is a mask applied?** *Before* the softmax: a score that must not count is replaced by the
# lowest number there is, and e to that power is 0. So the row still sums to 1. Multiplying the
# weights by 0 afterwards would not do: the others would no longer sum to 1.
#
# > **掩码怎么用？** 用在 softmax *之前*：不该算的分数换成最小的数，它的 e 次幂就是 0，
# > 所以每行之和仍然是 1。如果等 softmax 之后再把权重乘以 0，剩下的就凑不成 1 了。

# %%
masked_scores = np.where(look_ahead_mask(3, 3)[0, 0], scaled, np.finfo(np.float32).min)
print("before the softmax\n", softmax(masked_scores))
print("after it (wrong)\n", softmax(scaled) * look_ahead_mask(3, 3)[0, 0].numpy())
masked = scaled_dot_product_attention(*batched, look_ahead_mask(3, 3))
print(f"nmt: largest difference {np.abs(masked.weights[0, 0] - softmax(masked_scores)).max():.0e}")

# %% [markdown]
# Why the lowest number and not minus infinity? A row that may see *nothing* (a sentence of padding
# only) would be −∞ everywhere, and softmax of that is 0/0: NaN, which spreads through the whole
# model. With the lowest number the row becomes uniform (the softmax first subtracts the largest
# number of the row, so all are 0); it is padding, and nobody uses it.
#
# > 为什么用最小的数，而不用负无穷？如果某一行*什么都不能看*（整句都是填充），全是 −∞，
# > softmax 就成了 0/0，即 NaN，会传遍整个模型。用最小的数，这一行就变成平均分配
# > （softmax 会先减去整行最大的数，于是全成了 0）；反正那是填充，没人会用。

# %%
nothing = np.zeros([3, 3], bool)
with np.errstate(invalid="ignore"):
    print("with minus infinity:  ", softmax(np.where(nothing, scaled, -np.inf))[0])
uniform = scaled_dot_product_attention(*batched, nothing).weights[0, 0]
print("with the lowest number:", uniform[0].numpy())

# %% [markdown]
# ## 4. Mask lab: break it 掩码实验室：把它弄坏
#
# Here is the mask of the decoder, broken in two ways. `off_by_one` is a classic mistake: "up to the
# next token" instead of "up to this one". **Change the functions as you like** and run the cells of
# this section again.
#
# > 下面是解码器掩码的两种“坏”法。`off_by_one` 是经典错误：本该看到自己为止，
# > 却写成了看到下一个为止。这两个函数**随便改**，改完重新运行这一节的各格。


# %%
def no_mask(query_length, key_length):
    """Everybody may see everything, the future too."""
    return tf.ones([1, 1, query_length, key_length], tf.bool)


def off_by_one(query_length, key_length):
    """One token too many: the very one that is to be predicted."""
    queries = tf.range(key_length - query_length, key_length)[:, None]
    return (tf.range(key_length) <= queries + 1)[None, None]


masks = {"right 正确": look_ahead_mask, "off by one 差一位": off_by_one, "none 无掩码": no_mask}
plot_masks({name: mask(5, 5) for name, mask in masks.items()}, ["<s>", "我", "喜欢", "猫", "。"])

# %% [markdown]
# **Does it leak?** There is a test for it that needs no training: change *one* token and see which
# outputs move. Those before it must not move at all. We put each mask into a whole, untrained
# `Transformer` in place of the right one (`patch`). It takes a source and the target so far, and
# gives at each position a score for every possible next token, the *logits*. We change the target
# token at position 3 (counted from 0) and print how far the logits move at each position:
#
# > **泄漏了吗？** 有个不用训练的测试：只改*一个*词元，看哪些输出跟着变。它前面的输出一丝都不能动。
# > 我们把各种掩码依次装进一个完整的、没训练过的 `Transformer`（用 `patch` 换掉原来的掩码）。
# > 它读入原文和已有的译文，在每个位置给所有可能的下一个词元打分，这些分数叫 *logits*。
# > 改动译文里位置 3（从 0 数起）的词元，看每个位置的 logits 变了多少：

# %%
from nmt.config import ModelConfig
from nmt.model.transformer import build_transformer

DIGITS, FIRST, LENGTH = 10, 4, 6  # ids 4 ... 13 are the digits; section 5 needs them
config = ModelConfig(
    num_layers=1, d_model=64, num_heads=4, dff=128, dropout_rate=0.0, norm="pre",
    source_vocab_size=FIRST + DIGITS, target_vocab_size=FIRST + DIGITS,
)  # fmt: skip
model = build_transformer(config, seed=1)
source = np.array([[5, 6, 7, 8, 9, 10]], np.int32)
target = np.array([[BOS, 10, 9, 8, 7, 6]], np.int32)
changed = np.array([[BOS, 10, 9, 4, 7, 6]], np.int32)  # another token at position 3


def movement(mask):
    """Return how far the logits of each position move when the token at position 3 changes."""
    with patch("nmt.model.transformer.look_ahead_mask", mask):
        difference = model((source, target)) - model((source, changed))
    return np.abs(difference[0]).max(axis=-1)


moved = {name: movement(mask) for name, mask in masks.items()}
print("position    0     1     2     3     4     5    mask")
for name, values in moved.items():
    print("     ", "".join(f"{value:6.2f}" for value in values), "  ", name)

# %% [markdown]
# With the right mask positions 0, 1 and 2 stay exactly as they were. Off by one, position 2 moves:
# it has seen the token that it is to predict. Without a mask all of them move. A test like this
# stands in the test suite of `nmt`, and belongs in that of every model.
#
# > 用正确的掩码，位置 0、1、2 纹丝不动。差一位时，位置 2 变了：它看到了自己要预测的词元。
# > 没有掩码，全都变了。`nmt` 的测试里就有这样一项检查，每个模型都应该有。

# %% [markdown]
# ## 5. What a leak does to training 泄漏对训练的影响
#
# A leaking model does not crash. It looks *wonderful*, and that is the danger. We train two tiny
# models on a toy task: write six digits in reverse order. To make it more like translation, where
# nobody can foresee which wording the reference chose, on average one target digit in four is
# replaced by a random one. Both models learn by **teacher forcing**: at each position the decoder
# reads the right digits so far, whatever it would have written itself, and predicts the next one.
#
# > 有泄漏的模型不会报错，反而看上去*好得出奇*，危险就在这里。我们用一个玩具任务训练两个小模型：
# > 把六个数字倒着写一遍。翻译时谁也猜不准参考译文会选哪种说法；为了模仿这一点，
# > 目标里平均每四个数字就有一个换成随机的。两个模型都用**教师强制**的办法学习：
# > 不管自己会写成什么，解码器在每个位置读到的都是前面的标准答案，再预测下一个数字。
#
# So nobody who plays fair can on average be right more often than 0.75 + 0.25/10 = 77.5% (a random
# digit is the expected one once in ten). The **loss**, which training makes small, is −ln of the
# probability that the model gave to the right digit, averaged; its unit is the *nat*. It cannot
# fall below the entropy of the random choices, which we can calculate:
#
# > 所以只要不作弊，准确率平均最高就是 0.75 + 0.25/10 = 77.5%（换上的随机数字有十分之一碰巧没变）。
# > 训练要降低的是**损失**：模型给正确数字的概率取 −ln，再求平均，单位是*奈特*（nat）。
# > 它不会低于这些随机替换的熵，这个下限可以算出来：

# %%
SLIPS = 0.25  # share of the target digits that are random
right, wrong = 1 - SLIPS + SLIPS / DIGITS, SLIPS / DIGITS
fair_loss = -right * np.log(right) - (DIGITS - 1) * wrong * np.log(wrong)
print(f"best for an honest model: loss {fair_loss:.2f}, right {right:.1%}")


def examples(count, dice):
    """Return source, what the decoder reads, what it has to predict; each (count, LENGTH)."""
    source, noise = dice.integers(FIRST, FIRST + DIGITS, (2, count, LENGTH)).astype(np.int32)
    slips = dice.random(source.shape) < SLIPS
    target = np.where(slips, noise, source[:, ::-1])
    return source, np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS), target


for name, ids in zip(("source", "reads", "predicts"), examples(1, dice), strict=True):
    print(f"{name:9}", *("<s>" if i == BOS else i - FIRST for i in ids[0]))

# %% [markdown]
# The training step is the usual one: loss, gradient, update. Notebook 4 explains it.
#
# > 训练的每一步都是标准做法：算损失、求梯度、更新参数。第 4 课会细讲。

# %%
from nmt.training.losses import token_sums
from nmt.training.optimizer import FusedAdam


def make_step(model):
    """Return a function that makes one update and returns the loss."""
    optimizer = FusedAdam(3e-3)  # Adam, as in Keras, only faster

    @tf.function
    def step(source, read, predict):
        with tf.GradientTape() as tape:
            sums = token_sums(model((source, read)), predict)
            loss = sums.loss / sums.tokens
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step


def learn(mask):
    """Train a small model whose decoder has this mask; return it and its losses."""
    with patch("nmt.model.transformer.look_ahead_mask", mask):
        model, dice = build_transformer(config, seed=1), np.random.default_rng(1)
        step = make_step(model)
        losses = [step(*examples(64, dice)) for _ in range(STEPS)]
    return model, [float(loss) for loss in losses]


honest, honest_losses = learn(look_ahead_mask)
cheat, cheat_losses = learn(no_mask)

# %%
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
axis.plot(honest_losses, label="right mask 正确的掩码")
axis.plot(cheat_losses, label="no mask 无掩码")
axis.axhline(fair_loss, color="gray", linestyle="--", label="best honest loss 诚实的极限")
axis.set_ylim(0, 3)
axis.legend(prop=font_for(["掩码"]))
caption(axis, "Teacher-forced loss 教师强制下的损失", "step 步数", "nats 奈特")

# %% [markdown]
# The cheat falls far below the line that no honest model can cross. (Each point is one batch of 64
# examples, so the honest curve may dip below by chance; its average cannot.) Anyone who did not
# know the line would be delighted. Now let both **write by themselves**, one digit after the
# other, on new examples. The future is not there to be seen any more. A row counts as right if it
# is exactly the source reversed:
#
# > 作弊的模型远远低于那条诚实模型越不过的线。（每个点只是一批 64 个例子，
# > 所以诚实的曲线偶尔会碰巧低过去一点，但平均不会。）不知道有这条线的人，恐怕会高兴坏了。
# > 现在让两个模型**自己写**，一个数字一个数字地写，用的是新例子。
# > 这时“未来”还不存在，想偷看也看不到。整行恰好是原文的倒写，才算对：


# %%
def generate(model, source):
    """Write LENGTH digits for each source, each time the most likely one."""
    written = np.full([len(source), 1], BOS, np.int32)
    for _ in range(LENGTH):
        best = np.argmax(model((source, written))[:, -1], axis=-1).astype(np.int32)
        written = np.append(written, best[:, None], axis=1)
    return written[:, 1:]


def examine(model, mask):
    """Return loss and share of right tokens, teacher-forced, and what the model generates."""
    source, read, predict = examples(300, np.random.default_rng(2))
    with patch("nmt.model.transformer.look_ahead_mask", mask):
        sums = token_sums(model((source, read)), predict)
        written = generate(model, source)
    right = (written == source[:, ::-1]).all(axis=1).mean()
    return float(sums.loss / sums.tokens), float(sums.correct / sums.tokens), right, written


results = {"right mask": examine(honest, look_ahead_mask), "no mask": examine(cheat, no_mask)}
print("             teacher-forced           generating")
print("             loss   right tokens      whole rows right")
for name, (loss, accuracy, whole_rows, _) in results.items():
    print(f"{name:12} {loss:4.2f} {accuracy:12.1%} {whole_rows:19.1%}")
source = examples(300, np.random.default_rng(2))[0]
print("\nsource             ", *(source[0] - FIRST))
for name, (*_, written) in results.items():
    print(f"{name:11} writes ", *(written[0] - FIRST))

# %% [markdown]
# The honest model can be no better than its line when it is teacher-forced, and yet it writes the
# reversed digits. The cheat is "right" nearly always when the answer lies in front of it, and
# hardly writes a single row: what it learned is to peek at the next token. Only for the last digit,
# which nothing follows, did it have to read the source, and there its loss is as high as any
# honest one; a sixth of 1.03 is most of what it has left. While it writes, each place is for the
# moment the last, so it answers each time with what belongs in the last place: the first digit of
# the source.
#
# > 诚实的模型在教师强制下只能到那条线为止，却能把数字正确地倒着写出来。作弊的模型，
# > 答案摆在眼前时几乎全“对”，自己写却几乎一行也写不对：它学会的是偷看下一个词元。
# > 只有最后一个数字后面再没有词元，它不得不看原文，那里的损失也就和诚实的模型一样高：
# > 1.03 的六分之一，正是它剩下的损失的大部分。自己写的时候，每一位暂时都是最后一位，
# > 所以它每次填的都是最后一位该填的数字，也就是原文的第一个数字。
#
# So **whenever a loss is too good to be true, let the model write**. That is why translations are
# judged by text that was generated freely, and why notebook 6 is needed.
#
# > 所以，**损失好得离谱时，就让模型自己写写看**。评价翻译要看自由生成的文本，道理就在这里，
# > 第 6 课会接着讲。

# %% [markdown]
# ## 6. Several heads 多头
#
# One softmax makes one choice. But a word wants to know several things at once: its verb, its
# neighbour, its subject. So `MultiHeadAttention` projects the vectors (multiplies them by learned
# matrices), which gives queries, keys and values, and cuts these into *heads*, which attend
# independently of each other. Then it joins the results and projects once more.
#
# > 一个 softmax 只做一次选择，但一个词往往同时想知道好几件事：动词是哪个、旁边是什么、主语是谁。
# > 所以 `MultiHeadAttention` 先投影（乘以学出来的矩阵），得到查询、键和值，再把它们切成几个*头*，
# > 各看各的，然后拼起来，最后再投影一次。
#
# $$\text{head}_i = \text{Attention}(XW_i^Q, XW_i^K, XW_i^V), \qquad
# \text{output} = [\text{head}_1; \dots; \text{head}_h]\,W^O$$

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
# In the formula X holds the vectors of the tokens, a row each, and the W are the learned matrices.
# By hand, with the same matrices: a projection is `x @ kernel + bias`; cutting into heads is a
# `reshape`, since head 1 takes the first 32 numbers, head 2 the next 32, and so on.
#
# > 公式里的 X 是各词元的向量，每行一个；W 是学出来的矩阵。用同样的矩阵手算一遍：
# > 投影就是 `x @ kernel + bias`；切成头不过是一次 `reshape`：第 1 个头取前 32 个数，
# > 第 2 个头取后面的 32 个，依此类推。


# %%
def heads(x, projection):
    """Project (tokens, d_model) and cut it into (heads, tokens, d/heads)."""
    projected = x @ projection.kernel.numpy() + projection.bias.numpy()
    return projected.reshape(len(x), 4, 32).transpose(1, 0, 2)


def multi_head(x, may_attend):
    """Return output (tokens, d_model) and weights (heads, tokens, tokens) of one sentence."""
    q, k, v = (heads(x, layer) for layer in (attention.query, attention.key, attention.value))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(32)
    weights = softmax(np.where(may_attend, scores, np.finfo(np.float32).min))
    joined = (weights @ v).transpose(1, 0, 2).reshape(len(x), 128)
    out = attention.output_projection
    return joined @ out.kernel.numpy() + out.bias.numpy(), weights


by_hand = [multi_head(sentence, look_ahead_mask(5, 5)[0, 0]) for sentence in x.numpy()]
hand_error = max(
    np.abs(np.stack([output for output, _ in by_hand]) - attended.output).max(),
    np.abs(np.stack([weights for _, weights in by_hand]) - attended.weights).max(),
)
print(f"largest difference, by hand and nmt:   {hand_error:.1e}")

# %% [markdown]
# Keras has an attention layer of its own, written by other people. Given the same weights, it must
# give the same output and the same attention weights.
#
# > Keras 自带一个注意力层，是另一些人写的。把同样的参数抄过去，输出和注意力权重就应当相同。

# %%
peer = keras.layers.MultiHeadAttention(num_heads=4, key_dim=32)
peer.build(x.shape, x.shape)
peer.set_weights(
    [w.reshape(v.shape) for w, v in zip(attention.get_weights(), peer.weights, strict=True)]
)
theirs, their_weights = peer(
    x, x, attention_mask=look_ahead_mask(5, 5)[0], return_attention_scores=True
)
keras_error = max(
    np.abs(theirs - attended.output).max(), np.abs(their_weights - attended.weights).max()
)
print(f"largest difference, Keras and nmt:     {keras_error:.1e}")

# %% [markdown]
# Four heads take no more multiplications than one wide one: each is a quarter as wide. Even
# untrained they differ, as each starts from random projections of its own:
#
# > 四个头的乘法次数并不比一个宽头多：每个头的宽度只有四分之一。即使没训练过，它们也各不相同，
# > 因为各自的投影一开始就是随机的：

# %%
plot_attention(
    attended.weights[0],
    ["<s>", "我", "喜欢", "猫", "。"],
    ["<s>", "我", "喜欢", "猫", "。"],
    [f"head 头 {number}" for number in range(1, 5)],
    may_attend=look_ahead_mask(5, 5)[0].numpy(),
)

# %% [markdown]
# ## Checks 检查
#
# What was said above, as tests. They expect `no_mask` to hide nothing: if you changed it, put it
# back and run the notebook again.
#
# > 把上面说的写成测试。测试假定 `no_mask` 什么也不遮：如果改过它，请先改回来，再从头运行。

# %%
# By hand, nmt and Keras agree, in output and in weights.
assert max(output_error, weights_error) < 1e-5
assert max(hand_error, keras_error) < 1e-5

# Weights sum to 1, masked ones are exactly 0, and a row that sees nothing is no NaN.
np.testing.assert_allclose(attended.weights.numpy().sum(axis=-1), 1, atol=1e-5)
assert np.all(attended.weights.numpy()[..., ~look_ahead_mask(5, 5)[0, 0].numpy()] == 0)
np.testing.assert_allclose(uniform, 1 / 3, atol=1e-6)

# Without the division wide vectors saturate; with it, width does not matter.
assert largest[1024, "raw"] > 0.9
assert slope[1024, "raw"] < slope[1024, "scaled"] / 5
assert abs(largest[1024, "scaled"] - largest[64, "scaled"]) < 0.1

# The right mask lets nothing through from position 3 to those before; without one it does.
honest_movement, cheat_movement = movement(look_ahead_mask), movement(no_mask)
assert honest_movement[:3].max() == 0 < honest_movement[3]
assert cheat_movement[:3].min() > 1e-3

# The cheat is better than possible when teacher-forced, and worse when it has to write.
assert results["no mask"][0] < fair_loss - 0.2 < results["right mask"][0]
assert results["no mask"][2] < results["right mask"][2]
print("all checks passed 检查全部通过")

# %% [markdown]
# ## Exercises 练习
#
# **1. One token too many.** Train a third model with `off_by_one`, examine it, and compare it with
# the two others. It sees one single token more than it should. Is that a small mistake?
#
# > **1. 只多看一个词元。** 用 `off_by_one` 再训练一个模型，同样检验一下，和前两个比一比。
# > 它只比应该看的多看了一个词元，这算小错吗？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# third, _ = learn(off_by_one)
# loss, accuracy, whole_rows, _ = examine(third, off_by_one)
# print(f"off by one: loss {loss:.2f}, right tokens {accuracy:.1%}, whole rows {whole_rows:.1%}")
# ```
#
# It is as bad as no mask at all: the one token is just the answer.
#
# > 和完全没有掩码一样糟：多看的那一个，恰恰就是答案。
#
# </details>

# %% [markdown]
# **2. A head that looks back.** Make up queries and keys for five tokens such that each token
# attends to the one *before* it (and the first to itself). Hint: let the keys be the rows of the
# identity matrix, which say "I am at position 0", "I am at position 1", ...
#
# > **2. 一个“往回看”的头。** 为五个词元编出查询和键，使每个词元都去看它*前面*的那个
# > （第一个看自己）。提示：让键等于单位矩阵的各行，意思是“我在第 0 位”“我在第 1 位”……
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# keys = np.eye(5, dtype=np.float32)  # each says where it stands
# queries = 20 * keys[[0, 0, 1, 2, 3]]  # each asks for the position before; 20 makes it sure
# back = scaled_dot_product_attention(queries[None, None], keys[None, None], keys[None, None])
# print(np.argmax(back.weights[0, 0], axis=-1))
# print(back.weights[0, 0].numpy())
# ```
#
# Such heads do appear in trained models. They need to know the positions: that is where notebook 3
# begins.
#
# > 训练好的模型里真的会出现这样的头。它们必须知道位置，第 3 课就从位置讲起。
#
# </details>
