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
# # 6. Is it any good?
# # 6. 翻得好不好？
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# A translation system needs a figure that says whether it has become better. The usual one is BLEU.
# It is simple enough to work out by hand, and easy to get badly wrong, above all with Chinese. Here
# you do both, on purpose.
#
# > 做翻译系统，总要有个数字来说明它有没有变好。最常用的是 BLEU：简单到可以手算，
# > 也很容易算错，中文尤其如此。这一课我们就来手算一遍，再故意算错一遍。
#
# **You will learn 你将学到**
#
# - BLEU by hand, and the same from sacreBLEU and NLTK 手算 BLEU，并与 sacreBLEU、NLTK 对照
# - why the usual tokenizer makes Chinese BLEU meaningless 为什么常用的切分法会让中文 BLEU 毫无意义
# - how sure one can be of a score: the bootstrap 分数有多可靠：自助法（bootstrap）
# - what BLEU cannot see, and what token accuracy cannot see BLEU 看不到什么，词元准确率又看不到什么
#
# Under a minute on two CPU cores. 两个 CPU 核不到一分钟。
#
# ← [5. Translating 翻译](05_translating.ipynb) ·
# [7. Looking inside 打开看看](07_looking_inside.ipynb) →

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
import io
import logging
import os
from collections import Counter
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
import nltk
import numpy as np
import sacrebleu
import tensorflow_datasets as tfds

import nmt
import nmt.data.builders  # makes the packaged corpora known to tfds
from nmt.visualize.fonts import font_for

print("nmt", nmt.__version__, "| sacrebleu", sacrebleu.__version__, "| nltk", nltk.__version__)

# %% [markdown]
# The settings to play with: how many held-out sentences are translated (at most 1,000), and how
# many times the bootstrap draws, with which seed.
#
# > 下面的值可以随意改：翻译多少个留出的句子（最多 1000），自助法抽多少次、随机种子是几。

# %% tags=["parameters"] toy={"SENTENCES": 100}
SENTENCES = 200
DRAWS = 1000
SEED = 1

# %% [markdown]
# ## 1. BLEU by hand
# ## 1. 手算 BLEU
#
# BLEU (Papineni et al. 2002) compares what the system wrote, the *hypothesis*, with what a person
# wrote, the *reference*: how many runs of one, two, three and four tokens (*n-grams*) of the
# hypothesis also stand in the reference? That share is called the *precision*. A token is a Chinese
# character here. Two sentences:
#
# > BLEU（Papineni 等，2002）拿系统写的（*假设译文*）与人写的（*参考译文*）相比：
# > 假设译文里长度为一、二、三、四的连续片段（*n 元组*），有多少也出现在参考译文里？
# > 这个比例叫*精确率*。这里一个汉字就是一个词元。先看两个句子：

# %%
hypotheses = ["我昨天买了一本书。", "猫猫在桌子上。"]
references = ["他昨天买了一本新书。", "猫在桌子下面。"]


def ngrams(tokens, n):
    """Count the runs of n tokens."""
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


for n in (1, 2):
    ours, theirs = ngrams(hypotheses[1], n), ngrams(references[1], n)
    print(f"{n}-grams of the second hypothesis, and how often they count:")
    print("  ", "   ".join(f"{''.join(g)} {min(c, theirs[g])} of {c}" for g, c in ours.items()))

# %% [markdown]
# 猫 stands twice in the hypothesis, but only once in the reference, so it counts once: this is
# **clipping**. Without it, 猫猫猫猫猫 would be a perfect translation as far as single tokens go.
# Now all of it, as sums over *both* sentences. BLEU adds up the counts of the whole test set first
# and divides at the end:
#
# > “猫”在假设译文里出现两次，在参考译文里只有一次，所以只算一次，这叫**截断计数**（clipping）。
# > 否则就一元组而言，“猫猫猫猫猫”也成了满分译文。下面把*两个*句子合起来算：
# > BLEU 先把整个测试集的计数加总，最后才相除。

# %%


def statistics(hypothesis, reference):
    """Return matches and totals for n = 1 to 4, then both lengths: ten numbers to be added up."""
    both = [(ngrams(hypothesis, n), ngrams(reference, n)) for n in (1, 2, 3, 4)]
    matches = [(ours & theirs).total() for ours, theirs in both]  # & takes the smaller count
    totals = [ours.total() for ours, theirs in both]
    return np.array([*matches, *totals, len(hypothesis), len(reference)])


def bleu_of(sums):
    """Return BLEU, 0 to 100, from sums of statistics (..., 10)."""
    precisions = sums[..., :4] / sums[..., 4:8]
    brevity_penalty = np.exp(np.minimum(0, 1 - sums[..., 9] / sums[..., 8]))
    return 100 * brevity_penalty * np.exp(np.log(precisions).mean(axis=-1))


sums = sum(statistics(h, r) for h, r in zip(hypotheses, references, strict=True))
for n in range(4):
    precision = sums[n] / sums[n + 4]
    print(f"{n + 1}-grams: {sums[n]:2} of {sums[n + 4]:2} match, precision {precision:.4f}")
print(f"lengths: hypotheses {sums[8]}, references {sums[9]}")
print(f"brevity penalty: exp(1 - {sums[9]}/{sums[8]}) = {np.exp(1 - sums[9] / sums[8]):.4f}")
print(f"BLEU: {bleu_of(sums):.4f}")

# %% [markdown]
# Precision alone could be cheated by writing only what one is sure of: 书。 has nothing wrong in
# it. Hence the **brevity penalty**: below 1 when the hypotheses together are shorter than the
# references. BLEU is this penalty times the *geometric* mean of the four precisions:
#
# > 只看精确率，可以取巧：只写有把握的。“书。”里没有一个字是错的。所以有**简短惩罚**（BP）：
# > 假设译文的总长短于参考译文时，它小于 1。BLEU 就是这个惩罚乘以四个精确率的*几何*平均：
#
# $$\text{BLEU} = 100 \cdot BP \cdot (p_1\, p_2\, p_3\, p_4)^{1/4}, \qquad
# BP = \min(1,\; e^{1 - r/h})$$
#
# (h and r are the total lengths of hypotheses and references, p the precisions.)
#
# > （h 和 r 是假设译文与参考译文的总长，p 是各个精确率。）
#
# Three other ways to the same figure. sacreBLEU is what papers report; `nmt` calls it, and NLTK on
# the same tokens beside it:
#
# > 再用三种办法算同一个数。论文里报告的是 sacreBLEU；`nmt` 调用的就是它，
# > 并在同样的词元上用 NLTK 再算一遍：

# %%
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu

from nmt.evaluation.scores import corpus_scores

by_hand = bleu_of(sums)
by_sacrebleu = sacrebleu.BLEU(tokenize="zh").corpus_score(hypotheses, [references]).score
by_nltk = corpus_bleu([[list(r)] for r in references], [list(h) for h in hypotheses])
print(f"by hand   {by_hand:.6f}")
print(f"sacreBLEU {by_sacrebleu:.6f}   0 to 100")
print(f"NLTK      {by_nltk:.8f}   0 to 1")
for score in corpus_scores(hypotheses, [references], "zh"):
    print(f"nmt: {score.name:9} {score.value:.6f}   {score.signature}")

# %% [markdown]
# They agree to the last digit here; NLTK only counts from 0 to 1. On other data they may not.
# **Smoothing**: if no run of four matches, the geometric mean is 0, so sacreBLEU puts a small
# number in the place of the 0 (`smooth:exp` in the signature; `floor` takes another small number),
# NLTK does nothing unless it is told to. **Effective order**: a perfect translation of three tokens
# has no run of four at all, and gets 0; with effective order, only lengths that exist are averaged.
#
# > 这里它们分毫不差，只是 NLTK 用 0 到 1 计。换了数据却可能不一样。**平滑**：
# > 如果一个四元组都没对上，几何平均就是 0，
# > 所以 sacreBLEU 用一个很小的数代替 0（签名里的 `smooth:exp`；`floor` 用的是另一个小数），
# > 而 NLTK 除非另外指定，否则什么也不做。**有效阶数**：三个词元的句子哪怕翻得完美，
# > 也根本没有四元组，只能得 0 分；用有效阶数，就只对存在的那几个阶求平均。

# %%
hypothesis, reference = "我很好。", "我挺好。"  # two runs of one match, and one of two: 好。
for method in ("exp", "none", "floor"):
    metric = sacrebleu.BLEU(tokenize="zh", smooth_method=method)
    print(
        f"sacreBLEU smooth:{method:6} {metric.corpus_score([hypothesis], [[reference]]).score:6.2f}"
    )
smoothed = SmoothingFunction().method3  # NLTK's name for the same idea
value = corpus_bleu([[list(reference)]], [list(hypothesis)], smoothing_function=smoothed)
print(f"NLTK method3           {100 * value:6.2f}\n")

for effective in (False, True):
    metric = sacrebleu.BLEU(tokenize="zh", effective_order=effective)
    perfect = metric.corpus_score(["你好。"], [["你好。"]]).score
    print(f"你好。 for 你好。, effective order {effective!s:5}: {perfect:.0f}")

# %% [markdown]
# With hundreds of sentences none of this matters; with one it decides everything. BLEU is a measure
# for a **corpus**.
#
# > 有几百个句子时，这些都无关紧要；只有一个句子时，结果全看它们。BLEU 是给**整个语料**打分用的。

# %% [markdown]
# ## 2. A real test set
# ## 2. 真实的测试集
#
# The model that comes with the project was trained on Tatoeba; 1,000 pairs were held out, none of
# whose sentences stands in the training part on either side (notebook 1). The references are
# converted to Simplified, as the training text was: otherwise 給 for 给 would count as wrong.
# Translations are written freely, by greedy search.
#
# > 项目自带的模型是在 Tatoeba 上训练的，留出了 1000 个句对，
# > 中英文都没有在训练部分出现过（见第 1 课）。参考译文也和训练文本一样转换成简体，否则“給”对“给”
# > 也会算错。译文由模型用贪心搜索自由写出。

# %%
from nmt.data.cleaning import clean_pairs
from nmt.data.corpora import PACKAGED
from nmt.data.splitting import SentencePair

tfds.disable_progress_bar()
with contextlib.redirect_stdout(io.StringIO()):  # the first time, TFDS tells where it writes
    held_out = tfds.as_numpy(tfds.load(PACKAGED["tatoeba"], split="test"))
pairs = [SentencePair(pair["en"].decode(), pair["zh"].decode()) for pair in held_out]
pairs = clean_pairs(pairs, "simplified").pairs[:SENTENCES]
sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]

places = (Path(PROJECT), Path("."), Path(".."))
ROOT = next(place for place in places if (place / "checkpoints" / "pretrained").is_dir())
translator = nmt.load(ROOT / "checkpoints" / "pretrained")
greedy = [translation.text for translation in translator.translate(sources)]
for source, text, reference in list(zip(sources, greedy, references, strict=True))[:5]:
    print(f"source 原文      {source}\ntranslated 译文  {text}\nreference 参考   {reference}\n")

# %% [markdown]
# ## 3. The trap: who cuts the text?
# ## 3. 陷阱：谁来切分文本？
#
# BLEU counts tokens, so someone has to cut the text first. The usual cutter, `13a`, was made for
# English and cuts at spaces and ASCII punctuation. Chinese has neither. `zh` cuts around every
# Chinese character:
#
# > BLEU 数的是词元，所以总得有人先切分文本。常用的 `13a` 是为英文做的，按空格和半角标点切，
# > 而中文两样都没有。`zh` 则把每个汉字切开：

# %%
text = "他买了3本iPhone书，花了9.5元。"
for name in ("13a", "zh"):
    print(f"{name:3}", " | ".join(sacrebleu.BLEU(tokenize=name).tokenizer(text).split()))

# %% [markdown]
# So for `13a` a whole sentence is *one* word, all right or all wrong. The same translations, with
# both:
#
# > 所以对 `13a` 来说，整句就是*一个*词，要么全对，要么全错。同样的译文，用两种切法打分：

# %%
for name in ("zh", "13a"):
    metric = sacrebleu.BLEU(tokenize=name)
    score = metric.corpus_score(greedy, [references])
    print(f"BLEU {score.score:5.2f}   {metric.get_signature()}")
    for n in range(4):
        print(f"   {n + 1}-grams: {score.counts[n]:4} of {score.totals[n]:4} match")
same_sentence = sum(map(str.__eq__, greedy, references))
print(f"translations that are the reference, to the character 一字不差的译文: {same_sentence}")

# %% [markdown]
# Look at the counts. With `13a` there is one "word" for each sentence, or little more; what matches
# is the sentences that are the reference *exactly*, and runs of two or more hardly exist. Whatever
# comes out, 0 or a few points if some texts happen to contain spaces, says nothing of the other
# translations: they could all become better, or worse, without changing it. That is why a BLEU
# without its **signature** (the text beside it: `tok:zh`, the version, ...) cannot be compared with
# any other.
#
# > 看看计数：用 `13a` 时，每句差不多只有一个“词”，对上的就是与参考译文*一字不差*的那些句子，
# > 两个以上连续的词几乎不存在。不管算出来是 0，还是因为某些文本碰巧有空格而得几分，
# > 都与其他译文无关：它们全都变好或全都变坏，这个数也不会变。所以没有**签名**
# > （分数旁边的那串文字：`tok:zh`、版本等）的 BLEU，无法与别的分数比较。
#
# **chrF** needs no tokens at all. It compares runs of one to *six characters*, and looks at
# *recall* (how much of the reference was found) as well as at precision:
#
# > **chrF** 根本不需要切分：它比较长度为一到*六个字符*的片段，而且既看精确率，
# > 也看*召回率*（参考译文里的片段有多少被译出来了）：

# %%
scores = corpus_scores(greedy, [references], "zh")
for score in scores:
    print(f"{score.name:9} {score.value:5.2f}   {score.signature}")

# %% [markdown]
# The second decimals of the two BLEUs may differ here, and now we can say why. A translation of
# three tokens has no run of four. By hand and in sacreBLEU it adds 0 to the number of runs; NLTK
# counts at least 1 for every sentence, as one that does not match:
#
# > 两个 BLEU 的小数部分在这里可能略有不同，现在可以说清原因了。三个词元的译文没有四元组：
# > 手算和 sacreBLEU 都不往总数里加；NLTK 却给每个句子至少算 1 个，而且算没对上：

# %%
cut = sacrebleu.BLEU(tokenize="zh").tokenizer


def all_statistics(texts):
    """Return the statistics of each sentence against its reference, (sentences, 10)."""
    return np.array(
        [statistics(cut(t).split(), cut(r).split()) for t, r in zip(texts, references, strict=True)]
    )


of_greedy = all_statistics(greedy)
as_nltk = of_greedy.copy()
as_nltk[:, 4:8] = np.maximum(as_nltk[:, 4:8], 1)
print(f"by hand          {bleu_of(of_greedy.sum(axis=0)):.6f}   sacreBLEU {scores[0].value:.6f}")
print(f"at least 1 a run {bleu_of(as_nltk.sum(axis=0)):.6f}   NLTK      {scores[2].value:.6f}")
print(f"translations of fewer than four tokens 不足四个词元的译文: {np.sum(of_greedy[:, 8] < 4)}")

# %% [markdown]
# ## 4. How sure is that?
# ## 4. 有多可靠？
#
# Other test sentences would have given another figure. How different might it be? The **bootstrap**
# pretends: draw as many sentences from the test set as it has, *with replacement*, so that some
# come twice and some not at all, and compute BLEU again; do it a thousand times. Our statistics are
# sums, so each draw is only an addition:
#
# > 换一批测试句，分数就会不同。会差多少？**自助法**（bootstrap）来模拟：
# > 从测试集里*有放回地*抽取同样多的句子（有的抽到两次，有的一次也没有），重新算 BLEU，重复一千次。
# > 我们的统计量都是可加的，所以每抽一次只是做加法：

# %%
drawn = np.random.default_rng(SEED).integers(0, len(pairs), (DRAWS, len(pairs)))
bleus = bleu_of(of_greedy[drawn].sum(axis=1))  # (DRAWS,)
low, high = np.percentile(bleus, [2.5, 97.5])
print(
    f"BLEU {bleu_of(of_greedy.sum(axis=0)):.2f}, 95% of the draws between {low:.2f} and {high:.2f}"
)
print(f"({len(pairs)} sentences, {DRAWS:,} draws, seed {SEED})")

metric = sacrebleu.BLEU(tokenize="zh")
print("sacreBLEU:", metric.corpus_score(greedy, [references], n_bootstrap=DRAWS))
print(metric.get_signature())

# %%


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font, labelpad=7)


figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.hist(bleus, bins=30)
axis.axvspan(low, high, color="gray", alpha=0.25, zorder=0)
caption(axis, "BLEU of resampled test sets 重抽测试集的 BLEU", "BLEU", "draws 次数")

# %% [markdown]
# The gray band holds 95% of the draws. (sacreBLEU draws with a seed of its own, so its figures are
# a little different: μ is the mean of the draws, ± half the width of their interval.) So two
# systems whose scores differ by less than that cannot be told apart by looking at their scores
# alone. Looking at **the same draws for both** is sharper: a draw of hard sentences is hard for
# both. Greedy search against a beam of 4 (notebook 5):
#
# > 灰色带里是 95% 的结果。（sacreBLEU 用自己的种子抽样，所以数字略有不同：
# > μ 是各次结果的平均，± 后面是区间宽度的一半。）
# > 所以两个系统的分数如果相差还不到这么多，光看分数是分不出高下的。
# > **两边用同样的抽样**来比较就灵敏得多：抽到难句，对两边都难。下面比较贪心与束宽 4（见第 5 课）：

# %%
from nmt.decoding.options import SearchOptions

beam = [t.text for t in translator.translate(sources, SearchOptions(beam=4))]
of_beam = all_statistics(beam)
gains = bleu_of(of_beam[drawn].sum(axis=1)) - bleus
low, high = np.percentile(gains, [2.5, 97.5])
gain = bleu_of(of_beam.sum(axis=0)) - bleu_of(of_greedy.sum(axis=0))
print(f"beam 4 - greedy: {gain:+.2f} BLEU, 95% of the draws between {low:+.2f} and {high:+.2f}")
print(f"beam 4 is better in 束宽 4 更好的比例: {np.mean(gains > 0):.1%} of the draws")

# %% [markdown]
# If 0 lies within the interval, these sentences do not suffice to say which search is better. Use
# more of them (`SENTENCES = 1000`) before you believe it, and never the validation set that you
# have tuned on.
#
# > 如果区间里包含 0，这些句子就还不足以说明哪种搜索更好。
# > 下结论之前请多用些句子（`SENTENCES = 1000`），而且绝不要用调过参数的验证集。
#
# **Never average the BLEU of sentences.** The mean of sentence scores is another figure, because a
# sentence of three tokens then weighs as much as one of thirty, and because each is smoothed:
#
# > **千万不要对单句 BLEU 求平均。** 那是另一个数：三个词元的句子会和三十个词元的一样重，
# > 而且每一句都被平滑过：

# %%
from nmt.evaluation.scores import sentence_bleu

one_by_one = [sentence_bleu(t, [r], "zh") for t, r in zip(greedy, references, strict=True)]
print(f"corpus BLEU 语料 BLEU                 {scores[0].value:.2f}")
print(f"mean of sentence BLEUs 单句 BLEU 平均 {np.mean(one_by_one):.2f}  ← do not use 不要用")

# %% [markdown]
# ## 5. What BLEU cannot see
# ## 5. BLEU 看不到什么
#
# BLEU compares characters, not meanings. Three references; for each, translations that are wrong
# (✗) and one that is right (✓). (Single sentences, only to show the point.)
#
# > BLEU 比较的是字面，不是意思。下面有三个参考译文，各配几个错的译文（✗）和一个对的（✓）。
# > （这里只为说明问题，才给单句打分。）

# %%
examples = {
    "我不喜欢猫。": {
        "我喜欢猫。": "✗ negation dropped 漏了否定",
        "我不爱猫咪。": "✓ synonyms 同义词",
    },
    "会议下午三点开始。": {
        "会议下午四点开始。": "✗ wrong number 数字错了",
        "下午三点开会。": "✓ said differently 换了说法",
    },
    "他是我最好的朋友。": {
        "他是我最好的敌人。": "✗ the opposite 意思相反",
        "我是他最好的朋友。": "✗ who is whose 主客颠倒",
        "他跟我最要好。": "✓ said differently 换了说法",
    },
}
judged = []
for reference, candidates in examples.items():
    print("reference", reference)
    for text, verdict in candidates.items():
        bleu, chrf = (
            sentence_bleu(text, [reference], "zh"),
            sacrebleu.sentence_chrf(text, [reference]),
        )
        judged.append((reference, verdict[0], bleu, text))
        print(f"  BLEU {bleu:5.1f}  chrF {chrf.score:5.1f}  {text}  {verdict}")

# %%
labels = [row[3] for row in judged]
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
colors = {"✗": "tab:orange", "✓": "tab:blue"}
axis.barh(labels, [row[2] for row in judged], color=[colors[row[1]] for row in judged])
axis.set_yticks(range(len(labels)), labels, font=font_for(labels))
axis.invert_yaxis()
caption(axis, "Wrong (orange) beats right (blue) 错的（橙）胜过对的（蓝）", "BLEU", "")

# %% [markdown]
# Every wrong translation beats the right one. A character or two turn a sentence into its opposite
# and cost only the few n-grams around them; saying it in other words costs nearly all of them.
# Over hundreds of sentences such accidents even out, which is why BLEU is of use for comparing
# *similar* systems. It does not replace reading: look at numbers, names and negations yourself.
#
# > 每一组都是错的赢了对的。改一两个字就能让意思反过来，却只损失包含它的那几个 n 元组；换个说法，
# > 几乎全部丢光。句子有几百个时，这种偶然会互相抵消，所以用 BLEU 比较*相近*的系统还是有用的。
# > 但它代替不了阅读：数字、人名、否定，请亲自看一看。

# %% [markdown]
# ## 6. What token accuracy cannot see
# ## 6. 词元准确率看不到什么
#
# In training one watches the *token accuracy*: the share of next tokens that are right when the
# model is given the reference so far (notebook 4). It belongs to the model, not to its
# translations. Here are three ways to translate with the **same** model, hence the same accuracy
# and the same loss:
#
# > 训练时看的是*词元准确率*：给出参考译文的开头，下一个词元猜对的比例（见第 4 课）。
# > 它说的是模型，不是译文。下面用**同一个**模型、三种办法来翻译，准确率和损失当然一样：

# %%
from nmt.data.prepared import encode_pairs
from nmt.training.validation import make_predict, validate

encoded = encode_pairs(pairs, translator.source_tokenizer, translator.target_tokenizer)
forced = validate(make_predict(translator.searcher.models[0]), encoded, step=0)
options = SearchOptions(sampling=True, temperature=1.0, seed=SEED)
sampled = [t.text for t in translator.translate(sources, options)]
for name, texts in (("greedy", greedy), ("beam 4", beam), ("sampled", sampled)):
    bleu = corpus_scores(texts, [references], "zh")[0]
    print(f"{name:8} token accuracy 词元准确率 {forced.validation_accuracy:.1%}", end="   ")
    print(f"BLEU {bleu.value:5.2f}")
print(bleu.signature)

# %% [markdown]
# One accuracy, and translations of very different quality. The accuracy never sees a translation,
# because the teacher supplies all words but one. To know how well a model translates, let it
# translate.
#
# > 准确率只有一个，译文的质量却大不相同。准确率从来没见过译文，因为除了一个词，其余都是老师给的。
# > 想知道模型翻译得怎么样，就让它去翻译。
#
# On the command line: `nmt evaluate RUN` translates the test set of a run and prints these scores
# with their signatures.
#
# > 命令行：`nmt evaluate RUN` 会翻译运行文件夹里的测试集，并打印带签名的分数。

# %% [markdown]
# ## Checks
# ## 检查

# %%
# Four ways to one figure: by hand, sacreBLEU, NLTK, nmt.
np.testing.assert_allclose(by_hand, by_sacrebleu, atol=1e-6)
np.testing.assert_allclose(by_hand, 100 * by_nltk, atol=1e-6)
np.testing.assert_allclose(by_hand, 53.407046, atol=1e-6)

# And so for real translations, with the one difference that we know of NLTK.
np.testing.assert_allclose(bleu_of(of_greedy.sum(axis=0)), scores[0].value, atol=1e-6)
np.testing.assert_allclose(bleu_of(as_nltk.sum(axis=0)), scores[2].value, atol=1e-6)
assert "tok:zh" in scores[0].signature

# Clipping: no character counts more often than the reference has it.
assert statistics("猫猫猫猫猫", "猫在桌子下面。")[0] == 1

# 13a takes a Chinese sentence for one word, zh for one word a character.
assert len(sacrebleu.BLEU(tokenize="13a").tokenizer("他昨天买了一本书。").split()) == 1
assert len(cut("他昨天买了一本书。").split()) == 9

# The bootstrap surrounds the score, and reading is not replaced by it: wrong beats right.
assert np.percentile(bleus, 2.5) < scores[0].value < np.percentile(bleus, 97.5)
for reference in examples:
    of_reference = [(bleu, verdict) for r, verdict, bleu, text in judged if r == reference]
    assert max(of_reference)[1] == "✗"
    assert min(of_reference)[1] == "✓"

# The mean of sentence scores is not the score of the corpus; sampling is worse than searching.
assert abs(np.mean(one_by_one) - scores[0].value) > 0.01
assert bleu.value < scores[0].value
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Cheating with short translations.** Cut off the last third of every greedy translation and
# score again. What happens to the precisions, what to BLEU, and what prevents the cheating?
#
# > **1. 靠短译文取巧。** 把每个贪心译文的最后三分之一砍掉，重新打分。精确率怎么变？BLEU 怎么变？
# > 是什么阻止了取巧？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# for name, texts in (("whole", greedy), ("cut", [t[: len(t) - len(t) // 3] for t in greedy])):
#     score = sacrebleu.BLEU(tokenize="zh").corpus_score(texts, [references])
#     precisions = ", ".join(f"{p:.1f}" for p in score.precisions)
#     print(f"{name:5} precisions {precisions}   penalty {score.bp:.3f}   BLEU {score.score:.2f}")
# ```
#
# The precisions change much less than the penalty, for what is left is about as right as before
# (only the full stop, a sure hit, is gone); it is the brevity penalty that makes BLEU fall.
#
# > 精确率的变化比惩罚小得多，因为剩下的部分和原来差不多一样对（只是少了几乎必中的句号）；
# > 让 BLEU 掉下来的主要是简短惩罚。
#
# </details>

# %% [markdown]
# **2. How many sentences does one need?** Compute the width of the 95% interval for the first
# quarter and the first half of the sentences, and for all of them. By which factor does it shrink
# when there are four times as many?
#
# > **2. 需要多少个句子？** 分别用前四分之一、前一半和全部句子，算出 95% 区间的宽度。
# > 句子变成四倍，区间缩小到几分之几？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# dice = np.random.default_rng(SEED)
# for n in (len(pairs) // 4, len(pairs) // 2, len(pairs)):
#     some = dice.integers(0, n, (DRAWS, n))
#     low, high = np.percentile(bleu_of(of_greedy[some].sum(axis=1)), [2.5, 97.5])
#     print(f"{n:4} sentences: between {low:5.2f} and {high:5.2f}, {high - low:5.2f} wide")
# ```
#
# Roughly by half: the width goes with 1/√n. To halve it once more takes four times the sentences
# again, which is why test sets have a thousand or more.
#
# > 大约一半：宽度与 1/√n 成正比。想再减半，句子又得是四倍，所以测试集一般有一千句以上。
#
# </details>
