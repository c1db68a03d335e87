"""Neural machine translation to learn from and to use: a Transformer from English to Chinese."""

__version__ = "0.1.0"


def load(run):
    """Load a trained run folder for translating.

    Args:
      run: path of a run folder, as written by `nmt train` or `nmt quickstart`.

    Returns:
      A `nmt.decoding.translator.Translator`.

    Raises:
      nmt.config.ConfigError: the folder is missing, incomplete or not a run folder.
    """
    # Imported here, so that `import nmt` and `nmt --help` do not wait for TensorFlow.
    from nmt.decoding.translator import load_translator

    return load_translator(run)
