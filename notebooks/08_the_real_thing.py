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
# # 8. The real thing
# # 8. 来真的
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# So far everything was small enough for two CPU cores. Here is how to train the model of the paper
# on news: which commands, on which hardware, how long it may take and which score one may hope for.
# Every command is checked here, and a tiny model walks the whole road as a dress rehearsal; nothing
# is downloaded. What has been measured, what others have published and what is only an estimate is
# said each time.
#
# > 到现在为止，一切都小到两个 CPU 核就能跑。这一课讲怎样在新闻语料上训练论文里的模型：用哪些命令、
# > 什么硬件、大概多久、能指望多少分。每条命令都在这里检查过，还用一个极小的模型把全程彩排一遍，
# > 不下载任何东西。哪些是实测的、哪些是别人发表的、哪些只是估算，每次都会说清楚。
#
# **You will learn 你将学到**
#
# - to get News Commentary, and to train on one GPU, on several, on several machines
#   拿到 News Commentary 语料，并在一块 GPU、多块 GPU、多台机器上训练
# - to estimate memory and time before you pay for them
#   在花钱之前先估算显存和时间
# - to score on a public news test set so that others can compare
#   在公开的新闻测试集上评分，让别人可以比较
#
# About half a minute on two CPU cores. 两个 CPU 核大约半分钟。
#
# ← [7. Looking inside 打开看看](07_looking_inside.ipynb) ·
# [9. Other tasks 别的任务](09_other_tasks.ipynb) →

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
import json
import logging
import os
import re
import shlex
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

import matplotlib.pyplot as plt

import nmt
from nmt.visualize.fonts import font_for

places = (Path(PROJECT), Path("."), Path(".."))
ROOT = next(place for place in places if (place / "checkpoints" / "pretrained").is_dir())
plt.show()  # wakes pyplot up: before that, figures are shown as text only
print("nmt", nmt.__version__, "| tensorflow", tf.__version__)
print("GPUs here 这里的 GPU:", len(tf.config.list_physical_devices("GPU")))

# %% [markdown]
# How many updates the dress rehearsal makes, and how many sentences it is scored on:
#
# > 彩排训练多少步，用多少句子评分：

# %% tags=["parameters"] toy={"STEPS": 40, "SENTENCES": 20}
STEPS = 200
SENTENCES = 100

# %% [markdown]
# ## 1. The commands
# ## 1. 命令
#
# The corpus is News Commentary v14, English and Chinese, the one that the classic TensorFlow
# tutorial meant by `wmt19_translate/zh-en`. TFDS downloads it; when its host is down, put the file
# `news-commentary-v14.en-zh.tsv.gz` into `tensorflow_datasets/downloads/manual` in your home folder
# and run the command again. `nmt` notices when the two languages are swapped, as they are in one
# version of the download, and swaps them back.
#
# > 语料是 News Commentary v14（英中），也就是经典 TensorFlow 教程里 `wmt19_translate/zh-en`
# > 所指的那一份。TFDS 会自动下载；如果对方服务器连不上，就把 `news-commentary-v14.en-zh.tsv.gz`
# > 放进主目录下的 `tensorflow_datasets/downloads/manual`，再运行一次。
# > 有一种下载方式会把两种语言弄反，`nmt` 能发现并换回来。
#
# Here is the whole road. Nothing is run yet; but each line is parsed by the command line itself,
# and its settings are checked, so a typing error would show.
#
# > 下面是全程的命令。现在还不运行，只是交给命令行自己去解析，并检查每个设置；
# > 所以哪怕打错一个字母也会被发现。

# %%
from typer.main import get_command

from nmt.cli.main import app
from nmt.config import override, preset

DATA, RUN = "tfds:wmt19_translate/zh-en", "checkpoints/news"
COMMANDS = {
    "clean, split, learn the subwords 准备": f"nmt prepare {RUN} --data {DATA} --preset base",
    "train on one GPU 单块 GPU": f"nmt train {RUN} --strategy one",
    "or on all GPUs of the machine 一台机器上的所有 GPU": f"nmt train {RUN} --strategy mirrored",
    "or on several machines 多台机器": f"nmt train {RUN} --strategy multi-worker",
    "average the last checkpoints 平均检查点": f"nmt average {RUN} --last 3",
    "watch 看曲线": f"nmt curves {RUN} -o curves.png",
    "score the held-out split 给留出的部分评分": f"nmt evaluate {RUN} --beam 4",
    "translate a news test set 翻译新闻测试集": (
        f"nmt translate {RUN} --input wmt19.en --output wmt19.zh --beam 4"
    ),
    "score any translations 给任意译文评分": (
        "nmt evaluate --hypotheses wmt19.zh --reference wmt19.ref"
    ),
}


def parsed(line):
    """Return the options of an `nmt` command as the command line understands them."""
    _, name, *arguments = shlex.split(line)
    group = get_command(app)
    context = group.make_context("nmt", [name])
    options = group.get_command(context, name).make_context(name, arguments, parent=context).params
    override(preset(options.get("preset") or "quickstart"), options.get("set") or [])
    return options


for meaning, line in COMMANDS.items():
    parsed(line)
    print(f"# {meaning}\n{line}")

# %% [markdown]
# - **Precision.** With a GPU that has bfloat16 in hardware (NVIDIA Ampere, such as the A100, and
#   later), prepare with `--set training.precision=bfloat16`: half the memory for what flows through
#   the model, faster, and the same range of numbers as float32. (`auto` looks at the
#   processor, not at the GPU.) Older ones, such as Colab's T4, have to use float32.
# - **Stopping.** Ctrl-C saves, and the same command goes on from there; so does a machine that was
#   taken away, from its last checkpoint.
#
# > - **精度。** GPU 如果在硬件上支持 bfloat16（NVIDIA Ampere 及以后，如 A100），
# >   就在 prepare 时加上 `--set training.precision=bfloat16`：中间结果占的显存减半，也更快，
# >   数值范围与 float32 相同。（`auto` 看的是 CPU，不看 GPU。）较老的卡，如 Colab 的 T4，
# >   只能用 float32。
# > - **中断。** 按 Ctrl-C 会先保存，同一条命令再接着跑；机器被收走也一样，从最后一个检查点继续。

# %% [markdown]
# ## 2. Several machines
# ## 2. 多台机器
#
# All run the same command, and the environment variable `TF_CONFIG` tells each who the others are
# and which of them it is itself. The first one is the *chief*, which alone writes files; the run
# folder must be on storage that all can reach.
#
# > 所有机器运行同一条命令，环境变量 `TF_CONFIG` 告诉每台机器：同伴是谁、自己排第几。
# > 排在最前的是*主节点*，只有它写文件；运行文件夹必须放在大家都能访问的存储上。

# %%
from nmt.training.workers import cluster

cluster_of_two = {"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]}
for index in range(2):
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster_of_two, "task": task})
    addresses, place = cluster()
    print(f"TF_CONFIG='{os.environ['TF_CONFIG']}' \\\n    nmt train {RUN} --strategy multi-worker")
    print(f"    → worker {place} of {len(addresses)}{', the chief 主节点' if place == 0 else ''}")
del os.environ["TF_CONFIG"]

# %% [markdown]
# To try it with two processes on one machine: `examples/two_workers.sh checkpoints/two --data hsk
# --minutes 2`. On Kubernetes with the Kubeflow training operator, `TF_CONFIG` is set for you:
# `kubectl apply -f examples/tfjob.yaml`, whose command is
#
# > 想在一台机器上用两个进程试试：`examples/two_workers.sh checkpoints/two --data hsk --minutes 2`。
# > 在装有 Kubeflow training operator 的 Kubernetes 上，`TF_CONFIG` 会自动设好：
# > `kubectl apply -f examples/tfjob.yaml`，里面的命令是：

# %%
job = (ROOT / "examples" / "tfjob.yaml").read_text(encoding="utf-8")
command, arguments = (re.search(rf"{key}: \[(.+)\]", job)[1] for key in ("command", "args"))
kubernetes = f"{command}, {arguments}".replace(",", "").replace('"', "")
print(kubernetes)
print({name: value for name, value in parsed(kubernetes).items() if value})

# %% [markdown]
# A batch is the whole batch, whoever computes it: with four GPUs each takes a quarter of it, the
# gradients are added up, and the update is that of one machine. More hardware makes it faster, it
# does not make it another training.
#
# > 一个批次就是一个完整的批次，不管由谁来算：四块 GPU 各算四分之一，梯度加起来，
# > 更新与一台机器的完全一样。硬件多了只是更快，训练还是同一个训练。

# %% [markdown]
# ## 3. The dress rehearsal
# ## 3. 彩排
#
# Now the same commands run for real, each in a process of its own, as in a terminal: but on the
# small corpus `hsk`, with a tiny model, for a few seconds. (`mirrored` is happy without a GPU.) Do
# this on rented hardware too, before you start what takes days.
#
# > 现在把同样的命令真的跑一遍，和在终端里一样，每条一个进程；
# > 只是用小语料 `hsk`、极小的模型、几秒钟。（没有 GPU 也能用 `mirrored`。）
# > 租用机器时也该先这样试一次，再开始跑几天的训练。

# %%
folder = tempfile.TemporaryDirectory()  # goes away with the notebook's kernel
environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def run(line):
    """Run an `nmt` command in a process of its own; return what it prints."""
    parsed(line)
    command = [sys.executable, "-m", *shlex.split(line)]
    done = subprocess.run(
        command, cwd=folder.name, env=environment, capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stderr}")
    print(f"$ {' '.join(line.split())}\n{done.stdout}")
    return done.stdout


TINY = f"""
    --set training.max_minutes=null --set training.max_steps={STEPS}
    --set model.num_layers=2 --set model.d_model=64 --set model.num_heads=4 --set model.dff=128
    --set model.source_vocab_size=2000 --set model.target_vocab_size=3000
    --set training.batch_tokens=1024 --set training.warmup_steps=50 --set training.batch_parts=1
"""
rehearsal = f"nmt train {RUN} --data hsk --strategy mirrored {TINY}"
trained = run(rehearsal)

# %%
from nmt.data.corpora import read_tsv
from nmt.run_folder import RunFolder

news = RunFolder(Path(folder.name) / RUN)
test_set = read_tsv(news.test_file)[:SENTENCES]
for name, side in (("wmt19.en", 0), ("wmt19.ref", 1)):  # stands in for the news test set
    lines = "".join(f"{pair[side]}\n" for pair in test_set)
    (Path(folder.name) / name).write_text(lines, encoding="utf-8")
run(f"nmt translate {RUN} --input wmt19.en --output wmt19.zh --beam 4")
scored = run("nmt evaluate --hypotheses wmt19.zh --reference wmt19.ref")

# %% [markdown]
# The score is next to nothing, as it should be after a few seconds; what counts is that the road is
# open from end to end, signature included.
#
# > 分数几乎为零，训练几秒钟本该如此；要紧的是全程走通了，连签名都有。

# %%
from nmt.visualize.curves import plot_curves

plot_curves(news.metrics())

# %% [markdown]
# ## 4. How long will it take?
# ## 4. 要多久？
#
# An estimate, with a rule of thumb: for each token, a weight takes part in one multiplication and
# one addition on the way forward, and in twice as many on the way back. So training costs about
# **6 × weights × tokens** operations. The encoder's weights meet the source tokens; the decoder's,
# and the table that makes logits, meet the target tokens.
#
# > 用一条经验法则来估算：对每个词元，一个参数前向时参与一次乘法和一次加法，反向时再加倍。
# > 所以训练大约要 **6 × 参数量 × 词元数** 次运算。编码器的参数遇到的是原文词元，
# > 解码器的参数、还有算 logits 的那张表，遇到的是译文词元。

# %%
from nmt.model.transformer import build_transformer


def operations(model, source_tokens, target_tokens):
    """Estimate the floating-point operations of training on so many tokens."""
    encoder = sum(layer.count_params() for layer in model.encoder_layers)
    decoder = sum(layer.count_params() for layer in model.decoder_layers)
    logits = model.config.target_vocab_size * model.config.d_model
    return 6 * (encoder * source_tokens + (decoder + logits) * target_tokens)


base = preset("base")
model = build_transformer(base.model)
tokens = base.training.max_steps * base.training.batch_tokens / 2  # on each side
needed = operations(model, tokens, tokens)
print(f"base: {model.count_params() / 1e6:.0f} million weights")
print(f"{base.training.max_steps:,} steps of {base.training.batch_tokens:,} tokens, both sides")
print(f"estimate: {needed:.1e} operations")

# %% [markdown]
# The paper lets us test the rule. Its base model trained for 100,000 such steps in 12 hours on 8
# P100 GPUs (Vaswani et al. 2017, section 5.2), and it counts 9.5 TFLOPS for each (section 6.1). So
# its hardware *could* have done this much, and this share of it was used:
#
# > 论文可以用来检验这条法则：它的 base 模型用 8 块 P100 训练了 12 小时、十万步
# > （Vaswani 等 2017，5.2 节），每块按 9.5 TFLOPS 计（6.1 节）。硬件*最多*能做这么多运算，
# > 实际用上的比例是：

# %%
possible = 12 * 3600 * 8 * 9.5e12
used = needed / possible
print(f"possible {possible:.1e} operations (the paper's table 2 says 3.3e18), used {used:.0%}")

# %% [markdown]
# A quarter to a third of the peak is a usual share. So, **as estimates**, for the whole of `base`.
# The peaks are the vendor's figures; the bars go from half to one and a half times the share above,
# since small matrices do not fill a fast device. **None of this has been measured here: `nmt` has
# not been tried on a GPU yet.**
#
# > 用到峰值的四分之一到三分之一是常见的。照此**估算** `base` 全程要多久：峰值是厂家公布的数字，
# > 横条的两端分别对应上述比例的一半和一倍半，因为矩阵太小时，快的设备是喂不饱的。
# > **这些都没有在这里实测过：`nmt` 还没有在 GPU 上试过。**

# %%
PEAKS = {  # operations a second, multiplications and additions
    "T4, float32": 8.1e12,
    "V100, float32": 15.7e12,
    "A100, bfloat16": 312e12,
    "8 × P100, float32 (paper: 12 h)": 8 * 9.5e12,
}
figure, axis = plt.subplots(figsize=(8, 2.6), layout="constrained")
for row, (name, peak) in enumerate(PEAKS.items()):
    shortest, longest = (needed / (share * used * peak) / 3600 for share in (1.5, 0.5))
    print(f"{name:32} {shortest:6.1f} to {longest:6.1f} hours")
    axis.barh(row, longest - shortest, left=shortest, color="tab:blue")
axis.set_yticks(range(len(PEAKS)), PEAKS)
axis.set_xscale("log")
axis.set_xlim(0.7, 400)
axis.set_xticks([1, 24, 7 * 24], ["1 hour 时", "1 day 天", "1 week 周"], font=font_for("时天周"))
axis.set_title("base, 100,000 steps: an estimate 估算", fontproperties=font_for("估算"))
axis.grid(axis="x", alpha=0.3)

# %% [markdown]
# And here? The rehearsal has measured how many tokens a second *this* machine learns from, with the
# tiny model:
#
# > 那么在这台机器上呢？彩排已经测出，用极小的模型，*这台*机器每秒能学多少词元：

# %%
reports = [record for record in news.metrics() if "tokens_per_second" in record]
speed = max(report["tokens_per_second"] for report in reports)
tiny = build_transformer(news.model_config())
here = operations(tiny, speed / 2, speed / 2)
print(f"measured: {speed:,.0f} tokens a second, about {here:.1e} operations a second")
print(f"estimate for base at that rate: {needed / here / 86400:,.0f} days")

# %% [markdown]
# (A larger model does better than that, as large matrices are multiplied at a higher rate; but two
# cores are no place for `base`.)
#
# > （模型大一些，矩阵乘法的效率也高一些；但两个核跑 `base` 终归不现实。）
#
# **Memory** is easier to tell. The largest array are the logits, a number for each target token and
# each subword:
#
# > **显存**更好算。最大的数组是 logits：每个译文词元、每个子词各一个数：

# %%
logits = base.training.batch_tokens / 2 * base.model.target_vocab_size * 4  # bytes, float32
print(f"logits of one batch: {logits / 2**30:.1f} GiB, and a few such arrays live at a time")
print(f"in 8 pieces, one after another: {logits / 8 / 2**30:.1f} GiB")
small_memory = f"nmt train {RUN} --data {DATA} --preset base --set training.accumulation=8"
parsed(small_memory)
print(small_memory)

# %% [markdown]
# `accumulation` computes the batch in pieces and adds up their gradients: less memory, the same
# update. (Such settings are given when a run is prepared; a run that exists takes new limits only.)
#
# > `accumulation` 把一个批次分几块先后计算，再把梯度加起来：省显存，更新不变。
# > （这类设置要在准备运行文件夹时给出；已有的运行文件夹只能改时间、步数等上限。）

# %% [markdown]
# ## 5. Which score can one hope for?
# ## 5. 能指望多少分？
#
# First, News Commentary is *small*: v12 had 227,000 pairs, v14 has some more (`nmt prepare` prints
# how many); the paper's English–German model saw 4.5 million. A `base` model meets each pair many
# times in 100,000 steps and begins to learn them by heart. So watch validation BLEU and stop by it,
# use more dropout, or take `--preset small`:
#
# > 首先，News Commentary *很小*：v12 有 22.7 万句对，v14 稍多一些（`nmt prepare` 会打印准确数字）；
# > 而论文的英德模型用了 450 万句对。`base` 训练十万步，每个句对会见很多遍，于是开始死记硬背。
# > 所以要盯着验证集 BLEU，及时停下，加大 dropout，或者改用 `--preset small`：

# %%
PAIRS, TOKENS = 300_000, 30  # a round number for v14; subwords a side, a guess
passes = tokens / (PAIRS * TOKENS)
print(f"100,000 steps see each of {PAIRS:,} pairs about {passes:,.0f} times")
careful = (
    f"nmt train {RUN} --data {DATA} --preset base --set model.dropout_rate=0.3 "
    "--set training.max_steps=30000 --set training.patience=5"
)
parsed(careful)
print(careful)

# %% [markdown]
# Second, what others have reported. Mind the differences: other data, other directions, other ways
# of counting; the last column says how far a figure can be trusted.
#
# > 其次，看看别人报告的分数。注意它们的数据、方向、算法都不一样；最后一列说明可信到什么程度。
#
# | training data 训练数据 | test 测试 | BLEU | source 出处 |
# |---|---|---|---|
# | 4.5 M pairs, en→de | newstest2014 | 27.3 | base, Vaswani et al. 2017, table 2 |
# | all of WMT17, en→zh | newstest2017 | ~34 | base, [as known to a user][1] 用户转述 |
# | WMT17, 18 M pairs, zh→en | not said 未注明 | 20.1 | [t2t_wmt_zhen][2] |
# | News Commentary v12, zh→en | not said 未注明 | 7.0 | [a user's report][3] 用户报告 |
# | T2T's "quite small" default, en→zh | not said 未注明 | 6.x | [a user's report][4] 用户报告 |
#
# [1]: https://github.com/facebookresearch/fairseq/issues/1424
# [2]: https://github.com/twairball/t2t_wmt_zhen
# [3]: https://github.com/THUNLP-MT/THUMT/issues/108
# [4]: https://github.com/tensorflow/tensor2tensor/issues/883
#
# A *published* figure of a base Transformer that was trained on News Commentary alone and tested on
# a WMT news test, English to Chinese, is **not known to us**. The reports say: on newstest expect
# single digits, well below what all of WMT gives. On the held-out part of News Commentary itself
# more may be expected, since it is the same kind of text by the same kind of authors. Ours we have
# **not measured**; if you train it, the figure with its signature would be welcome.
#
# > 只用 News Commentary 训练 base 模型、在 WMT 新闻测试集上测英译中，*正式发表*的分数
# > **我们没有找到**。从用户报告看，在 newstest 上大概只有个位数，远低于用全部 WMT 数据的结果；
# > 在 News Commentary 自己留出的部分上可望高一些，因为那是同一类作者写的同一类文章。
# > 我们自己**没有测过**；如果你训练了，欢迎告诉我们分数和签名。

# %% [markdown]
# ## 6. A score that others can compare
# ## 6. 别人能比较的分数
#
# `nmt evaluate RUN` scores the pairs that `nmt` itself held out: good for comparing your own
# models, of no use to others, who have split otherwise. For them there are the WMT test sets, which
# sacreBLEU fetches, and which nobody trains on:
#
# > `nmt evaluate RUN` 评的是 `nmt` 自己留出的句对：用来比较自己的几个模型很合适，但别人的划分不同，
# > 没法拿来比。要和别人比，就用 WMT 测试集：由 sacreBLEU 下载，谁也不拿它来训练：
#
# ```
# sacrebleu -t wmt19 -l en-zh --echo src > wmt19.en
# nmt translate checkpoints/news --input wmt19.en --output wmt19.zh --beam 4
# sacrebleu -t wmt19 -l en-zh -i wmt19.zh -m bleu chrf
# ```
#
# **Why the signature matters.** BLEU counts tokens, and Chinese has no spaces: everything depends
# on how the text is cut. Here are the same translations, by the model that comes with this project
# (it knows everyday sentences, not news), scored with different cuts:
#
# > **为什么签名要紧。** BLEU 数的是词元，而中文没有空格，分数全看文本怎么切。
# > 下面用随项目附带的模型（它学的是日常句子，不是新闻）翻译同样的句子，换不同的切法评分：

# %%
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU

assert "en-zh" in DATASETS["wmt19"].langpairs
pretrained = nmt.load(ROOT / "checkpoints" / "pretrained")
answers = [t.text for t in pretrained.translate([pair.source for pair in test_set])]
references = [[pair.target for pair in test_set]]
scores = {}
for cut in ("zh", "char", "13a"):
    metric = BLEU(tokenize=cut)
    scores[cut] = metric.corpus_score(answers, references).score
    print(f"BLEU {scores[cut]:5.2f}   {metric.get_signature()}")

# %% [markdown]
# `zh` cuts Chinese into characters and leaves Latin words and numbers whole; it is the standard for
# Chinese, and what `-l en-zh` chooses by itself. `13a` cuts at spaces, so nearly every sentence is
# one "word". Write the signature next to every figure, and trust none without: `tok:zh`, one
# reference, mixed case, the version.
#
# > `zh` 把中文切成单字，拉丁单词和数字保持完整；这是中文的标准切法，`-l en-zh` 会自动选它。
# > `13a` 按空格切，几乎每句都成了一个“词”。每个分数旁边都要写上签名（`tok:zh`、参考译文数、
# > 大小写、版本）；没有签名的分数不要信。

# %% [markdown]
# ## Checks
# ## 检查

# %%
# A mistyped option, strategy or setting would have been found.
wrong = ("--stratgy one", "--strategy mirored", "--set model.droput_rate=0.1", "--minutes soon")
accepted = []
for options in wrong:
    with contextlib.suppress(Exception):
        accepted.append(parsed(f"nmt train {RUN} {options}"))
assert not accepted

# The rehearsal has trained, translated every line and scored with a signature.
assert re.match(r"step [\d,]+: validation loss", trained)
translated = (Path(folder.name) / "wmt19.zh").read_text(encoding="utf-8").splitlines()
assert len(translated) == len(test_set)
assert "tok:zh" in scored

# Two workers share a cluster, and only the first is the chief.
assert (addresses, place) == (cluster_of_two["worker"], 1)
assert parsed(kubernetes)["strategy"] == "multi-worker"

# Our arithmetic agrees with the paper's: same order, and no more than its hardware could do.
assert abs(possible / 3.3e18 - 1) < 0.05
assert 0.1 < used < 0.5
assert needed == operations(model, tokens, 0) + operations(model, 0, tokens)

# Cutting at spaces spoils the score of Chinese.
assert scores["13a"] < scores["zh"]
print("all checks passed 全部通过")

# %% [markdown]
# ## Exercises
# ## 练习
#
# **1. Your own budget.** You have one A100 for 8 hours. How many steps of `small`, with bfloat16,
# will that make, by the rule above, if a quarter of the peak is used? And how many passes over
# 300,000 pairs of 30 subwords a side is that?
#
# > **1. 你的预算。** 假设你有一块 A100，可以用 8 小时。按上面的法则，若能用到峰值的四分之一，
# > bfloat16 精度的 `small` 能跑多少步？对 30 万个、每侧 30 个子词的句对来说，是多少遍？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# small = preset("small")
# small_model = build_transformer(small.model)
# side = small.training.batch_tokens / 2  # tokens of a step, on each side
# steps = 8 * 3600 * 0.25 * PEAKS["A100, bfloat16"] / operations(small_model, side, side)
# print(f"{steps:,.0f} steps, {steps * side / (PAIRS * TOKENS):,.0f} passes")
# ```
#
# Far more than is needed: `small` stops after 20 passes. In practice a model this small does not
# use a quarter of an A100, since its batches are over before the device is warm; a larger
# `training.batch_tokens` helps.
#
# > 远远用不完：`small` 跑 20 遍就停。实际上这么小的模型用不到 A100 的四分之一，每批太小，
# > 设备还没热起来就算完了；把 `training.batch_tokens` 调大会好一些。
#
# </details>

# %% [markdown]
# **2. Three machines.** Write the `TF_CONFIG` of each machine of a cluster with one job `chief` and
# two of the job `worker`, and ask `cluster()` which place each one has. What does it say of a task
# that is not in the cluster?
#
# > **2. 三台机器。** 给一个由一个 `chief` 和两个 `worker` 组成的集群，写出每台机器的 `TF_CONFIG`，
# > 并用 `cluster()` 看看各自排第几。如果写了一个集群里没有的任务，它会怎么说？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# jobs = {"chief": ["10.0.0.1:23450"], "worker": ["10.0.0.2:23450", "10.0.0.3:23450"]}
# for kind, index in (("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2)):
#     task = {"type": kind, "index": index}
#     os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs, "task": task})
#     try:
#         print(kind, index, "→ place", cluster()[1])
#     except ValueError as error:
#         print(kind, index, "→", str(error).split("; ")[1])
# del os.environ["TF_CONFIG"]
# ```
#
# The chief comes first, then the workers in their order. A mistake is named at once, before anybody
# waits for anybody.
#
# > 主节点排第一，其余按顺序。写错了会立刻指出来，不会等到大家互相空等。
#
# </details>
