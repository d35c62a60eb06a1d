"""`tfs.Table` and its parts: what users write down, and how it survives `get_config`."""

import dataclasses
import gc
import json

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs


@pytest.mark.parametrize(
    "argument, value, message",
    [
        ("name", "", "Table '': `name` must be a non-empty string. Received: ''"),
        ("name", None, "Table None: `name` must be a non-empty string. Received: None"),
        ("dim", 0, "Table 'users': `dim` must be an int, 1 to 65536. Received: 0"),
        ("dim", 65537, "`dim` must be an int, 1 to 65536. Received: 65537"),
        ("dim", 2.0, "`dim` must be .* Received: 2.0"),
        ("dim", True, "`dim` must be .* Received: True"),
        ("optimizer", "adam", "Table 'users': `optimizer` must be \"auto\" or one of tfs.opt"),
        ("optimizer", None, "`optimizer` must be .* Received: None"),
        ("optimizer", tf.keras.optimizers.SGD(), "`optimizer` must be .* Received: <(tf_)?keras"),
        ("initializer", "normal", "Table 'users': `initializer` must be .*Received: 'normal'"),
        ("initializer", tf.zeros, "Table 'users': `initializer` must be .*Received: <function"),
        ("default", float("nan"), r"Table 'users': `default` must be a number within \+-1e12"),
        ("default", float("inf"), "1e12. Received: inf"),
        ("default", "0", "`default` must be a number .* Received: '0'"),
        ("seed", 2**63, "Table 'users': `seed` must be an int64. Received: 9223372036854775808"),
        ("seed", -(2**63) - 1, "`seed` must be an int64"),
        ("seed", 1.5, "`seed` must be an int64. Received: 1.5"),
        ("admission", 3, "Table 'users': `admission` must be None in this version. Received: 3"),
        ("eviction", "lru", "Table 'users': `eviction` must be None in this version"),
        ("storage", "ssd", "Table 'users': `storage` must be None in this version"),
    ],
)
def test_a_bad_argument_is_refused_by_table_and_name(argument, value, message):
    with pytest.raises(ValueError, match=message):
        tfs.Table(**{"name": "users", "dim": 2, argument: value})


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 1},
        {"dim": 65536},
        {"default": -1},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"optimizer": tfs.optimizers.Adam()},
        {"initializer": "zeros"},
        {"initializer": tfs.initializers.Uniform(-1.0, 1.0)},
    ],
)
def test_a_good_argument_is_kept(options):
    table = tfs.Table(**{"name": "users", "dim": 2, **options})
    ((argument, value),) = options.items()
    wanted = tfs.initializers.Zeros() if value == "zeros" else value
    assert getattr(table, argument) == wanted


def test_numpy_integers_are_kept_as_integers():
    table = tfs.Table("users", np.int32(4), seed=np.int64(-7))
    assert (type(table.dim), table.dim, type(table.seed), table.seed) == (int, 4, int, -7)
    assert json.loads(json.dumps(table.get_config()))["dim"] == 4


def test_options_are_given_by_name():
    with pytest.raises(TypeError, match="positional"):
        tfs.Table("users", 2, "auto")


def test_defaults_are_the_documented_ones():
    table = tfs.Table("users", 2)
    assert table.optimizer == "auto"
    assert table.initializer == tfs.initializers.Uniform(-0.05, 0.05)
    assert (table.default, table.seed) == (0.0, 0)
    assert (table.admission, table.eviction, table.storage) == (None, None, None)


def test_a_table_cannot_be_changed():
    table = tfs.Table("users", 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.dim = 3
    assert table.dim == 2


def test_two_equal_descriptions_are_two_tables():
    assert tfs.Table("users", 2) != tfs.Table("users", 2)
    assert len({tfs.Table("users", 2), tfs.Table("users", 2)}) == 2


def test_a_config_is_plain_json_and_gives_the_table_back():
    table = tfs.Table(
        "users",
        3,
        optimizer=tfs.optimizers.Adam(0.5, beta_1=0.8, beta_2=0.9, epsilon=1e-3),
        initializer=tfs.initializers.Uniform(-2.0, 1.0),
        default=0.25,
        seed=-7,
    )
    config = json.loads(json.dumps(table.get_config()))
    again = tfs.Table.from_config(config, "layer")
    for field in dataclasses.fields(table):
        assert getattr(again, field.name) == getattr(table, field.name), field.name
    assert again is not table


@pytest.mark.parametrize(
    "part",
    [
        {"optimizer": tfs.optimizers.SGD(0.5)},
        {"optimizer": tfs.optimizers.Adagrad(0.5, initial_accumulator_value=0.25, epsilon=1e-3)},
        {"initializer": tfs.initializers.Zeros()},
        {"initializer": tfs.initializers.Constant(3.0)},
    ],
)
def test_every_optimizer_and_initializer_survives_a_config(part):
    config = json.loads(json.dumps(tfs.Table("users", 3, **part).get_config()))
    again = tfs.Table.from_config(config, "layer")
    ((name, wanted),) = part.items()
    assert getattr(again, name) == wanted


def revive(table, *layer_names):
    """The tables that layers of these names get when a model is made from its config."""
    revived = []
    for name in layer_names:
        revived.append(tfs.Table.from_config(table.get_config(), name))
        revived[-1].layers.add(name)
    return revived


def test_layers_of_one_copy_share_their_table():
    one, other = revive(tfs.Table("users", 2), "item", "history")
    assert one is other


def test_each_copy_of_a_model_has_a_table_of_its_own():
    table = tfs.Table("users", 2)
    first = revive(table, "item", "history")
    second = revive(table, "item", "history")
    assert first[0] is first[1]
    assert second[0] is second[1]
    assert len({table, first[0], second[0]}) == 3


def test_tables_of_one_name_stay_apart_in_a_copy():
    (one,) = revive(tfs.Table("users", 2), "item")
    (other,) = revive(tfs.Table("users", 2), "history")
    assert one is not other


def test_a_copy_that_is_gone_is_not_shared_with_the_next():
    table = tfs.Table("users", 2)
    (first,) = revive(table, "item")
    uid = first.uid
    del first
    gc.collect()
    (second,) = revive(table, "history")
    assert second.uid != uid


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tfs.optimizers.SGD(-0.1), "SGD needs learning_rate >= 0, .*Received: SGD"),
        (lambda: tfs.optimizers.SGD(float("nan")), "learning_rate >= 0"),
        (lambda: tfs.optimizers.SGD(float("inf")), "learning_rate >= 0, at most 1e12"),
        (lambda: tfs.optimizers.SGD("0.1"), "learning_rate >= 0"),
        (lambda: tfs.optimizers.Adam(epsilon=1e-50), "epsilon > 0 in float32"),
        (lambda: tfs.optimizers.Adam(beta_2=1 - 1e-12), r"beta_2 in \[0, 1\)"),
        (lambda: tfs.initializers.Constant(float("nan")), "Constant needs value within"),
        (lambda: tfs.initializers.Uniform(0.0, float("inf")), "Uniform needs maxval within"),
        (lambda: tfs.optimizers.Adagrad(-1.0), "Adagrad needs learning_rate >= 0"),
        (lambda: tfs.optimizers.Adagrad(epsilon=0.0), "epsilon > 0"),
        (
            lambda: tfs.optimizers.Adagrad(initial_accumulator_value=-0.1),
            "initial_accumulator_value >= 0",
        ),
        (lambda: tfs.optimizers.Adam(-1.0), "Adam needs learning_rate >= 0"),
        (lambda: tfs.optimizers.Adam(beta_1=1.0), r"beta_1 in \[0, 1\)"),
        (lambda: tfs.optimizers.Adam(beta_2=-0.1), r"beta_2 in \[0, 1\)"),
        (lambda: tfs.optimizers.Adam(epsilon=-1e-7), "epsilon > 0"),
        (lambda: tfs.initializers.Uniform(1.0, -1.0), "Uniform needs minval <= maxval"),
    ],
)
def test_bad_numbers_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_optimizers_have_the_defaults_of_keras(name):
    keras = getattr(tf.keras.optimizers, name)().get_config()
    for argument, value in dataclasses.asdict(getattr(tfs.optimizers, name)()).items():
        assert keras[argument] == pytest.approx(value), argument


def test_optimizers_and_initializers_are_values():
    assert tfs.optimizers.Adam(0.5) == tfs.optimizers.Adam(0.5)
    assert tfs.initializers.Constant(1.0) != tfs.initializers.Constant(2.0)
    for part in (tfs.optimizers.SGD(), tfs.initializers.Uniform()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            part.learning_rate = 1.0
