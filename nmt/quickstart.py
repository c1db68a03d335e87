"""What `nmt quickstart` shows of the model that it has trained."""

from pathlib import Path

from nmt.data.prepared import load_held_out
from nmt.decoding.translator import load_translator
from nmt.evaluation.scores import corpus_scores, format_scores
from nmt.run_folder import RunFolder
from nmt.visualize.heatmap import plot_translation, save_figure

EXAMPLES = 8

# A heatmap of more columns than this is hard to read at a glance.
PICTURE_TOKENS = 14


def report(run: RunFolder, font: Path | None = None) -> str:
    """Translate the test set of `run`; return scores, examples and what to do next as text.

    Also draws the attention of one example into the run folder, as attention.png.
    """
    test = load_held_out(run, "test")
    translator = load_translator(run.path)
    translations = translator.translate([pair.source for pair in test])
    scores = corpus_scores(
        [translation.text for translation in translations],
        [[pair.target for pair in test]],
        run.config().data.target_language,
    )
    # From all over the test set, and the same ones every time.
    count = min(EXAMPLES, len(test))
    examples = [index * len(test) // count for index in range(count)]

    def picture_preference(index):
        length = len(translations[index].source_tokens)
        return (length <= PICTURE_TOKENS, length)

    drawn = max(examples, key=picture_preference)
    translation = translator.translate(test[drawn].source, attention=True)
    picture = run.path / "attention.png"
    save_figure(plot_translation(translation, font=font), picture)

    shown = "\n".join(
        f"  > {test[i].source}\n  = {translations[i].text}\n  ~ {test[i].target}\n"
        for i in examples
    )
    return f"""Test set 测试集: {len(test):,} held-out sentence pairs
{format_scores(scores)}

Translations 译文 (> source, = translation, ~ reference)
{shown}
Attention 注意力: where the decoder looked while translating, in {picture}
  > {translation.source}
  = {translation.text}

Next 下一步
  nmt translate {run.path} "How are you?"
  nmt attention {run.path} "I like cats." -o cats.png
  nmt train {run.path} --minutes 30    # goes on, up to 30 minutes in all
  notebooks/01_pairs_and_subwords.ipynb    # how it works, step by step"""
