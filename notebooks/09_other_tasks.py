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
# # 9. One model, other tasks
# # 9. 同一个模型，别的任务
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# Translation is only one way of turning a text into a text. Here the same model learns, in seconds
# each, to write headlines and to answer in a chat; nothing is changed but the pairs that it is
# shown. Then we take the encoder away, and what is left is a language model, the kind behind
# today's chatbots. Everything is toy-sized, measured, and honest about what it cannot do.
#
# > 翻译只是“文本变文本”的一种。同一个模型，只要换掉喂给它的句对，每样十几秒，
# > 就能学会写标题、学会聊天应答。然后我们拿掉编码器，剩下的就是语言模型，
# > 也就是今天聊天机器人背后的那一类模型。规模都是玩具级的，但都有测量，做不到的也如实说明。
#
# **You will learn 你将学到**
#
# - what a new task needs: pairs, and nothing else 换个任务需要什么：句对，仅此而已
# - how to measure it on pairs that were held out 怎样用留出的句对来评分
# - what changes when the encoder goes away, and what does not 去掉编码器后，什么变了，什么没变
# - sampling with a temperature 带温度的抽样
#
# About two minutes on two CPU cores. 两个 CPU 核大约两分钟。
#
# ← [8. The real thing 来真的](08_the_real_thing.ipynb) ·
# [1. Pairs and subwords 句对与子词](01_pairs_and_subwords.ipynb) (the beginning 回到开头)

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
import itertools
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
# That toy texts support few subwords is no news here.
logging.getLogger("nmt").setLevel(logging.ERROR)

import keras
import matplotlib.pyplot as plt
import numpy as np

import nmt
from nmt.visualize.fonts import font_for

keras.utils.set_random_seed(1)
plt.show()  # nothing yet, but from here on figures appear below their cells
print("nmt", nmt.__version__, "| tensorflow", tf.__version__, "| keras", keras.__version__)

# %% [markdown]
# The values to play with: how many updates each of the three trainings makes, and the corpus whose
# English side the language model reads.
#
# > 可以随意改的值：三次训练各更新多少步；语言模型读哪个语料库的英文。

# %% tags=["parameters"] toy={"STEPS": 30, "CORPUS": "hsk"}
STEPS = 300
CORPUS = "tatoeba"

# %% [markdown]
# ## 1. Headlines
# ## 1. 写标题
#
# A summary keeps what matters and drops the rest. To have thousands of examples with a certain
# answer, we let rules write short Chinese news reports. The headline keeps *what*, *where*, *when*
# and *how bad*; the time of day, the mayor and the witness are dropped. Two traps are built in: the
# sentences come in any order, and there is a second city, where the reporter comes from, which must
# *not* get into the headline.
#
# > 摘要就是留下要紧的，扔掉其余的。为了得到几千个答案确定的例子，我们用规则来写短新闻。
# > 标题保留*星期几、在哪里、出了什么事、伤亡如何*；具体时间、市长和目击者说的话都要扔掉。
# > 里面埋了两个陷阱：句子的先后次序是随机的；还会出现第二个城市（记者从那里来），它*不该*进标题。

# %%
words = str.split
EVENTS = {  # in the headline: in the report
    "大火": "市场里突然起火",  # fire
    "洪水": "河水漫过了堤岸",  # flood
    "大风": "很多屋顶被风刮走",  # storm
    "停电": "所有的灯都灭了",  # power cut
    "抢劫": "几个蒙面人抢了银行",  # robbery
    "罢工": "公交司机都不上班",  # strike
    "车祸": "一辆卡车撞上了桥",  # crash
    "爆炸": "一根煤气管炸开了",  # explosion
    "地震": "地面摇了半分钟",  # earthquake
    "大雪": "雪下了半米厚",  # snow
}
HARM = {
    "无人受伤": "幸好大家都没事。",  # nobody hurt
    "一人受伤": "有一位老人被送进医院。",  # one hurt
    "多人受伤": "几十个人需要看医生。",  # many hurt
    "一人失踪": "还有一个人没有找到。",  # one missing
}
CITIES = words(
    "北京 上海 广州 深圳 天津 重庆 成都 武汉 南京 西安 杭州 苏州 长沙 青岛 大连 厦门 昆明 拉萨 "
    "巴黎 伦敦 罗马 柏林 东京 首尔 纽约 莫斯科"
)
DAYS = words("周一 周二 周三 周四 周五 周六 周日")
TIMES = words("清晨 上午 中午 傍晚 深夜")


def report_of(event, city, day, harm, dice):
    """Return a news report of the four facts, with others around them, in any order."""
    other = dice.choice([name for name in CITIES if name != city])
    sentences = [
        f"{day}{dice.choice(TIMES)}，{city}{EVENTS[event]}。",
        HARM[harm],
        f"本报记者从{other}赶来。",
    ]
    return "".join(dice.sample(sentences, len(sentences)))


dice = random.Random(1)
facts = dice.sample(list(itertools.product(EVENTS, CITIES, DAYS, HARM)), 5000)
headlines = [
    (report_of(event, city, day, harm, dice), f"{day}{city}{event}，{harm}")
    for event, city, day, harm in facts
]
for report, headline in headlines[:4]:
    print(f"{report}\n→ {headline}\n")
print(f"{len(facts):,} of {len(EVENTS) * len(CITIES) * len(DAYS) * len(HARM):,} possible headlines")

# %% [markdown]
# The first report in English: *On Wednesday at dawn, in Qingdao the river burst its banks. Our
# reporter came from Kunming. Luckily everybody was fine.* The headline: *Wednesday, Qingdao, flood,
# nobody hurt.*
#
# > 第一篇：洪水发生在青岛，记者来自昆明；标题里只该有青岛。

# %% [markdown]
# Now the road that you know from the other notebooks: `prepare`, `train`, `load`. It does not
# know that this is no translation. All that is said differently is the corpus, and that both
# languages are the same. The vocabularies are small, hardly more than single characters: so the
# name of a city has to be learned once, and not once for each day. No headline comes twice, so
# `nmt` can hold out pairs of which neither report nor headline stands in the training data.
#
# > 接下来走的就是前几个笔记本里的老路：`prepare`、`train`、`load`。它并不知道这不是翻译；
# > 不同的只有语料，以及两侧是同一种语言。词表很小，差不多一个字就是一个词元：
# > 这样城市名只需学一次，而不必“周一青岛”“周二青岛”各学一遍。没有哪个标题出现两次，
# > 所以 `nmt` 可以留出一批句对，其新闻和标题都没有在训练数据里出现过。

# %%
from nmt.config import override, preset
from nmt.data.prepared import load_held_out, prepare
from nmt.progress import describe
from nmt.run_folder import RunFolder
from nmt.training.trainer import train

folder = tempfile.TemporaryDirectory()  # goes away with the notebook's kernel


def learn(name, pairs, language, subwords):
    """Train the usual model on pairs of texts; return it and the pairs that were held out."""
    tsv, run = Path(folder.name) / f"{name}.tsv", RunFolder(Path(folder.name) / name)
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    settings = f"""
        data.corpus={tsv}                     data.max_tokens=60
        data.source_language={language}       data.target_language={language}
        model.source_vocab_size={subwords[0]} model.target_vocab_size={subwords[1]}
        model.num_layers=2 model.d_model=64 model.num_heads=4 model.dff=256 training.optimizer=adam
        training.peak_learning_rate=0.004    training.max_minutes=null    training.max_steps={STEPS}
        training.batch_tokens=512     training.warmup_steps=100     training.weight_average=0.0
    """
    prepare(run, override(preset("quickstart"), words(settings)), {"command": "notebook 9"})
    train(run, lambda report: report.step % 100 or print(describe(report)))
    return nmt.load(run.path), load_held_out(run, "test")


headliner, held_out = learn("headlines", headlines, "zh", (420, 380))

# %% [markdown]
# ### How good is it? 学得怎么样？
#
# BLEU was made for translations, of which many can be right. Here exactly one answer is right, so
# we can be strict: *exact match*, the share of held-out texts whose answer is right to the last
# character.
#
# > BLEU 是为翻译设计的，因为好的译法不止一种。这里正确答案只有一个，所以可以严格一点，
# > 用*完全匹配率*：留出的文本里，答案一个字都不差的占多少。


# %%
def exact_match(translator, pairs):
    """Return the share of pairs whose answer is right, and the answers that are not."""
    answers = [t.text for t in translator.translate([pair.source for pair in pairs])]
    wrong = [
        (pair.source, answer, pair.target)
        for pair, answer in zip(pairs, answers, strict=True)
        if answer != pair.target
    ]
    return 1 - len(wrong) / len(pairs), wrong


headline_match, wrong = exact_match(headliner, held_out)
print(f"exact match on {len(held_out)} held-out reports: {headline_match:.1%}")
for source, answer, right in wrong[:3]:
    print(f"\n{source}\n  wrote 写成 {answer}\n  right 应为 {right}")

# %% [markdown]
# What is still wrong tells where the difficulty is: look at the city. Where did the model look? One
# row for each token of the headline, the mean of the four heads of the last layer.
#
# > 还错的地方说明了难点在哪里：看看城市名。模型看了原文哪里？每行是标题的一个词元，
# > 取最后一层四个头的平均。

# %%
from nmt.visualize.heatmap import plot_translation

summary = headliner.translate(held_out[0].source, attention=True)
print(summary.text)
plot_translation(summary, mean=True)

# %% [markdown]
# ## 2. Chat
# ## 2. 聊天
#
# In 1966 the program ELIZA amazed people by turning their own words around: "I am sad" became "Why
# are you sad?". It worked by rules that somebody had written. Ours gets examples only, in Chinese,
# and has to find the rules: what to repeat, what to leave out, when *I* (我) becomes *you* (你).
#
# > 1966 年，程序 ELIZA 靠把人说的话“反过来问”让人惊叹：“我很难过”变成“你为什么难过？”。
# > 它靠的是人写好的规则；我们的模型只看例子，规则要自己找：该重复什么、该扔掉什么、
# > 什么时候把“我”换成“你”。

# %%
PEOPLE = words("妈妈 爸爸 哥哥 姐姐 弟弟 妹妹 爷爷 奶奶 老师 同学 邻居 老板 同事 室友 朋友 医生")
THINGS = words(
    "数学 英语 物理 历史 足球 篮球 围棋 爬山 京剧 音乐 电影 小说 苹果 西瓜 米饭 面条 饺子 豆腐 "
    "咖啡 绿茶 牛奶 春天 夏天 冬天 小猫 小狗 熊猫 火车 飞机 手机"
)
QUALITIES = words("有趣 无聊 难 容易 好 可怕 可爱 贵 便宜 奇怪 重要 麻烦 危险 特别")
DOINGS = words(
    "看电影 听音乐 打篮球 踢足球 学英语 学汉语 做饭 跑步 游泳 爬山 下棋 唱歌 跳舞 画画 写信 "
    "买东西 喝咖啡 玩游戏 养猫 养狗 去旅行 去上海 去海边 睡懒觉"
)
SURNAMES = words("王 李 张 刘 陈 杨 赵 黄 周 吴 徐 孙 胡 朱 高 林 何 郭 马 罗")
NAMES = words("明 红 伟 芳 丽 强 军 敏 静 杰 涛 超 霞 平 刚 英 华 玉 兰 飞")
TALKS = [  # what is said, what is answered, and what can stand in the gaps
    # I think ... is very ... / Why do you think that ... is very ...?
    ("我觉得{}很{}。", "你为什么觉得{}很{}？", THINGS, QUALITIES),
    # Do you find ... ...? / I find ... not ..., and you?
    ("你觉得{}{}吗？", "我觉得{}不{}，你呢？", THINGS, QUALITIES),
    # My ... does not let me ... / Talk to your ..., perhaps you may ... then.
    ("我的{}不让我{}。", "跟你的{}说说，也许就让你{}了。", PEOPLE, DOINGS),
    # Today my ... and I went ... / How nice! Do you and your ... often ...?
    ("今天我和{}一起{}了。", "真好！你和{}常常{}吗？", PEOPLE, DOINGS),
    # Hello, my name is ... / ..., hello! Glad to meet you.
    ("你好，我叫{}{}。", "{}{}，你好！很高兴认识你。", SURNAMES, NAMES),
]
talks = [
    (said.format(*gaps), answered.format(*gaps))
    for said, answered, *choices in TALKS
    for gaps in itertools.product(*choices)
]
random.Random(1).shuffle(talks)
for said, answered in talks[:5]:
    print(f"甲：{said}\n乙：{answered}\n")
print(f"{len(talks):,} pairs")

# %%
chatter, chat_held_out = learn("chat", talks, "zh", (480, 480))
chat_match, wrong = exact_match(chatter, chat_held_out)
print(f"exact match on {len(chat_held_out)} held-out questions: {chat_match:.1%}")
for source, answer, right in wrong[:3]:
    print(f"\n{source}\n  wrote 写成 {answer}\n  right 应为 {right}")

# %% [markdown]
# Every one of these questions is new to the model: it has seen the gaps filled, but never with
# this combination. That is what it learned from examples. And now something else:
#
# > 这些问题对模型来说都是新的：填空的词它都见过，但没见过这样的组合。这就是它从例子里学到的本事。
# > 再来试试别的：

# %%
for said in ("我的老板不让我养猫。", "我觉得恐龙很好看。", "现在几点了？", "我很难过。"):
    print(f"甲：{said}\n乙：{chatter.translate(said).text}")

# %% [markdown]
# Outside of what it was shown there is nothing: a word that it has never seen is lost or mixed up,
# and whatever is said is taken for one of the five kinds it knows. There is no
# understanding here, no memory of the line before, no care. Larger models have seen incomparably
# more, so their "outside" is further away; it does not follow that there is none. And note that
# exact match only works for a toy: in a real chat, thousands of answers are right.
#
# > 在它见过的范围之外，什么也没有：没见过的词会丢掉或弄混；不管你说什么，
# > 都会被当成它认识的五种句型之一。这里没有理解，不记得上一句，也谈不上关心。
# > 大模型见过的东西多得多，“范围之外”也就远得多，但并不等于没有。另外，完全匹配率只适合玩具：
# > 真正聊天时，说得通的回答成千上万。

# %%
reply = chatter.translate("我的老板不让我养猫。", attention=True)
plot_translation(reply, mean=True)

# %% [markdown]
# ## 3. Without the encoder: a language model
# ## 3. 去掉编码器：语言模型
#
# A language model has no source. It reads a text from the left and asks at every place: **which
# token comes next?** So there is nothing to encode, and no cross-attention. What remains of a
# decoder layer is self-attention with the look-ahead mask and the feed-forward layer, and that is
# exactly an `EncoderLayer` that is given another mask. The whole model:
#
# > 语言模型没有原文。它从左往右读，在每个位置都问：**下一个词元是什么？**
# > 没有东西要编码，也就没有交叉注意力。解码器层剩下的，是带前瞻掩码的自注意力加前馈网络；
# > 这正好就是一个换了掩码的 `EncoderLayer`。整个模型如下：

# %%
from nmt.model.layers import EncoderLayer, LayerNorm
from nmt.model.masks import look_ahead_mask
from nmt.model.positions import sinusoidal_positions


class LanguageModel(keras.Model):
    """A decoder-only Transformer, pre-norm, its output tied to the embedding."""

    def __init__(self, vocab_size, d_model, num_heads, num_layers):
        super().__init__()
        normal = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.embedding = keras.layers.Embedding(vocab_size, d_model, normal)
        sizes = dict(d_model=d_model, num_heads=num_heads, dff=4 * d_model, norm="pre")
        self.blocks = [EncoderLayer(dropout_rate=0.0, **sizes) for _ in range(num_layers)]
        self.norm = LayerNorm()

    def call(self, ids):
        """Return logits (B, T, V) and, for each layer, the attention (B, H, T, T) of ids (B, T)."""
        length, d_model = tf.shape(ids)[1], self.embedding.output_dim
        x = self.embedding(ids) * d_model**0.5 + sinusoidal_positions(length, d_model)
        weights = []
        for block in self.blocks:
            x, layer_weights = block(x, may_attend=look_ahead_mask(length, length))
            weights.append(layer_weights)
        return tf.matmul(self.norm(x), self.embedding.embeddings, transpose_b=True), weights


# %% [markdown]
# The data are half as much work as before: one side of a corpus, here the English one. What the
# model reads and what it has to predict are the same sentence, one step apart, just like the two
# target rows of a translation batch; so we take those.
#
# > 数据也省了一半：只要语料的一侧，这里用英文。模型读的和要预测的是同一个句子，错开一位，
# > 和翻译批次里译文的那两行一模一样，所以直接拿来用。

# %%
from nmt.config import DataConfig
from nmt.data.batches import batches_from
from nmt.data.corpora import load_corpus
from nmt.data.prepared import Prepared, encode
from nmt.text.tokenizer import BOS, EOS, PAD, train_tokenizer

splits = load_corpus(DataConfig(corpus=CORPUS)).splits
sentences = [pair.source for pair in splits.train]
tokenizer = train_tokenizer(sentences, 2000, spaced=True)
encoded = encode(tokenizer, sentences)
unseen = encode(tokenizer, [pair.source for pair in splits.test[:400]])
batches = batches_from(Prepared(encoded, encoded), batch_tokens=1536, seed=4, step=0)
batch = next(batches)
print(f"{len(sentences):,} sentences, {encoded.ids.size:,} tokens", end=", ")
print(f"{tokenizer.vocab_size:,} subwords")
print("reads            ", *tokenizer.pieces(batch.target_in_ids[0]))
print("has to predict   ", *tokenizer.pieces(batch.target_out_ids[0]))

# %% [markdown]
# Loss, schedule and optimizer are those of the translation model. Only the update is our own,
# because `nmt`'s asks for a source:
#
# > 损失、学习率和优化器都和翻译模型用的一样。只有更新这一步要自己写，因为 `nmt` 的那一步需要原文：

# %%
from nmt.training.losses import token_sums
from nmt.training.optimizer import FusedAdam
from nmt.training.schedule import WarmupSchedule

language_model = LanguageModel(tokenizer.vocab_size, d_model=64, num_heads=4, num_layers=2)
language_model(batch.target_in_ids)  # makes the weights


def update(model, optimizer, ids, next_ids):
    """Make one update from ids (B, T) and what follows each (B, T); return the loss before it."""
    weights = model.trainable_variables
    with tf.GradientTape() as tape:
        sums = token_sums(model(ids)[0], next_ids)
        loss = sums.loss / sums.tokens
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, weights)]
    optimizer.apply(gradients, weights)
    return loss


def fit(model, batches, steps):
    """Update `model` so many times; return the loss of each batch."""
    losses = []
    optimizer = FusedAdam(WarmupSchedule(64, 100, 3e-3), beta_2=0.98, epsilon=1e-9)
    optimizer.build(model.trainable_variables)
    any_shape = tf.TensorSpec([None, None], tf.int32)
    compiled = tf.function(lambda *ids: update(model, optimizer, *ids), [any_shape, any_shape])
    for step, batch in enumerate(itertools.islice(batches, steps), 1):
        losses.append(float(compiled(batch.target_in_ids, batch.target_out_ids)))
        if step % 100 == 0:
            print(f"step {step:5,}  loss {losses[-1]:.2f}")
    return losses


def perplexity():
    """Return e to the mean loss on held-out sentences: between how many tokens it still wavers."""
    batch = next(batches_from(Prepared(unseen, unseen), 100_000, seed=1, step=0))
    sums = token_sums(language_model(batch.target_in_ids)[0], batch.target_out_ids)
    return float(tf.exp(sums.loss / sums.tokens))


untrained = perplexity()
losses = fit(language_model, batches, STEPS)
trained = perplexity()

# %% [markdown]
# The usual measure is **perplexity**, e to the loss: the model is as unsure as if it had to guess
# among so many equally likely tokens. A fair rival is a model that only knows how frequent each
# token is.
#
# > 常用的指标是**困惑度**，即 e 的“损失”次方：模型的犹豫程度，
# > 相当于在这么多个同样可能的词元里瞎猜。一个公平的对手，是只知道每个词元有多常见的模型。

# %%
counts = np.bincount(encoded.ids, minlength=tokenizer.vocab_size) + 1.0
by_frequency = np.exp(-np.log(counts / counts.sum())[unseen.ids].mean())
for name, value in (
    ("untrained", untrained),
    ("frequency of each token only", by_frequency),
    ("trained", trained),
):
    print(f"perplexity on {unseen.lengths.size} held-out sentences, {name:29} {value:8.1f}")

# %%
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.plot(losses, linewidth=0.8, label="each batch 每一批")
axis.axhline(np.log(by_frequency), color="gray", linestyle="--", label="frequency only 只看词频")
axis.plot(len(losses), np.log(trained), "D", label="held out, at the end 留出的句子，训练结束时")
axis.legend(prop=font_for(["每一批只看词频留出的句子，训练结束时"]))
axis.set_xlabel("step 步数", fontproperties=font_for(["步数"]))
axis.set_ylabel("loss 损失", fontproperties=font_for(["损失"]))
axis.grid(alpha=0.3)

# %% [markdown]
# ### Letting it write 让它写
#
# The search functions of `nmt` know nothing of translation. They ask a *step function* for the
# probabilities of the next token, and a language model can answer that too. Here `follow` draws
# each token by its probability. A **temperature** below 1 prefers the likely ones, above 1 it
# becomes adventurous.
#
# > `nmt` 的搜索函数完全不知道翻译这回事，它只向一个*步进函数*要下一个词元的概率，
# > 语言模型当然也答得出来。这里用 `follow` 按概率抽取每个词元。**温度**低于 1 偏爱常见的词元，
# > 高于 1 就变得爱冒险。

# %%
from nmt.decoding.search import follow, permit_tokens, sampler


def next_token_of(model):
    """Return a step function: log-probabilities (B, N, V) after the tokens so far (B, N, t)."""

    def step(newest, so_far):
        so_far = tf.concat([so_far, newest[:, :, None]], axis=2)
        shape = tf.shape(so_far)
        logits, _ = model(tf.reshape(so_far, [-1, shape[2]]))
        log_probs = tf.nn.log_softmax(logits[:, -1])
        return tf.reshape(log_probs, [shape[0], shape[1], -1]), so_far

    return step


RULES = dict(bos=BOS, eos=EOS, pad=PAD)


@tf.function(autograph=False)
def draw(temperature, chance):
    """Return ids (N, T) drawn from the language model by the random numbers chance (1, N, T)."""
    _, count, longest = chance.shape
    choose = sampler(chance, temperature, top_k=0, top_p=1.0)
    permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD)
    nothing = tf.zeros([1, count, 0], tf.int32)
    rules = dict(**RULES, permit=permit, choose=choose, paths=count)
    return follow(next_token_of(language_model), nothing, tf.constant([longest]), **rules).ids[0]


chance = tf.random.stateless_uniform([1, 50, 25], seed=[1, 2])  # 50 sentences of up to 25 tokens
written = {
    temperature: [tokenizer.decode(ids) for ids in draw(tf.constant(temperature), chance).numpy()]
    for temperature in (0.3, 0.7, 1.0, 1.5)
}
for temperature, texts in written.items():
    # They come ranked by their probability; so every twelfth, from likely to unlikely.
    print(f"temperature {temperature}:", *texts[5::12], sep="\n    ")

# %% [markdown]
# At a low temperature: short, fairly smooth, and much alike. At a high one: a heap of words. None
# of it is *about* anything, since the model was asked only for what usually comes next. Did it
# learn sentences by heart? Of 50 that it wrote, so many stand in the training data word for word:
#
# > 温度低：句子短，还算通顺，彼此雷同；温度高：一堆乱词。没有一句是在“说”什么，
# > 因为模型只被要求猜“接下来通常是什么”。它是在背句子吗？它写的 50 句里，
# > 有这么多句一字不差地出现在训练数据中：

# %%
known = set(sentences)
for temperature, texts in written.items():
    copied = sum(text in known for text in texts)
    print(f"temperature {temperature}: {copied} of {len(texts)} stand in the training data")

# %% [markdown]
# And its attention is the triangle that you know from the decoder: nobody looks at what comes
# later.
#
# > 它的注意力就是解码器里见过的那个三角形：谁也不看后面的词。

# %%
from nmt.visualize.heatmap import plot_attention

[ids] = tokenizer.encode(["Where did you buy that book?"])
_, weights = language_model(np.array([[BOS, *ids]], np.int32))
last = weights[-1][0].numpy()  # (heads, T, T)
pieces = tokenizer.pieces([BOS, *ids])
plot_attention(last, pieces, pieces, [f"head 头 {h}" for h in range(1, len(last) + 1)])

# %% [markdown]
# ## What changes, and what does not
# ## 变的与不变的
#
# | | translation, headlines, chat 翻译、标题、聊天 | language model 语言模型 |
# |---|---|---|
# | data 数据 | pairs of texts 成对的文本 | texts 只要文本 |
# | embeddings 嵌入 | one for each side 两侧各一 | one 一个 |
# | encoder 编码器 | yes 有 | no 无 |
# | cross-attention 交叉注意力 | yes 有 | no 无 |
# | mask of the source 原文的掩码 | padding 填充 | there is no source 没有原文 |
# | mask of the target 译文的掩码 | look-ahead 前瞻 | look-ahead 前瞻 |
# | attention, feed-forward 注意力、前馈 | the same 相同 | the same 相同 |
# | residuals, norms 残差、归一化 | the same 相同 | the same 相同 |
# | positions, tied output 位置、共享的输出 | the same 相同 | the same 相同 |
# | loss 损失 | of the next token 下一个词元 | of the next token 下一个词元 |
# | schedule, Adam 学习率、Adam | the same 相同 | the same 相同 |
# | decoding 解码 | greedy, beam 贪心、束搜索 | mostly sampling 多用抽样 |
# | measure 指标 | BLEU; exact match 完全匹配率 | perplexity 困惑度 |
#
# The step from here to a chatbot is one of size and of data, not of architecture: more layers, far
# more text, and then training on dialogues.
#
# > 从这里到聊天机器人，差的是规模和数据，而不是结构：更多的层、多得多的文本，然后再用对话训练。

# %% [markdown]
# ## Checks
# ## 检查
#
# The mechanisms must hold however short the training was; the scores are asked for only when the
# steps were enough to learn.
#
# > 机制类的检查与训练长短无关；只有训练步数足够时，才要求分数达标。

# %%
# Nothing that is measured was trained on, and the answers are those of the rules.
assert len(set(headlines)) == len({headline for _, headline in headlines}) == len(headlines)
assert {(pair.source, pair.target) for pair in held_out} <= set(headlines)
assert {(pair.source, pair.target) for pair in chat_held_out} <= set(talks)

# The headline never needs the reporter's city.
for report, headline in headlines:
    assert report.split("记者从")[1].split("赶来")[0] not in headline

# Enough steps, and held-out answers come out right.
if STEPS >= 300:
    assert headline_match > 0.5
    assert chat_match > 0.5
    assert CORPUS == "hsk" or trained < 0.6 * by_frequency
assert trained < untrained

# The language model cannot see what comes later: change the last token, and nothing before moves.
first = language_model(np.array([[BOS, 300, 301, 302]], np.int32))[0].numpy()
other = language_model(np.array([[BOS, 300, 301, 400]], np.int32))[0].numpy()
np.testing.assert_allclose(first[:, :3], other[:, :3], atol=1e-4)
assert np.abs(first[:, 3] - other[:, 3]).max() > 1e-3
assert np.all(np.triu(last, 1) == 0)
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Backwards.** Even an algorithm can be learned from examples. Make 4,000 pairs such as
# `7 2 9 4 → 4 9 2 7` (four different digits, each row only once) and let `learn` train on them for
# `STEPS` steps. How many held-out ones are right? And what does the model make of six digits,
# when it has only ever seen four?
#
# > **1. 倒着写。** 连算法也能从例子里学。造 4,000 个像 `7 2 9 4 → 4 9 2 7` 这样的对
# > （四个不同的数字，每行只用一次），用 `learn` 训练 `STEPS` 步。留出的例子对了多少？
# > 它只见过四个数字，给它六个会怎样？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# rows = random.Random(2).sample(list(itertools.permutations("0123456789", 4)), 4000)
# reversals = [(" ".join(row), " ".join(reversed(row))) for row in rows]
# reverser, unseen_rows = learn("backwards", reversals, "en", (280, 280))
# share, _ = exact_match(reverser, unseen_rows)
# print(f"four digits, held out: {share:.1%} right")
# for text in ("7 2 9 4 1 8", "3 1 4 5 9 2"):
#     print(text, "→", reverser.translate(text).text)
# ```
#
# Four digits it turns round well, six not at all: what it learned is "the token at place 4 comes
# first", tied to the places it was trained on, and not the idea of turning round.
#
# > 四个数字倒得很好，六个就不行了：它学到的是“第 4 位的词元排最前”，与训练时见过的位置绑在一起，
# > 并没有学会“倒过来”这个概念。
#
# </details>

# %% [markdown]
# **2. A chatbot without an encoder.** Join question and answer to one line, `question→answer`, and
# train a `LanguageModel` on such lines with `fit`. Then force the question as the beginning
# (`permit_tokens(..., prefix_BP=ids)`), and let `follow` go on by the most likely tokens. This is
# the way of all large chatbots: what you type is the beginning, the answer is the continuation.
#
# > **2. 没有编码器的聊天机器人。** 把问和答连成一行：`问→答`，用 `fit` 在这样的文本上训练一个
# > `LanguageModel`。然后把问句强制作为开头（`permit_tokens(..., prefix_BP=ids)`），
# > 让 `follow` 按概率最大的词元往下接。大型聊天机器人都是这么做的：你打的字是开头，回答是续写。
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# from nmt.data.batches import pad
#
# tests = {pair.source: pair.target for pair in chat_held_out}
# lines = [f"{said}→{answered}" for said, answered in talks if said not in tests]
# chat_tokenizer = train_tokenizer(lines, 500, spaced=False)
# chat_lines = encode(chat_tokenizer, lines)
# chat_batches = batches_from(Prepared(chat_lines, chat_lines), 1024, seed=1, step=0)
# chat_model = LanguageModel(chat_tokenizer.vocab_size, d_model=64, num_heads=4, num_layers=2)
# chat_model(next(chat_batches).target_in_ids)  # makes the weights
# fit(chat_model, chat_batches, STEPS)
#
#
# def answers(questions, longest=40):
#     encoded = chat_tokenizer.encode([f"{question}→" for question in questions])
#     prefix = pad([np.array(ids, np.int32) for ids in encoded])  # (B, P)
#     permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD, prefix_BP=tf.constant(prefix))
#     nothing = tf.zeros([len(questions), 1, 0], tf.int32)
#     limits = tf.fill([len(questions)], longest)
#     found = follow(next_token_of(chat_model), nothing, limits, **RULES, permit=permit)
#     return [chat_tokenizer.decode(ids).split("→")[1] for ids in found.ids[:, 0].numpy()]
#
#
# right = sum(map(str.__eq__, answers(list(tests)), tests.values()))
# print(f"{right} of {len(tests)} held-out answers right, without an encoder")
# print(*answers(["我的老板不让我养猫。", "你觉得小猫可爱吗？"]))
# ```
#
# One stack of layers does what two did before: it looks back at the question through its
# self-attention, where the translator used cross-attention.
#
# > 一摞层就完成了原来两摞层的工作：翻译模型用交叉注意力看原文，它则用自注意力回头看问句。
#
# </details>
