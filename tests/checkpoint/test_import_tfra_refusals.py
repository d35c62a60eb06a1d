"""What `tfsparse import-tfra` refuses, with what to do; and that nothing is written then."""

import shutil

import numpy as np
import pytest

from tests.checkpoint.tfra_dumps import copy_of, drop_key, rename, spoil_value
from tfsparse.checkpoint.tfra import Training, import_dump

USERS = "users-parameter"
SLOT = f"{USERS}_DynamicEmbedding_users-shadow_"
TRAINED = Training(iterations=3)


def remove(pattern):
    return lambda dump: [file.unlink() for file in dump.glob(pattern)]


def cut(name, num_bytes):
    def change(dump):
        data = (dump / name).read_bytes()
        (dump / name).write_bytes(data[:-num_bytes])

    return change


def narrow(dump):
    """Rows of one file with a float less."""
    name = dump / f"{USERS}_mht_1of2_rank0_size2-values"
    np.fromfile(name, np.float32).reshape(-1, 4)[:, :3].tofile(name)


def move_a_key(dump):
    """A key of one rank, with another value, in the file of another, too."""
    for variable in (USERS, f"{SLOT}m", f"{SLOT}v"):
        for part, dtype in (("keys", np.int64), ("values", np.float32)):
            first, second = (
                dump / f"{variable}_mht_{place}_size2-{part}"
                for place in ("1of2_rank0", "2of2_rank1")
            )
            width = 1 if part == "keys" else 4
            of_first, of_second = (
                np.fromfile(f, dtype).reshape(-1, width) for f in (first, second)
            )
            keys = np.fromfile(dump / f"{variable}_mht_1of2_rank0_size2-keys", np.int64)
            number = keys.tolist().index(min(keys))
            extra = of_first[number] + (1 if variable == USERS and part == "values" else 0)
            np.append(of_second, extra[np.newaxis].astype(dtype), axis=0).tofile(second)


def replace_a_key(dump):
    for slot in "mv":
        name = dump / f"{SLOT}{slot}_mht_1of2_rank0_size2-keys"
        keys = np.fromfile(name, np.int64)
        keys[0] = 12345
        keys.tofile(name)


def repeat_a_key(dump):
    name = dump / f"{SLOT}m_mht_1of2_rank0_size2-keys"
    keys = np.fromfile(name, np.int64)
    keys[0] = keys[1]
    keys.tofile(name)


def add_another_save(size, devices=1):
    """Files of one more save, of users alone."""

    def change(dump):
        for part in ("keys", "values"):
            for rank in range(size):
                for device in range(1, devices + 1):
                    source = dump / f"{USERS}_mht_1of2_rank0_size2-{part}"
                    name = f"{USERS}_mht_{device}of{devices}_rank{rank}_size{size}-{part}"
                    shutil.copy(source, dump / name)

    return change


# What is done to the dump of two ranks with two devices each, options, and what the error says.
DAMAGED = {
    "values missing": (
        remove(f"{USERS}_mht_2of2_rank1_*-values"),
        rf"each of 2 devices of 2 ranks .*Missing: \['{USERS}_mht_2of2_rank1_size2-values'\]",
    ),
    "keys missing": (remove(f"{SLOT}m_mht_1of2_rank0_*-keys"), "Missing: .*1of2_rank0_size2-keys"),
    "rank missing": (remove("*_rank1_*"), "rank1_size2-keys.*Bring the files of all ranks"),
    "device missing": (remove(f"{USERS}_mht_2of2_*"), "Missing: .*2of2_rank0_size2-keys"),
    "slots of fewer devices": (
        lambda dump: [
            remove(f"{SLOT}m_mht_2of2_*")(dump),
            rename(dump, "users-shadow_m_mht_1of2", "users-shadow_m_mht_1of1"),
        ],
        "has files of 2 devices and ranks, and 'users-parameter', whose slot it is, of 4",
    ),
    "rank too many": (
        lambda dump: shutil.copy(
            dump / f"{USERS}_mht_1of2_rank0_size2-keys", dump / f"{USERS}_mht_1of2_rank5_size2-keys"
        ),
        r"of other devices and ranks: \[\(1, 5\)\]",
    ),
    "keys cut": (cut(f"{USERS}_mht_1of2_rank0_size2-keys", 3), "must have int64 keys.*Save again"),
    "values cut": (cut(f"{SLOT}v_mht_1of2_rank0_size2-values", 4), "and '.*v_mht.*as many rows"),
    "values without keys": (
        lambda dump: (dump / f"{USERS}_mht_2of2_rank0_size2-values").write_bytes(b"1234"),
        "Received: 0 and 4 bytes",
    ),
    "keys without values": (
        lambda dump: (dump / f"{USERS}_mht_1of2_rank0_size2-values").write_bytes(b""),
        "and 0 bytes",
    ),
    "dims": (narrow, "has rows of .* floats, and '.*' of .* Files of one table"),
    "another size": (add_another_save(1), "_size1, _size2: .*Give `--size N`"),
    "other devices": (add_another_save(2), r"has files of \[1, 2\] devices .*'users-parameter'"),
    "a key with two rows": (move_a_key, r"(?s)key -?\d+ comes with two rows.*Bring one of them"),
    "a foreign key of slots": (replace_a_key, "has key 12345, and 0 others, which .*one save"),
    "a key of slots twice": (repeat_a_key, "has key -?.* twice"),
    "a key without m": (
        lambda dump: drop_key(dump, f"{SLOT}m_mht_1of2_rank0_size2"),
        r"has some of the slots \['m', 'v'\] and not the others.*--without-slots",
    ),
    "a NaN": (
        lambda dump: spoil_value(dump, f"{USERS}_mht_1of2_rank0_size2", np.nan),
        r"rank0_size2-values' has values that are not finite: those of key -?\d+.*earlier save",
    ),
    "an infinite slot": (
        lambda dump: spoil_value(dump, f"{SLOT}v_mht_1of2_rank0_size2", np.inf),
        "v_mht_1of2_rank0_size2-values' has values that are not finite",
    ),
    "other slots": (
        lambda dump: rename(dump, "users-shadow_v", "users-shadow_linear"),
        r"has slots \['linear', 'm'\]. Tables have those of Adam.*Give `--without-slots`",
    ),
    "slots of two lookups": (
        lambda dump: [
            shutil.copy(file, dump / file.name.replace("DynamicEmbedding_users-shadow", "look"))
            for file in dump.glob(f"{SLOT}m_*")
        ],
        "has two slots 'm'.*--without-slots",
    ),
    "no rows": (
        lambda dump: [file.write_bytes(b"") for file in dump.iterdir()],
        r"Variables \['items-parameter', 'no_rows', 'users-parameter'\] .* have no rows",
    ),
    "no files": (remove("*"), "has no files that TFRA's FileSystemSaver writes.*kv_creator"),
    "files below": (
        lambda dump: (
            shutil.move(dump / f"{USERS}_mht_1of2_rank0_size2-keys", dump.parent)
            and shutil.move(dump, dump.parent / "x/dump")
            and shutil.move(dump.parent / "x", dump)
        ),
        r"There are some in \['.*/dump/dump'\]. Give that folder",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_dump_is_refused(damage, tmp_path):
    change, message = DAMAGED[damage]
    dump = copy_of("legacy-adam", tmp_path)
    change(dump)
    with pytest.raises(ValueError, match=message):
        import_dump(dump, tmp_path / "new/out", TRAINED)
    assert not (tmp_path / "new").exists()


OPTIONS = {
    "size": ({"size": 7}, r"has files of \[2\] ranks. Received: `--size 7`"),
    "variable": (
        {"names": {"user-parameter": "users"}},
        rf"no variables \['user-parameter'\]. It has \['items-parameter', 'no_rows', '{USERS}'\]",
    ),
    "one name": ({"names": {USERS: "a", "items-parameter": "a"}}, "names of their own"),
    "iterations": ({"training": Training()}, "Give `--iterations N`: `optimizer.iterations`"),
    "beta": ({"training": Training(iterations=3, beta_1=1)}, r"Adam needs beta_1 in \[0, 1\)"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_do_not_fit_are_refused(option, tmp_path):
    options, message = OPTIONS[option]
    arguments = {"training": TRAINED, **options}
    with pytest.raises(ValueError, match=message):
        import_dump(copy_of("legacy-adam", tmp_path), tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_target_with_something_in_it_is_left_alone(tmp_path):
    dump, out = copy_of("adam", tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    for target in (out, out / "mine"):
        with pytest.raises(ValueError, match="must not exist, or be an empty folder"):
            import_dump(dump, target, TRAINED)
    assert [file.read_text() for file in out.iterdir()] == ["mine"]


def test_an_empty_target_stays_when_the_import_fails(tmp_path):
    dump = copy_of("adam", tmp_path)
    spoil_value(dump, f"{USERS}_mht_1of1_rank0_size1", np.nan)
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="not finite"):
        import_dump(dump, tmp_path / "out", TRAINED)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_dump_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="none' is not a folder"):
        import_dump(tmp_path / "none", tmp_path / "out", TRAINED)
