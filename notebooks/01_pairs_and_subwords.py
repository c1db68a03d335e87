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
# # 1. Sentence pairs and subwords
# # 1. 句对与子词
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# (upload this notebook there · 打开后把本笔记本上传上去)
#
# A translation model is made from two things: pairs of sentences, and a way to cut them into
# pieces with numbers. You will look at both, and at what goes wrong with Chinese when one is
# careless: two ways of writing, test sentences that leak, characters that never come back. You
# need some Python; nothing about machine learning is taken for granted. It takes about a minute
# on two CPU cores.
#
# > 做翻译模型要两样东西：成对的句子，以及把句子切成片段、编上号的办法。这一课就来看这两样东西，
# > 也看看处理中文时一不小心会出什么错：简繁两套字、泄漏的测试句、切完就再也还原不了的字。
# > 会一点 Python 就够了，不需要机器学习基础。在两个 CPU 核上大约一分钟跑完。
#
# **You will learn 你将学到**
#
# - to load a corpus (a collection of texts) with TensorFlow Datasets
#   用 TensorFlow Datasets 加载语料（成批的文本）
# - why one way of writing, and a split without leaks 为什么要统一简繁，为什么划分数据时不能泄漏
# - what WordPiece and SentencePiece do to Chinese WordPiece 和 SentencePiece 怎样切中文
# - how to measure whether anything got lost 怎样检验有没有丢东西
#
# [2. Attention by hand 手算注意力](02_attention_by_hand.ipynb) →

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
import contextlib
import io
import logging
import os
import random
import unicodedata
from collections import Counter

# TensorFlow's C++ side greets on standard error, whatever Python is told; not in here.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import tensorflow as tf
import tensorflow_text as tf_text

tf.zeros([1])  # wakes up the devices, which is announced as well
os.dup2(standard_error, 2)
logging.getLogger("absl").setLevel(logging.ERROR)

import matplotlib.pyplot as plt
import numpy as np
import sentencepiece
import tensorflow_datasets as tfds

import nmt
import nmt.data.builders  # makes the packaged corpora known to tfds

print("nmt", nmt.__version__, "| tensorflow", tf.__version__)

# %% [markdown]
# These are the settings to play with. `"tatoeba"` has 55,000 training pairs, `"hsk"` only 3,600.
# Whatever you change, run the notebook again from the top.
#
# > 下面几个值可以随意改。`"tatoeba"` 有五万五千个训练句对，`"hsk"` 只有三千六百个。
# > 改完请从头重新运行。

# %% tags=["parameters"] toy={"CORPUS": "hsk", "SENTENCES": 2000, "VOCAB_SIZE": 3000}
CORPUS = "tatoeba"
SENTENCES = 10_000  # how many training pairs the tokenizers learn from
VOCAB_SIZE = 5000  # the largest vocabulary that a tokenizer may learn

# %% [markdown]
# ## 1. Sentence pairs 句对
#
# All that the model will ever know comes from pairs of sentences that mean the same. Nobody tells
# it a rule of grammar, nor which word belongs to which. Ours come from
# [Tatoeba](https://tatoeba.org) (CC-BY 2.0 FR), short sentences written by volunteers, and arrive
# with a Python package, so nothing has to be downloaded here.
#
# > 模型知道的一切，都来自一对对意思相同的句子。没有人教它语法，也没有人告诉它哪个词对应哪个词。
# > 这里的句子来自 [Tatoeba](https://tatoeba.org)（CC-BY 2.0 FR），是志愿者写的短句，
# > 随 Python 包一起安装，所以这里什么都不用下载。
#
# TensorFlow Datasets (`tfds`) builds the data set the first time and from then on only reads it.
# There are three parts: **train** is learned from, **validation** is watched during the learning,
# **test** is used once, at the end.
#
# > TensorFlow Datasets（`tfds`）第一次会把数据集建好，以后直接读取。句对分成三份：
# > **train** 用来学习，**validation** 用来在学习过程中观察，**test** 只在最后用一次。

# %%
from nmt.data.corpora import PACKAGED

tfds.disable_progress_bar()
with contextlib.redirect_stdout(io.StringIO()):  # the first time, TFDS tells where it writes
    corpus = tfds.load(PACKAGED[CORPUS])
for split in ("train", "validation", "test"):
    print(f"{split:10} {len(corpus[split]):6,} pairs")
for pair in tfds.as_numpy(corpus["train"].take(5)):
    print(f"\n{pair['en'].decode()}\n{pair['zh'].decode()}")

# %% [markdown]
# ## 2. Simplified and Traditional 简体与繁体
#
# Chinese is written in two scripts: Simplified characters, the standard of mainland China and
# Singapore, and Traditional ones, that of Taiwan, Hong Kong and Macau. The volunteers use both.
# To a model, 给 and 給 are two characters that have nothing to do with each other: it would have
# to learn everything twice. So the Chinese side is converted to one script, here Simplified, and
# so are the sentences that the model is judged by.
#
# > 志愿者有的写简体，有的写繁体。在模型眼里，“给”和“給”是两个毫无关系的字，什么都得学两遍。
# > 所以中文一侧统一转换成一种写法（这里用简体），用来评分的参考译文也一样。

# %%
from nmt.data.splitting import SentencePair, overlap, split_pairs
from nmt.text.script import convert


def read(split, count):
    """Return the first `count` pairs of a split as Python strings."""
    batch = next(iter(tfds.as_numpy(corpus[split].batch(count))))
    sides = zip(batch["en"], batch["zh"], strict=True)
    return [SentencePair(english.decode(), chinese.decode()) for english, chinese in sides]


pairs = read("train", 100_000)  # all of them
changed = sum(convert(pair.target, "simplified") != pair.target for pair in pairs)
print(f"{changed:,} of {len(pairs):,} sentences change when converted to Simplified")
for sentence in ("明天我給你打電話。", "頭髮長了，該理髮了。", "後天皇后要來。"):
    print(f"{sentence} → {convert(sentence, 'simplified')}")

# %% [markdown]
# Converting is more than a table of characters: 髮 (hair) and 發 (send) are both 发 in Simplified.
# Towards Simplified that is easy, two become one. The way back has to choose by the context, which
# is why `nmt` uses OpenCC, with its dictionary of phrases.
#
# > 简繁转换不是查一张字表那么简单：“髮”（头发）和“發”（发送）在简体里都是“发”。
# > 繁转简是二合一，容易；简转繁则要看上下文来选字，所以 `nmt` 用的是带词库的 OpenCC。

# %%
for sentence in ("头发长了，该理发了。", "请把照片发给我。"):
    print(f"{sentence} → {convert(sentence, 'traditional')}")

# %% [markdown]
# ## 3. The test set must not leak 测试集不能泄漏
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
# a random split and for the one that `nmt` makes. That one takes its test pairs, here 5%, only
# from the pairs that share neither side with any other pair. Case, punctuation and script do not
# count: *Thank you.* and *thank you!* are the same sentence.
#
# > 下面数一数：测试句对里，有多少对的英文或中文在训练部分也出现过。先看随机划分，
# > 再看 `nmt` 的划分：它只从中英文两边都不与别的句对重复的句对里挑选，这里取其中的 5% 作测试。
# > 比较时不计大小写、标点和简繁：*Thank you.* 和 *thank you!* 算同一句。

# %%
shuffled = random.Random(1).sample(pairs, len(pairs))
careful = split_pairs(pairs, validation=0.0, test=0.05)
size = len(careful.test)
random_leaks = overlap(shuffled[:size], shuffled[size:])
careful_leaks = overlap(careful.test, careful.train)
print(f"random split: {random_leaks:5,} of {size:,} test pairs leak ({random_leaks / size:.0%})")
print(f"split by nmt: {careful_leaks:5,} of {size:,} test pairs leak")

# %% [markdown]
# ## 4. Why subwords? 为什么用子词？
#
# A network calculates with numbers, so text has to be cut into pieces from a fixed list, the
# *vocabulary*, and each piece gets a number, its *id*. Whole words make an endless list (*play,
# plays, played, player ...*), and Chinese does not even put spaces between them. Single letters
# make a short list but very long sentences. **Subwords** lie between: frequent words stay whole,
# rare ones are put together from parts. The tool that cuts is a *tokenizer*, and each piece in a
# cut sentence is called a *token*.
#
# > 网络只会算数，所以要先把文本切成一段一段，每一段都来自一张固定的表，即*词表*，
# > 并对应一个编号（*id*）。以整词为单位，词表永远列不完，何况中文词与词之间没有空格；
# > 以单个字母为单位，句子又会变得太长。**子词**介于两者之间：常见词保持完整，罕见词由几段拼成。
# > 负责切分的工具叫*分词器*（tokenizer），切出来的每一段叫一个*词元*（token）。
#
# Which pieces pay off is learned from the training text, for each language by itself. `nmt` uses
# SentencePiece for it (`spaced` says whether words are separated by spaces):
#
# > 哪些片段划算，由训练文本统计得出，两种语言各学各的。`nmt` 用的是 SentencePiece
# > （`spaced` 表示词与词之间有没有空格）：

# %%
from nmt.data.cleaning import clean_pairs
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, train_tokenizer  # the four: section 8

train = clean_pairs(pairs[:SENTENCES], "simplified").pairs
test = clean_pairs(read("test", 1000), "simplified").pairs
train_en, train_zh = [pair.source for pair in train], [pair.target for pair in train]
test_zh = [pair.target for pair in test]

for size in (400, 700, 2500):
    tokenizer = train_tokenizer(train_en[:5000], size, spaced=True)
    [ids] = tokenizer.encode(["The teacher was reading."])
    print(f"{size:5,} subwords:", *tokenizer.pieces(ids))

# %% [markdown]
# The mark `▁` (U+2581) stands for a space: thanks to it, joining the pieces gives back the text
# exactly. With a larger vocabulary the pieces grow and the sentence gets shorter.
#
# > 符号 `▁`（U+2581）代表空格：有了它，把各段拼起来就能一字不差地还原文本。词表越大，片段越长，
# > 句子就越短。
#
# The same in Chinese. No one has told it what a word is:
#
# > 中文也一样。没有人告诉过它什么是“词”：

# %%
ours = train_tokenizer(train_zh, VOCAB_SIZE, spaced=False)
for sentence in ("我不知道他为什么没有来。", "你可以告诉我图书馆在哪里吗？"):
    [ids] = ours.encode([sentence])
    for subword, number in zip(ours.pieces(ids), ids, strict=True):
        print(f"{subword} {number}", end="   ")
    print("→", ours.decode(ids))

# %% [markdown]
# ## 5. WordPiece: the classic, and Chinese 经典的 WordPiece 遇上中文
#
# TensorFlow's classic tutorial translates with **WordPiece**, the tokenizer of BERT (an early
# language model made of Transformer layers). It first
# tidies the text up (lower case, accents off), cuts it at spaces and punctuation, puts *every*
# Chinese character by itself, and only then looks for pieces within the "words". Let us learn such
# a vocabulary with `tensorflow_text`, as the tutorial does:
#
# > TensorFlow 的经典教程用的是 **WordPiece**，也就是 BERT（早期用 Transformer 层搭成的语言模型）
# > 的分词器。它先“整理”文本（转小写、去重音符号），在空格和标点处切开，把汉字*一个一个*全部拆开，
# > 然后才在“词”的内部找片段。我们照教程的做法，用 `tensorflow_text` 学一张这样的词表：

# %%
from tensorflow_text.tools.wordpiece_vocab.bert_vocab_from_dataset import bert_vocab_from_dataset


def learn_wordpiece(sentences, **learn_params):
    """Return a WordPiece vocabulary, learned as in the classic tutorial."""
    return bert_vocab_from_dataset(
        tf.data.Dataset.from_tensor_slices(sentences).batch(1000),
        vocab_size=VOCAB_SIZE,
        reserved_tokens=["[PAD]", "[UNK]", "[START]", "[END]"],
        bert_tokenizer_params={"lower_case": True},
        learn_params=learn_params,
    )


def bert_tokenizer(vocabulary):
    """Return a BertTokenizer for a list of pieces."""
    numbers = tf.range(len(vocabulary), dtype=tf.int64)
    table = tf.lookup.KeyValueTensorInitializer(vocabulary, numbers)
    return tf_text.BertTokenizer(tf.lookup.StaticVocabularyTable(table, 1), lower_case=True)


vocabulary = learn_wordpiece(train_zh)
wordpiece = bert_tokenizer(vocabulary)


def by_wordpiece(tokenizer, sentences):
    """Return for each sentence its number of tokens, and the text that comes back."""
    ids = tokenizer.tokenize(sentences).merge_dims(-2, -1)
    words = tokenizer.detokenize(ids)  # ragged; the tutorial joins them with spaces
    texts = tf.strings.reduce_join(words, separator=" ", axis=-1)
    return ids.row_lengths().numpy(), [text.decode() for text in texts.numpy()]


samples = ["我不知道他为什么没有来。", "Tom在Café学中文。", "他打了个喷嚏。"]
for sentence, back in zip(samples, by_wordpiece(wordpiece, samples)[1], strict=True):
    print(f"{sentence:14} → {back}")

# %% [markdown]
# Three things happened, and none of them can be undone:
#
# - There are **spaces** between all characters. One can remove them again, but then *New York* in
#   a Chinese sentence becomes *NewYork*.
# - *Tom* and *Café* came back as *tom* and *cafe*: **lower case**, no accent.
# - Characters that the vocabulary lacks became **`[UNK]`**, and are lost.
#
# > 发生了三件事，而且都无法挽回：
# >
# > - 每个字之间都多了**空格**。当然可以再删掉，但中文句子里的 *New York* 就会变成 *NewYork*。
# > - *Tom*、*Café* 变成了 *tom*、*cafe*：**大小写**和重音都没了。
# > - 词表里没有的字变成了 **`[UNK]`**，就此丢失。
#
# Why are characters missing at all? By default the tool keeps the 1,000 most frequent ones, plenty
# for an alphabet. And for each of them it keeps a second piece such as `##字`, for "inside of a
# word". But a Chinese character is always a word of its own here, so those pieces are hardly ever
# used:
#
# > 为什么会缺字？这个工具默认只保留最常见的 1,000 个字符，对字母文字绰绰有余。
# > 而且每个字符还另备一个 `##字` 这样的片段，意思是“在词的内部”。可是在这里汉字总是自成一“词”，
# > 这些片段几乎用不上：

# %%
counts = Counter(character for sentence in train_zh for character in sentence)
inside = [piece for piece in vocabulary if piece.startswith("##")]
used = {vocabulary[i] for i in wordpiece.tokenize(train_zh).flat_values.numpy()}
print(f"different characters in the training text: {len(counts):,}")
print(f"pieces in the vocabulary:                  {len(vocabulary):,}")
print(f"  of which ## pieces:                      {len(inside):,}")
print(f"pieces ever used on that training text:    {len(used):,}")

# %% [markdown]
# ## 6. SentencePiece, with and without NFKC 有 NFKC 和没有 NFKC 的 SentencePiece
#
# SentencePiece does not take Chinese apart first: it reads the sentence as it stands, and a space
# is a character that it keeps. So 图书馆 may become one piece, and every text can be given back.
# But by *default* it "normalizes" text beforehand (a variant of **NFKC**), and that turns
# full-width punctuation into ASCII for good. A model trained on it can never write `，` again, and
# Chinese readers will notice.
#
# > SentencePiece 不会先把汉字拆开：它直接读整句，空格也当作一个要保留的字符。
# > 所以“图书馆”可以成为一个片段，文本也能还原。可是它*默认*会先做“规范化”
# > （**NFKC** 的一种），把全角标点变成 ASCII，而且再也变不回来。这样训练出来的模型从此写不出“，”，
# > 中文读者一眼就能看出来。

# %%
sentence = "他说：“你好，世界！”……（真的吗？）"
print("original          ", sentence)
print("NFKC              ", unicodedata.normalize("NFKC", sentence))
print("ours, there & back", ours.decode(ours.encode([sentence])[0]))

touched = Counter(
    {c: n for c, n in counts.items() if unicodedata.normalize("NFKC", c) != c}
).most_common(6)
lines = sum(unicodedata.normalize("NFKC", sentence) != sentence for sentence in train_zh)
print(f"\nNFKC would change {lines:,} of {len(train_zh):,} Chinese sentences; most often")
print("   ".join(f"{c} → {unicodedata.normalize('NFKC', c)} ({n:,})" for c, n in touched))

# %% [markdown]
# So `nmt` trains SentencePiece with `normalization_rule_name="identity"`: nothing is changed. What
# clean-up there is (invisible characters, odd spaces) stands in `nmt/text/normalize.py`, which is
# short enough to know by heart.
#
# > 所以 `nmt` 训练 SentencePiece 时用 `normalization_rule_name="identity"`：什么都不改。
# > 真正需要的清理（不可见字符、各种奇怪的空格）都写在 `nmt/text/normalize.py` 里，很短，一看就懂。

# %% [markdown]
# ## 7. Byte fallback 退回到字节
#
# No vocabulary has every character: there are more than 90,000 Chinese ones in Unicode, and new
# emoji each year. Ours spells what it lacks in **UTF-8 bytes**. There are only 256 of those, so
# they all fit in. It takes more pieces, but everything comes back.
#
# > 没有哪张词表能收全所有的字：Unicode 里的汉字就有九万多个，表情符号还年年增加。
# > 词表里没有的字，我们把它拆成 **UTF-8 字节**。字节一共只有 256 种，全都放得进词表。
# > 虽然占的位置多些，但什么都能还原。

# %%
for sentence in ("喷嚏", "𠮷", "🐼"):
    [ids] = ours.encode([sentence])
    print(sentence, "→", *ours.pieces(ids), "→", ours.decode(ids))

# %% [markdown]
# ## 8. Control tokens are not text 控制符不是文字
#
# Four ids are never text: `PAD` fills short sentences up to the length of the longest in the batch
# (the sentences that are handled together), `BOS` (beginning of sentence) starts the translation,
# `EOS` (end of sentence) ends it, and `UNK` (unknown) stays unused thanks to the bytes. What if
# somebody *types* `</s>`, the name of EOS? Then it is four ordinary characters. Nobody can end a
# translation from within the text.
#
# > 有四个编号不代表任何文字：句子是一批一批一起处理的，`PAD` 把短句补到和同批最长的句子一样长，
# > `BOS` 表示译文开始，`EOS` 表示句子结束，`UNK`（未知）因为有了字节而用不着。如果有人真的*打出*
# > `</s>`（EOS 的名字）呢？那就只是普通的四个字符，谁也不能靠打字让翻译提前结束。

# %%
print(f"PAD = {PAD}, BOS = {BOS}, EOS = {EOS}, UNK = {UNK}")
[typed] = ours.encode(["再见</s>"])
print(*ours.pieces(typed), "→", ours.decode(typed))
print("EOS among the ids:", EOS in typed)

# %% [markdown]
# ## 9. The comparison 比一比
#
# Enough of examples: we count, on test sentences that no tokenizer has learned from. Four
# tokenizers, all learned from the same Chinese text, none with more than about `VOCAB_SIZE` pieces.
# To be fair to WordPiece, its second row may keep all characters, and the last column forgives
# spaces. "Tokens each" is the mean length of a sentence, "unchanged" the share of sentences that
# come back exactly.
#
# > 例子看够了，来数一数。用的是测试句，没有哪个分词器学过它们。四个分词器都从同一份中文里学，
# > 词表都不超过 `VOCAB_SIZE` 左右。为公平起见，WordPiece 的第二行保留了所有的字，
# > 最后一列则不计较空格。表中各列依次是：词表大小、平均每句的词元数、原样还原的句子比例、
# > 不计空格时的还原比例。


# %%
def sentencepiece_by_default(sentences):
    """Train SentencePiece as it comes: NFKC, unknown characters become <unk>."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=VOCAB_SIZE,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def by_sentencepiece(tokenizer, sentences):
    """Return for each sentence its number of tokens, and the text that comes back."""
    encoded = tokenizer.encode(sentences)
    return np.array([len(ids) for ids in encoded]), [tokenizer.decode(ids) for ids in encoded]


whole = learn_wordpiece(train_zh, max_unique_chars=10_000)
default = sentencepiece_by_default(train_zh)
compared = {
    "WordPiece": (len(vocabulary), *by_wordpiece(wordpiece, test_zh)),
    "WordPiece, all characters": (len(whole), *by_wordpiece(bert_tokenizer(whole), test_zh)),
    "SentencePiece, default": (default.vocab_size(), *by_sentencepiece(default, test_zh)),
    "SentencePiece, nmt": (ours.vocab_size, *by_sentencepiece(ours, test_zh)),
}


# %%
def same(texts, squeeze=lambda text: text):
    """Count the test sentences that came back."""
    pairs = zip(test_zh, texts, strict=True)
    return sum(squeeze(text) == squeeze(back) for text, back in pairs)


exact = {name: same(texts) for name, (_, _, texts) in compared.items()}
forgiving = {
    name: same(texts, lambda text: text.replace(" ", ""))
    for name, (_, _, texts) in compared.items()
}
print(f"{len(test_zh):5,} test sentences       vocabulary  tokens each  unchanged  but for spaces")
for name, (size, lengths, _) in compared.items():
    print(f"{name:26} {size:12,} {lengths.mean():12.1f}", end=" ")
    print(f"{exact[name] / len(test_zh):10.1%} {forgiving[name] / len(test_zh):15.1%}")

# %% [markdown]
# Read the rows from top to bottom (the shares named here are those of the given settings).
# WordPiece gives back *no* sentence as it was; leaving spaces aside, fewer than half, or with all
# characters some two thirds: the rest lost letter case or characters.
# SentencePiece with its defaults fails on sentences with a comma, a question mark or a rare
# character. Ours gives back everything, with the fewest tokens.
#
# > 从上往下看（这里说的比例是按原来的设置得到的）：WordPiece *没有一句*能原样还原；
# > 不计空格，也还不到一半，保留所有的字后约三分之二，其余的丢了大小写或者丢了字。
# > 默认的 SentencePiece 遇到逗号、问号或生僻字就出错。我们的设置全部还原，而且用的词元最少。
#
# Fewer tokens also mean less work: the time of a translation grows with them. So why not a huge
# vocabulary? Each piece costs a row of numbers in the model (its *embedding*, notebook 3) and must
# be seen often enough to be learned. And the gain is small: half as large again, the vocabulary
# makes sentences only a little shorter (left). The right picture compares the two tokenizers
# sentence by sentence.
#
# > 词元少，计算量也小：翻译时间随词元数增长。那么词表是不是越大越好？每个片段在模型里都要占一行数
# > （即它的*嵌入*，见第 3 课），而且得见过足够多次才学得会。好处却不大：词表加大一半，
# > 句子只短了一点点（左图）。右图比较两种分词器切出来的句子各有多长。

# %%
from nmt.visualize.fonts import font_for


def caption(axis, title, x, y):
    """Write title and axis names in a font that has Chinese characters."""
    font = font_for([title, x, y])
    axis.set_title(title, fontproperties=font)
    axis.set_xlabel(x, fontproperties=font)
    axis.set_ylabel(y, fontproperties=font)


sizes = [ours.vocab_size * part // 10 for part in (9, 10, 12, 15)]
learned = [train_tokenizer(train_zh, size, spaced=False) for size in sizes]
means = [by_sentencepiece(tokenizer, test_zh)[0].mean() for tokenizer in learned]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
colors = {"WordPiece, all characters": "C0", "SentencePiece, nmt": "C1"}
left.plot(
    [tokenizer.vocab_size for tokenizer in learned], means, "o-", color="C1", label="SentencePiece"
)
left.plot(
    len(whole), compared["WordPiece, all characters"][1].mean(), "x", color="C0", label="WordPiece"
)
left.set_ylim(0, 15)
left.legend(loc="lower left")
caption(left, "Length of test sentences 测试句的长度", "vocabulary 词表大小", "tokens 词元数")
for name, color in colors.items():
    right.hist(compared[name][1], np.arange(0.5, 31), color=color, alpha=0.6, label=name)
right.legend()
caption(right, "How long are they? 长短分布", "tokens 词元数", "sentences 句数")

# %% [markdown]
# ## Checks 检查
#
# Did all of this really happen on your machine?
#
# > 这一切在你的机器上真的都成立吗？

# %%
# One script: converting twice changes nothing more.
assert convert("明天我給你打電話。", "simplified") == "明天我给你打电话。"
assert all(convert(text, "simplified") == text for text in train_zh)

# The careful split has no leaks; on a corpus with many translations the random one has.
assert careful_leaks == 0
assert random_leaks > 0 or CORPUS == "hsk"

# Ours gives back every sentence, also what is not in the vocabulary, and never uses UNK.
assert exact["SentencePiece, nmt"] == len(test_zh)
for strange in ("𠮷🐼喷嚏", "：“，！”……（？）", "Café TOM", "再见</s>"):
    [ids] = ours.encode([strange])
    assert ours.decode(ids) == strange
    assert not {PAD, BOS, EOS, UNK} & set(ids)

# The others do lose something, and WordPiece needs a token for (nearly) each character.
assert exact["WordPiece"] == 0
assert exact["SentencePiece, default"] < len(test_zh)
assert forgiving["WordPiece"] <= forgiving["WordPiece, all characters"] < len(test_zh)
assert compared["SentencePiece, nmt"][1].mean() < compared["WordPiece"][1].mean()
assert "，" in counts
assert "，" not in unicodedata.normalize("NFKC", "，")
print("all checks passed 检查全部通过")

# %% [markdown]
# ## Exercises 练习
#
# **1. What do two scripts cost?** Clean the same pairs once more with `"keep"`, so that both
# scripts stay. How many different characters are there then, and how many tokens does a test
# sentence (kept as it is, too) take with a vocabulary of the same size?
#
# > **1. 两套字有多大代价？** 把同样的句对再清理一遍，这次用 `"keep"`，简繁都保留。
# > 这时有多少个不同的字符？词表大小不变，测试句（同样简繁都保留）平均每句要多少个词元？
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# mixed_train = [pair.target for pair in clean_pairs(pairs[:SENTENCES], "keep").pairs]
# mixed_test = [pair.target for pair in clean_pairs(read("test", 1000), "keep").pairs]
# mixed = train_tokenizer(mixed_train, VOCAB_SIZE, spaced=False)
# for name, texts, tokenizer, tests in (
#     ("one script", train_zh, ours, test_zh),
#     ("both", mixed_train, mixed, mixed_test),
# ):
#     lengths, _ = by_sentencepiece(tokenizer, tests)
#     print(f"{name:11} {len(set(''.join(texts))):,} characters, {lengths.mean():.2f} tokens")
# ```
#
# More characters compete for the same vocabulary, so fewer words get a piece of their own and the
# sentences become longer. (The corpus `"hsk"` is all Simplified; there nothing changes.)
#
# > 更多的字争夺同样大的词表，能独占一个片段的词就少了，句子也就变长了。
# > （`"hsk"` 语料全是简体，所以没有变化。）
#
# </details>

# %% [markdown]
# **2. Break it.** "Gives back every text" has exactly one exception. Section 4 shows which
# character it must be. Find it, and say why it hardly matters.
#
# > **2. 把它弄坏。** “什么文本都能还原”其实有一个例外。从第 4 节就能看出是哪个字符。
# > 把它找出来，并说说为什么几乎没有影响。
#
# <details>
# <summary>Solution 答案</summary>
#
# ```python
# text = "a▁b"  # U+2581, typed by somebody
# print(text, "→", ours.decode(ours.encode([text])[0]))
# print("in the corpus:", sum("▁" in sentence for sentence in train_zh + train_en), "times")
# ```
#
# SentencePiece uses U+2581 as its mark for a space, so a typed one comes back as a space. It is a
# block-drawing character ("lower one eighth block") that nobody writes in sentences.
#
# > SentencePiece 用 U+2581 来表示空格，所以如果真有人打出这个字符，还原出来就成了空格。
# > 它是 Unicode 里的“方块元素”（下八分之一块），平时没有人会写进句子里。
#
# </details>
