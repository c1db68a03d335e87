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
# # 7. Looking inside
# # 7. 打开看看
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# A translator that has been trained comes with this project. Here you open it: where does each head
# look, what is it good for, which one can be used to align words, and how much may one believe such
# pictures? At the end you watch a small model *learn* to look, as a film.
#
# > 项目里附带了一个训练好的翻译模型。这一课把它打开：每个头在看哪里，各有什么用，
# > 哪一个可以用来做词对齐，这样的图又能信几分？最后像看电影一样，看一个小模型怎样*学会*看。
#
# **You will learn 你将学到**
#
# - to draw and read attention: a head, a layer, all of them, their mean
#   画注意力图、读注意力图：一个头、一层、全部、平均
# - to explore a translation with the mouse 用鼠标探索一个译文
# - to measure what heads do, instead of guessing 用数字而不是凭感觉说每个头在做什么
# - to get word alignments out of attention 从注意力得到词对齐
# - why attention is a hint and no explanation 为什么注意力只是线索，不是解释
#
# About one minute on two CPU cores. You should know what attention is (notebook 2).
# 两个 CPU 核大约一分钟。注意力是什么，请先看第 2 课。
#
# ← [6. Is it any good? 翻得好不好？](06_is_it_any_good.ipynb) ·
# [8. The real thing 来真的](08_the_real_thing.ipynb) →

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
import contextlib
import logging
import os
import random
import tempfile
from pathlib import Path

# TensorFlow's C++ side greets on standard error, whatever Python is told; not in here.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import tensorflow as tf

tf.zeros([1])  # wakes up the devices, which is announced as well
os.dup2(standard_error, 2)
logging.getLogger("absl").setLevel(logging.ERROR)
# That a toy text supports few subwords is no news here.
logging.getLogger("nmt").setLevel(logging.ERROR)

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import nmt
from nmt.visualize.fonts import font_for

plt.show()  # wakes pyplot up: before that, figures are shown as text only
print("nmt", nmt.__version__, "| tensorflow", tf.__version__)

# %% [markdown]
# A sentence to look into, the corpus from which held-out pairs are taken, how many of them, and how
# many updates the film shows:
#
# > 要看的句子、从哪个语料库取留出的句对、取多少对、电影里训练多少步：

# %% tags=["parameters"] toy={"CORPUS": "hsk", "PAIRS": 10, "FILM_STEPS": 40}
SENTENCE = "My sister bought a new car yesterday."
CORPUS = "tatoeba"
PAIRS = 60
FILM_STEPS = 400

# %% [markdown]
# ## 1. The model
# ## 1. 模型
#
# A *run folder* holds all that is needed: the configuration, both vocabularies, the weights.
#
# > 一个*运行文件夹*里应有尽有：配置、两张词表、参数。

# %%
places = (Path(PROJECT), Path("."), Path(".."))
ROOT = next(place for place in places if (place / "checkpoints" / "pretrained").is_dir())
translator = nmt.load(ROOT / "checkpoints" / "pretrained")
model = translator.searcher.models[0]
layers, heads = model.config.num_layers, model.config.num_heads
print(f"{layers} layers, {heads} heads, d_model {model.config.d_model}")
print(f"{model.count_params():,} weights")

translation = translator.translate(SENTENCE, attention=True)
print(translation.source, "→", translation.text)
for name, weights in translation.attention._asdict().items():
    print(f"{name:8} (layers, heads, rows, columns) = {weights.shape}")

# %% [markdown]
# ## 2. Heatmaps
# ## 2. 热力图
#
# There are three kinds of attention, and in each layer every head has its own. **Cross-attention**
# first, one head of the last layer. A row is a token of the translation at the moment when it is
# *about to be written*; a column is a token of the source; bright means "looks here". Each row sums
# to 1.
#
# > 注意力有三种，每一层的每个头各看各的。先看**交叉注意力**，取最后一层的一个头。
# > 每一行是译文的一个词元（*即将写出*它的那一刻），每一列是原文的一个词元；越亮表示看得越多。
# > 每行之和为 1。

# %%
from nmt.visualize.heatmap import plot_translation

plot_translation(translation, heads=[1])

# %% [markdown]
# Now a whole layer, all heads side by side; and then every head of every layer.
#
# > 再看整整一层，所有的头并排；然后是每一层的每一个头。

# %%
plot_translation(translation)

# %%
plot_translation(translation, layers=range(1, layers + 1))

# %% [markdown]
# Heads differ. Some follow the words, some spread over everything, some rest on one token. The
# **mean** over the heads of a layer is one tidy picture, and it hides all of that: when two heads
# look at two different words, the mean seems to hesitate between them, though nobody hesitates.
#
# > 每个头都不一样：有的跟着词走，有的四处张望，有的停在一个词元上。一层各头的**平均**只有一张图，
# > 看着整齐，却把这些差别都盖住了：两个头各看一个词，平均起来就像在两个词之间犹豫，
# > 其实谁也没有犹豫。

# %%
plot_translation(translation, layers=range(1, layers + 1), mean=True)

# %% [markdown]
# **Self-attention.** In the encoder the source looks at itself, in both directions.
#
# > **自注意力。** 编码器里，原文看原文自己，前后都能看。

# %%
plot_translation(translation, kind="encoder", layers=[1, layers], mean=True)

# %% [markdown]
# In the decoder the translation looks at what has been *read* so far. Its first column is the
# beginning of the sentence, `<s>`; the hatched part is forbidden by the look-ahead mask. Row t
# predicts token t, and what was read last stands on the diagonal: token t − 1.
#
# > 解码器里，译文看的是*已经读入*的部分。第一列是句首 `<s>`；打斜线的部分被前瞻掩码挡住了。
# > 第 t 行预测第 t 个词元，对角线上是刚读入的那一个，即第 t − 1 个。

# %%
plot_translation(translation, kind="decoder", layers=[1, layers], mean=True)

# %% [markdown]
# On the command line: 在命令行里：
#
# ```
# nmt attention checkpoints/pretrained "I like cats." --layer 2 --head 1 -o cats.png
# nmt attention checkpoints/pretrained "I like cats." --grid -o grid.png
# nmt attention checkpoints/pretrained "I like cats." --kind decoder --mean -o decoder.png
# ```

# %% [markdown]
# ## 3. With the mouse
# ## 3. 动动鼠标
#
# The same in one place: point at a token and see where it looks; choose layers, heads and kinds of
# attention; click a map to enlarge it. (If you see nothing here, run the cell, or trust the
# notebook.)
#
# > 全都放在一处：指着一个词元，看它在看哪里；选层、选头、选注意力的种类；点一下小图可以放大。
# > （如果这里是空白，运行这一格，或把笔记本设为受信任。）

# %%
from nmt.visualize import show

show(translation)

# %% [markdown]
# `nmt attention checkpoints/pretrained "I like cats." --html cats.html` writes it as a page.
#
# > `nmt attention checkpoints/pretrained "I like cats." --html cats.html` 把它存成网页。

# %% [markdown]
# ## 4. What do heads do?
# ## 4. 每个头在做什么？
#
# One sentence proves nothing. Take sentences that the model was not trained on, translate them, and
# measure for each head how much of its attention goes where.
#
# > 一个句子说明不了什么。取一些没训练过的句子来翻译，量一量每个头把多少注意力放在哪里。

# %%
import tensorflow_datasets as tfds

import nmt.data.builders  # makes the packaged corpora known to tfds
from nmt.data.corpora import PACKAGED
from nmt.data.splitting import SentencePair
from nmt.text.script import convert

tfds.disable_progress_bar()
with contextlib.redirect_stdout(None):  # the first time, TFDS tells where it writes
    test = tfds.load(PACKAGED[CORPUS], split="test")
held_out = [
    SentencePair(pair["en"].decode(), convert(pair["zh"].decode(), "simplified"))
    for pair in tfds.as_numpy(test.take(PAIRS))
]
looked = translator.translate([pair.source for pair in held_out], attention=True)


def share(kind, columns_of):
    """Return the mean attention, (layers, heads), that each row gives to one column of its own."""
    shares = []
    for each in looked:
        weights = getattr(each.attention, kind)  # (L, H, rows, columns)
        rows = np.arange(weights.shape[2])
        columns = columns_of(rows, weights.shape[3])
        fits = (columns >= 0) & (columns < weights.shape[3])
        shares.append(weights[:, :, rows[fits], columns[fits]].mean(axis=-1))
    return np.mean(shares, axis=0)


HABITS = {
    "encoder: the token itself 自己": ("encoder", lambda row, width: row),
    "encoder: the one before 前一个": ("encoder", lambda row, width: row - 1),
    "encoder: the one after 后一个": ("encoder", lambda row, width: row + 1),
    "encoder: </s>": ("encoder", lambda row, width: 0 * row + width - 1),
    "decoder: what was read last 刚读入的": ("decoder", lambda row, width: row),
    "decoder: the one before that 再前一个": ("decoder", lambda row, width: row - 1),
    "decoder: <s>": ("decoder", lambda row, width: 0 * row),
    "cross: </s>": ("cross", lambda row, width: 0 * row + width - 1),
}
shares = {name: share(*habit) for name, habit in HABITS.items()}
for name, values in shares.items():
    layer, head = np.unravel_index(values.argmax(), values.shape)
    print(f"{values.max():5.0%} of its attention, head {head + 1} of layer {layer + 1}: {name}")
alike = np.mean([1 / len(each.source_tokens) for each in looked])
print(f"{alike:5.0%} of the source is one token, if all are looked at alike 平均分配时每个词元所得")

# %%
figure, axes = plt.subplots(2, 4, figsize=(11, 5), layout="constrained")
for axis, (name, values) in zip(axes.flat, shares.items(), strict=True):
    axis.imshow(values, vmin=0, vmax=1.2, cmap="viridis")
    axis.set_title(name.replace(": ", ":\n"), fontproperties=font_for([name]), fontsize=9)
    axis.set_xticks(range(heads), range(1, heads + 1))
    axis.set_yticks(range(layers), range(1, layers + 1))
    for (row, column), value in np.ndenumerate(values):
        axis.text(column, row, f"{value:.0%}", ha="center", va="center", color="white", fontsize=8)
figure.supxlabel("head 头", fontproperties=font_for(["头"]))
figure.supylabel("layer 层", fontproperties=font_for(["层"]))
plt.close(figure)
display(figure)

# %% [markdown]
# Each square is a head; bright, that it does little else. Near the share that looking everywhere
# alike would give (the last line above), it is no habit at all. Heads with such plain habits are
# found in large models too: those that look at a neighbour ("positional" heads, Voita et al. 2019),
# and those that rest on `</s>` or the full stop when there is nothing to look for (Clark et al.
# 2019, for BERT). `<s>` plays that part in a decoder. How clear-cut the habits are differs from
# model to model, and in a small one most heads do several things at once.
#
# > 每个方格是一个头；很亮，说明它几乎只干这一件事。接近上面最后一行的平均值，就谈不上什么习惯。
# > 大模型里也有习惯这么单纯的头：有的总看邻居（“位置头”，Voita 等 2019），
# > 有的在没什么可找时停在 `</s>` 或句号上
# > （Clark 等 2019，BERT）；在解码器里，`<s>` 扮演同样的角色。各个模型的分工清晰程度不同，
# > 小模型里多数头身兼数职。

# %% [markdown]
# ## 5. Which head aligns?
# ## 5. 哪个头会对齐？
#
# Cross-attention that follows the words can tell which word was translated by which. There is no
# right answer to compare with, but a sign: heads that align agree with each other, while the others
# each go their own way. `alignment_scores` measures that, from 0, where a head looks tells nothing,
# to 1, it moves as all heads together do; its docstring says how it was tested.
#
# > 跟着词走的交叉注意力，可以看出哪个词译成了哪个词。没有标准答案可以对照，但有一个迹象：
# > 会对齐的头彼此一致，其余的头各看各的。`alignment_scores` 量的就是这个：
# > 0 表示看哪里都说明不了什么，1 表示与所有头的平均走向完全一致。
# > 它经过怎样的检验，写在文档字符串里。
#
# Here the *reference* translations are read (`attended`), so that the model's mistakes do not
# matter.
#
# > 这里让模型读*参考*译文（`attended`），这样它自己译错也不要紧。

# %%
from nmt.decoding.alignment import (
    align_words,
    attended,
    best_head,
    entropies,
    head_weights,
    mean_scores,
    pharaoh,
)

with_references = list(attended(translator, held_out))
scores = mean_scores(with_references)
print("alignment score, a row for each layer 每行一层:")
print(scores.round(2))
layer, head = best_head(scores)
print(f"best: layer {layer}, head {head}")
plot_translation(translation, layers=[layer], heads=[head])

# %% [markdown]
# Several heads together align better than the best alone, so `head_weights` lets each have its say
# by its score. The result in *Pharaoh* format, which other programs read: `1-0` means that source
# word 1 belongs to target character 0, both counted from 0.
#
# > 几个头合起来比最好的那个更准，所以 `head_weights` 按分数给每个头一份发言权。
# > 结果用其他程序通用的 *Pharaoh* 格式：`1-0` 表示原文第 1 个词对应译文第 0 个字，都从 0 数起。

# %%
voices = head_weights(scores)
alignments = [align_words(each, voices) for each in with_references[:10]]
for pair, alignment in zip(held_out, alignments, strict=False):
    print(f"{pair.source}   {pair.target}\n    {pharaoh(alignment.links)}")

# %%
for alignment in alignments[:3]:
    for source, target in alignment.links:
        print(f"{alignment.source_units[source]}–{alignment.target_units[target]}", end="   ")
    print()

# %% [markdown]
# Many content words of short sentences find their partner; in long ones, and where the model itself
# is lost, links go astray. Little words such as 了 or *the* have no partner, yet must point
# somewhere: every target character gets a link. `nmt align checkpoints/pretrained pairs.tsv` does
# this for a file.
#
# > 短句里的实词很多能找对；句子一长，或者模型自己也没弄明白的地方，连线就会跑偏。
# > “了”、*the* 这样的虚词没有对应的词，却非指一处不可，因为译文的每个字都会得到一条连线。
# > `nmt align checkpoints/pretrained pairs.tsv` 可以处理整个文件。

# %% [markdown]
# ## 6. Attention is not an explanation
# ## 6. 注意力不是解释
#
# A picture shows where a head looks, not what comes of it. So let us *do* something: blind one head
# and see how the probabilities of the references change. A head whose query is all zeros finds
# every key alike, so its attention becomes uniform; everything else stays.
#
# > 图上看得出一个头在看哪里，看不出看了有什么用。所以我们来*动手*试：蒙住一个头的眼睛，
# > 看参考译文的概率怎么变。把它的查询全设成零，它看每个键都一样，注意力就成了均匀分布；其余照旧。

# %%
from nmt.data.batches import make_batch
from nmt.data.prepared import encode_pairs
from nmt.training.losses import token_sums

encoded = encode_pairs(held_out, translator.source_tokenizer, translator.target_tokenizer)
batch = make_batch(encoded.source.split(), encoded.target.split())


def loss():
    """Return the mean loss of the reference tokens: minus the log of their probability."""
    sums = token_sums(model((batch.source_ids, batch.target_in_ids)), batch.target_out_ids)
    return float(sums.loss / sums.tokens)


@contextlib.contextmanager
def blinded(layer, *chosen):
    """For a while, let heads of a cross-attention layer look everywhere alike; both from 1."""
    query = model.decoder_layers[layer - 1].cross_attention.query
    saved = query.get_weights()
    kernel, bias = (weights.copy() for weights in saved)  # (M, M), (M,)
    depth = len(bias) // heads
    for head in chosen:
        kernel[:, (head - 1) * depth : head * depth] = 0
        bias[(head - 1) * depth : head * depth] = 0
    query.set_weights([kernel, bias])
    try:
        yield
    finally:
        query.set_weights(saved)  # also when the cell is interrupted


untouched = loss()
harm = np.zeros((layers, heads))
for row, column in np.ndindex(layers, heads):
    with blinded(row + 1, column + 1):
        harm[row, column] = loss() - untouched
print(f"loss untouched {untouched:.3f} nats a token; blinding one head adds")
print(harm.round(3))
with blinded(layers, *range(1, heads + 1)):
    print(f"all heads of the last layer blinded: {loss() - untouched:+.3f}", end=", ")
print(f"the sum of its heads one by one: {harm[-1].sum():+.3f}")

# %% [markdown]
# Now compare with what the pictures suggested: how *sharply* each head looks (low entropy: at few
# tokens), and how well it aligns.
#
# > 再和图上给人的印象比一比：每个头看得有多*专注*（熵低，表示只看少数词元），对齐得有多好。

# %%
sharpness = -np.mean([entropies(each.attention.cross) for each in with_references], axis=0)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
font = font_for("负的熵对齐分数损失增加，奈特→")
for axis, measure, name in (
    (left, sharpness, "minus entropy 负的熵: sharp →"),
    (right, scores, "alignment score 对齐分数 →"),
):
    for layer in range(layers):
        axis.plot(measure[layer], harm[layer], "o", label=f"layer {layer + 1}")
    axis.set_xlabel(name, fontproperties=font)
    axis.set_ylabel("harm when blinded, nats 损失增加，奈特", fontproperties=font)
    axis.legend(fontsize=8)
for name, measure in (("sharpness 专注程度", sharpness), ("alignment 对齐分数", scores)):
    print(f"correlation of harm with {name}: {np.corrcoef(measure.flat, harm.flat)[0, 1]:+.2f}")

# %% [markdown]
# Read it with care: these are a dozen heads of one model, so the correlations are rough. A head may
# look very decidedly and be of little use: what it fetches may be known already, or other heads
# fetch it as well. So blinding *all* heads of a layer is not the sum of blinding each: they stand
# in for each other. And what a head looks at are not words but vectors, into which the encoder has
# mixed the whole sentence. So: attention is a good hint where to look next, and an experiment like
# this one is what tests it. (The debate: Jain and Wallace 2019, "Attention is not Explanation";
# Wiegreffe and Pinter 2019, "Attention is not not Explanation".)
#
# > 解读要小心：这里只有一个模型的十来个头，相关系数很粗略。
# > 一个头可以看得很专注却没多大用：它取来的东西也许早已知道，也许别的头也取了。
# > 把一层的头*全部*蒙住，损失与逐个相加并不相等，因为它们会互相替补。而且头看的不是词，而是向量，
# > 编码器早已把整句话混了进去。所以注意力是很好的线索，告诉你下一步查哪里；真正能检验的，
# > 是这样的实验。（争论见 Jain 与 Wallace 2019《Attention is not Explanation》，
# > Wiegreffe 与 Pinter 2019《Attention is not not Explanation》。）

# %% [markdown]
# ## 7. The film: learning to look
# ## 7. 电影：学会看
#
# How did the heads come to this? `film_frames` translates the same sentences with every checkpoint
# of a training. To see it within seconds, a small model learns something small: dates. English puts
# the day of the week first or last, the Chinese side always says month, day, day of the week; so
# the words have to cross.
#
# > 这些头是怎么练出来的？`film_frames` 用一次训练中的每个检查点翻译同样的句子。
# > 为了几秒钟就能看到，让一个小模型学一件小事：日期。英文把星期放在最前或最后，
# > 中文总是先月、再日、再星期，所以词序必须交叉。

# %%
from nmt.config import override, preset
from nmt.data.prepared import prepare
from nmt.progress import describe
from nmt.run_folder import RunFolder
from nmt.training.trainer import train

words = str.split
WEEKDAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July")
MONTHS += words("August September October November December")
FORMS = ("{0}, {1} {2}", "on {1} {2} ({0})", "{1} {2}, {0}")

dice = random.Random(1)
dates = [
    (
        dice.choice(FORMS).format(weekday, month, day),
        f"{MONTHS.index(month) + 1}月{day}日，星期{'一二三四五六日'[WEEKDAYS.index(weekday)]}",
    )
    for weekday in WEEKDAYS
    for month in MONTHS
    for day in range(1, 32)
]
for english, chinese in dates[:: len(dates) // 3]:
    print(f"{english}   {chinese}")

# %%
folder = tempfile.TemporaryDirectory()  # goes away with the notebook's kernel
tsv, run = Path(folder.name) / "dates.tsv", RunFolder(Path(folder.name) / "dates")
tsv.write_text("".join(f"{english}\t{chinese}\n" for english, chinese in dates), encoding="utf-8")
settings = f"""
    data.corpus={tsv}              model.source_vocab_size=340     model.target_vocab_size=285
    model.num_layers=2             model.d_model=64                model.num_heads=4
    model.dff=128                  training.batch_tokens=512       training.max_minutes=null
    training.max_steps={FILM_STEPS} training.checkpoint_steps={FILM_STEPS // 8}
    training.keep_checkpoints=8    training.warmup_steps=100       training.weight_average=0.0
    training.peak_learning_rate=0.004   training.optimizer=adam
"""
prepare(run, override(preset("quickstart"), words(settings)), {"command": "notebook 7"})
learned = train(run, lambda report: report.step % 100 or print(describe(report)))
print(f"right next tokens on held-out dates: {learned.validation_accuracy:.0%}")

# %% [markdown]
# The same date at four moments: the mean over all heads and both layers.
#
# > 同一个日期的四个时刻：两层所有头的平均。

# %%
from nmt.visualize import film
from nmt.visualize.heatmap import plot_attention

frames = film.film_frames(run, ["Sunday, July 14", "March 8, Friday"])
for frame in frames:
    print(f"{film.describe(frame):32}", *(each.text[:20] for each in frame.translations), sep="   ")
for frame in (*frames[:3], frames[-1]):
    dated = frame.translations[0]
    mean = dated.attention.cross.mean(axis=(0, 1))[:12]  # young models stammer: cut
    title = f"{film.describe(frame)}   {dated.text[:12]}"
    display(plot_attention(mean[None], dated.source_tokens, dated.target_tokens[:12], [title]))

# %% [markdown]
# At first every row is nearly the same and dim: the model has only learned which tokens are
# frequent, and in what order. Then rows begin to differ, squares light up, and the right numbers
# come out: the day of the week is found wherever it stands. The page with a slider, and the GIF:
#
# > 起初每一行都差不多，而且很暗：模型只学到哪些词元常见、按什么次序出现。
# > 后来各行有了区别，亮格出现了，数字也对了：不管星期写在哪里，都能找到。带滑块的网页和动图：

# %%
page, gif = Path(folder.name) / "film.html", Path(folder.name) / "film.gif"
page.write_text(film.film_page(frames), encoding="utf-8")
film.write_gif(frames, gif)
for file in (page, gif):
    print(f"{file.name} {file.stat().st_size / 1000:.0f} kB")

# %% [markdown]
# For a real training keep more checkpoints, and then:
#
# > 对真正的训练，要多保留一些检查点，然后：
#
# ```
# nmt train checkpoints/mine --set training.keep_checkpoints=50 --set training.checkpoint_steps=100
# nmt film checkpoints/mine -o film.html --gif film.gif
# ```

# %% [markdown]
# ## Checks
# ## 检查

# %%
# Every row of every kind of attention sums to 1, and the decoder never looks ahead.
for weights in translation.attention:
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
assert np.all(np.triu(translation.attention.decoder, 1) == 0)

# Shares are shares, and each habit was measured for each head.
assert all(values.shape == (layers, heads) for values in shares.values())
assert all(np.all((values >= 0) & (values <= 1)) for values in shares.values())

# Every character of a translation is aligned, and only to words that are there.
for alignment in alignments:
    assert {target for _, target in alignment.links} == set(range(len(alignment.target_units)))
    assert {source for source, _ in alignment.links} <= set(range(len(alignment.source_units)))

# Zero queries do make attention uniform, in the chosen head only, and nothing stays behind.
with blinded(1, 2):
    decoded_weights = translator.searcher.attend(batch.source_ids, batch.target_out_ids).cross
row = decoded_weights[0, 0, :, 0]  # layer 1, first sentence, (heads, S)
real = row[1] > 0
np.testing.assert_allclose(row[1][real], 1 / real.sum(), rtol=1e-4)
assert row[0].max() > 1.5 / real.sum()
assert abs(loss() - untouched) < 1e-5

# The film has a frame for each checkpoint, in order, and at its end the model knows dates.
assert [frame.step for frame in frames] == sorted(frame.step for frame in frames)
assert len(frames) >= 8
if FILM_STEPS >= 400:
    assert frames[-1].metrics["validation_loss"] < 0.5 * frames[0].metrics["validation_loss"]
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Who can stand in for whom?** Blind two heads of the last layer together, for every two. Is
# the harm of a pair the sum of the two, or more?
#
# > **1. 谁能替谁？** 在最后一层，每次同时蒙住两个头，把所有组合试一遍。
# > 两个头一起的损失，等于各自之和吗？还是更多？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# for first in range(1, heads + 1):
#     for second in range(first + 1, heads + 1):
#         with blinded(layers, first, second):
#             together = loss() - untouched
#         apart = harm[-1, first - 1] + harm[-1, second - 1]
#         print(f"heads {first} and {second}: together {together:+.3f}, the sum {apart:+.3f}")
# ```
#
# Where "together" is more than the sum, each of the two could stand in for the other. Measuring one
# head at a time would have missed it.
#
# > 如果“一起”大于两者之和，说明这两个头能互相替补；一次只量一个头是看不出来的。
#
# </details>

# %% [markdown]
# **2. Take a word away.** Replace each source token of `translation` in turn by `UNK` and measure
# how much less likely its second target token becomes. Is the token that is missed most also the
# one that is looked at most? (`UNK`, an id of `nmt.text.tokenizer`, stands for nothing that the
# model knows; `translator.searcher.log_probs` takes the three arrays of a batch, as in section 6.)
#
# > **2. 拿走一个词。** 依次把 `translation` 原文的每个词元换成 `UNK`，
# > 看译文第二个词元的概率下降多少。缺了它影响最大的词元，也是被看得最多的那个吗？
# > （`UNK` 是 `nmt.text.tokenizer` 里的一个编号，代表模型不认识的东西；
# > `translator.searcher.log_probs` 接受一个批次的三个数组，做法见第 6 节。）
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# from nmt.text.tokenizer import UNK
#
# pair = encode_pairs(
#     [SentencePair(SENTENCE, translation.text)],
#     translator.source_tokenizer,
#     translator.target_tokenizer,
# )
# one = make_batch(pair.source.split(), pair.target.split())
# whole = translator.searcher.log_probs(*one)[0, 1]
# at = translation.attention.cross.mean(axis=(0, 1))[1]
# for place, token in enumerate(translation.source_tokens):
#     without = one.source_ids.copy()
#     without[0, place] = UNK
#     missed = whole - translator.searcher.log_probs(without, *one[1:])[0, 1]
#     print(f"{token:12} looked at {at[place]:4.0%}   missed {missed:+.2f} nats")
# ```
#
# Often the two agree, but not always. Taking something away tests the model; looking at it does
# not.
#
# > 两者往往一致，但并不总是。拿走一样东西是在检验模型，光看则不是。
#
# </details>
