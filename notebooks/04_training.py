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
# # 4. Training
# # 4. 训练
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# An untrained Transformer is a machine full of random numbers. Here you see what it is asked to do,
# how its answers are judged and how it is corrected; then you train one for a minute, and learn to
# read its curves and not to be deceived by them. You should have met the model in notebook 3.
#
# > 没训练过的 Transformer 只是一台装满随机数的机器。这一课要看清：它的任务是什么，
# > 怎样给它的回答打分，又怎样纠正它；然后训练一分钟，学会读训练曲线，也学会不被曲线骗。
# > 模型本身请先看第 3 课。
#
# **You will learn 你将学到**
#
# - what teacher forcing is, and why one pass trains all positions
#   什么是教师强制，为什么一次就能训练所有位置
# - how the loss is made, and what goes wrong when padding counts 损失怎么算，把填充算进去会出什么错
# - what label smoothing, warm-up and Adam do 标签平滑、预热和 Adam 各起什么作用
# - how to read the curves of a training, and perplexity 怎样读训练曲线，什么是困惑度
# - why token accuracy is not translation quality 为什么词元准确率不等于翻译质量
#
# About a minute and a half on two CPU cores; a minute of it is training.
# 两个 CPU 核大约一分半钟，其中一分钟在训练。
#
# ← [3. The whole model 位置、层与完整模型](03_the_whole_model.ipynb) ·
# [5. Translating 翻译](05_translating.ipynb) →

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

import keras
import matplotlib.pyplot as plt
import numpy as np

import nmt
from nmt.visualize.fonts import font_for

print("nmt", nmt.__version__, "| tensorflow", tf.__version__, "| keras", keras.__version__)

# %% [markdown]
# The settings to play with: the corpus (`"tatoeba"` has about 55,000 training pairs before
# cleaning, `"hsk"` only about 3,600), the layers of the model, the minutes of training, how many
# sentences are judged at the end. Whatever you change, run the notebook again from the top.
#
# > 下面的值可以随意改：语料库（`"tatoeba"` 清理之前约有五万五千个训练句对，
# > `"hsk"` 只有约三千六百个）、模型的层数、训练几分钟，以及最后评判多少个句子。改完请从头重新运行。

# %% tags=["parameters"] toy={"CORPUS": "hsk", "LAYERS": 1, "MINUTES": 0.1, "JUDGED": 40}
CORPUS = "tatoeba"
LAYERS = 2
MINUTES = 1.0
JUDGED = 200

# %% [markdown]
# First the material: `prepare` cleans the pairs, learns both vocabularies and turns sentences into
# ids (notebook 1). A minute is short, so we order a *small* model and small batches, which allow
# many updates. An *update* or *step* is one batch and one correction of the weights; an *epoch* is
# one pass over all the training pairs.
#
# > 先备料：`prepare` 清理句对、学出两张词表、把句子变成编号（见第 1 课）。一分钟很短，
# > 所以模型要*小*，批次也要小，这样更新的次数才多。用一个批次改正一次参数，叫一次*更新*，
# > 也叫一*步*（step）；把全部训练句对学一遍，叫一*轮*（epoch）。

# %%
from nmt.config import override, preset
from nmt.data.prepared import encode_pairs, load_held_out, load_train, prepare
from nmt.run_folder import RunFolder

folder = tempfile.TemporaryDirectory()  # goes away with the notebook's kernel
run = RunFolder(Path(folder.name) / "one-minute")
settings = f"""
    data.corpus={CORPUS}              data.max_tokens=24
    model.num_layers={LAYERS}         model.d_model=128               model.num_heads=4
    model.dff=512                     model.dropout_rate=0.0
    model.source_vocab_size=3000      model.target_vocab_size=4000
    training.max_minutes={MINUTES}    training.batch_tokens=768
    training.warmup_steps=200         training.peak_learning_rate=0.003
    training.checkpoint_steps=200     training.weight_average=0.0       training.optimizer=adam
""".split()
config = override(preset("quickstart"), settings)
prepare(run, config, {"command": "notebooks/04_training"})

source_tokenizer, target_tokenizer = run.tokenizers()
vocab_size = target_tokenizer.vocab_size
show = target_tokenizer.pieces
train_set = load_train(run)
sources, targets = train_set.source.split(), train_set.target.split()
validation_pairs = load_held_out(run, "validation")
print(f"{len(sources):,} training pairs, {len(validation_pairs):,} validation pairs")
print(f"{vocab_size:,} Chinese subwords to choose from")

# %% [markdown]
# ## 1. Teacher forcing
# ## 1. 教师强制
#
# The task is always the same: **given the source and the translation so far, which token comes
# next?** In training the "translation so far" is the beginning of the *reference*, whatever the
# model itself would have written. It is as if a teacher put the pupil back on the right track after
# every word; hence the name. So one sentence pair is not one exercise but as many as it has tokens:
#
# > 任务始终只有一个：**给定原文和已有的译文，下一个词元是什么？** 训练时，“已有的译文”就是
# > *参考译文*的开头，不管模型自己会写什么。好比老师在学生每写一个词之后都把他拉回正路，
# > 所以叫“教师强制”。于是一个句对不是一道题，而是有多少个词元就有多少道题：

# %%
from nmt.data.batches import make_batch
from nmt.text.tokenizer import BOS, PAD

# The first pairs whose targets have 9 and 6 tokens, with the end of the sentence.
chosen = [int(np.argmax(train_set.target.lengths == length)) for length in (9, 6)]
batch = make_batch([sources[i] for i in chosen], [targets[i] for i in chosen])
print("source:", *source_tokenizer.pieces(batch.source_ids[0]), "\n")
for number, token in enumerate(batch.target_out_ids[0]):
    print(f"{number + 1}.", *show(batch.target_in_ids[0, : number + 1]), " → ", *show([token]))

# %% [markdown]
# Read off the two columns: what the decoder *reads* and what it *has to predict* are the same
# sentence, **shifted by one token**. `<s>` (BOS) comes in front, `</s>` (EOS) is the last thing to
# be predicted. `make_batch` makes both, and fills the shorter sentence with `<pad>`:
#
# > 由此可见：解码器*读到的*和它*要预测的*是同一个句子，只是**错开一个词元**：
# > 前面加上 `<s>`（BOS），最后要预测的是 `</s>`（EOS）。`make_batch` 把两者都准备好，
# > 短的句子用 `<pad>` 补齐：

# %%
for reads, predicts in zip(batch.target_in_ids, batch.target_out_ids, strict=True):
    print("reads 读到   ", *show(reads))
    print("predicts 预测", *show(predicts), "\n")
shifted = np.array([BOS, *batch.target_out_ids[0, :-1]])
print("the same, shifted:", np.array_equal(shifted, batch.target_in_ids[0]))

# %% [markdown]
# All these exercises are done **in one pass**. The look-ahead mask of notebook 3 keeps each
# position from seeing its answer, so the result is the same as if every beginning had been given to
# the model by itself. This is what makes Transformers so quick to train:
#
# > 这些题目**一次就能全做完**：有第 3 课的前瞻掩码，每个位置都看不到自己的答案，所以结果
# > 与把每个开头分别喂给模型完全一样。Transformer 训练得快，原因就在这里：

# %%
from nmt.model.transformer import build_transformer

model = build_transformer(run.model_config(), seed=1)
at_once = model((batch.source_ids, batch.target_in_ids)).numpy()  # logits (B, T, V)
one_by_one = [
    model((batch.source_ids, batch.target_in_ids[:, : t + 1]))[:, -1]
    for t in range(batch.target_in_ids.shape[1])
]
difference = np.abs(np.stack(one_by_one, axis=1) - at_once).max()
print(f"1 pass and {len(one_by_one)} passes: largest difference of the logits {difference:.1e}")

# %% [markdown]
# ## 2. The loss, and why padding must not count
# ## 2. 损失，以及为什么不能算上填充
#
# At every position the model gives a probability to each subword. The **loss** of a token is −log
# of the probability that it gave to the *right* one: 0 if it was sure and right, large if it was
# sure and wrong. (The logarithm is the natural one; its unit is called *nat*. In the formula x is
# the source, y the target.)
#
# > 在每个位置，模型给每个子词一个概率。一个词元的**损失**，就是模型给*正确答案*的概率取负对数：
# > 又确定又正确，损失为 0；又确定又错，损失就很大。（用自然对数，
# > 单位叫*奈特*，nat。公式里 x 是原文，y 是译文。）
#
# $$\ell_t = -\log p(y_t \mid y_{<t},\, x)$$

# %%
from nmt.training.losses import smoothed_cross_entropy, token_sums

p = tf.nn.softmax(at_once).numpy()
right = np.take_along_axis(p, batch.target_out_ids[..., None], axis=2)[..., 0]  # (B, T)
losses = -np.log(right)
real = batch.target_out_ids != PAD
for row, ids in zip(losses, batch.target_out_ids, strict=True):
    print("   ".join(f"{piece} {x:.2f}" for piece, x in zip(show(ids), row, strict=True)))
sums = token_sums(at_once, batch.target_out_ids)
print(f"\nby hand 手算:    {losses[real].sum():.3f} over {real.sum()} real tokens")
print(f"token_sums 函数: {sums.loss:.3f} over {sums.tokens:.0f} real tokens")

# %% [markdown]
# `token_sums` leaves `<pad>` out, and gives the *sum* and the *count*, to be divided once at the
# very end: so a batch of few tokens does not weigh as much as one of many. What if padding did
# count? Put ten more columns of it behind the same two sentences:
#
# > `token_sums` 不算 `<pad>`，而且返回的是*总和*与*个数*，到最后才相除一次，
# > 这样词元少的批次就不会和词元多的批次一样重。如果把填充也算进去会怎样？
# > 在同样两个句子后面再补十列：

# %%
for columns in (0, 10):
    wider = [np.pad(ids, ((0, 0), (0, columns)), constant_values=PAD) for ids in batch]
    logits = model((wider[0], wider[1]))
    sums = token_sums(logits, wider[2])
    every = smoothed_cross_entropy(tf.reshape(logits, [-1, vocab_size]), wider[2].flatten())
    print(f"{columns:2} more columns: loss of a real token {sums.loss / sums.tokens:.3f}", end=", ")
    print(f"of a position, padding counted {tf.reduce_mean(every):.3f}")

# %% [markdown]
# The sentences are the same, the model is the same; only the figure that ignores padding stays what
# it is. It gets worse. Padding is wonderfully easy to predict: here is a "model" that has learned
# nothing but to answer `<pad>`, whatever it is asked, on 64 pairs picked at random:
#
# > 句子没变，模型没变，只有不算填充的那个数保持不变。还有更糟的：填充实在太好猜了。
# > 假设有个“模型”什么都没学会，问什么都答 `<pad>`。随机取 64 个句对：

# %%
some = random.Random(1).sample(range(len(sources)), 64)
mixed = make_batch([sources[i] for i in some], [targets[i] for i in some])
only_pad = np.broadcast_to(np.eye(vocab_size, dtype=np.float32)[PAD], [64, vocab_size])
hits = [token_sums(only_pad, column).correct for column in mixed.target_out_ids.T]
print(f"accuracy with padding counted 算上填充: {np.mean(mixed.target_out_ids == PAD):.1%}")
print(f"on real tokens only 不算填充: {sum(hits) / np.sum(mixed.target_out_ids != PAD):.1%}")

# %% [markdown]
# Such a figure looks like a success and is worth nothing; and the gradient would spend itself on
# teaching the model where sentences stop being sentences. Padding also costs time, so `plan_epoch`
# puts sentences of similar length into one batch. (It sorts by the length of the target first, so
# on that side hardly any padding is left.)
#
# > 这样的数字看着漂亮，其实一文不值；梯度也会白白花在教模型“哪里已经不是句子”上。
# > 填充还浪费时间，所以 `plan_epoch` 把长度相近的句子放进同一批
# > （先按译文长度排序，所以译文一侧几乎没有填充）：

# %%
from nmt.data.batches import plan_epoch

plan = plan_epoch(train_set, config.training.batch_tokens, seed=1, epoch=0)
for side, lengths, at_random in (
    ("source 原文", train_set.source.lengths, mixed.source_ids),
    ("target 译文", train_set.target.lengths, mixed.target_out_ids),
):
    positions = sum(lengths[indices].max() * len(indices) for indices in plan)
    print(f"padding, {side}: {np.mean(at_random == PAD):.1%} in a random batch", end=", ")
    print(f"{1 - lengths.sum() / positions:.1%} in batches of similar length")

# %% [markdown]
# ## 3. Where it starts
# ## 3. 起点
#
# Guessing evenly among V subwords costs −log(1/V) = ln V for each token. Random weights start near
# that, mostly a little above, because they are random and *not* even. This is what the training has
# to beat:
#
# > 在 V 个子词里平均地猜，每个词元的损失是 −log(1/V) = ln V。随机参数的起点就在这附近，
# > 往往略高一点，因为“随机”并不等于“平均”。训练首先要胜过的就是它：

# %%
from nmt.training.validation import make_predict, validate

validation_set = encode_pairs(validation_pairs, *run.tokenizers())
before = validate(make_predict(model), validation_set, step=0)
print(f"ln V = {np.log(vocab_size):.2f}, untrained 未训练的模型: {before.validation_loss:.2f}")

# %% [markdown]
# ## 4. Label smoothing
# ## 4. 标签平滑
#
# A sentence has many good translations, so it would be wrong to demand 100% for one token. With
# label smoothing ε = 0.1 the target is: 90% for the reference token, and 10% spread evenly over the
# whole vocabulary. The loss becomes the mean of −log p over *all* subwords, each weighted by its
# share q of that target; this is called the *cross-entropy* of p against q. ([i = y] is 1 for the
# reference token and 0 for all others.)
#
# > 一个句子有很多种好的译法，硬要某个词元占 100% 并不合理。标签平滑（ε = 0.1）把目标改成：
# > 参考词元占 90%，另外 10% 平摊到整个词表。损失就变成*所有*子词的 −log p 的加权平均，
# > 权重是各子词在目标分布 q 中所占的份额，这叫*交叉熵*。
# > （[i = y] 对参考词元等于 1，对其他都等于 0。）
#
# $$\ell = -\sum_i q_i \log p_i, \qquad
# q_i = \frac{\varepsilon}{V} + (1 - \varepsilon)\,[i = y]$$

# %%
epsilon = config.training.label_smoothing
labels = batch.target_out_ids[0]  # the first sentence, which has no padding
q = np.full([len(labels), vocab_size], epsilon / vocab_size)
q[np.arange(len(labels)), labels] += 1 - epsilon
by_hand = -np.sum(q * np.log(p[0]), axis=1)
by_nmt = smoothed_cross_entropy(at_once[0], labels, epsilon).numpy()
print("by hand 手算", by_hand.round(3))
print("by nmt  自带", by_nmt.round(3))

# %% [markdown]
# Now the loss can no longer reach 0. It is smallest when p equals q; then it is −Σ q log q, the
# *entropy* of q: **the floor**. A loss that stays there is perfect, not stuck. The picture
# shows the loss of one token while its probability goes from 0 to 1 and all other subwords share
# the rest evenly:
#
# > 这样一来，损失就到不了 0 了。p 与 q 相等时它最小，等于 −Σ q log q，即 q 的*熵*，
# > 这就是**下限**。停在下限不是“学不动了”，而是已经完美。
# > 下图画的是一个词元的损失：它的概率从 0 变到 1，其余子词平分剩下的概率。

# %%
floor = -np.sum(q[0] * np.log(q[0]))


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font, labelpad=7)


logits = np.zeros([400, vocab_size], np.float32)
logits[:, 7] = np.linspace(0, 18, 400)  # token 7 is the right one, and becomes likelier
share = tf.nn.softmax(logits).numpy()[:, 7]
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for smoothing in (0.0, epsilon):
    loss_of_7 = smoothed_cross_entropy(logits, np.full(400, 7), smoothing)
    axis.plot(share, loss_of_7, label=f"label smoothing {smoothing}")
axis.axhline(floor, color="gray", linestyle="--", label=f"floor: {floor:.2f}")
axis.legend()
caption(
    axis, "Loss of one token 一个词元的损失", "p of the right token 正确词元的概率", "nats 奈特"
)

# %% [markdown]
# Without smoothing more certainty is always better. With it there is a best amount of certainty,
# just above 90%; at the right edge the curve turns **up**: being *too* sure is punished.
#
# > 没有平滑时，越确定越好；有了平滑，确定得恰到好处才最好（略高于 90%），
# > 曲线在最右边**掉头向上**：*过分*自信反而受罚。

# %% [markdown]
# ## 5. The learning rate
# ## 5. 学习率
#
# The gradient says in which direction the weights should move, the **learning rate** how far. It
# starts near 0, because the first gradients of a random network point anywhere; it rises for
# `warmup_steps` updates; then it falls with 1/√step, to settle down. The formula of the paper:
#
# > 梯度告诉参数往哪个方向走，**学习率**决定走多远。它从接近 0 开始，
# > 因为随机网络最初的梯度方向并不可靠；先在 `warmup_steps` 步内上升（预热），
# > 再按 1/√step 下降，慢慢稳定下来。论文的公式是：
#
# $$\text{rate} = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5})$$

# %%
from nmt.training.schedule import learning_rate

for step in (1, 500, 4000, 16000):
    by_formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    by_package = learning_rate(step, d_model=512, warmup_steps=4000)
    print(f"step {step:6,}: by hand {by_formula:.6f}, by nmt {by_package:.6f}")

# %% [markdown]
# The paper trained for 100,000 steps, so 4,000 were enough to warm up. Our minute is over before
# that. So the warm-up is shorter, and `peak_learning_rate` gives the height itself instead of
# deriving it from d_model:
#
# > 论文训练了十万步，预热四千步不算多；我们的一分钟在那之前就结束了。所以预热要短，
# > 峰值也不由 d_model 推出，而是用 `peak_learning_rate` 直接给定：

# %%
from nmt.training.schedule import WarmupSchedule
from nmt.visualize.diagrams import plot_schedule

warmup, peak = config.training.warmup_steps, config.training.peak_learning_rate
schedules = {
    f"ours 我们的: warm-up {warmup:,}": WarmupSchedule(128, warmup, peak),
    "paper's formula 论文公式: warm-up 4,000": WarmupSchedule(128, 4000),
}
plot_schedule(schedules, steps=3000)

# %% [markdown]
# ## 6. Adam, the optimizer
# ## 6. 优化器 Adam
#
# Which weight moves how far? Adam keeps two running means for *every* weight: *m* of its gradients
# (which way, on the whole?) and *v* of their squares (how large, usually?), and moves by
# *rate · m / √v*. At each step a mean keeps a share β of its old value (β is 0.9 for *m* and
# 0.98 for *v*) and takes the rest from the new one. As both begin at 0, they are too small at
# first; dividing by 1 − β^step makes up for that.
#
# > 哪个参数走多远？Adam 为*每个*参数保存两个滑动平均：梯度的平均 *m*（总体朝哪边？）
# > 和梯度平方的平均 *v*（通常有多大？），每步移动 *rate · m / √v*。每一步，平均值保留旧值的
# > β 倍（*m* 是 0.9，*v* 是 0.98），其余取自新值。两个平均都从 0 开始，起初偏小，
# > 所以要除以 1 − β^step 来修正。

# %%
from nmt.training.optimizer import FusedAdam


def adam(weight, gradients, rate, beta_1=0.9, beta_2=0.98, tiny=1e-9):
    """Return the weight after an update for each of the gradients."""
    m = v = 0.0
    for step, gradient in enumerate(gradients, 1):
        m = beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        m_hat, v_hat = m / (1 - beta_1**step), v / (1 - beta_2**step)
        weight = weight - rate * m_hat / (np.sqrt(v_hat) + tiny)
    return weight


for gradients in ([0.001], [1000.0], [2.0, 2.0, 2.0, 2.0], [2.0, -2.0, 2.0, -2.0]):
    weight = keras.Variable([1.0])
    optimizer = FusedAdam(0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    for gradient in gradients:
        optimizer.apply([tf.constant([gradient])], [weight])
    by_adam = adam(1.0, gradients, rate=0.01)
    print(f"1 → by hand {by_adam:.6f}, by nmt {weight.numpy()[0]:.6f}   gradients {gradients}")

# %% [markdown]
# A gradient of 0.001 and one of 1,000 move the weight **equally far**, by the learning rate: only
# direction and steadiness count, so one rate fits all weights. Four gradients that agree make four
# full steps; four that contradict each other get little further than the first alone.
#
# > 梯度是 0.001 还是 1000，参数移动得**一样远**，都等于学习率：重要的只是方向和是否稳定，
# > 所以一个学习率适合所有参数。四个方向一致的梯度，四步都走满；
# > 四个互相矛盾的梯度，比只走第一步也远不了多少。

# %% [markdown]
# ## 7. A minute of training
# ## 7. 训练一分钟
#
# `train` takes batch after batch: predict, compute the loss, move every weight with Adam. Every
# 200 updates it validates on sentences that it does not train on, and saves. Its loop fits on
# one screen: see `nmt/training/trainer.py`. Now wait a minute and watch the loss fall. A line gives
# the step, the epochs so far, the loss (with label smoothing), the share of next tokens guessed
# right, the learning rate, the speed, and the time left.
#
# > `train` 一批一批地重复：预测、算损失、用 Adam 更新每个参数；每更新 200 次，
# > 就在没有参加训练的句子上验证一次，并保存下来。整个循环一屏就能看完，
# > 见 `nmt/training/trainer.py`。现在等一分钟，看着损失往下降。
# > 每行依次是：步数、学了几轮、损失（含标签平滑）、下一个词元猜对的比例、学习率、速度、剩余时间。

# %%
from nmt.progress import describe
from nmt.training.trainer import train


def show_sometimes(report):
    """Print one line in a hundred steps; a report comes every 20."""
    if report.step % 100 == 0:
        print(describe(report))


after = train(run, on_report=show_sometimes)
print(f"validation loss before 训练前 {before.validation_loss:.2f}", end=", ")
print(f"after 训练后 {after.validation_loss:.2f}")

# %% [markdown]
# ## 8. Reading the curves
# ## 8. 读曲线
#
# All numbers of a training stand in `metrics.jsonl` of its run folder; `nmt curves RUN -o FILE.png`
# draws this picture on the command line.
#
# > 训练的所有数字都在运行文件夹的 `metrics.jsonl` 里；
# > 命令行里用 `nmt curves RUN -o FILE.png` 就能画出这张图。

# %%
from nmt.visualize.curves import plot_curves

plot_curves(run.metrics())

# %% [markdown]
# **How to read it.**
#
# - *Loss.* The training line is ragged because every point comes from a few batches only, some of
#   short and some of long sentences. What counts is the trend, and the validation points: sentences
#   that were not trained on. They may lie *below* the line, because validation is measured without
#   label smoothing and so has no floor.
# - When the training line keeps falling and the validation points **rise**, the model learns by
#   heart (*overfitting*). Against it there is *dropout*: in training, random parts of the network
#   are switched off. (Ours is 0, for a minute is too short to learn much by heart.) If both still
#   fall at the end, more time would help.
# - *Learning rate.* The warm-up and the decay of section 5, as far as the time reached.
#
# > **怎么读。**
# >
# > - *损失*：训练曲线毛糙，是因为每个点只来自少数几批，有的批次句子短，有的句子长。
# >   要看的是趋势，还有验证点：它们来自没有参加训练的句子。验证点可能比曲线*低*，
# >   因为验证时没有标签平滑，也就没有那个下限。
# > - 如果训练曲线继续下降，验证点却开始**上升**，说明模型在死记硬背（*过拟合*）。
# >   对付它可以用 *dropout*：训练时随机关掉网络的一部分。
# >   （这里设为 0，因为一分钟还来不及背下多少。）
# >   如果到末尾两者都还在下降，再多训练一会儿就会更好。
# > - *学习率*：就是第 5 节的预热和下降，时间够走到哪里就画到哪里。
#
# **Perplexity.** A loss is easier to picture as exp(loss): the model is as unsure as if it had to
# guess evenly among that many tokens.
#
# > **困惑度。** 把损失取指数 exp(loss) 就好懂了：
# > 模型拿不准的程度，相当于每次都要在这么多个词元里平均地猜一个。

# %%
for name, loss in (
    ("guessing evenly 平均地猜", np.log(vocab_size)),
    ("untrained 训练前", before.validation_loss),
    ("trained 训练后", after.validation_loss),
):
    print(f"loss {loss:5.2f} nats   perplexity {np.exp(loss):7,.0f} tokens   {name}")

# %% [markdown]
# ## 9. Accuracy is not quality
# ## 9. 准确率不等于翻译质量
#
# "Token accuracy" is the share of next tokens that are guessed right *while the teacher keeps
# putting the model back on track*. In use there is no teacher: the model reads its own words (*free
# running*), and one mistake leads to the next. Here are both, for sentences it has not trained on.
# In brackets: guessed right with the teacher's help.
#
# > “词元准确率”是*在老师不断纠正之下*，下一个词元猜对的比例。真正使用时没有老师：
# > 模型读的是自己写的词（*自由运行*），一步错就可能步步错。下面用没有训练过的句子看看两者的差别。
# > 方括号里是在老师帮助下猜对的：

# %%
translator = nmt.load(run.path)
predict = make_predict(translator.searcher.models[0])


def forced_guesses(pair):
    """Return the reference's tokens, and what is guessed for each after those before it."""
    one = encode_pairs([pair], source_tokenizer, target_tokenizer)
    reads = make_batch(one.source.split(), one.target.split())
    logits = predict(reads.source_ids, reads.target_in_ids)
    return show(reads.target_out_ids[0]), show(np.argmax(logits[0], axis=-1))


judged = validation_pairs[:JUDGED]
forced = [forced_guesses(pair) for pair in judged]
free = translator.translate([pair.source for pair in judged])
for pair, (wanted, guessed), translation in list(zip(judged, forced, free, strict=True))[:5]:
    marks = [f"[{g}]" if w == g else g for w, g in zip(wanted, guessed, strict=True)]
    print("source 原文          ", pair.source)
    print("reference 参考译文   ", *wanted)
    print("with teacher 有老师  ", *marks)
    print("free running 自由运行", *translation.target_tokens[:20], "\n")

# %% [markdown]
# Now compare position by position, for all these sentences together:
#
# > 再逐个位置比较，把这些句子合在一起算：

# %%
from nmt.evaluation.scores import corpus_scores

right_forced = right_free = 0
for (wanted, guessed), translation in zip(forced, free, strict=True):
    right_forced += sum(w == g for w, g in zip(wanted, guessed, strict=True))
    right_free += sum(w == g for w, g in zip(wanted, translation.target_tokens, strict=False))
tokens = sum(len(wanted) for wanted, guessed in forced)
accuracy, free_accuracy = right_forced / tokens, right_free / tokens
bleu = corpus_scores([t.text for t in free], [[pair.target for pair in judged]], "zh")[0]
print(f"with teacher 有老师:   {accuracy:.1%} of {tokens:,} tokens are right")
print(f"free running 自由运行: {free_accuracy:.1%} are right, in the same place")
print(f"free running 自由运行: BLEU {bleu.value:.1f} of 100   {bleu.signature}")

# %% [markdown]
# The middle line is a harsh judge: a good translation with one word more is out of step from there
# on. That is why translations are compared by BLEU, which looks for matching pieces wherever they
# stand (notebook 6). But the lesson holds: **an accuracy under teacher forcing says how well the
# model continues a good text, not how well it translates.** Full stops and `</s>` alone bring it a
# good deal.
#
# > 中间那行的标准过于苛刻：一个好译文只要多一个字，后面就全错位了。所以评译文用 BLEU，
# > 不管片段在什么位置，只看有没有对上（见第 6 课）。但道理不变：
# > **教师强制下的准确率，说明的是模型续写一段好文本的本事，而不是翻译的本事。**
# > 光是句号和 `</s>` 就能让它好看不少。

# %% [markdown]
# ## 10. Stopping, and going on
# ## 10. 中断与继续
#
# A checkpoint holds all that a training needs to go on: weights, Adam's *m* and *v*, the step. The
# same command goes on from the last one; no batch comes twice, none is left out.
#
# > 检查点里有继续训练所需的一切：参数、Adam 的 *m* 和 *v*、步数。
# > 再运行同一条命令，就从最近的检查点继续，批次既不重复也不遗漏。
#
# ```
# nmt train checkpoints/mine --preset small --minutes 60   # Ctrl-C stops it, and saves before
# nmt train checkpoints/mine --minutes 120                 # goes on, up to 120 minutes in all
# nmt curves checkpoints/mine -o curves.png
# ```

# %%
for file in sorted(run.path.rglob("*")):
    if file.is_file() and "tensorboard" not in file.parts:
        size = file.stat().st_size / 1e3
        print(f"{size:9,.1f} kB  {file.relative_to(run.path)}")

# %% [markdown]
# `model.weights.h5` is what translates. A checkpoint is about three times as large, because Adam
# keeps two numbers beside each weight. (With `--set training.validation_sentences=200` so many
# sentences are translated at every checkpoint, and the weights of the best BLEU are kept.)
#
# > `model.weights.h5` 是翻译时用的。检查点大约是它的三倍，因为 Adam 为每个参数另外保存两个数。
# > （加上 `--set training.validation_sentences=200`，每个检查点都会翻译这么多个句子，
# > 并保留 BLEU 最好的那组参数。）

# %% [markdown]
# ## Checks
# ## 检查
#
# These are tests of the mechanisms, so they hold for a run of any length. Only how far the loss has
# to fall depends on how many updates there was time for; fall it must in any case.
#
# > 下面检查的是机制，所以不管训练多久都应当成立。只有损失至少该降多少，取决于来得及更新多少次；
# > 但无论如何都必须下降。

# %%
# Target and input are the same sentence, shifted; one pass does what many passes do.
assert np.array_equal(batch.target_in_ids[:, 1:], batch.target_out_ids[:, :-1])
assert difference < 1e-4

# Our own sums are those of the package, and padding changes nothing in them.
more = [(0, 0), (0, 5)]  # five columns
wider_sums = token_sums(np.pad(at_once, [*more, (0, 0)]), np.pad(batch.target_out_ids, more))
assert wider_sums.tokens == real.sum()
np.testing.assert_allclose(wider_sums.loss, losses[real].sum(), rtol=1e-4)

# Label smoothing: by hand as by nmt; nothing lies below the floor, and being too sure lies above.
np.testing.assert_allclose(by_hand, by_nmt, rtol=1e-4)
assert floor - 1e-3 < np.min(loss_of_7) < floor + 1e-2 < loss_of_7[-1]

# The schedule peaks at the end of the warm-up, and a given peak is that peak.
rates = learning_rate(np.arange(1, 5001), 128, 200, 0.003).numpy()
assert np.argmax(rates) == 199
np.testing.assert_allclose(rates.max(), 0.003, rtol=1e-6)

# Adam by hand is Adam of the package, and the size of a first gradient does not matter.
np.testing.assert_allclose(by_adam, weight.numpy()[0], atol=1e-6)
np.testing.assert_allclose(adam(1.0, [0.001], 0.01), adam(1.0, [1000.0], 0.01), atol=1e-6)

# The loss fell: by more than 1 nat once the warm-up is over, by something from the first update on.
assert after.step > 0, "there was no time for a single update: raise MINUTES"
least = 1.0 if after.step >= config.training.warmup_steps else 0.0
assert before.validation_loss - after.validation_loss > least

# With a teacher more tokens are right than without, once there is something to put right.
assert accuracy > free_accuracy or after.step < config.training.warmup_steps
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Learn two sentences by heart.** A good habit before any long training: can the model learn a
# single batch perfectly? If not, something is broken. Make 60 updates on `batch` with
# `make_train_step` (in `nmt/training/step.py`) and watch the loss. You need a fresh model, and for
# it a `FusedAdam` of rate 0.001, made ready by `build(model.trainable_variables)`; a call with
# `*batch` returns the sums of section 2 and the size of the gradient. Where does the loss stop
# falling, and why not at 0?
#
# > **1. 把两个句子背下来。** 长时间训练之前的好习惯：先看模型能不能把*一个*批次学到完美。
# > 如果不能，一定有什么地方坏了。用 `make_train_step`（见 `nmt/training/step.py`）
# > 在 `batch` 上更新 60 次，观察损失。先建一个新模型，再为它准备学习率 0.001 的 `FusedAdam`，并调用
# > `build(model.trainable_variables)`；每次以 `*batch` 调用，返回第 2 节里的那些总和与梯度的大小。
# > 损失停在哪里？为什么不是 0？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# from nmt.training.step import make_train_step
#
# pupil = build_transformer(run.model_config(), seed=2)
# adam_of_pupil = FusedAdam(0.001, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
# adam_of_pupil.build(pupil.trainable_variables)
# train_step = make_train_step(pupil, adam_of_pupil, config.training)
# for step in range(1, 61):
#     sums, gradient_norm = train_step(*batch)
#     if step in (1, 5, 10, 20, 40, 60):
#         loss, share = sums.loss / sums.tokens, sums.correct / sums.tokens
#         print(f"step {step:2}: loss {loss:.3f} (floor {floor:.3f}), accuracy {share:.0%}")
# assert floor < loss < floor + 0.1
# ```
#
# Every token is right after a few dozen updates, and the loss comes to rest on the floor of label
# smoothing. It cannot go below.
#
# > 更新几十次之后每个词元都对了，损失停在标签平滑的下限上，不可能再低。
#
# </details>

# %% [markdown]
# **2. Has it begun to learn by heart?** Measure the loss without smoothing on as many *training*
# pairs as there are validation pairs, and compare. (`train_set` is a `Prepared` of two `Encoded`,
# see `nmt.data.prepared`: all ids in one array, and the lengths of the sentences. `validate` does
# the measuring.) What would the two perplexities look like after a hundred epochs?
#
# > **2. 它开始死记硬背了吗？** 取与验证句对同样多的*训练*句对，测出没有平滑的损失，比较一下。
# > （`train_set` 是一个 `Prepared`，由两个 `Encoded` 组成，见 `nmt.data.prepared`：
# > 所有编号连成一个数组，另附各句的长度。测量用 `validate`。）
# > 如果学上一百轮，这两个困惑度会变成什么样？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# from nmt.data.prepared import Encoded, Prepared
#
#
# def joined(sentences, indices):
#     chosen = [sentences[i] for i in indices]
#     return Encoded(np.concatenate(chosen), np.array([len(ids) for ids in chosen]))
#
#
# seen = random.Random(2).sample(range(len(sources)), len(validation_pairs))
# seen_set = Prepared(joined(sources, seen), joined(targets, seen))
# for name, pairs in (("trained on", seen_set), ("held out", validation_set)):
#     loss = validate(predict, pairs, after.step).validation_loss
#     print(f"{name:10} loss {loss:.2f}, perplexity {np.exp(loss):.0f}")
# ```
#
# The gap is what the model knows about sentences it has seen and cannot carry over to others. After
# a minute it is small, and part of it is not memory: held-out pairs stand alone in the corpus, so
# they are somewhat unusual. After a hundred epochs without dropout the first perplexity would be
# near 1 and the second would have risen again: overfitting.
#
# > 两者之差，是模型对见过的句子才有、却用不到别的句子上的本事。训练一分钟，差距还小，
# > 而且不全是“记忆”：留出的句对都是语料里“独一无二”的，本来就少见一些。不用 dropout 学上一百轮，
# > 第一个困惑度会接近 1，第二个反而会回升：这就是过拟合。
#
# </details>
