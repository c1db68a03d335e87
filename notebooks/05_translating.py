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
# # 5. Translating
# # 5. 翻译
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# A trained model only answers one question: which token comes next? Making a whole sentence out of
# such answers is called *decoding* or *search*. Here you do it by hand, first the simplest way,
# then faster, then with more foresight, and once with dice.
#
# > 训练好的模型只会回答一个问题：下一个词元是什么？把一个个回答连成整句，叫做*解码*，也叫*搜索*。
# > 这一课动手来做：先用最简单的办法，再做得快一点，再看得远一点，最后还要掷一回骰子。
#
# **You will learn 你将学到**
#
# - greedy search, from `<s>` to `</s>`, with all its probabilities
#   贪心搜索：从 `<s>` 到 `</s>`，每一步的概率
# - what a cache saves, and that it changes nothing else 缓存省下了什么，又为什么不改变结果
# - beam search and the length penalty, on a table small enough to check
#   束搜索和长度惩罚（用一张能手算的小表）
# - sampling, truncated translations, long texts 抽样、被截断的译文、长文本
#
# Under a minute on two CPU cores. 两个 CPU 核不到一分钟。
#
# ← [4. Training 训练](04_training.ipynb) ·
# [6. Is it any good? 翻得好不好？](06_is_it_any_good.ipynb) →

# %% [markdown]
# ## Before we start
# ## 准备工作
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
import time
from pathlib import Path

# TensorFlow's C++ side greets on standard error, whatever Python is told; not in here.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import tensorflow as tf

tf.zeros([1])  # wakes up the devices, which is announced as well
os.dup2(standard_error, 2)
logging.getLogger("absl").setLevel(logging.ERROR)

import matplotlib.pyplot as plt
import numpy as np

import nmt
from nmt.visualize.fonts import font_for

print("nmt", nmt.__version__, "| tensorflow", tf.__version__)

# %% [markdown]
# The settings to play with: any English sentence, and how long the longest beginning is when the
# cache is measured (64, 128 or 256 tokens).
#
# > 下面的值可以随意改：任意一个英文句子，以及测量缓存时最长的开头有多少个词元（64、128 或 256）。

# %% tags=["parameters"] toy={"LONGEST": 64}
SENTENCE = "He gave me a book yesterday."
LONGEST = 256

# %% [markdown]
# We use the small model that comes with the project. It knows short everyday sentences.
#
# > 我们用项目自带的小模型，它会翻译日常短句。

# %%
places = (Path(PROJECT), Path("."), Path(".."))
ROOT = next(place for place in places if (place / "checkpoints" / "pretrained").is_dir())
translator = nmt.load(ROOT / "checkpoints" / "pretrained")
model = translator.searcher.models[0]
source_tokenizer, target_tokenizer = translator.source_tokenizer, translator.target_tokenizer
show = target_tokenizer.pieces
print(f"{model.config.num_layers} layers, {model.count_params():,} weights")
print(f"{target_tokenizer.vocab_size:,} Chinese subwords to choose from")

# %% [markdown]
# ## 1. Greedy search
# ## 1. 贪心搜索
#
# Begin with `<s>` (BOS). Ask which token comes next, take the most likely one, append it, ask
# again, until `</s>` (EOS) comes. A model need not ever say `</s>`, so there is a limit as well: as
# many tokens as the source has, and 50 more. The whole loop:
#
# > 从 `<s>`（BOS）开始：问下一个词元是什么，取概率最大的那个，接在后面，再问，
# > 直到出现 `</s>`（EOS）。模型不一定会说 `</s>`，所以还有长度上限：原文的词元数再加 50。
# > 整个循环就是：

# %%
from nmt.data.batches import pad
from nmt.decoding.sentences import EXTRA_TARGET_TOKENS
from nmt.text.tokenizer import BOS, EOS, PAD


def source_ids_of(sentence):
    """Return (1, S) ids of an English sentence, closed by EOS."""
    return pad([np.array([*source_tokenizer.encode([sentence])[0], EOS])])


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


# %%
print(SENTENCE)
steps = list(greedy(source_ids_of(SENTENCE)))
written = [token for token, p in steps]
for number, (_, p) in enumerate(steps, 1):
    best = np.argsort(-p)[:4]
    candidates = zip(show(best), p[best], strict=True)
    print(f"{number:2}.", "   ".join(f"{piece} {share:.1%}" for piece, share in candidates))
print(target_tokenizer.decode(written))

# %% [markdown]
# Each line shows the four best candidates with their probabilities, the chosen one first. Look
# where the model hesitates, and where the end, `</s>`, becomes likely. The probability of the whole
# translation is the product of the chosen ones. As such products get tiny, one adds their
# logarithms instead:
#
# > 每一行是概率最高的四个候选，排在最前的就是被选中的。看看模型在哪里犹豫，
# > 又从哪里开始觉得该结束（`</s>`）了。整个译文的概率，是各步选中概率的乘积；
# > 乘积很快就小得看不清，所以改为把对数相加：

# %%
chosen_p = np.array([p[token] for token, p in steps])
translation = translator.translate(SENTENCE)
print(f"by hand 手写:   {target_tokenizer.decode(written)}", end="   ")
print(f"product 乘积 {chosen_p.prod():.3g}, sum of logs 对数之和 {np.log(chosen_p).sum():.3f}")
print(f"translate 自带: {translation.text}   log_prob {translation.log_prob:.3f}")

# %% [markdown]
# ## 2. The cache
# ## 2. 缓存
#
# Our loop gives the decoder the *whole* beginning every time, to get one new token. But the
# look-ahead mask forbids earlier positions to see later ones: whatever was computed for them
# **cannot change** when a token is added. So the decoder layers' keys and values are kept (`past`),
# and only the newest token is computed.
#
# > 上面的循环每次都把*整个*开头交给解码器，只为得到一个新词元。可是前瞻掩码不许前面的位置看后面的，
# > 所以新词元加进来之后，前面算过的东西**不可能改变**。于是把各解码层的键和值存起来（`past`），
# > 只计算最新的那个词元。

# %%


def write(source_ids, length, cached):
    """Return so many greedy tokens (B, length), whether or not they end in between."""
    encoded, past = model.encode(source_ids), None
    memory, target = model.project_memory(encoded), np.full((len(source_ids), 1), BOS)
    for _ in range(length):
        read = target[:, -1:] if cached else target
        decoded = model.decode(read, memory, encoded.may_attend, past)
        past = decoded.past if cached else None
        newest = np.argmax(model.project(decoded.hidden[:, -1:]), axis=-1)
        target = np.concatenate([target, newest], axis=1)
    return target[:, 1:]


tokens = {cached: write(source_ids_of(SENTENCE), 12, cached) for cached in (False, True)}
print("without cache 不用缓存:", *show(tokens[False][0]))
print("with cache 使用缓存:   ", *show(tokens[True][0]))

# %% [markdown]
# (What stands behind `</s>` means nothing; the loop here just goes on.) For n tokens the decoder
# computes n positions instead of 1 + 2 + … + n = n(n+1)/2. How much time does it save? We measure
# one step, "one more token for eight sentences", while the beginning gets longer; what counts is
# the ratio, for the times themselves depend on the machine.
#
# > （`</s>` 之后的内容没有意义，这个循环只是没有停下来。）n 个词元，解码器只需计算 n 个位置，
# > 而不是 1 + 2 + … + n = n(n+1)/2 个。能省多少时间？我们只测一步，
# > 即“给八个句子各添一个词元”，而开头越来越长。具体时间因机器而异，要看的是比值。

# %%
encoded = model.encode(np.repeat(source_ids_of(SENTENCE), 8, axis=0))
memory = model.project_memory(encoded)


@tf.function(reduce_retracing=True)  # as a graph, for speed: as nmt itself does it
def next_logits(target, past):
    decoded = model.decode(target, memory, encoded.may_attend, past)
    return model.project(decoded.hidden[:, -1])


def milliseconds(*inputs):
    """Return the shortest time of ten calls, after a first one that builds the graph."""
    next_logits(*inputs)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        next_logits(*inputs)
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


lengths = [n for n in (8, 64, 128, 256) if n <= LONGEST]
ratios, differences = [], []
for n in lengths:
    target = tf.constant(np.random.default_rng(1).integers(4, 100, (8, n)), tf.int32)
    past = model.decode(target[:, :-1], memory, encoded.may_attend).past
    slow, fast = milliseconds(target, None), milliseconds(target[:, -1:], past)
    ratios.append(slow / fast)
    difference = next_logits(target, None) - next_logits(target[:, -1:], past)
    differences.append(np.abs(difference).max())
    print(f"{n:3} tokens: {slow:6.1f} ms without, {fast:5.1f} ms with", end=", ")
    print(f"{ratios[-1]:5.1f} times faster; largest difference {differences[-1]:.0e}")

# %%


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font, labelpad=7)


figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.plot(lengths, ratios, "o-")
axis.axhline(1, color="gray", linestyle=":")
axis.set_ylim(0)
caption(
    axis, "What the cache saves 缓存省下的时间", "tokens so far 已有词元数", "times faster 倍数"
)

# %% [markdown]
# The longer the translation, the more it pays. (On a GPU, which computes many positions at once,
# short ones may show little gain. The differences are rounding: the same sums in another order.)
#
# > 译文越长，缓存越划算。（GPU 能同时计算许多位置，译文短时也许看不出多少好处。
# > 那点差别只是舍入误差：同样的数，相加的次序不同。）

# %% [markdown]
# ## 3. Where greedy goes wrong
# ## 3. 贪心错在哪里
#
# Greedy search never takes anything back. What looks best now may have no good continuation. To
# check this by hand, here is a "model" of five tokens that translates *I am fine.* It looks only at
# the newest token, so it is a table; each row holds the probabilities of the next token:
#
# > 贪心搜索从不反悔；现在看着最好的，后面可能无路可走。为了能手算，这里有个只有五个词元的“模型”，
# > 要翻译 *I am fine.*。它只看最新的词元，所以就是一张表，每一行是下一个词元的概率：

# %%
TABLE = {
    "<s>": {"我": 0.6, "好": 0.3, "很": 0.1},
    "我": {"是": 0.5, "很": 0.4, "好": 0.1},
    "是": {"好": 0.4, "很": 0.3, "我": 0.3},
    "很": {"好": 1.0},
    "好": {"</s>": 0.9, "我": 0.1},
}


def every_sentence(words=("<s>",), p=1.0, limit=6):
    """Yield (probability, words) of each sentence of at most `limit` tokens."""
    if words[-1] == "</s>":
        yield p, words[1:]
    elif len(words) <= limit:
        for word, share in TABLE[words[-1]].items():
            yield from every_sentence((*words, word), p * share, limit)


sentences = sorted(every_sentence(), reverse=True)
print(f"{len(sentences)} sentences of at most 6 tokens; the likeliest are 概率最大的是")
for p, words in sentences[:5]:
    print(f"{p:.4f}  {''.join(words)}")

# %% [markdown]
# Follow greedy search with your finger: `<s>` → 我 (0.6) → 是 (0.5) → 好 (0.4) → `</s>` (0.9),
# together 0.6 · 0.5 · 0.4 · 0.9 = 0.108, and wrong Chinese. 是 looked best after 我, but nothing
# fits well after it.
#
# > 用手指跟着贪心走一遍：`<s>` → 我（0.6）→ 是（0.5）→ 好（0.4）→ `</s>`（0.9），
# > 合起来 0.6 · 0.5 · 0.4 · 0.9 = 0.108，而且“我是好”根本不通。
# > “我”后面看上去最好的是“是”，可“是”后面接什么都不太合适。
#
# **Beam search** keeps the `beam` best beginnings, called *hypotheses*, side by side. In each step
# all of them are continued in every way, and the best of *all* continuations survive. One that has
# ended keeps its place. With a beam of 2 nothing more is needed than this:
#
# > **束搜索**同时保留最好的 `beam` 个开头（叫做*假设*，hypothesis；`beam` 就是*束宽*）：
# > 每一步把它们全都用各种方式接下去，再从*所有*结果里留下最好的几个；
# > 已经结束的保住自己的位置。做法不过如此，先看束宽 1 和 2：

# %%


def beam_by_hand(beam):
    """Return (probability, words) of the hypotheses that are left, best first."""
    alive, ended = [(1.0, ("<s>",))], []
    while alive:
        longer = [(p * q, (*words, w)) for p, words in alive for w, q in TABLE[words[-1]].items()]
        # Those that have ended stay; the best of all continuations fill the other places.
        kept = ended + sorted(longer, reverse=True)[: beam - len(ended)]
        ended = [each for each in kept if each[1][-1] == "</s>"]
        alive = [each for each in kept if each[1][-1] != "</s>"]
        print("  ", "   ".join(f"{''.join(words[1:])} {p:.3f}" for p, words in kept))
    return sorted(ended, reverse=True)


for beam in (1, 2):
    print(f"beam {beam}, step by step 逐步")
    p, words = beam_by_hand(beam)[0]
    print(f"best: {''.join(words[1:])} {p:.3f}\n")

# %% [markdown]
# A beam of 1 *is* greedy search. A beam of 2 finds the likeliest sentence of all. The search of
# `nmt` knows no model and no text: it asks a *step function*, which takes the newest token of each
# hypothesis and returns log-probabilities. So it can search our table just as well as a
# Transformer. (`state` is what a step hands on to the next: for a Transformer the cache, for our
# table nothing. `permit` says which tokens may come; `follow` is the greedy search.)
#
# > 束宽为 1 *就是*贪心搜索；束宽为 2 找到了概率最大的句子。`nmt` 的搜索不认识模型，也不认识文字，
# > 它只向一个*步函数*提问：给出每个假设最新的词元，取回对数概率。所以它既能搜索 Transformer，
# > 也能搜索我们的表。（`state` 是这一步传给下一步的东西：Transformer 传的是缓存，
# > 我们的表什么也不用传。`permit` 规定哪些词元可以出现；`follow` 就是贪心搜索。）

# %%
from nmt.decoding.search import beam_search, follow, length_penalty, permit_tokens

words = ["<pad>", "<s>", "</s>", "<unk>", "我", "是", "很", "好"]  # PAD, BOS, EOS are 0, 1, 2
table = np.full([len(words), len(words)], -np.inf, np.float32)
for newest, row in TABLE.items():
    for word, share in row.items():
        table[words.index(newest), words.index(word)] = np.log(share)


def step(newest, state):
    """Return the log-probabilities (B, N, V) of what follows the newest tokens (B, N)."""
    return tf.gather(table, newest), state


def table_search(beam, alpha=0.0):
    """Return (score, sentence) of each hypothesis, best first."""
    found = beam_search(step, (), limits, **common, beam=beam, nbest=beam, alpha=alpha)
    sentences = ["".join(words[i] for i in ids if i != PAD) for ids in found.ids[0].numpy()]
    return list(zip(found.scores[0].numpy(), sentences, strict=True))


limits = np.array([6], np.int32)  # one sentence, of at most six tokens
common = dict(bos=BOS, eos=EOS, pad=PAD, permit=permit_tokens(forbidden=[BOS, PAD], pad=PAD))
by_greedy = follow(step, (), limits, **common)
print("greedy", "".join(words[i] for i in by_greedy.ids[0, 0].numpy() if i != PAD))
for beam in (1, 2):
    print(f"beam {beam}", *(f"{text} {np.exp(score):.3f}" for score, text in table_search(beam)))

# %% [markdown]
# ## 4. The length penalty
# ## 4. 长度惩罚
#
# Is the likeliest sentence the best one? 好 alone is short and casual; 我很好 says all of *I am
# fine*. But every token more multiplies the probability by at most 1: **each word costs**, and a
# search for the likeliest sentence likes them too short. The remedy of Wu et al. 2016 divides the
# sum of the logarithms by a penalty that grows with the number of tokens, `</s>` counted:
#
# > 概率最大的句子就是最好的吗？“好”太短、太随便；“我很好”才把 *I am fine* 说全了。
# > 可是每多一个词元，概率就要再乘上一个不大于 1 的数：**多一个词就多一分代价**，
# > 所以一味找概率最大的句子，就会偏爱过短的。Wu 等（2016）的办法是：
# > 把对数之和除以一个随词元数（`</s>` 也算）增长的数：
#
# $$\text{score} = \frac{\log p}{lp}, \qquad
# lp = \left(\frac{5 + \text{length}}{6}\right)^{\alpha}$$
#
# By hand, for two candidates and three values of α (scores are negative; nearer to 0 is better):
#
# > 对两个候选、三个 α 值，动手算一遍（分数是负数，越接近 0 越好）：

# %%
candidates = {"好</s>": (2, 0.3 * 0.9), "我很好</s>": (4, 0.6 * 0.4 * 1.0 * 0.9)}
for alpha in (0.0, 0.6, 1.0):
    by_hand = {
        sentence: np.log(p) / ((5 + length) / 6) ** alpha
        for sentence, (length, p) in candidates.items()
    }
    [(score, winner), *_] = table_search(3, alpha)
    print(f"α = {alpha}:", "   ".join(f"{s} {x:.4f}" for s, x in by_hand.items()), end="   ")
    print(f"nmt: {winner} {score:.4f}")

# %%
alphas = np.linspace(0, 1.5, 100)
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for p, sentence in sentences[:3]:
    scores = np.log(p) / length_penalty(len(sentence), alphas.astype(np.float32))
    axis.plot(alphas, scores, label=f"{''.join(sentence)}   p = {p:.3f}")
axis.legend(prop=font_for(TABLE))
caption(axis, "Which sentence wins? 哪一句胜出？", "α", "score 分数")

# %% [markdown]
# Where two lines cross, the winner changes. `nmt` takes α = 0.6, as the paper of the Transformer
# does; here that is almost, but not quite, enough. (The beam is 3 because with 2 the beginning 我很
# is lost in step 2: look above. A beam search is no guarantee.)
#
# > 两条线相交之处，胜者易主。`nmt` 和 Transformer 论文一样取 α = 0.6，在这里差一点点才够。
# > （这里束宽取 3，因为取 2 时“我很”在第 2 步就被挤掉了，见上文。束搜索并不保证找到最好的。）

# %% [markdown]
# ## 5. Beam search with the real model
# ## 5. 用真模型做束搜索
#
# `SearchOptions` says how to search. `nbest=4` returns all four hypotheses, best first:
#
# > `SearchOptions` 规定怎样搜索；`nbest=4` 把四个假设都返回，最好的在前：

# %%
from nmt.decoding.options import SearchOptions

best = translator.translate(SENTENCE, SearchOptions(beam=4, nbest=4))
ranked = [best, *best.alternatives]
print(SENTENCE)
for each in ranked:
    print(f"score {each.score:7.3f}   log_prob {each.log_prob:7.3f}   {each.text}")

# %% [markdown]
# `score` is what they are ranked by: `log_prob` over the length penalty. Look at the lower ranks:
# often they say the same in other words, sometimes they are plainly wrong. Now greedy and beam 4
# for a few sentences, with the log-probability of what they found; without the penalty, so that
# both look for nothing but the likeliest:
#
# > 排名依据是 `score`，即 `log_prob` 除以长度惩罚。看看排在后面的几个：有的只是换了个说法，
# > 有的明显错了。下面对几个句子比较贪心与束宽 4，并给出各自找到的译文的对数概率。
# > 这里不用长度惩罚，两者都只管找概率最大的：

# %%
texts = [
    "I will call you as soon as I get home.",
    "She asked me to help her with her homework.",
    "There is a cat under the table.",
    "We have been waiting for two hours.",
    "Can you tell me how to get to the station?",
    "He is too young to drive a car.",
]
greedy_found = translator.translate(texts)
beam_found = translator.translate(texts, SearchOptions(beam=4, length_penalty=0.0))
for text, one, four in zip(texts, greedy_found, beam_found, strict=True):
    print(text)
    print(f"  greedy {one.log_prob:7.2f}  {one.text}")
    print(f"  beam 4 {four.log_prob:7.2f}  {four.text if four.text != one.text else 'same 相同'}")

# %% [markdown]
# (Nearer to 0 is likelier.) Two different things can go wrong. A **search error**: a likelier
# translation exists, and greedy search missed it; a beam mends that. A **model error**: the
# likelier translation is the *worse* one; then a better search makes it worse still, often by
# leaving something out. Read the pairs above with this in mind. For a small model both happen,
# which is why a beam helps a little on the average, not always, and why very wide beams do harm.
#
# > （越接近 0，概率越大。）出错有两种。**搜索错误**：有概率更大的译文，贪心却错过了，
# > 束搜索能补救。**模型错误**：概率更大的译文反而*更差*，这时搜索得越好，结果越糟，
# > 常见的是漏译。带着这个想法再看看上面的例子。小模型两种错都会犯，
# > 所以束搜索平均有些帮助，但不是每句都有；束太宽反而有害。

# %% [markdown]
# ## 6. Sampling
# ## 6. 抽样
#
# Instead of the best token one can *draw* one by its probability. A **temperature** t sharpens or
# flattens the distribution first: logits are divided by t. Here is the first token of our sentence
# at three temperatures:
#
# > 也可以不取最好的，而是按概率*抽*一个。抽之前先用**温度** t 把分布变尖或变平：logits 除以 t。
# > 下面是我们这个句子的第一个词元在三种温度下的概率：

# %%
log_p = np.log(np.maximum(steps[0][1], 1e-30))
likeliest = np.argsort(-log_p)[:6]
labels = [*show(likeliest), "rest\n其余"]
figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), sharey=True, layout="constrained")
axes[0].set_ylabel("probability 概率", fontproperties=font_for("概率"))
for axis, temperature in zip(axes, (0.5, 1.0, 2.0), strict=True):
    p = tf.nn.softmax(log_p / temperature).numpy()
    axis.bar(range(7), [*p[likeliest], 1 - p[likeliest].sum()], color=["C0"] * 6 + ["gray"])
    axis.set_xticks(range(7), labels, font=font_for(labels))
    axis.set_ylim(0, 1)
    axis.set_title(f"t = {temperature}")

# %% [markdown]
# Three translations are drawn at each temperature. Only the first 12 characters are shown: what is
# drawn at a high temperature is nonsense.
#
# > 每个温度各抽三个译文，只显示前 12 个字：温度高时抽出来的是胡话。

# %%
for temperature in (0.3, 1.0, 1.5):
    options = SearchOptions(
        beam=3, nbest=3, sampling=True, temperature=temperature, length_penalty=0.0, seed=1
    )
    drawn = translator.translate(SENTENCE, options)
    for each in (drawn, *drawn.alternatives):
        print(f"t = {temperature}  log_prob {each.log_prob:7.2f}  {each.text[:12]}")

# %% [markdown]
# A low temperature comes close to greedy search (equal draws are listed once). At 1 you see what
# the model *believes*, with all its doubts; above that it is soon pulling words out of a hat,
# because thousands of hopeless tokens together (the gray bar) get a large share. For translation
# one searches; sampling is for variety. `top_k` and `top_p` cut off the hopeless tokens.
#
# > 温度低就接近贪心搜索（抽到相同的只列一次）；温度为 1，看到的是模型*真正相信*什么，
# > 包括它所有的犹豫；再高就很快变成抓阄了，因为几千个毫无希望的词元（灰色那条）
# > 加起来占了很大的份额。翻译用搜索，求多样才用抽样；`top_k` 和 `top_p` 可以把毫无希望的词元砍掉。

# %% [markdown]
# ## 7. Truncated translations
# ## 7. 被截断的译文
#
# A translation that reaches the length limit without `</s>` is cut there and marked `truncated`: it
# is not a sentence that the model has finished. It mostly means that the model has lost its way and
# repeats itself, or that the input is nothing it knows. We can force it: at temperature 100 all
# tokens are about equally likely, and among thousands `</s>` hardly ever comes.
#
# > 如果到了长度上限还没出现 `</s>`，译文就在那里被截断，并标上 `truncated`：这不是模型说完的句子。
# > 多半说明模型迷了路、在重复自己，或者输入的东西它根本没见过。我们可以故意制造一个：
# > 温度取 100 时，所有词元的概率都差不多，几千个里面很难抽到 `</s>`。

# %%
lost = translator.translate(SENTENCE, SearchOptions(sampling=True, temperature=100.0))
print(f"truncated 截断: {lost.truncated}, {len(lost.target_tokens)} tokens, limit", end=" ")
print(source_ids_of(SENTENCE).size + EXTRA_TARGET_TOKENS)
print(f"truncated 截断: {best.truncated}, {len(best.target_tokens)} tokens, the last is", end=" ")
print(best.target_tokens[-1])

# %% [markdown]
# ## 8. Long texts
# ## 8. 长文本
#
# The model has learned from single short sentences. A whole paragraph is nothing it has ever seen.
# `translate_documents` cuts a text into sentences, translates each and joins them again; lines stay
# lines:
#
# > 模型是从单个短句学来的，整段文字它从没见过。`translate_documents` 先把文本切成句子，逐句翻译，
# > 再拼起来；换行保持不变：

# %%
from nmt.decoding.documents import translate_documents

text = """Good morning. How are you?

I am fine, but I have a lot of work to do. Can you help me?"""
(document,) = translate_documents(translator, [text])
print("in one piece 整段直接翻译:\n" + translator.translate(text).text)
print("\nsentence by sentence 逐句翻译:\n" + document.text, "\n")
for segment in document.segments:
    print(f"{segment.source} → {segment.text}")

# %% [markdown]
# On the command line all of this is `nmt translate`, for example with `--beam 4`, `--nbest 4`,
# `--sample` or, for files, `--input`.
#
# > 命令行里这些都由 `nmt translate` 完成，例如加上 `--beam 4`、`--nbest 4`、`--sample`，
# > 翻译文件用 `--input`。

# %% [markdown]
# ## Checks
# ## 检查

# %%
# The loop by hand is greedy search, token for token, and so are its probabilities.
assert show(written) == translation.target_tokens
np.testing.assert_allclose(np.log(chosen_p), translation.token_log_probs, atol=1e-3)

# The cache changes nothing, and the longer the beginning the more it saves (on a GPU: see above).
assert np.array_equal(tokens[False], tokens[True])
assert max(differences) < 1e-3
assert ratios[-1] > ratios[0] or tf.config.list_physical_devices("GPU")

# In the table: greedy is not the best of all sentences, beam 2 is, and by hand it is the same.
assert table_search(1)[0][1] == "我是好</s>" != "".join(sentences[0][1])
assert table_search(2)[0][1] == "".join(sentences[0][1]) == "好</s>"
np.testing.assert_allclose(np.exp(table_search(2)[0][0]), sentences[0][0], rtol=1e-5)

# The length penalty of 5 tokens at 0.6, and how it changes the winner.
np.testing.assert_allclose(length_penalty(5, 0.6), (10 / 6) ** 0.6, rtol=1e-6)
assert [table_search(3, alpha)[0][1] for alpha in (0.6, 1.0)] == ["好</s>", "我很好</s>"]

# Hypotheses are ranked by log_prob over the penalty.
scores = [each.log_prob / ((5 + len(each.target_tokens)) / 6) ** 0.6 for each in ranked]
np.testing.assert_allclose(scores, [each.score for each in ranked], rtol=1e-4)
assert scores == sorted(scores, reverse=True)

# Truncated means: as long as the limit, and no end.
assert lost.truncated == (lost.target_tokens[-1] != "</s>")
assert not lost.truncated or len(lost.target_tokens) == len(lost.source_tokens) + 50
assert document.text.count("\n") == text.count("\n")
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. The tipping point.** Section 4: at which α do 好 and 我很好 have exactly the same score?
# Solve it on paper, then ask `table_search` just below and just above.
#
# > **1. 临界点。** 第 4 节里，α 等于多少时“好”与“我很好”的分数恰好相同？先在纸上解出来，
# > 再用 `table_search` 在它下面一点和上面一点各查一次。
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# short, long = np.log(0.27), np.log(0.216)  # 2 and 4 tokens
# tipping = np.log(long / short) / np.log(9 / 7)
# print(f"α = {tipping:.4f}")
# for alpha in (tipping - 0.01, tipping + 0.01):
#     print(f"{alpha:.4f}", table_search(3, alpha)[0][1])
# ```
#
# short / (7/6)^α = long / (9/6)^α means (9/7)^α = long / short, so α is the quotient of two
# logarithms.
#
# > 由 short / (7/6)^α = long / (9/6)^α 得 (9/7)^α = long / short，所以 α 是两个对数之商。
#
# </details>

# %% [markdown]
# **2. Roll the dice yourself.** Change `greedy` of section 1 into a version that *samples* the next
# token, with a temperature. Translate `SENTENCE` three times each with t = 0.1 and 1.
#
# > **2. 自己掷骰子。** 把第 1 节的 `greedy` 改成按概率*抽样*的版本，并加上温度。
# > 令 t = 0.1 和 1，各把 `SENTENCE` 翻译三次。
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
# for temperature in (0.1, 1.0):
#     print(temperature, [sample(source_ids_of(SENTENCE), temperature, dice) for _ in range(3)])
# ```
#
# Dividing the logits by t is the same as raising the probabilities to the power 1/t and letting
# them sum to 1 again. At 0.1 the three are nearly always equal, and equal to greedy search.
#
# > 把 logits 除以 t，等于把概率取 1/t 次方再重新归一化。t = 0.1 时，三次几乎总是一样，
# > 而且与贪心搜索相同。
#
# </details>
