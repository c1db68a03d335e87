"""Settings: what is accepted, and what is refused with one line that helps."""

import dataclasses
import json

import pytest

from nmt.config import (
    PRESETS,
    Config,
    ConfigError,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    override,
    preset,
    read_json,
    to_json,
)


def refusal(action, *arguments):
    """Return the message of the ConfigError that `action` has to raise: always one line."""
    with pytest.raises(ConfigError) as caught:
        action(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def config_file(tmp_path):
    """Write a text as a configuration file and return its path."""

    def write(text):
        path = tmp_path / "my-config.json"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_json_round_trip(name, config_file):
    assert read_json(config_file(to_json(preset(name)))) == PRESETS[name]


def test_json_holds_every_setting():
    config = json.loads(to_json(Config()))
    assert config == dataclasses.asdict(Config())
    assert set(config) == {"data", "model", "training"}


def test_base_preset_is_the_base_model_of_the_paper():
    """Vaswani et al. 2017, table 3 and section 5.4."""
    base = preset("base")
    shape = (base.model.num_layers, base.model.d_model, base.model.dff, base.model.num_heads)
    assert shape == (6, 512, 2048, 8)
    assert base.model.dropout_rate == 0.1
    assert base.model.norm == "post"
    assert base.training.label_smoothing == 0.1
    assert base.training.warmup_steps == 4000
    assert base.training.max_steps == 100_000


def test_unknown_preset_names_the_near_ones():
    message = refusal(preset, "quikstart")
    assert "did you mean quickstart" in message
    assert "tutorial" in message


def test_a_file_changes_only_what_it_names(config_file):
    path = config_file('{"model": {"num_layers": 2}}')
    expected = dataclasses.replace(
        preset("quickstart"), model=dataclasses.replace(preset("quickstart").model, num_layers=2)
    )
    assert read_json(path, preset("quickstart")) == expected


def test_a_byte_order_mark_in_the_file_is_no_text(config_file):
    assert read_json(config_file('\ufeff{"model": {"dff": 64}}')).model.dff == 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param(
            '{"training": {"lerning_rate": 1}}',
            ["lerning_rate", "did you mean peak_learning_rate", "warmup_steps"],
            id="unknown key",
        ),
        pytest.param(
            '{"model": {"dff": 64, "d_model": 64, "dff": 128}}',
            ["'dff'", "given twice"],
            id="key twice",
        ),
        pytest.param(
            '{"model": {"dff": 64}, "model": {"d_model": 64}}',
            ["'model'", "given twice"],
            id="section twice",
        ),
        pytest.param(
            '{"training": {"warmup_steps": "4000"}}',
            ["training.warmup_steps", "must be int", "'4000'"],
            id="number as string",
        ),
        pytest.param(
            '{"training": {"batch_tokens": -4096}}',
            ["training.batch_tokens", "at least 1", "-4096"],
            id="negative batch",
        ),
        pytest.param(
            '{"model": {"d_model": 130, "num_heads": 8}}',
            ["model.d_model", "divisible by model.num_heads", "d_model=130", "num_heads=8"],
            id="d_model 130 with 8 heads",
        ),
        pytest.param('[{"model": {}}]', ["data, model, training", "list"], id="list"),
        pytest.param("- model\n- training\n", [":1:", "not JSON"], id="YAML list"),
        pytest.param('{"model": [1, 2]}', ["model must be an object", "[1, 2]"], id="list inside"),
        pytest.param('{"modle": {}}', ["'modle'", "did you mean model"], id="unknown section"),
        pytest.param(
            '{"model": {"norm": "layer"}}',
            ["model.norm", "pre, post", "'layer'"],
            id="not one of the choices",
        ),
        pytest.param('{"model": {"dff": true}}', ["model.dff", "int", "True"], id="bool for int"),
        pytest.param(
            '{"model": {"tie_embeddings": 1}}', ["model.tie_embeddings", "bool"], id="int for bool"
        ),
        pytest.param('{"model": {"dff": null}}', ["model.dff", "None"], id="null for int"),
        pytest.param(
            '{"training": {"max_minutes": NaN}}', ["training.max_minutes", "nan"], id="not a number"
        ),
        pytest.param('{"model": {\n"dff": 64,,}}', [":2:", "not JSON"], id="broken JSON"),
    ],
)
def test_cli_03_a_wrong_file_is_refused_by_file_and_key(text, parts, config_file):
    """CLI-03: each kind of mistake names the file, the key and what is allowed."""
    path = config_file(text)
    message = refusal(read_json, path)
    assert message.startswith(str(path))
    for part in parts:
        assert part in message


def test_cli_03_a_missing_file_is_named(tmp_path):
    """CLI-03: a configuration file that is not there."""
    assert "nowhere.json" in refusal(read_json, tmp_path / "nowhere.json")
    assert str(tmp_path) in refusal(read_json, tmp_path)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "gbk.json"
    path.write_bytes('{"data": {"corpus": "语料.tsv"}}'.encode("gbk"))
    assert str(path) in refusal(read_json, path)


@pytest.mark.parametrize(
    ("assignment", "section", "key", "value"),
    [
        ("model.dropout_rate=0", "model", "dropout_rate", 0.0),
        ("model.tie_embeddings=false", "model", "tie_embeddings", False),
        ("model.norm=pre", "model", "norm", "pre"),
        ('model.norm="pre"', "model", "norm", "pre"),
        ("training.warmup_steps=4000", "training", "warmup_steps", 4000),
        ("training.peak_learning_rate=1e-3", "training", "peak_learning_rate", 1e-3),
        ("training.peak_learning_rate=null", "training", "peak_learning_rate", None),
        ("data.corpus=my=data.tsv", "data", "corpus", "my=data.tsv"),
        (" model.dff=64", "model", "dff", 64),
    ],
)
def test_override_gives_the_value_its_type(assignment, section, key, value):
    changed = override(Config(), [assignment])
    found = getattr(getattr(changed, section), key)
    assert (found, type(found)) == (value, type(value))
    before = dataclasses.replace(getattr(changed, section), **{key: getattr(
        getattr(Config(), section), key)})  # fmt: skip
    assert before == getattr(Config(), section)


@pytest.mark.parametrize(
    ("assignments", "parts"),
    [
        (["model.droput_rate=0"], ["model.droput_rate", "did you mean dropout_rate"]),
        (["training.lerning_rate=1"], ["training.lerning_rate", "peak_learning_rate"]),
        (["optimizer.rate=1"], ["'optimizer'", "data, model, training"]),
        (["model.dff=64", "model.dff=64"], ["model.dff", "given twice"]),
        (['training.warmup_steps="4000"'], ["training.warmup_steps", "must be int", "'4000'"]),
        (["training.warmup_steps=4000.0"], ["training.warmup_steps", "must be int", "4000.0"]),
        (["training.batch_tokens=-1"], ["training.batch_tokens", "at least 1", "-1"]),
        (["model.d_model=130", "model.num_heads=8"], ["divisible", "d_model=130", "num_heads=8"]),
        (["model.d_model=15", "model.num_heads=5"], ["model.d_model", "even", "15"]),
        (["model.dff"], ["SECTION.KEY=VALUE", "'model.dff'"]),
        (["dff=64"], ["SECTION.KEY=VALUE", "'dff=64'"]),
        (["model.=64"], ["model.", "allowed"]),
        (["training.max_minutes=Infinity"], ["training.max_minutes", "inf"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_cli_03_a_wrong_assignment_is_refused(assignments, parts):
    """CLI-03: the same mistakes on the command line."""
    message = refusal(override, Config(), assignments)
    for part in parts:
        assert part in message


def test_settings_that_must_agree_can_change_together():
    """Either alone is refused: 100 is not divisible by 8, nor 128 by 5."""
    changed = override(Config(), ["model.d_model=100", "model.num_heads=5"])
    assert (changed.model.d_model, changed.model.num_heads) == (100, 5)
    refusal(override, Config(), ["model.d_model=100"])
    refusal(override, Config(), ["model.num_heads=5"])


@pytest.mark.parametrize(
    ("kind", "setting", "accepted", "refused"),
    [
        (DataConfig, "max_tokens", [2], [1, 0]),
        (DataConfig, "corpus", ["hsk"], [""]),
        (ModelConfig, "num_layers", [1], [0, -1]),
        (ModelConfig, "dropout_rate", [0.0, 0.99], [-0.1, 1.0]),
        (ModelConfig, "target_vocab_size", [4], [3]),
        (TrainingConfig, "label_smoothing", [0.0, 0.99], [-0.1, 1.0]),
        (TrainingConfig, "weight_average", [0.0, 0.999], [-0.1, 1.0]),
        (TrainingConfig, "max_steps", [None, 1], [0, -5]),
        (TrainingConfig, "max_minutes", [None, 0.1], [0.0, -1.0]),
        (TrainingConfig, "checkpoint_minutes", [0.1], [0.0, -1.0]),
        (TrainingConfig, "keep_checkpoints", [1], [0]),
        # NumPy and Keras refuse a negative seed, after the data have been prepared.
        (TrainingConfig, "seed", [0, 1], [-1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ranges(kind, setting, accepted, refused):
    for value in accepted:
        assert getattr(kind(**{setting: value}), setting) == value
    for value in refused:
        message = refusal(lambda value=value: kind(**{setting: value}))
        assert setting in message
        assert str(value) in message


def test_configurations_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.dff = 1
